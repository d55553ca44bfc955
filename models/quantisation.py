"""Which weight format a repository's quantisation settings imply.

Read are ``quantization_config`` (as transformers, compressed-tensors and ModelOpt write it) and ModelOpt's own ``hf_quant_config.json``.
What is excluded from quantisation decides as much as the format: the exclusion list is read before anything is multiplied.

Known to be inexact: a class of tensors counts as excluded when any of its projections is, and settings for single layers are not told
apart. The header of the weight files is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .config import Config

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
_CLASSES = ("attention", "mlp", "experts")


def implied_weights(config: Config) -> str:
    """Name the weight format that a configuration implies, in the words of ``--weights``.

    Raises
    ------
    SpecError : for a method that roofplan does not know
    """
    plain = _DTYPES.get(config.text("dtype", "torch_dtype", default="bfloat16"), "bf16")
    settings = config.mapping("quantization_config") or _beside(config)
    if not settings:
        return plain
    mixed = _mixed(settings)
    if mixed:
        return ",".join(f"{kind}={name}" for kind, name in mixed.items())
    name = _format(config, settings)
    excluded = {kind for pattern in _patterns(settings) for kind in _classes_of(pattern)}
    if config.text("expert_dtype", default="") == "fp4":  # experts narrower than the rest (DeepSeek-V4)
        return f"{name},experts=mxfp4"
    kept = [kind for kind in _CLASSES if kind not in excluded]
    return name if len(kept) == len(_CLASSES) else ",".join(f"{kind}={name}" for kind in kept) or plain


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
    for group in settings.get("config_groups", {}).values() if isinstance(settings.get("config_groups"), dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict):
            key = (weights.get("num_bits"), weights.get("type"), weights.get("group_size"))
            if key in _GROUPS:
                return _GROUPS[key]
    hint = "describe the model in a spec, or remove the key and give --weights"
    raise config.error("quantization_config", got=method or "no quant_method", wanted="a known quantisation", hint=hint)


def _mixed(settings: dict[str, Any]) -> dict[str, str]:
    """Formats by class, where the settings list a format for each module."""
    layers = settings.get("quantized_layers")
    if not isinstance(layers, dict):
        return {}
    found: dict[str, str] = {}
    for module, chosen in (layers.get("_first") or layers).items():
        algorithm = str(chosen.get("quant_algo", "")).lower() if isinstance(chosen, dict) else ""
        for kind in _classes_of(str(module)):
            if algorithm in _ALGORITHMS:
                found.setdefault(kind, _ALGORITHMS[algorithm])
    return found


def _patterns(settings: dict[str, Any]) -> Iterable[str]:
    for key in _EXCLUSIONS:
        listed = settings.get(key)
        if isinstance(listed, dict):  # a list that was cut for this collection
            listed = listed.get("_first")
        if isinstance(listed, list):
            yield from (str(pattern) for pattern in listed)


def _classes_of(pattern: str) -> set[str]:
    """Which classes of matrices a module name or pattern is about; norms, routers and the like are none."""
    if any(
        part in pattern for part in ("norm", "router", "gate.", "indexer", "embed", "lm_head", "conv1d")
    ) or pattern.endswith("gate"):
        return set()
    if ".experts" in pattern:
        return {"experts"}
    if "shared_expert" in pattern or ".mlp" in pattern or "mlp\\." in pattern:
        return {"mlp"}
    return {"attention"} if any(part in pattern for part in ("self_attn", "linear_attn", "mixer.")) else set()
