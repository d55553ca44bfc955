"""From the header of a GGUF file to a ModelSpec: what its tensors and metadata keys mean.

Tensors decide what a layer consists of, and most widths; metadata says what tensors cannot: numbers of heads, windows, experts per token.
Where both speak, they must agree, as llama.cpp demands it too. Names: ggml-org/llama.cpp, gguf-py/gguf/constants.py.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import PurePath
from typing import TYPE_CHECKING

from ..documents import Document
from ..engines import ggml
from ..errors import SpecError, show
from ..specfiles import validate
from .config import MOST_LAYERS
from .gguf import Array
from .gguf_mixers import Block, Keys, Window, mixers_of
from .huggingface import grouped
from .spec import LayerGroup, Mlp, ModelSpec, Moe, OtherParameters, SharedExpert, Source
from .tensors import slug_of, stored_by_class

if TYPE_CHECKING:
    from .gguf import Header, Tensor
    from .spec import FeedForward
    from .tensors import StoredKind

_BLOCK = re.compile(r"blk\.([0-9]{1,5})\.(.+)", re.DOTALL)
_VISION = ("v.", "mm.", "a.", "resampler.")
_PLAIN_FORMATS = {"F16": "fp16", "F32": "fp32", "BF16": "bf16"}
_EXPANDED = "the file keeps kv_b in one piece (it is older than latent caches): llama.cpp caches expanded keys and values for it"
_NO_PATTERN = "the file has a sliding window but does not say for which layers, and roofplan does not know it: all layers count as full"


def spec_of(header: Header) -> ModelSpec:
    """Describe the model of a header.

    Raises
    ------
    SpecError : for a model whose parts roofplan does not know, or keys that are missing or contradict the tensors
    """
    keys = Keys(header, _architecture(header))
    blocks, outside = _sorted(keys)
    count = len(blocks) - (keys.optional("nextn_predict_layers") or 0)
    if count < 1:
        raise keys.error("nextn_predict_layers", got=len(blocks) - count, wanted=f"fewer than the {len(blocks)} blocks")
    try:
        spec = _spec(keys, blocks[:count], outside, count)
    except ValueError as error:  # a spec class refused what the file says
        raise SpecError(f"GGUF: {error}", where=header.name) from error
    return validate(ModelSpec, Document(asdict(spec), header.name))


def _architecture(header: Header) -> str:
    value = header.metadata.get("general.architecture")
    if not isinstance(value, str):
        raise SpecError("general.architecture", got="nothing", wanted="a text", where=header.name)
    return value


def _sorted(keys: Keys) -> tuple[list[Block], dict[str, Tensor]]:
    """Put the tensors of each block together; the rest by name."""
    count = keys.count("block_count", largest=MOST_LAYERS)
    inside: list[dict[str, Tensor]] = [{} for _ in range(count)]
    outside = {}
    for tensor in keys.header.tensors:
        match = _BLOCK.fullmatch(tensor.name)
        if match is None:
            outside[tensor.name] = tensor
        elif int(match[1]) < count:
            inside[int(match[1])][match[2]] = tensor
        else:
            raise keys.error("block_count", got=count, wanted=f"more, since there is a tensor {tensor.name}")
    if not any(inside) or "token_embd.weight" not in outside:
        hint = "projectors (mmproj), adapters and vocabularies are not models; encoder-decoder models are not read"
        got = f"no {'token_embd' if any(inside) else 'blk.*'} tensors in a file for {keys.architecture}"
        raise SpecError("GGUF", got=got, wanted="a language model", hint=hint, where=keys.header.name)
    return [Block(keys, number, tensors) for number, tensors in enumerate(inside)], outside


def _spec(keys: Keys, blocks: list[Block], outside: dict[str, Tensor], count: int) -> ModelSpec:
    hidden = keys.count("embedding_length")
    windows, assumed = _windows(keys, count)
    shared_from = count - (keys.optional("attention.shared_kv_layers") or 0)
    layers = [
        _layer(block, hidden, window, shares=block.number >= shared_from)
        for block, window in zip(blocks, windows, strict=True)
    ]
    table = outside["token_embd.weight"]
    width, rows = table.sides[0], table.parameters // table.sides[0]
    if any(block.has("attn_kv_b") and not block.has("attn_k_b") for block in blocks):
        assumed.append(_EXPANDED)
    said = keys.optional("vocab_size")
    if said is not None and said != rows:
        assumed.append(f"vocab_size is {said}, but the table has {rows} rows, which are counted")
    said_name = keys.header.metadata.get("general.name") or keys.header.metadata.get("general.basename")
    title = show(said_name) if isinstance(said_name, str) else ""
    positions = outside.get("position_embd.weight")
    return ModelSpec(
        schema="roofplan/model/v1",
        name=slug_of(title or PurePath(keys.header.name).stem),
        title=title,
        sources=(Source(kind="user", source=show(PurePath(keys.header.name).name, 400)),),
        weights=_weights(keys.header),
        hidden_size=hidden,
        vocab_size=rows,
        tied_embeddings="output.weight" not in outside,
        max_context=keys.optional("context_length") or None,
        layers=grouped(layers),
        embedding_size=width if width != hidden else None,
        learned_positions=positions.parameters // hidden if positions else 0,
        final_norms=1 if "output_norm.weight" in outside else 0,
        norm_bias=any("attn_norm.bias" in block.tensors for block in blocks),
        head_bias="output.bias" in outside,
        other_parameters=_other(keys.header, count),
        checkpoint=stored_by_class(
            (_kind(tensor, count), tensor.parameters, tensor.bytes, tensor.type.name) for tensor in keys.header.tensors
        ),
        assumed=tuple(assumed),
    )


# ------------------------------------------------------------------------------------------------ layers


def _layer(block: Block, hidden: int, window: Window | None, *, shares: bool) -> LayerGroup:
    if not block.tensors and any(block.keys.at(key, block.number, default=1) for key in _EMPTY_LAYER):
        raise block.keys.error("block_count", got=f"no tensors for block {block.number}", wanted="some for each block")
    return LayerGroup(
        count=1,
        attention=mixers_of(block, hidden, window, shares=shares),
        mlp=_feed_forward(block),
        norms=sum(_is_layer_norm(name, tensor, hidden) for name, tensor in block.tensors.items()),
    )


_EMPTY_LAYER = ("attention.head_count", "feed_forward_length")  # a layer without attention and MLP says so in both
_INNER_NORM = re.compile(r"(attn_(q|k|q_a|kv_a)_norm|ssm_|indexer\.)")


def _is_layer_norm(name: str, tensor: Tensor, hidden: int) -> bool:
    """Whether a tensor is a gain over the whole width: not one of queries and keys, latents or states."""
    return "norm" in name and name.endswith(".weight") and tensor.sides == (hidden,) and not _INNER_NORM.match(name)


def _feed_forward(block: Block) -> tuple[FeedForward, ...]:
    dense: tuple[FeedForward, ...] = ()
    if block.has("ffn_up"):
        width = block.inputs("ffn_down")
        # A single matrix twice as wide holds gate and up together (Phi 3, GLM 4).
        gated = block.has("ffn_gate") or block.outputs("ffn_up") == 2 * width
        block.must_have("ffn_up", width if block.has("ffn_gate") or not gated else 2 * width)
        bias = any(f"{name}.bias" in block.tensors for name in ("ffn_up", "ffn_down"))
        dense = (Mlp(kind="gated" if gated else "plain", intermediate_size=width, bias=bias),)
    return (*dense, _moe(block)) if block.has("ffn_gate_inp") else dense


def _moe(block: Block) -> Moe:
    """Routed experts, stacked in one tensor or (first Mixtral files) each in its own, and the shared one."""
    stacked = block.has("ffn_down_exps")
    count = block.outputs("ffn_gate_inp")
    if stacked and block.sides("ffn_down_exps")[2:] != (count,):
        sides = block.sides("ffn_down_exps")
        raise block.error("ffn_down_exps", got=f"sides {sides}", wanted=f"{count} experts, as the router has")
    latent = block.outputs("ffn_latent_down") if block.has("ffn_latent_down") else None
    shared = block.outputs("ffn_up_shexp") if block.has("ffn_up_shexp") else None
    return Moe(
        kind="moe",
        num_experts=count,
        experts_per_token=block.keys.count("expert_used_count"),
        intermediate_size=block.inputs("ffn_down_exps" if stacked else "ffn_down.0"),
        gated=any(block.has(name) for name in ("ffn_gate_exps", "ffn_gate_up_exps", "ffn_gate.0")),
        shared=SharedExpert(intermediate_size=shared, gate=block.has("ffn_gate_inp_shexp")) if shared else None,
        latent_size=latent,
        router_bias="ffn_gate_inp.bias" in block.tensors,
        correction_bias="exp_probs_b.bias" in block.tensors,
        expert_bias="ffn_down_exps.bias" in block.tensors,
    )


def _windows(keys: Keys, count: int) -> tuple[list[Window | None], list[str]]:
    """The window of each layer: by the file's pattern (flags, or a period), else by what the architecture is known for."""
    known = ggml.window_pattern(keys.architecture)
    size = keys.optional("attention.sliding_window")
    size = (known.window if known else None) if size is None else size
    context = keys.optional("context_length")
    if not size or (context and size >= context):  # a window that is not below the context never bites
        return [None] * count, []
    window = Window(known.kind if known else "sliding", size)
    said = keys.value("attention.sliding_window_pattern")
    if isinstance(said, Array):
        flags = said.values or ()
        if len(flags) < count:
            raise keys.error(
                "attention.sliding_window_pattern", got=f"{said.count} entries", wanted=f"{count}, one a layer"
            )
        return [window if flag else None for flag in flags[:count]], []
    every = keys.optional("attention.sliding_window_pattern")
    every = (known.every if known else None) if every is None else every
    if every is None:
        return [None] * count, [_NO_PATTERN]
    full = 0 if known and known.full_first else every - 1
    return [None if every and layer % every == full else window for layer in range(count)], []


