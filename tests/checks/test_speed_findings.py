"""What the rules about speed look at: engines, loads and flags that matter, and those that do not."""

from __future__ import annotations

import math
import re
import time

import pytest
from handmade import EXPECTED, FEATURES, PREFIX, found, line_of, service
from hypothesis import given, settings
from hypothesis import strategies as st

from roofplan import api
from roofplan.api.claiming import claim
from roofplan.api.speculation import speculate
from roofplan.checks.limits import LIMITS
from roofplan.planner.step import StepModel

TRIGGERED = (
    "batch-tokens-stall-itl",
    "bottleneck-changed",
    "chunk-below-ramp",
    "claim-impossible",
    "fp8-kv-slower-here",
    "pp-for-latency",
    "prefix-cache-off-with-shared-prefix",
    "sliding-window-saves-nothing",
    "speculation-does-not-pay",
    "tp-over-pcie",
)
LONG = {"prompt": 30_000, "output": 400, "concurrency": 8}
BIG = {"model": "llama-3.1-70b", "hardware": "h200-sxm", "tp": 4}
WINDOWED = {"model": "gemma-3-27b", "hardware": "h200-sxm", "prompt": 30_000, "output": 1000, "concurrency": 1}


def built(**asked):
    asked = {"engine": "vllm@0.19.0", **asked}
    return api.deployment(asked.pop("model"), asked.pop("hardware"), **asked)


# ------------------------------------------------------------------------------------------------ pieces of prompts


def test_the_gap_is_the_step_that_holds_the_last_piece():
    (finding,) = found("batch-tokens-stall-itl", service(**BIG, max_num_batched_tokens=16_384, **LONG))
    d = built(**BIG, **LONG)
    piece = 16_384 - 7  # the others' tokens stand in the step, too
    gap = StepModel.reached(d).step_s(7.0, 30_200.0, chunk=piece, past=30_000 - piece)
    assert finding.figures["gap_s"] == pytest.approx(gap)
    assert finding.figures["limit_s"] == 0.2


@pytest.mark.parametrize(
    ("engine", "flag"),
    [
        ("vllm@0.19.0", "--max-num-batched-tokens"),
        ("sglang@0.5.3", "--chunked-prefill-size"),
        ("tensorrt-llm@0.19", "--max_num_tokens"),
    ],
)
def test_the_setting_is_named_as_the_engine_names_it(engine, flag):
    (finding,) = found("batch-tokens-stall-itl", service(**BIG, kind="command", engine=engine, **LONG))
    assert finding.fix.startswith(f"{flag} ")
    assert finding.severity == "note"  # nobody wrote it
    tokens = int(re.search(r"\d+", finding.fix)[0])
    quiet = service(**BIG, kind="command", engine=engine, max_num_batched_tokens=tokens, **LONG)
    if engine != "tensorrt-llm@0.19":  # which does not cut prompts unless told to
        assert not found("batch-tokens-stall-itl", quiet)


@pytest.mark.parametrize(
    "changes",
    [
        {"concurrency": 1},  # nobody waits
        {"output": 1},  # nobody decodes
        {"prompt": 300},  # short enough
        {"engine": "plain"},  # nobody's setting
        {"engine": "llama.cpp@b5150"},  # prompts have launches of their own
    ],
)
def test_no_stall_is_told_where_nobody_is_held_up(changes):
    asked = {**BIG, **LONG, **changes}
    assert not found("batch-tokens-stall-itl", service(kind="command", **asked))


def test_whole_prompts_are_the_longest_pieces():
    described = service(
        **BIG, kind="command", features={"chunked_prefill": False}, max_num_batched_tokens=32_768, **LONG
    )
    (finding,) = found("batch-tokens-stall-itl", described)
    assert "30,000 tokens of a prompt" in finding.message
    assert finding.fix.endswith("with prompts in chunks")
    assert not found("chunk-below-ramp", described)


