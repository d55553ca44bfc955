"""The roofline itself: ridge, attainable rate, time bounds of an operator, and closed forms of arithmetic intensity.

Rates are in FLOP/s and bytes/s, times in seconds, intensities in FLOP per byte. Peaks are dense.
Sources: Williams, Waterman, Patterson 2009; formulas F1.1 to F1.8; jax-ml/scaling-book, roofline.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Sequence


def ridge_point(peak_flop_per_s: float, bandwidth_bytes_per_s: float) -> float:
    """Intensity at which compute and bandwidth take equally long, F/W (formula F1.1).

    >>> ridge_point(312e12, 2.0e12)
    156.0
    """
    return peak_flop_per_s / bandwidth_bytes_per_s


def attainable_flop_per_s(intensity: float, peak_flop_per_s: float, bandwidth_bytes_per_s: float) -> float:
    """Rate under the roof, min(F, I W) (formula F1.2); multiply the arguments by achieved shares for a calibrated roof."""
    return min(peak_flop_per_s, intensity * bandwidth_bytes_per_s)


def smooth_max(compute_s: float, memory_s: float, p: float = math.inf) -> float:
    """Join two times: (t_c^p + t_m^p)^(1/p); p = infinity is their maximum (full overlap), p = 1 their sum (formula F1.3).

    Raises
    ------
    DomainError : for p < 1 or a negative time

    >>> smooth_max(1.0, 1.0, 2)
    1.4142135623730951
    """
    if not p >= 1 or compute_s < 0 or memory_s < 0:
        raise DomainError("smooth_max", got=f"p {p}, times {compute_s} and {memory_s}", wanted="p >= 1 and times >= 0")
    longest = max(compute_s, memory_s)
    if longest == 0 or p == math.inf:
        return longest
    return longest * float(((compute_s / longest) ** p + (memory_s / longest) ** p) ** (1 / p))


def gemm_intensity(
    rows: int, inputs: int, outputs: int, weight_bytes: float = 2.0, activation_bytes: float = 2.0
) -> float:
    """Intensity of [rows, inputs] x [inputs, outputs] with every operand moved once (formula F1.4).

    >>> gemm_intensity(2048, 4096, 4096)
    1024.0
    """
    moved = rows * inputs * activation_bytes + inputs * outputs * weight_bytes + rows * outputs * activation_bytes
    return 2 * rows * inputs * outputs / moved


def rows_to_be_compute_bound(
    ridge: float, inputs: int, outputs: int, weight_bytes: float = 2.0, activation_bytes: float = 2.0
) -> float | None:
    """Rows from which a matrix product is compute-bound: r K N b_w / (2 K N - r b_a (K + N)) (formula F1.5).

    Returns None where the traffic of activations alone keeps it memory-bound.
    """
    margin = 2 * inputs * outputs - ridge * activation_bytes * (inputs + outputs)
    return ridge * inputs * outputs * weight_bytes / margin if margin > 0 else None


def decode_attention_intensity(
    queries_per_kv_head: int, context: int, head_dim: int, kv_bytes: float = 2.0, activation_bytes: float = 2.0
) -> float:
    """Intensity of decode attention on one KV head: 4 g L d over its cache, query and output (formula F1.6); any batch gives the same."""
    flop = 4 * queries_per_kv_head * context * head_dim
    return flop / (2 * context * head_dim * kv_bytes + 2 * queries_per_kv_head * head_dim * activation_bytes)


def prefill_attention_intensity(queries_per_kv_head: int, tokens: int, *, causal: bool = True) -> float:
    """Intensity of fused prefill attention with Q, K, V and O moved once, 2 bytes each (formula F1.6).

    >>> prefill_attention_intensity(4, 2048)
    819.6
    """
    pairs = tokens + 1 if causal else 2 * tokens
    return pairs * queries_per_kv_head / (2 * (queries_per_kv_head + 1))


def decode_intensity(
    parameters: float, batch: float, weight_bytes: float, context: float, cache_bytes_per_token: float
) -> float:
    """Intensity of a whole decode step, 2 N B / (W + B L c) (formula F1.7); its limit for an endless batch is 2 N / (L c)."""
    return 2 * parameters * batch / (weight_bytes + batch * context * cache_bytes_per_token)


def slowest_level_flop_per_s(peak_flop_per_s: float, levels: Sequence[tuple[float, float]]) -> float:
    """Rate under a hierarchical roof: min(F, min_k I_k W_k) over levels (intensity, bandwidth) (formula F1.8)."""
    return min([peak_flop_per_s, *(intensity * bandwidth for intensity, bandwidth in levels)])
