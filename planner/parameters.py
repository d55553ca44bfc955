"""Counting weights: one list of matrices per layer, from which totals, bytes, and the operators of a step follow.

Sources: formulas F2.1 to F2.4 and F4.2, F4.3; DeepSeek-V3 inference/model.py for MLA; the published totals in the tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..models.spec import (
    Attention,
    CompressedAttention,
    CrossAttention,
    LatentAttention,
    Mlp,
    Moe,
    Recurrent,
)
from .parallel import SINGLE, Layout, divided, kv_heads_per_rank

if TYPE_CHECKING:
    from ..engines.profile import ExpertPadding
    from ..engines.spec import TensorClass
    from ..models.spec import FeedForward, Indexer, LayerGroup, Mixer, ModelSpec
    from .formats import Formats


@dataclass(frozen=True, slots=True)
class Matrix:
    """``copies`` matrices of ``inputs`` x ``outputs``; a token is multiplied by ``used`` of them (experts), else by all."""

    name: str
    kind: TensorClass
    inputs: int
    outputs: int
    copies: int = 1
    used: int | None = None

    @property
    def parameters(self) -> int:
        """Number of stored parameters."""
        return self.inputs * self.outputs * self.copies

    @property
    def active_parameters(self) -> int:
        """Number of parameters that one token is multiplied by."""
        return self.inputs * self.outputs * (self.copies if self.used is None else self.used)


@dataclass(frozen=True, slots=True)
class Tensors:
    """The tensors of one mixer, feed-forward part or layer: its matrices, and how many parameters stand in small vectors.

    ``idle_vectors`` are those of them that belong to routed experts which a token does not use.
    """

    matrices: tuple[Matrix, ...]
    vectors: int = 0
    idle_vectors: int = 0

    def __add__(self, other: Tensors) -> Tensors:
        """Join the tensors of two parts."""
        idle = self.idle_vectors + other.idle_vectors
        return Tensors(self.matrices + other.matrices, self.vectors + other.vectors, idle)


def mixer_tensors(mixer: Mixer, hidden: int, layout: Layout = SINGLE) -> Tensors:
    """Tensors of a mixer on one rank.

    Heads are divided over the tensor-parallel ranks; KV heads are copied where there are fewer heads than ranks; the latent projections of
    MLA and the indexer are replicated.
    """
    match mixer:
        case Attention():
            return _attention(mixer, hidden, layout.tp)
        case LatentAttention():
            return _latent(mixer, hidden, layout.tp)
        case CompressedAttention():
            return _compressed(mixer, hidden, layout.tp)
        case CrossAttention():
            return _cross(mixer, hidden, layout.tp)
        case Recurrent():
            return _recurrent(mixer, hidden, layout.tp)


def _attention(a: Attention, hidden: int, tp: int) -> Tensors:
    heads, kv_heads = a.num_heads // tp, kv_heads_per_rank(a.num_kv_heads, tp)
    queries = heads * a.head_dim
    keys = kv_heads * a.head_dim if "k" in a.projections else 0
    values = kv_heads * a.value_dim if "v" in a.projections else 0
    bias = (queries + keys + values if a.qkv_bias else 0) + (hidden if a.out_bias else 0)
    gains = {False: 0, True: a.head_dim * (2 if keys else 1), "full": queries + keys}[a.qk_norm]
    gate = queries if a.output_gate else 0
    tensors = Tensors(
        (
            Matrix("qkv", "attention", hidden, queries + gate + keys + values),
            Matrix("o", "attention", heads * a.value_dim, hidden),
        ),
        bias + gains + (heads if a.sinks else 0),
    )
    if a.indexer is None or a.indexer.shared:
        return tensors
    width = a.indexer.head_dim
    index = Matrix(
        "index_qk", "attention", hidden, (a.indexer.num_heads + 1) * width
    )  # queries, one key; a norm on each
    return tensors + Tensors((index,), 2 * width)


def _latent(a: LatentAttention, hidden: int, tp: int) -> Tensors:
    heads = a.num_heads // tp
    queries = heads * (a.qk_nope_head_dim + a.qk_rope_head_dim)
    if a.q_lora_rank is None:
        query = Tensors((Matrix("q", "attention", hidden, queries),))
    else:
        down, up = Matrix("q_a", "attention", hidden, a.q_lora_rank), Matrix("q_b", "attention", a.q_lora_rank, queries)
        query = Tensors((down, up), a.q_lora_rank)
    gate = (Matrix("gate", "attention", hidden, heads * a.v_head_dim),) if a.output_gate else ()
    latent = Tensors(
        (
            *gate,
            Matrix("kv_a", "attention", hidden, a.kv_lora_rank + a.qk_rope_head_dim),
            Matrix("kv_b", "attention", a.kv_lora_rank, heads * (a.qk_nope_head_dim + a.v_head_dim)),
            Matrix("o", "attention", heads * a.v_head_dim, hidden),
        ),
        a.kv_lora_rank,
    )
    return query + latent + _indexer(a.indexer, hidden, a.q_lora_rank or 0)


def _indexer(indexer: Indexer | None, hidden: int, q_lora_rank: int) -> Tensors:
    """Query, key (with a norm of gain and bias) and head-weight projections of a sparse-attention indexer; replicated."""
    if indexer is None or indexer.shared:
        return Tensors(())
    return Tensors(
        (
            Matrix("index_q", "attention", q_lora_rank, indexer.num_heads * indexer.head_dim),
            Matrix("index_k", "attention", hidden, indexer.head_dim),
            Matrix("index_weights", "attention", hidden, indexer.num_heads),
        ),
        2 * indexer.head_dim,
    )


def _compressed(a: CompressedAttention, hidden: int, tp: int) -> Tensors:
    heads = a.num_heads // tp
    low_rank = Tensors(
        (
            Matrix("q_a", "attention", hidden, a.q_lora_rank),
            Matrix("q_b", "attention", a.q_lora_rank, heads * a.head_dim),
            Matrix("kv", "attention", hidden, a.head_dim),
            # Each output group has its own projection of its heads: together as many parameters as heads x head_dim x rank.
            Matrix("o_a", "attention", heads * a.head_dim, a.output_rank),
            Matrix("o_b", "attention", divided(a.output_groups, tp) * a.output_rank, hidden),
        ),
        a.q_lora_rank + a.head_dim + heads,
    )
    compressor = _compressor("compress", hidden, a.head_dim, a.ratio, 2 if a.overlap else 1)
    if a.indexer is None:
        return low_rank + compressor
    indexer = Tensors(
        (
            Matrix("index_q", "attention", a.q_lora_rank, a.indexer.num_heads * a.indexer.head_dim),
            Matrix("index_weights", "attention", hidden, a.indexer.num_heads),
        )
    )
    return low_rank + compressor + indexer + _compressor("index_compress", hidden, a.indexer.head_dim, a.ratio, 2)


def _compressor(name: str, hidden: int, width: int, ratio: int, overlap: int) -> Tensors:
    """Value and gate projections, one learned position per token of a block, and a norm."""
    if not ratio:
        return Tensors(())
    return Tensors((Matrix(name, "attention", hidden, 2 * overlap * width),), ratio * overlap * width + width)


def _cross(a: CrossAttention, hidden: int, tp: int) -> Tensors:
    heads, kv_heads = a.num_heads // tp, kv_heads_per_rank(a.num_kv_heads, tp)
    queries, keys = heads * a.head_dim, kv_heads * a.head_dim
    return Tensors(
        (
            Matrix("cross_q", "attention", hidden, queries),
            Matrix(
                "cross_kv", "attention", a.source_size or hidden, 2 * keys, used=0
            ),  # once per memory, not per token
            Matrix("cross_o", "attention", queries, hidden),
        ),
        (queries + 2 * keys + hidden if a.bias else 0) + (2 * a.head_dim if a.qk_norm else 0),
    )


def _recurrent(r: Recurrent, hidden: int, tp: int) -> Tensors:
    """Projections lose their inner side to the ranks: outputs of those that leave hidden_size, inputs of those that return to it."""
    matrices = []
    for p in r.projections:
        inwards = p.outputs == hidden and p.inputs != hidden
        inputs, outputs = (divided(p.inputs, tp), p.outputs) if inwards else (p.inputs, divided(p.outputs, tp))
        matrices.append(Matrix(p.name, "attention", inputs, outputs))
    convolution = r.convolution
    taps = convolution.channels * (convolution.kernel + convolution.bias) if convolution else 0
    return Tensors(tuple(matrices), divided(taps, tp) + r.vectors)


def feed_forward_tensors(part: FeedForward, hidden: int, layout: Layout = SINGLE) -> Tensors:
    """Tensors of a feed-forward part on one rank: widths are divided over the tensor ranks, experts over the expert ranks."""
    if isinstance(part, Mlp):
        return _mlp("", "mlp", hidden, divided(part.intermediate_size, layout.tp), gated=part.gated, bias=part.bias)
    return _moe(part, hidden, layout)


def _mlp(prefix: str, kind: TensorClass, hidden: int, width: int, *, gated: bool, bias: bool = False) -> Tensors:
    up = Matrix(f"{prefix}{'gate_up' if gated else 'up'}", kind, hidden, width * (1 + gated))
    down = Matrix(f"{prefix}down", kind, width, hidden)
    return Tensors((up, down), width * (1 + gated) + hidden if bias else 0)


def _moe(moe: Moe, hidden: int, layout: Layout) -> Tensors:
    """Router (replicated), routed experts, the projections around a latent width, and the shared expert."""
    experts = divided(moe.num_experts, layout.ep)
    width = divided(moe.intermediate_size, layout.expert_cut)
    inner = moe.latent_size or hidden
    up = width * (1 + moe.gated)
    bias = up + inner if moe.expert_bias else 0
    routed = Tensors(
        (
            Matrix("router", "router", hidden, moe.num_experts),
            Matrix("experts.up", "experts", inner, up, experts, moe.experts_per_token),
            Matrix("experts.down", "experts", width, inner, experts, moe.experts_per_token),
        ),
        moe.num_experts * (moe.router_bias + moe.correction_bias) + experts * bias,
        (experts - moe.experts_per_token) * bias,
    )
    if moe.latent_size:
        down, up_again = Matrix("latent_down", "mlp", hidden, inner), Matrix("latent_up", "mlp", inner, hidden)
        routed += Tensors((down, up_again), inner if moe.latent_norm else 0)
    if moe.shared is None:
        return routed
    shared = _mlp("shared.", "mlp", hidden, divided(moe.shared.intermediate_size, layout.tp), gated=moe.gated)
    gate = Tensors((Matrix("shared.gate", "router", hidden, 1),)) if moe.shared.gate else Tensors(())
    return routed + shared + gate


def layer_tensors(layer: LayerGroup, model: ModelSpec, layout: Layout = SINGLE) -> Tensors:
    """Tensors of one layer of a group on one rank, norms included."""
    tensors = Tensors((), layer.norms * _norm_size(model))
    for mixer in layer.attention:
        tensors += mixer_tensors(mixer, model.hidden_size, layout)
    for part in layer.mlp:
        tensors += feed_forward_tensors(part, model.hidden_size, layout)
    return tensors


def _norm_size(model: ModelSpec) -> int:
    return model.hidden_size * (2 if model.norm_bias else 1)


def head_matrix(model: ModelSpec, layout: Layout = SINGLE) -> Matrix:
    """The output head on one rank: the vocabulary is divided over the tensor ranks."""
    return Matrix("head", "head", model.table_width, divided(model.vocab_size, layout.tp))


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Parameters of the language model, by tensor class.

    ``total`` counts a tied head once and leaves out vision parts and draft layers; ``active`` is the total minus the routed experts that
    a token does not use (input table and head included); ``multiplied`` is N_mm: the matrices that every generated token meets.
    """

    by_class: dict[TensorClass, int]
    active: int
    multiplied: int

    @property
    def total(self) -> int:
        """All parameters."""
        return sum(self.by_class.values())

    @property
    def embedding(self) -> int:
        """Input table, learned positions, and the head where it is its own matrix."""
        return self.by_class["embedding"] + self.by_class["head"]


