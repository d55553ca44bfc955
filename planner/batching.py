"""Batching for one model on one device (or one even shard): throughput, crossover, and what limits the batch.

The closed forms follow the convention of the textbook: one roof over the whole step, W bytes of weights and 2 N FLOP per token. Give
stored weight bytes and all parameters for the classic figures, or those read and multiplied (formulas F4.3, F2.5) for sharper ones.
The second half asks the same of a :class:`~roofplan.planner.step.StepModel`, which knows every operator of the step.

Symbols: B batch, W weight bytes, N parameters per token, L context, c cache bytes per token, F FLOP per second, W_bw bytes per second,
r = F / W_bw ridge in FLOP per byte, t(B) step time, X(B) = B / t(B) tokens per second.
Sources: formulas F7.1 to F7.6; jax-ml/scaling-book, inference.md.
Left out: prefill in the same steps, host time, and sequences of unequal length (cost grows with their mean, so that it stands for them).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .domain import at_least, count, not_negative, positive, probability
from .spending import usd_per_million_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .costs import Amount
    from .step import Grouping, StepModel

_SAME = 1e-9  # times that differ by less are equal: a step that is compute-bound throughout costs the same per token at any batch

# ------------------------------------------------------------------------------------------------ closed forms


def textbook_step_s(
    batch: float,
    weight_bytes: float,
    parameters: float,
    cache_bytes_per_sequence: float,
    peak_flop_per_s: float,
    bandwidth_bytes_per_s: float,
) -> float:
    """Time of a decode step: max(2 N B / F, (W + B L c) / W_bw) (formula F7.1).

    Raises
    ------
    DomainError : for a negative size, or a rate that is not above zero
    """
    not_negative("batch", batch)
    not_negative("parameters", parameters)
    _check_bytes(weight_bytes, cache_bytes_per_sequence)
    memory = (weight_bytes + batch * cache_bytes_per_sequence) / positive(
        "bandwidth_bytes_per_s", bandwidth_bytes_per_s
    )
    return max(2 * parameters * batch / positive("peak_flop_per_s", peak_flop_per_s), memory)


def throughput_limit(bandwidth_bytes_per_s: float, cache_bytes_per_sequence: float) -> float:
    """Tokens per second of an endless batch, W_bw / (L c) (formula F7.1).

    Raises
    ------
    DomainError : for a rate or a cache that is not above zero
    """
    positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    return bandwidth_bytes_per_s / positive("cache_bytes_per_sequence", cache_bytes_per_sequence)


def crossover_batch(weight_bytes: float, cache_bytes_per_sequence: float) -> float | None:
    """Batch at which cache bytes equal weight bytes, B* = W / (L c): throughput is then half its limit (formula F7.2).

    None for an empty cache, which never gets there.

    Raises
    ------
    DomainError : for negative bytes
    """
    _check_bytes(weight_bytes, cache_bytes_per_sequence)
    return weight_bytes / cache_bytes_per_sequence if cache_bytes_per_sequence else None


def critical_context(parameters: float, ridge: float, cache_bytes_per_token: float) -> float | None:
    """Context beyond which decode is never compute-bound, 2 N / (r c) (formula F7.3); None for a cache that does not grow.

    Raises
    ------
    DomainError : for negative parameters or bytes, or a ridge that is not above zero
    """
    not_negative("parameters", parameters)
    positive("ridge", ridge)
    not_negative("cache_bytes_per_token", cache_bytes_per_token)
    return 2 * parameters / (ridge * cache_bytes_per_token) if cache_bytes_per_token else None


def compute_bound_batch(
    weight_bytes: float, parameters: float, ridge: float, cache_bytes_per_sequence: float
) -> float | None:
    """Batch from which a decode step is compute-bound, W / (2 N / r - L c); None where it never is (formula F7.3).

    Raises
    ------
    DomainError : for negative sizes, or a ridge that is not above zero
    """
    _check_bytes(weight_bytes, cache_bytes_per_sequence)
    margin = 2 * not_negative("parameters", parameters) / positive("ridge", ridge) - cache_bytes_per_sequence
    return weight_bytes / margin if margin > 0 else None


def batch_within_latency(
    limit_s: float,
    weight_bytes: float,
    parameters: float,
    cache_bytes_per_sequence: float,
    peak_flop_per_s: float,
    bandwidth_bytes_per_s: float,
) -> int:
    """Largest batch whose step stays within a limit T; 0 where none does (formula F7.4).

        floor(min((T W_bw - W) / (L c), T F / (2 N)))

    Achieved shares e_m, e_c go into the two rates.

    Raises
    ------
    DomainError : for a negative limit or size, or parameters or a rate that are not above zero
    """
    _check_bytes(weight_bytes, cache_bytes_per_sequence)
    moved = not_negative("limit_s", limit_s) * positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    if moved < weight_bytes:
        return 0
    by_compute = limit_s * positive("peak_flop_per_s", peak_flop_per_s) / (2 * positive("parameters", parameters))
    by_memory = (moved - weight_bytes) / cache_bytes_per_sequence if cache_bytes_per_sequence else by_compute
    return math.floor(min(by_memory, by_compute))


def batch_within_memory(
    budget_bytes: float, weight_bytes: float, other_bytes: float, cache_bytes_per_sequence: float
) -> int:
    """Largest batch that a budget holds, floor((u C - W - other) / (L c)); 0 where none fits (formula F7.5).

    Raises
    ------
    DomainError : for negative bytes, or when a sequence takes none
    """
    not_negative("budget_bytes", budget_bytes)
    not_negative("weight_bytes", weight_bytes)
    not_negative("other_bytes", other_bytes)
    positive("cache_bytes_per_sequence", cache_bytes_per_sequence)
    return max(0, math.floor((budget_bytes - weight_bytes - other_bytes) / cache_bytes_per_sequence))


def marginal_gain(batch: float, weight_bytes: float, cache_bytes_per_sequence: float) -> float:
    """Relative gain in throughput per relative gain in batch while memory-bound, W / (W + B L c) (formula F7.6); 0.5 at B*.

    Raises
    ------
    DomainError : for a negative batch or cache, or weights that are not above zero
    """
    not_negative("batch", batch)
    positive("weight_bytes", weight_bytes)
    not_negative("cache_bytes_per_sequence", cache_bytes_per_sequence)
    return weight_bytes / (weight_bytes + batch * cache_bytes_per_sequence)


def _check_bytes(weight_bytes: float, cache_bytes_per_sequence: float) -> None:
    not_negative("weight_bytes", weight_bytes)
    not_negative("cache_bytes_per_sequence", cache_bytes_per_sequence)


# ------------------------------------------------------------------------------------------------ on a step model


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
    DomainError : for a batch or a context below one
    """
    at_least("context", context, 1)
    points = []
    for batch in batches:
        step, next_step = (
            float(model.step_s(decoders, context, grouping=grouping)) for decoders in (count("batch", batch), batch + 1)
        )
        points.append(CurvePoint(batch, step, batch / step, 1 / step, _gain(batch, step, next_step)))
    return tuple(points)


