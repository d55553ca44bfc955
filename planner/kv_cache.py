"""Counting the cache: what each layer keeps of a sequence, in elements, and what that is in bytes.

Every layer is described by terms: so many elements per kept entry, one entry for ``every`` tokens, at most ``window`` of them, or a fixed
number. From these follow the growth per token, the bytes of a sequence, and the bytes that a decode step reads. Nothing else in roofplan
counts cache bytes.

Sources: formulas F3.1 to F3.8 and F2.11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..models.spec import Attention, CompressedAttention, CrossAttention, LatentAttention, Recurrent
from .parallel import SINGLE, Layout, divided, kv_heads_per_rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engines.spec import NumberFormat
    from ..models.spec import Indexer, Mixer, ModelSpec

_CONVOLUTION_BITS = 16


@dataclass(frozen=True, slots=True)
class CacheTerm:
    """What ``layers`` layers keep of one sequence.

    Parameters
    ----------
    elements : elements of one entry in one layer (keys and values together)
    every : tokens for which one entry is kept
    window : most tokens that are kept, or None
    fixed : entries that do not depend on the length (cross attention), or None
    reads : most entries that one step reads of them (sparse attention), or None
    index : whether these are keys of a sparse-attention indexer
    stored : false where the layer reads the entries of another one
    """

    label: str
    layers: int
    elements: int
    every: int = 1
    window: int | None = None
    fixed: int | None = None
    reads: int | None = None
    index: bool = False
    stored: bool = True

    @property
    def grows(self) -> bool:
        """Whether it grows with the sequence without bound."""
        return self.stored and self.window is None and self.fixed is None

    def entries(self, tokens: int) -> int:
        """Entries kept of a sequence of so many tokens."""
        if self.fixed is not None:
            return self.fixed
        return (tokens if self.window is None else min(tokens, self.window)) // self.every

    def stored_elements(self, tokens: int) -> int:
        """Elements stored in all of its layers."""
        return self.layers * self.entries(tokens) * self.elements if self.stored else 0


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """The cache of one sequence on one rank (or, unsharded, of one replica).

    ``state_bytes`` is the constant part: recurrent states and convolution windows.
    """

    terms: tuple[CacheTerm, ...]
    state_bytes: int
    kv_format: NumberFormat

    def _bytes(self, elements: int) -> int:
        return self.kv_format.bytes_of(elements)

    @property
    def bytes_per_token(self) -> int:
        """Unbounded growth per token, indexer keys left out (formula F3.1, F3.2)."""
        return self._growth(index=False)

    @property
    def index_bytes_per_token(self) -> int:
        """Growth of the indexer keys per token."""
        return self._growth(index=True)

    def _growth(self, *, index: bool) -> int:
        growing = [term for term in self.terms if term.grows and term.index == index]
        period = max((term.every for term in growing), default=1)
        return self._bytes(sum(term.layers * term.elements * (period // term.every) for term in growing)) // period

    @property
    def fixed_bytes(self) -> int:
        """Bytes of a sequence that do not depend on its length."""
        return self.state_bytes + self._bytes(sum(term.stored_elements(0) for term in self.terms))

    def bytes_per_sequence(self, tokens: int) -> int:
        """Bytes of a sequence of so many tokens: growth, windows, indexer keys, states (formula F3.3)."""
        return self.state_bytes + self._bytes(sum(term.stored_elements(tokens) for term in self.terms))

    def by_term(self, tokens: int) -> Iterator[tuple[CacheTerm, int]]:
        """Each term with the bytes that it stores of a sequence."""
        for term in self.terms:
            yield term, self._bytes(term.stored_elements(tokens))


def mixer_terms(mixer: Mixer, layers: int, tp: int = 1) -> tuple[CacheTerm, ...]:
    """Describe what a mixer keeps, on one tensor-parallel rank.

    Keys and values are divided by heads, at least one head a rank (F3.8). Latents, compressed entries and indexer keys are replicated.
    """
    match mixer:
        case Attention():
            heads = kv_heads_per_rank(mixer.num_kv_heads, tp)
            label = mixer.kind if mixer.window is None else f"{mixer.kind} {mixer.window}"
            elements = heads * (mixer.head_dim + mixer.value_dim)
            reads = mixer.indexer.top_k if mixer.indexer else None
            term = CacheTerm(label, layers, elements, window=mixer.window, reads=reads, stored=mixer.cache == "own")
            return (term, *_index_keys(mixer.indexer, layers))
        case LatentAttention():
            latent = mixer.kv_lora_rank + mixer.qk_rope_head_dim
            term = CacheTerm("latent", layers, latent, reads=mixer.indexer.top_k if mixer.indexer else None)
            return (term, *_index_keys(mixer.indexer, layers))
        case CompressedAttention():
            window = CacheTerm(f"window {mixer.window}", layers, mixer.head_dim, window=mixer.window)
            if not mixer.ratio:
                return (window,)
            # The indexer's keys are part of the compressed entry (published growth figures count them so).
            entry = mixer.head_dim + (mixer.indexer.head_dim if mixer.indexer else 0)
            label = f"one entry per {mixer.ratio}"
            return (
                window,
                CacheTerm(
                    label, layers, entry, every=mixer.ratio, reads=mixer.indexer.top_k if mixer.indexer else None
                ),
            )
        case CrossAttention():
            heads = kv_heads_per_rank(mixer.num_kv_heads, tp)
            return (CacheTerm("cross", layers, 2 * heads * mixer.head_dim, fixed=mixer.memory_tokens),)
        case Recurrent():
            return ()


def _index_keys(indexer: Indexer | None, layers: int) -> tuple[CacheTerm, ...]:
    if indexer is None or indexer.shared:
        return ()
    return (CacheTerm("index keys", layers, indexer.head_dim, index=True),)


def state_bytes(mixer: Mixer, tp: int = 1) -> int:
    """Bytes of a recurrent mixer's state for one sequence in one layer (formula F2.11): matrices, and the convolution's last inputs."""
    if not isinstance(mixer, Recurrent):
        return 0
    convolution = mixer.convolution
    taps = convolution.channels * (convolution.kernel - 1) if convolution else 0
    return divided(mixer.state.elements, tp) * mixer.state.bits // 8 + divided(taps, tp) * _CONVOLUTION_BITS // 8


def cache_layout(model: ModelSpec, kv_format: NumberFormat, layout: Layout = SINGLE) -> CacheLayout:
    """Describe the cache of a model on one rank of a tensor-parallel group (pipeline stages are not cut here).

    Neighbouring groups that keep the same are joined.
    """
    merged: dict[tuple[object, ...], CacheTerm] = {}
    states = 0
    for group in model.layers:
        for mixer in group.attention:
            states += group.count * state_bytes(mixer, layout.tp)
            for term in mixer_terms(mixer, group.count, layout.tp):
                key = (
                    term.label,
                    term.elements,
                    term.every,
                    term.window,
                    term.fixed,
                    term.reads,
                    term.index,
                    term.stored,
                )
                layers = term.layers + (merged[key].layers if key in merged else 0)
                merged[key] = CacheTerm(term.label, layers, *key[1:])
    return CacheLayout(tuple(merged.values()), states, kv_format)


def chunk_live_tokens(position: int, chunk: int) -> int:
    """Tokens that chunked local attention still needs at a 0-based position: (t mod C) + 1, on average (C + 1) / 2 (formula F3.4)."""
    return position % chunk + 1


def evicted_live_tokens(context: int, fraction: float) -> int:
    """Tokens that an eviction policy keeps of a context: floor(f L), recent and heavy ones together (formula F3.6; H2O)."""
    return int(context * fraction)


def sink_live_tokens(context: int, sinks: int, recent: int) -> int:
    """Tokens kept with attention sinks and a recent window: min(L, s + w), constant in the end (formula F3.6; arXiv 2309.17453)."""
    return min(context, sinks + recent)
