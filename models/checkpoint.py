"""Which class each tensor of a Hugging Face checkpoint belongs to, and how many weights a packed one holds.

Names decide, since a header has nothing else: the rules below cover the spellings of transformers and of the first releases. Bytes are
exact in any case; a tensor that no rule knows is of the class "other".

Parameters are logical weights: two to a byte or eight to a 32-bit word where 4-bit weights are packed, and none for scales, zero points
and the like. Counting elements instead, as the hub's page does, is wrong by two for such repositories.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from .tensors import stored_by_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .safetensors import Tensor
    from .spec import ModelSpec
    from .tensors import StoredKind


def with_tensors(spec: ModelSpec, tensors: Iterable[Tensor]) -> ModelSpec:
    """Give a spec the checkpoint that these tensors are."""
    by_name = {tensor.name: tensor for tensor in tensors}
    table = next((t.shape for name, t in by_name.items() if _TABLE.search(name) and not _VISION.search(name)), ())
    stored = stored_by_class(
        (_kind(tensor, spec, table, by_name), parameters_of(tensor, by_name), tensor.bytes, tensor.dtype)
        for tensor in by_name.values()
    )
    return replace(spec, checkpoint=stored)


# ------------------------------------------------------------------------------------------------ classes


def _rule(*parts: str) -> re.Pattern[str]:
    return re.compile("|".join(parts))


_VISION = _rule(
    r"(^|\.)(vision|visual|audio|vit|image|sam|mm|multi_modal|speech)\w*\.",
    r"(^|\.)(embed_vision|embed_audio|patch_merger|mlp1|projector)\.",
    r"(^|\.)(image_newline|view_seperator)$",
)
_MTP = _rule(r"(^|\.)(mtp|nextn|eagle|draft)\w*\.")
_BUFFER = _rule(r"(masked_bias|inv_freq|position_ids|causal_mask)$", r"(^|\.)rotary\w*\.")
_MASK = _rule(r"(^|\.)(attn|attention|self_attn|self_attention)\.bias$")  # of two sides or more: a vector is a bias
_TABLE = _rule(r"(^|\.)(embed_tokens|wte|word_embeddings|tok_embeddings|embed_in|embeddings?)\.weight$")
_POSITIONS = _rule(r"(^|\.)(wpe|embed_positions|position_embeddings?)\.")
_HEAD = _rule(r"(^|\.)(lm_head|embed_out)\.", r"^output\.weight$")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.([0-9]{1,6})\.")
_CLASSES: tuple[tuple[re.Pattern[str], StoredKind], ...] = (
    (_rule(r"per_layer", r"altup", r"laurel", r"(^|\.)hc_"), "other"),
    (
        _rule(r"(^|\.)(router|shared_expert_gate)\.", r"\.(mlp|moe|ffn|block_sparse_moe|feed_forward|mixer)\.gate\."),
        "router",
    ),
    (
        _rule(r"(norm\w*|ln_\w+|ln\d?|layernorm\w*)\.(weight|gamma)$", r"conv1d\.", r"\.(A_log|D|dt_bias|sinks|A)$"),
        "norm",
    ),
    (_rule(r"shared_(expert|mlp)"), "mlp"),
    (_rule(r"\.experts?[._]", r"block_sparse_moe\.(input|output)_linear"), "experts"),
    (_rule(r"\.mixer\.(up|down|gate)_proj", r"\.(mlp|feed_forward|ffn|moe|block_sparse_moe)\.", r"\.fc[12]\."), "mlp"),
    (
        _rule(r"attn", r"attention", r"mixer\.", r"mamba", r"\.(linear_attn|indexer|temporal_block|recurrent)\."),
        "attention",
    ),
)


def _kind(tensor: Tensor, spec: ModelSpec, table: tuple[int, ...], others: Mapping[str, Tensor]) -> StoredKind:
    """The class of a tensor; small vectors (biases, gains, taps, decays) count as norms, as they do in a spec."""
    beside = _beside_the_model(tensor, spec.num_layers) or _table_or_head(tensor, spec, table)
    return beside or _inside_a_layer(tensor, helps=_is_scale(tensor.name, others))


def _beside_the_model(tensor: Tensor, num_layers: int) -> StoredKind | None:
    """Towers, draft layers (which stand behind the last layer), masks and rotary tables."""
    if _VISION.search(tensor.name):
        return "vision"
    if _BUFFER.search(tensor.name) or (_MASK.search(tensor.name) and len(tensor.shape) > 1):
        return "buffer"
    layer = None if "encoder." in tensor.name else _LAYER.search(tensor.name)
    return "mtp" if _MTP.search(tensor.name) or (layer and int(layer[1]) >= num_layers) else None


def _table_or_head(tensor: Tensor, spec: ModelSpec, table: tuple[int, ...]) -> StoredKind | None:
    """Input tables and the head; a head that is as large as the table it is tied to is a second copy of it."""
    if _HEAD.search(tensor.name):
        is_copy = spec.tied_embeddings and tensor.shape == table
        return "duplicate" if is_copy else "norm" if tensor.name.endswith(".bias") else "head"
    return "embedding" if _TABLE.search(tensor.name) or _POSITIONS.search(tensor.name) else None


def _inside_a_layer(tensor: Tensor, *, helps: bool) -> StoredKind:
    """By the first rule that fits; what helps to read other weights goes with them, however small it is."""
    is_bias = tensor.name.endswith((".bias", "_bias"))
    is_vector = not helps and (len(tensor.shape) <= 1 or is_bias)
    known: StoredKind = next((kind for pattern, kind in _CLASSES if pattern.search(tensor.name)), "other")
    return "norm" if is_vector and (is_bias or known != "router") else known


# ------------------------------------------------------------------------------------------------ packed weights

_SCALE = _rule(
    r"(?<!per_expert)_(scale|scales|scale_inv|scale_2|zero_point)$",
    r"\.(scales|qzeros|g_idx|weight_shape|absmax|nested_absmax|quant_map|nested_quant_map|input_amax)$",
    r"\.quant_state\.",
)


def _is_scale(name: str, others: Mapping[str, Tensor]) -> bool:
    """Whether a tensor only helps to read another one: scales, zero points, orders and shapes of groups."""
    if name.endswith(".scale"):  # some routers have a gain of this name
        return f"{name.removesuffix('scale')}weight" in others
    return _SCALE.search(name) is not None


def parameters_of(tensor: Tensor, others: Mapping[str, Tensor]) -> int:
    """Count the weights of a tensor; ``others`` are all tensors of the checkpoint by name."""
    if _is_scale(tensor.name, others):
        return 0
    if tensor.name.endswith("qweight"):
        return tensor.elements * _packed_in_words(tensor, others)
    return tensor.elements * (_packed_in_bytes(tensor, others) if tensor.dtype in _PACKED else 1)


_PACKED = {"U8", "I8", "I32", "U32"}
_HELPERS = ("_scale", "_scale_2", "_scale_inv", ".absmax")


def _packed_in_bytes(tensor: Tensor, others: Mapping[str, Tensor]) -> int:
    """How many 4-bit weights an element holds: two a byte, eight a word, as far as names and helpers tell that it is packed."""
    name = tensor.name
    if name.endswith("_packed"):  # compressed-tensors
        return 8 if tensor.dtype in {"I32", "U32"} else 2
    if name.endswith("_blocks"):  # gpt-oss
        return 2 if f"{name.removesuffix('blocks')}scales" in others else 1
    if tensor.dtype == "U8":  # ModelOpt's NVFP4, bitsandbytes
        return 2 if any(f"{name}{helper}" in others for helper in _HELPERS) else 1
    scale = others.get(f"{name.removesuffix('weight')}scale")
    return 2 if tensor.dtype == "I8" and scale is not None and scale.dtype == "F8_E8M0" else 1  # DeepSeek-V4


def _packed_in_words(tensor: Tensor, others: Mapping[str, Tensor]) -> int:
    """How many weights a 32-bit word of AWQ (packed along the outputs) or GPTQ (along the inputs) holds; eight if nothing tells."""
    stem = tensor.name.removesuffix("qweight")
    scales, order = others.get(f"{stem}scales"), others.get(f"{stem}g_idx")
    inputs, outputs = tensor.shape if len(tensor.shape) == 2 else (0, 0)
    by_outputs = scales.shape[-1] / outputs if scales is not None and scales.shape and outputs else 0
    by_inputs = order.elements / inputs if order is not None and inputs else 0
    return next((int(count) for count in (by_outputs, by_inputs) if count in _PER_WORD), 8)


_PER_WORD = {4, 8, 16}  # 8, 4 and 2 bits
