"""Counting the cache: what each layer keeps of a sequence, in elements, and what that is in bytes.

Every layer is described by terms: so many elements per kept entry, one entry for ``every`` tokens, at most ``window`` of them, or a fixed
number. From these follow the growth per token, the bytes of a sequence, and the bytes that a decode step reads. Nothing else in roofplan
counts cache bytes.

Sources: formulas F3.1 to F3.8 and F2.11.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..engines.profile import Entries
from ..models.spec import Attention, CompressedAttention, CrossAttention, LatentAttention, Recurrent
from .parallel import SINGLE, Layout, divided, kv_heads_per_rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..engines.spec import NumberFormat
    from ..models.spec import Indexer, Mixer, ModelSpec

_CONVOLUTION_BITS = 16
_SHARED_PERIOD = 1000  # tokens over which the growth of a share of them is counted
RECENT_BYTES = 2  # entries that a quantised cache keeps as they are
PLAIN_ENTRIES = Entries()


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
    chunked : whether the window is that of chunks, which starts again, and not one that slides
    entry_bytes : bytes of one entry where an engine has a layout of its own for it, whatever the cache format
    share : share of the tokens that an eviction policy keeps
    ranks : context-parallel ranks that divide the entries between them; the fullest one counts
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
    chunked: bool = False
    entry_bytes: int | None = None
    share: float = 1.0
    ranks: int = 1

    @property
    def grows(self) -> bool:
        """Whether it grows with the sequence without bound."""
        return self.stored and self.window is None and self.fixed is None

    def entries(self, tokens: int) -> int:
        """Entries kept of a sequence of so many tokens."""
        if self.fixed is not None:
            return divided(self.fixed, self.ranks)
        kept = tokens if self.window is None else min(tokens, self.window)
        return divided((kept if self.share == 1 else evicted_live_tokens(kept, self.share)) // self.every, self.ranks)


@dataclass(frozen=True, slots=True)
class StateTerm:
    """Recurrent states: ``layers`` layers that keep so many bytes of a sequence each, whatever its length."""

    layers: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """The cache of one sequence on one rank (or, unsharded, of one replica): entries that are kept, and recurrent states."""

    terms: tuple[CacheTerm, ...]
    states: tuple[StateTerm, ...]
    kv_format: NumberFormat

    @property
    def state_bytes(self) -> int:
        """The constant part: recurrent states and convolution windows."""
        return sum(state.layers * state.bytes for state in self.states)

    def entry_bytes(self, term: CacheTerm) -> float:
        """Mean bytes of one entry in one layer."""
        return term.elements * self.kv_format.bytes_per_element if term.entry_bytes is None else term.entry_bytes

    def _stored(self, terms: Iterable[CacheTerm], tokens: int) -> int:
        """Bytes that terms store of a sequence; a quantised cache may keep the last entries in 16 bits (KIVI, arXiv 2402.02750)."""
        packed = recent = whole = 0
        for term in terms:
            if not term.stored:
                continue
            entries = term.entries(tokens)
            if term.entry_bytes is not None:
                whole += term.layers * entries * term.entry_bytes
                continue
            kept = min(entries, self.kv_format.recent)
            recent += term.layers * kept * term.elements
            packed += term.layers * (entries - kept) * term.elements
        return whole + recent * RECENT_BYTES + self.kv_format.bytes_of(packed)

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
        if any(term.share < 1 for term in growing):
            period *= _SHARED_PERIOD
        period *= max((term.ranks for term in growing), default=1)
        own = sum(term.layers * (term.entry_bytes or 0) * (period // term.every // term.ranks) for term in growing)
        elements = sum(
            term.layers * term.elements * (period // term.every // term.ranks) * term.share
            for term in growing
            if term.entry_bytes is None
        )
        return (own + self.kv_format.bytes_of(int(elements))) // period

    @property
    def fixed_bytes(self) -> int:
        """Bytes of a sequence that do not depend on its length."""
        return self.state_bytes + self._stored(self.terms, 0)

    def bytes_per_sequence(self, tokens: int) -> int:
        """Bytes of a sequence of so many tokens: growth, windows, indexer keys, states (formula F3.3)."""
        return self.state_bytes + self._stored(self.terms, tokens)

    def by_term(self, tokens: int) -> Iterator[tuple[CacheTerm, int]]:
        """Each term with the bytes that it stores of a sequence."""
        for term in self.terms:
            yield term, self._stored((term,), tokens)


def mixer_terms(
    mixer: Mixer, layers: int, tp: int = 1, entries: Entries = PLAIN_ENTRIES, kv_format: str = ""
) -> tuple[CacheTerm, ...]:
    """Describe what a mixer keeps, on one tensor-parallel rank, as an engine stores entries.

    Keys and values are divided by heads, at least one head a rank (F3.8). Entries, compressed entries and indexer keys are replicated.
    """
    match mixer:
        case Attention():
            heads = kv_heads_per_rank(mixer.num_kv_heads, tp)
            label = mixer.kind if mixer.window is None else f"{mixer.kind} {mixer.window}"
            label += f" + first {mixer.first_tokens}" if mixer.first_tokens else ""
            label += f", {mixer.kept_share:.4g} kept" if mixer.kept_share is not None else ""
            elements = heads * (mixer.head_dim + mixer.value_dim)
            reads = mixer.indexer.top_k if mixer.indexer else None
            term = CacheTerm(
                label,
                layers,
                elements,
                window=mixer.most_tokens,
                reads=reads,
                stored=mixer.cache == "own",
                chunked=mixer.kind == "chunked",
                share=1.0 if mixer.kept_share is None else mixer.kept_share,
            )
            return (term, *_index_keys(mixer.indexer, layers, entries))
        case LatentAttention():
            return (_latent(mixer, layers, tp, entries, kv_format), *_index_keys(mixer.indexer, layers, entries))
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


def _latent(a: LatentAttention, layers: int, tp: int, entries: Entries, kv_format: str) -> CacheTerm:
    """The latent and rotary key of a token; or, in engines that expand it, keys and values of the rank's heads."""
    reads = a.indexer.top_k if a.indexer else None
    if entries.expanded_latents:
        heads = divided(a.num_heads, tp)
        return CacheTerm("expanded latent", layers, heads * (a.qk_nope_head_dim + a.qk_rope_head_dim + a.v_head_dim))
    width = divided(a.kv_lora_rank + a.qk_rope_head_dim, entries.latent_multiple_of) * entries.latent_multiple_of
    packed = {layout.format: layout.bytes for layout in entries.packed_latents} if a.indexer else {}
    beside = a.kv_lora_rank if entries.latent_values_beside else 0
    return CacheTerm("latent", layers, width + beside, reads=reads, entry_bytes=packed.get(kv_format))