def test_more_sequences_than_tokens_of_a_step_are_named_too():
    described = service(**BIG, kind="command", max_num_seqs=4000, max_num_batched_tokens=32_768, **LONG)
    (finding,) = found("batch-tokens-stall-itl", described)
    assert "--max-num-seqs 1024" in finding.fix


@pytest.mark.parametrize("engine", ["vllm@0.19.0", "sglang@0.5.3", "plain"])
def test_small_pieces_cost_what_their_steps_cost(engine):
    asked = {"max_num_batched_tokens": 128, "max_num_seqs": 16, **LONG, "concurrency": 1}
    (finding,) = found("chunk-below-ramp", service(engine=engine, **asked))
    steps = StepModel.reached(built(model="llama-3.1-8b", hardware="h100-sxm", **asked | {"engine": engine}))
    pieces = [(min(128, 30_000 - past), past) for past in range(0, 30_000, 128)]
    assert finding.figures["prompt_s"] == pytest.approx(
        sum(steps.step_s(0, 0, chunk=size, past=past) for size, past in pieces)
    )
    assert finding.figures["whole_prompt_s"] == pytest.approx(steps.step_s(0, 0, chunk=30_000))


def test_both_rules_about_pieces_never_speak_of_one_deployment():
    for tokens in (64, 256, 1024, 4096, 16_384, 65_536):
        described = service(**BIG, max_num_batched_tokens=tokens, **LONG)
        both = [found(rule, described) for rule in ("batch-tokens-stall-itl", "chunk-below-ramp")]
        assert not all(both)


# ------------------------------------------------------------------------------------------------ formats and windows


def test_a_narrow_cache_is_compared_where_both_fit_and_the_load_is_known():
    slower = {"model": "qwen3-30b-a3b", "hardware": "h100-sxm", "kv": "fp8", "prompt": 500, "output": 200}
    (finding,) = found("fp8-kv-slower-here", service(**slower, concurrency=1))
    times = [float(StepModel.reached(built(**slower | {"kv": kv})).step_s(1.0, 600.0)) for kv in ("fp8", "bf16")]
    assert list(finding.figures.values()) == pytest.approx(times)
    assert times[0] > times[1]
    assert not found("fp8-kv-slower-here", service(**slower))
    assert not found("fp8-kv-slower-here", service(**slower | {"kv": "bf16"}, concurrency=1))
    assert not found("fp8-kv-slower-here", service(**slower | {"prompt": 30_000}, concurrency=8))


def test_a_switch_that_keeps_every_token_is_pointed_at():
    (finding,) = found(
        "sliding-window-saves-nothing", service(**WINDOWED, kind="command", features={"sliding_window": False})
    )
    assert (finding.place.line, finding.fix) == (FEATURES, "leave out sliding_window: false")
    # 62 layers x 2 x 16 heads x 128 elements of 2 bytes, for all tokens in the blocks of the engine.
    assert finding.figures["kept_bytes"] == pytest.approx(62 * 2 * 16 * 128 * 2 * 31_000, rel=0.01)
    # 10 full layers, and 52 that keep 1,024 tokens.
    assert finding.figures["windowed_bytes"] == 2 * 16 * 128 * 2 * (10 * 31_000 + 52 * 1024)


@pytest.mark.parametrize(
    "changes",
    [
        {},  # the engine keeps windows
        {
            "prompt": 1000,
            "output": 280,
            "max_num_batched_tokens": 8192,
        },  # a whole prompt in one step fills them all the same
        {"prompt": 500, "output": 100, "engine": "vllm@0.8.5"},  # no longer than the window
        {"model": "llama-3.1-8b", "engine": "vllm@0.8.5"},  # none
        {"features": {"sliding_window": True}},
    ],
)
def test_windows_that_save_what_they_can_are_left_alone(changes):
    assert not found("sliding-window-saves-nothing", service(**{**WINDOWED, **changes}))


# ------------------------------------------------------------------------------------------------ prefixes


