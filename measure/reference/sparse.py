"""Sparse attention of the reference transformer: an indexer scores all tokens with one small key each, and the best are attended.

A decode step gathers what is chosen and attends to it alone; a prompt masks what is not. While there are no more tokens than are chosen,
all are. Layers whose indexer is shared take the choice of the layer before that made one.

Sources: formula F2.9; DeepSeek-V3.2-Exp, inference/model.py (scores: sum over heads of weight x relu(q k)). Left out: their 8-bit storage,
and that only a part of their width is rotated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .masks import seen_by

if TYPE_CHECKING:
    from ...models.spec import Indexer
    from .caches import LatentCache, Place
    from .masks import Rotations
    from .tensors import Maker


@dataclass(frozen=True, slots=True)
class Choice:
    """What is attended: entries of each sequence by their number, or which pairs of query and entry; neither where all are."""

    entries: Any = None
    pairs: Any = None


ALL = Choice()


class IndexedCache:
    """The cache of a layer with an indexer: its own, and one index key of each token."""

    def __init__(self, main: Any, index: LatentCache) -> None:
        self.main, self.index = main, index

    def sequence(self, row: int) -> IndexedCache:
        """The part of one sequence; it shares the memory."""
        return IndexedCache(self.main.sequence(row), self.index.sequence(row))

    @property
    def bytes(self) -> int:
        """Bytes of both."""
        return int(self.main.bytes + self.index.bytes)


def parts_of(cache: Any) -> tuple[Any, LatentCache | None]:
    """A layer's own cache, and that of its index keys where it has one."""
    return (cache.main, cache.index) if isinstance(cache, IndexedCache) else (cache, None)


class IndexScorer:
    """The scorer of :class:`~roofplan.models.spec.Indexer`.

    Beside latents queries come from the query latent and heads are weighed by a projection; beside heads of keys and values one matrix
    gives queries and key, and every head counts alike.

    Parameters
    ----------
    low : width of the query latent; None beside heads
    """

    def __init__(self, spec: Indexer, hidden: int, make: Maker, low: int | None) -> None:
        self.spec = spec
        wide = spec.num_heads * spec.head_dim
        self.both = make.linear(hidden, wide + spec.head_dim) if low is None else None
        self.query = None if low is None else make.linear(low, wide)
        self.key = None if low is None else make.linear(hidden, spec.head_dim)
        self.weigh = None if low is None else make.linear(hidden, spec.num_heads)
        self.norm = make.norm(spec.head_dim, bias=low is not None)
        self.query_norm = make.norm(spec.head_dim) if low is None else None

    @property
    def linears(self) -> tuple[Any, ...]:
        """The matrices."""
        return tuple(matrix for matrix in (self.both, self.query, self.key, self.weigh) if matrix is not None)

    @property
    def vectors(self) -> tuple[Any, ...]:
        """The norms."""
        return (*self.norm.vectors, *(self.query_norm.vectors if self.query_norm else ()))

    def __call__(self, x: Any, low: Any, at: Place, turn: Rotations, cache: LatentCache | None) -> Choice:
        """Score all tokens, and choose."""
        queries, key, weights = self._project(x, low)
        queries, keys, positions = turn.rotate(queries), turn.rotate(self.norm(key)[:, None])[:, 0], at.positions
        if cache is not None:
            keys, _, positions = cache.extend(keys, None, at)
        scores = torch.relu(queries @ keys[:, None].transpose(-1, -2))  # sequences, heads, tokens, entries
        scores = scores.sum(1) if weights is None else (scores * weights.transpose(1, 2)[..., None]).sum(1)
        if keys.shape[1] <= self.spec.top_k:
            return ALL
        if at.count == 1 and at.each is None:
            return Choice(entries=scores[:, 0].topk(self.spec.top_k, dim=-1).indices)
        seen = seen_by(at.positions, positions).expand_as(scores)
        best = scores.masked_fill(~seen, -torch.inf).topk(self.spec.top_k, dim=-1).indices
        return Choice(pairs=torch.zeros_like(seen).scatter(-1, best, value=True) & seen)

    def _project(self, x: Any, low: Any) -> tuple[Any, Any, Any]:
        spec = self.spec
        if self.both is not None:
            wide, key = self.both(x).split([spec.num_heads * spec.head_dim, spec.head_dim], dim=-1)
            queries = wide.unflatten(-1, (spec.num_heads, -1)).transpose(1, 2)
            return self.query_norm(queries) if self.query_norm else queries, key, None
        assert self.query is not None
        assert self.key is not None
        assert self.weigh is not None
        queries = self.query(low).unflatten(-1, (spec.num_heads, -1)).transpose(1, 2)
        return queries, self.key(x), self.weigh(x)


def scorer(spec: Indexer | None, hidden: int, make: Maker, low: int | None = None) -> IndexScorer | None:
    """The scorer of a layer; None for a layer without one of its own."""
    return None if spec is None or spec.shared else IndexScorer(spec, hidden, make, low)


def taken(entries: Any, choice: Choice) -> Any:
    """The chosen entries of (sequences, entries, width) or (sequences, heads, entries, width)."""
    if choice.entries is None:
        return entries
    chosen = choice.entries[:, :, None] if entries.dim() == 3 else choice.entries[:, None, :, None]
    shape = list(entries.shape)
    shape[-2] = choice.entries.shape[1]
    return entries.gather(-2, chosen.expand(shape))
