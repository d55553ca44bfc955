"""Rules about speed and cost: each has a file that triggers it and one that does not, and its advice holds when it is followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from roofplan.checks.rules import all_rules
from roofplan.checks.run import check_paths, check_text
from roofplan.checks.settings import Settings

HERE = Path(__file__).parent / "rules"
# Rule: line of the finding in its trigger, severity there, and what stands there.
TRIGGERS = {
    "batch-tokens-stall-itl": (6, "warning", "max_num_batched_tokens: 16384"),
    "bottleneck-changed": (9, "error", "bottleneck: kv_bandwidth"),
    "chunk-below-ramp": (5, "warning", "max_num_batched_tokens: 256"),
    "claim-impossible": (8, "error", "claim: 500 tok/s"),
    "cost-above-limit": (10, "error", "usd_per_million_output_tokens: 0.6"),
    "e2e-limit-missed": (9, "error", "e2e: 10 s"),
    "energy-above-limit": (9, "error", "joules_per_output_token: 0.3"),
    "fp8-kv-slower-here": (5, "note", "kv: fp8"),
    "pp-for-latency": (4, "warning", "pp: 4"),
    "prefix-cache-off-with-shared-prefix": (9, "warning", "shared_prefix_tokens: 2500"),
    "sliding-window-saves-nothing": (4, "warning", "engine: vllm@0.8.5"),
    "speculation-does-not-pay": (17, "note", '--speculative-config={"method":"ngram"'),
    "throughput-below-workload": (9, "error", "output_tokens_per_s: 3000"),
    "tp-over-pcie": (4, "warning", "tp: 4"),
    "tpot-limit-missed": (9, "error", "tpot: 25 ms"),
    "ttft-limit-missed": (9, "error", "ttft: 200 ms"),
}
# Rules whose fix in the trigger is nothing but keys of a deployment file.
FOLLOWED = (
    "batch-tokens-stall-itl",
    "chunk-below-ramp",
    "e2e-limit-missed",
    "energy-above-limit",
    "fp8-kv-slower-here",
    "pp-for-latency",
    "throughput-below-workload",
    "tp-over-pcie",
    "tpot-limit-missed",
)


def the_file(rule: str, what: str) -> Path:
    (path,) = (HERE / rule).glob(f"{what}.*")
    return path


@pytest.mark.parametrize("rule", TRIGGERS)
def test_the_trigger_gives_this_rule_alone_at_the_right_line(rule):
    path = the_file(rule, "trigger")
    line, severity, text = TRIGGERS[rule]
    result = check_paths([path], Settings())
    assert not result.problems
    (finding,) = result.findings
    assert (finding.rule, finding.place.line, finding.severity) == (rule, line, severity)
    assert text in path.read_text().splitlines()[line - 1]
    assert finding.place.file.endswith(path.name)
    assert all(isinstance(value, (int, float)) for value in finding.figures.values())


@pytest.mark.parametrize("rule", TRIGGERS)
def test_the_quiet_file_gives_nothing(rule):
    result = check_paths([the_file(rule, "quiet")], Settings())
    assert (result.findings, result.problems) == ((), ())


@pytest.mark.parametrize("rule", FOLLOWED)
def test_following_the_fix_silences_the_rule(rule):
    path = the_file(rule, "trigger")
    (finding,) = check_paths([path], Settings()).findings
    changed = {**yaml.safe_load(path.read_text()), **yaml.safe_load("{" + finding.fix + "}")}
    # JSON is YAML, and says 1e-05 where YAML would take a text.
    assert not [
        left for left in check_text(json.dumps(changed), "followed.yaml", Settings()).findings if left.rule == rule
    ]


def test_each_rule_is_described():
    rules = {rule.id: rule for rule in all_rules()}
    for name in TRIGGERS:
        rule = rules[name]
        assert all(len(text) > 20 for text in (rule.title, rule.why, rule.fix))
        assert rule.title[0].isupper()
        assert rule.title[-1] != "."
        assert (rule.why[-1], rule.fix[-1]) == (".", ".")


def test_selecting_other_rules_leaves_these_out():
    path = the_file("ttft-limit-missed", "trigger")
    assert not check_paths([path], Settings(select=("does-not-fit",))).findings
    assert not check_paths([path], Settings(ignore=("ttft-limit-missed",))).findings
