"""The simulator against figures worked out by hand: times, delays, slots, what a step is told, and what is refused."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

import pytest
from pytest import approx
from simulated import (
    MIXED,
    POLICIES,
    PROMPTS_FIRST,
    WHOLE,
    affine_step,
    benchmark_lengths,
    equal,
    plain_step,
    run,
    varied,
)

from roofplan.errors import DomainError
from roofplan.planner.simulator.core import Policy, Request, closed_loop, open_loop

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
