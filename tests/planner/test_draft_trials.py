"""The acceptance rule on random drafts: the exact rule gives the target, relaxed ones do not, and counts agree with the formulas."""

import time

import numpy as np
import pytest
from pytest import approx

from roofplan.errors import DomainError
from roofplan.planner import draft_trials
from roofplan.planner.acceptance import acceptance_probability, total_variation
from roofplan.planner.draft_trials import Pair, Rule, random_pair, read_rule, run_trials
from roofplan.planner.goodness import kolmogorov_distance, kolmogorov_tail

SMALL = Pair((0.5, 0.3, 0.2), (0.2, 0.5, 0.3))  # F11.1
ROUNDS = 100_000
EXACT, TOP_TWO, TYPICAL = Rule("exact"), Rule("top", 2), Rule("typical")
LEAST = 1e-6


def one_by_one(pair: Pair, drafts: int, rounds: int, seed: int) -> tuple[list[int], int]:
    """The exact rule as Leviathan et al. write it (Algorithm 1), a token at a time; counts by token, and tokens in all."""
    rng = np.random.default_rng(seed)
    p, q = np.array(pair.target), np.array(pair.draft)
    counts = [0] * len(p)
    for _ in range(rounds):
        for _ in range(drafts):
            x = rng.choice(len(q), p=q)
            if rng.random() > p[x] / q[x]:
                residual = np.maximum(p - q, 0)
                counts[rng.choice(len(p), p=residual / residual.sum())] += 1
                break
            counts[x] += 1
        else:
            counts[rng.choice(len(p), p=p)] += 1
    return counts, sum(counts)


# ------------------------------------------------------------------------------------------------ the exact rule


def test_the_exact_rule_gives_the_target() -> None:  # F11.1, F11.2
    found = run_trials(SMALL, EXACT, 4, ROUNDS, 0)
    assert found.fit.p_value > LEAST
    assert found.acceptance.formula == approx(0.7, rel=1e-12)
    assert found.tokens_per_round.formula == approx(2.7731, rel=1e-12)
    assert found.acceptance.agrees
    assert found.tokens_per_round.agrees
    assert found.rule_distance == 0
    assert found.distance < 0.005


def test_tokens_of_a_round_spread_as_the_formula_says() -> (
    None
):  # F11.3: alpha 0.8, k = 4 has a standard deviation of 1.60313612647211
    pair = random_pair(1000, 0.2, 0)
    mean = run_trials(pair, EXACT, 4, ROUNDS, 0).tokens_per_round
    assert (mean.high - mean.low) / 2 == approx(1.959964 * 1.60313612647211 / ROUNDS**0.5, rel=0.01)


def test_against_the_algorithm_token_by_token() -> None:
    rounds = 4000
    counts, tokens = one_by_one(SMALL, 3, rounds, 1)
    found = run_trials(SMALL, EXACT, 3, rounds, 1)
    # Both are means of the same distribution: they differ by a few standard errors of the difference at most.
    error = (found.tokens_per_round.high - found.tokens_per_round.low) / 2 / 1.96 * 2**0.5
    assert abs(tokens / rounds - found.tokens_per_round.value) < 4 * error
    for count, p in zip(counts, SMALL.target, strict=True):
        assert count / tokens == approx(p, abs=0.02)


SEEDS = range(20)


@pytest.fixture(scope="module")
def trials():
    pair = random_pair(1000, 0.3, 0)
    return {rule: [run_trials(pair, rule, 4, ROUNDS, seed) for seed in SEEDS] for rule in (EXACT, TOP_TWO, TYPICAL)}


def test_p_values_of_the_exact_rule_are_uniform(trials) -> None:
    p_values = [trial.fit.p_value for trial in trials[EXACT]]
    assert kolmogorov_tail(kolmogorov_distance(p_values), len(p_values)) > 0.05
    assert sum(trial.acceptance.agrees for trial in trials[EXACT]) >= 16  # 95 % intervals: fewer in 1 of 400
    assert sum(trial.tokens_per_round.agrees for trial in trials[EXACT]) >= 16


@pytest.mark.parametrize("rule", [TOP_TWO, TYPICAL])
def test_relaxed_rules_fail_with_every_seed(trials, rule: Rule) -> None:  # F11.10
    assert all(trial.fit.p_value < LEAST for trial in trials[rule])


def test_equal_distributions_reject_nothing() -> None:
    found = run_trials(Pair((0.5, 0.5), (0.5, 0.5)), EXACT, 3, 1000, 0)
    assert (found.acceptance.value, found.tokens_per_round.value, found.tokens) == (1, 4, 4000)


