"""Servers under load in closed form against the event simulation.

The bounds are those of the notes on load (section 6: median over rows of the absolute logarithm of the ratio of TTFT), with a margin of
0.05, since their rows are not these. For the rows of published benchmarks see tests/accuracy/test_served.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from statistics import fmean, median
from typing import TYPE_CHECKING

import pytest
from pytest import approx
from servers import FIRST, LARGE, MIXED, SLOW, SMALL, rate_of, server, simulated, state

from roofplan.engines.timing import Scheduling
from roofplan.planner.load import Traffic, closed_loop, saturated

if TYPE_CHECKING:
    from collections.abc import Iterable

MARGIN = 0.05
VLLM = Scheduling(admission="mixed", look_ahead=1, output_lag=1, request_overhead=12e-3)
TRTLLM = Scheduling(admission="whole_prompts", look_ahead=1, output_lag=1, request_overhead=20e-3)
SGLANG = Scheduling(admission="prefill_first", output_lag=1, request_overhead=12e-3)
VARIED = ((1024, 1024), (8192, 1024), (1024, 8192))
EQUAL = ((1024, 512), (4096, 512), (2048, 128), (4096, 128), (2048, 1024))


def distances(
    scheduling: Scheduling, clients: int, shapes: Iterable[tuple[int, int]], low: float, budget: int = 0
) -> tuple[float, float]:
    """Medians over models and shapes of the distance of TTFT and TPOT; without a budget it is ISL + C, as in NVIDIA's sweeps."""
    found = []
    for model, (prompt, output) in itertools.product((SMALL, LARGE, SLOW), shapes):
        s = server(model, scheduling, budget or prompt + clients)
        traffic = Traffic(prompt * (1 + low) / 2, output * (1 + low) / 2, clients, low)
        closed, event = closed_loop(s, traffic), simulated(s, traffic)
        assert event.mean_tpot_s is not None
        pairs = ((closed.ttft_s, event.mean_ttft_s), (closed.tpot_s, event.mean_tpot_s))
        found.append([abs(math.log(mine / theirs)) for mine, theirs in pairs])
    return median(ttft for ttft, _ in found), median(tpot for _, tpot in found)


@pytest.mark.parametrize(
    ("scheduling", "budget", "table"),
    [
        (VLLM, 8192, {4: 0.02, 8: 0.02, 16: 0.03, 32: 0.04, 64: 0.04, 128: 0.05}),
        (TRTLLM, 16384, {4: 0.05, 8: 0.02, 16: 0.04, 32: 0.04, 64: 0.02, 128: 0.05}),
        (replace(SGLANG, poll_steps=10), 8192, {4: 0.13, 8: 0.11, 16: 0.10, 32: 0.05, 64: 0.07, 128: 0.06}),
    ],
    ids=["vLLM", "TensorRT-LLM", "SGLang that polls"],
)
def test_varied_lengths(scheduling: Scheduling, budget: int, table: dict[int, float]) -> None:
    for clients, printed in table.items():
        ttft, tpot = distances(scheduling, clients, VARIED, 0.8, budget)
        assert ttft <= printed + MARGIN, clients
        assert tpot <= MARGIN, clients


@pytest.mark.parametrize(("clients", "printed"), [(16, 0.02), (64, 0.01), (128, 0.01)])
def test_equal_prompts_that_run_first(clients: int, printed: float) -> None:
    ttft, tpot = distances(SGLANG, clients, EQUAL, 1.0, 8192)
    assert ttft <= printed + 0.005
    assert tpot <= 0.01


@pytest.mark.xfail(
    strict=True, reason="the closed form is 0.15 to 0.4 below the simulation, about twice as far as noted"
)
@pytest.mark.parametrize("engine", [0, 1], ids=["vLLM", "TensorRT-LLM"])
def test_equal_lengths_in_mixed_steps(engine: int) -> None:
    table = {8: (0.17, 0.23), 16: (0.21, 0.22), 32: (0.18, 0.17), 64: (0.06, 0.10), 128: (0.04, 0.07)}
    for clients, printed in table.items():
        assert distances((VLLM, TRTLLM)[engine], clients, EQUAL, 1.0)[0] <= printed[engine] + MARGIN, clients


