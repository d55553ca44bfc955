"""Closed forms of batching for one model on one device (or one even shard): throughput, crossover, and what limits the batch.

The convention is that of the textbook: one roof over the whole step, W bytes of weights and 2 N FLOP per token. Give stored weight
bytes and all parameters for the classic figures, or those read and multiplied (formulas F4.3, F2.5) for sharper ones. The same on a
:class:`~roofplan.planner.step.StepModel` is in :mod:`roofplan.planner.batch_curve`.

Symbols: B batch, W weight bytes, N parameters per token, L context, c cache bytes per token, F FLOP per second, W_bw bytes per second,
r = F / W_bw ridge in FLOP per byte.
Sources: formulas F7.1 to F7.6; jax-ml/scaling-book, inference.md.
"""

from __future__ import annotations

import math

from .domain import not_negative, positive


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
