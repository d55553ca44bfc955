"""What a change of deployment files does: which services are the same one, and how their figures differ."""

from __future__ import annotations

from typing import Any

import pytest
from check_records import finding, result, service
from pytest import approx

import roofplan
from roofplan.checks import diff as diffs
from roofplan.checks.checked import Checked
from roofplan.checks.diff import Change, diff, matched

WORKLOAD = {"prompt": 4096, "output": 512, "concurrency": 64}


def compared(before: Any, after: Any) -> Any:
    (one,) = diff(result(services=(before,)), result(services=(after,))).services
    return one


def figures(before: Any, after: Any) -> dict[str, Change]:
    return {change.name: change for change in compared(before, after).figures}


def test_figures_are_those_of_size() -> None:
    found = figures(service(**WORKLOAD), service(**WORKLOAD, kv="fp8"))
    for position, options in enumerate((WORKLOAD, {**WORKLOAD, "kv": "fp8"})):
        size: Any = roofplan.size("llama-3.1-8b", "h100-sxm5-80gb", **options).to_dict()["result"]
        for name in (
            "memory.free_bytes",
            "capacity.kv_tokens",
            "latency.ttft_s",
            "latency.tpot_s",
            "throughput.output_tokens_per_s",
        ):
            group, figure = name.split(".")
            said = size[group][figure]
            assert (found[name].before, found[name].after)[position] == (
                said["expected"] if isinstance(said, dict) else said
            )


def test_halving_the_cache_doubles_what_it_holds_and_is_better() -> None:
    found = figures(service(**WORKLOAD), service(**WORKLOAD, kv="fp8"))
    assert found["capacity.kv_tokens"].after == approx(2 * found["capacity.kv_tokens"].before, rel=1e-4)
    assert found["capacity.kv_tokens"].verdict == "better"
    assert found["memory.weights_bytes"].verdict == "same"


def test_cost_follows_from_price_and_rate_and_counts_all_copies() -> None:
    found = figures(service(**WORKLOAD, usd_per_hour=2.0), service(**WORKLOAD, usd_per_hour=3.0, replicas=4))
    rate = found["throughput.output_tokens_per_s"].before
    assert found["cost.usd_per_million_output_tokens"].before == approx(2.0 * 1e6 / 3600 / rate)
    assert (found["cost.usd_per_hour"].before, found["cost.usd_per_hour"].after) == (2.0, 12.0)
    assert found["cost.usd_per_hour"].verdict == "worse"


def test_settings_that_differ_are_told_with_both_values() -> None:
    one = compared(service(tp=2, kv="fp8"), service(tp=4, engine="vllm@0.19", replicas=2))
    assert [(it.name, it.before, it.after) for it in one.settings] == [
        ("engine", "plain", "vllm@0.19"),
        ("tp", 2, 4),
        ("replicas", None, 2),
        ("kv", "fp8", None),
    ]


def test_a_service_that_says_the_same_is_not_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(diffs, "Checked", refuse)
    one = compared(service(), service(file="elsewhere.yaml"))
    assert (one.state, one.settings, one.figures) == ("same", (), ())


def test_services_come_and_go() -> None:
    before = result(services=(service("a"), service("b"), service("c")))
    after = result(services=(service("b"), service("d"), service("e")))
    states = {one.name: one.state for one in diff(before, after).services}
    assert states == {"a": "removed", "b": "same", "c": "removed", "d": "added", "e": "added"}


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [
        ([("old", "old.yaml")], [("new", "new.yaml")], [("old.yaml", "new.yaml")]),
        ([("x", "a/1.yaml"), ("x", "a/2.yaml")], [("x", "b/2.yaml"), ("x", "b/1.yaml")], [("a/2.yaml", "b/2.yaml"), ("a/1.yaml", "b/1.yaml")]),
        ([("x", "a.yaml"), ("x", "a.yaml")], [("x", "a.yaml")], [("a.yaml", "a.yaml"), ("a.yaml", None)]),
        ([("x", "p/one/d.yaml"), ("x", "p/two/d.yaml")], [("x", "q/two/d.yaml")], [("p/two/d.yaml", "q/two/d.yaml"), ("p/one/d.yaml", None)]),
        ([], [("x", "a.yaml")], [(None, "a.yaml")]),
        ([], [], []),
    ],
)  # fmt: skip
def test_services_are_matched_by_name_then_by_the_ends_of_their_paths(before: Any, after: Any, pairs: Any) -> None:
    found = matched([service(*one) for one in before], [service(*one) for one in after])
    assert [tuple(None if one is None else one.place.file for one in pair) for pair in found] == pairs


def test_findings_that_come_and_go_are_told_though_no_setting_differs() -> None:
    before = result(finding("missing-shm", "warning"), finding("missing-shm", "warning", line=9))
    after = result(finding("missing-shm", "warning"), finding("does-not-fit"), finding("does-not-fit", service="other"))
    (one,) = diff(before, after).services
    assert (one.state, one.appeared, one.gone) == ("same", ("does-not-fit",), ("missing-shm",))


def test_what_cannot_be_planned_says_why() -> None:
    one = compared(service(), service(model="nope"))
    assert "model: got nope" in one.unplanned
    assert all(change.after is None for change in one.figures)
    assert Checked(service(model="nope")).built is not None


@pytest.mark.parametrize(
    ("name", "before", "after", "verdict"),
    [
        ("latency.ttft_s", 1.0, 1.005, "same"),
        ("latency.ttft_s", 1.0, 1.02, "worse"),
        ("latency.ttft_s", 1.0, 0.9, "better"),
        ("capacity.kv_tokens", 100, 200, "better"),
        ("fits", True, False, "worse"),
        ("fits", False, True, "better"),
        ("bottleneck.decode", "compute", "kv_bandwidth", "other"),
        ("latency.ttft_s", None, 1.0, "other"),
        ("latency.ttft_s", None, None, "same"),
    ],
)
def test_verdicts(name: str, before: Any, after: Any, verdict: str) -> None:
    assert Change(name, before, after).verdict == verdict
