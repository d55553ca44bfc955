"""Requests that arrive at random: the closed form against the event simulation, and its limits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from roofplan.engines.timing import Scheduling
from roofplan.errors import DomainError
from roofplan.planner.load import Server, Traffic, closed_loop
from roofplan.planner.open_loop import open_loop, rate_when_full
from roofplan.planner.simulator import core

if TYPE_CHECKING:
    from roofplan.engines.timing import Admission

REQUESTS = 2000


class Linear:
    """Steps whose times can be followed by hand: 10 ms, 0.1 ms a sequence, 40 ns a token of context, and 50 us a token of a prompt."""

    def __init__(self, of_sequence_s: float = 1e-4) -> None:
        self.of_sequence_s = of_sequence_s

    def step_s(self, decoders: float, context: float, *, chunk: float = 0, past: float = 0, pieces: float = 1) -> float:
        """Affine in everything."""
        return 10e-3 + decoders * (self.of_sequence_s + 40e-9 * context) + 50e-6 * chunk


def server(admission: Admission = "mixed", *, budget: int = 8192, places: int = 400) -> Server:
    return Server(model=Linear(), scheduling=Scheduling(admission=admission), budget=budget, places=places)  # type: ignore[arg-type]


def simulated(of: Server, traffic: Traffic, rate: float, seed: int = 3) -> tuple[float, float]:
    """Mean TTFT and TPOT after the first quarter of the requests."""
    draw = np.random.RandomState(seed)
    sent = np.cumsum(draw.exponential(1 / rate, REQUESTS))
    requests = [core.Request(int(traffic.prompt), int(traffic.output), float(at)) for at in sent]
    policy = core.Policy(admission=of.scheduling.admission, budget=of.budget, slots=of.places)
    found = core.open_loop(
        requests, policy, lambda b, c, chunk, past, pieces: of.model.step_s(b, c, chunk=chunk, past=past, pieces=pieces)
    )
    late = REQUESTS // 4
    return float(np.mean(found.ttft_s[late:])), float(np.mean([t for t in found.tpot_s[late:] if t is not None]))


@pytest.mark.parametrize("load", [0.1, 0.4, 0.7])
@pytest.mark.parametrize("admission", ["mixed", "whole_prompts", "prefill_first"])
@pytest.mark.parametrize("prompt", [500, 2000, 6000])
def test_times_are_those_of_the_simulation(admission: Admission, prompt: int, load: float) -> None:
    of, traffic = server(admission), Traffic(prompt, 200, 1)
    rate = load * rate_when_full(of, traffic)
    state = open_loop(of, traffic, rate)
    assert state is not None
    ttft, tpot = simulated(of, traffic, rate)
    assert state.ttft_s == approx(ttft, rel=0.15)
    assert state.tpot_s == approx(tpot, rel=0.15)


def test_those_who_find_no_place_wait_as_long_as_in_the_simulation() -> None:
    # Steps that grow with the sequences, as those of a model do that reads its cache.
    of, traffic = replace(server(places=24), model=Linear(5e-4)), Traffic(500, 200, 1)  # type: ignore[arg-type]
    rate = 0.9 * rate_when_full(of, traffic)
    state = open_loop(of, traffic, rate)
    assert state is not None
    assert state.queue_s > 0.1 * state.ttft_s
    ttft = np.mean([simulated(of, traffic, rate, seed)[0] for seed in range(8)])
    assert state.ttft_s == approx(float(ttft), rel=0.4)  # the waits of single runs differ by as much


def test_few_requests_meet_an_idle_server() -> None:
    of, traffic = server(), Traffic(1000, 100, 1)
    state = open_loop(of, traffic, 1e-6)
    assert state is not None
    alone, later = state.alone_ttft_s, of.model.step_s(1, 1050)
    assert alone <= state.ttft_s <= alone + 0.02 * later
    assert state.tpot_s == approx(closed_loop(of, traffic).tpot_s, rel=1e-3)


@pytest.mark.parametrize("factor", [1.0, 1.01, 100.0])
def test_a_server_that_cannot_keep_up_has_no_state(factor: float) -> None:
    of, traffic = server(places=32), Traffic(1000, 100, 1)
    assert open_loop(of, traffic, factor * rate_when_full(of, traffic)) is None


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_rates_that_are_none_are_refused(rate: float) -> None:
    with pytest.raises(DomainError, match="arrivals_per_s"):
        open_loop(server(), Traffic(1000, 100, 1), rate)


def test_prompts_that_vary_are_waited_for_longer() -> None:
    of, traffic = server(), Traffic(6000, 200, 1)
    rate = 0.6 * rate_when_full(of, traffic)
    equal, varied = open_loop(of, traffic, rate), open_loop(of, replace(traffic, prompt_variation=1.0), rate)
    assert equal is not None
    assert varied is not None
    assert varied.ttft_s > equal.ttft_s


def test_long_outputs_are_met_more_often() -> None:
    # A sequence that decodes is one of length-biased mean G (1 + c^2); half of it is behind it.
    draw = np.random.RandomState(1)
    outputs = draw.lognormal(0, 0.6, 200_000)
    met = float(np.sum(outputs**2) / np.sum(outputs)) / 2
    variation = math.exp(0.6**2) - 1
    assert Traffic(100, float(np.mean(outputs)), 1, output_variation=variation).context - 100 == approx(met, rel=0.01)


@settings(max_examples=60, deadline=None)
@given(
    prompt=st.integers(1, 20_000),
    output=st.integers(1, 2000),
    places=st.integers(1, 200),
    shares=st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)),
    admission=st.sampled_from(["mixed", "prefill_first"]),
)
def test_more_arrivals_never_make_it_faster(
    prompt: int, output: int, places: int, shares: tuple[float, float], admission: Admission
) -> None:
    of, traffic = server(admission, places=places), Traffic(prompt, output, 1)
    full = rate_when_full(of, traffic)
    few, many = (open_loop(of, traffic, share * full) for share in sorted(shares))
    assert few is not None
    assert many is not None
    assert few.tpot_s <= many.tpot_s * (1 + 1e-9)
    assert few.queue_s <= many.queue_s * (1 + 1e-9)
    assert many.ttft_s >= 0.9 * few.ttft_s
    assert all(math.isfinite(value) for value in (many.ttft_s, many.tpot_s, many.queue_s))