def batch_within_tpot(
    model: StepModel, context: float, limit_s: float, most: int, grouping: Grouping = "operators"
) -> int:
    """Largest batch up to ``most`` whose decode step stays within a limit of time per output token; 0 where none does (formula F7.4).

    Found by halving, since a step never gets shorter by one more sequence.

    Raises
    ------
    DomainError : for a context below one, a negative limit, or a ``most`` below zero
    """
    at_least("context", context, 1)
    not_negative("limit_s", limit_s)
    batches = range(1, count("most", most, 0) + 1)
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
    DomainError : for a context below one, a negative batch or limit, or a least gain outside [0, 1]
    """
    probability("least_gain", least_gain)
    count("within_memory", within_memory, 0)
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
    DomainError : for a context or a ``most`` below one, or a negative price or tolerance
    """
    not_negative("tolerance", tolerance)
    batches, times = _steps(model, context, count("most", most), grouping)
    per_token_s = times / batches
    accepted = per_token_s <= per_token_s.min() * (1 + max(tolerance, _SAME))
    first = int(accepted.argmax())
    cost = usd_per_million_tokens(usd_per_hour, 1 / float(per_token_s[first]))
    return CheapestBatch(first + 1, float(times[first]), cost)


def _steps(model: StepModel, context: float, most: int, grouping: Grouping) -> tuple[Amount, Amount]:
    """Batches from one to ``most`` and the times of their decode steps, as arrays."""
    import numpy as np

    batches = np.arange(1.0, most + 1)
    return batches, model.step_s(batches, at_least("context", context, 1), grouping=grouping)


def _gain(batch: Amount, step_s: Amount, next_step_s: Amount) -> Amount:
    """Relative gain in throughput per relative gain in batch, 1 - B t'(B) / t(B), of numbers or arrays (formula F7.6)."""
    return 1 - batch * (next_step_s / step_s - 1)
