"""The simulator against laws of queues."""

import math
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from simulated import MANY, MIXED, POLICIES, PROMPTS_FIRST, affine_step, equal, plain_step, varied

from roofplan.planner.simulator.core import Outcome, Policy, Request, closed_loop

# ---------------------------------------------------------------------------------------------- laws

policies = st.builds(
    Policy,
    admission=st.sampled_from(["mixed", "whole_prompts", "prefill_first"]),
    budget=st.sampled_from([600, 1000, 4000]),
    slots=st.sampled_from([1, 3, MANY]),
    kv_tokens=st.sampled_from([1000, math.inf]),
    look_ahead=st.integers(0, 2),
    output_lag=st.integers(0, 2),
    request_overhead_s=st.sampled_from([0, 0.013]),
    tokenise_s_per_token=st.sampled_from([0, 1e-6]),
    poll_steps=st.sampled_from([0, 5]),
    hold_steps=st.sampled_from([0, 7]),
    hold_tokens=st.just(500),
)
lengths = st.tuples(st.integers(1, 300), st.integers(2, 60), st.integers(0, 99), st.sampled_from([0.0, 0.2, 0.9]))


def draw_load(number: int, drawn: tuple[int, int, int, float]) -> list[Request]:
    prompt, output, seed, spread = drawn
    return varied(number, prompt, output, seed, spread)


@settings(max_examples=25)
@given(lengths, st.integers(1, 8), policies)
def test_littles_law(drawn: tuple[int, int, int, float], clients: int, policy: Policy) -> None:
    """C = rate times mean E2E; what is lacking is the end, when fewer and fewer clients have a request."""
    requests = draw_load(200 * clients, drawn)
    outcome = closed_loop(requests, clients, policy, affine_step)
    assert len(requests) / outcome.end_s * fmean(outcome.e2e_s) == approx(clients, rel=0.01)


@settings(max_examples=50)
@given(lengths, st.integers(1, 8), policies)
def test_company_never_helps_a_first_token(drawn: tuple[int, int, int, float], clients: int, policy: Policy) -> None:
    requests = draw_load(3 * clients, drawn)
    outcome = closed_loop(requests, clients, policy, affine_step)
    for request, ttft_s in zip(requests, outcome.ttft_s, strict=True):
        assert ttft_s >= closed_loop([request], 1, policy, affine_step).ttft_s[0] - 1e-9


@settings(max_examples=50)
@given(lengths, st.integers(1, 8), policies)
def test_every_request_gets_all_its_tokens(drawn: tuple[int, int, int, float], clients: int, policy: Policy) -> None:
    """A second for each token, and a server that is never idle: the end is the number of tokens, less those that prompt steps give."""
    requests = draw_load(4 * clients, drawn)
    busy = replace(policy, output_lag=0, request_overhead_s=0, tokenise_s_per_token=0)
    outcome = closed_loop(requests, clients, busy, lambda decoders, _, chunk, *rest: decoders + chunk)
    assert outcome.end_s == sum(request.prompt + request.output - 1 for request in requests)


@settings(max_examples=50)
@given(st.integers(2, 60), st.integers(1, 60), st.integers(0, 2000), st.integers(0, 2000))
def test_more_budget_never_delays_a_burst_that_the_weights_bind(
    clients: int, prompt: int, budget: int, more: int
) -> None:
    """Steps of equal time: no first token comes later."""

    def burst(tokens: int) -> Outcome:
        policy = replace(MIXED, budget=tokens)
        return closed_loop(equal(clients, 4000, prompt), clients, policy, lambda *_: 1.0)

    small = prompt + clients + budget
    pairs = zip(burst(small + more).ttft_s, burst(small).ttft_s, strict=True)
    assert all(with_more <= with_less for with_more, with_less in pairs)


@settings(max_examples=50)
@given(st.integers(1, 60), st.integers(1, 500), st.integers(0, 4000), st.integers(0, 4000))
def test_more_budget_never_delays_the_end_of_a_burst(clients: int, prompt: int, budget: int, more: int) -> None:
    """A fixed time and a time per token, prompts alone: the fewer steps, the earlier the last first token."""

    def last_ttft_s(tokens: int) -> float:
        policy = replace(PROMPTS_FIRST, budget=tokens)
        return closed_loop(equal(clients, 9, prompt), clients, policy, affine_step).ttft_s[-1]

    assert last_ttft_s(prompt + budget + more) <= last_ttft_s(prompt + budget) + 1e-9


def test_more_budget_may_delay_the_mean_of_a_burst() -> None:
    """Where tokens bind, prompts that share a step all wait for its end."""

    def burst(tokens: int) -> Outcome:
        return closed_loop(equal(4, 11), 4, replace(PROMPTS_FIRST, budget=tokens), plain_step)

    assert burst(1000).ttft_s == approx((0.1, 0.2, 0.3, 0.4))
    assert burst(4000).ttft_s == approx((0.4, 0.4, 0.4, 0.4))


@pytest.mark.parametrize("clients", [4, 8, 16])
@pytest.mark.parametrize("policy", POLICIES)
def test_one_slot_too_few(policy: Policy, clients: int) -> None:
    """One request waits at any time, so that each waits a C-th of its time (Little's law)."""
    requests = varied(100 * clients, 200, 300)
    enough = closed_loop(requests, clients, replace(policy, slots=clients), affine_step)
    short = closed_loop(requests, clients, replace(policy, slots=clients - 1), affine_step)
    share_s = fmean(short.e2e_s) / clients
    assert short.mean_ttft_s - enough.mean_ttft_s == approx(share_s, rel=0.1)
    assert fmean(short.queued_s) == approx(share_s, rel=0.1)
    assert sum(enough.queued_s) == 0