def _index_keys(indexer: Indexer | None, layers: int, entries: Entries) -> tuple[CacheTerm, ...]:
    if indexer is None or indexer.shared:
        return ()
    return (CacheTerm("index keys", layers, indexer.head_dim, index=True, entry_bytes=entries.index_key_bytes),)


def state_bytes(mixer: Mixer, tp: int = 1, unstated_bits: int = PLAIN_ENTRIES.state_bits) -> int:
    """Bytes of a recurrent mixer's state for one sequence in one layer (formula F2.11): matrices, and the convolution's last inputs.

    ``unstated_bits`` are those of a matrix's element where the model states none.
    """
    if not isinstance(mixer, Recurrent):
        return 0
    state, convolution = mixer.state, mixer.convolution
    matrices = divided(state.elements, tp) * (state.bits or unstated_bits) // 8 if state else 0
    taps = convolution.channels * (convolution.kernel - 1) if convolution else 0
    return matrices + divided(taps, tp) * _CONVOLUTION_BITS // 8


def cache_layout(
    model: ModelSpec, kv_format: NumberFormat, layout: Layout = SINGLE, entries: Entries = PLAIN_ENTRIES
) -> CacheLayout:
    """Describe the cache of a model on one rank of a tensor- and context-parallel group (pipeline stages are not cut here).

    Groups that keep the same are joined.
    """
    terms: dict[CacheTerm, int] = {}
    states: dict[int, int] = {}
    for group in model.layers:
        for mixer in group.attention:
            size = state_bytes(mixer, layout.tp, entries.state_bits)
            if size:
                states[size] = states.get(size, 0) + group.count
            for term in mixer_terms(mixer, 0, layout.tp, entries, kv_format.name):
                terms[term] = terms.get(term, 0) + group.count
    return CacheLayout(
        tuple(replace(term, layers=layers, ranks=layout.cp) for term, layers in terms.items()),
        tuple(StateTerm(layers, size) for size, layers in states.items()),
        kv_format,
    )


def chunk_live_tokens(position: int, chunk: int) -> int:
    """Tokens that chunked local attention still needs at a 0-based position: (t mod C) + 1, on average (C + 1) / 2 (formula F3.4)."""
    return position % chunk + 1


def evicted_live_tokens(context: int, fraction: float) -> int:
    """Tokens that an eviction policy keeps of a context: floor(f L), recent and heavy ones together, at least the newest (F3.6; H2O).

    Rounded before it is cut, so that 0.29 of 100 tokens are 29 in spite of binary fractions.
    """
    return max(min(1, context), int(round(context * fraction, 6)))


def sink_live_tokens(context: int, sinks: int, recent: int) -> int:
    """Tokens kept with attention sinks and a recent window: min(L, s + w), constant in the end (formula F3.6; arXiv 2309.17453)."""
    return min(context, sinks + recent)
