"""Paging: a cache in blocks, and what is lost to their ends, to reservation, and to layers of different kinds that share one pool.

Closed forms are formulas F3.9 to F3.11. :func:`paged` lays the cache of a rank out as an engine does: a sequence then takes whole blocks,
and a windowed layer also room for the tokens that one step brings.

Sources: vllm-project/vllm, vllm/v1/core/kv_cache_utils.py (groups, page sizes) and vllm/v1/kv_cache_interface.py (need of a request) at
001cabc; Kwon et al. 2023 (arXiv 2309.06180) for reservation; the logged concurrencies in tests/planner/test_paging.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .parallel import divided

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engines.profile import Paging
    from .kv_cache import CacheLayout

# ------------------------------------------------------------------------------------------------ closed forms


def blocks_of(tokens: int, block: int) -> int:
    """Blocks of a sequence: ceil(L / b) (formula F3.9).

    >>> blocks_of(1000, 16)
    63
    """
    return divided(tokens, block)


def wasted_slots(tokens: int, block: int) -> int:
    """Slots of the last block that hold nothing: b ceil(L / b) - L (formula F3.9)."""
    return blocks_of(tokens, block) * block - tokens


def mean_wasted_slots(block: int) -> float:
    """Mean of the wasted slots of sequences whose lengths are spread over all residues: (b - 1) / 2 (formula F3.9)."""
    return (block - 1) / 2


def wasted_fraction(mean_tokens: float, block: int) -> float:
    """Share of the blocks' slots that hold nothing, at a mean length: w / (L + w) with w = (b - 1) / 2 (formula F3.9)."""
    waste = mean_wasted_slots(block)
    return waste / (mean_tokens + waste)


def reserved_waste(mean_tokens: float, longest: int) -> float:
    """Share that a contiguous cache for the longest sequence leaves empty: 1 - E[L] / L_max (formula F3.10; Kwon et al. 2023).

    >>> reserved_waste(500, 2048)
    0.755859375
    """
    return 1 - mean_tokens / longest


def copy_on_write_blocks(prompt: int, output: int, samples: int, block: int) -> int:
    """Blocks of several samples of one prompt that share its full blocks (formula F3.11).

        floor(P/b) + n (ceil((P+G)/b) - floor(P/b))

    For beam search it is a lower bound of what is shared, and so an upper one of the blocks: beams also share what they generated together.

    >>> copy_on_write_blocks(1000, 200, 4, 16)
    114
    """
    shared = prompt // block
    return shared + samples * (blocks_of(prompt + output, block) - shared)


# ------------------------------------------------------------------------------------------------ as engines lay it out


@dataclass(frozen=True, slots=True)
class PageGroup:
    """``copies`` groups of layers of one kind; a block of one group holds ``block_tokens`` tokens of its layers.

    Parameters
    ----------
    window : tokens beyond which nothing more is kept, the room for steps included, or None
    extra : blocks beyond those that the tokens fill
    fixed : blocks whatever the length (states, cross attention), or None
    """

    label: str
    copies: int
    block_tokens: int
    block_bytes: int
    window: int | None = None
    extra: int = 0
    fixed: int | None = None

    def blocks(self, tokens: int) -> int:
        """Blocks that a sequence of so many tokens takes in one group."""
        if self.fixed is not None:
            return self.fixed
        kept = tokens if self.window is None else min(tokens, self.window)
        return blocks_of(kept, self.block_tokens) + self.extra


@dataclass(frozen=True, slots=True)
class PagedCache:
    """The cache of a rank in blocks.

    ``shared`` says that all groups take equal blocks from one pool. ``window_share`` is the size of pools of windowed layers, in tokens per
    token of the other pool: a sequence then takes the same part of each, that of the pool which it fills most.
    """

    groups: tuple[PageGroup, ...]
    shared: bool
    window_share: float | None = None

    @property
    def group_count(self) -> int:
        """Groups of layers, copies counted."""
        return sum(group.copies for group in self.groups)

    @property
    def block_tokens(self) -> int:
        """Tokens of the smallest block of layers that keep tokens; the number that a log prints."""
        return min((group.block_tokens for group in self.groups if group.fixed is None), default=1)

    @property
    def block_bytes(self) -> int:
        """Bytes of a block of the largest group."""
        return max((group.block_bytes for group in self.groups), default=1)

    def blocks_per_sequence(self, tokens: int) -> int:
        """Blocks that a sequence takes in all groups."""
        return sum(group.copies * group.blocks(tokens) for group in self.groups)

    def bytes_per_sequence(self, tokens: int) -> int:
        """Bytes of the blocks of a sequence, or of its part of pools whose sizes are tied."""
        if self._tied:
            most = max(group.blocks(tokens) / self._ratio(group) for group in self.groups if group.fixed is None)
            return math.ceil(most * self._tied) + sum(
                group.copies * group.fixed * group.block_bytes for group in self.groups if group.fixed is not None
            )
        return sum(group.copies * group.blocks(tokens) * group.block_bytes for group in self.groups)

    @property
    def _tied(self) -> float:
        """Bytes that one more block of the pool of full layers takes in all pools; 0 where their sizes are not tied."""
        growing = [group for group in self.groups if group.fixed is None]
        if self.window_share is None or len({group.window is None for group in growing}) < 2:
            return 0.0
        return sum(group.copies * group.block_bytes * self._ratio(group) for group in growing)

    def _ratio(self, group: PageGroup) -> float:
        return 1.0 if group.window is None or self.window_share is None else self.window_share

    def blocks_within(self, budget: int) -> int:
        """Blocks of one pool that a budget holds; where each kind has a pool of its own, blocks of all kinds that keep every token."""
        if self.shared:
            return budget // self.block_bytes
        if self._tied:
            return int(budget / self._tied)
        tokens = [group for group in self.groups if group.fixed is None]
        growing = [group for group in tokens if group.window is None] or tokens
        size = sum(group.copies * group.block_bytes for group in growing)
        return budget // size if size else 0

    def concurrency(self, budget: int, tokens: int) -> float:
        """How many sequences of a length a budget holds, with the part of the last one."""
        if self.shared:
            return self.blocks_within(budget) / max(1, self.blocks_per_sequence(tokens))
        return budget / max(1, self.bytes_per_sequence(tokens))

    def printed_tokens(self, budget: int, paging: Paging, max_model_len: int) -> int:
        """The number of tokens that an engine's log prints for a budget; of a hybrid model it is no sum of tokens that fit."""
        if paging.printed == "concurrency":
            return int(self.concurrency(budget, max_model_len) * max_model_len)
        return self.blocks_within(budget) // (self.group_count if self.shared else 1) * self.block_tokens


