"""Uncertain figures: the pure roofline bound, and low, expected and high values beside it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """A time or rate: ``bound`` is what the nominal roof allows, ``expected`` what is reached, ``low`` to ``high`` holds 80 % of cases."""

    bound: float
    low: float
    expected: float
    high: float

    @classmethod
    def of_time(cls, bound: float, expected: float, width: float) -> Range:
        """A time that is reached within x/÷ ``width``; nothing is faster than the roof."""
        expected = max(bound, expected)
        return cls(bound, max(bound, expected / width), expected, expected * width)

    @classmethod
    def of_rate(cls, bound: float, expected: float, width: float) -> Range:
        """A rate that is reached within x/÷ ``width``; nothing is faster than the roof."""
        expected = min(bound, expected)
        return cls(bound, expected / width, expected, min(bound, expected * width))

    def scaled(self, factor: float) -> Range:
        """Multiply all four values."""
        return Range(self.bound * factor, self.low * factor, self.expected * factor, self.high * factor)
