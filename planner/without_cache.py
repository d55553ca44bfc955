"""What a KV cache saves: tokens that pass through the model, FLOP and time of a generation with it and without it.

Without a cache every token of the output is the last of a pass over all tokens before it; with one the prompt passes once, and each new
token alone. P prompt, G output tokens; the first output token comes from the pass over the prompt.

Sources: formula F17. FLOP and time are reported apart: the ratio of times is smaller, because cached decode is memory-bound.
Left out: batching (one sequence), the memory that the cache takes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DomainError
from .batching import textbook_step_s
from .domain import count, finite, positive
from .domain import grouping as checked_grouping
from .flop import attention_flop, causal_pairs, linear_flop

if TYPE_CHECKING:
    from .step import Grouping, StepModel


_MOST_OUTPUT = 2**20  # tokens that a step model is asked about one by one


@dataclass(frozen=True, slots=True)
class CacheSaving:
    """One quantity of a generation, in the unit of the function that gives it."""

    without_cache: float
    with_cache: float

    @property
    def ratio(self) -> float:
        """How many times as much it is without a cache."""
        return self.without_cache / self.with_cache


def token_passes(prompt: int, output: int) -> CacheSaving:
    """Tokens that pass through the model: G P + G (G - 1) / 2 without a cache, P + G - 1 with it (formula F17).

    The ratio grows towards G with the prompt. An empty prompt is allowed, for the shorthand N L^2 over 2 N L.

    Raises
    ------
    DomainError : for a negative prompt, no output, or no prompt and a single token, which passes nothing

    >>> token_passes(1, 512).ratio
    256.5
    """
    count("prompt", prompt, 0)
    count("output", output)
    if prompt + output == 1:
        raise DomainError("output", got=output, wanted="at least 2 tokens where there is no prompt")
    return CacheSaving(*_passes(prompt, output))


def generation_flop(
    prompt: int,
    output: int,
    *,
    block_parameters: int,
    head_parameters: int,
    num_heads: int,
    head_dim: int,
    layers: int,
    window: int | None = None,
) -> CacheSaving:
    """FLOP of a generation, attention and output head counted; the head once per output token (formula F17).

    Products by formula F2.5 over the passes of :func:`token_passes`, causal attention by F2.6 over the pairs of every pass.
    A full pass without a cache is taken to need logits of its last token only.

    Parameters
    ----------
    block_parameters, head_parameters : multiplied per token in the blocks, and in the output head
    num_heads, head_dim, layers : of the query heads
    window : keys that a token attends to at most, itself included

    Raises
    ------
    DomainError : for a number below one
    """
    count("prompt", prompt)
    count("output", output)
    count("block_parameters", block_parameters)
    count("head_parameters", head_parameters)
    count("layers", layers)
    tokens_without, tokens_with = _passes(prompt, output)
    pairs_with = causal_pairs(count("prompt and output", tokens_with), window=window)
    pairs_without = _pairs_of_passes(tokens_with, window) - _pairs_of_passes(prompt - 1, window)

    def flop(tokens: int, pairs: int) -> int:
        products = linear_flop(block_parameters, head_parameters, tokens, logit_positions=output)
        return products + attention_flop(num_heads, head_dim, layers, pairs)

    return CacheSaving(flop(tokens_without, pairs_without), flop(tokens_with, pairs_with))


def textbook_generation_s(
    prompt: int,
    output: int,
    weight_bytes: float,
    parameters: float,
    peak_flop_per_s: float,
    bandwidth_bytes_per_s: float,
) -> CacheSaving:
    """Time of a generation where a pass over n tokens takes max(2 N n / F, W / W_bw) (formula F17).

    That is the step of formula F7.1; attention and the reading of the cache are left out.

    Raises
    ------
    DomainError : for a prompt or an output below one, negative parameters, weights or a rate that are not above zero, or a time that no
        floating-point number holds

    >>> round(textbook_generation_s(1, 512, 14e9, 7e9, 312e12, 2e12).ratio, 6)
    1.795598
    """
    count("prompt", prompt)
    count("output", output)
    positive("weight_bytes", weight_bytes)

    def pass_s(tokens: int) -> float:
        return textbook_step_s(tokens, weight_bytes, parameters, 0, peak_flop_per_s, bandwidth_bytes_per_s)

    # Short passes take the time of the weights; from then on time grows evenly, so that the mean of the ends is that of all between.
    lengths = range(prompt, count("prompt and output", prompt + output))
    short = bisect_right(lengths, pass_s(0), key=pass_s)
    growing = (pass_s(lengths[short]) + pass_s(lengths[-1])) / 2 if short < output else 0.0
    without_cache = finite("seconds", short * pass_s(0) + (output - short) * growing)
    with_cache = finite("seconds", pass_s(prompt) + (output - 1) * pass_s(1))
    return CacheSaving(without_cache, positive("seconds with a cache", with_cache))


def generation_s(model: StepModel, prompt: int, output: int, grouping: Grouping = "operators") -> CacheSaving:
    """Time of a generation on a step model, attention and cache bytes counted (formula F17).

    Without a cache every pass is a prefill of all tokens so far in one chunk; what a prefill writes to the cache still counts, which is
    little. With it the prompt is one chunk, and each later token a decode step of one sequence.

    Raises
    ------
    DomainError : for a prompt below one, an output outside 1 to 1048576, or a grouping that there is not
    """
    import numpy as np

    checked_grouping(grouping)
    lengths = count("prompt", prompt) + np.arange(count("output", output, 1, _MOST_OUTPUT), dtype=float)
    passes = model.step_s(0, 0, chunk=lengths, grouping=grouping)
    steps = model.step_s(1, lengths[1:], grouping=grouping)
    return CacheSaving(positive("seconds", float(passes.sum())), positive("seconds", float(passes[0] + np.sum(steps))))


def _passes(prompt: int, output: int) -> tuple[int, int]:
    """Tokens that pass through the model without a cache and with one."""
    return output * prompt + output * (output - 1) // 2, prompt + output - 1


def _pairs_of_passes(longest: int, window: int | None) -> int:
    """Query-key pairs of passes over 1, 2, … tokens: the sum of causal_pairs(n), whose terms are triangular up to the window."""
    inside = longest if window is None else min(longest, window)
    beyond, cap = longest - inside, inside
    whole = inside * (inside + 1) * (inside + 2) // 6
    return whole + beyond * (cap * (cap + 1) // 2) + cap * beyond * (beyond + 1) // 2
