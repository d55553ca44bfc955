"""The simulator against figures worked out by hand, against the same rules taken step by step, and against laws of queues."""

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from roofplan.errors import DomainError
from roofplan.planner.simulator.core import Outcome, Policy, Request, StepTime, closed_loop, open_loop

MANY = 10**6  # slots that never bind
MIXED = Policy(admission="mixed", budget=2000, slots=MANY)
WHOLE = replace(MIXED, admission="whole_prompts")
PROMPTS_FIRST = replace(MIXED, admission="prefill_first")
POLICIES = (MIXED, WHOLE, PROMPTS_FIRST)


def plain_step(decoders: int, context: float, chunk: int, past: float, pieces: int) -> float:
    """0.1 ms a token, and not below the 10 ms that the weights take."""
    return max(10.0, (decoders + chunk) / 10) / 1000


def affine_step(decoders: int, context: float, chunk: int, past: float, pieces: int) -> float:
    """A fixed time, a time per token and one per token of the cache."""
    return (8000 + 90 * (chunk + decoders) + 0.1 * decoders * context) * 1e-6


def equal(number: int, output: int, prompt: int = 1000) -> list[Request]:
    return [Request(prompt, output)] * number


def varied(number: int, prompt: int, output: int, seed: int = 0, spread: float = 0.1) -> list[Request]:
    draw = random.Random(seed)

    def around(mean: int) -> int:
        return max(1, round(mean * draw.uniform(1 - spread, 1 + spread)))

    return [Request(around(prompt), around(output)) for _ in range(number)]


def benchmark_lengths(number: int = 160) -> list[Request]:
    """1024/1024 of a public benchmark's client: uniform in [0.8 L, L], numpy's seed 0, all inputs drawn before the outputs."""
    draws = np.random.RandomState(0)
    prompts, outputs = draws.randint(819, 1025, number), draws.randint(819, 1025, number)
    return [Request(int(prompt), int(output)) for prompt, output in zip(prompts, outputs, strict=True)]


# ---------------------------------------------------------------------------------------------- figures worked out by hand


@dataclass(frozen=True)
class Case:
    name: str
    requests: list[Request]
    clients: int
    policy: Policy
    printed: tuple[str, str, str]  # mean TTFT and TPOT in ms, end in s
    exact: tuple[float | None, float | None, float | None]


