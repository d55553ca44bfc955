"""Caches of the reference transformer: allocated once, filled from left to right, and never moved.

Every cache answers ``extend``: it takes the keys and values of new tokens and gives what these tokens may attend to, with the absolute
position of each entry, so that one mask rule serves all of them. A place says where the new tokens stand: one position for all sequences,
or one for each, as in continuous batching.

Sources: Xiao et al. 2023, StreamingLLM (arXiv 2309.17453) for the first tokens beside a window; Kwon et al. 2023 (arXiv 2309.06180) for
block tables; DeepSeek-V3, inference/model.py for the latent cache. Positions are absolute: StreamingLLM's positions within the cache
are not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...errors import DomainError


@dataclass(frozen=True, slots=True)
class Place:
    """Where new tokens stand.

    Parameters
    ----------
    start : tokens before them, the most of any sequence where they differ
    count : new tokens of each sequence
    positions : their absolute positions, (count) or (sequences, count)
    each : tokens before them of each sequence, where these differ; then there is one new token
    """

    start: int
    count: int
    positions: Any
    each: Any = None

    @property
    def end(self) -> int:
        """Tokens with the new ones."""
        return self.start + self.count


def place(start: int, count: int, device: Any) -> Place:
    """The place of tokens that stand at the same position in all sequences."""
    return Place(start, count, torch.arange(start, start + count, device=device))


def places(starts: list[int], device: Any) -> Place:
    """The place of one new token of sequences that are differently long."""
    each = torch.tensor(starts, device=device)
    return Place(max(starts), 1, each[:, None], each)


Seen = tuple[Any, Any, Any]  # keys, values, and the absolute positions of entries


class LayerCache(Protocol):
    """What one layer keeps."""

    def extend(self, keys: Any, values: Any, at: Place) -> Seen:
        """Keep new entries; give all that the new tokens may attend to, and the positions of these entries."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes that are allocated."""
        ...


class FullCache:
    """Keys and values of all tokens, contiguous: (sequences, heads, tokens, width)."""

    def __init__(self, keys: Any, values: Any) -> None:
        self.keys, self.values = keys, values
        self._positions = torch.arange(keys.shape[2], device=keys.device)

    def extend(self, keys: Any, values: Any, at: Place) -> Seen:
        """Write at the end, and look at all tokens so far."""
        if at.end > self.keys.shape[2]:
            raise DomainError("tokens", got=at.end, wanted=f"at most {self.keys.shape[2]}, for which the cache is made")
        if at.each is None:
            self.keys[:, :, at.start : at.end] = keys
            self.values[:, :, at.start : at.end] = values
        else:
            rows = torch.arange(len(keys), device=keys.device)
            self.keys[rows, :, at.each] = keys[:, :, 0]
            self.values[rows, :, at.each] = values[:, :, 0]
        return self.keys[:, :, : at.end], self.values[:, :, : at.end], self._positions[: at.end]

    def sequence(self, row: int) -> FullCache:
        """The part of one sequence; it shares the memory."""
        return FullCache(self.keys[row : row + 1], self.values[row : row + 1])

    @property
    def bytes(self) -> int:
        """Bytes of keys and values."""
        return _bytes(self.keys, self.values)


class RingCache:
    """The last ``window`` tokens in a ring, beside the ``first`` ones of the sequence, which stay: first + window entries.

    Token p lies in slot p while p < first, later in slot first + (p - first) mod window. A single new token takes the slot of the one that
    has just left the window. Several new tokens look at a copy of the ring with themselves behind it, since the last of them would
    overwrite what the first still sees.
    """

    def __init__(self, keys: Any, values: Any, first: int = 0) -> None:
        self.keys, self.values, self.first = keys, values, first
        self.window = keys.shape[2] - first
        self._held = torch.full((keys.shape[2],), -1, device=keys.device)  # position of each slot; -1: empty

    def extend(self, keys: Any, values: Any, at: Place) -> Seen:
        """Write into the ring; see the class for what is looked at."""
        if at.each is not None:
            raise DomainError("cache", got="sequences of unequal lengths in a ring", wanted="sequences of one length")
        if at.count == 1:
            slot = self._slot(at.start)
            self.keys[:, :, slot : slot + 1] = keys
            self.values[:, :, slot : slot + 1] = values
            self._held[slot] = at.start
            filled = min(at.end, self.keys.shape[2])
            return self.keys[:, :, :filled], self.values[:, :, :filled], self._held[:filled]
        filled = min(at.start, self.keys.shape[2])
        seen = (
            torch.cat([self.keys[:, :, :filled], keys], dim=2),
            torch.cat([self.values[:, :, :filled], values], dim=2),
            torch.cat([self._held[:filled], at.positions]),
        )
        kept = [new for new in range(at.count) if at.start + new < self.first or new >= at.count - self.window]
        slots = [self._slot(at.start + new) for new in kept]
        self.keys[:, :, slots] = keys[:, :, kept]
        self.values[:, :, slots] = values[:, :, kept]
        self._held[slots] = at.positions[kept]
        return seen

    def _slot(self, position: int) -> int:
        return position if position < self.first else self.first + (position - self.first) % self.window

    @property
    def bytes(self) -> int:
        """Bytes of keys and values."""
        return _bytes(self.keys, self.values)


