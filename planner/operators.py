"""The operators of one step of a deployment on one rank, made from its model's layers.

Known to be left out: the bytes of rotary embedding and activation functions (their launches are counted), the gather of logits over
ranks; a window's edge inside a chunk is exact, the border of chunked attention is taken at its upper bound.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..models.spec import Attention, CompressedAttention, CrossAttention, LatentAttention, Moe, Recurrent
from .costs import (
    ActivationTraffic,
    Collective,
    Elementwise,
    Experts,
    Gemm,
    LatentScores,
    LayerFloor,
    Operator,
    Scores,
    StateUpdate,
)
from .flop import recurrent_flop
from .kv_cache import RECENT_BYTES, mixer_terms, state_bytes
from .parallel import all_reduce_bytes, all_to_all_bytes
from .parameters import feed_forward_tensors, head_matrix, mixer_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..models.spec import FeedForward, Indexer, LayerGroup, Mixer
    from .deployment import Deployment
    from .kv_cache import CacheTerm
    from .parameters import Matrix

_NORM_FLOP = 4  # per element: square, add, scale, gain (formula F1.9)


def build_operators(d: Deployment) -> tuple[Operator, ...]:
    """List the operators of a step of this deployment on one rank, in the order of a layer, equal ones of all layers joined.

    Pipeline stages are not cut here: a token passes all of them, so the list is that of the whole depth.
    """
    merged: dict[object, list[Operator]] = {}
    for operator in _all_operators(d):
        merged.setdefault(_merge_key(operator), []).append(operator)
    return tuple(_merge(same) for same in merged.values())


def _all_operators(d: Deployment) -> Iterator[Operator]:
    activation = d.formats.activation_bytes
    yield Elementwise("embedding", "fp32", 0, 2 * d.model.hidden_size * activation, launches=1)
    for layer in d.model.layers:
        for mixer in layer.attention:
            yield from _mixer_operators(d, layer, mixer)
        for part in layer.mlp:
            yield from _feed_forward_operators(d, layer, part)
        yield _norm(d, layer.count * layer.norms)
        yield ActivationTraffic("passes", "layer", layer.count * d.model.hidden_size * activation)
        yield from _all_reduces(d, layer)
        yield from _context_exchanges(d, layer)
    yield _norm(d, d.model.final_norms)
    yield from _other_weights(d)
    yield _gemm(d, head_matrix(d.model, d.layout), 1, "logits")
    if d.layout.pp > 1:
        hops = d.layout.pp - 1
        message = d.model.hidden_size * activation
        yield Collective("stage hop", "send", d.layout.tp * d.layout.cp * d.layout.pp, hops, hops * message, message)


def _gemm(d: Deployment, matrix: Matrix, layers: int, rows: Literal["tokens", "logits"] = "tokens") -> Gemm:
    formats = d.formats
    weight_format = formats.weights["embedding" if matrix.kind == "head" and d.model.tied_embeddings else matrix.kind]
    return Gemm(
        matrix.name,
        formats.arithmetic(matrix.kind, d.hardware),
        2.0 * layers * matrix.inputs * matrix.outputs,
        layers * matrix.parameters * weight_format.bytes_per_element,
        layers * (matrix.inputs + matrix.outputs) * formats.activation_bytes,
        rows,
        launches=layers,
    )


def _norm(d: Deployment, norms: int) -> Elementwise:
    """One read, one write and the gain vector (formula F1.9)."""
    hidden = d.model.hidden_size
    moved = 2 * hidden * d.formats.activation_bytes
    gain = hidden * d.formats.weights["norm"].bytes_per_element
    return Elementwise("norm", "fp32", _NORM_FLOP * norms * hidden, norms * moved, norms * gain, launches=norms)


def _other_weights(d: Deployment) -> Iterator[Gemm]:
    """What other parameters and loaded parts say is read in every step: a product with each, as far as is known of it."""
    read = sum(other.count for other in d.model.other_parameters if other.read_per_step)
    read += sum(part.parameters for part in d.model.parts if part.loaded and part.read_per_step)
    if read:
        weights = d.formats.weights["other"].bytes_per_element
        yield Gemm("other", d.formats.arithmetic("other", d.hardware), 2.0 * read, read * weights, 0, launches=1)


def _mixer_operators(d: Deployment, layer: LayerGroup, mixer: Mixer) -> Iterator[Operator]:
    for matrix in mixer_tensors(mixer, d.model.hidden_size, d.layout).matrices:
        if matrix.used != 0:
            yield _gemm(d, matrix, layer.count)
    arithmetic = d.formats.attention_arithmetic(d.hardware)
    if isinstance(mixer, Recurrent):
        elements = layer.count * mixer.state.elements / d.layout.tp if mixer.state else 0
        kept = state_bytes(mixer, d.layout.tp, d.engine.entries.state_bits)
        yield StateUpdate("state", arithmetic, recurrent_flop(elements), layer.count * kept, layer.count)
        yield Elementwise("gates", arithmetic, 0, 0, launches=_RECURRENT_KERNELS * layer.count)
        yield LayerFloor("recurrence", "gated_delta", layer.count)
        return
    phases: tuple[Literal["decode", "prefill"], ...] = ("decode", "prefill")
    for phase in phases:
        yield from _scores(d, layer, mixer, phase, arithmetic)
    written = sum(
        term.layers * term.elements / term.every
        for term in mixer_terms(mixer, layer.count, d.layout.tp)
        if term.stored and term.fixed is None
    )
    yield Elementwise(
        "cache write",
        arithmetic,
        0,
        # A new entry is written in 16 bits where recent ones are kept so; that an older one is packed then is not counted.
        written * (RECENT_BYTES if d.formats.kv.recent else d.formats.kv.bytes_per_element),
        launches=layer.count * _kernels_beside(mixer),
    )
    if isinstance(mixer, LatentAttention):
        yield LayerFloor("latent", "latent", layer.count)
    if _chooses_entries(mixer):
        yield LayerFloor("index", "sparse_index", layer.count)


# Small kernels of a layer beside its products, as engines launch them within a captured graph: rotary embedding with the cache write, the
# norm of queries and keys, the norms and copies around latents, gates of a recurrence, the activation, routing and gathering of experts.
_LATENT_KERNELS = 4
_RECURRENT_KERNELS = 3
_ROUTING_KERNELS = 2


def _kernels_beside(mixer: Mixer) -> int:
    if isinstance(mixer, LatentAttention):
        return _LATENT_KERNELS
    return 1 + bool(getattr(mixer, "qk_norm", False))


def _chooses_entries(mixer: Mixer) -> bool:
    indexer = getattr(mixer, "indexer", None)
    return indexer is not None and not indexer.shared


def _scores(
    d: Deployment, layer: LayerGroup, mixer: Mixer, phase: Literal["decode", "prefill"], arithmetic: str
) -> Iterator[Operator]:
    activation, tp, layers = d.formats.activation_bytes, d.layout.tp, layer.count
    # Known to be inexact: what the others of a context group send of a prompt is not counted as read again from memory.
    share = 1 / d.layout.cp
    width, queries = _Width.of(d), share if phase == "prefill" else 1
    terms = mixer_terms(mixer, layers, tp)
    if isinstance(mixer, LatentAttention):
        yield _latent_scores(d, layers, mixer, phase, arithmetic, terms[0])
        yield from _index_scores(mixer.indexer, layers, phase, arithmetic, width, share)
        return
    heads, vector = _query_heads(mixer, tp)
    indexer = mixer.indexer if isinstance(mixer, (Attention, CompressedAttention)) else None
    for position, term in enumerate(term for term in terms if not term.index):
        # A compressed entry holds its index key too, which only the scorer reads.
        key = indexer.head_dim if indexer and isinstance(mixer, CompressedAttention) and term.reads else 0
        yield Scores(
            f"attention {phase}",
            arithmetic,
            phase,
            2.0 * layers * heads * vector * share,
            layers * (term.elements - key) * width.packed,
            layers * heads * vector * activation * queries if position == 0 else 0,
            cap=min(term.window or math.inf, term.reads * term.every if term.reads else math.inf),
            kept=term.window or math.inf,
            every=term.every,
            fixed=term.fixed,
            launches=layers if position == 0 else 0,
            # A prompt attends to all of its tokens before any of them is evicted.
            share=term.share if phase == "decode" else 1,
            recent=width.recent,
            recent_bytes=layers * (term.elements - key) * width.wider,
        )
    every = mixer.ratio if isinstance(mixer, CompressedAttention) else 1
    yield from _index_scores(indexer, layers, phase, arithmetic, width, share, every)


class _Width(NamedTuple):
    """Bytes that an element of the cache adds to what a rank reads, by how much the last entries are wider, and how many they are."""

    packed: float
    wider: float
    recent: int

    @classmethod
    def of(cls, d: Deployment) -> _Width:
        kv, ranks = d.formats.kv, d.layout.cp
        packed = kv.bytes_per_element / ranks
        # Each rank of a context group keeps so many of its own (as :meth:`CacheLayout.bytes_per_sequence` counts them).
        return cls(packed, RECENT_BYTES / ranks - packed if kv.recent else 0.0, kv.recent * ranks)


def _index_scores(
    indexer: Indexer | None,
    layers: int,
    phase: Literal["decode", "prefill"],
    arithmetic: str,
    width: _Width,
    share: float,
    every: int = 1,
) -> Iterator[Scores]:
    """Scores of an indexer over the keys of all tokens (formula F2.9); the choice itself is not counted."""
    if indexer is not None and not indexer.shared:
        flop, elements = 2.0 * layers * indexer.num_heads * indexer.head_dim * share, layers * indexer.head_dim
        yield Scores(
            f"index {phase}",
            arithmetic,
            phase,
            flop,
            elements * width.packed,
            0,
            every=every,
            recent=width.recent,
            recent_bytes=elements * width.wider,
        )


def _query_heads(mixer: Mixer, tp: int) -> tuple[int, int]:
    """Query heads of one rank, and the width of a query and its output together."""
    match mixer:
        case Attention():
            return mixer.num_heads // tp, mixer.head_dim + mixer.value_dim
        case CompressedAttention() | CrossAttention():
            return mixer.num_heads // tp, 2 * mixer.head_dim
    raise TypeError(f"{type(mixer).__name__} has no query heads")


def _latent_scores(
    d: Deployment,
    layers: int,
    mixer: LatentAttention,
    phase: Literal["decode", "prefill"],
    arithmetic: str,
    term: CacheTerm,
) -> LatentScores:
    heads = mixer.num_heads // d.layout.tp
    expanded = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim
    rate = d.hardware.peak.rate(arithmetic)
    activation, share, width = d.formats.activation_bytes, 1 / d.layout.cp, _Width.of(d)
    return LatentScores(
        f"attention {phase}",
        arithmetic,
        phase,
        2.0 * layers * heads * (2 * mixer.kv_lora_rank + mixer.qk_rope_head_dim) * share,
        2.0 * layers * heads * expanded * share,
        2.0 * layers * mixer.kv_lora_rank * heads * (mixer.qk_nope_head_dim + mixer.v_head_dim) * share,
        2.0 * layers * heads * expanded * activation * share,
        layers * term.elements * width.packed,
        layers * heads * expanded * activation * (share if phase == "prefill" else 1),
        term.reads or math.inf,
        1 / (rate or math.inf),
        1 / d.hardware.memory.bandwidth,
        launches=layers,
        recent=width.recent,
        recent_bytes=layers * term.elements * width.wider,
    )


def _feed_forward_operators(d: Deployment, layer: LayerGroup, part: FeedForward) -> Iterator[Operator]:
    matrices = feed_forward_tensors(part, d.model.hidden_size, d.layout).matrices
    yield from (_gemm(d, matrix, layer.count) for matrix in matrices if matrix.kind != "experts")
    yield Elementwise("activation", "fp32", 0, 0, launches=layer.count)
    whole = [(matrix, matrix.name.rpartition(".")[2]) for matrix in matrices if matrix.kind == "mlp"]
    read = sum(matrix.outputs for matrix, name in whole if name in {"gate_up", "up"})
    written = sum(matrix.inputs for matrix, name in whole if name == "down")
    if read:
        yield ActivationTraffic("gate", "gate", layer.count * (read + written) * d.formats.activation_bytes)
    if not isinstance(part, Moe):
        return
    yield Elementwise("routing", "fp32", 0, 0, launches=_ROUTING_KERNELS * layer.count)
    yield LayerFloor("gather", "routing", layer.count)
    vectors = layer.count * part.experts_per_token * d.model.hidden_size * d.formats.activation_bytes
    yield ActivationTraffic("expert passes", "expert", vectors)
    routed = [matrix for matrix in matrices if matrix.kind == "experts"]
    one = sum(matrix.inputs * matrix.outputs for matrix in routed)
    moved = sum(matrix.inputs + matrix.outputs for matrix in routed)
    yield Experts(
        "experts",
        d.formats.arithmetic("experts", d.hardware),
        layer.count * routed[0].copies,
        2.0 * one,
        one * d.formats.weights["experts"].bytes_per_element,
        moved * d.formats.activation_bytes,
        part.experts_per_token / part.num_experts,
        d.layout.replicas_per_expert_group,
        launches=layer.count,
    )


def _all_reduces(d: Deployment, layer: LayerGroup) -> Iterator[Collective]:
    """One all-reduce after the mixers and one after the feed-forward parts; all-to-all where experts lie on other replicas."""
    tp, hidden, activation = d.layout.tp, d.model.hidden_size, d.formats.activation_bytes
    message = hidden * activation
    reduces = layer.count * (bool(layer.attention) + bool(layer.mlp))
    if tp > 1 and reduces:
        yield Collective("all-reduce", "all_reduce", tp, reduces, reduces * all_reduce_bytes(message, tp), message)
    if d.layout.replicas_per_expert_group > 1:
        for part in layer.mlp:
            if isinstance(part, Moe):
                sent = 2 * part.experts_per_token * all_to_all_bytes(message, d.layout.ep)
                routed = part.experts_per_token * message
                yield Collective("all-to-all", "alltoall", d.layout.ep, 2 * layer.count, layer.count * sent, routed)


def _context_exchanges(d: Deployment, layer: LayerGroup) -> Iterator[Collective]:
    """Ranks that divide the tokens: keys and values of prompts go once round the ring, partial outputs of decoding are merged (F12.6)."""
    cp, tp, layers = d.layout.cp, d.layout.tp, layer.count
    if cp == 1:
        return
    from .context_parallel import merge_bytes  # few deployments need it

    for mixer in layer.attention:
        entry = (
            sum(term.elements / term.every for term in mixer_terms(mixer, layers, tp)) * d.formats.kv.bytes_per_element
        )
        sent = layers * all_to_all_bytes(entry, cp)
        yield Collective("context ring", "send", cp, layers * (cp - 1), sent, entry / cp, of="attended")
        if isinstance(mixer, LatentAttention):
            heads, width = mixer.num_heads // tp, mixer.kv_lora_rank
        else:
            heads, width = _query_heads(mixer, tp)[0], _query_heads(mixer, tp)[1] // 2
        merged = merge_bytes(1, heads, width, cp, d.formats.activation_bytes)
        yield Collective("context merge", "alltoall", cp, layers, layers * merged, merged, of="decoded")


def _merge_key(operator: Operator) -> object:
    """Operators are joined when their costs add up: same name and arithmetic, and the same shape of their dependence on the load."""
    shape: tuple[object, ...] = ()
    if isinstance(operator, Scores):
        intensity = operator.flop_per_pair / operator.entry_bytes if operator.entry_bytes else 0
        shape = (operator.cap, operator.kept, operator.every, operator.share, operator.fixed, intensity)
    elif isinstance(operator, LatentScores):
        shape = (operator.cap, operator.absorbed_flop_per_pair / operator.entry_bytes)
    elif isinstance(operator, Experts):
        shape = (operator.share, operator.replicas, operator.flop_per_row)
    elif isinstance(operator, Gemm):
        shape = (operator.rows, operator.flop_per_row / operator.weight_bytes, _gemm_shape(operator))
    elif isinstance(operator, Collective):
        shape = (operator.of, operator.message_bytes)
    return (type(operator), operator.name, operator.arithmetic, *shape)


def _gemm_shape(gemm: Gemm) -> float:
    """Products of different shapes must stay apart: their maxima do not add up."""
    return gemm.activation_bytes_per_row / gemm.flop_per_row


_SUMMED = {
    Gemm: ("flop_per_row", "weight_bytes", "activation_bytes_per_row", "launches"),
    Experts: ("experts", "launches"),
    Scores: ("flop_per_pair", "entry_bytes", "query_bytes", "launches", "recent_bytes"),
    LatentScores: (
        "absorbed_flop_per_pair",
        "expanded_flop_per_pair",
        "expansion_flop",
        "expansion_bytes",
        "entry_bytes",
        "query_bytes",
        "launches",
        "recent_bytes",
    ),
    StateUpdate: ("flop_per_token", "state_bytes", "launches"),
    Elementwise: ("flop_per_token", "bytes_per_token", "fixed_bytes", "launches"),
    LayerFloor: ("launches",),
    ActivationTraffic: ("bytes_per_token",),
    Collective: ("count", "bytes_per_token"),
}


def _merge(same: list[Operator]) -> Operator:
    if len(same) == 1:
        return same[0]
    sums = {name: sum(getattr(operator, name) for operator in same) for name in _SUMMED[type(same[0])]}
    return replace(same[0], **sums)
