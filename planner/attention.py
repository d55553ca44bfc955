"""Closed forms of attention: the traffic of its kernels, the exact merging of partial results, the reach of windows, the loss of eviction.

What a layer keeps of a sequence (windows, sinks, heavy hitters) is counted in :mod:`~roofplan.planner.kv_cache`, its FLOP in
:mod:`~roofplan.planner.flop`; latent attention stands in :mod:`~roofplan.planner.latent_attention`.

Symbols: N tokens, d head dimension, M elements of on-chip memory.
Sources: formulas F3.3, F14.4, F15.1 to F15.3; Dao et al. 2022 (arXiv 2205.14135) and Dao 2023 (arXiv 2307.08691) for the loops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from ..errors import DomainError
from . import domain
from .flop import attention_flop
from .parallel import divided
from .quantisation_error import output_error_bound

if TYPE_CHECKING:
    from collections.abc import Sequence

# ------------------------------------------------------------------------------------------------ traffic of one head


@dataclass(frozen=True, slots=True)
class AttentionTraffic:
    """What attention of one head moves between memory and chip, and what it computes.

    Parameters
    ----------
    elements : elements read and written
    extra_elements : elements stored beyond Q, K, V and O
    flop : FLOP of scores and weighted values, without a mask
    """

    elements: int
    extra_elements: int
    flop: int

    def moved_bytes(self, bytes_per_element: float = 2.0) -> float:
        """Bytes of all moved elements.

        Raises
        ------
        DomainError : unless an element has bytes
        """
        return domain.finite("bytes", self.elements * domain.positive("bytes_per_element", bytes_per_element))

    def intensity(self, bytes_per_element: float = 2.0) -> float:
        """FLOP per moved byte.

        Raises
        ------
        DomainError : unless an element has bytes
        """
        return domain.finite("intensity", self.flop / domain.positive("bytes", self.moved_bytes(bytes_per_element)))


def standard_traffic(tokens: int, head_dim: int) -> AttentionTraffic:
    """Attention that writes out its score matrix: 4 N d + 4 N^2 elements (formula F15.1).

    Q, K, V and O are moved once; scores are written and read, and so are probabilities. Left out: a separate pass for the mask or the
    dropout, and the halves that a causal mask saves. Source: Dao et al. 2022, algorithm 0; the count is ours.

    Raises
    ------
    DomainError : when a size is not a whole number of at least 1

    >>> standard_traffic(4096, 64).moved_bytes()
    136314880.0
    """
    _check_head(tokens, head_dim)
    scores = tokens**2
    return _traffic(tokens, head_dim, 4 * tokens * head_dim + 4 * scores, scores)


def column_tiled_traffic(tokens: int, head_dim: int, sram_elements: int) -> AttentionTraffic:
    """FlashAttention with the outer loop over blocks of K and V: 2 N d + 3 N d T_c elements (formula F15.2).

        B_c = ceil(M / 4 d),  T_c = ceil(N / B_c)

    K and V are read once; for each of their blocks Q and O are read and O is written. Left out: the first block need not read O, and the
    running maxima and sums (2 N elements) are moved too. Source: Dao et al. 2022, algorithm 1; the constants are our count.

    Parameters
    ----------
    sram_elements : elements that one block's on-chip memory holds

    Raises
    ------
    DomainError : when a size is not a whole number of at least 1, or not one row each of Q, K, V and O fits the chip
    """
    _check_head(tokens, head_dim)
    domain.count("sram_elements", sram_elements, 4 * head_dim)
    blocks = divided(tokens, divided(sram_elements, 4 * head_dim))
    return _traffic(tokens, head_dim, (2 + 3 * blocks) * tokens * head_dim, 2 * tokens)


def row_tiled_traffic(tokens: int, head_dim: int, rows: int = 128) -> AttentionTraffic:
    """FlashAttention-2 with the outer loop over blocks of B_r rows of Q: 2 N d + 2 N d ceil(N / B_r) elements (formula F15.2).

    Q is read and O written once; K and V are read for each block of rows. This is before cache hits: K and V of one head usually fit the
    last-level cache, and traffic of memory is then near :func:`compulsory_traffic`. One log-sum-exp per row is stored. Source: Dao 2023,
    algorithm 1; the constants are our count.

    Raises
    ------
    DomainError : when a size is not a whole number of at least 1
    """
    _check_head(tokens, head_dim)
    blocks = divided(tokens, domain.count("rows", rows))
    return _traffic(tokens, head_dim, (2 + 2 * blocks) * tokens * head_dim, tokens)


def compulsory_traffic(tokens: int, head_dim: int) -> AttentionTraffic:
    """Least traffic of any exact attention, Q, K, V and O once: 4 N d elements (formula F15.2).

    Raises
    ------
    DomainError : when a size is not a whole number of at least 1
    """
    _check_head(tokens, head_dim)
    return _traffic(tokens, head_dim, 4 * tokens * head_dim, 0)


def tiled_traffic_order(tokens: int, head_dim: int, sram_elements: int) -> float:
    """Order of tiled over standard traffic, constants left out: (N^2 d^2 / M) / (N^2 + N d) (formula F15.2).

    Source: Dao et al. 2022, theorem 2, which holds for d <= M <= N d. Measured there, forward and backward: 4.4 against 40.3 GB.

    Raises
    ------
    DomainError : outside of d <= M <= N d, or when a size is not a whole number of at least 1
    """
    _check_head(tokens, head_dim)
    domain.count("sram_elements", sram_elements, head_dim)
    if sram_elements > tokens * head_dim:
        raise DomainError("sram_elements", got=sram_elements, wanted=f"at most {tokens * head_dim}, the elements of K")
    return tokens * head_dim**2 / sram_elements / (tokens + head_dim)


def _check_head(tokens: int, head_dim: int) -> None:
    domain.count("tokens", tokens)
    domain.count("head_dim", head_dim)


def _traffic(tokens: int, head_dim: int, elements: int, extra: int) -> AttentionTraffic:
    return AttentionTraffic(elements, extra, attention_flop(1, head_dim, 1, tokens * tokens))


# ------------------------------------------------------------------------------------------------ online softmax


@dataclass(frozen=True, slots=True)
class SoftmaxState:
    """Softmax over some of a query's keys, such that the states of disjoint keys merge exactly.

    Parameters
    ----------
    maximum : largest score m
    total : l, the sum of exp(score - m)
    output : mean of the values under these keys' weights, or empty where only the sum is wanted

    Raises
    ------
    DomainError : when a number is not finite, or the total is not above zero
    """

    maximum: float
    total: float = 1.0
    output: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        domain.finite("maximum", self.maximum)
        domain.positive("total", self.total)
        for value in domain.several("output", self.output):
            domain.finite("output", value)

    @property
    def log_sum_exp(self) -> float:
        """Logarithm of the sum of exp(score): m + ln l."""
        return self.maximum + math.log(self.total)


def softmax_state(scores: Sequence[float], values: Sequence[Sequence[float]] = ()) -> SoftmaxState:
    """Run the online softmax over scores, one by one (formula F15.3).

        m' = max(m, x),  l' = l e^(m - m') + e^(x - m')

    Masked keys are left out by the caller. Source: Milakov and Gimelshein 2018 (arXiv 1805.02867).

    Parameters
    ----------
    values : the value vector of each key, or none

    Raises
    ------
    DomainError : when there is no score, a number is not finite, or there is not one value per score, all of one width

    >>> softmax_state([1, 3, 2, 5]).total
    1.2034379904932109
    """
    given = domain.several("scores", scores)
    outputs = [domain.several("values", value) for value in domain.several("values", values)] or [()] * len(given)
    if len(outputs) != len(given):
        raise DomainError("values", got=f"{len(outputs)} of them", wanted=f"one for each of the {len(given)} scores")
    return merge_states([SoftmaxState(score, 1.0, output) for score, output in zip(given, outputs, strict=True)])


def merge_states(states: Sequence[SoftmaxState]) -> SoftmaxState:
    """Merge the states of disjoint keys, in any order and grouping (formula F15.3).

    The keys may be those of a kernel's blocks, of its splits over one sequence, or of the ranks of context parallelism.

        m = max(m_a, m_b),  l = l_a' + l_b',  o = (l_a' o_a + l_b' o_b) / l,  l_i' = l_i e^(m_i - m)

    Exact but for rounding: at most a few units in the last place per merge. Outputs are kept divided by their sum, so that nothing
    overflows. Source: Dao et al. 2022; flashinfer-ai/flashinfer, merge_state, which keeps the log-sum-exp in place of m and l.

    Raises
    ------
    DomainError : when there is no state, or their outputs differ in width
    """
    given = domain.several("states", states, SoftmaxState)
    domain.count("states", len(given))
    widths = {len(state.output) for state in given}
    if len(widths) > 1:
        raise DomainError("output", got=f"widths {sorted(widths)}", wanted="outputs of one width")
    return reduce(_merged, given)


def _merged(a: SoftmaxState, b: SoftmaxState) -> SoftmaxState:
    maximum = max(a.maximum, b.maximum)
    from_a, from_b = (state.total * math.exp(state.maximum - maximum) for state in (a, b))
    total = from_a + from_b
    share_a, share_b = from_a / total, from_b / total
    output = tuple(share_a * x + share_b * y for x, y in zip(a.output, b.output, strict=True))
    return SoftmaxState(maximum, total, output)


# ------------------------------------------------------------------------------------------------ windows and eviction


def receptive_field(windows: Sequence[int | None]) -> int | None:
    """Tokens, its own included, that can reach a position through stacked layers: 1 + sum (w - 1), so n (w - 1) + 1 (formula F3.3).

    None where a layer attends to all tokens: the field is then the whole context. It is the reach of information, not of what a model
    makes use of. "n w" of the literature counts each layer's own token again. Source: Jiang et al. 2023 (arXiv 2310.06825).

    Parameters
    ----------
    windows : the window of each layer, its own token included, None for full attention

    Raises
    ------
    DomainError : when a window is not a whole number of at least 1

    >>> receptive_field([4096] * 32)
    131041
    """
    given = domain.several("windows", windows)
    limited = [domain.count("window", window) for window in given if window is not None]
    return None if len(limited) < len(given) else 1 + sum(window - 1 for window in limited)


def evicted_output_error_bound(evicted_weight: float, value_norm: float) -> float:
    """Bound of the change of one query's output when keys are evicted that had a weight e: 2 e max||v|| (formula F14.4).

    The weights of the rest grow by 1 / (1 - e), a total variation of exactly e. It says why a plain window fails and a few sinks mend it
    (StreamingLLM, arXiv 2309.17453), and why heavy hitters are kept (H2O, arXiv 2306.14048). Left out: what the changed output does to
    later layers, and that a token evicted early may be wanted later.

    Parameters
    ----------
    value_norm : largest norm of a value vector

    Raises
    ------
    DomainError : when the weight is not in [0, 1), or the norm is negative
    """
    if domain.probability("evicted_weight", evicted_weight) == 1:
        raise DomainError("evicted_weight", got=evicted_weight, wanted="less than 1: something must be kept")
    return output_error_bound(0.0, evicted_weight, value_norm)
