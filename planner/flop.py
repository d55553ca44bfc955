"""Counting work: closed forms of the FLOP of products and attention. One multiply-add is two FLOP; causal attention is counted once.

Sources: formulas F2.5 to F2.9, F2.11; DeepSeek FlashMLA documentation for the two forms of latent attention.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .costs import Amount


def linear_flop(block_parameters: int, head_parameters: int, tokens: int, logit_positions: int = 1) -> int:
    """FLOP of the matrices of a pass: 2 N_blk per token, and the head only where logits are needed (formula F2.5)."""
    return 2 * block_parameters * tokens + 2 * head_parameters * logit_positions


def causal_pairs(tokens: int, past: int = 0, window: int | None = None) -> int:
    """Query-key pairs of ``tokens`` new tokens after ``past`` ones, each seeing at most ``window`` keys, itself included (F2.6, F2.7).

    >>> causal_pairs(32768, window=4096)
    125831168
    """
    cap = math.inf if window is None else window
    pairs: float = pairs_up_to(past + tokens, cap) - pairs_up_to(past, cap)
    return round(pairs)


def pairs_up_to(tokens: Amount, cap: float, lesser: Callable[[Amount, Amount], Amount] = min) -> Amount:
    """Query-key pairs from the start of a sequence: m(m+1)/2 + (S-m) cap with m = min(S, cap) (formula F2.7).

    Takes numbers or arrays; ``lesser`` is then min or numpy.minimum.
    """
    inside = lesser(tokens, cap)
    whole = inside * (inside + 1) / 2
    return whole if cap == math.inf else whole + (tokens - inside) * cap


def attention_flop(num_heads: int, head_dim: int, layers: int, pairs: int) -> int:
    """FLOP of scores and weighted values: 4 heads d_h per pair and layer (formula F2.6)."""
    return 4 * num_heads * head_dim * layers * pairs


def latent_decode_flop(
    num_heads: int, kv_lora_rank: int, qk_nope_head_dim: int, qk_rope_head_dim: int, v_head_dim: int, context: int
) -> dict[str, int]:
    """FLOP of one decode token of latent attention in one layer, in its forms (formula F2.8).

    ``expanded``: keys and values of every head lie in the cache. ``absorbed``: the latents do, and ``absorb`` projects the query into and
    the output out of the latent space. ``expand``: multiplying all cached latents out again.
    """
    return {
        "expanded": 2 * num_heads * context * (qk_nope_head_dim + qk_rope_head_dim + v_head_dim),
        "absorbed": 2 * num_heads * context * (2 * kv_lora_rank + qk_rope_head_dim),
        "absorb": 2 * num_heads * kv_lora_rank * (qk_nope_head_dim + v_head_dim),
        "expand": 2 * context * kv_lora_rank * num_heads * (qk_nope_head_dim + v_head_dim),
    }


def indexed_decode_flop(
    num_heads: int, attention_width: int, index_heads: int, index_head_dim: int, top_k: int, context: int
) -> tuple[int, int]:
    """FLOP of one decode token of sparse attention in one layer: the indexer over all tokens, attention over the chosen (formula F2.9)."""
    return (
        2 * index_heads * index_head_dim * context,
        2 * num_heads * min(context, top_k) * attention_width,
    )


def recurrent_flop(state_elements: float) -> float:
    """FLOP of one token in one layer of a recurrent state: decay, rank-one update and read, about 5 an element (formula F2.11)."""
    return 5 * state_elements