@dataclass(frozen=True, slots=True)
class _Kind:
    """Layers that keep the same of a sequence: bytes of one layer per token, or of a state or fixed memory."""

    label: str
    layers: int
    token_bytes: float = 0.0
    window: int | None = None
    chunked: bool = False
    fixed_bytes: int | None = None
    fixed_tokens: int | None = None


def paged(cache: CacheLayout, paging: Paging, block: int, step_tokens: int) -> PagedCache:
    """Lay the cache of a rank out in blocks.

    Parameters
    ----------
    cache : what its layers keep
    block : tokens of a block, before layers of different kinds are made equal
    step_tokens : tokens that one step may bring to a sequence
    """
    kinds = list(_kinds(cache))
    if paging.layers == "full":
        kinds = [_Kind(kind.label, kind.layers, kind.token_bytes) if kind.window else kind for kind in kinds]
    compressed = any(
        term.every > 1 for term in cache.terms
    )  # no engine's groups of these are known: each is counted by itself
    alike = all(kind.window is None and kind.fixed_bytes is None and kind.fixed_tokens is None for kind in kinds)
    if alike or paging.layers == "full":
        return PagedCache(tuple(_joined(kinds, paging, block)), shared=alike)
    if paging.layers == "pools" or compressed:
        groups = [_group(kind, 1, kind.layers, block, 0, paging, step_tokens) for kind in kinds]
        return PagedCache(tuple(groups), shared=False, window_share=paging.window_share)
    return PagedCache(tuple(_equal_groups(kinds, paging, block, step_tokens)), shared=True)


def _kinds(cache: CacheLayout) -> Iterator[_Kind]:
    for term in cache.terms:
        if term.stored:
            # Known to be inexact: of a cache that evicts, blocks of all tokens are counted, each with the bytes of the share that is kept.
            token_bytes = cache.entry_bytes(term) / (term.every * term.ranks) * term.share
            yield _Kind(term.label, term.layers, token_bytes, term.window, term.chunked, fixed_tokens=term.fixed)
    for state in cache.states:
        yield _Kind("states", state.layers, fixed_bytes=state.bytes)


def _joined(kinds: list[_Kind], paging: Paging, block: int) -> Iterator[PageGroup]:
    """One group of all layers that keep every token; states and fixed memory beside it."""
    growing = [kind for kind in kinds if kind.fixed_bytes is None and kind.fixed_tokens is None]
    if growing:
        size = round(sum(kind.layers * kind.token_bytes for kind in growing) * block)
        yield PageGroup(" + ".join(kind.label for kind in growing), 1, block, max(1, size))
    for kind in kinds:
        if kind not in growing:
            yield _group(kind, 1, kind.layers, block, 0, paging, 0)


def _equal_groups(kinds: list[_Kind], paging: Paging, block: int, step_tokens: int) -> Iterator[PageGroup]:
    """Groups of equally many layers whose pages are equally large.

    The attention page is made at least as large as the largest state by a larger block, a multiple of the usual one; smaller pages of
    attention get more tokens, in whole multiples, and what does not divide is padded.
    """
    attention = [kind for kind in kinds if kind.fixed_bytes is None]
    largest = max((kind.token_bytes for kind in attention), default=0.0)
    state = max((kind.fixed_bytes or 0 for kind in kinds), default=0)
    if largest and state > largest * block:
        step = max(block, 16)
        block = step * math.ceil(state / (step * largest))
    page = max(math.ceil(largest * block), state, 1)
    counts = [kind.layers for kind in kinds]
    size = max(counts) if max(counts) < paging.uneven * min(counts) else min(counts)
    for kind in kinds:
        tokens = block * max(1, int(page // (kind.token_bytes * block))) if kind.token_bytes else block
        yield _group(kind, divided(kind.layers, size), size, tokens, page, paging, step_tokens)


def _group(kind: _Kind, copies: int, layers: int, block: int, page: int, paging: Paging, step_tokens: int) -> PageGroup:
    """One kind of layers as groups of so many layers; ``page`` is the size of a layer's block where all are made equal, else 0."""
    if kind.fixed_bytes is not None:
        blocks = paging.state_blocks if page else paging.state_slots
        return PageGroup(kind.label, copies, block, layers * (page or kind.fixed_bytes), fixed=blocks)
    size = layers * page or max(1, round(layers * kind.token_bytes * block))
    if kind.fixed_tokens is not None:
        return PageGroup(kind.label, copies, block, size, fixed=blocks_of(kind.fixed_tokens, block))
    if kind.window is None:
        return PageGroup(kind.label, copies, block, size)
    room = paging.window_steps * step_tokens
    kept = kind.window + room if kind.chunked else kind.window - 1 + room
    return PageGroup(kind.label, copies, block, size, window=kept, extra=0 if kind.chunked else paging.window_blocks)