SHARED = {"prompt": 3000, "output": 300, "concurrency": 16}


def test_a_prefix_cache_that_is_off_is_told_with_both_times():
    off = service(kind="command", features={"prefix_caching": False}, shared_prefix_tokens=2500, **SHARED)
    (finding,) = found("prefix-cache-off-with-shared-prefix", off)
    assert finding.place.line == FEATURES
    assert finding.fix == "--enable-prefix-caching"
    size = api.size("llama-3.1-8b", "h100-sxm", engine="vllm@0.19.0", **SHARED)
    assert finding.figures["ttft_s"] == pytest.approx(size.times.latency.ttft_s.expected)
    assert finding.figures["ttft_with_cache_s"] < finding.figures["ttft_s"]


@pytest.mark.parametrize(
    ("features", "shared", "engine"),
    [
        ({"prefix_caching": True}, 2500, "vllm@0.6.6"),
        ({}, 2500, "vllm@0.8.5"),  # on by default
        ({}, 2500, "sglang@0.5.3"),
        ({"prefix_caching": False}, None, "vllm@0.19.0"),  # nobody says that anything is shared
        ({"prefix_caching": False}, 8, "vllm@0.19.0"),  # less than a block
    ],
)
def test_no_prefix_is_missed_where_it_is_cached_or_not_there(features, shared, engine):
    described = service(kind="command", engine=engine, features=features, shared_prefix_tokens=shared, **SHARED)
    assert not found("prefix-cache-off-with-shared-prefix", described)


def test_the_default_of_old_versions_is_off():
    described = service(engine="vllm@0.6.6", max_model_len=8192, shared_prefix_tokens=2500, **SHARED)
    (finding,) = found("prefix-cache-off-with-shared-prefix", described)
    assert finding.place.line == PREFIX


# ------------------------------------------------------------------------------------------------ speculation


def drafting(said, concurrency=256, **more):
    return service(
        kind="command", features={"speculation": said}, prompt=1000, output=300, concurrency=concurrency, **more
    )


@pytest.mark.parametrize(
    ("said", "drafter", "acceptance"),
    [
        ({"method": "ngram", "k": 5}, {"method": "ngram"}, 1 / 3),
        ({"method": "eagle3", "k": 5, "model": "x/EAGLE3"}, {"method": "eagle"}, 0.7),
        ({"k": 6, "model": "llama-3.2-1b"}, {"draft": "llama-3.2-1b"}, 0.7),
    ],
)
def test_rounds_are_those_of_speculate(said, drafter, acceptance):
    (finding,) = found("speculation-does-not-pay", drafting(said))
    table = speculate(
        "llama-3.1-8b",
        "h100-sxm",
        engine="vllm@0.19.0",
        prompt=1000,
        output=300,
        concurrency=256,
        k=said["k"],
        acceptance=acceptance,
        **drafter,
    ).planned.table
    (row,) = table.rows
    assert row.speedup < 1
    assert finding.figures == {
        "speedup_ratio": row.speedup,
        "round_cost": row.round_cost,
        "expected_tokens": row.expected_tokens,
    }
    assert finding.fix == "--speculative-config.num_speculative_tokens 1"


@pytest.mark.parametrize(
    "said",
    [
        {"method": "dflash", "k": 3},  # a drafter that nothing is known of
        {"method": "ngram"},  # no number of drafts
        {"method": "ngram", "k": 100_000},
        {"k": 3, "model": "no-such-model"},
        {"method": "ngram", "k": 5, "acceptance": 0.9},  # measured, and it pays
        "ngram",
    ],
)
def test_what_is_not_known_or_pays_is_left_alone(said):
    assert not found("speculation-does-not-pay", drafting(said))


