"""What flags mean together, where no single flag can say it; what engines differ in there is data of their launcher files."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import models, specfiles
from ..errors import RoofplanError
from ..models.spec import Moe

if TYPE_CHECKING:
    from ..models.spec import ModelSpec
    from .launcher_spec import Launcher
    from .record import Said

    Named = dict[str, Said[Any]]

_SIXTEEN_BITS = ("bf16", "fp16")
_WIDE = ("float", "float32")
_REPOSITORY = re.compile(r"([A-Za-z0-9][\w.-]*/[\w.-]+?)(?::([A-Za-z0-9_.-]+))?")
_PARTS = {"method": str, "model": str, "k": int}  # of speculation


def adjust(launcher: Launcher, options: Named, features: Named) -> None:
    """Bring options and features of the record, as single flags gave them, to what they mean together; they are changed in place."""
    _repository(launcher, options, features)
    _on_host(options, features)
    _slots(launcher, options, features)
    _weights(launcher, options, features)
    _adapters(launcher, options, features)
    _speculation(launcher, features)
    _attention_groups(launcher, options, features)
    _spread_experts(options, features)
    _divide_experts(launcher, options, features)


def _is_on(switch: Said[Any] | None) -> bool:
    return switch is not None and switch.value is True


def _repository(launcher: Launcher, options: Named, features: Named) -> None:
    """The model of a repository of GGUF files (``user/repo:Q8_0``), and the file type, which the engine chooses where none is named."""
    said, file = features.pop("repository", None), features.pop("repository_file", None)
    if said is None:
        return
    match = _REPOSITORY.fullmatch(str(said.value))
    options["model"] = said if match is None else replace(said, value=_converted(match[1]))
    narrow = _own_format(options) not in (*_SIXTEEN_BITS, "")  # published in few bits already, and converted as it is
    if match is not None and (match[2] or (file is None and not narrow)):
        options.setdefault("weights", replace(said, value=(match[2] or launcher.file_type).lower()))


def _on_host(options: Named, features: Named) -> None:
    """Layers that are not taken to a device stay in the host's memory."""
    layers = features.pop("gpu_layers", None)
    model = None if layers is None else _known(options)
    if layers is None or model is None or not str(layers.value).isdecimal():
        return
    if int(layers.value) < model.num_layers:
        features.setdefault("partly_on_host", layers)


@functools.cache
def _converted(repository: str) -> str:
    """The model that a repository of GGUF files converts, where the catalogue does not hold the repository itself.

    Such repositories are called after what they convert: ``bartowski/Llama-3.3-70B-Instruct-GGUF``, ``bartowski/Qwen_Qwen3-32B-GGUF``
    (ggml-org/llama.cpp, tools/server/README.md, --hf-repo). Only a whole name of a published model counts.
    """
    name = repository.rpartition("/")[2]
    known = models.CATALOGUE.names() if name.lower().endswith("-gguf") else {}
    spelled = specfiles.spelled(name)[: -len("-gguf")]
    if not known or specfiles.spelled(repository) in known:
        return repository
    ends = (f"/{spelled}", f"/{specfiles.spelled(name.partition('_')[2])[: -len('-gguf')]}" if "_" in name else "")
    found = {one: slug for one, slug in known.items() if "/" in one and one[one.index("/") :] in ends}
    return next(iter(found)) if len(set(found.values())) == 1 else repository