def test_distributions_without_a_common_token_reject_everything() -> None:
    found = run_trials(Pair((0.5, 0.5, 0.0), (0.0, 0.0, 1.0)), EXACT, 3, 10_000, 0)
    assert (found.acceptance.value, found.tokens) == (0, 10_000)
    assert found.fit.p_value > LEAST


# ------------------------------------------------------------------------------------------------ relaxed rules


def test_top_two_gives_what_the_closed_form_says() -> None:
    """Output (.35, .59, .06) at a position, TV .29 (F11.10); the bonus token after kept drafts is one of p."""
    found = run_trials(SMALL, TOP_TWO, 1, ROUNDS, 0)
    kept = 0.2 + 0.5  # drafts among the two likeliest tokens
    mixed = [(out + kept * p) / (1 + kept) for out, p in zip((0.35, 0.59, 0.06), SMALL.target, strict=True)]
    assert found.distance == approx(total_variation(mixed, SMALL.target), abs=0.005)
    assert found.rule_distance == approx(0.29, rel=1e-12)
    assert found.acceptance.value == approx(kept, abs=0.005)


def test_typical_keeps_what_exceeds_its_threshold() -> None:  # F11.10: H = ln 4 gives 0.0225
    even = Pair((0.25,) * 4, (0.7, 0.1, 0.1, 0.1))
    found = run_trials(even, TYPICAL, 2, 10_000, 0)
    assert found.acceptance.value == 1
    assert found.fit.p_value < LEAST


def test_rules_are_read_as_they_are_written() -> None:
    for text in ("exact", "typical", "top:2", "top:1"):
        assert str(read_rule(text)) == text


# ------------------------------------------------------------------------------------------------ random distributions


@pytest.mark.parametrize("divergence", [0, 0.001, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("tokens", [50, 1000])
def test_random_pairs_have_the_divergence(tokens: int, divergence: float) -> None:
    pair = random_pair(tokens, divergence, 5)
    assert pair.divergence == approx(divergence, abs=1e-12)
    assert acceptance_probability(pair.target, pair.draft) == approx(1 - divergence, abs=1e-12)
    assert min(pair.target) > 0
    assert sum(pair.target) == approx(1)


def test_seeds_repeat_and_differ() -> None:
    assert random_pair(50, 0.2, 1) == random_pair(50, 0.2, 1) != random_pair(50, 0.2, 2)
    one, same, other = (run_trials(SMALL, EXACT, 4, 1000, seed).tokens for seed in (1, 1, 2))
    assert one == same != other


def test_a_hundred_thousand_rounds_over_a_thousand_tokens_take_no_two_seconds() -> None:
    start = time.process_time()
    run_trials(random_pair(1000, 0.3, 0), EXACT, 4, ROUNDS, 0)
    assert time.process_time() - start < 2


def test_rounds_of_several_blocks_are_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_trials, "_BLOCK", 64)
    found = run_trials(SMALL, EXACT, 4, 1001, 0)
    assert found.tokens == approx(1001 * 2.7731, rel=0.06)
    assert found.tokens == 1001 + round(found.acceptance.value * _looked_at(found))


def _looked_at(found) -> float:
    """Drafts that were looked at: those kept over the share of them."""
    return (found.tokens - found.rounds) / found.acceptance.value


# ------------------------------------------------------------------------------------------------ domains


@pytest.mark.parametrize(
    "call",
    [
        lambda: random_pair(1, 0.1, 0),
        lambda: random_pair(10**7, 0.1, 0),
        lambda: random_pair(100, 1, 0),
        lambda: random_pair(100, 0.9999, 0),
        lambda: random_pair(100, -0.1, 0),
        lambda: random_pair(100, 0.1, -1),
        lambda: run_trials(Pair((0.5, 0.6), (0.5, 0.5)), EXACT, 4, 100, 0),
        lambda: run_trials(Pair((0.5, 0.5), (1.0,)), EXACT, 4, 100, 0),
        lambda: run_trials(SMALL, EXACT, 0, 100, 0),
        lambda: run_trials(SMALL, EXACT, 4, 0, 0),
        lambda: run_trials(SMALL, EXACT, 4, 10**9, 0),
        lambda: run_trials(SMALL, EXACT, 4, 100, -1),
        lambda: read_rule("top"),
        lambda: read_rule("top:0"),
        lambda: read_rule("top:x"),
        lambda: read_rule("best"),
    ],
)
def test_domains(call) -> None:
    with pytest.raises(DomainError):
        call()
