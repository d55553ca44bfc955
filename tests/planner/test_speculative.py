"""Golden values of formulas F11.5, F11.9 and F11.11, and properties of the closed forms of speculation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import M8, dense, number_format

from roofplan import models
from roofplan.errors import DomainError
from roofplan.planner import speculative
from roofplan.planner.acceptance import expected_tokens, independent_rates
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.parameters import count_parameters

EXACT = 1e-12
BF16 = number_format("bf16")
DRAFT = dense(2048, 16, 32, 8, 64, 8192, 128256, name="draft", tied_embeddings=True)
ALPHAS, COSTS, RATIOS = st.floats(0, 1), st.floats(0, 2), st.floats(0.5, 6)


def best(alpha: float, draft_cost: float, most: int = 40) -> speculative.BestDrafts:
    return speculative.best_drafts(independent_rates(alpha, most), draft_cost)


# ------------------------------------------------------------------------------------------------ golden values


def test_speedup() -> None:  # F11.5
    assert speculative.speedup(expected_tokens(0.8, 4), 4, 0.1) == approx(2.4011428571428572, rel=EXACT)
    assert speculative.round_cost(4, 0.1) == approx(1.4, rel=EXACT)


@pytest.mark.parametrize(
    ("drafts", "gain"),
    list(enumerate([1, 1.636364, 2.033333, 2.270769, 2.401143, 2.45952, 2.46964, 2.447729, 2.404951])),
)
def test_speedup_by_drafts(drafts: int, gain: float) -> None:  # F11.5
    assert speculative.speedup(expected_tokens(0.8, drafts), drafts, 0.1) == approx(gain, abs=5e-7)


@pytest.mark.parametrize(
    ("draft_cost", "drafts"), [(0.05, (3, 4, 6, 8, 13)), (0.1, (2, 3, 4, 6, 10)), (0.2, (1, 2, 3, 4, 7))]
)
def test_best_drafts(draft_cost: float, drafts: tuple[int, ...]) -> None:  # F11.5
    assert tuple(best(alpha, draft_cost).drafts for alpha in (0.5, 0.6, 0.7, 0.8, 0.9)) == drafts


def test_ties_go_to_the_smaller() -> None:  # F11.5
    one, two = (speculative.speedup(expected_tokens(0.5, drafts), drafts, 0.2) for drafts in (1, 2))
    assert (one, two) == approx((1.25, 1.25), rel=EXACT)
    assert best(0.5, 0.2) == speculative.BestDrafts(1, one)
    assert not speculative.one_more_draft_helps(0.5, 1, 0.2)
    assert best(0.1, 0.1) == speculative.BestDrafts(0, 1.0)


def test_break_even() -> None:  # F11.5
    assert speculative.speedup(1.1, 1, 0.1) == approx(1, rel=EXACT)
    assert speculative.break_even_acceptance(1, 0.1) == approx(0.1, rel=1e-9)
    assert speculative.break_even_verify_ratio(3.3616, 4, 0.1) == approx(2.9616, rel=EXACT)
    assert not speculative.one_more_draft_helps(0.1, 0, 0.1)
    assert speculative.one_more_draft_helps(0.1001, 0, 0.1)


def test_self_speculation_with_half_the_layers() -> None:  # F11.9
    found = best(0.9, 0.5)
    assert found.drafts == 3
    assert found.speedup == approx(1.3756, rel=EXACT)


@pytest.mark.parametrize(("drafts", "gain"), [(1, 1.5), (3, 1.875), (5, 1.96875)])
def test_lookup_drafts(drafts: int, gain: float) -> None:  # F11.9
    assert speculative.speedup(expected_tokens(0.5, drafts), drafts, 0) == approx(gain, rel=EXACT)


@pytest.mark.parametrize(("alpha", "tokens", "cost"), [(0.85, 1.85, 1.0278), (0.9, 1.9, 1.0556)])
def test_one_mtp_head(alpha: float, tokens: float, cost: float) -> None:  # F11.9
    assert expected_tokens(alpha, 1) == approx(tokens, rel=EXACT)
    assert speculative.implied_round_cost(tokens, 1.8) == approx(cost, abs=5e-5)


def test_memory_of_a_draft_model() -> None:  # F11.11
    parameters = count_parameters(DRAFT).total
    assert parameters == 1235814400
    memory = speculative.speculation_memory(
        cache_layout(M8, BF16), 4, 1, 8192, draft_weights_bytes=2 * parameters, draft=cache_layout(DRAFT, BF16)
    )
    assert memory.draft_weights_bytes + memory.draft_cache_bytes == 2740064256
    assert memory.slots_bytes == 5 * 131072  # c of M8, section 0
    assert memory.states_bytes == 0
    assert memory.total_bytes == 2740064256 + 5 * 131072


def test_rounds() -> None:  # F11.11
    assert speculative.mean_rounds(3.3616, 256) == approx(76.15, abs=0.005)


def test_room_in_a_step() -> None:  # B (k + 1) <= budget
    for budget, batch in itertools.product(range(1, 60), range(1, 20)):
        drafts = speculative.most_drafts_within(budget, batch)
        assert batch * (drafts + 2) > budget
        assert batch * (drafts + 1) <= budget or drafts == 0


def test_recurrent_states_are_kept_for_every_token() -> None:  # F11.11
    cache = cache_layout(models.load("qwen3-next-80b-a3b"), BF16)
    assert cache.state_bytes > 0
    memory = speculative.speculation_memory(cache, 3, 10, 1000)
    assert memory.states_bytes + 10 * cache.state_bytes == 10 * 4 * cache.state_bytes
    assert memory.slots_bytes == 10 * 4 * cache.bytes_per_token
    assert memory.draft_cache_bytes == memory.draft_weights_bytes == 0


def test_full_windows_need_slots_too() -> None:  # F11.11
    windowed = dense(4096, 8, 32, 8, 128, 14336, 32000, attention_changes={"kind": "sliding", "window": 512})
    memory = speculative.speculation_memory(cache_layout(windowed, BF16), 4, 3, 4096)
    assert memory.total_bytes == memory.slots_bytes == 3 * 5 * 8 * 2 * 8 * 128 * 2  # layers, K and V, heads, d_h, bytes


# ------------------------------------------------------------------------------------------------ brute force


def simulated_speedup(alpha: float, drafts: int, draft_cost: float, ratio: float, output: int = 400_000) -> float:
    """Tokens one round after the other, with the time that each takes."""
    generator = np.random.default_rng(5)
    spent = tokens = 0.0
    while tokens < output:
        kept = 0
        while kept < drafts and generator.random() < alpha:
            kept += 1
        tokens += kept + 1
        spent += drafts * draft_cost + ratio
    return tokens / spent


@pytest.mark.parametrize(
    ("alpha", "drafts", "draft_cost", "ratio"), [(0.8, 4, 0.1, 1), (0.5, 2, 0.2, 1.5), (0.95, 8, 0.02, 3)]
)
def test_speedup_against_simulation(alpha: float, drafts: int, draft_cost: float, ratio: float) -> None:  # F11.5
    gain = speculative.speedup(expected_tokens(alpha, drafts), drafts, draft_cost, ratio)
    assert gain == approx(simulated_speedup(alpha, drafts, draft_cost, ratio), rel=0.01)


@given(ALPHAS, COSTS, RATIOS, st.integers(1, 25))
def test_best_drafts_against_enumeration(alpha: float, cost: float, ratio: float, most: int) -> None:  # F11.5
    gains = [1.0] + [sum(alpha**j for j in range(k + 1)) / (k * cost + ratio) for k in range(1, most + 1)]
    found = speculative.best_drafts(independent_rates(alpha, most), cost, [ratio] * most)
    assert found.speedup == approx(max(gains), rel=1e-9)
    assert all(gain < found.speedup * (1 + 1e-9) for gain in gains)
    assert all(gain < found.speedup for gain in gains[: found.drafts])


@given(ALPHAS, COSTS, RATIOS, st.integers(0, 12))
def test_one_more_draft_against_both_speedups(alpha: float, cost: float, ratio: float, drafts: int) -> None:  # F11.5
    now, more = (speculative.speedup(expected_tokens(alpha, k), k, cost, ratio) for k in (drafts, drafts + 1))
    if abs(more - now) > 1e-9 * now:
        assert speculative.one_more_draft_helps(alpha, drafts, cost, ratio) == (more > now)


@given(COSTS, RATIOS, st.integers(1, 12))
def test_break_even_acceptance_gains_nothing(cost: float, ratio: float, drafts: int) -> None:  # F11.5
    alpha = speculative.break_even_acceptance(drafts, cost, ratio)
    if alpha is None:
        assert speculative.speedup(drafts + 1, drafts, cost, ratio) <= 1
    elif alpha == 0:
        assert speculative.speedup(1, drafts, cost, ratio) >= 1
    else:
        assert speculative.speedup(expected_tokens(alpha, drafts), drafts, cost, ratio) == approx(1, rel=1e-9)


@given(ALPHAS, st.integers(1, 12), st.floats(0, 0.05))
def test_break_even_verify_ratio_gains_nothing(alpha: float, drafts: int, cost: float) -> None:  # F11.5
    tokens = expected_tokens(alpha, drafts)
    ratio = speculative.break_even_verify_ratio(tokens, drafts, cost)
    if ratio > 1e-3:
        assert speculative.speedup(tokens, drafts, cost, ratio) == approx(1, rel=1e-9)


@given(ALPHAS, COSTS, st.integers(1, 12))
def test_speedup_is_at_most_all_tokens(alpha: float, cost: float, drafts: int) -> None:
    gain = speculative.speedup(expected_tokens(alpha, drafts), drafts, cost)
    assert gain <= drafts + 1
    assert speculative.speedup(1, drafts, cost) <= 1
    assert speculative.speedup_of_times(expected_tokens(alpha, drafts), drafts * cost + 1, 1) == approx(gain, rel=EXACT)


@pytest.mark.parametrize(("alpha", "drafts", "output"), [(0.8, 4, 256), (0.5, 1, 10), (0.9, 8, 3)])
def test_rounds_against_simulation(alpha: float, drafts: int, output: int) -> None:  # F11.11
    generator = np.random.default_rng(6)
    tokens = 1 + np.cumprod(generator.random((4000, output, drafts)) < alpha, axis=2).sum(axis=2)
    rounds = (np.cumsum(tokens, axis=1) < output).sum(axis=1) + 1
    expected = expected_tokens(alpha, drafts)
    spread = 4 * rounds.std() / math.sqrt(4000)
    assert speculative.mean_rounds(expected, output) <= rounds.mean() + spread
    assert rounds.mean() - spread <= (output + drafts) / expected


# ------------------------------------------------------------------------------------------------ domains

NAN, INF = math.nan, math.inf
CACHE = cache_layout(M8, BF16)


@pytest.mark.parametrize(
    "call",
    [
        lambda: speculative.speedup(0.9, 4, 0.1),
        lambda: speculative.speedup(5.1, 4, 0.1),
        lambda: speculative.speedup(NAN, 4, 0.1),
        lambda: speculative.speedup(2, -1, 0.1),
        lambda: speculative.speedup(2, 10**400, 0.1),
        lambda: speculative.speedup(2, 4, -0.1),
        lambda: speculative.speedup(2, 4, INF),
        lambda: speculative.speedup(2, 4, NAN),
        lambda: speculative.speedup(2, 4, 0.1, 0),
        lambda: speculative.speedup(2, 4, 0, 5e-324),
        lambda: speculative.round_cost(4, 1e308, 1),
        lambda: speculative.speedup_of_times(0.5, 1, 1),
        lambda: speculative.speedup_of_times(2, 0, 1),
        lambda: speculative.speedup_of_times(2, 1, NAN),
        lambda: speculative.speedup_of_times(2, 1e-300, 1e300),
        lambda: speculative.implied_round_cost(0.5, 1.8),
        lambda: speculative.implied_round_cost(2, 0),
        lambda: speculative.implied_round_cost(2, 5e-324),
        lambda: speculative.one_more_draft_helps(1.1, 1, 0.1),
        lambda: speculative.one_more_draft_helps(0.5, 1, INF),
        lambda: speculative.best_drafts((0.5, 0.6), 0.1),
        lambda: speculative.best_drafts((0.5, 0.4), NAN),
        lambda: speculative.best_drafts((0.5, 0.4), 0.1, (1.0,)),
        lambda: speculative.break_even_acceptance(0, 0.1),
        lambda: speculative.break_even_acceptance(4, -0.1),
        lambda: speculative.break_even_verify_ratio(6, 4, 0.1),
        lambda: speculative.break_even_verify_ratio(3, 4, INF),
        lambda: speculative.mean_rounds(0.5, 256),
        lambda: speculative.mean_rounds(2, 0),
        lambda: speculative.most_drafts_within(0, 1),
        lambda: speculative.most_drafts_within(8, 0),
        lambda: speculative.speculation_memory(CACHE, -1, 1, 8),
        lambda: speculative.speculation_memory(CACHE, 1, 0, 8),
        lambda: speculative.speculation_memory(CACHE, 1, 1, -8),
        lambda: speculative.speculation_memory(CACHE, 1, 1, 8, draft_weights_bytes=-1),
    ],
)
def test_outside_the_domain(call) -> None:
    with pytest.raises(DomainError):
        call()