def _slots(launcher: Launcher, options: Named, features: Named) -> None:
    """Each slot's part of a context that all of them divide, unless they share it."""
    shared = features.get("shared_context")
    context, slots = options.get("max_model_len"), options.get("max_num_seqs")
    if not launcher.slots_divide_context or _is_on(shared) or context is None or slots is None:
        return
    if isinstance(context.value, int) and isinstance(slots.value, int) and context.value >= slots.value > 1:
        options["max_model_len"] = replace(context, value=context.value // slots.value)


def _weights(launcher: Launcher, options: Named, features: Named) -> None:
    """The format that 16-bit weights get when they are loaded; methods that make none read what a checkpoint holds."""
    wide, method = features.get("dtype"), features.get("quantization")
    if method is None:
        if wide is not None and wide.value in _WIDE and _own_format(options) in (*_SIXTEEN_BITS, "fp32"):
            for name in ("weights", "kv", "activations"):
                options.setdefault(name, replace(wide, value="fp32"))
        return
    made = launcher.made_on_loading.get(str(method.value))
    if made is not None and _own_format(options) in _SIXTEEN_BITS:
        options.setdefault("weights", replace(method, value=made))


def _own_format(options: Named) -> str:
    """The format of a model's published weights; empty where it is not in the catalogue."""
    model = _known(options)
    return "" if model is None else model.weights


def _known(options: Named) -> ModelSpec | None:
    """The model, where it is in the catalogue."""
    model = options.get("model")
    return None if model is None else _of_catalogue(str(model.value))


@functools.lru_cache(maxsize=256)
def _of_catalogue(name: str) -> ModelSpec | None:
    if specfiles.looks_like_path(name):
        return None
    try:
        return models.load(name)
    except RoofplanError:
        return None


def _adapters(launcher: Launcher, options: Named, features: Named) -> None:
    """Places for adapters exist only where they are switched on, and then at least one."""
    if not any(flag.feature == "lora" for flag in launcher.flags):
        return
    switch = features.get("lora")
    if switch is None or switch.value is not True:
        options.pop("max_loras", None)
        options.pop("max_lora_rank", None)
    else:
        options.setdefault("max_loras", replace(switch, value=1))


def _speculation(launcher: Launcher, features: Named) -> None:
    """The method of speculation, which some engines tell from the drafter's name where nothing is said."""
    said = features.get("speculation")
    if said is None or not isinstance(said.value, dict) or not launcher.drafters:
        return
    parts = {name: value for name, value in said.value.items() if isinstance(value, _PARTS.get(name, object))}
    if parts.get("method", "[ngram]") == "[ngram]":  # brackets as the name of a drafter has them
        name = str(parts.get("model", "")).lower()
        parts["method"] = next((method for mark, method in launcher.drafters.items() if mark in name), "draft_model")
    if parts["method"] == "ngram":
        parts.pop("model", None)
    features["speculation"] = replace(said, value=parts)


def _attention_groups(launcher: Launcher, options: Named, features: Named) -> None:
    """Divide the ranks of tensor parallelism into groups that compute the attention of their own sequences: no device is added.

    Each group of ``tp / groups`` ranks keeps the cache of its sequences, and the experts are divided over all ``tp`` ranks: in the words
    of the planner, ``tp / groups`` ranks, that many replicas, and ``ep = tp``.
    """
    ranks, groups = options.get("tp"), options.get(launcher.attention_groups)
    if not _is_on(features.get("attention_dp")) or groups is None:
        return
    features["attention_dp"] = groups
    if ranks is None or not isinstance(ranks.value, int) or not isinstance(groups.value, int):
        return
    if groups.value > 0 and ranks.value % groups.value == 0:
        options["dp"] = groups
        options["tp"] = replace(ranks, value=ranks.value // groups.value)
        options["ep"] = replace(options.get("ep", ranks), value=ranks.value)
        for name in ("max_num_seqs", "max_num_batched_tokens") if launcher.groups_share_limits else ():
            said = options.get(name)
            if said is not None and isinstance(said.value, int):
                options[name] = replace(said, value=max(1, said.value // groups.value))


def _spread_experts(options: Named, features: Named) -> None:
    """Experts are spread over all ranks of a stage where expert parallelism is switched on without a number."""
    switch = features.get("expert_parallel")
    if switch is None or switch.value is not True or "ep" in options:
        return
    ranks = 1
    for name in ("tp", "dp"):
        value = options[name].value if name in options else 1
        ranks *= value if isinstance(value, int) else 1
    if ranks > 1:
        options["ep"] = replace(switch, value=ranks)


def _divide_experts(launcher: Launcher, options: Named, features: Named) -> None:
    """Replicas that divide every expert among them hold as much as if they divided the experts: a part of all ranks of a stage."""
    copies, ranks = options.get("dp"), options.get("tp")
    if not launcher.replicas_divide_experts or "ep" in options or copies is None or not isinstance(copies.value, int):
        return
    model = _known(options)
    parts = [part for group in model.layers for part in group.mlp if isinstance(part, Moe)] if model is not None else []
    whole = copies.value * (ranks.value if ranks is not None and isinstance(ranks.value, int) else 1)
    if copies.value > 1 and parts and whole <= min(part.num_experts for part in parts):
        options["ep"] = replace(copies, value=whole)
        features["divided_experts"] = replace(copies, value=whole)
