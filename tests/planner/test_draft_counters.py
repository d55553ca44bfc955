"""Golden values of formula F11.4 for the counters of engines."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from roofplan.errors import DomainError
from roofplan.planner import draft_counters
from roofplan.planner.acceptance import alpha_from_tokens, expected_tokens, tokens_of_round
from roofplan.planner.draft_counters import DraftCounters

EXACT = 1e-12


def test_published_counters() -> (
    None
):  # F11.4, llama.cpp pull request 24536; 87 rounds of 3, two drafts cut off at the end
    counters = DraftCounters(rounds=87, drafted=259, accepted=167)
    assert counters.accepted_share == approx(0.6447876447876448, rel=EXACT)
    assert counters.tokens_per_round == approx(2.92, abs=0.005)
    # The only counts out of 87 that round to the published rates; they sum to the 167 that were accepted.
    assert draft_counters.rates_from_counts(87, (70, 55, 42)) == approx((0.805, 0.632, 0.483), abs=0.0005)


def test_accepted_share_is_not_alpha() -> None:  # F11.4
    assert draft_counters.accepted_share(expected_tokens(0.8, 4), 4) == approx(0.5904, rel=EXACT)
    assert alpha_from_tokens(draft_counters.tokens_from_accepted_share(0.5904, 4), 4) == approx(0.8, rel=1e-11)


def test_counters_of_a_simulated_engine() -> None:  # F11.4
    generator = np.random.default_rng(4)
    rounds = 100_000
    prefix = np.cumprod(generator.random((rounds, 4)) < 0.8, axis=1)
    counters = DraftCounters(rounds, 4 * rounds, int(prefix.sum()))
    rates = draft_counters.rates_from_counts(rounds, prefix.sum(axis=0).tolist())
    assert counters.accepted_share == approx(0.5904, abs=0.005)
    assert counters.tokens_per_round == approx(tokens_of_round(rates).mean, rel=EXACT)
    assert counters.tokens_per_round == approx(
        draft_counters.tokens_from_accepted_share(counters.accepted_share, 4), rel=EXACT
    )
    assert alpha_from_tokens(counters.tokens_per_round, 4) == approx(0.8, abs=0.005)


@given(st.floats(0, 1), st.integers(1, 12))
def test_accepted_share_lies_below_alpha(alpha: float, drafts: int) -> None:  # F11.4
    share = draft_counters.accepted_share(expected_tokens(alpha, drafts), drafts)
    assert 0 <= share <= alpha + EXACT
    assert draft_counters.tokens_from_accepted_share(share, drafts) == approx(expected_tokens(alpha, drafts), rel=EXACT)


def test_range_over_workloads() -> None:  # F11.4
    workloads = [DraftCounters(10, 20, 18), DraftCounters(10, 60, 20), DraftCounters(5, 0, 0)]
    found = draft_counters.acceptance_over_workloads(workloads)
    assert (found.low, found.pooled, found.high) == approx((1 / 3, 38 / 80, 0.9), rel=EXACT)
    assert found.tokens_per_round(2) == approx((1 + 2 / 3, 1.95, 2.8), rel=EXACT)


def test_nothing_drafted() -> None:
    assert DraftCounters(1, 0, 0).accepted_share is None
    assert DraftCounters(1, 0, 0).tokens_per_round == 1


@pytest.mark.parametrize("counters", [(0, 4, 2), (1, -1, 0), (1, 4, 5), (1, 4, -1), (1.5, 4, 2), (1, 4, math.nan)])
def test_counters_that_cannot_be(counters: tuple[int, int, int]) -> None:
    with pytest.raises(DomainError):
        DraftCounters(*counters)


@pytest.mark.parametrize(("rounds", "accepted"), [(0, [1]), (10, [11]), (10, [5, 6]), (10, [-1]), (10, [2.5])])
def test_counts_that_cannot_be(rounds: int, accepted: list[int]) -> None:
    with pytest.raises(DomainError):
        draft_counters.rates_from_counts(rounds, accepted)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_share_outside_its_domain(share: float) -> None:
    with pytest.raises(DomainError):
        draft_counters.tokens_from_accepted_share(share, 4)


@pytest.mark.parametrize(("tokens", "drafts"), [(0.5, 4), (5.5, 4), (1.0, 0), (math.nan, 4)])
def test_tokens_outside_their_domain(tokens: float, drafts: int) -> None:
    with pytest.raises(DomainError):
        draft_counters.accepted_share(tokens, drafts)


@pytest.mark.parametrize("workloads", [[], [DraftCounters(3, 0, 0)]])
def test_workloads_without_a_draft(workloads: list[DraftCounters]) -> None:
    with pytest.raises(DomainError):
        draft_counters.acceptance_over_workloads(workloads)