def test_few_requests_pay_and_an_unknown_load_is_not_judged():
    said = {"method": "ngram", "k": 5}
    assert not found("speculation-does-not-pay", drafting(said, concurrency=4))
    unknown = service(kind="command", features={"speculation": said}, prompt=1000, output=300)
    assert not found("speculation-does-not-pay", unknown)
    admitted = service(kind="command", features={"speculation": said}, prompt=1000, output=300, max_num_seqs=256)
    (finding,) = found("speculation-does-not-pay", admitted)
    assert finding.severity == "note"  # so many may run, nobody said that they do
    (said_so,) = found("speculation-does-not-pay", drafting(said))
    assert said_so.severity == "warning"


# ------------------------------------------------------------------------------------------------ divisions


def test_ranks_over_a_slow_link_are_compared_with_the_same_devices():
    asked = {"prompt": 400, "output": 300, "concurrency": 32}
    described = service("llama-3.1-8b", "l40s", kind="command", tp=4, **asked)
    (finding,) = found("tp-over-pcie", described)
    assert finding.place.line == line_of(described, "tp")
    assert finding.fix == "--tensor-parallel-size 2 --data-parallel-size 2"
    rates = [
        api.size(
            "llama-3.1-8b", "l40s", engine="vllm@0.19.0", **asked, **layout
        ).times.throughput.output_tokens_per_s.expected
        for layout in ({"tp": 4}, {"tp": 2, "dp": 2})
    ]
    assert finding.figures["output_tokens_per_s"] == pytest.approx(rates[0])
    assert rates[1] > 1.1 * rates[0]


@pytest.mark.parametrize(
    "changes",
    [{"hardware": "h100-sxm"}, {"tp": 1}, {"concurrency": 1}, {"engine": "llama.cpp@b5150"}],
)
def test_ranks_that_a_fast_link_joins_or_that_pay_are_left_alone(changes):
    asked = {"hardware": "l40s", "tp": 4, "prompt": 400, "output": 300, "concurrency": 32, **changes}
    assert not found("tp-over-pcie", service("llama-3.1-8b", **asked))


@pytest.mark.parametrize(
    "changes",
    [
        {"concurrency": None},  # unknown
        {"tp": 8, "pp": 2},  # more than a machine joins
        {"pp": 1},
        {"tp": 2, "pp": 2, "concurrency": 64},  # stages that have work
    ],
)
def test_stages_that_have_a_reason_are_left_alone(changes):
    asked = {"pp": 4, "prompt": 2000, "output": 300, "concurrency": 4, **changes}
    asked = {name: value for name, value in asked.items() if value is not None}
    assert not found("pp-for-latency", service("llama-3.1-70b", "h100-sxm", **asked))


# ------------------------------------------------------------------------------------------------ expectations


@pytest.mark.parametrize("text", ["500 tok/s", "130 tok/s", "60 tok/s", "100000 tok/s", "300 sequences", "40 ms TTFT"])
@pytest.mark.parametrize("wanted", ["", "plausible", "needs_help", "impossible", "slower_than_it_should_be"])
def test_a_claim_is_judged_as_claim_judges_it(text, wanted):
    asked = {"prompt": 2000, "output": 300, "concurrency": 1}
    verdict = claim(text, "llama-3.1-8b", "h100-sxm", engine="vllm@0.19.0", **asked).verdict
    findings = found("claim-impossible", service(expect=(("claim", text, wanted),), **asked))
    assert len(findings) == (verdict != (wanted or "plausible"))
    for finding in findings:
        assert verdict in finding.message
        assert finding.place.line == EXPECTED
        kept = verdict == "slower_than_it_should_be" and wanted in {"", "plausible"}
        assert finding.severity == ("note" if kept else "error")


@pytest.mark.parametrize("text", ["2.4x", "8", "soon"])
def test_a_claim_that_cannot_be_checked_is_an_error(text):
    (finding,) = found("claim-impossible", service(expect=(("claim", text, "plausible"),)))
    assert finding.severity == "error"
    assert "cannot be checked" in finding.message


