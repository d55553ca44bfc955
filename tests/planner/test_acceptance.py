"""Golden values of formulas F11.1 to F11.4 and F11.10, and acceptance rules against sampling."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from roofplan.errors import DomainError
from roofplan.planner import acceptance

EXACT = 1e-12
P, Q = (0.5, 0.3, 0.2), (0.2, 0.5, 0.3)
ALPHAS = st.floats(0, 1)
CONDITIONAL = st.lists(ALPHAS, max_size=8)
SAMPLES = 200_000


@st.composite
def pairs(draw) -> tuple[list[float], list[float]]:
    """Two distributions over as many tokens."""
    size = draw(st.integers(1, 6))
    weights = st.lists(st.integers(0, 100), min_size=size, max_size=size).filter(any)
    return tuple([weight / sum(drawn) for weight in drawn] for drawn in (draw(weights), draw(weights)))


def within(deviations: float, spread: float, samples: int = SAMPLES) -> float:
    """So many standard deviations of a mean of samples."""
    return deviations * spread / math.sqrt(samples)


# ------------------------------------------------------------------------------------------------ golden values


def test_acceptance_and_residual() -> None:  # F11.1
    assert acceptance.acceptance_probability(P, Q) == approx(0.7, rel=EXACT)
    assert acceptance.total_variation(P, Q) == approx(0.3, rel=EXACT)
    assert acceptance.residual_distribution(P, Q) == approx((1, 0, 0), rel=EXACT)
    assert acceptance.residual_distribution(P, P) is None


def test_greedy_decoding_keeps_what_both_choose() -> None:  # F11.1, note of physics.md
    assert acceptance.acceptance_probability((1, 0, 0), (1, 0, 0)) == 1
    assert acceptance.acceptance_probability((1, 0, 0), (0, 1, 0)) == 0


@pytest.mark.parametrize(
    ("alpha", "tokens"), [(0.8, 3.3616), (0.9, 4.0951), (0.7, 2.7731), (0.6, 2.3056), (0, 1), (1, 5)]
)
def test_tokens_per_round(alpha: float, tokens: float) -> None:  # F11.2
    assert acceptance.expected_tokens(alpha, 4) == approx(tokens, rel=EXACT)


def test_endless_drafts() -> None:  # F11.2
    assert acceptance.endless_draft_tokens(0.8) == approx(5, rel=EXACT)
    assert acceptance.endless_draft_tokens(1) is None


def test_distribution() -> None:  # F11.3
    tokens = acceptance.tokens_of_round(acceptance.independent_rates(0.8, 4))
    assert tokens.distribution == approx((0.2, 0.16, 0.128, 0.1024, 0.4096), rel=EXACT)
    assert tokens.mean == approx(3.3616, rel=EXACT)
    assert tokens.variance == approx(2.57004544, rel=EXACT)
    assert tokens.standard_deviation == approx(1.60313612647211, rel=EXACT)


def test_rates_by_position() -> None:  # F11.4
    published = (0.805, 0.632, 0.483)
    assert acceptance.tokens_of_round(published).mean == approx(2.92, rel=EXACT)
    conditional = acceptance.conditional_rates(published)
    assert conditional == approx((0.805, 0.7850931677018633, 0.7642405063291139), rel=EXACT)
    assert acceptance.cumulative_rates(conditional) == approx(published, rel=EXACT)
    assert acceptance.alpha_from_tokens(2.92, 3) == approx(0.7928823257110125, rel=EXACT)


def test_varying_acceptance() -> None:  # F11.4
    tokens = acceptance.tokens_of_round(acceptance.varying_rates(4, 1, 4)).mean
    assert tokens == approx(3.538095238095238, rel=EXACT)
    assert tokens > acceptance.expected_tokens(0.8, 4)


def test_top_two_is_not_exact() -> None:  # F11.10
    rule = acceptance.accept_in_top(P, Q, 2)
    assert rule.output == approx((0.35, 0.59, 0.06), rel=EXACT)
    assert rule.distance == approx(0.29, rel=EXACT)
    assert rule.accepted == approx(0.7, rel=EXACT)


def test_threshold_of_the_entropy_rule() -> None:  # F11.10
    assert acceptance.typical_threshold([0.25] * 4) == approx(0.0225, rel=EXACT)
    assert acceptance.typical_threshold((1, 0)) == approx(0.09, rel=EXACT)
    assert acceptance.typical_threshold((1, 0), factor=1) == approx(0.3, rel=EXACT)


def test_entropy_rule_keeps_what_is_above_its_threshold() -> None:  # F11.10
    target, draft = (0.9, 0.08, 0.02), (0.1, 0.3, 0.6)
    least = 0.09 * 0.9**0.9 * 0.08**0.08 * 0.02**0.02  # exp(-H) = prod p^p
    assert 0.02 < least < 0.08
    rule = acceptance.accept_typical(target, draft)
    assert rule.accepted == approx(0.4, rel=EXACT)
    assert rule.output == approx((0.1 + 0.6 * 0.9, 0.3 + 0.6 * 0.08, 0.6 * 0.02), rel=EXACT)


# ------------------------------------------------------------------------------------------------ brute force


@given(pairs())
def test_the_exact_rule_emits_the_target(pair: tuple[list[float], list[float]]) -> None:  # F11.1, by enumeration
    p, q = pair
    kept = [q_x * min(1, p_x / q_x) if q_x else 0 for p_x, q_x in zip(p, q, strict=True)]
    assert acceptance.acceptance_probability(p, q) == approx(sum(kept), abs=EXACT)
    assert acceptance.total_variation(p, q) == approx(1 - sum(kept), abs=EXACT)
    residual = acceptance.residual_distribution(p, q) or (0,) * len(p)
    assert [k + (1 - sum(kept)) * r for k, r in zip(kept, residual, strict=True)] == approx(p, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_rules_against_sampling(seed: int) -> None:  # F11.1, F11.10
    generator = np.random.default_rng(seed)
    p, q = generator.dirichlet([0.7] * 5), generator.dirichlet([0.7] * 5)
    drafted, uniform = generator.choice(5, SAMPLES, p=q), generator.random(SAMPLES)

    def sampled(keep: np.ndarray, otherwise: tuple[float, ...]) -> tuple[float, np.ndarray]:
        emitted = np.where(keep, drafted, generator.choice(5, SAMPLES, p=otherwise))
        return keep.mean(), np.bincount(emitted, minlength=5) / SAMPLES

    tolerance = within(5, 0.5)
    kept, output = sampled(uniform < p[drafted] / q[drafted], acceptance.residual_distribution(p, q))
    assert kept == approx(acceptance.acceptance_probability(p, q), abs=tolerance)
    assert output == approx(p, abs=tolerance)
    entropy = -(p * np.log(p)).sum()
    for rule, keep in (
        (acceptance.accept_in_top(p, q, 2), np.isin(drafted, np.argsort(p)[-2:])),
        (acceptance.accept_typical(p, q), p[drafted] > min(0.3, 0.09 * math.exp(-entropy))),
        (acceptance.accept_typical(p, q, 0.8, 0.8), p[drafted] > min(0.8, 0.8 * math.exp(-entropy))),
    ):
        kept, output = sampled(keep, p)
        assert kept == approx(rule.accepted, abs=tolerance)
        assert output == approx(rule.output, abs=tolerance)
        assert abs(output - p).sum() / 2 == approx(rule.distance, abs=5 * tolerance)


def sampled_tokens(kept: np.ndarray) -> np.ndarray:
    """Tokens of rounds from whether each draft would be kept if it were looked at."""
    return 1 + np.cumprod(kept, axis=1).sum(axis=1)


@pytest.mark.parametrize("conditional", [(0.8,) * 4, (0.9, 0.5, 0.7), (0.3,), (1.0, 0.0, 1.0), (0.95,) * 12])
def test_tokens_of_a_round_against_simulation(conditional: tuple[float, ...]) -> None:  # F11.3, F11.4
    generator = np.random.default_rng(11)
    tokens = sampled_tokens(generator.random((SAMPLES, len(conditional))) < np.array(conditional))
    found = acceptance.tokens_of_round(acceptance.cumulative_rates(conditional))
    assert tokens.mean() == approx(found.mean, abs=within(5, found.standard_deviation) + EXACT)
    assert tokens.std() == approx(found.standard_deviation, rel=0.02, abs=EXACT)
    shares = np.bincount(tokens, minlength=len(conditional) + 2)[1:] / SAMPLES
    assert shares == approx(found.distribution, abs=within(5, 0.5))


@pytest.mark.parametrize(("a", "b"), [(4, 1), (0.5, 0.5), (20, 5)])
def test_varying_acceptance_against_simulation(a: float, b: float) -> None:  # F11.4
    generator = np.random.default_rng(12)
    alpha = generator.beta(a, b, (SAMPLES, 1))
    found = acceptance.tokens_of_round(acceptance.varying_rates(a, b, 5))
    tokens = sampled_tokens(generator.random((SAMPLES, 5)) < alpha)
    assert tokens.mean() == approx(found.mean, abs=within(5, found.standard_deviation))


@given(ALPHAS, st.integers(0, 40))
def test_expected_tokens_is_the_sum_of_the_distribution(alpha: float, drafts: int) -> None:  # F11.2, F11.3
    rates = acceptance.independent_rates(alpha, drafts)
    tokens = acceptance.tokens_of_round(rates)
    expected = acceptance.expected_tokens(alpha, drafts)
    assert expected == approx(sum(alpha**j for j in range(drafts + 1)), rel=EXACT)
    assert tokens.mean == approx(expected, rel=EXACT)
    assert sum(tokens.distribution) == approx(1, rel=EXACT)
    assert sum(i * p for i, p in enumerate(tokens.distribution, 1)) == approx(expected, rel=1e-9)
    assert acceptance.expected_by_drafts(rates)[-1] == approx(expected, rel=EXACT)
    assert 1 <= expected <= drafts + 1


@given(st.floats(0, 0.9), st.integers(0, 20))
def test_second_moment(alpha: float, drafts: int) -> None:  # F11.3, its closed form
    last = drafts + 1
    second = ((1 + alpha) - alpha**last * ((2 * last + 1) - (2 * last - 1) * alpha)) / (1 - alpha) ** 2
    tokens = acceptance.tokens_of_round(acceptance.independent_rates(alpha, drafts))
    assert tokens.variance == approx(second - tokens.mean**2, rel=1e-9, abs=1e-9)


@given(CONDITIONAL)
def test_rates_against_enumeration(conditional: list[float]) -> None:  # F11.4
    mean = 0.0
    for outcome in itertools.product((True, False), repeat=len(conditional)):
        chance = math.prod(alpha if kept else 1 - alpha for alpha, kept in zip(conditional, outcome, strict=True))
        mean += chance * (1 + sum(itertools.accumulate(outcome, min)))
    assert acceptance.tokens_of_round(acceptance.cumulative_rates(conditional)).mean == approx(mean, rel=1e-9)


@given(st.floats(0, 1), st.integers(1, 12))
def test_inversion(alpha: float, drafts: int) -> None:  # F11.4
    tokens = acceptance.expected_tokens(alpha, drafts)
    assert acceptance.alpha_from_tokens(tokens, drafts) == approx(alpha, abs=1e-9)


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.integers(0, 12))
def test_varying_acceptance_never_yields_less_than_its_mean(a: float, b: float, drafts: int) -> None:  # F11.4, Jensen
    varying = acceptance.tokens_of_round(acceptance.varying_rates(a, b, drafts)).mean
    assert varying >= acceptance.expected_tokens(a / (a + b), drafts) * (1 - EXACT)


def test_a_mix_of_workloads_is_a_mix_of_rounds() -> None:  # F11.4
    by_workload = [acceptance.independent_rates(0.9, 3), acceptance.independent_rates(0.5, 3)]
    mixed = acceptance.tokens_of_round(acceptance.mixed_rates(by_workload, (0.25, 0.75)))
    each = [acceptance.tokens_of_round(rates) for rates in by_workload]
    assert mixed.mean == approx(0.25 * each[0].mean + 0.75 * each[1].mean, rel=EXACT)
    weighted = 0.25 * np.array(each[0].distribution) + 0.75 * np.array(each[1].distribution)
    assert mixed.distribution == approx(weighted, rel=EXACT)
    assert acceptance.mixed_rates([(), ()], (0.5, 0.5)) == ()


def test_inversion_at_the_ends() -> None:  # F11.4
    assert acceptance.alpha_from_tokens(1, 4) == 0
    assert acceptance.alpha_from_tokens(5, 4) == 1


@given(pairs(), st.integers(1, 7))
def test_relaxed_rules_keep_at_least_nothing_and_emit_distributions(pair, top: int) -> None:  # F11.10
    p, q = pair
    for rule in (acceptance.accept_in_top(p, q, top), acceptance.accept_typical(p, q)):
        assert 0 <= rule.accepted <= 1
        assert sum(rule.output) == approx(1, rel=1e-9)
        assert 0 <= rule.distance <= rule.accepted + EXACT  # what is not kept is sampled from p
    if top >= len(p):
        assert acceptance.accept_in_top(p, q, top).output == approx(q, abs=1e-9)


def test_a_rate_after_none_is_unknown() -> None:
    assert acceptance.conditional_rates((0.5, 0.0, 0.0)) == (0.5, 0.0, None)


# ------------------------------------------------------------------------------------------------ domains

NAN, INF = math.nan, math.inf
BAD_ALPHA = [-0.1, 1.1, NAN, INF]
BAD_DRAFTS = [-1, 1.5, True, 1001, 10**400, 0.0, False, None, "", INF]
BAD_DISTRIBUTIONS = [(), (0.5, 0.4), (1.5, -0.5), (NAN, 1.0), (0.5, 0.3, 0.3)]


@pytest.mark.parametrize("alpha", BAD_ALPHA)
def test_alpha_outside_its_domain(alpha: float) -> None:
    for call in (
        lambda: acceptance.expected_tokens(alpha, 4),
        lambda: acceptance.endless_draft_tokens(alpha),
        lambda: acceptance.independent_rates(alpha, 4),
        lambda: acceptance.cumulative_rates([0.5, alpha]),
        lambda: acceptance.expected_by_drafts([alpha]),
        lambda: acceptance.tokens_of_round([1.0, alpha]),
        lambda: acceptance.conditional_rates([alpha]),
        lambda: acceptance.expected_by_drafts([alpha]),
        lambda: acceptance.typical_threshold(P, threshold=alpha),
        lambda: acceptance.accept_typical(P, Q, factor=alpha),
    ):
        with pytest.raises(DomainError):
            call()


@pytest.mark.parametrize("drafts", BAD_DRAFTS)
def test_drafts_outside_their_domain(drafts: int) -> None:
    for call in (
        lambda: acceptance.expected_tokens(0.5, drafts),
        lambda: acceptance.independent_rates(0.5, drafts),
        lambda: acceptance.varying_rates(1, 1, drafts),
        lambda: acceptance.alpha_from_tokens(1.5, drafts),
    ):
        with pytest.raises(DomainError):
            call()


@pytest.mark.parametrize("bad", BAD_DISTRIBUTIONS)
def test_what_is_no_distribution(bad: tuple[float, ...]) -> None:
    for function in (
        acceptance.acceptance_probability,
        acceptance.total_variation,
        acceptance.residual_distribution,
        acceptance.accept_typical,
        lambda p, q: acceptance.accept_in_top(p, q, 1),
    ):
        for arguments in ((bad, Q), (P, bad)):
            with pytest.raises(DomainError):
                function(*arguments)
    with pytest.raises(DomainError):
        acceptance.typical_threshold(bad)


def test_different_vocabularies() -> None:
    with pytest.raises(DomainError, match="as many in both"):
        acceptance.acceptance_probability(P, (0.5, 0.5))


def test_rising_rates() -> None:
    with pytest.raises(DomainError, match=r"position 3.*cumulative rates never rise"):
        acceptance.tokens_of_round((0.8, 0.5, 0.6))


@pytest.mark.parametrize("tokens", [0.99, 5.01, NAN, INF])
def test_tokens_that_four_drafts_cannot_yield(tokens: float) -> None:
    with pytest.raises(DomainError):
        acceptance.alpha_from_tokens(tokens, 4)


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 0), (-1, 1), (NAN, 1), (1, INF)])
def test_beta_outside_its_domain(a: float, b: float) -> None:
    with pytest.raises(DomainError):
        acceptance.varying_rates(a, b, 4)


@pytest.mark.parametrize(
    ("by_workload", "shares"),
    [
        ([(0.5,), (0.4,)], (0.5, 0.4)),
        ([(0.5,), (0.4, 0.3)], (0.5, 0.5)),
        ([(0.5,)], (0.5, 0.5)),
        ([(0.5, 0.6)], (1.0,)),
        ([], ()),
    ],
)
def test_mixes_that_do_not_fit(by_workload, shares) -> None:
    with pytest.raises(DomainError):
        acceptance.mixed_rates(by_workload, shares)


@pytest.mark.parametrize("top", [0, -1, 1.5])
def test_top_of_nothing(top: int) -> None:
    with pytest.raises(DomainError):
        acceptance.accept_in_top(P, Q, top)
