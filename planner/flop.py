"""Counting work: closed forms of the FLOP of products and attention. One multiply-add is two FLOP; causal attention is counted once.

Sources: formulas F2.5 to F2.9, F2.11; DeepSeek FlashMLA documentation for the two forms of latent attention. Left out: norms, rotations and
softmax, whose time is that of their bytes; and what kernels compute of a tile beyond the mask.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .domain import MOST, count, finite, not_negative

if TYPE_CHECKING:
    from collections.abc import Callable

    from .costs import Amount

_MOST_WORK = MOST**2  # of tokens of many passes, and of pairs of tokens


def linear_flop(block_parameters: int, head_parameters: int, tokens: int, logit_positions: int = 1) -> int:
    """FLOP of the matrices of a pass: 2 N_blk per token, and 2 d V of the head only where logits are needed (formula F2.5).

    Parameters
    ----------
    block_parameters, head_parameters : N_blk of all blocks, and d V of the head, without norms and the input table
    tokens, logit_positions : of the pass, and those of them whose logits are wanted: the last one in a prefill

    Raises
    ------
    DomainError : for a negative or broken number

    >>> linear_flop(6476005376, 4096 * 32000, 2048)
    26525980164096
    """
    blocks = count("block_parameters", block_parameters, 0) * count("tokens", tokens, 0, _MOST_WORK)
    head = count("head_parameters", head_parameters, 0) * count("logit_positions", logit_positions, 0)
    return 2 * blocks + 2 * head


def causal_pairs(tokens: int, past: int = 0, window: int | None = None) -> int:
    """Query-key pairs of n new tokens after P ones: n P + n (n + 1) / 2, each query sees at most ``window`` keys (formulas F2.6, F2.7).

    A query sees itself, so that a window of one is itself alone. The same for arrays and fractions is :func:`pairs_up_to`.

    Raises
    ------
    DomainError : for a negative or broken number of tokens, or a window without a token

    >>> causal_pairs(32768, window=4096)
    125831168
    """
    begin = count("past", past, 0)
    end = begin + count("tokens", tokens, 0)
    cap = end if window is None else count("window", window)

    def up_to(length: int) -> int:
        inside = min(length, cap)
        return inside * (inside + 1) // 2 + (length - inside) * cap

    return up_to(end) - up_to(begin)


def pairs_up_to(tokens: Amount, cap: float, lesser: Callable[[Amount, Amount], Amount] = min) -> Amount:
    """Query-key pairs from the start of a sequence: m(m+1)/2 + (S-m) cap with m = min(S, cap) (formula F2.7).

    Takes numbers or arrays; ``lesser`` is then min or numpy.minimum. Every operator of every step calls it: what it gets was checked, and
    an endless ``cap`` is none.
    """
    inside = lesser(tokens, cap)
    whole = inside * (inside + 1) / 2
    return whole if cap == math.inf else whole + (tokens - inside) * cap


def attention_flop(num_heads: int, head_dim: int, layers: int, pairs: int) -> int:
    """FLOP of scores and weighted values: 4 n_h d_h per pair and layer (formula F2.6).

    Parameters
    ----------
    num_heads, head_dim, layers : query heads, and the width of a key and a value
    pairs : of query and key, see :func:`causal_pairs`

    Raises
    ------
    DomainError : for a negative or broken number

    >>> attention_flop(32, 128, 32, causal_pairs(2048))
    1100048498688
    """
    per_pair = count("num_heads", num_heads) * count("head_dim", head_dim) * count("layers", layers, 0)
    return 4 * per_pair * count("pairs", pairs, 0, _MOST_WORK**2)


def latent_decode_flop(
    num_heads: int, kv_lora_rank: int, qk_nope_head_dim: int, qk_rope_head_dim: int, v_head_dim: int, context: int
) -> dict[str, int]:
    """FLOP of one decode token of latent attention in one layer, in its forms (formula F2.8).

    ``expanded``, 2 n_h L (d_n + d_r + d_v): keys and values of every head lie in the cache. ``absorbed``, 2 n_h L (2 kv_r + d_r): the
    latents do, and ``absorb``, 2 n_h kv_r (d_n + d_v), projects the query into and the output out of the latent space. ``expand``, L times
    that: multiplying all cached latents out again.

    Raises
    ------
    DomainError : for a negative or broken number

    Source: deepseek-ai/DeepSeek-V3, inference/model.py; deepseek-ai/FlashMLA, docs.
    """
    heads, rank = count("num_heads", num_heads), count("kv_lora_rank", kv_lora_rank)
    plain, rotary = count("qk_nope_head_dim", qk_nope_head_dim, 0), count("qk_rope_head_dim", qk_rope_head_dim, 0)
    value, length = count("v_head_dim", v_head_dim), count("context", context, 0, _MOST_WORK)
    absorb = 2 * heads * rank * (plain + value)
    return {
        "expanded": 2 * heads * length * (plain + rotary + value),
        "absorbed": 2 * heads * length * (2 * rank + rotary),
        "absorb": absorb,
        "expand": length * absorb,
    }


def indexed_decode_flop(
    num_heads: int, attention_width: int, index_heads: int, index_head_dim: int, top_k: int, context: int
) -> tuple[int, int]:
    """FLOP of one decode token of sparse attention in one layer (formula F2.9).

    The indexer looks at all tokens, 2 n_I d_I L; attention at the chosen ones, 2 n_h min(L, K_top) width, with a width of 2 kv_r + d_r for
    latents and 2 d_h for heads.

    Raises
    ------
    DomainError : for a negative or broken number
    """
    seen = count("context", context, 0)
    index = 2 * count("index_heads", index_heads) * count("index_head_dim", index_head_dim) * seen
    chosen = min(seen, count("top_k", top_k))
    return index, 2 * count("num_heads", num_heads) * chosen * count("attention_width", attention_width)


def recurrent_flop(state_elements: float) -> float:
    """FLOP of one token in one layer of a recurrent state: decay, rank-one update and read, about 5 an element (formula F2.11).

    An element of a state of heads n_h and widths d_k, d_v is one of n_h d_k d_v: decay 1, update 2, read 2.

    Raises
    ------
    DomainError : for a negative number of elements

    >>> recurrent_flop(32 * 128 * 128)
    2621440
    """
    return finite("flop", 5 * not_negative("state_elements", state_elements))