# Where exact: sums of steps. E.g. mixed, four of S = 1000 and G = 11 in a budget of 2000: steps of 2000 tokens (200 ms), 2 + 1998 (200),
# 3 + 2 (10), then decode steps of 10: first tokens at 200, 200, 400, 410; the last ones ten tokens later: 490, 490, 500, 510;
# so TPOT (490 - 200) / 10 = 29, 29, 10, 10. Whole prompts: 2000, 2 + 1000, 3 + 1000 tokens, then decode steps.
# With 40 of G = 101 the waves settle: each prompt has a step with three decoding sequences to itself (100.3 ms), see test_waves_settle.
CASES = [
    Case("one request", equal(1, 11), 1, MIXED, ("100.000", "10.0000", "0.2000"), (100, 10, 0.2)),
    Case("mixed", equal(4, 11), 4, MIXED, ("302.500", "19.5000", "0.5100"), (302.5, 19.5, 0.51)),
    Case("prompts first", equal(4, 11), 4, PROMPTS_FIRST, ("300.000", "20.0000", "0.5000"), (300, 20, 0.5)),
    Case("whole prompts", equal(4, 11), 4, WHOLE, ("275.175", "21.2825", "0.5005"), (275.175, 21.2825, 0.5005)),
    Case("waves", equal(40, 101), 4, MIXED, ("140.750", "12.3667", "13.7892"), (140.75, 12.3667, 13.7892)),
    Case(
        "waves, look-ahead",
        equal(40, 101),
        4,
        replace(MIXED, look_ahead=1),
        ("213.287", "11.7287", "13.8766"),
        (213.2875, 11.728725, 13.8766),
    ),
    Case("waves, prompts first", equal(40, 101), 4, PROMPTS_FIRST, ("300.000", "11.0000", "14.0000"), (300, 11, 14)),
    Case(
        "varied lengths",
        benchmark_lengths(),
        16,
        replace(MIXED, budget=8192),
        ("201.388", "11.2720", "107.6939"),
        (201.3875, None, 107.6939),
    ),
    Case(
        "varied lengths, small cache",
        benchmark_lengths(),
        16,
        replace(MIXED, budget=8192, kv_tokens=24576),
        ("2488.1025", "11.0150", "130.5463"),
        (2488.1025, None, 130.5463),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_figures_worked_out_by_hand(case: Case) -> None:
    outcome = closed_loop(case.requests, case.clients, case.policy, plain_step)
    assert outcome.mean_tpot_s is not None
    figures = (outcome.mean_ttft_s * 1000, outcome.mean_tpot_s * 1000, outcome.end_s)
    for figure, printed, exact in zip(figures, case.printed, case.exact, strict=True):
        digits = len(printed.partition(".")[2])
        assert figure == approx(float(printed), rel=0, abs=0.5 * 10**-digits * (1 + 1e-6))
        if exact is not None:
            assert figure == approx(exact, rel=1e-6)


@pytest.mark.parametrize(
    ("policy", "ttft_ms", "tpot_ms"),
    [
        (MIXED, (200, 200, 400, 410), (29, 29, 10, 10)),
        (PROMPTS_FIRST, (200, 200, 400, 400), (30, 30, 10, 10)),
        (WHOLE, (200, 200, 300.2, 400.5), (28.05, 28.05, 19.03, 10)),
    ],
)
def test_each_request_of_a_burst(policy: Policy, ttft_ms: tuple[float, ...], tpot_ms: tuple[float, ...]) -> None:
    outcome = closed_loop(equal(4, 11), 4, policy, plain_step)
    assert [ttft * 1000 for ttft in outcome.ttft_s] == approx(ttft_ms)
    assert [tpot * 1000 for tpot in outcome.tpot_s] == approx(tpot_ms)
    assert outcome.queued_s == (0, 0, 0, 0)


@pytest.mark.parametrize(("look_ahead", "steady_ms", "burst_ms"), [(0, 100.3, 1618), (1, 711.5 / 4, 1416.5)])
def test_waves_settle(look_ahead: int, steady_ms: float, burst_ms: float) -> None:
    """Equal lengths: after some waves each is like the one before, and the burst of the first ones is shared by more and more requests."""
    policy = replace(MIXED, look_ahead=look_ahead)
    for number in (40, 80, 400):
        outcome = closed_loop(equal(number, 101), 4, policy, plain_step)
        assert outcome.mean_ttft_s * 1000 == approx(steady_ms + burst_ms / number, rel=1e-9)
    if not look_ahead:  # each of the three others is prefilled once while one decodes: d + (C - 1) / (G - 1) (tau - d)
        assert outcome.tpot_s[200] == approx(0.010 + 3 / 100 * (0.1003 - 0.010))


def test_the_burst_of_varied_lengths_fades() -> None:
    def mean_ms(number: int) -> float:
        return closed_loop(varied(number, 200, 60), 8, MIXED, affine_step).mean_ttft_s * 1000

    long_run = closed_loop(varied(8000, 200, 60), 8, MIXED, affine_step)
    steady = fmean(long_run.ttft_s[4000:]) * 1000
    assert mean_ms(8) > 1.5 * steady
    assert mean_ms(80) > 1.04 * steady
    assert mean_ms(8000) == approx(steady, rel=0.01)


# ---------------------------------------------------------------------------------------------- delays, one at a time


def test_host_time_is_half_before_and_half_after() -> None:
    policy = replace(MIXED, request_overhead_s=0.02, tokenise_s_per_token=1e-6)
    outcome = closed_loop(equal(2, 11), 1, policy, plain_step)
    assert outcome.ttft_s == approx((0.121, 0.121))
    assert outcome.tpot_s == approx((0.01, 0.01))
    assert outcome.end_s == approx(2 * 0.221)


def test_prompts_are_tokenised_one_after_the_other() -> None:
    policy = replace(MIXED, tokenise_s_per_token=2e-4)  # longer than the step of 0.1 s
    outcome = closed_loop(equal(3, 1), 3, policy, plain_step)
    assert outcome.ttft_s == approx((0.3, 0.5, 0.7))


def test_outputs_handled_one_step_behind() -> None:
    late = closed_loop(equal(4, 11), 4, replace(MIXED, output_lag=1), plain_step)
    on_time = closed_loop(equal(4, 11), 4, MIXED, plain_step)
    assert [after - before for after, before in zip(late.ttft_s, on_time.ttft_s, strict=True)] == approx([0.01] * 4)
    assert late.tpot_s == approx(on_time.tpot_s)
    assert late.end_s == approx(on_time.end_s + 0.01)


def sent_while_one_decodes(policy: Policy, at_s: float = 0.305) -> float:
    """TTFT of a prompt that comes while another decodes in steps of 10 ms that end at 0.11, 0.12, ... s."""
    requests = [Request(1000, 101, sent_s=0.0), Request(500, 1, sent_s=at_s)]
    return open_loop(requests, policy, plain_step).ttft_s[1]


@pytest.mark.parametrize(
    ("policy", "admitted_at_s"),
    [
        (PROMPTS_FIRST, 0.31),
        (replace(PROMPTS_FIRST, look_ahead=1), 0.32),
        (replace(PROMPTS_FIRST, look_ahead=3), 0.34),
        (replace(PROMPTS_FIRST, poll_steps=8), 0.34),  # 0.1 + 8 n steps: 0.26, 0.34
        (replace(PROMPTS_FIRST, poll_steps=30), 0.4),
        (replace(PROMPTS_FIRST, poll_steps=8, look_ahead=3), 0.34),
        (replace(PROMPTS_FIRST, poll_steps=8, look_ahead=4), 0.42),
        (replace(PROMPTS_FIRST, hold_steps=20, hold_tokens=2000), 0.51),
        (replace(PROMPTS_FIRST, hold_steps=20, hold_tokens=502), 0.51),
        (replace(PROMPTS_FIRST, hold_steps=20, hold_tokens=501), 0.31),  # 500 and the one that decodes
        (replace(PROMPTS_FIRST, hold_steps=1000, hold_tokens=2000), 1.1),  # nothing decodes any more
    ],
)
def test_how_late_a_prompt_enters(policy: Policy, admitted_at_s: float) -> None:
    assert sent_while_one_decodes(policy) == approx(admitted_at_s + 0.05 - 0.305)


def test_a_step_with_prompt_tokens_counts_as_a_thousand_polls() -> None:
    """The counter stands at 1000 after the first prompt, is up ten steps later, and then not before all is over."""
    policy = replace(PROMPTS_FIRST, poll_steps=1010)
    assert sent_while_one_decodes(policy, at_s=0.155) == approx(0.2 + 0.05 - 0.155)
    assert sent_while_one_decodes(policy, at_s=0.205) == approx(1.1 + 0.05 - 0.205)


def test_polling_goes_on_while_slots_are_full() -> None:
    """Both that wait were received before two slots get free at 1.2 s, and so share a step."""
    requests = [Request(1000, 101, 0.0), Request(1000, 101, 0.0), Request(500, 1, 0.305), Request(500, 1, 0.505)]
    outcome = open_loop(requests, replace(PROMPTS_FIRST, slots=2, poll_steps=8), plain_step)
    assert outcome.ttft_s[2:] == approx((1.3 - 0.305, 1.3 - 0.505))
    assert outcome.queued_s[2:] == approx((1.2 - 0.36, 1.2 - 0.505))  # in the first's way stands the poll, until 0.36


def test_a_second_prompt_ends_the_hold() -> None:
    policy = replace(PROMPTS_FIRST, hold_steps=100, hold_tokens=1001)
    requests = [Request(1000, 101, 0.0), Request(500, 1, 0.205), Request(500, 1, 0.305)]
    outcome = open_loop(requests, policy, plain_step)
    assert outcome.ttft_s[1:] == approx((0.41 - 0.205, 0.41 - 0.305))


# ---------------------------------------------------------------------------------------------- slots and cache


def test_waiting_for_the_only_slot() -> None:
    outcome = closed_loop(equal(3, 11), 3, replace(MIXED, slots=1), plain_step)
    assert outcome.ttft_s == approx((0.1, 0.3, 0.5))
    assert outcome.queued_s == approx((0, 0.2, 0.4))
    assert outcome.steps == 3 * 11


@pytest.mark.parametrize(("share", "together"), [(1.0, 1), (0.5, 2), (0.0, 2)])
def test_what_a_request_reserves(share: float, together: int) -> None:
    policy = replace(MIXED, kv_tokens=2 * 1000 + 11, reserved_output=share)
    outcome = closed_loop(equal(2, 11), 2, policy, plain_step)
    assert outcome.queued_s == approx((0, 0) if together == 2 else (0, 0.2))


def test_what_waits_holds_up_those_behind_it() -> None:
    requests = [Request(600, 11), Request(1200, 11), Request(10, 11)]
    outcome = closed_loop(requests, 3, replace(MIXED, kv_tokens=1500), plain_step)
    assert outcome.queued_s == approx((0, 0.16, 0.16))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ["closed", "open"])
def test_a_request_beyond_the_cache_is_refused(policy: Policy, kind: str) -> None:
    requests = [Request(1000, 11, 0.0), Request(1000, 1000, 0.0)]
    with pytest.raises(DomainError, match=r"kv_tokens: got 1999, want at least 2000, for the largest request alone"):
        run(requests, 2 if kind == "closed" else None, replace(policy, kv_tokens=1999))
    assert run(requests, 2 if kind == "closed" else None, replace(policy, kv_tokens=2000)).end_s > 0


def test_a_prompt_that_may_not_be_cut_is_refused() -> None:
    with pytest.raises(DomainError, match="budget: got 2000, want at least 2001, the longest prompt"):
        closed_loop([Request(2001, 1)], 1, WHOLE, plain_step)
    assert closed_loop([Request(2001, 1)], 1, MIXED, plain_step).steps == 2


def run(requests: list[Request], clients: int | None, policy: Policy, step_s: StepTime = plain_step) -> Outcome:
    """A closed loop of clients, or an open loop where there are none."""
    return open_loop(requests, policy, step_s) if clients is None else closed_loop(requests, clients, policy, step_s)


# ---------------------------------------------------------------------------------------------- what a step is told


def test_pieces_of_a_step_keep_their_attended_pairs() -> None:
    seen = []

    def step_s(decoders: int, context: float, chunk: int, past: float, pieces: int) -> float:
        seen.append((decoders, context, chunk, past, pieces))
        return 1.0

    closed_loop([Request(1500, 3), Request(300, 3), Request(900, 3)], 3, replace(MIXED, budget=1000), step_s)
    equal_past = (500 * 1000 + 500**2 / 2 + 300**2 / 2 + 200**2 / 2) / 1000 - 1000 / 6
    assert seen == [
        (0, 0.0, 1000, 0.0, 1),
        (0, 0.0, 1000, approx(equal_past), 3),
        (2, (1501 + 301) / 2, 700, approx(200), 1),
        (3, (1502 + 302 + 901) / 3, 0, 0.0, 0),
        (1, 902.0, 0, 0.0, 0),
    ]


def test_decode_steps_are_taken_at_once() -> None:
    calls = []

    def step_s(*step: float) -> float:
        calls.append(step)
        return plain_step(*step)

    outcome = closed_loop([Request(1000, 501)], 1, MIXED, step_s)
    assert calls == [(0, 0.0, 1000, 0.0, 1), (1, 1001 + 499 / 2, 0, 0.0, 0)]
    assert outcome.steps == 501


@pytest.mark.parametrize("clients", [4, 64])
@pytest.mark.parametrize(
    "policy",
    [
        replace(MIXED, budget=8192, look_ahead=1, output_lag=1, request_overhead_s=0.012, tokenise_s_per_token=1e-6),
        replace(WHOLE, budget=8192, output_lag=1, request_overhead_s=0.02, hold_steps=20, hold_tokens=7372),
        replace(PROMPTS_FIRST, budget=8192, output_lag=1, request_overhead_s=0.045, poll_steps=30),
        replace(MIXED, budget=8192, look_ahead=1, request_overhead_s=0.012, kv_tokens=8192),
    ],
)
def test_a_request_costs_few_step_times(policy: Policy, clients: int) -> None:
    calls = itertools.count()

    def step_s(*step: float) -> float:
        next(calls)
        return affine_step(*step)

    requests = varied(10 * clients, 1024, 1024)
    closed_loop(requests, clients, policy, step_s)
    assert next(calls) < 7 * len(requests)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_step_takes_time(seconds: float) -> None:
    with pytest.raises(DomainError, match="step_s"):
        closed_loop(equal(1, 1), 1, MIXED, lambda *_: seconds)


# ---------------------------------------------------------------------------------------------- what is refused, and edges


@pytest.mark.parametrize(
    "changes",
    [
        {"admission": "static"},
        {"budget": 0},
        {"slots": 0},
        {"kv_tokens": 0},
        {"kv_tokens": math.nan},
        {"reserved_output": 1.5},
        {"look_ahead": -1},
        {"output_lag": -1},
        {"poll_steps": -1},
        {"hold_steps": -1},
        {"hold_tokens": -1},
        {"request_overhead_s": -0.1},
        {"tokenise_s_per_token": math.inf},
    ],
)
def test_policies_that_no_engine_has(changes: dict[str, object]) -> None:
    with pytest.raises(DomainError, match=next(iter(changes))):
        replace(MIXED, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Request(0, 1),
        lambda: Request(1, 0),
        lambda: closed_loop([], 1, MIXED, plain_step),
        lambda: open_loop([], MIXED, plain_step),
        lambda: closed_loop(equal(1, 1), 0, MIXED, plain_step),
        lambda: open_loop(equal(1, 1), MIXED, plain_step),
        lambda: open_loop([Request(1, 1, -1.0)], MIXED, plain_step),
        lambda: open_loop([Request(1, 1, math.nan)], MIXED, plain_step),
    ],
)
def test_loads_that_do_not_exist(make: Callable[[], object]) -> None:
    with pytest.raises(DomainError):
        make()


