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
    def of(cls, figure: Callable[[int], float], better: Callable[..., float] = min) -> Range:
        """Evaluate a figure at the four efficiencies: 0 nominal, 1 best, 2 expected, 3 worst; ``better`` is max for rates.

        Faster kernels can move a little of a request's time from one phase to another (who waits, and who interleaves), so that a single
        phase need not be shortest at nominal rates: each value is the extreme of those that it must enclose.
        """
        nominal, *reached = (figure(index) for index in range(4))
        return cls(better(nominal, *reached), min(reached), reached[1], max(reached))

    def scaled(self, factor: float) -> Range:
        """Multiply all four values."""
        return Range(self.bound * factor, self.low * factor, self.expected * factor, self.high * factor)