# ------------------------------------------------------------------------------------------------ what is stored


def _weights(header: Header) -> str:
    """The plain format that all matrices share; else 16 bits, which the exact sizes of the header outrank."""
    names = {tensor.type.name for tensor in header.tensors if len(tensor.sides) > 1}
    return _PLAIN_FORMATS.get(names.pop(), "bf16") if len(names) == 1 else "bf16"


def _other(header: Header, count: int) -> tuple[OtherParameters, ...]:
    """Tensors that no class describes: tables of per-layer inputs are looked up, the rest counts as read."""
    unknown = [tensor for tensor in header.tensors if _kind(tensor, count) == "other"]
    tables = sum(tensor.parameters for tensor in unknown if tensor.name in _LOOKED_UP)
    rest = sum(tensor.parameters for tensor in unknown) - tables
    parts = (("per-layer input tables", tables, False), ("tensors without a class", rest, True))
    return tuple(
        OtherParameters(name=name, count=parameters, read_per_step=read, source="tensor names of the GGUF header")
        for name, parameters, read in parts
        if parameters
    )


_LOOKED_UP = {"per_layer_token_embd.weight", "token_types.weight"}
_EXPERTS = re.compile(r"ffn_\w+_(ch)?exps\.weight|ffn_(gate|up|down)\.[0-9]+\.weight")
_VECTORS = re.compile(r".*\.bias|.*norm.*|.*conv.*|ssm_(a|d|dt)(\..*)?|exp_probs_b.*|.*scale", re.DOTALL)
_IN_BLOCK: tuple[tuple[re.Pattern[str], StoredKind], ...] = (
    (re.compile(r"nextn\..*", re.DOTALL), "mtp"),
    (re.compile(r"rope_.*|attn_rot_embd.*", re.DOTALL), "buffer"),
    (re.compile(r"ffn_gate_inp(_shexp)?\.weight"), "router"),
    (re.compile(r"ssm_dt\.weight"), "attention"),
    (_VECTORS, "norm"),
    (_EXPERTS, "experts"),
    (re.compile(r"(attn|ssm|indexer|cross_attn)[_.].*", re.DOTALL), "attention"),
    (re.compile(r"ffn_.*", re.DOTALL), "mlp"),
)
_OUTSIDE: dict[str, StoredKind] = {
    "token_embd.weight": "embedding",
    "position_embd.weight": "embedding",
    "output.weight": "head",
    "output.bias": "norm",
}


def _kind(tensor: Tensor, count: int) -> StoredKind:
    """The class of a tensor; small vectors (biases, gains, taps, decays) count as norms, as they do in a spec."""
    match = _BLOCK.fullmatch(tensor.name)
    if match is None:
        if tensor.name.startswith(_VISION):
            return "vision"
        if tensor.name.startswith("rope_"):
            return "buffer"
        return _OUTSIDE.get(tensor.name, "norm" if "norm" in tensor.name else "other")
    if int(match[1]) >= count:
        return "mtp"
    found = next((kind for pattern, kind in _IN_BLOCK if pattern.fullmatch(match[2])), None)
    if found is None or (found in {"attention", "mlp", "experts"} and len(tensor.sides) == 1):
        return "norm" if len(tensor.sides) == 1 else "other"
    return found
