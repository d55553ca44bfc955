"""What the rules about limits say: figures, what would hold, and what cannot be checked."""

from __future__ import annotations

import re

import pytest
from handmade import LIMITS, found, service

import roofplan
from roofplan.checks.checked import Checked
from roofplan.checks.limits import LIMITS as KNOWN
from roofplan.checks.rules import all_rules

BUSY = {"prompt": 4096, "output": 512, "concurrency": 64}
RULES = {
    "ttft": "ttft-limit-missed",
    "tpot": "tpot-limit-missed",
    "e2e": "e2e-limit-missed",
    "output_tokens_per_s": "throughput-below-workload",
    "requests_per_s": "throughput-below-workload",
    "usd_per_million_output_tokens": "cost-above-limit",
    "joules_per_output_token": "energy-above-limit",
}


def test_every_limit_of_time_rate_and_cost_has_a_rule():
    assert {limit.name for limit in KNOWN} == set(RULES)


def test_a_finding_holds_figure_limit_and_roof():
    times = roofplan.size("llama-3.1-8b", "h100-sxm", engine="vllm@0.19.0", **BUSY).times
    (finding,) = found("ttft-limit-missed", service(limits={"ttft": 0.2}, **BUSY))
    ttft = times.latency.ttft_s
    assert finding.figures == {"expected_s": ttft.expected, "limit_s": 0.2, "roof_s": ttft.bound}
    assert f"{ttft.expected * 1000:.0f} ms" in finding.message
    assert "the limit is 200 ms" in finding.message


def test_the_load_that_it_names_is_the_largest_that_holds():
    (finding,) = found("tpot-limit-missed", service(limits={"tpot": 0.025}, **BUSY))
    most = int(re.search(r"at most (\d+) requests", finding.message)[1])

    def tpot_s(concurrency: int) -> float:
        asked = {**BUSY, "concurrency": concurrency}
        return roofplan.size("llama-3.1-8b", "h100-sxm", engine="vllm@0.19.0", **asked).times.latency.tpot_s.expected

    assert tpot_s(most) <= 0.025 < tpot_s(most + 1)


def test_the_load_that_makes_it_cheap_enough_is_the_smallest_that_does():
    asked = {"prompt": 1000, "output": 500, "concurrency": 4}
    described = service(limits={"usd_per_million_output_tokens": 0.5}, usd_per_hour=3.0, **asked)
    (finding,) = found("cost-above-limit", described)
    least = int(re.search(r"at least (\d+) requests", finding.message)[1])

    def usd(concurrency: int) -> float:
        size = roofplan.size("llama-3.1-8b", "h100-sxm", engine="vllm@0.19.0", **{**asked, "concurrency": concurrency})
        return 3.0 * 1e6 / 3600 / size.times.throughput.output_tokens_per_s.expected

    assert usd(least) <= 0.5 < usd(least - 1)


def test_a_limit_beyond_the_roof_says_so():
    (finding,) = found("ttft-limit-missed", service(limits={"ttft": 0.001}, **BUSY))
    roof = roofplan.size("llama-3.1-8b", "h100-sxm", engine="vllm@0.19.0", **BUSY).times.latency.ttft_s.bound
    assert f"{roof * 1000:.0f} ms is the roof of this deployment" in finding.message
    wide = roofplan.size("llama-3.1-8b", "h100-sxm", engine="vllm@0.19.0", tp=8, **BUSY).times.latency.ttft_s.expected
    assert f"nearest comes tp: 8 ({wide * 1000:.1f} ms)" in finding.message
    assert finding.fix == ""


def test_a_load_is_no_setting_of_the_file():
    (finding,) = found(
        "cost-above-limit",
        service(
            limits={"usd_per_million_output_tokens": 0.6}, usd_per_hour=3.0, prompt=4096, output=512, concurrency=8
        ),
    )
    assert "requests at a time" in finding.message
    assert "requests" not in finding.fix


@pytest.mark.parametrize(
    ("limit", "changes", "why"),
    [
        ("tpot", {"output": 1}, "an output of one token has no gap"),
        ("usd_per_million_output_tokens", {"hardware": "a10"}, "no price of a10 is known"),
        ("joules_per_output_token", {"hardware": "apple-m2"}, "no power of apple-m2 is known"),
        ("ttft", {"hardware": "apple-m5-pro"}, "no dense rate of apple-m5-pro is known"),
    ],
)
def test_what_cannot_be_checked_is_an_error_and_no_silence(limit, changes, why):
    asked = {"model": "llama-3.2-1b", "engine": "plain", "prompt": 100, "output": 20, **changes}
    (finding,) = found(RULES[limit], service(limits={limit: 1e-9}, **asked))
    assert (finding.place.line, finding.severity) == (LIMITS, "error")
    assert f"cannot be checked: {why}" in finding.message


def test_the_price_of_the_file_goes_before_that_of_the_catalogue():
    cheap = service(limits={"usd_per_million_output_tokens": 0.5}, usd_per_hour=0.1, **BUSY)
    dear = service(limits={"usd_per_million_output_tokens": 0.5}, usd_per_hour=50.0, **BUSY)
    assert not found("cost-above-limit", cheap)
    assert found("cost-above-limit", dear)


def test_what_does_not_fit_is_told_by_the_rule_about_that():
    described = service("llama-3.1-405b", "h100-sxm", limits={"ttft": 0.001, "tpot": 0.001, "e2e": 0.001})
    for rule in ("ttft-limit-missed", "tpot-limit-missed", "e2e-limit-missed"):
        assert not found(rule, described)


@pytest.mark.parametrize("model", ["no-such-model", "llama-3.1-8b"])
def test_rules_end_quietly_where_nothing_can_be_built(model):
    described = service(model, "h100-sxm" if model == "no-such-model" else "no-such-device", limits={"ttft": 0.1})
    assert not found("ttft-limit-missed", described)


@pytest.mark.parametrize(
    "rule",
    sorted(
        set(RULES.values())
        | {"claim-impossible", "bottleneck-changed", "prefix-cache-off-with-shared-prefix", "speculation-does-not-pay"}
    ),
)
def test_what_a_file_does_not_ask_for_is_not_planned(rule):
    # A deployment that nobody built before: plans are shared by equal ones.
    checked = Checked(service(prompt=1234, output=321, max_num_seqs=17, block_size=16, max_model_len=4321))
    check = next(each.check for each in all_rules() if each.id == rule)
    assert list(check(checked)) == []
    assert not {"built", "memory", "sizing", "steps"} & set(vars(checked._plan))


@pytest.mark.parametrize(
    "rule", ["batch-tokens-stall-itl", "chunk-below-ramp", "fp8-kv-slower-here", "sliding-window-saves-nothing"]
)
def test_rules_about_steps_do_not_size_the_whole(rule):
    checked = Checked(service("gemma-3-12b", prompt=3456, output=123, concurrency=3, kv="fp8"))
    check = next(each.check for each in all_rules() if each.id == rule)
    list(check(checked))
    assert "sizing" not in vars(checked._plan)
