"""Which weight format a repository's quantisation settings imply.

Read are ``quantization_config`` (as transformers, compressed-tensors and ModelOpt write it) and ModelOpt's own ``hf_quant_config.json``.
What is excluded from quantisation decides as much as the format: the exclusion list is read before anything is multiplied.

Known to be inexact: a class of tensors has one format, so a class of which fewer than half of the layers are excluded counts as quantised
in all of them. The header of the weight files is exact.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ..errors import SpecError
from .spec import Mlp, Moe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .config import Config
    from .spec import LayerGroup

_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_ALGORITHMS = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "mxfp4": "mxfp4",
    "mxfp8": "mxfp8",
    "nvfp4": "nvfp4",
    "w4a16_nvfp4": "nvfp4",
}
_CHANNEL = -1  # the group size that means one scale per output channel
# (bits, elements per scale) of integers with zero points: AWQ and GPTQ store them always, compressed-tensors unless symmetric.
# Known to be inexact: GPTQ's 8-bit groups have a 2-byte scale and a zero point, 8.1875 bits in place of 8.25.
_INTEGERS = {
    (4, 32): "int4-g32",
    (4, 64): "int4-g64",
    (4, 128): "int4-g128",
    (4, _CHANNEL): "int4-channel",
    (8, 128): "int8-g128",
    (8, _CHANNEL): "int8-channel",
}
_SYMMETRIC = {
    (4, 32): "int4-g32-sym",
    (4, 64): "int4-g64-sym",
    (4, 128): "int4-g128-sym",
    (4, _CHANNEL): "int4-channel-sym",
    (8, 128): "int8-g128",
    (8, _CHANNEL): "int8-channel",
}
# The same of floating-point numbers; one scale per tensor or channel is not counted.
_FLOATS = {(8, _CHANNEL): "fp8", (4, 16): "nvfp4", (4, 32): "mxfp4"}
_FP8_BLOCK = [128, 128]
_EXCLUSIONS = ("modules_to_not_convert", "ignore", "exclude_modules", "llm_int8_skip_modules")
_NO_MATRICES = ("norm", "router", "indexer", "embed", "conv1d", "vision", "projector")


class UnknownFormatError(SpecError):
    """Settings of a method that roofplan does not know; the header of the weight files may still say what is stored."""


def implied_weights(config: Config, layers: Sequence[LayerGroup]) -> str:
    """Name the weight format that a configuration implies for a model of these layers, in the words of ``--weights``.

    Raises
    ------
    UnknownFormatError : for a method that roofplan does not know
    """
    plain = _DTYPES.get(config.text("dtype", "torch_dtype", default="bfloat16"), "bf16")
    settings = config.mapping("quantization_config") or _beside(config)
    if not settings:
        return plain
    classes = _classes(layers)
    mixed = _mixed(settings)
    if mixed:
        return ",".join(f"{kind}={name}" for kind, name in mixed.items() if kind in {*classes, "head"}) or plain
    name = _format(config, settings)
    if config.text("expert_dtype", default="") == "fp4":  # experts narrower than the rest (DeepSeek-V4)
        return f"{name},experts=mxfp4"
    excluded = _excluded(settings, classes, sum(group.count for group in layers))
    kept = [kind for kind in classes if kind not in excluded]
    return name if kept == classes else ",".join(f"{kind}={name}" for kind in kept) or plain


def _classes(layers: Sequence[LayerGroup]) -> list[str]:
    """The classes of matrices that the layers have; projections of shared experts belong to ``mlp``."""
    parts = [part for group in layers for part in group.mlp]
    has = {
        "attention": any(group.attention for group in layers),
        "mlp": any(isinstance(part, Mlp) or (isinstance(part, Moe) and part.shared is not None) for part in parts),
        "experts": any(isinstance(part, Moe) for part in parts),
    }
    return [kind for kind, present in has.items() if present]


def _beside(config: Config) -> dict[str, Any]:
    """ModelOpt's settings, which stand in a file of their own."""
    settings = config.mapping("_hf_quant_config").get("quantization")
    return settings if isinstance(settings, dict) else {}


def _format(config: Config, settings: dict[str, Any]) -> str:
    method = str(settings.get("quant_method") or settings.get("quant_algo") or "").lower()
    algorithm = str(settings.get("quant_algo") or "").lower()
    found = _method_format(method, settings)
    if found is None:
        names = [_algorithm_format(algorithm, settings), *map(_group_format, _groups(settings))]
        found = next(filter(None, names), "")
    if found:
        return found
    hint = "describe the model in a spec, or remove the key and give --weights"
    details = [f"{key} {settings[key]}" for key in _DETAILS if isinstance(settings.get(key), (int, str, list))]
    got = " with ".join(filter(None, (method or "no quant_method", ", ".join(details))))
    where = config.document.where((*config.path, "quantization_config"))
    raise UnknownFormatError("quantization_config", got=got, wanted="a known quantisation", hint=hint, where=where)


# The settings that an error names.
_DETAILS = ("bits", "w_bit", "group_size", "q_group_size", "weight_block_size", "bnb_4bit_quant_type")


def _method_format(method: str, settings: dict[str, Any]) -> str | None:
    """The format of a method that has settings of its own: empty where there is none for them, None for other methods."""
    if method in {"awq", "gptq"}:
        return _integers(settings)
    if method == "bitsandbytes":
        return _bitsandbytes(settings)
    if method == "fp8" and settings.get("weight_block_size"):
        return "fp8-block128" if settings["weight_block_size"] == _FP8_BLOCK else ""
    return _algorithm_format(method, settings) or None