def test_prompts_in_very_many_pieces_are_not_walked_through_again_and_again():
    asked = {"prompt": 30_000, "output": 300, "concurrency": 8, "max_num_batched_tokens": 9}
    (finding,) = found("claim-impossible", service(expect=(("claim", "50 tok/s", "plausible"),), **asked))
    assert "cannot be checked" in finding.message
    started = time.monotonic()
    for rule in ("pp-for-latency", "tp-over-pcie"):
        assert not found(rule, service("llama-3.1-8b", "l40s", tp=2, pp=2, **asked))
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("concurrency", [1, 16, 64, 200])
@pytest.mark.parametrize("wanted", ["compute", "weight_bandwidth", "kv_bandwidth", "overhead", "capacity"])
def test_a_bottleneck_is_that_of_size(concurrency, wanted):
    asked = {"prompt": 2000, "output": 300, "concurrency": concurrency}
    limit = api.size("llama-3.1-8b", "h100-sxm", engine="vllm@0.19.0", **asked).decode_limit
    findings = found("bottleneck-changed", service(expect=(("bottleneck", wanted, ""),), **asked))
    assert len(findings) == (limit != wanted)
    assert all(str(limit) in finding.message for finding in findings)


def test_the_batch_at_which_the_expected_one_binds_is_one():
    asked = {"prompt": 2000, "output": 300}
    (finding,) = found(
        "bottleneck-changed", service(expect=(("bottleneck", "kv_bandwidth", ""),), concurrency=16, **asked)
    )
    batch = int(re.search(r"at a batch of (\d+)", finding.message)[1])
    size = api.size("llama-3.1-8b", "h100-sxm", engine="vllm@0.19.0", concurrency=batch, **asked)
    assert size.decode_limit == "kv_bandwidth"


# ------------------------------------------------------------------------------------------------ anything


@settings(deadline=None, max_examples=60)
@given(
    options=st.fixed_dictionaries(
        {
            "model": st.sampled_from(["llama-3.2-1b", "gemma-3-4b", "qwen3-30b-a3b", "mamba-2.8b", "deepseek-v2-lite"]),
            "hardware": st.sampled_from(["l40s", "h100-sxm", "apple-m5-pro", "a10", "mi300x", "p40"]),
            "engine": st.sampled_from(
                ["vllm@0.19.0", "vllm@0.6.3", "sglang", "tensorrt-llm", "llama.cpp", "plain", "?"]
            ),
        },
        optional={
            "prompt": st.sampled_from([1, 17, 3000, 2**17]),
            "output": st.sampled_from([1, 2, 300]),
            "concurrency": st.sampled_from([1, 3, 500]),
            "tp": st.sampled_from([2, 3, 8]),
            "pp": st.sampled_from([2, 4, 1000]),
            "max_num_batched_tokens": st.sampled_from([600, 2048, 10**6]),
            "max_num_seqs": st.sampled_from([1, 10**6]),
            "kv": st.sampled_from(["fp8", "no-such"]),
        },
    ),
    features=st.dictionaries(
        st.sampled_from(["speculation", "prefix_caching", "chunked_prefill", "sliding_window"]),
        st.sampled_from([True, False, "auto", None, {"method": "ngram", "k": 4}, {"method": 3, "k": True}, {"k": "x"}]),
    ),
    limits=st.dictionaries(st.sampled_from([limit.name for limit in LIMITS]), st.sampled_from([1e-9, 0.1, 1e9])),
    shared=st.sampled_from([None, 1, 10**9]),
)
def test_whatever_is_read_no_rule_ends_in_a_fault(options, features, limits, shared):
    expect = (("claim", "50 tok/s", "plausible"), ("bottleneck", "compute", ""))
    described = service(
        **options, kind="command", features=features, limits=limits, shared_prefix_tokens=shared, expect=expect
    )
    for rule in (*TRIGGERED, "ttft-limit-missed", "throughput-below-workload", "cost-above-limit"):
        for finding in found(rule, described):
            assert finding.message
            assert all(math.isfinite(value) for value in finding.figures.values())
