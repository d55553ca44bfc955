"""Reading ``config.json`` of a Hugging Face repository as data: its keys become a ModelSpec. No code of the repository is ever run.

What a family's keys mean is said by one small function per family in ``models/families``; this file finds the right one and adds what all
have in common. A value that decides a shape is never guessed: a missing key is an error that names it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ..errors import SpecError, UnknownNameError
from .config import Config, Shape, builder_of, families
from .spec import LayerGroup, ModelId, ModelSpec, OtherParameters, Source

if TYPE_CHECKING:
    from ..documents import Document

_NESTED = ("text_config", "language_config", "llm_config")
_KINDS = {"verbatim", "preset", "transcribed", "class-default", "reconstructed", "gguf-log"}


def from_config(document: Document) -> ModelSpec:
    """Turn a ``config.json`` into a ModelSpec.

    Raises
    ------
    SpecError : for keys that are missing, contradictory or of the wrong type
    UnknownNameError : for an architecture that roofplan does not know
    """
    top = document.data
    config = Config(document, *_text_config(top))
    kind = config.text("model_type", default="")
    builder = builder_of(kind)
    if builder is None:
        known = ", ".join(families())
        hint = f"known: {known}; or describe the model in a spec (schema: roofplan/model/v1)"
        raise UnknownNameError(
            "model_type", got=kind or "nothing", wanted="a known architecture", where=document.where(), hint=hint
        )
    try:
        return _spec(document, config, builder(config))
    except ValueError as error:  # a spec class refused what the configuration says
        raise SpecError(f"model_type {kind}: {error}", where=document.where()) from error


def _text_config(top: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Find the language model's part: nested in wrappers of vision and audio; a stub without sizes does not shadow the top level."""
    for key in _NESTED:
        nested = top.get(key)
        if isinstance(nested, dict) and ("hidden_size" in nested or "num_hidden_layers" in nested):
            shared = {name: value for name, value in top.items() if name not in _NESTED and not isinstance(value, dict)}
            return {**shared, **{name: value for name, value in nested.items() if value is not None}}, (key,)
    return top, ()


def _spec(document: Document, config: Config, shape: Shape) -> ModelSpec:
    hf_id = config.text("_hf_id", default="")
    kind = config.text("_kind", default="user")
    source = config.text("_source", default=document.name)
    return ModelSpec(
        schema="roofplan/model/v1",
        name=_slug(hf_id or _name_of(document.name)),
        title=hf_id,
        ids=(ModelId(id=hf_id),) if hf_id else (),
        hidden_size=config.count("hidden_size", "n_embd", "d_model"),
        vocab_size=config.count("vocab_size", "padded_vocab_size"),
        layers=grouped(shape.layers),
        sources=(Source(kind=kind if kind in _KINDS else "user", source=source),),  # type: ignore[arg-type]  # checked here
        weights=_weights(config),
        tied_embeddings=config.flag("tie_word_embeddings", default=shape.tied_by_default),
        max_context=config.optional("max_position_embeddings", "n_positions", "model_max_length", "seq_length"),
        learned_positions=shape.learned_positions,
        norm_bias=shape.norm_bias,
        head_bias=shape.head_bias,
        other_parameters=tuple(
            OtherParameters(name=name, count=count, read_per_step=read, source=why)
            for name, count, read, why in shape.other
            if count
        ),
    )


def grouped(layers: list[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Join equal layers, in the order of their first appearance."""
    counts = Counter[LayerGroup]()
    for layer in layers:
        counts[replace(layer, count=1)] += layer.count
    return tuple(replace(layer, count=count) for layer, count in counts.items())


def _name_of(path: str) -> str:
    parts = PurePath(path).parts
    if len(parts) > 1 and parts[-1] == "config.json":
        return parts[-2]
    return PurePath(path).stem or "model"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", name.rsplit("/", 1)[-1].lower()).strip("-._")[:64] or "model"


_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def _weights(config: Config) -> str:
    """Name the weight format that a configuration implies."""
    plain = _DTYPES.get(config.text("dtype", "torch_dtype", default="bfloat16"), "bf16")
    quantisation = config.mapping("quantization_config") or _modelopt(config)
    if not quantisation:
        return plain
    method = str(quantisation.get("quant_method", "")).lower()
    match method:
        case "fp8":
            weights = "fp8-block128" if quantisation.get("weight_block_size") else "fp8"
            # Experts may be stored narrower than the rest (DeepSeek-V4).
            return f"{weights},experts=mxfp4" if config.text("expert_dtype", default="") == "fp4" else weights
        case "mxfp4":
            return "experts=mxfp4"
        case "awq" | "gptq" if quantisation.get("bits", 4) == 4:
            return "int4-g32" if quantisation.get("group_size") == 32 else "int4-g128"
    hint = "describe the model in a spec, or remove the key and give --weights"
    raise config.error(
        "quantization_config", got=method or "no quant_method", wanted="fp8, mxfp4, awq or gptq of 4 bits", hint=hint
    )


def _modelopt(config: Config) -> dict[str, Any]:
    """ModelOpt's settings, which stand in a file of their own."""
    beside = config.mapping("_hf_quant_config").get("quantization", {})
    algorithm = beside.get("quant_algo", "") if isinstance(beside, dict) else ""
    return {"quant_method": str(algorithm).lower()} if algorithm else {}
