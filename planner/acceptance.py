"""Acceptance of drafts: with what probability they are kept, and how many tokens one round of speculation then yields.

A round drafts k tokens, the target verifies them in one step, keeps those before the first rejection and adds one token of its own: the
correction, or after k accepted ones the bonus. Everything here rests on one description of a drafter, its cumulative rates: R_j is the
probability that the first j drafts of a round are all kept. Independent, position-dependent and varying acceptance all give such rates.

Three figures are called "acceptance rate" and differ: alpha (that one draft is kept, given that it was looked at), accepted/drafted (what
vLLM, SGLang and llama.cpp print; smaller, because drafts after a rejection count as drafted), and the cumulative rates by position.

Symbols: p target distribution, q draft distribution, alpha acceptance, k drafts per round, E tokens per round.
Sources: formulas F11.1 to F11.4, F11.10; Leviathan et al. 2023 (arXiv 2211.17192); Chen et al. 2023 (arXiv 2302.01318); Medusa (arXiv
2401.10774) for the entropy rule. Counters of engines are read in :mod:`~roofplan.planner.draft_counters`.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from ..errors import DomainError
from . import domain

if TYPE_CHECKING:
    from collections.abc import Sequence

_HALVINGS = 100  # of the interval from 0 to 1: far below the spacing of floats

# ------------------------------------------------------------------------------------------------ the acceptance rule


def acceptance_probability(target: Sequence[float], draft: Sequence[float]) -> float:
    """Probability that a token drafted from q is kept by the exact rule: alpha = sum_x min(p(x), q(x)) = 1 - TV(p, q) (formula F11.1).

    The rule keeps x with probability min(1, p(x) / q(x)) and otherwise samples the residual, so that the emitted token is one of p.

    Parameters
    ----------
    target, draft : p and q over the same vocabulary, after temperature and truncation; one-hot for greedy decoding, where alpha is 1 or 0

    Raises
    ------
    DomainError : unless both are distributions over as many tokens

    >>> acceptance_probability((0.5, 0.3, 0.2), (0.2, 0.5, 0.3))
    0.7
    """
    p, q = _checked_pair(target, draft)
    return min(1.0, math.fsum(map(min, p, q)))


def total_variation(first: Sequence[float], second: Sequence[float]) -> float:
    """Distance of two distributions, TV = sum_x |p(x) - q(x)| / 2: the largest difference of any event (formula F11.1).

    Raises
    ------
    DomainError : unless both are distributions over as many tokens
    """
    pairs = zip(*_checked_pair(first, second), strict=True)
    return math.fsum(abs(p - q) for p, q in pairs) / 2


def residual_distribution(target: Sequence[float], draft: Sequence[float]) -> tuple[float, ...] | None:
    """What a rejected draft is replaced from: max(p - q, 0) normalised (formula F11.1); None where p = q, which rejects nothing.

    Raises
    ------
    DomainError : unless both are distributions over as many tokens

    >>> residual_distribution((0.5, 0.3, 0.2), (0.2, 0.5, 0.3))
    (1.0, 0.0, 0.0)
    """
    excess = [max(p - q, 0.0) for p, q in zip(*_checked_pair(target, draft), strict=True)]
    total = math.fsum(excess)
    return tuple(mass / total for mass in excess) if total else None


# ------------------------------------------------------------------------------------------------ tokens per round


def expected_tokens(alpha: float, drafts: int) -> float:
    """Mean tokens per round of k drafts of independent, equal acceptance: E = (1 - alpha^(k+1)) / (1 - alpha) (formula F11.2).

    The token that the target adds is counted: E is 1 at alpha 0 and k + 1 at alpha 1. Where alpha varies between contexts this is too low
    at its mean (see :func:`varying_rates`).

    Raises
    ------
    DomainError : for alpha outside [0, 1] or drafts outside 0 to 1000
    """
    domain.probability("alpha", alpha)
    most = float(domain.drafts(drafts) + 1)
    if alpha in {0, 1}:
        return most if alpha else 1.0
    # expm1 keeps the digits that 1 - alpha^(k+1) loses near alpha = 1.
    return min(most, -math.expm1(most * math.log(alpha)) / (1 - alpha))


def endless_draft_tokens(alpha: float) -> float | None:
    """Tokens per round that no number of drafts exceeds, 1 / (1 - alpha) (formula F11.2); None at alpha 1, where there is no limit.

    Raises
    ------
    DomainError : for alpha outside [0, 1]
    """
    return 1 / (1 - alpha) if domain.probability("alpha", alpha) < 1 else None


def alpha_from_tokens(tokens: float, drafts: int) -> float:
    """The independent acceptance at which k drafts yield E tokens per round: E(alpha, k) solved for alpha by halving (formula F11.4).

    For a mean length without the bonus token, add one. Where acceptance varies it is an effective value, for this k only.

    Raises
    ------
    DomainError : without a draft, or for E outside [1, k + 1]
    """
    domain.tokens_per_round(tokens, domain.drafts(drafts, 1))
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens(middle, drafts) < tokens else (low, middle)
    return high if tokens > 1 else 0.0


@dataclass(frozen=True, slots=True)
class RoundTokens:
    """Tokens of one round: ``distribution`` holds P(1), P(2), ... P(k+1), the token that the target adds counted."""

    distribution: tuple[float, ...]
    mean: float
    variance: float

    @property
    def standard_deviation(self) -> float:
        """Standard deviation in tokens."""
        return math.sqrt(self.variance)


def tokens_of_round(rates: Sequence[float]) -> RoundTokens:
    """Distribution, mean and variance of the tokens of a round: P(i+1) = R_i - R_(i+1), E = 1 + sum_j R_j (formula F11.3, F11.4).

    For independent acceptance, R_j = alpha^j, these are alpha^i (1 - alpha) and, for the last, alpha^k.

    Parameters
    ----------
    rates : cumulative rates R_1 to R_k; none at all is a round without drafts

    Raises
    ------
    DomainError : for rates outside [0, 1], or rising ones
    """
    checked = domain.falling_rates(rates)
    distribution = tuple(here - after for here, after in pairwise((1.0, *checked, 0.0)))
    mean = 1 + math.fsum(checked)
    variance = math.fsum(p * (tokens - mean) ** 2 for tokens, p in enumerate(distribution, 1))
    return RoundTokens(distribution, mean, variance)


def expected_by_drafts(rates: Sequence[float]) -> tuple[float, ...]:
    """Mean tokens per round for 0, 1, ... k drafts: partial sums of E = 1 + sum_j R_j (formula F11.4).

    It takes for given that the rates of the first drafts do not depend on how many follow.

    Raises
    ------
    DomainError : for rates outside [0, 1], or rising ones

    >>> expected_by_drafts((0.5, 0.25))
    (1.0, 1.5, 1.75)
    """
    return tuple(accumulate(domain.falling_rates(rates), initial=1.0))


# ------------------------------------------------------------------------------------------------ cumulative rates


def cumulative_rates(conditional: Sequence[float]) -> tuple[float, ...]:
    """Cumulative rates from those of each position, given that all before it were kept: R_j = prod_(i<=j) alpha_i (formula F11.4).

    Raises
    ------
    DomainError : for a rate outside [0, 1]
    """
    rates = (
        domain.probability(f"rate of position {position}", rate)
        for position, rate in enumerate(domain.several("conditional", conditional), 1)
    )
    return tuple(accumulate(rates, operator.mul))


def conditional_rates(rates: Sequence[float]) -> tuple[float | None, ...]:
    """Rates of each position, given that all before it were kept, alpha_j = R_j / R_(j-1) (formula F11.4); None after a rate of zero.

    Raises
    ------
    DomainError : for rates outside [0, 1], or rising ones
    """
    return tuple(rate / before if before else None for before, rate in pairwise((1.0, *domain.falling_rates(rates))))


def independent_rates(alpha: float, drafts: int) -> tuple[float, ...]:
    """Cumulative rates of independent, equal acceptance, R_j = alpha^j (formula F11.2).

    Raises
    ------
    DomainError : for alpha outside [0, 1] or drafts outside 0 to 1000
    """
    domain.probability("alpha", alpha)
    return cumulative_rates([alpha] * domain.drafts(drafts))


def varying_rates(a: float, b: float, drafts: int) -> tuple[float, ...]:
    """Cumulative rates when alpha differs between rounds as Beta(a, b): R_j = E[alpha^j] = prod_(i<j) (a+i) / (a+b+i) (formula F11.4).

    The mean of alpha is a / (a + b). E[alpha^j] is never below the power of the mean (Jensen), so that E is higher than at the mean. It is
    taken as constant within a round.

    Raises
    ------
    DomainError : unless a and b are above zero, or for drafts outside 0 to 1000
    """
    domain.positive("a", a)
    domain.positive("b", b)
    # Written so that no sum overflows and no rate exceeds one.
    return cumulative_rates([1 / (1 + b / (a + i)) for i in range(domain.drafts(drafts))])


def mixed_rates(by_workload: Sequence[Sequence[float]], shares: Sequence[float]) -> tuple[float, ...]:
    """Cumulative rates of a mix of workloads, the weighted mean at each position: R_j = sum_w share_w R_(w,j) (formula F11.4).

    Parameters
    ----------
    shares : shares of the *rounds*; a workload with low acceptance has a larger share of the rounds than of the tokens

    Raises
    ------
    DomainError : for rates outside [0, 1] or rising ones, different numbers of positions, or shares that do not sum to one
    """
    weights = domain.distribution("shares", shares)
    workloads = [domain.falling_rates(rates) for rates in domain.several("by_workload", by_workload)]
    positions = {len(rates) for rates in workloads}
    if len(workloads) != len(weights) or len(positions) != 1:
        got = f"{len(workloads)} workloads, {len(weights)} shares, rates at {sorted(positions)} positions"
        raise DomainError("by_workload", got=got, wanted="a share for each, and rates at the same positions")
    # Rounding may raise a sum above the one before it.
    mixed = (math.fsum(map(operator.mul, column, weights)) for column in zip(*workloads, strict=True))
    return tuple(accumulate(mixed, min, initial=1.0))[1:]


# ------------------------------------------------------------------------------------------------ relaxed rules


@dataclass(frozen=True, slots=True)
class RelaxedRule:
    """What a relaxed rule does at one position: the share of drafts that it keeps, what it emits, and how far that is from p (TV)."""

    accepted: float
    output: tuple[float, ...]
    distance: float


def accept_in_top(target: Sequence[float], draft: Sequence[float], top: int) -> RelaxedRule:
    """Keep any draft among the target's ``top`` likeliest tokens, else sample p: the output is no longer p (formula F11.10).

        output(x) = q(x) [x in top] + (1 - sum_(y in top) q(y)) p(x)

    Of equally likely tokens those that stand first are taken.

    Raises
    ------
    DomainError : unless p and q are distributions over as many tokens, and ``top`` at least one
    """
    p, q = _checked_pair(target, draft)
    likeliest = sorted(range(len(p)), key=lambda token: -p[token])
    return _keep(p, q, set(likeliest[: domain.count("top", top)]))


def typical_threshold(target: Sequence[float], threshold: float = 0.3, factor: float = 0.09) -> float:
    """Probability above which the entropy rule keeps a token: min(threshold, factor exp(-H)), H = -sum p ln p (formula F11.10).

    Defaults are those of FasterDecoding/Medusa (medusa/model/utils.py at e2a5d20), whose guard of 1e-5 inside the logarithm is left out.

    Raises
    ------
    DomainError : unless p is a distribution, and threshold and factor probabilities

    >>> round(typical_threshold((0.25, 0.25, 0.25, 0.25)), 12)
    0.0225
    """
    shares = domain.distribution("target", target)
    domain.probability("threshold", threshold)
    domain.probability("factor", factor)
    entropy = -math.fsum(p * math.log(p) for p in shares if p)
    return min(threshold, factor * math.exp(-entropy))


def accept_typical(
    target: Sequence[float], draft: Sequence[float], threshold: float = 0.3, factor: float = 0.09
) -> RelaxedRule:
    """Keep a draft where p(x) > min(threshold, factor exp(-H)), else sample p: typical acceptance (formula F11.10; arXiv 2401.10774).

    The output follows as for :func:`accept_in_top`. Medusa's drafts are the heads' likeliest tokens: q is then one-hot.

    Raises
    ------
    DomainError : unless p and q are distributions over as many tokens, and threshold and factor probabilities
    """
    p, q = _checked_pair(target, draft)
    least = typical_threshold(p, threshold, factor)
    return _keep(p, q, {token for token, likelihood in enumerate(p) if likelihood > least})


def _keep(target: Sequence[float], draft: Sequence[float], kept: set[int]) -> RelaxedRule:
    accepted = min(1.0, math.fsum(draft[token] for token in kept))
    output = tuple(
        (q if token in kept else 0.0) + (1 - accepted) * p
        for token, (p, q) in enumerate(zip(target, draft, strict=True))
    )
    return RelaxedRule(accepted, output, total_variation(output, target))


def _checked_pair(first: Sequence[float], second: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    p, q = domain.distribution("first distribution", first), domain.distribution("second distribution", second)
    if len(p) != len(q):
        raise DomainError("distributions", got=f"{len(p)} and {len(q)} tokens", wanted="as many in both")
    return p, q
