"""Fitting the planner's own form of a kernel to measured calls: ``floor + (bytes / W') (+)_p (FLOP / F')`` (formula F1.3).

The median of the absolute logarithms of predicted over measured is made small, so that a call of a microsecond counts as much as one of a
second, and a few calls that were disturbed count little.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import MeasureError
from .samples import quantile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

JOINS = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 8.0, None)  # p of the join; None is full overlap
_STEPS = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01)  # of a logarithm
_FEW, _APART = 3, 2.0  # calls, and factor between intensities, from which on they tell reading from computing
_SHOWN = 0.01  # of the mean absolute logarithm, by which operations must bring a fit nearer to the calls
_MOST_MOVES = 200  # of one size of step


@dataclass(frozen=True, slots=True)
class Call:
    """One measured call: its bytes and operations, and its seconds."""

    moved: float
    flop: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """A kernel as fitted: seconds of its floor, rates that it reaches, p of the join, and how far the calls lie from it.

    Parameters
    ----------
    floor : seconds
    bytes_per_s, flop_per_s : rates; of operations None where no call had any, or all as many to a byte
    overlap : p of the join, None for full overlap
    median_error, p80_error, p90_error : quantiles of the absolute relative error of the calls
    calls : how many there were
    """

    floor: float
    bytes_per_s: float
    flop_per_s: float | None
    overlap: float | None
    median_error: float = 0.0
    p80_error: float = 0.0
    p90_error: float = 0.0
    calls: int = 0

    def seconds(self, moved: float, flop: float) -> float:
        """The time of a call."""
        memory = moved / self.bytes_per_s
        compute = flop / self.flop_per_s if self.flop_per_s else 0.0
        if self.overlap is None:
            return self.floor + max(memory, compute)
        joined: float = (memory**self.overlap + compute**self.overlap) ** (1 / self.overlap)
        return self.floor + joined


def fit_kernel(calls: Sequence[Call], *, stream_bytes_per_s: float = 0.0, product_flop_per_s: float = 0.0) -> Fitted:
    """Fit a kernel to calls.

    Rates are not above the best that any call reached, and the floor is not above the shortest call: fitted <= measured. Of bytes the best
    rate is that of streams, where it is higher: calls with a floor do not show it; of operations that of products: kernels may
    read and compute one after the other.

    Parameters
    ----------
    calls : at least one with bytes
    stream_bytes_per_s : the best rate of streaming
    product_flop_per_s : the best rate of products

    Raises
    ------
    MeasureError : without a call, or without bytes
    """
    if not calls or not any(call.moved > 0 for call in calls):
        raise MeasureError("calls", got=f"{len(calls)} without bytes", wanted="at least one with bytes")
    best_bytes = max([stream_bytes_per_s, *(call.moved / call.seconds for call in calls)])
    computing = [call for call in calls if call.flop > 0] if _tell_apart(calls) else []
    best_flop = max([product_flop_per_s, *(call.flop / call.seconds for call in computing)]) if computing else None
    shortest = min(call.seconds for call in calls)
    # Computing counts where calls show that it takes time: the best rate of calls that only read says nothing of the arithmetic units.
    start = Fitted(shortest / 4, best_bytes, None, None)
    found = _descended(start, calls, (shortest, best_bytes, None))
    least = _loss(found, calls) - (_SHOWN if len(calls) > 2 else 0.0)
    for overlap in JOINS if computing and len(calls) > 2 else (None,):
        start = Fitted(shortest / 4, best_bytes, best_flop, overlap)
        tried = _descended(start, calls, (shortest, best_bytes, best_flop))
        loss = _loss(tried, calls)
        if loss < least - 1e-6:
            found, least = tried, loss
    errors = sorted(abs(found.seconds(call.moved, call.flop) / call.seconds - 1) for call in calls)
    median, most, nearly_all = (quantile(errors, share) for share in (0.5, 0.8, 0.9))
    return replace(found, median_error=median, p80_error=most, p90_error=nearly_all, calls=len(calls))


def _tell_apart(calls: Sequence[Call]) -> bool:
    """Whether calls tell reading from computing: not where all have nearly as many operations to a byte, as decode attention has."""
    intensities = [call.flop / call.moved for call in calls if call.flop > 0 and call.moved > 0]
    return len(calls) < _FEW or (bool(intensities) and max(intensities) >= _APART * min(intensities))


def _loss(fitted: Fitted, calls: Sequence[Call]) -> float:
    """The mean of the absolute logarithms: as the median does, it forgives a few; unlike it, it has no flat places."""
    return sum(abs(math.log(fitted.seconds(call.moved, call.flop) / call.seconds)) for call in calls) / len(calls)


def _descended(start: Fitted, calls: Sequence[Call], most: tuple[float, float, float | None]) -> Fitted:
    """Walk downhill in the logarithms of the constants, by steps that get smaller."""
    best, loss = start, _loss(start, calls)
    for step in _STEPS:
        for _ in range(_MOST_MOVES):
            tried = min(
                ((_loss(one, calls), order, one) for order, one in enumerate(_around(best, step, most))),
                default=(math.inf, 0, best),
            )
            if tried[0] >= loss - 1e-9:
                break
            loss, best = tried[0], tried[2]
    return best


def _around(at: Fitted, step: float, most: tuple[float, float, float | None]) -> Iterator[Fitted]:
    """The neighbours of a fit: one or two constants moved; within what was measured."""
    moves = (-step, 0.0, step)
    shortest, best_bytes, best_flop = most
    for floor, memory, compute in itertools.product(moves, moves, moves if at.flop_per_s else (0.0,)):
        if floor or memory or compute:
            yield replace(
                at,
                floor=min(shortest, at.floor * math.exp(floor)),
                bytes_per_s=min(best_bytes, at.bytes_per_s * math.exp(memory)),
                flop_per_s=None
                if at.flop_per_s is None or best_flop is None
                else min(best_flop, at.flop_per_s * math.exp(compute)),
            )
