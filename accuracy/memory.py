"""Memory of serving engines: predictions against start-up logs, at three levels.

- ``tokens_from_kv``: tokens of the cache, from the logged bytes of it: layout, blocks, groups of layers.
- ``kv_from_parts``: bytes of the cache, from the logged parts: the engine's identity.
- ``kv_from_arguments``: bytes of the cache, from model, device and arguments alone: everything. Rows whose weights cannot be derived
  (towers beside the language model, adapters or formats that are not stated) are scored with the logged weights, apart from the others.

A start-up log prints the size of the device that it runs on; where it does, that size stands for the device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import api
from ..engines import load_format
from ..errors import RoofplanError
from ..planner.formats import main_class, parse_weights
from ..planner.memory import divide_memory, engine_cache, plan_capacity, plan_memory, share_by_ranks, stage_plans
from ..planner.paging import PagedCache, PageGroup
from . import names
from .metrics import Comparison
from .truth import GIB, TruthRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engines.profile import EngineProfile, Part
    from ..hardware.spec import HardwareSpec
    from ..models.spec import ModelSpec
    from ..planner.deployment import Deployment

COLUMNS = (
    "id",
    "engine",
    "engine_version",
    "model",
    "weights_dtype",
    "kv_dtype",
    "gpu",
    "tp",
    "pp",
    "max_model_len",
    "gpu_memory_utilization",
    "max_num_batched_tokens",
    "max_num_seqs",
    "enforce_eager",
    "total_gpu_gib",
    "weights_gib_per_gpu",
    "nontorch_gib",
    "activation_peak_gib",
    "kv_gib_per_gpu",
    "kv_tokens",
    "block_size",
    "notes",
)

TOKENS, PARTS, ARGUMENTS = "tokens_from_kv", "kv_from_parts", "kv_from_arguments"
GIVEN_WEIGHTS, ONLY_TOKENS, COMPUTE_BUFFER = "kv_from_arguments_and_weights", "tokens_from_arguments", "compute_buffer"
METRICS = {
    TOKENS: "tokens of the cache, from its logged bytes",
    PARTS: "bytes of the cache, from the logged parts",
    ARGUMENTS: "bytes of the cache, from model, device and arguments alone",
    GIVEN_WEIGHTS: "the same with the logged weights, where they cannot be derived",
    ONLY_TOKENS: "tokens of the cache from arguments, where the log gives no bytes",
    COMPUTE_BUFFER: "llama.cpp's compute buffer, from arguments",
}

_FREE = re.compile(r"available before KV (\d{1,6}(?:\.\d{1,6})?) GiB")
_AVAILABLE = re.compile(r"avail (\d{1,6}(?:\.\d{1,6})?) -> ")
_AVAILABLE_AFTER = re.compile(r"avail \d{1,6}(?:\.\d{1,6})? -> (\d{1,6}(?:\.\d{1,6})?)")
_AVAILABLE_AFTER_WEIGHTS = re.compile(r"avail (\d{1,6}(?:\.\d{1,6})?) before pool")
_CONSUMED = re.compile(r"consumed (\d{1,6}(?:\.\d{1,6})?)")
_GRAPH_ESTIMATE = re.compile(r"graph est (\d{1,6}(?:\.\d{1,6})?)")
_BUFFER_MIB = re.compile(r"compute buffer (\d{1,6}(?:\.\d{1,6})?) MiB")
_CONTEXT_RANKS = re.compile(r"\bDCP ?[2-9]|\bdecode[- ]context[- ]parallel", re.IGNORECASE)
_MICRO_BATCH = re.compile(r"n_ubatch (\d{1,6})")


@dataclass(frozen=True, slots=True)
class _Row:
    """A truth row with what its labels stand for."""

    truth: TruthRow
    model: ModelSpec | None
    engine: EngineProfile | None
    tp: int

    @classmethod
    def of(cls, truth: TruthRow) -> _Row:
        engine = names.engine_of(truth.text("engine"), truth.text("engine_version"), truth.text("notes"))
        return cls(truth, names.model_of(truth.text("model")), engine, truth.count("tp") or 1)


def compare_row(truth: TruthRow) -> Iterator[Comparison]:
    """Compare one row at every level that it logs enough for; what cannot be predicted says why.

    Raises
    ------
    SpecError : for a cell that is no number where one is wanted
    """
    row = _Row.of(truth)
    for comparison in (_tokens(row), _parts(row), _arguments(row), _compute_buffer(row)):
        if comparison is not None:
            yield comparison


def _compared(row: _Row, metric: str, measured: float, predicted: float | str) -> Comparison:
    """A comparison; instead of a prediction there may be the reason why there is none."""
    value, reason = (None, predicted) if isinstance(predicted, str) else (predicted, "")
    return Comparison(row.truth.name, metric, measured, value, reason, row.truth.labels)


# ------------------------------------------------------------------------------------------------ tokens from the cache


def _tokens(row: _Row) -> Comparison | None:
    cache, tokens = row.truth.gib("kv_gib_per_gpu"), row.truth.count("kv_tokens")
    if not cache or not tokens:
        return None
    return _compared(row, TOKENS, tokens, _predicted_tokens(row, cache))


def _predicted_tokens(row: _Row, cache_bytes: int) -> float | str:
    # What a cache holds hardly depends on the version: where that is not stated, the newest one stands for it.
    engine = row.engine or names.newest_engine(row.truth.text("engine"))
    if engine is None or engine.paging is None:
        return "no profile describes this engine"
    limit = row.truth.count("max_model_len") or 1
    if row.model is None:
        paged = _stated_shape(row, engine)
    else:
        deployment = deployment_of(row.truth, row.model, engine, any_device=True)
        if isinstance(deployment, str):
            return deployment
        laid_out = engine_cache(deployment)
        paged = laid_out if isinstance(laid_out, PagedCache) else None
        limit = deployment.longest_sequence
    if paged is None:
        return f"{_unknown(row)}, and its shape is not stated"
    # The log rounds the bytes, so the nearest whole block is meant.
    return paged.printed_tokens(cache_bytes + paged.block_bytes // 2, engine.paging, limit)


def _stated_shape(row: _Row, engine: EngineProfile) -> PagedCache | None:
    """The cache of a model that is not named but whose label states what a token takes."""
    element = names.format_of(row.truth.text("kv_dtype")) or "bf16"
    per_token = names.bytes_per_token(row.truth.text("model"), load_format(element).bytes_per_element, row.tp)
    if per_token is None or engine.paging is None:
        return None
    block = row.truth.count("block_size") or engine.paging.block
    return PagedCache((PageGroup("stated", 1, block, per_token * block),), shared=True)


# ------------------------------------------------------------------------------------------------ the cache from its parts


def _parts(row: _Row) -> Comparison | None:
    cache = row.truth.gib("kv_gib_per_gpu")
    if not cache:
        return None
    predicted = _from_free(row) or _from_available(row) or _from_identity(row)
    return None if predicted is None else _compared(row, PARTS, cache, predicted)


def _from_free(row: _Row) -> float | None:
    """Free memory times the fraction of it (TensorRT-LLM)."""
    free, share = row.truth.noted(_FREE), row.truth.share("gpu_memory_utilization")
    return None if free is None or share is None else free * GIB * share


def _from_available(row: _Row) -> float | None:
    """What is available after loading, less what the static fraction leaves free of that before (SGLang)."""
    if row.engine is None:
        return None
    after = row.truth.noted(_AVAILABLE_AFTER)
    before = row.truth.noted(_AVAILABLE)
    if after is None:
        after, weights = row.truth.noted(_AVAILABLE_AFTER_WEIGHTS), row.truth.number("weights_gib_per_gpu")
        before = None if after is None or weights is None else after + weights
    if after is None or before is None:
        return None
    share = row.truth.share("gpu_memory_utilization") or share_by_ranks(row.engine.budget, row.tp)
    return (after - (1 - share) * before) * GIB


def _from_identity(row: _Row) -> float | None:
    """The engine's identity on the parts of the log (formula F5.1). A newer log's activations already hold the estimate of graphs."""
    if row.engine is None:
        return None
    total, share = row.truth.gib("total_gpu_gib"), row.truth.share("gpu_memory_utilization")
    weights, runtime = row.truth.gib("weights_gib_per_gpu"), row.truth.gib("nontorch_gib")
    activations = row.truth.gib("activation_peak_gib")
    consumed = row.truth.noted(_CONSUMED)
    if consumed is not None:
        weights, runtime = round(consumed * GIB), 0
    if total is None or share is None or weights is None or runtime is None or activations is None:
        return None
    inside = "graphs" in row.engine.budget.within and consumed is None
    graphs = row.truth.noted(_GRAPH_ESTIMATE) if inside else None
    parts: dict[Part, int] = {
        "weights": weights,
        "runtime": runtime,
        "activations": activations,
        "graphs": round((graphs or 0) * GIB),
    }
    return divide_memory(row.engine.budget, total, share, parts)[1]


# ------------------------------------------------------------------------------------------------ the cache from arguments alone


def _arguments(row: _Row) -> Comparison | None:
    cache, tokens = row.truth.gib("kv_gib_per_gpu"), row.truth.count("kv_tokens")
    measured = cache or tokens
    if not measured:
        return None
    metric, deployment = _from_arguments(row)
    if not cache:
        metric = ONLY_TOKENS
    if isinstance(deployment, str):
        return _compared(row, metric, measured, deployment)
    return _compared(row, metric, measured, _kv_bytes(row, deployment) if cache else plan_tokens(deployment))


def _unknown(row: _Row) -> str:
    return (
        "the model is not in the catalogue" if names.names_model(row.truth.text("model")) else "the model is not named"
    )


def _from_arguments(row: _Row) -> tuple[str, Deployment | str]:
    """The metric that a row belongs to, and the deployment that its arguments describe, or why there is none."""
    label, weights = row.truth.text("model"), row.truth.gib("weights_gib_per_gpu")
    if row.engine is None:
        return ARGUMENTS, "the engine's version is not stated, or no profile describes it"
    if row.model is None or names.is_inferred(label):
        return ARGUMENTS, _unknown(row)
    obstacle = _obstacle(row, row.model)
    if obstacle and weights is None:
        return GIVEN_WEIGHTS, obstacle
    given = weights if obstacle else None
    return GIVEN_WEIGHTS if obstacle else ARGUMENTS, deployment_of(row.truth, row.model, row.engine, given)


def _kv_bytes(row: _Row, d: Deployment) -> float | str:
    if d.engine.budget.takes_all:  # nothing is sized by a share: the cache is what the context takes
        tokens = row.truth.count("max_model_len")
        return engine_cache(d).bytes_per_sequence(tokens) if tokens else "the context is not stated"
    return stage_plans(d)[0].kv_budget_bytes  # logs show the first rank


def plan_tokens(d: Deployment) -> int:
    """Tokens that the log of a deployment prints."""
    return plan_capacity(d, plan_memory(d)).kv_tokens


def _obstacle(row: _Row, model: ModelSpec) -> str:
    """Why the weights do not follow from model and arguments; empty where they do."""
    label = row.truth.text("weights_dtype")
    if not names.is_described_whole(row.truth.text("model"), model):
        return "towers beside the language model are not described"
    if "LoRA" in row.truth.text("notes"):
        return "adapters are held whose rank is not stated"
    if _is_quantised(model) or names.format_of(label) is not None:
        return ""
    return f"the format {label or 'of the weights'} is not one that tells bytes"


def _is_quantised(model: ModelSpec) -> bool:
    return model.weights not in {"bf16", "fp16", "fp32"}


def _weights(model: ModelSpec, label: str) -> str | None:
    """The format to ask for; None where the model is stored as the label says, or already narrower than the 16 bits that it names."""
    name = names.format_of(label)
    if name is None or not _is_quantised(model):
        return name
    main = main_class(model)
    published, asked = (parse_weights(text, load_format)[main].bits for text in (model.weights, name))
    return None if asked in {published, 16} else name


def deployment_of(
    truth: TruthRow,
    model: ModelSpec,
    engine: EngineProfile,
    weights_bytes: int | None = None,
    *,
    any_device: bool = False,
) -> Deployment | str:
    """The deployment that a row describes, on any device where none is named and it does not matter; or why there is none."""
    label = truth.text("gpu")
    device = names.device_of(label)
    total = truth.gib("total_gpu_gib")
    stated = names.stated_gib(label)
    if total is None and stated is not None:
        total = round(stated * GIB)
    if device is None:
        if total is None and not any_device:
            return "the device is not in the catalogue" if names.names_device(label) else "the device is not named"
        device = _any_device()
    weights, kv = _weights(model, truth.text("weights_dtype")), truth.text("kv_dtype")
    if kv and kv != "auto" and names.format_of(kv) is None:
        return f"the cache format {kv} is not known"
    if _CONTEXT_RANKS.search(truth.text("notes")):
        return "a cache that is divided by tokens over ranks (decode context parallelism) is not modelled"
    try:
        return api.deployment(
            model,
            device,
            engine=engine,
            weights=weights,
            kv=names.format_of(kv) or "bf16",
            activations="fp32" if weights == "fp32" else None,
            tp=truth.count("tp") or 1,
            pp=truth.count("pp") or 1,
            prompt=1,
            output=1,
            max_model_len=truth.count("max_model_len"),
            max_num_batched_tokens=truth.count("max_num_batched_tokens"),
            max_num_seqs=truth.count("max_num_seqs"),
            block_size=truth.count("block_size"),
            eager=truth.text("enforce_eager") == "True",
            offline="offline" in truth.text("notes"),
            device_memory=total,
            memory_utilization=truth.share("gpu_memory_utilization"),
            weights_memory=weights_bytes,
        )
    except RoofplanError as error:
        return str(error)


def _any_device() -> HardwareSpec:
    """A device that stands for one which is not named: only the memory matters, and that is given."""
    device = names.device_of("rtx-4090")
    assert device is not None
    return device


# ------------------------------------------------------------------------------------------------ other parts


def _compute_buffer(row: _Row) -> Comparison | None:
    """The compute buffer of llama.cpp, where the remarks state it."""
    measured, micro_batch = row.truth.noted(_BUFFER_MIB), row.truth.noted(_MICRO_BATCH)
    if measured is None or micro_batch is None or row.model is None or row.engine is None:
        return None
    deployment = deployment_of(row.truth, row.model, row.engine, any_device=True)
    predicted: float | str = deployment if isinstance(deployment, str) else stage_plans(deployment)[0].activation_bytes
    return _compared(row, COMPUTE_BUFFER, measured * 2**20, predicted)