def count_parameters(model: ModelSpec) -> ParameterCount:
    """Count the parameters of a model (formulas F2.1 to F2.4)."""
    by_class: dict[TensorClass, int] = dict.fromkeys(
        ("attention", "mlp", "experts", "router", "norm", "embedding", "head", "other"), 0
    )
    unused = multiplied = 0
    for layer in model.layers:
        tensors = layer_tensors(layer, model)
        for matrix in tensors.matrices:
            by_class[matrix.kind] += layer.count * matrix.parameters
            unused += layer.count * (matrix.parameters - matrix.active_parameters) if matrix.kind == "experts" else 0
            multiplied += layer.count * matrix.active_parameters
        unused += layer.count * tensors.idle_vectors
        by_class["norm"] += layer.count * tensors.vectors
    table = model.vocab_size * model.table_width
    by_class["embedding"] = table + model.learned_positions * model.hidden_size
    by_class["head"] = 0 if model.tied_embeddings else table
    by_class["norm"] += model.final_norms * _norm_size(model) + (model.vocab_size if model.head_bias else 0)
    by_class["other"] = sum(other.count for other in model.other_parameters)
    total = sum(by_class.values())
    return ParameterCount(by_class, total - unused, multiplied + table)


def stored_bytes(
    model: ModelSpec, formats: Formats, layout: Layout = SINGLE, padding: tuple[ExpertPadding, ...] = ()
) -> int:
    """Bytes of the weights that the fullest device stores (formula F4.2)."""
    return max(stage_bytes(model, formats, layout, padding))


