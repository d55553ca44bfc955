"""How large a GGUF file of a given file type (``Q4_K_M``) is: llama.cpp's recipe, applied to a model's shape.

A file type is a recipe per tensor and not a number of bits: the input table, the head, values and the second MLP matrix get other types
than the rest, and widths that a block does not divide fall back. The rules are data (``engines/ggml_mixes.yaml``); this file lists the
tensors of a model and applies them. A file's own header is exact and outranks what is computed here: publishers override single tensors.

Known to be inexact: layers that differ in shape are taken in the order of the spec's groups, not in that of the model; the few hundred
bytes of rotary factors, and the header (some megabytes, most of it the vocabulary), are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engines import ggml
from ..errors import SpecError
from .spec import Attention, Mlp, Moe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engines.ggml import Mix, Rule
    from ..engines.spec import TensorClass
    from .spec import FeedForward, LayerGroup, ModelSpec

_PLAIN = "F32"  # norms, biases, position tables and routers are never quantised; llama.cpp's converter writes them in 32 bits


@dataclass(frozen=True, slots=True)
class _Matrix:
    """``copies`` matrices with rows of ``width`` elements, as the files call them; layer None stands outside the layers."""

    tensor: str
    width: int
    rows: int
    copies: int = 1
    layer: int | None = None

    @property
    def kind(self) -> TensorClass:
        """The tensor class that it belongs to."""
        if self.layer is None:
            return "head" if self.tensor == "output" else "embedding"
        if self.tensor.startswith("attn"):
            return "attention"
        return "experts" if self.copies > 1 else "mlp"


@dataclass(frozen=True, slots=True)
class _Facts:
    """What rules ask about a model."""

    num_layers: int
    gqa: int
    experts: int
    imatrix: bool


def mix_bytes(spec: ModelSpec, mix_name: str, *, imatrix: bool = False) -> int:
    """Bytes of all tensors of a model in a file type; ``imatrix`` says that an importance matrix was used, which changes a few rules.

    Raises
    ------
    UnknownNameError : for a file type that llama.cpp does not have
    SpecError : for a model with parts that are not usual attention, MLPs and experts
    """
    matrices = sum(matrix_bytes_by_class(spec, mix_name, imatrix=imatrix).values())
    return matrices + ggml.types_by_name()[_PLAIN].bytes_of(_plain_elements(spec))


def matrix_bytes_by_class(spec: ModelSpec, mix_name: str, *, imatrix: bool = False) -> dict[TensorClass, int]:
    """Bytes of the matrices of a model in a file type, by tensor class; everything else is in 32 bits.

    Raises
    ------
    UnknownNameError : for a file type that llama.cpp does not have
    SpecError : for a model with parts that are not usual attention, MLPs and experts
    """
    mix, facts = ggml.mixes().named(mix_name), _facts(spec, imatrix)
    by_class: dict[TensorClass, int] = {}
    for matrix in _matrices(spec):
        kind = matrix.kind
        by_class[kind] = by_class.get(kind, 0) + _matrix_bytes(matrix, mix, facts, tied=spec.tied_embeddings)
    return by_class


def _facts(spec: ModelSpec, imatrix: bool) -> _Facts:
    mixers = [mixer for group in spec.layers for mixer in group.attention if isinstance(mixer, Attention)]
    moes = [part for group in spec.layers for part in group.mlp if isinstance(part, Moe)]
    return _Facts(
        num_layers=spec.num_layers,
        gqa=mixers[0].num_heads // mixers[0].num_kv_heads if mixers else 1,
        experts=moes[0].num_experts if moes else 0,
        imatrix=imatrix,
    )


# ------------------------------------------------------------------------------------------------ types


def _matrix_bytes(matrix: _Matrix, mix: Mix, facts: _Facts, *, tied: bool) -> int:
    types = ggml.types_by_name()
    chosen = types[_type_of(matrix, mix, facts, tied=tied)]
    if matrix.width % chosen.elements:
        chosen = types[_fallback(matrix, chosen.name)]
    return chosen.bytes_of(matrix.width) * matrix.rows * matrix.copies


def _fallback(matrix: _Matrix, wanted: str) -> str:
    narrower = ggml.mixes().fallbacks.get(wanted)
    if narrower is None:
        raise SpecError(
            matrix.tensor, got=f"a width of {matrix.width}", wanted=f"one that the blocks of {wanted} divide"
        )
    return narrower if matrix.width % ggml.types_by_name()[narrower].elements == 0 else "F16"


def _type_of(matrix: _Matrix, mix: Mix, facts: _Facts, *, tied: bool) -> str:
    if matrix.tensor == "output" or (matrix.tensor == "token_embd" and tied):
        divides = matrix.width % ggml.types_by_name()[mix.base].elements == 0
        return (mix.head or ggml.mixes().head) if divides else ggml.mixes().indivisible_head
    if matrix.tensor == "token_embd":
        return mix.table or mix.base
    if mix.expert_type and matrix.copies > 1:
        return mix.expert_type
    chosen = next((rule.type for rule in mix.rules if _fits(rule, matrix, facts)), mix.base)
    for rule in ggml.mixes().raised if mix.raised and _quantised(mix.base) else ():
        if _fits(rule, matrix, facts) and (not rule.only or chosen in rule.only):
            chosen = rule.type
    return chosen


def _quantised(name: str) -> bool:
    return ggml.types_by_name()[name].elements > 1


def _fits(rule: Rule, matrix: _Matrix, facts: _Facts) -> bool:
    return (
        rule.tensor == matrix.tensor
        and (rule.min_gqa is None or facts.gqa >= rule.min_gqa)
        and (rule.imatrix is None or facts.imatrix == rule.imatrix)
        and (rule.experts is None or facts.experts == rule.experts)
        and (rule.min_experts is None or facts.experts >= rule.min_experts)
        and (rule.model_layers is None or facts.num_layers == rule.model_layers)
        and (rule.layers is None or matrix.layer is None or _in_layers(rule.layers, matrix.layer, facts.num_layers))
    )


def _in_layers(which: str, layer: int, count: int) -> bool:
    """Whether a layer is one of those that a rule is about; all divisions are whole, as in llama.cpp.

    >>> [layer for layer in range(16) if _in_layers("more", layer, 16)]
    [0, 1, 4, 7, 10, 13, 14, 15]
    """
    first, last = count // 8, 7 * count // 8
    match which.partition("-"):
        case ("more", _, _):
            return layer < first or layer >= last or (layer - first) % 3 == 2
        case ("middle", _, _):
            return first <= layer < last
        case ("first", _, number):
            return layer < int(number)
        case _:
            return layer < count // int(which.removeprefix("1/"))


# ------------------------------------------------------------------------------------------------ tensors


def _matrices(spec: ModelSpec) -> Iterator[_Matrix]:
    yield _Matrix("token_embd", spec.table_width, spec.vocab_size)
    if not spec.tied_embeddings:
        yield _Matrix("output", spec.table_width, spec.vocab_size)
    layer = 0
    for group in spec.layers:
        for _ in range(group.count):
            yield from _layer_matrices(group, spec.hidden_size, layer)
            layer += 1


def _layer_matrices(group: LayerGroup, hidden: int, layer: int) -> Iterator[_Matrix]:
    for mixer in group.attention:
        if not isinstance(mixer, Attention) or mixer.indexer:
            raise SpecError("file type", got=f"a {mixer.kind} layer", wanted="a model of usual attention", hint=_HINT)
        queries = mixer.num_heads * mixer.head_dim * (2 if mixer.output_gate else 1)
        yield _Matrix("attn_q", hidden, queries, layer=layer)
        if "k" in mixer.projections:
            yield _Matrix("attn_k", hidden, mixer.num_kv_heads * mixer.head_dim, layer=layer)
        if "v" in mixer.projections:
            yield _Matrix("attn_v", hidden, mixer.num_kv_heads * mixer.value_dim, layer=layer)
        yield _Matrix("attn_output", mixer.num_heads * mixer.value_dim, hidden, layer=layer)
    for part in group.mlp:
        yield from _feed_forward(part, hidden, layer)


_HINT = "the header of the file itself is exact"


def _feed_forward(part: FeedForward, hidden: int, layer: int) -> Iterator[_Matrix]:
    if isinstance(part, Mlp):
        yield from _mlp(hidden, part.intermediate_size, layer, gated=part.gated)
        return
    if part.latent_size:
        raise SpecError("file type", got="experts in a latent width", wanted="usual experts", hint=_HINT)
    yield from _mlp(hidden, part.intermediate_size, layer, gated=part.gated, copies=part.num_experts)
    if part.shared:
        yield from _mlp(hidden, part.shared.intermediate_size, layer, gated=part.gated)


def _mlp(hidden: int, width: int, layer: int, *, gated: bool, copies: int = 1) -> Iterator[_Matrix]:
    for name in ("ffn_gate", "ffn_up") if gated else ("ffn_up",):
        yield _Matrix(name, hidden, width, copies, layer)
    yield _Matrix("ffn_down", width, hidden, copies, layer)


def _plain_elements(spec: ModelSpec) -> int:
    """Elements that are never quantised: norms, biases, sinks, routers, and learned positions."""
    norm = spec.hidden_size * (2 if spec.norm_bias else 1)
    outside = spec.final_norms * norm + spec.learned_positions * spec.hidden_size
    outside += spec.vocab_size if spec.head_bias else 0
    return outside + sum(
        group.count * (group.norms * norm + _plain_in_layer(group, spec.hidden_size)) for group in spec.layers
    )


def _plain_in_layer(group: LayerGroup, hidden: int) -> int:
    total = 0
    for mixer in group.attention:
        if isinstance(mixer, Attention):
            queries, keys = mixer.num_heads * mixer.head_dim, mixer.num_kv_heads * mixer.head_dim
            values = mixer.num_kv_heads * mixer.value_dim
            total += (queries + keys + values) * mixer.qkv_bias + hidden * mixer.out_bias
            total += {False: 0, True: 2 * mixer.head_dim, "full": queries + keys}[mixer.qk_norm]
            total += mixer.num_heads * mixer.sinks
    for part in group.mlp:
        if isinstance(part, Moe):
            up = part.intermediate_size * (2 if part.gated else 1)
            total += part.num_experts * (hidden + part.router_bias + part.correction_bias)
            total += part.num_experts * (up + hidden) * part.expert_bias
            total += hidden if part.shared and part.shared.gate else 0
        elif part.bias:
            total += part.intermediate_size * (2 if part.gated else 1) + hidden
    return total