@pytest.mark.parametrize("clients", [4, 8, 16])
def test_prompts_that_are_held(clients: int) -> None:
    held = replace(TRTLLM, hold_steps=20, hold_share=0.9)
    ttft, tpot = distances(held, clients, [(1024, 1024)], 0.8, 16384)
    assert ttft <= 0.05 + MARGIN
    assert tpot <= MARGIN


@pytest.mark.parametrize("scheduling", [MIXED, VLLM, FIRST, SGLANG], ids=["mixed", "vLLM", "first", "SGLang"])
@pytest.mark.parametrize("clients", [1, 4, 32])
def test_requests_per_second_of_the_steady_state(scheduling: Scheduling, clients: int) -> None:
    """Little's law: C over the end-to-end time is the rate of a long run."""
    traffic = Traffic(900, 450, clients, 0.8, waves=40)
    outcome = simulated(server(SMALL, scheduling), traffic)
    found = state(traffic, model=SMALL, scheduling=scheduling)
    assert rate_of(found, 450) == approx(clients / fmean(outcome.e2e_s), rel=0.05)
    assert rate_of(found, 450) == approx(clients * 40 / outcome.end_s, rel=0.08)  # the end runs empty


@pytest.mark.parametrize("places", [8, 16, 48])
def test_waiting_for_a_place(places: int) -> None:
    traffic = Traffic(900, 180, 64, 0.8)
    outcome = simulated(server(SMALL, places=places), traffic)
    assert state(traffic, model=SMALL, places=places).ttft_s == approx(outcome.mean_ttft_s, rel=0.10)
    assert min(outcome.queued_s) == 0 < max(outcome.queued_s)


@pytest.mark.xfail(
    strict=True, reason="prompts that run first are charged one by one, though many of them share a step"
)
def test_short_prompts_that_run_first_share_steps() -> None:
    traffic = Traffic(115, 115, 512, 0.8)
    event = simulated(server(SMALL, FIRST), traffic)
    assert state(traffic, model=SMALL, scheduling=FIRST).tpot_s == approx(event.mean_tpot_s, rel=0.10)


@pytest.mark.xfail(
    strict=True, reason="prompts without further tokens are charged one by one, though many share a step"
)
@pytest.mark.parametrize("scheduling", [MIXED, FIRST], ids=["mixed", "first"])
def test_single_tokens_of_short_prompts(scheduling: Scheduling) -> None:
    traffic = Traffic(9, 1, 200, 0.8)
    event = simulated(server(SMALL, scheduling), traffic)
    assert state(traffic, model=SMALL, scheduling=scheduling).ttft_s == approx(event.mean_ttft_s, rel=0.25)


@pytest.mark.xfail(
    strict=True, reason="whole prompts are taken to fit beside those that decode, whatever room a step leaves"
)
def test_whole_prompts_that_do_not_fit_beside_those_that_decode() -> None:
    traffic = Traffic(8192 * 0.9, 1024 * 0.9, 64, 0.8)  # the longest need all of a step: they wait until nobody decodes
    event = simulated(server(SMALL, TRTLLM, 8192), traffic)
    assert event.mean_ttft_s > 2 * simulated(server(SMALL, TRTLLM, 16384), traffic).mean_ttft_s
    assert state(traffic, model=SMALL, scheduling=TRTLLM).ttft_s == approx(event.mean_ttft_s, rel=0.3)


# ------------------------------------------------------------------------------------------------ saturated


@pytest.mark.parametrize(("prompt", "output"), [(900, 230), (115, 115), (115, 1000), (3600, 460)])
def test_saturation_in_mixed_steps(prompt: int, output: int) -> None:
    s, traffic = server(SMALL, MIXED, places=64), Traffic(prompt, output, 128, 0.8, waves=15)
    outcome = simulated(s, traffic)
    assert saturated(s, traffic).requests_per_s == approx(128 * 15 / outcome.end_s, rel=0.03)


@pytest.mark.parametrize(
    ("prompt", "output"),
    [
        (3600, 460),
        pytest.param(
            115,
            115,
            marks=pytest.mark.xfail(
                strict=True, reason="a place that gets free is filled at once, by one prompt alone"
            ),
        ),
    ],
)
def test_saturation_where_prompts_run_first(prompt: int, output: int) -> None:
    s, traffic = server(SMALL, FIRST, places=64), Traffic(prompt, output, 128, 0.8, waves=15)
    outcome = simulated(s, traffic)
    assert saturated(s, traffic).requests_per_s == approx(128 * 15 / outcome.end_s, rel=0.05)