def stage_bytes(
    model: ModelSpec, formats: Formats, layout: Layout = SINGLE, padding: tuple[ExpertPadding, ...] = ()
) -> tuple[int, ...]:
    """Bytes of the weights on a rank of each pipeline stage: one stage, or the first, those between (where there are any), and the last.

    Stages get ceil(layers / pp) layers of average size, the first one also the table, the last one the head: known to be inexact for models
    whose layers differ much in size.
    """
    per_class = _rank_parameters(model, layout)
    table = model.table_width * divided(model.vocab_size, layout.tp)
    positions = model.learned_positions * model.hidden_size
    front: dict[TensorClass, int] = {"embedding": table + positions}
    back: dict[TensorClass, int] = {
        "head": table,
        "norm": model.final_norms * _norm_size(model) + (model.vocab_size if model.head_bias else 0),
    }
    other = sum(other.count for other in model.other_parameters)
    beside = _bytes({"other": other}, formats) + loaded_beside_bytes(model, formats)
    layers = _bytes(per_class, formats) + _padding_bytes(model, formats, layout, padding)
    if layout.pp == 1:
        ends = _bytes(front, formats) + _bytes({"norm": back["norm"]}, formats)
        ends += 0 if model.tied_embeddings else _bytes({"head": back["head"]}, formats)
        return (layers + ends + beside,)
    share = divided(model.num_layers, layout.pp)
    stage = -(-layers * share // model.num_layers)
    first = stage + _bytes(front, formats) + beside
    # The last stage of a tied model holds a copy of the table as its head.
    return (first, *[stage] * min(1, layout.pp - 2), stage + _bytes(back, formats))


def _padding_bytes(model: ModelSpec, formats: Formats, layout: Layout, padding: tuple[ExpertPadding, ...]) -> int:
    """Bytes that an engine adds to experts in some format when it pads their matrices on a rank."""
    stored = formats.weights["experts"]
    rule = next((rule for rule in padding if rule.format == stored.name), None)
    if rule is None:
        return 0
    elements = 0
    for layer in model.layers:
        for part in layer.mlp:
            if isinstance(part, Moe):
                width, inner = divided(part.intermediate_size, layout.expert_cut), part.latent_size or model.hidden_size
                padded = divided(width, rule.width) * rule.width * divided(inner, rule.hidden) * rule.hidden
                matrices = layer.count * divided(part.num_experts, layout.ep) * (2 + part.gated)
                elements += matrices * (padded - width * inner)
    return stored.bytes_of(elements)


def loaded_beside_bytes(model: ModelSpec, formats: Formats) -> int:
    """Bytes of what a server loads beside the language model: towers as a checkpoint stores them, else as the spec counts them."""
    stored = [part.bytes for part in model.checkpoint if part.kind == "vision"]
    counted = sum(part.parameters for part in model.parts if part.loaded)
    return sum(stored) if stored else formats.weights["other"].bytes_of(counted)


def _rank_parameters(model: ModelSpec, layout: Layout) -> dict[TensorClass, int]:
    per_class: dict[TensorClass, int] = {}
    for layer in model.layers:
        tensors = layer_tensors(layer, model, layout)
        for matrix in tensors.matrices:
            per_class[matrix.kind] = per_class.get(matrix.kind, 0) + layer.count * matrix.parameters
        per_class["norm"] = per_class.get("norm", 0) + layer.count * tensors.vectors
    return per_class


def _bytes(per_class: dict[TensorClass, int], formats: Formats) -> int:
    return sum(formats.weights[kind].bytes_of(count) for kind, count in per_class.items())
