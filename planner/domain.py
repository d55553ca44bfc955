"""The domains of the closed forms: each check returns its value, or raises an error that says what was wanted.

NaN and infinity lie in no domain, so that no formula can return them for want of a check.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SUM_TOLERANCE = 1e-9


def finite(what: str, value: float) -> float:
    """A finite number of either sign."""
    return _checked(what, value, -math.inf < value < math.inf, "a finite number")


def positive(what: str, value: float) -> float:
    """A finite number above zero."""
    return _checked(what, value, 0 < value < math.inf, "a finite number above zero")


def not_negative(what: str, value: float) -> float:
    """A finite number, zero or more."""
    return _checked(what, value, 0 <= value < math.inf, "a finite number, zero or more")


def probability(what: str, value: float) -> float:
    """A number from zero to one."""
    return _checked(what, value, 0 <= value <= 1, "a number from 0 to 1")


def at_least(what: str, value: float, least: float) -> float:
    """A finite number, not below a limit."""
    return _checked(what, value, least <= value < math.inf, f"a finite number, at least {least:g}")


def count(what: str, value: int, least: int = 1) -> int:
    """A whole number, not below a limit."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise DomainError(what, got=value, wanted=f"a whole number, at least {least}")
    return value


def distribution(what: str, weights: Sequence[float]) -> Sequence[float]:
    """Probabilities that sum to one."""
    for weight in weights:
        probability(what, weight)
    total = math.fsum(weights)
    if not abs(total - 1) <= _SUM_TOLERANCE:
        raise DomainError(what, got=f"a sum of {total:g}", wanted="probabilities that sum to 1")
    return weights


def _checked(what: str, value: float, holds: bool, wanted: str) -> float:
    if not holds:
        raise DomainError(what, got=value, wanted=wanted)
    return value