class LatentCache:
    """One latent and one rotary key of a token, shared by all heads: (sequences, tokens, rank + rotary width)."""

    def __init__(self, entries: Any) -> None:
        self.entries = entries
        self._positions = torch.arange(entries.shape[1], device=entries.device)

    def extend(self, keys: Any, values: Any, at: Place) -> Seen:  # noqa: ARG002 -- latents serve as both
        """Write at the end; the entries are keys and values in one."""
        if at.end > self.entries.shape[1]:
            raise DomainError(
                "tokens", got=at.end, wanted=f"at most {self.entries.shape[1]}, for which the cache is made"
            )
        if at.each is None:
            self.entries[:, at.start : at.end] = keys
        else:
            self.entries[torch.arange(len(keys), device=keys.device), at.each] = keys[:, 0]
        return self.entries[:, : at.end], None, self._positions[: at.end]

    def sequence(self, row: int) -> LatentCache:
        """The part of one sequence; it shares the memory."""
        return LatentCache(self.entries[row : row + 1])

    @property
    def bytes(self) -> int:
        """Bytes of the entries."""
        return _bytes(self.entries)


class PagedCache:
    """Keys and values in blocks that lie anywhere in a pool, found by a table: (blocks, heads, tokens of a block, width).

    What attention looks at is gathered into one piece first. A kernel made for paging would read the blocks where they lie; this shows what
    the gathering costs, and that nothing else changes.
    """

    def __init__(self, keys: Any, values: Any, table: Any) -> None:
        self.keys, self.values, self.table = keys, values, table
        self.block = keys.shape[2]
        self._positions = torch.arange(table.shape[1] * self.block, device=keys.device)

    def extend(self, keys: Any, values: Any, at: Place) -> Seen:
        """Write each token into its block; gather all blocks so far."""
        if at.end > len(self._positions):
            raise DomainError("tokens", got=at.end, wanted=f"at most {len(self._positions)}, for which blocks are held")
        where = at.positions if at.each is not None else at.positions.expand(len(keys), -1)
        block = self.table.gather(1, where // self.block)
        self.keys[block, :, where % self.block] = keys.transpose(1, 2)
        self.values[block, :, where % self.block] = values.transpose(1, 2)
        return self.gather(self.keys, at.end), self.gather(self.values, at.end), self._positions[: at.end]

    def gather(self, pool: Any, tokens: int) -> Any:
        """The first tokens of every sequence, in order and in one piece."""
        blocks = pool[self.table[:, : -(-tokens // self.block)]]  # sequences, blocks, heads, tokens of a block, width
        return blocks.transpose(1, 2).flatten(2, 3)[:, :, :tokens]

    @property
    def bytes(self) -> int:
        """Bytes of both pools."""
        return _bytes(self.keys, self.values)


class FixedCache:
    """Keys and values of a memory that does not grow (cross attention): made at the first pass, kept from then on."""

    def __init__(self) -> None:
        self.seen: tuple[Any, Any] | None = None

    @property
    def bytes(self) -> int:
        """Bytes of keys and values, once they are there."""
        return 0 if self.seen is None else _bytes(*self.seen)


class StateCache:
    """A recurrent state and the last inputs of a convolution; both are replaced in each pass."""

    def __init__(self) -> None:
        self.state: Any = None
        self.inputs: Any = None

    @property
    def bytes(self) -> int:
        """Bytes of what is there."""
        return _bytes(*(kept for kept in (self.state, self.inputs) if kept is not None))


@dataclass(slots=True)
class Cache:
    """The caches of all mixers in order, and how many tokens they hold: of all sequences, or of each."""

    layers: list[list[Any]]
    length: int = 0
    each: list[int] | None = None

    @property
    def bytes(self) -> int:
        """Bytes of all caches."""
        return sum(cache.bytes for layer in self.layers for cache in layer)

    def sequence(self, row: int) -> Cache:
        """An empty cache of one sequence in the memory of this one, for its prompt."""
        return Cache([[cache.sequence(row) for cache in layer] for layer in self.layers])


def _bytes(*tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
