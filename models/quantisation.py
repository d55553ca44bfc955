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
    "w4a16_awq": "int4-g128",
}
# (bits, kind of number, elements per scale) of a compressed-tensors group.
_GROUPS = {
    (8, "float", None): "fp8",
    (8, "int", None): "int8-channel",
    (4, "float", 16): "nvfp4",
    (4, "float", 32): "mxfp4",
    (4, "int", 32): "int4-g32-sym",
    (4, "int", 128): "int4-g128-sym",
}
_EXCLUSIONS = ("modules_to_not_convert", "ignore", "exclude_modules")
_NO_MATRICES = ("norm", "router", "indexer", "embed", "conv1d", "vision", "projector")


def implied_weights(config: Config, layers: Sequence[LayerGroup]) -> str:
    """Name the weight format that a configuration implies for a model of these layers, in the words of ``--weights``.

    Raises
    ------
    SpecError : for a method that roofplan does not know
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
    if method == "fp8" and settings.get("weight_block_size"):
        return "fp8-block128"
    if method in {"awq", "gptq"} and settings.get("bits", 4) == 4:
        return "int4-g32" if settings.get("group_size") == 32 else "int4-g128"
    algorithm = str(settings.get("quant_algo") or "").lower()
    for known in (method, algorithm):
        if known in _ALGORITHMS:
            return _ALGORITHMS[known]
    for group in _groups(settings):
        if _group_format(group):
            return _group_format(group)
    hint = "describe the model in a spec, or remove the key and give --weights"
    raise config.error("quantization_config", got=method or "no quant_method", wanted="a known quantisation", hint=hint)


def _groups(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The groups of compressed-tensors: one format each, for the modules that it targets."""
    groups = settings.get("config_groups")
    return [group for group in groups.values() if isinstance(group, dict)] if isinstance(groups, dict) else []


def _group_format(group: dict[str, Any]) -> str:
    weights = group.get("weights")
    if not isinstance(weights, dict):
        return ""
    bits, kind, size = (weights.get(key) for key in ("num_bits", "type", "group_size"))
    return next((name for key, name in _GROUPS.items() if key == (bits, kind, size)), "")


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
            if algorithm in _ALGORITHMS:
                yield str(module), _ALGORITHMS[algorithm]
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