def test_outputs_of_one_token_have_no_gaps() -> None:
    outcome = closed_loop([Request(1000, 1), Request(1000, 11)], 1, MIXED, plain_step)
    assert outcome.tpot_s == (None, approx(0.01))
    assert outcome.mean_tpot_s == approx(0.01)
    assert closed_loop(equal(3, 1), 2, MIXED, plain_step).mean_tpot_s is None


def test_more_clients_than_requests() -> None:
    assert closed_loop(equal(3, 11), 9, MIXED, plain_step) == closed_loop(equal(3, 11), 3, MIXED, plain_step)


def test_requests_far_apart_do_not_meet() -> None:
    """Given in any order; the answers come in that order."""
    requests = [Request(1000, 11, 9.0), Request(2000, 11, 0.0), Request(500, 11, 5.0)]
    outcome = open_loop(
        requests, replace(MIXED, look_ahead=2, poll_steps=30, hold_steps=9, hold_tokens=999), plain_step
    )
    assert outcome.ttft_s == approx((0.1, 0.2, 0.05))
    assert outcome.e2e_s == approx((0.2, 0.3, 0.15))
    assert outcome.end_s == approx(9.2)


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


# ---------------------------------------------------------------------------------------------- the same rules, step by step


@dataclass
class Job:
    """A request in the slow simulation."""

    prompt: int
    output: int
    sent: float = math.inf
    visible: float = math.inf
    taken_in: bool = False
    admitted: bool = False
    prefilled: int = 0
    made: int = 0
    first: float = math.nan
    end: float = math.nan
    queued: float = 0.0

    @property
    def decodes(self) -> bool:
        return 0 < self.made < self.output

    @property
    def done(self) -> bool:
        return self.made == self.output


