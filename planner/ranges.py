"""Uncertain figures: the pure roofline bound, and low, expected and high values beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Range:
    """A time or rate: ``bound`` is what the nominal roof allows, the others what is reached (see Efficiency)."""

    bound: float
    low: float
    expected: float
    high: float

    @classmethod
    def of(cls, figure: Callable[[int], float]) -> Range:
        """Evaluate a figure at the four efficiencies: 0 nominal, 1 best, 2 expected, 3 worst."""
        best, expected, worst = figure(1), figure(2), figure(3)
        return cls(figure(0), min(best, worst), expected, max(best, worst))

    def scaled(self, factor: float) -> Range:
        """Multiply all four values."""
        return Range(self.bound * factor, self.low * factor, self.expected * factor, self.high * factor)
