"""Batching on a :class:`~roofplan.planner.step.StepModel`, which knows every operator of the step: curve, knee, budgets, cheapest token.

Symbols: B batch, t(B) step time, X(B) = B / t(B) tokens per second. Sources: formulas F7.1, F7.4, F7.6.
Left out: prefill in the same steps, host time, and sequences of unequal length (cost grows with their mean, so that it stands for them).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .domain import amounts, at_least, count, finite, not_negative, positive, probability, several
from .domain import grouping as checked_grouping
from .spending import usd_per_million_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .costs import Amount
    from .step import Grouping, StepModel

_MOST_SEQUENCES = 2**20  # of a batch: all of them are tried at once
_SAME = 1e-9  # times that differ by less are equal: a step that is compute-bound throughout costs the same per token at any batch


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A decode step of one batch: its time, tokens per second of all users and of each, and the gain of the next sequence."""

    batch: int
    step_s: float
    tokens_per_s: float
    tokens_per_s_per_user: float
    marginal_gain: float


@dataclass(frozen=True, slots=True)
class Knee:
    """The batch to run at, and the three limits of which it is the least.

    ``within_latency`` is None where no limit was asked for; ``by_gain`` is looked for within memory, and 0 where no batch gains enough.
    """

    batch: int
    binds: Literal["memory", "latency", "gain"]
    within_memory: int
    within_latency: int | None
    by_gain: int


@dataclass(frozen=True, slots=True)
class CheapestBatch:
    """The batch with the cheapest tokens, its decode step, and what a million tokens cost."""

    batch: int
    step_s: float
    usd_per_million_tokens: float


def throughput_curve(
    model: StepModel, batches: Iterable[int], context: float, grouping: Grouping = "operators"
) -> tuple[CurvePoint, ...]:
    """Throughput against latency over batches: X(B) = B / t(B) for all, 1 / t(B) for each user (formula F7.1).

    Parameters
    ----------
    batches : sequences that decode, at least one each
    context : mean tokens of a sequence with the new one

    Raises
    ------
    DomainError : for a batch or a context below one, or a grouping that there is not
    """
    at_least("context", context, 1)
    checked_grouping(grouping)

    def point(batch: int) -> CurvePoint:
        step, next_step = (
            positive("step_s", float(model.step_s(decoders, context, grouping=grouping)))
            for decoders in (batch, batch + 1)
        )
        return CurvePoint(batch, step, batch / step, 1 / step, _gain(batch, step, next_step))

    return tuple(point(count("batch", batch)) for batch in several("batches", batches))


def batch_within_tpot(
    model: StepModel, context: float, limit_s: float, most: int, grouping: Grouping = "operators"
) -> int:
    """Largest batch up to ``most`` whose decode step stays within a limit of time per output token; 0 where none does (formula F7.4).

    Found by halving, since a step never gets shorter by one more sequence.

    Raises
    ------
    DomainError : for a context below one, a negative limit, a ``most`` outside 0 to 1048576, or a grouping that there is not
    """
    at_least("context", context, 1)
    not_negative("limit_s", limit_s)
    checked_grouping(grouping)
    batches = range(1, count("most", most, 0, _MOST_SEQUENCES) + 1)
    return bisect_right(batches, limit_s, key=lambda batch: model.step_s(batch, context, grouping=grouping))


def knee(
    model: StepModel,
    context: float,
    within_memory: int,
    *,
    limit_s: float | None = None,
    least_gain: float = 0.5,
    grouping: Grouping = "operators",
) -> Knee:
    """Largest batch that memory holds, that keeps the limit of latency, and at which one more sequence still pays (formula F7.6).

        min(F7.4, F7.5, largest B with 1 - B t'(B) / t(B) >= least_gain),  t'(B) = t(B+1) - t(B)

    The default gain, one half, is the crossover B* while a dense transformer is memory-bound. The largest such B is taken and not the
    first that falls short: with few sequences each brings experts of its own, so that batching a mixture of experts pays little at first
    and more once all of them are read anyway.

    Parameters
    ----------
    context : mean tokens of a sequence with the new one
    within_memory : the batch that memory holds (F7.5, or the capacity of a memory plan)
    limit_s : most time per output token, if any
    least_gain : smallest relative gain in throughput per relative gain in batch

    Raises
    ------
    DomainError : for a context below one, a negative limit, a batch outside 0 to 1048576, a least gain outside [0, 1], or a grouping that
        there is not
    """
    probability("least_gain", least_gain)
    count("within_memory", within_memory, 0, _MOST_SEQUENCES)
    within_latency = None if limit_s is None else batch_within_tpot(model, context, limit_s, within_memory, grouping)
    batches, times = _steps(model, context, within_memory + 1, grouping)
    paying = (_gain(batches[:-1], times[:-1], times[1:]) >= least_gain).nonzero()[0]
    by_gain = int(paying[-1]) + 1 if len(paying) else 0
    limits: list[tuple[int, Literal["memory", "latency", "gain"]]] = [(within_memory, "memory"), (by_gain, "gain")]
    if within_latency is not None:
        limits.insert(1, (within_latency, "latency"))
    batch, binds = min(limits, key=lambda limit: limit[0])
    return Knee(batch, binds, within_memory, within_latency, by_gain)


def cheapest_batch(
    model: StepModel,
    context: float,
    usd_per_hour: float,
    most: int,
    *,
    tolerance: float = 0.0,
    grouping: Grouping = "operators",
) -> CheapestBatch:
    """Smallest batch up to ``most`` whose tokens cost the least, the price of t(B) / B each (formula F7.1).

    A token gets cheaper with every sequence until the whole step is compute-bound; ``most`` (what memory and latency allow) is therefore
    often the answer, and a ``tolerance`` tells how much smaller a batch may be for a little more money.

    Parameters
    ----------
    context : mean tokens of a sequence with the new one
    usd_per_hour : price of all devices of the replica
    tolerance : share above the least price that is accepted

    Raises
    ------
    DomainError : for a context below one, a ``most`` outside 1 to 1048576, a negative price or tolerance, or a grouping that there is not
    """
    not_negative("tolerance", tolerance)
    batches, times = _steps(model, context, count("most", most, 1, _MOST_SEQUENCES), grouping)
    per_token_s = times / batches
    dearest = finite("dearest token", float(per_token_s.min()) * (1 + max(tolerance, _SAME)))
    accepted = per_token_s <= dearest
    first = int(accepted.argmax())
    cost = usd_per_million_tokens(usd_per_hour, 1 / float(per_token_s[first]))
    return CheapestBatch(first + 1, float(times[first]), cost)


def _steps(model: StepModel, context: float, most: int, grouping: Grouping) -> tuple[Amount, Amount]:
    """Batches from one to ``most`` and the times of their decode steps, as arrays."""
    import numpy as np

    checked_grouping(grouping)
    batches = np.arange(1.0, most + 1)
    times = model.step_s(batches, at_least("context", context, 1), grouping=grouping)
    return batches, amounts("step_s", times, positive)


def _gain(batch: Amount, step_s: Amount, next_step_s: Amount) -> Amount:
    """Relative gain in throughput per relative gain in batch, 1 - B t'(B) / t(B), of numbers or arrays (formula F7.6)."""
    return 1 - batch * (next_step_s / step_s - 1)