def step_by_step(
    requests: list[Request], clients: int | None, policy: Policy, step_s: StepTime
) -> list[tuple[float, ...]]:
    """TTFT, E2E and wait of each request, by the rules alone: every step is taken, and every step looks at every request."""
    jobs = [Job(request.prompt, request.output) for request in requests]
    sent: list[Job] = []
    starts: list[float] = []
    now, counter, held, tokeniser = 0.0, 0, 0, 0.0

    def send(job: Job, moment: float) -> None:
        nonlocal tokeniser
        tokeniser = max(tokeniser, moment + policy.request_overhead_s / 2) + policy.tokenise_s_per_token * job.prompt
        job.sent, job.visible = moment, tokeniser
        sent.append(job)

    def take_in(until: float) -> None:
        for job in sent:
            if job.visible <= until:
                job.taken_in = True

    if clients is None:
        for index in sorted(range(len(jobs)), key=lambda index: requests[index].sent_s):
            send(jobs[index], requests[index].sent_s)
    else:
        for job in jobs[:clients]:
            send(job, 0.0)
    while not all(job.done for job in jobs):
        # Who is there
        if counter >= policy.poll_steps:
            counter = 0
            if policy.look_ahead == 0:
                take_in(now)
            elif len(starts) >= policy.look_ahead:
                take_in(starts[-policy.look_ahead])
        if not any(job.taken_in and not job.done for job in sent):
            now = max(now, min(job.visible for job in sent if not job.taken_in))
            take_in(now)
            counter = 0
        # Who enters
        decoding = [job for job in sent if job.decodes]
        inside = [job for job in sent if job.admitted and not job.done]
        in_work = [job for job in inside if not job.made]
        left = policy.budget - (0 if policy.admission == "prefill_first" else len(decoding))
        plan: list[tuple[Job, int]] = []
        for job in in_work:
            plan.append((job, min(left, job.prompt - job.prefilled)))
            left -= plan[-1][1]
        short = False
        for job in [job for job in sent if job.taken_in and not job.admitted]:
            if left <= 0 or (policy.admission == "whole_prompts" and job.prompt > left):
                break
            with_it = [*inside, *(other for other, _ in plan if not other.admitted), job]
            reserved = sum(other.prompt + policy.reserved_output * other.output for other in with_it)
            if len(with_it) > policy.slots or reserved > policy.kv_tokens:
                short = True
                break
            plan.append((job, min(left, job.prompt)))
            left -= plan[-1][1]
        may_hold = plan and not in_work and decoding and held < policy.hold_steps
        if may_hold and len(decoding) + sum(tokens for _, tokens in plan) < policy.hold_tokens:
            held += 1
            plan, short = [], False
        if plan:
            held = 0
        for job, _ in plan:
            job.admitted = True
        # The step
        if plan and policy.admission == "prefill_first":
            decoding = []
        context = sum(job.prompt + job.made for job in decoding) / len(decoding) if decoding else 0.0
        chunk, past = sum(tokens for _, tokens in plan), 0.0
        if plan:
            pairs = sum(tokens * job.prefilled + tokens**2 / 2 for job, tokens in plan)
            past = pairs / chunk - chunk / (2 * len(plan))
        starts.append(now)
        now += step_s(len(decoding), context, chunk, past, len(plan))
        counter += 1000 if plan else 1
        if short:
            for job in sent:
                if not job.admitted:
                    job.queued += max(0.0, now - max(starts[-1], job.visible))
        # What it made
        before = {id(job) for job in sent if job.done}
        for job in decoding:
            job.made += 1
        begun = []
        for job, tokens in plan:
            job.prefilled += tokens
            if job.prefilled == job.prompt:
                job.made = 1
                begun.append(job)
        ended = [job for job in jobs if job.done and id(job) not in before]
        holders = [job for job in sent if job.decodes] + ended
        seen = now + policy.request_overhead_s / 2
        if policy.output_lag and (begun or ended):
            mean = sum(job.prompt + job.made for job in holders) / len(holders)
            seen += policy.output_lag * step_s(len(holders), mean, 0, 0.0, 0)
        for job in begun:
            job.first = seen
        for job in ended:
            job.end = seen
            if clients is not None and len(sent) < len(jobs):
                send(jobs[len(sent)], seen)
    results = [(job.first - job.sent, job.end - job.sent, job.queued) for job in jobs]
    return [*results, (max(job.end for job in jobs), len(starts))]


