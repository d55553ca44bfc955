"""Latent attention (MLA) of the reference transformer, absorbed and expanded.

The cache holds one latent and one rotary key per token. *Expanded*: the latents are multiplied out to keys and values of all heads, in
every pass. *Absorbed*: the same matrix is applied to the queries and to the mixed latents instead, so that attention runs in the latent
space with one KV head. Both are the same product in another order and agree to rounding.

Sources: formula F2.8; DeepSeek-V3, inference/model.py; deepseek-ai/FlashMLA for the absorbed form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .attention import attend, mask_of
from .sparse import ALL, Choice, IndexedCache, parts_of, scorer, taken

if TYPE_CHECKING:
    from ...models.spec import LatentAttention
    from .caches import LatentCache, Place
    from .masks import Rotations
    from .tensors import Maker


class LatentHeads:
    """The layer of :class:`~roofplan.models.spec.LatentAttention`."""

    def __init__(self, spec: LatentAttention, hidden: int, make: Maker) -> None:
        self.spec = spec
        heads, rank = spec.num_heads, spec.kv_lora_rank
        width = spec.qk_nope_head_dim + spec.qk_rope_head_dim
        if spec.q_lora_rank is None:
            self.query_down, self.query_norm = None, None
        else:
            self.query_down, self.query_norm = make.linear(hidden, spec.q_lora_rank), make.norm(spec.q_lora_rank)
        self.query = make.linear(spec.q_lora_rank or hidden, heads * width)
        self.down = make.linear(hidden, rank + spec.qk_rope_head_dim)
        self.norm = make.norm(rank)
        self.up = make.linear(rank, heads * (spec.qk_nope_head_dim + spec.v_head_dim))
        self.gate = make.linear(hidden, heads * spec.v_head_dim) if spec.output_gate else None
        self.out = make.linear(heads * spec.v_head_dim, hidden)
        self.index = scorer(spec.indexer, hidden, make, spec.q_lora_rank)

    @property
    def linears(self) -> tuple[Any, ...]:
        """The matrices."""
        matrices = (self.query_down, self.query, self.down, self.up, self.gate, self.out)
        index = self.index.linears if self.index else ()
        return (*(matrix for matrix in matrices if matrix is not None), *index)

    @property
    def vectors(self) -> tuple[Any, ...]:
        """The small tensors."""
        index = self.index.vectors if self.index else ()
        return (*(norm.gain for norm in (self.query_norm, self.norm) if norm is not None), *index)

    def __call__(
        self,
        x: Any,
        at: Place,
        turn: Rotations,
        cache: LatentCache | IndexedCache | None,
        choice: Choice = ALL,
        *,
        absorbed: bool,
        fused: bool,
    ) -> tuple[Any, Choice]:
        """One pass, in the absorbed or the expanded form: the output, and the choice of an indexer (for layers that share it)."""
        spec = self.spec
        low = x if self.query_down is None or self.query_norm is None else self.query_norm(self.query_down(x))
        own, index = parts_of(cache)
        if self.index is not None:
            choice = self.index(x, low, at, turn, index)
        queries = self.query(low).unflatten(-1, (spec.num_heads, -1)).transpose(1, 2)
        plain, rotary = queries.split([spec.qk_nope_head_dim, spec.qk_rope_head_dim], dim=-1)
        rotary = turn.rotate(rotary)
        latent, key = self.down(x).split([spec.kv_lora_rank, spec.qk_rope_head_dim], dim=-1)
        new = torch.cat([self.norm(latent), turn.rotate(key[:, None])[:, 0]], dim=-1)
        entries, positions = new, at.positions
        if own is not None:
            entries, _, positions = own.extend(new, None, at)
        mask = mask_of(None, at, own is not None, positions) if choice.pairs is None else choice.pairs
        entries = taken(entries, choice)
        mixed = (self._absorbed if absorbed else self._expanded)(plain, rotary, entries, mask, fused)
        if self.gate is not None:
            mixed = mixed * torch.sigmoid(self.gate(x))
        return self.out(mixed), choice

    def _absorbed(self, plain: Any, rotary: Any, entries: Any, mask: Any, fused: bool) -> Any:
        """Queries into the latent space, attention there, and the mixed latents out of it."""
        spec = self.spec
        into, out = self._halves(plain.dtype)
        width = spec.qk_nope_head_dim + spec.qk_rope_head_dim
        # attend divides by the root of the width it sees, which is not that of a head.
        scale = ((spec.kv_lora_rank + spec.qk_rope_head_dim) / width) ** 0.5
        queries = torch.cat([plain @ into, rotary], dim=-1) * scale
        latents = entries[..., : spec.kv_lora_rank]
        mixed = attend(queries, entries[:, None], latents[:, None], mask, fused=fused)
        by_head = mixed.unflatten(-1, (spec.num_heads, -1)).transpose(1, 2) @ out.transpose(-1, -2)
        return by_head.transpose(1, 2).flatten(2)

    def _expanded(self, plain: Any, rotary: Any, entries: Any, mask: Any, fused: bool) -> Any:
        """Keys and values of every head out of the latents."""
        spec = self.spec
        latents, shared_key = entries.split([spec.kv_lora_rank, spec.qk_rope_head_dim], dim=-1)
        both = self.up(latents).unflatten(-1, (spec.num_heads, -1)).transpose(1, 2)
        keys, values = both.split([spec.qk_nope_head_dim, spec.v_head_dim], dim=-1)
        shared = shared_key[:, None].expand(-1, spec.num_heads, -1, -1)
        return attend(
            torch.cat([plain, rotary], -1), torch.cat([keys, shared], -1), values.contiguous(), mask, fused=fused
        )

    def _halves(self, dtype: Any) -> tuple[Any, Any]:
        """The up projection by heads: what makes keys (width x rank), and what makes values (width x rank)."""
        spec = self.spec
        by_head = self.up.stored.read(dtype).view(spec.num_heads, -1, spec.kv_lora_rank)
        into, out = by_head.split([spec.qk_nope_head_dim, spec.v_head_dim], dim=1)
        return into, out
