"""Each limit of a deployment file flips exactly where the planner's figure crosses it.

Figures come from the public call, cost and energy from their formulas (F13.8, F13.9) written out here.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from handmade import LIMITS, found, service
from hypothesis import given, settings
from hypothesis import strategies as st

import roofplan

USD_PER_HOUR = 2.7
WORKLOADS = st.fixed_dictionaries(
    {
        "prompt": st.sampled_from([64, 500, 4096]),
        "output": st.sampled_from([2, 200, 1000]),
        "concurrency": st.sampled_from([1, 7, 64, 300]),
        "tp": st.sampled_from([1, 2]),
        "kv": st.sampled_from(["bf16", "fp8"]),
    }
)
FACTORS = st.one_of(st.just(1.0), st.floats(0.25, 4.0), st.floats(0.999999, 1.000001))


def devices(result: Any) -> int:
    return result.deployment.layout.devices


def rate(result: Any) -> float:
    return result.times.throughput.output_tokens_per_s.expected


# Limit: its rule, the planner's figure, and whether less of it misses the limit.
CASES = {
    "ttft": ("ttft-limit-missed", lambda r: r.times.latency.ttft_s.expected, False),
    "tpot": ("tpot-limit-missed", lambda r: r.times.latency.tpot_s.expected, False),
    "e2e": ("e2e-limit-missed", lambda r: r.times.latency.e2e_s.expected, False),
    "output_tokens_per_s": ("throughput-below-workload", rate, True),
    "requests_per_s": ("throughput-below-workload", lambda r: rate(r) / r.deployment.workload.output, True),
    "usd_per_million_output_tokens": (
        "cost-above-limit",
        lambda r: devices(r) * USD_PER_HOUR * 1e6 / (3600 * rate(r)),
        False,
    ),
    "joules_per_output_token": ("energy-above-limit", lambda r: devices(r) * 700 / rate(r), False),
    "headroom": ("headroom-missed", lambda r: r.memory.free_bytes, True),
    "context": ("context-limit-missed", lambda r: r.capacity.max_context, True),
    "concurrency": ("concurrency-limit-missed", lambda r: r.capacity.max_concurrency, True),
}
WHOLE = ("headroom", "context", "concurrency")
EXACT = ("ttft", "tpot", "e2e", "output_tokens_per_s", *WHOLE)  # the planner's own number, to the last bit


@pytest.mark.parametrize("limit", CASES)
@settings(deadline=None, max_examples=40)
@given(workload=WORKLOADS, factor=FACTORS)
def test_the_verdict_flips_where_the_figure_crosses_the_limit(limit, workload, factor):
    rule, figure_of, at_least = CASES[limit]
    figure = figure_of(roofplan.size("llama-3.1-8b", "h100-sxm", engine="vllm@0.19.0", **workload))
    value = figure * factor
    if limit in WHOLE:
        value = max(1, round(value))
    elif limit not in EXACT and 0 < abs(value / figure - 1) < 1e-12:
        return  # the same formula in another order of operations
    elif limit not in EXACT and value == figure:
        value *= 1 - 1e-12 if at_least else 1 + 1e-12
    described = service(limits={limit: value}, usd_per_hour=USD_PER_HOUR, **workload)
    findings = found(rule, described)
    missed = figure < value if at_least else figure > value
    assert len(findings) == missed
    assert all((each.place.line, each.severity) == (LIMITS, "error") for each in findings)


@pytest.mark.parametrize("limit", EXACT)
def test_it_flips_between_neighbouring_numbers(limit):
    rule, figure_of, at_least = CASES[limit]
    asked = {"prompt": 1000, "output": 200, "concurrency": 20}
    figure = figure_of(roofplan.size("llama-3.1-8b", "h100-sxm", engine="vllm@0.19.0", **asked))
    step = 1 if limit in WHOLE else None
    above = figure + 1 if step else math.nextafter(figure, math.inf)
    below = figure - 1 if step else math.nextafter(figure, 0)
    verdicts = [bool(found(rule, service(limits={limit: value}, **asked))) for value in (below, figure, above)]
    assert verdicts == ([False, False, True] if at_least else [True, False, False])