UNIT_S = (
    2.0**-16
)  # all times are whole numbers of it, so that floats add up exactly and no order of adding is better than another


def exact_step(decoders: int, context: float, chunk: int, past: float, pieces: int) -> float:
    """Affine in the context, the tokens and the pairs that attend to each other."""
    pairs = chunk * (past + chunk / (2 * pieces)) if chunk else 0.0
    halves = round(2 * decoders * context) + round(2 * pairs)
    return (640 + 64 * decoders + 48 * chunk + halves) * UNIT_S


moments = st.integers(0, 40000).map(lambda ticks: ticks * UNIT_S)


@st.composite
def small_cases(draw: st.DrawFn) -> tuple[list[Request], int | None, Policy]:
    sizes = draw(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40), moments), min_size=1, max_size=12))
    requests = [Request(*size) for size in sizes]
    share = draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
    admission = draw(st.sampled_from(["mixed", "whole_prompts", "prefill_first"]))
    least = max(request.prompt for request in requests) if admission == "whole_prompts" else 1
    largest = max(request.prompt + share * request.output for request in requests)
    policy = Policy(
        admission=admission,
        budget=least + draw(st.integers(0, 60)),
        slots=draw(st.integers(1, 8)),
        kv_tokens=draw(st.sampled_from([math.inf, largest, largest + 30, largest + 80])),
        reserved_output=share,
        look_ahead=draw(st.integers(0, 3)),
        output_lag=draw(st.integers(0, 2)),
        request_overhead_s=draw(st.sampled_from([0, 2, 64, 1500, 5000])) * UNIT_S,
        tokenise_s_per_token=draw(st.sampled_from([0, 1, 50])) * UNIT_S,
        poll_steps=draw(st.sampled_from([0, 1, 2, 3, 7, 30, 1002, 2500])),
        hold_steps=draw(st.sampled_from([0, 0, 1, 3, 10])),
        hold_tokens=draw(st.integers(0, 100)),
    )
    return requests, draw(st.one_of(st.none(), st.integers(1, 8))), policy


@settings(max_examples=400)
@given(small_cases())
def test_jumps_change_nothing(case: tuple[list[Request], int | None, Policy]) -> None:
    requests, clients, policy = case
    outcome = run(requests, clients, policy, exact_step)
    found = [*zip(outcome.ttft_s, outcome.e2e_s, outcome.queued_s, strict=True), (outcome.end_s, outcome.steps)]
    assert found == step_by_step(requests, clients, policy, exact_step)


@pytest.mark.parametrize("policy", POLICIES)
def test_jumps_change_nothing_in_a_long_run(policy: Policy) -> None:
    requests = varied(120, 1024, 512)
    busy = replace(policy, budget=2048, look_ahead=1, output_lag=1, request_overhead_s=0.012, kv_tokens=9000)
    outcome = closed_loop(requests, 8, busy, affine_step)
    slow = step_by_step(requests, 8, busy, affine_step)
    assert outcome.ttft_s == approx([ttft for ttft, *_ in slow[:-1]])
    assert outcome.e2e_s == approx([e2e for _, e2e, *_ in slow[:-1]])
    assert (outcome.end_s, outcome.steps) == approx(slow[-1])
