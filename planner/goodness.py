"""Tests of fit: how likely counts or values that far from a distribution are when they do come from it.

Chi-square judges counts by kind, Kolmogorov's test values of a continuous distribution. Both give p-values, which are uniform between
zero and one when nothing is wrong: a single small one means little, many of them, or one below a millionth, a lot.

Sources: Abramowitz and Stegun 6.5.29 and 6.5.31 for the incomplete gamma function, with the modified method of Lentz; Stephens 1970
(J. R. Stat. Soc. B 32) for small samples in Kolmogorov's test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DomainError
from . import domain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FEWEST = 5.0  # counts that are expected of a kind, below which chi-square is no good approximation
_MOST_TERMS = 100_000
_SMALLEST = 1e-300


def chi_square_tail(statistic: float, degrees: int) -> float:
    """Probability that chi-square with so many degrees of freedom exceeds a value: Q(n/2, x/2), the incomplete gamma function.

    Raises
    ------
    DomainError : for a negative statistic, or no degree of freedom

    >>> round(chi_square_tail(3.841459, 1), 6)
    0.05
    """
    x, a = domain.not_negative("statistic", statistic) / 2, domain.count("degrees", degrees) / 2
    if x == 0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    return max(0.0, 1 - front * _series(a, x)) if x < a + 1 else front * _fraction(a, x)


def _series(a: float, x: float) -> float:
    """The sum of x^n / (a (a+1) ... (a+n))."""
    term = total = 1 / a
    for n in range(1, _MOST_TERMS):
        term *= x / (a + n)
        total += term
        if term < total * 1e-16:
            break
    return total


def _fraction(a: float, x: float) -> float:
    """The continued fraction 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - ...))."""
    b = x + 1 - a
    c, d = 1 / _SMALLEST, 1 / b
    found = d
    for n in range(1, _MOST_TERMS):
        factor = n * (a - n)
        b += 2
        d = 1 / (factor * d + b or _SMALLEST)
        c = b + factor / c or _SMALLEST
        found *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return found


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """The statistic sum (n - N p)^2 / (N p), its degrees of freedom, and how likely one as large is; ``pooled`` kinds were taken as one."""

    statistic: float
    degrees: int
    p_value: float
    pooled: int


def chi_square(counts: Sequence[int], expected: Sequence[float]) -> ChiSquare:
    """Judge counts by kind against the probabilities of the kinds.

    Kinds of which fewer than five are expected are taken together, with the next larger one where they are still too few. A count where
    nothing is possible is infinitely unlikely: its p-value is zero.

    Raises
    ------
    DomainError : unless ``expected`` is a distribution over as many kinds as there are counts, two of them possible, and something was
        counted

    >>> chi_square([55, 45], [0.5, 0.5]).statistic
    1.0
    """
    shares = domain.distribution("expected", expected)
    found = [domain.count("counts", count, 0) for count in domain.several("counts", counts)]
    total = sum(found)
    if len(found) != len(shares) or not total:
        got = f"{total} counted of {len(found)} kinds, {len(shares)} expected"
        raise DomainError("counts", got=got, wanted="as many kinds, and something counted")
    if any(count for count, share in zip(found, shares, strict=True) if not share):
        return ChiSquare(float(total), 1, 0.0, 0)
    kinds = sorted((share * total, count) for count, share in zip(found, shares, strict=True) if share)
    pooled, wanted, counted = 0, 0.0, 0
    for expectation, count in kinds:
        if expectation >= FEWEST and not 0 < wanted < FEWEST:
            break
        pooled, wanted, counted = pooled + 1, wanted + expectation, counted + count
    cells = kinds[pooled:] + ([(wanted, counted)] if pooled else [])
    if len(cells) < 2:
        raise DomainError("counts", got=f"{len(cells)} kind that is likely enough", wanted="two, or more counts")
    statistic = math.fsum((count - expectation) ** 2 / expectation for expectation, count in cells)
    degrees = len(cells) - 1
    return ChiSquare(statistic, degrees, chi_square_tail(statistic, degrees), pooled)


def kolmogorov_distance(values: Iterable[float]) -> float:
    """Largest distance between the shares of values up to x and x itself, for values that should be uniform between 0 and 1.

    Raises
    ------
    DomainError : without a value, or for one outside [0, 1]

    >>> kolmogorov_distance([0.5])
    0.5
    """
    ordered = sorted(domain.probability("value", value) for value in domain.several("values", values))
    count = domain.count("values", len(ordered))
    return max(max((rank + 1) / count - value, value - rank / count) for rank, value in enumerate(ordered))


def kolmogorov_tail(distance: float, count: int) -> float:
    """Probability that so many uniform values are as far from uniform.

        2 sum_j (-1)^(j-1) exp(-2 j^2 t^2), t = D (sqrt n + 0.12 + 0.11 / sqrt n)

    Within 0.01 of the exact probability from five values on (Stephens).

    Raises
    ------
    DomainError : for a distance outside [0, 1], or no value

    >>> round(kolmogorov_tail(0.294, 20), 2)  # the table of the exact distribution has 0.05
    0.05
    """
    root = math.sqrt(domain.count("count", count))
    t = domain.probability("distance", distance) * (root + 0.12 + 0.11 / root)
    if t < 0.2:  # the series is 1 to nine digits there, and converges slowly
        return 1.0
    terms = ((-1) ** (j - 1) * math.exp(-2 * (j * t) ** 2) for j in range(1, 101))
    return min(1.0, max(0.0, 2 * math.fsum(terms)))
