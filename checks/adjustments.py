"""What the flags of one engine mean together, where no single flag of a launcher file can say it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .vllm_adjustments import adjust_vllm, made_on_loading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .record import Flag, Said

    Named = dict[str, Said[Any]]

# What llama-server takes of a repository that is named without a file type (tools/server/README.md, --hf-repo).
_DEFAULT_FILE_TYPE = "q4_k_m"
_REPOSITORY = re.compile(r"([A-Za-z0-9][\w.-]*/[\w.-]+?)(?::([A-Za-z0-9_.-]+))?")


def adjust(engine: str, options: Named, features: Named, flags: Sequence[Flag]) -> None:
    """Bring options and features to what they mean together; they are changed in place.

    Parameters
    ----------
    engine : name of the launcher's engine
    options, features : of the record, as single flags gave them
    flags : as written
    """
    adjustment = _ADJUSTMENTS.get(engine)
    if adjustment is not None:
        adjustment(options, features, flags)


def _llama_cpp(options: Named, features: Named, flags: Sequence[Flag]) -> None:  # noqa: ARG001  # one signature for all
    """Name the file type of a repository (``user/repo:Q8_0``), and give each slot its part of the context.

    ``--ctx-size`` is the whole cache; ``--parallel n`` divides it into n equal slots unless ``--kv-unified`` lets them share it
    (ggml-org/llama.cpp pull 16736; src/llama-context.cpp, n_ctx_seq).
    """
    model = options.get("model")
    if model is not None and _written(flags, model) == "--hf-repo":
        match = _REPOSITORY.fullmatch(str(model.value))
        if match is not None:
            options["model"] = replace(model, value=match[1])
            has_file = any(flag.name == "--hf-file" for flag in flags)
            if match[2] or not has_file:
                options.setdefault("weights", replace(model, value=(match[2] or _DEFAULT_FILE_TYPE).lower()))
    context, slots = options.get("max_model_len"), options.get("max_num_seqs")
    if (
        context is None
        or slots is None
        or any(flag.name == "--kv-unified" and flag.value.value is True for flag in flags)
    ):
        return
    if isinstance(context.value, int) and isinstance(slots.value, int) and context.value >= slots.value > 1:
        options["max_model_len"] = replace(context, value=context.value // slots.value)


def _sglang(options: Named, features: Named, flags: Sequence[Flag]) -> None:  # noqa: ARG001  # one signature for all
    """Attention in data parallel, and weights that are quantised while they are loaded.

    With ``--enable-dp-attention`` the groups are those of ``--dp-size``. Source: sgl-project/sglang 0.5.12,
    python/sglang/srt/server_args.py, enable_dp_attention (its models are mixtures of experts) and quantization
    """
    made_on_loading(options, features, {"fp8": "fp8", "mxfp8": "mxfp8", "bitsandbytes": "nf4"})
    switch, groups = features.get("attention_dp"), options.get("dp")
    if switch is not None and switch.value is True and groups is not None:
        features["attention_dp"] = groups
        _divide_attention(options, groups)


def _tensorrt_llm(options: Named, features: Named, flags: Sequence[Flag]) -> None:  # noqa: ARG001  # one signature for all
    """Settings of the cache from the file of settings, and attention in data parallel: one group a rank.

    Source: NVIDIA/TensorRT-LLM fcd3f316, tensorrt_llm/llmapi/llm_args.py, KvCacheConfig; tensorrt_llm/mapping.py, enable_attention_dp
    """
    cache = features.pop("kv_cache_config", None)
    for name, value in ({} if cache is None or not isinstance(cache.value, dict) else cache.value).items():
        assert cache is not None
        if value != "auto":
            (features if name == "prefix_caching" else options).setdefault(name, replace(cache, value=value))
    switch, ranks = features.get("attention_dp"), options.get("tp")
    if switch is not None and switch.value is True and ranks is not None:
        features["attention_dp"] = ranks
        _divide_attention(options, ranks)


def _divide_attention(options: Named, groups: Said[Any]) -> None:
    """Divide the ranks of tensor parallelism into groups that compute the attention of their own sequences: no device is added.

    Each group of ``tp / groups`` ranks keeps the cache of its sequences, and the experts are divided over all ``tp`` ranks: in the words
    of the planner, ``tp / groups`` ranks, that many replicas, and ``ep = tp``.
    """
    ranks, count = options.get("tp"), groups.value
    if (
        ranks is None
        or not isinstance(ranks.value, int)
        or not isinstance(count, int)
        or count < 1
        or ranks.value % count
    ):
        return
    options["dp"] = groups
    options["tp"] = replace(ranks, value=ranks.value // count)
    options["ep"] = replace(options.get("ep", ranks), value=ranks.value)


def _written(flags: Sequence[Flag], said: Said[Any]) -> str:
    """The name of the flag that said something; empty where a variable did."""
    return next((flag.name for flag in flags if flag.value.place == said.place and flag.value.text == said.text), "")


_ADJUSTMENTS: dict[str, Callable[[Named, Named, Sequence[Flag]], None]] = {
    "llama.cpp": _llama_cpp,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt_llm,
    "vllm": adjust_vllm,
}
