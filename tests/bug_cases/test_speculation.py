"""Group F: speculative decoding. See test_index."""

from __future__ import annotations

import pytest
from pytest import approx

from roofplan.planner.acceptance import expected_tokens
from roofplan.planner.draft_counters import DraftCounters, acceptance_over_workloads
from roofplan.planner.speculative import break_even_acceptance, speedup, speedup_of_times

EXACT = 1e-12


@pytest.mark.parametrize(
    ("drafts", "alpha", "tokens", "within"),
    [
        (4, 1.0, 5, 0),  # not 4
        (1, 0.9, 1.9, EXACT),  # not 1
        (2, 0.95, 2.8525, EXACT),  # not 2
        (8, 0.7, 3.1988, 5e-5),
    ],
)
def test_case_62_the_bonus_token_counts(drafts: int, alpha: float, tokens: float, within: float) -> None:
    assert expected_tokens(alpha, drafts) == approx(tokens, abs=within, rel=0)


PLAIN_S = 1 / 26.51


@pytest.mark.parametrize(
    ("drafts", "tokens", "round_s", "gain", "measured"),
    [(1, 1.75, 98.7e-3, 0.668, 0.669), (7, 3.21, 263e-3, 0.460, 0.460)],
)
def test_case_63_step_cost_decides(drafts: int, tokens: float, round_s: float, gain: float, measured: float) -> None:
    assert pytest.approx(37.7e-3, abs=5e-5) == PLAIN_S
    found = speedup_of_times(tokens, round_s, PLAIN_S)
    assert found == approx(gain, abs=0.001)  # the inputs have three digits
    assert found == approx(measured, abs=0.001)
    assert speedup(tokens, drafts, 0, round_s / PLAIN_S) == approx(found, rel=EXACT)


def test_case_63_perfect_acceptance_still_loses() -> None:
    assert speedup_of_times(2, 98.7e-3, PLAIN_S) < 1
    assert break_even_acceptance(1, 0, 98.7e-3 / PLAIN_S) is None


# Code, factual questions, prose: one way to divide the 558 rounds so that all four published rates (0.908, 0.606, 0.492, pooled 0.647) hold.
WORKLOADS = {
    0.908: DraftCounters(120, 120, 109),
    0.606: DraftCounters(320, 320, 194),
    0.492: DraftCounters(118, 118, 58),
}


def test_case_67_acceptance_is_a_range_over_workloads() -> None:
    assert sum(counters.drafted for counters in WORKLOADS.values()) == 558
    for rate, counters in WORKLOADS.items():
        assert counters.accepted_share == approx(rate, abs=5e-4)
        assert counters.tokens_per_round == approx(1 + rate, abs=5e-4)
    found = acceptance_over_workloads(list(WORKLOADS.values()))
    assert (found.low, found.pooled, found.high) == approx((0.492, 0.647, 0.908), abs=5e-4)
    assert found.tokens_per_round(1) == approx((1.492, 1.647, 1.908), abs=5e-4)
