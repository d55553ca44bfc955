"""The domains of the closed forms: each check returns its value, or raises an error that says what was wanted.

NaN, infinity, truth values and text lie in no domain. Results are checked in the same way as arguments, so that no formula returns what is
not a number: a product of two large arguments overflows to infinity, and one of two small ones to zero.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from numbers import Integral, Real
from typing import TYPE_CHECKING, TypeVar, get_args

from ..errors import DomainError

if TYPE_CHECKING:
    from .costs import Amount

MOST_DRAFTS = 1000  # of a round
MOST = 2**63 - 1  # of a count: what 64 bits hold, so that products of a dozen counts are still below the largest float
_LARGEST = sys.float_info.max
_LEAST = math.ulp(0.0)  # above zero
_SUM_TOLERANCE = 1e-9

Item = TypeVar("Item")

# ------------------------------------------------------------------------------------------------ one number


def finite(what: str, value: float) -> float:
    """A finite number of either sign.

    Raises
    ------
    DomainError : for anything else
    """
    return _within(what, value, -_LARGEST, _LARGEST, "a finite number")


def positive(what: str, value: float) -> float:
    """A finite number above zero.

    Raises
    ------
    DomainError : for anything else
    """
    return _within(what, value, _LEAST, _LARGEST, "a finite number above zero")


def not_negative(what: str, value: float) -> float:
    """A finite number, zero or more.

    Raises
    ------
    DomainError : for anything else
    """
    return _within(what, value, 0, _LARGEST, "a finite number, zero or more")


def probability(what: str, value: float) -> float:
    """A number from zero to one.

    Raises
    ------
    DomainError : for anything else
    """
    return _within(what, value, 0, 1, "a number from 0 to 1")


def at_least(what: str, value: float, least: float) -> float:
    """A finite number, not below a limit.

    Raises
    ------
    DomainError : for anything else
    """
    return _within(what, value, least, _LARGEST, f"a finite number, at least {least:g}")


def between(what: str, value: float, least: float, most: float) -> float:
    """A number between two limits, or one of them.

    Raises
    ------
    DomainError : for anything else
    """
    return _within(what, value, least, most, f"a number from {least:g} to {most:g}")


def count(what: str, value: int, least: int = 1, most: int = MOST) -> int:
    """A whole number between two limits, or one of them.

    Raises
    ------
    DomainError : for anything else
    """
    if isinstance(value, bool) or not isinstance(value, (int, Integral)) or not least <= value <= most:
        limit = "" if most == MOST else f", at most {most}"
        raise DomainError(what, got=value, wanted=f"a whole number, at least {least}{limit}")
    return int(value)


def drafts(value: int, least: int = 0) -> int:
    """A number of drafts per round, at most a thousand.

    Raises
    ------
    DomainError : for anything else
    """
    return count("drafts", value, least, MOST_DRAFTS)


def tokens_per_round(value: float, nodes: int) -> float:
    """Tokens that a round with so many drafts can yield: the one that the target adds, and what is kept of the drafts.

    Raises
    ------
    DomainError : for E outside [1, k + 1], or what is no number of drafts
    """
    return between("tokens per round", value, 1, count("drafts", nodes, 0) + 1)


def _within(what: str, value: float, least: float, most: float, wanted: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (float, int, Real)):
        raise DomainError(what, got=value, wanted=wanted)
    number = value if isinstance(value, (float, int)) else _as_float(value)
    if not least <= number <= most:
        raise DomainError(what, got=value, wanted=wanted)
    # A whole number beyond 64 bits becomes a float: what is computed from it then overflows to infinity, and the check of results finds it.
    return float(number) if isinstance(number, int) and abs(number) > MOST else number


def _as_float(value: Real) -> float:
    """A number of numpy, or a fraction."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


# ------------------------------------------------------------------------------------------------ words and several numbers


def one_of(what: str, value: str, words: Iterable[str]) -> str:
    """One of the words that an argument may be.

    Raises
    ------
    DomainError : for anything else
    """
    allowed = tuple(words)
    if not isinstance(value, str) or value not in allowed:
        raise DomainError(what, got=value, wanted=f"one of {', '.join(allowed)}")
    return value


def grouping(value: str) -> str:
    """One of the groupings of a step model (:mod:`~roofplan.planner.step`).

    Raises
    ------
    DomainError : for anything else
    """
    from .step import Grouping  # which stands on this module

    return one_of("grouping", value, get_args(Grouping))


def several(what: str, values: Iterable[Item], kind: type[Item] | None = None) -> tuple[Item, ...]:
    """The values of a collection, which text is not; of a kind, where one is wanted.

    Raises
    ------
    DomainError : for anything else
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise DomainError(what, got=values, wanted="several values")
    found = tuple(values)
    if kind is not None and not all(isinstance(value, kind) for value in found):
        raise DomainError(what, got=found, wanted=f"values of the kind {kind.__name__}")
    return found


def pairs(what: str, values: Iterable[Iterable[Item]]) -> tuple[tuple[Item, Item], ...]:
    """The pairs of a collection of pairs.

    Raises
    ------
    DomainError : for anything else
    """
    found = []
    for value in several(what, values):
        pair = several(what, value)
        if len(pair) != 2:
            raise DomainError(what, got=f"{len(pair)} together", wanted="two together")
        found.append((pair[0], pair[1]))
    return tuple(found)


def total(what: str, values: Iterable[float]) -> float:
    """The sum of numbers, to the last digit, where it is a finite number.

    Raises
    ------
    DomainError : for a sum that is none
    """
    try:
        found = math.fsum(values)
    except (OverflowError, ValueError):  # beyond the largest float; infinities of both signs
        found = math.inf
    return finite(what, found)


def distribution(what: str, weights: Iterable[float]) -> tuple[float, ...]:
    """Probabilities that sum to one.

    Raises
    ------
    DomainError : for anything else
    """
    shares = tuple(probability(what, weight) for weight in several(what, weights))
    if abs((whole := math.fsum(shares)) - 1) > _SUM_TOLERANCE:
        raise DomainError(what, got=f"a sum of {whole:g}", wanted="probabilities that sum to 1")
    return shares


def falling_rates(rates: Iterable[float]) -> tuple[float, ...]:
    """Probabilities that all positions up to each hold: none exceeds the one before it.

    Raises
    ------
    DomainError : for a rate outside [0, 1], or one above that of the position before
    """
    checked = tuple(
        probability(f"rate of position {position}", rate) for position, rate in enumerate(several("rates", rates), 1)
    )
    for position, (before, rate) in enumerate(pairwise(checked), 2):
        if rate > before:
            wanted = f"at most {before:g}, the rate of the position before: cumulative rates never rise"
            raise DomainError(f"rate of position {position}", got=rate, wanted=wanted)
    return checked


def amounts(what: str, values: Amount, check: Callable[[str, float], float]) -> Amount:
    """A number, or a numpy array of numbers that all pass a check.

    Raises
    ------
    DomainError : for an empty array, for what is no number, or when the least or the greatest number does not pass
    """
    if isinstance(values, (int, float)):
        return check(what, values)
    import numpy as np

    try:
        array = np.asarray(values)
    except ValueError:  # lists of unequal lengths
        array = np.asarray(None)
    if array.dtype.kind not in "iuf" or not array.size:
        raise DomainError(what, got=values, wanted="a number, or an array of numbers")
    for extreme in (array.min(), array.max()):  # a NaN is both
        check(what, float(extreme))
    return values