def _algorithm_format(algorithm: str, settings: dict[str, Any]) -> str:
    return _integers(settings) if algorithm == "w4a16_awq" else _ALGORITHMS.get(algorithm, "")


def _integers(settings: dict[str, Any]) -> str:
    """AWQ (which has two spellings of its keys) and GPTQ; both mean 4 bits in groups of 128 unless they say otherwise."""
    bits = settings.get("bits", settings.get("w_bit", 4))
    return _named(_INTEGERS, bits, settings.get("group_size", settings.get("q_group_size", 128)))


def _bitsandbytes(settings: dict[str, Any]) -> str:
    """Source: transformers, utils/quantization_config.py, BitsAndBytesConfig, whose 4-bit default is ``fp4``."""
    if settings.get("load_in_8bit") is True or settings.get("_load_in_8bit") is True:
        return "int8-channel"
    if settings.get("bnb_4bit_quant_type") != "nf4":
        return ""
    four = settings.get("load_in_4bit") is True or settings.get("_load_in_4bit") is True
    double = settings.get("bnb_4bit_use_double_quant") is True
    return ("nf4-double" if double else "nf4") if four else ""


def _named(formats: dict[tuple[int, int], str], bits: object, group: object) -> str:
    """The format of so many bits and elements per scale; compared one by one, because a configuration may hold anything."""
    return next((name for key, name in formats.items() if key == (bits, group)), "")


def _groups(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The groups of compressed-tensors: one format each, for the modules that it targets."""
    groups = settings.get("config_groups")
    return [group for group in groups.values() if isinstance(group, dict)] if isinstance(groups, dict) else []


def _group_format(group: dict[str, Any]) -> str:
    weights = group.get("weights")
    if not isinstance(weights, dict):
        return ""
    bits, kind, size = (weights.get(key) for key in ("num_bits", "type", "group_size"))
    if weights.get("strategy") == "block":
        is_known = (bits, kind, weights.get("block_structure")) == (8, "float", _FP8_BLOCK)
        return "fp8-block128" if is_known else ""
    integers = _INTEGERS if weights.get("symmetric") is False else _SYMMETRIC
    formats = _FLOATS if kind == "float" else integers if kind == "int" else {}
    return _named(formats, bits, _CHANNEL if size is None else size)


def _mixed(settings: dict[str, Any]) -> dict[str, str]:
    """Formats by class, where the settings name a format for single modules."""
    found: dict[str, str] = {}
    for module, name in _assigned(settings):
        for kind in _classes_of(module):
            found.setdefault(kind, name)
    return found


def _assigned(settings: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Modules with their formats, from ModelOpt's list of layers or the targets of groups (``Linear`` is a kind of module)."""
    layers = settings.get("quantized_layers")
    if isinstance(layers, dict):
        for module, chosen in (layers.get("_first") or layers).items():
            algorithm = str(chosen.get("quant_algo", "")).lower() if isinstance(chosen, dict) else ""
            name = _algorithm_format(algorithm, chosen) if isinstance(chosen, dict) else ""
            if name:
                yield str(module), name
    for group in _groups(settings):
        name = _group_format(group)
        yield from ((target, name) for target in _texts(group.get("targets")) if name and target != "Linear")


def _excluded(settings: dict[str, Any], classes: list[str], num_layers: int) -> set[str]:
    """Classes of which at least half of the layers are excluded; a pattern without a layer's number is about all of them."""
    excluded: set[str] = set()
    for key in _EXCLUSIONS:
        layers: dict[str, set[str]] = defaultdict(set)
        patterns = _texts(settings.get(key))
        for pattern in patterns:
            number = re.search(r"layers?\.(\d+)", pattern)
            whole_layer = re.search(r"layers?\.\d+\.?\*?$", pattern)
            for kind in classes if whole_layer else _classes_of(pattern):
                layers[kind].add(number[1] if number else "all")
        shown = len(patterns) / _full_length(settings.get(key), len(patterns)) if patterns else 1
        excluded |= {kind for kind, named in layers.items() if "all" in named or 2 * len(named) >= num_layers * shown}
    return excluded


def _texts(listed: object) -> list[str]:
    """The texts of a list; of one that was cut by a collection of configurations, the first ones that it kept."""
    kept = listed.get("_first") if isinstance(listed, dict) else listed
    return [item for item in kept if isinstance(item, str)] if isinstance(kept, list) else []


def _full_length(listed: object, shown: int) -> int:
    """How long a list was before it was cut."""
    length = listed.get("_trimmed_list_length") if isinstance(listed, dict) else None
    return max(shown, length) if isinstance(length, int) else shown


def _classes_of(pattern: str) -> set[str]:
    """Which classes of matrices a module name or pattern is about; norms, routers and the like are none."""
    if any(part in pattern for part in _NO_MATRICES) or re.search(r"gate(\.|$)", pattern):
        return set()
    if "lm_head" in pattern:
        return {"head"}
    if ".experts" in pattern:
        return {"experts"}
    if "shared_expert" in pattern or ".mlp" in pattern or "mlp\\." in pattern:
        return {"mlp"}
    return {"attention"} if any(part in pattern for part in ("self_attn", "linear_attn", "mixer.")) else set()
