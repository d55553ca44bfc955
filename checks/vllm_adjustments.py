"""What flags of vLLM mean together: formats of weights that it makes itself, adapters, and the method of speculation.

Sources: vllm-project/vllm at 2a69949bd (0.19.0), vllm/config/speculative.py, vllm/engine/arg_utils.py, vllm/config/lora.py; at 4ba787ec9
(0.33.0), vllm/config/quantization.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import models, specfiles
from ..errors import RoofplanError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .record import Flag, Said

    Named = dict[str, Said[Any]]

# Methods that quantise 16-bit weights while they are loaded; all others read what a checkpoint holds, which its model's entry says.
_MADE_ON_LOADING = {
    "fp8": "fp8",
    "fp8_per_tensor": "fp8",
    "fp8_per_channel": "fp8",
    "fp8_per_block": "fp8-block128",
    "mxfp8": "mxfp8",
    "bitsandbytes": "nf4",
    "int8_per_channel_weight_only": "int8-channel",
}
_SIXTEEN_BITS = ("bf16", "fp16")
_WIDE = ("float", "float32")


def adjust_vllm(options: Named, features: Named, flags: Sequence[Flag]) -> None:  # noqa: ARG001  # one signature for all engines
    """Bring options and features to what they mean together; they are changed in place."""
    _weights(options, features)
    _adapters(options, features)
    _speculation(features)
    _graphs(options, features)


def _weights(options: Named, features: Named) -> None:
    """The format that weights get when they are loaded, where that is not their own."""
    wide, method = features.get("dtype"), features.get("quantization")
    if wide is not None and wide.value in _WIDE and method is None and _own_format(options) in (*_SIXTEEN_BITS, "fp32"):
        for name in ("weights", "kv", "activations"):
            options.setdefault(name, replace(wide, value="fp32"))
        return
    made_on_loading(options, features, _MADE_ON_LOADING)


def made_on_loading(options: Named, features: Named, formats: Mapping[str, str]) -> None:
    """Name the format that a method makes of 16-bit weights on loading, by ``formats``; other methods read what a checkpoint has."""
    method = features.get("quantization")
    made = None if method is None else formats.get(str(method.value))
    if method is not None and made is not None and _own_format(options) in _SIXTEEN_BITS:
        options.setdefault("weights", replace(method, value=made))


def _own_format(options: Named) -> str:
    """The format of a model's published weights; empty where it is not in the catalogue."""
    model = options.get("model")
    if model is None or specfiles.looks_like_path(str(model.value)):
        return ""
    try:
        return models.load(str(model.value)).weights
    except RoofplanError:
        return ""


def _adapters(options: Named, features: Named) -> None:
    """Places for adapters exist only with ``--enable-lora``, and then at least one (max_loras is 1 by default)."""
    switch = features.get("lora")
    if switch is None or switch.value is not True:
        options.pop("max_loras", None)
        options.pop("max_lora_rank", None)
    elif "max_loras" not in options:
        options["max_loras"] = replace(switch, value=1)


def _speculation(features: Named) -> None:
    """The method of speculation, which vLLM tells from the drafter's name where nothing is said."""
    said = features.get("speculation")
    if said is None or not isinstance(said.value, dict):
        return
    kinds = {"method": str, "model": str, "k": int}
    parts = {name: value for name, value in said.value.items() if isinstance(value, kinds.get(name, object))}
    model = str(parts.get("model", ""))
    if parts.get("method", "[ngram]") == "[ngram]":
        by_name = (("ngram", "ngram"), ("eagle3", "eagle3"), ("eagle-", "eagle"), ("medusa", "medusa"))
        parts["method"] = next((method for mark, method in by_name if mark in model.lower()), "draft_model")
    if parts["method"] == "ngram":
        parts.pop("model", None)
    features["speculation"] = replace(said, value=parts)


def _graphs(options: Named, features: Named) -> None:
    """Without graphs (``-O0``, ``-cc.cudagraph_mode NONE``) as without compilation: the planner knows both as one switch."""
    said = features.pop("cudagraph_mode", None)
    if said is not None and str(said.value).upper() in {"NONE", "0"}:
        options.setdefault("eager", replace(said, value=True))
