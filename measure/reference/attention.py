"""Attention of the reference transformer: heads of keys and values (MHA, GQA, MQA), windows, and a fixed memory.

``attend`` has two forms with equal results: torch's fused kernel, which keeps no scores, and the plain products, which write them out.
Sources: formulas F2.6, F15.1; the names of tensors are Hugging Face's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.nn import functional

from .caches import FixedCache, FullCache
from .masks import seen_by
from .sparse import ALL, Choice, IndexedCache, parts_of, scorer, taken
from .tensors import Norm, vector

if TYPE_CHECKING:
    from ...models.spec import Attention, CrossAttention
    from .caches import LayerCache, Place, Seen
    from .masks import Rotations
    from .tensors import Maker

Mask = Any | Literal["causal"] | None


def attend(queries: Any, keys: Any, values: Any, mask: Mask = None, *, sinks: Any = None, fused: bool = True) -> Any:
    """Softmax attention, softmax(q k^T / sqrt(d) + mask) v: (sequences, tokens, heads x value width).

    Queries that share a KV head are laid side by side, so that keys and values are read once for all of them and never copied.

    Parameters
    ----------
    queries : (sequences, heads, tokens, width)
    keys, values : (sequences, KV heads, entries, width)
    mask : which entries are seen, (tokens, entries) or (sequences, tokens, entries); "causal" where both are the same tokens; None: all
    sinks : one learned score per head that takes its share of the weights and adds nothing
    fused : torch's kernel, which has no sinks; else plain products
    """
    rows, heads, tokens, width = queries.shape
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    if fused and sinks is None:
        out = _fused(queries, keys, values, mask, group)
    else:
        grouped = queries.reshape(rows, kv_heads, group * tokens, width)
        scores = (grouped @ keys.transpose(-1, -2)).view(rows, heads, tokens, -1) * width**-0.5
        allowed = _as_tensor(mask, tokens, keys)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -math.inf)
        weights = _softmax(scores, sinks).view(rows, kv_heads, group * tokens, -1)
        out = (weights @ values).view(rows, heads, tokens, -1)
    return out.transpose(1, 2).flatten(2)


def _fused(queries: Any, keys: Any, values: Any, mask: Mask, group: int) -> Any:
    rows, heads, tokens, width = queries.shape
    if tokens == 1:  # the queries of a group are then rows of one product
        grouped = queries.view(rows, heads // group, group, width)
        allowed = _as_tensor(mask, tokens, keys)
        out = functional.scaled_dot_product_attention(grouped, keys, values, allowed)
        return out.reshape(rows, heads, 1, -1)
    causal = isinstance(mask, str)
    allowed = None if causal else _as_tensor(mask, tokens, keys)
    return functional.scaled_dot_product_attention(
        queries, keys, values, allowed, is_causal=causal, enable_gqa=group > 1
    )


def _as_tensor(mask: Mask, tokens: int, keys: Any) -> Any:
    if mask is None:
        return None
    if isinstance(mask, str):
        return torch.ones(tokens, keys.shape[2], dtype=torch.bool, device=keys.device).tril()
    return mask if mask.dim() == 2 else mask[:, None]


def _softmax(scores: Any, sinks: Any) -> Any:
    """Weights of the entries, in 32 bits within; a sink takes part and is left out of the result."""
    if sinks is None:
        return scores.float().softmax(-1).to(scores.dtype) if scores.element_size() < 4 else scores.softmax(-1)
    extra = sinks.to(scores.dtype).view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat([scores, extra], dim=-1).softmax(-1)[..., :-1]


def mask_of(mixer: Attention | None, at: Place, cached: bool, held: Any, ring: bool = False) -> Mask:
    """The mask of a pass; None or "causal" where that says it, for which kernels are faster.

    Parameters
    ----------
    held : positions of the entries
    ring : whether the cache itself forgets what has left the window
    """
    window = None if mixer is None else mixer.window
    if at.each is None and (window is None or at.end <= window or (ring and mixer is not None)):
        if at.count == 1 and (mixer is None or mixer.kind != "chunked" or at.end <= (window or 0)):
            return None
        if not cached or (at.start == 0 and (window is None or at.end <= window)):
            return "causal"
    return seen_by(at.positions, held, mixer)


class HeadAttention:
    """The layer of :class:`~roofplan.models.spec.Attention`: projections, norms, rotation, cache, attention, output.

    With ``keep`` the queries, keys and values of the last pass stay in ``kept``, for experiments that look at them.
    """

    def __init__(self, spec: Attention, hidden: int, make: Maker, *, rotary: bool = True) -> None:
        self.spec, self.rotary = spec, rotary
        self.keep = False
        self.kept: tuple[Any, Any, Any] | None = None
        heads, kv = spec.num_heads, spec.num_kv_heads
        widths = {
            "q": heads * spec.head_dim * (2 if spec.output_gate else 1),
            "k": kv * spec.head_dim if "k" in spec.projections else 0,
            "v": kv * spec.value_dim if "v" in spec.projections else 0,
        }
        self._widths = tuple(widths.values())
        gate = heads * spec.head_dim if spec.output_gate else 0
        self.qkv = make.linear(hidden, sum(self._widths))
        bias = sum(self._widths) - gate if spec.qkv_bias else 0
        self.qkv_bias = vector(make, bias) if bias else None
        self.out = make.linear(heads * spec.value_dim, hidden, bias=spec.out_bias)
        self.sinks = vector(make, heads) if spec.sinks else None
        self.index = scorer(spec.indexer, hidden, make)
        self.q_norm: Norm | None = None
        self.k_norm: Norm | None = None
        if spec.qk_norm:
            full = spec.qk_norm == "full"
            self.q_norm = make.norm(heads * spec.head_dim if full else spec.head_dim)
            self.k_norm = make.norm(widths["k"] if full else spec.head_dim) if widths["k"] else None

    @property
    def linears(self) -> tuple[Any, ...]:
        """The matrices."""
        return self.qkv, self.out, *(self.index.linears if self.index else ())

    @property
    def vectors(self) -> tuple[Any, ...]:
        """The small tensors."""
        norms = [norm.gain for norm in (self.q_norm, self.k_norm) if norm is not None]
        index = self.index.vectors if self.index else ()
        return (*(v for v in (self.qkv_bias, self.sinks) if v is not None), *norms, *index)

    def __call__(
        self,
        x: Any,
        at: Place,
        turn: Rotations,
        cache: LayerCache | IndexedCache | None,
        shared: Seen | None,
        choice: Choice = ALL,
        *,
        fused: bool,
    ) -> tuple[Any, Seen, Choice]:
        """One pass: the output, the keys and values that were looked at, and the choice of an indexer (for layers that share them)."""
        spec = self.spec
        own, index = parts_of(cache)
        if self.index is not None:
            choice = self.index(x, None, at, turn, index)
        queries, keys, values, gate = self._project(x)
        if self.rotary:
            queries, keys = turn.rotate(queries), None if keys is None else turn.rotate(keys)
        if spec.cache == "shared" and shared is not None:
            seen = shared
        elif own is None:
            seen = keys, values, at.positions
        else:
            seen = own.extend(keys, values, at)
        mask = mask_of(spec, at, own is not None, seen[2], own is not None and not isinstance(own, FullCache))
        if self.keep:
            self.kept = queries, seen[0], seen[1]
        mask = mask if choice.pairs is None else choice.pairs
        out = attend(queries, taken(seen[0], choice), taken(seen[1], choice), mask, sinks=self.sinks, fused=fused)
        if gate is not None:
            out = out * torch.sigmoid(gate[..., : out.shape[-1]])
        return self.out(out), seen, choice

    def _project(self, x: Any) -> tuple[Any, Any, Any, Any]:
        """Queries, keys and values by heads, and the gate."""
        spec = self.spec
        q, k, v = self.qkv(x).split(self._widths, dim=-1)
        gate = None
        if spec.output_gate:
            q, gate = q.chunk(2, dim=-1)
        if self.qkv_bias is not None:
            bias = self.qkv_bias.split([part.shape[-1] for part in (q, k, v)])
            q, k, v = q + bias[0], k + bias[1], v + bias[2]
        if spec.qk_norm == "full":
            q = self.q_norm(q) if self.q_norm else q
            k = self.k_norm(k) if self.k_norm else k
        queries, keys = _heads(q, spec.head_dim), _heads(k, spec.head_dim)
        if spec.qk_norm is True:
            queries = self.q_norm(queries) if self.q_norm else queries
            keys = self.k_norm(keys) if self.k_norm else keys
        # Where values have no weights of their own, they are the keys before their rotation.
        values = _heads(v, spec.value_dim) if "v" in spec.projections else keys
        return queries, keys, values, gate


class CrossHeads:
    """The layer of :class:`~roofplan.models.spec.CrossAttention`: keys and values of a memory are made once and then kept."""

    def __init__(self, spec: CrossAttention, hidden: int, make: Maker) -> None:
        self.spec = spec
        queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        source = spec.source_size or hidden
        self.query = make.linear(hidden, queries, bias=spec.bias)
        self.key_value = make.linear(source, 2 * keys, bias=spec.bias)
        self.out = make.linear(queries, hidden, bias=spec.bias)
        self.norms = tuple(make.norm(spec.head_dim) for _ in range(2 * spec.qk_norm))
        self._make, self._source = make, source
        self._memory: Any = None

    @property
    def linears(self) -> tuple[Any, ...]:
        """The matrices."""
        return self.query, self.key_value, self.out

    @property
    def vectors(self) -> tuple[Any, ...]:
        """The small tensors."""
        return tuple(norm.gain for norm in self.norms)

    def __call__(self, x: Any, cache: FixedCache | None, *, fused: bool) -> Any:
        """One pass; without a cache keys and values of the memory are made anew."""
        keys, values = self._entries(len(x), cache)
        queries = _heads(self.query(x), self.spec.head_dim)
        if self.norms:
            queries = self.norms[0](queries)
        return self.out(attend(queries, keys, values, fused=fused))

    def _entries(self, rows: int, cache: FixedCache | None) -> tuple[Any, Any]:
        if cache is not None and cache.seen is not None:
            return cache.seen
        if self._memory is None:
            self._memory = self._make.uniform(self.spec.memory_tokens, self._source, scale=1.0)
        keys, values = (_heads(half, self.spec.head_dim) for half in self.key_value(self._memory[None]).chunk(2, -1))
        if self.norms:
            keys = self.norms[1](keys)
        seen = tuple(half.expand(rows, -1, -1, -1).contiguous() for half in (keys, values))
        if cache is not None:
            cache.seen = seen[0], seen[1]
        return seen[0], seen[1]


def _heads(x: Any, width: int) -> Any:
    """(sequences, tokens, heads x width) as (sequences, heads, tokens, width); none where there is nothing."""
    return x.unflatten(-1, (-1, width)).transpose(1, 2) if x.shape[-1] else None
