"""Closed forms of batching for one model on one device (or one even shard): throughput, crossover, and what limits the batch.

The convention is that of the textbook: one roof over the whole step, W bytes of weights and 2 N FLOP per token. Give stored weight
bytes and all parameters for the classic figures, or those read and multiplied (formulas F4.3, F2.5) for sharper ones.

Symbols: B batch, W weight bytes, N parameters per token, L context, c cache bytes per token, r ridge in FLOP per byte.
Sources: formulas F7.1 to F7.6; jax-ml/scaling-book, inference.md.
"""

from __future__ import annotations

import math

from ..errors import DomainError


def textbook_step_s(
    batch: float,
    weight_bytes: float,
    parameters: float,
    cache_bytes_per_sequence: float,
    peak_flop_per_s: float,
    bandwidth_bytes_per_s: float,
) -> float:
    """Time of a decode step: max(2 N B / F, (W + B L c) / W_bw) (formula F7.1)."""
    memory = (weight_bytes + batch * cache_bytes_per_sequence) / bandwidth_bytes_per_s
    return max(2 * parameters * batch / peak_flop_per_s, memory)


def throughput_limit(bandwidth_bytes_per_s: float, cache_bytes_per_sequence: float) -> float:
    """Tokens per second of an endless batch, W_bw / (L c) (formula F7.1)."""
    return bandwidth_bytes_per_s / cache_bytes_per_sequence


def crossover_batch(weight_bytes: float, cache_bytes_per_sequence: float) -> float:
    """Batch at which cache bytes equal weight bytes, B* = W / (L c): throughput is then half its limit (formula F7.2).

    Infinite for an empty cache.
    """
    return weight_bytes / cache_bytes_per_sequence if cache_bytes_per_sequence else math.inf


def critical_context(parameters: float, ridge: float, cache_bytes_per_token: float) -> float:
    """Context beyond which decode is never compute-bound, 2 N / (r c) (formula F7.3); infinite for a cache that does not grow."""
    return 2 * parameters / (ridge * cache_bytes_per_token) if cache_bytes_per_token else math.inf


def compute_bound_batch(
    weight_bytes: float, parameters: float, ridge: float, cache_bytes_per_sequence: float
) -> float | None:
    """Batch from which a decode step is compute-bound, W / (2 N / r - L c); None where it never is (formula F7.3)."""
    margin = 2 * parameters / ridge - cache_bytes_per_sequence
    return weight_bytes / margin if margin > 0 else None


def batch_within_latency(
    limit_s: float,
    weight_bytes: float,
    parameters: float,
    cache_bytes_per_sequence: float,
    peak_flop_per_s: float,
    bandwidth_bytes_per_s: float,
) -> int:
    """Largest batch whose step stays within a limit (formula F7.4); achieved shares go into the two rates. 0 where none does."""
    by_memory = (limit_s * bandwidth_bytes_per_s - weight_bytes) / cache_bytes_per_sequence
    by_compute = limit_s * peak_flop_per_s / (2 * parameters)
    return max(0, math.floor(min(by_memory, by_compute)))


def batch_within_memory(
    budget_bytes: float, weight_bytes: float, other_bytes: float, cache_bytes_per_sequence: float
) -> int:
    """Largest batch that a budget holds, floor((u C - W - other) / (L c)) (formula F7.5).

    Raises
    ------
    DomainError : when a sequence takes no bytes
    """
    if cache_bytes_per_sequence <= 0:
        raise DomainError("cache_bytes_per_sequence", got=cache_bytes_per_sequence, wanted="more than zero")
    return max(0, math.floor((budget_bytes - weight_bytes - other_bytes) / cache_bytes_per_sequence))


def marginal_gain(batch: float, weight_bytes: float, cache_bytes_per_sequence: float) -> float:
    """Relative gain in throughput per relative gain in batch while memory-bound, W / (W + B L c) (formula F7.6); 0.5 at B*."""
    return weight_bytes / (weight_bytes + batch * cache_bytes_per_sequence)
