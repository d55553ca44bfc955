"""The roofline itself: ridge, attainable rate, time bounds of an operator, and closed forms of arithmetic intensity.

Rates are in FLOP/s and bytes/s, times in seconds, intensities in FLOP per byte. Peaks are dense; achieved shares go into the rates.
Sources: Williams, Waterman, Patterson 2009; formulas F1.1 to F1.8; jax-ml/scaling-book, roofline.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .domain import at_least, count, finite, not_negative, pairs, positive

if TYPE_CHECKING:
    from collections.abc import Sequence


def ridge_point(peak_flop_per_s: float, bandwidth_bytes_per_s: float) -> float:
    """Intensity at which compute and bandwidth take equally long, F/W (formula F1.1).

    Raises
    ------
    DomainError : for a rate that is not above zero

    >>> ridge_point(312e12, 2.0e12)
    156.0
    """
    peak = positive("peak_flop_per_s", peak_flop_per_s)
    return finite("ridge", peak / positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s))


def attainable_flop_per_s(intensity: float, peak_flop_per_s: float, bandwidth_bytes_per_s: float) -> float:
    """Rate under the roof, min(F, I W) in FLOP/s (formula F1.2); multiply the arguments by achieved shares for a calibrated roof.

    Raises
    ------
    DomainError : for a negative intensity, or a rate that is not above zero

    >>> attainable_flop_per_s(100, 312e12, 2.0e12)
    200000000000000.0
    """
    by_bandwidth = not_negative("intensity", intensity) * positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    return min(positive("peak_flop_per_s", peak_flop_per_s), by_bandwidth)


def smooth_max(compute_s: float, memory_s: float, p: float = math.inf) -> float:
    """Join two times: (t_c^p + t_m^p)^(1/p); p = infinity is their maximum (full overlap), p = 1 their sum (formula F1.3).

    Raises
    ------
    DomainError : for p < 1, a negative time, or a sum that no floating-point number holds

    >>> smooth_max(1.0, 1.0, 2)
    1.4142135623730951
    """
    if p != math.inf:
        at_least("p", p, 1)
    compute, memory = not_negative("compute_s", compute_s), not_negative("memory_s", memory_s)
    longest = max(compute, memory)
    if longest == 0 or p == math.inf:
        return longest
    return finite("joint time", longest * float(((compute / longest) ** p + (memory / longest) ** p) ** (1 / p)))


def gemm_intensity(
    rows: int, inputs: int, outputs: int, weight_bytes: float = 2.0, activation_bytes: float = 2.0
) -> float:
    """Intensity of [rows, inputs] x [inputs, outputs] with every operand moved once (formula F1.4).

        2 M K Nn / (M K b_a + K Nn b_w + M Nn b_a)

    Raises
    ------
    DomainError : for a size below one, or bytes that are not above zero

    >>> gemm_intensity(2048, 4096, 4096)
    1024.0
    """
    count("rows", rows)
    count("inputs", inputs)
    count("outputs", outputs)
    activations = positive("activation_bytes", activation_bytes) * (rows * inputs + rows * outputs)
    moved = activations + positive("weight_bytes", weight_bytes) * (inputs * outputs)
    return finite("intensity", 2 * rows * inputs * outputs / positive("moved bytes", moved))


def rows_to_be_compute_bound(
    ridge: float, inputs: int, outputs: int, weight_bytes: float = 2.0, activation_bytes: float = 2.0
) -> float | None:
    """Rows from which a matrix product is compute-bound: r K N b_w / (2 K N - r b_a (K + N)) (formula F1.5).

    Returns None where the traffic of activations alone keeps it memory-bound.

    Raises
    ------
    DomainError : for a size below one, or a ridge or bytes that are not above zero
    """
    weights = count("inputs", inputs) * count("outputs", outputs)
    per_row = positive("ridge", ridge) * positive("activation_bytes", activation_bytes) * (inputs + outputs)
    margin = 2 * weights - per_row
    bytes_of_weights = positive("weight_bytes", weight_bytes) * weights
    return finite("rows", ridge * bytes_of_weights / margin) if margin > 0 else None


def decode_attention_intensity(
    queries_per_kv_head: int, context: int, head_dim: int, kv_bytes: float = 2.0, activation_bytes: float = 2.0
) -> float:
    """Intensity of decode attention on one KV head, over its cache, query and output; any batch gives the same (formula F1.6).

        4 g L d_h / (2 L d_h b_kv + 2 g d_h b_a)

    Raises
    ------
    DomainError : for a size below one, or bytes that are not above zero
    """
    queries = count("queries_per_kv_head", queries_per_kv_head)
    flop = 4 * queries * count("context", context) * count("head_dim", head_dim)
    cache = positive("kv_bytes", kv_bytes) * (2 * context * head_dim)
    moved = cache + positive("activation_bytes", activation_bytes) * (2 * queries * head_dim)
    return finite("intensity", flop / positive("moved bytes", moved))


def prefill_attention_intensity(queries_per_kv_head: int, tokens: int, *, causal: bool = True) -> float:
    """Intensity of fused prefill attention with Q, K, V and O moved once, 2 bytes each (formula F1.6).

    Causal (S + 1) g / (2 (g + 1)); without a mask S g / (g + 1).

    Raises
    ------
    DomainError : for a size below one

    >>> prefill_attention_intensity(4, 2048)
    819.6
    """
    queries = count("queries_per_kv_head", queries_per_kv_head)
    pairs = count("tokens", tokens) + 1 if causal else 2 * count("tokens", tokens)
    return pairs * queries / (2 * (queries + 1))


def decode_intensity(
    parameters: float, batch: float, weight_bytes: float, context: float, cache_bytes_per_token: float
) -> float:
    """Intensity of a whole decode step in FLOP/B, 2 N B / (W + B L c) (formula F1.7); its limit for an endless batch is 2 N / (L c).

    Left out: FLOP of attention, and bytes of activations.

    Raises
    ------
    DomainError : for a negative number, or weights that are not above zero

    >>> decode_intensity(7e9, 1, 14e9, 0, 524288)
    1.0
    """
    sequences = not_negative("batch", batch)
    cache = sequences * not_negative("context", context) * not_negative("cache_bytes_per_token", cache_bytes_per_token)
    moved = finite("moved bytes", positive("weight_bytes", weight_bytes) + cache)
    return finite("intensity", 2 * not_negative("parameters", parameters) * sequences / moved)


def slowest_level_flop_per_s(peak_flop_per_s: float, levels: Sequence[tuple[float, float]]) -> float:
    """Rate under a hierarchical roof in FLOP/s: min(F, min_k I_k W_k) (formula F1.8).

    Parameters
    ----------
    levels : of each memory or link, the intensity against its bytes, and its bandwidth

    Raises
    ------
    DomainError : for a negative intensity, or a rate that is not above zero
    """
    rates = [positive("peak_flop_per_s", peak_flop_per_s)]
    for intensity, bandwidth in pairs("levels", levels):
        rates.append(attainable_flop_per_s(intensity, peak_flop_per_s, bandwidth))
    return min(rates)
