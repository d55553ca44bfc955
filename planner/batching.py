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

from .domain import finite, not_negative, positive


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
    DomainError : for a negative size, a rate that is not above zero, or a time that no floating-point number holds
    """
    sequences = not_negative("batch", batch)
    weights, cache = _checked_bytes(weight_bytes, cache_bytes_per_sequence)
    flop = 2 * not_negative("parameters", parameters) * sequences
    memory = (weights + sequences * cache) / positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    compute = flop / positive("peak_flop_per_s", peak_flop_per_s)
    return max(not_negative("compute_s", compute), not_negative("memory_s", memory))


def throughput_limit(bandwidth_bytes_per_s: float, cache_bytes_per_sequence: float) -> float:
    """Tokens per second of an endless batch, W_bw / (L c) (formula F7.1).

    Raises
    ------
    DomainError : for a rate or a cache that is not above zero, or a quotient that no floating-point number holds
    """
    rate = positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    return finite("tokens_per_s", rate / positive("cache_bytes_per_sequence", cache_bytes_per_sequence))


def crossover_batch(weight_bytes: float, cache_bytes_per_sequence: float) -> float | None:
    """Batch at which cache bytes equal weight bytes, B* = W / (L c): throughput is then half its limit (formula F7.2).

    None for an empty cache, which never gets there.

    Raises
    ------
    DomainError : for negative bytes, or a batch that no floating-point number holds
    """
    weights, cache = _checked_bytes(weight_bytes, cache_bytes_per_sequence)
    return finite("batch", weights / cache) if cache else None


def critical_context(parameters: float, ridge: float, cache_bytes_per_token: float) -> float | None:
    """Context beyond which decode is never compute-bound, 2 N / (r c) (formula F7.3); None for a cache that does not grow.

    Raises
    ------
    DomainError : for negative parameters or bytes, a ridge that is not above zero, or a context that no floating-point number holds
    """
    flop = 2 * not_negative("parameters", parameters)
    per_token = positive("ridge", ridge) * not_negative("cache_bytes_per_token", cache_bytes_per_token)
    return finite("context", flop / positive("ridge x bytes", per_token)) if cache_bytes_per_token else None


def compute_bound_batch(
    weight_bytes: float, parameters: float, ridge: float, cache_bytes_per_sequence: float
) -> float | None:
    """Batch from which a decode step is compute-bound, W / (2 N / r - L c); None where it never is (formula F7.3).

    Raises
    ------
    DomainError : for negative sizes, a ridge that is not above zero, or a batch that no floating-point number holds
    """
    weights, cache = _checked_bytes(weight_bytes, cache_bytes_per_sequence)
    margin = finite("2 N / r", 2 * not_negative("parameters", parameters) / positive("ridge", ridge)) - cache
    return finite("batch", weights / margin) if margin > 0 else None


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
    DomainError : for a negative limit or size, parameters or a rate that are not above zero, or a batch that no floating-point number holds
    """
    weights, cache = _checked_bytes(weight_bytes, cache_bytes_per_sequence)
    limit = not_negative("limit_s", limit_s)
    moved = limit * positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    by_compute = limit * positive("peak_flop_per_s", peak_flop_per_s) / (2 * positive("parameters", parameters))
    if moved < weights:
        return 0
    by_memory = (moved - weights) / cache if cache else by_compute
    return math.floor(finite("batch", min(by_memory, by_compute)))


def batch_within_memory(
    budget_bytes: float, weight_bytes: float, other_bytes: float, cache_bytes_per_sequence: float
) -> int:
    """Largest batch that a budget holds, floor((u C - W - other) / (L c)); 0 where none fits (formula F7.5).

    Raises
    ------
    DomainError : for negative bytes, when a sequence takes none, or for a batch that no floating-point number holds
    """
    weights, cache = _checked_bytes(weight_bytes, positive("cache_bytes_per_sequence", cache_bytes_per_sequence))
    left = not_negative("budget_bytes", budget_bytes) - weights - not_negative("other_bytes", other_bytes)
    return math.floor(finite("batch", left / cache)) if left > 0 else 0


def marginal_gain(batch: float, weight_bytes: float, cache_bytes_per_sequence: float) -> float:
    """Relative gain in throughput per relative gain in batch while memory-bound, W / (W + B L c) (formula F7.6); 0.5 at B*.

    Raises
    ------
    DomainError : for a negative batch or cache, weights that are not above zero, or bytes that no floating-point number holds
    """
    weights, cache = _checked_bytes(positive("weight_bytes", weight_bytes), cache_bytes_per_sequence)
    return weights / finite("bytes of a step", weights + not_negative("batch", batch) * cache)


def _checked_bytes(weight_bytes: float, cache_bytes_per_sequence: float) -> tuple[float, float]:
    return (
        not_negative("weight_bytes", weight_bytes),
        not_negative("cache_bytes_per_sequence", cache_bytes_per_sequence),
    )
