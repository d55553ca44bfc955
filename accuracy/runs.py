"""Published figures that are not those of a server under a measured load: offline throughput, static batches, single requests.

``runs.yaml`` says how each series of ``data/speed.csv`` was run; series that are scored elsewhere, or cannot be, are counted there
with the reason.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .. import api, engines, specfiles
from ..errors import RoofplanError
from ..planner.evidence import evidence_of
from ..planner.latency import chunks
from ..planner.load import Server, Traffic, closed_loop, saturated
from ..planner.step import StepModel
from ..planner.times import places_of
from . import names
from .limits import check_sizes
from .metrics import Comparison
from .truth import TruthRow, read_truth

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..planner.deployment import Deployment

COLUMNS = (
    *("id", "engine", "model", "weights_dtype", "kv_dtype", "gpu", "gpu_count", "tp", "pp", "ep", "isl", "osl"),
    *("batch_or_concurrency", "metric", "value", "notes"),
)
_CONFIG: dict[str, Any] = {"extra": "forbid"}
_RULES = Path(str(files("roofplan.accuracy") / "runs.yaml"))
_WHOLE_DEVICES = re.compile(r"layout DEP(\d)")
How = Literal["offline", "static", "single", "closed", "saturated_prefill", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Tokens of prompt and output that a row is taken to have had."""

    prompt: int
    output: int
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRule:
    """How the rows of some series were run; every column that is named must have one of the values."""

    series: tuple[str, ...] | None = None
    engines: tuple[str, ...] | None = None
    gpus: tuple[str, ...] | None = None
    concurrency: tuple[str, ...] | None = None
    metrics: tuple[str, ...] | None = None
    lengths: tuple[str, ...] | None = None
    how: How
    engine: str = ""
    activations: str | None = None
    eager: bool = False
    lengths_taken: Lengths | None = None
    why: str = ""
    source: str = ""
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def fits(self, row: TruthRow) -> bool:
        """Whether a row is one of those that it is about."""
        columns = (
            (row.name.partition("-")[0], self.series),
            (row.text("engine"), self.engines),
            (row.text("gpu"), self.gpus),
            (row.text("batch_or_concurrency"), self.concurrency),
            (row.text("metric"), self.metrics),
            (row.text("isl"), self.lengths),
        )
        return all(wanted is None or value in wanted for value, wanted in columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """The file of rules; the first that fits a row holds."""

    schema: Literal["roofplan/runs/v1"]
    runs: tuple[RunRule, ...]
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@functools.cache
def rules() -> RunRules:
    """The rules of ``runs.yaml``."""
    return specfiles.validate(RunRules, specfiles.read_document(_RULES))


def rule_of(row: TruthRow) -> RunRule | None:
    """The rule that holds for a row, or None."""
    return next((rule for rule in rules().runs if rule.fits(row)), None)


def read_run_rows(path: str | Path) -> list[tuple[TruthRow, RunRule]]:
    """The rows of a table that rules are about, those that are not scored among them."""
    found = ((row, rule_of(row)) for row in read_truth(path, COLUMNS))
    return [(row, rule) for row, rule in found if rule is not None]


def compare_run(row: TruthRow, rule: RunRule) -> Comparison:
    """Predict what a row measured, or say why not."""
    metric, measured = row.text("metric"), row.positive("value")
    labels = row.labels | {"how": rule.how}
    try:
        d = _deployment(row, rule)
        predicted = _PREDICT[rule.how](d, row, metric)
    except RoofplanError as error:
        return Comparison(row.name, metric, measured, None, str(error), labels)
    if predicted is None:
        return Comparison(row.name, metric, measured, None, f"{metric} of a {rule.how} run is not predicted", labels)
    evidence = evidence_of(d)
    width = evidence.first_token_width if metric in {"ttft_ms", "prefill_tok_s"} else evidence.width
    return Comparison(row.name, metric, measured, predicted, "", labels, predicted / width, predicted * width)


def _deployment(row: TruthRow, rule: RunRule) -> Deployment:
    prompt, output = _length(row, "isl", rule), _length(row, "osl", rule)
    clients = row.count("batch_or_concurrency") if rule.how in {"static", "closed"} else None
    check_sizes(prompt, output, clients or 1)
    return _built(
        row.text("model"),
        row.text("weights_dtype"),
        row.text("kv_dtype"),
        row.text("gpu"),
        rule.engine,
        rule.activations,
        _layout(row),
        prompt,
        output,
        rule.eager,
    )


def _length(row: TruthRow, column: str, rule: RunRule) -> int:
    if rule.lengths_taken is not None:
        return rule.lengths_taken.prompt if column == "isl" else rule.lengths_taken.output
    return int(row.number(column) or 1) or 1


def _layout(row: TruthRow) -> tuple[tuple[str, int], ...]:
    tp, pp, ep = row.count("tp") or 1, row.count("pp") or 1, row.count("ep") or 1
    together = _WHOLE_DEVICES.search(row.text("notes"))
    if together is not None:
        ranks = int(together[1])
        return (("tp", 1), ("pp", 1), ("dp", ranks), ("ep", ranks))
    return (("tp", tp), ("pp", pp), ("dp", 1), ("ep", min(ep, tp)))


@functools.cache
def _built(
    model: str,
    weights: str,
    kv: str,
    gpu: str,
    engine: str,
    activations: str | None,
    layout: tuple[tuple[str, int], ...],
    prompt: int,
    output: int,
    eager: bool,
) -> Deployment:
    options: dict[str, Any] = {
        "engine": engines.load(engine),
        "weights": names.table()["run_formats"].get(weights, weights),
        "kv": names.cache_format_of(kv),
        "activations": activations,
        "prompt": prompt,
        "output": output,
        "eager": eager,
        **dict(layout),
    }
    return api.deployment(names.named_model(model), names.named_device(gpu), **options)


# ------------------------------------------------------------------------------------------------ how it was run


def _single(d: Deployment, row: TruthRow, metric: str) -> float | None:
    model, workload = _model(d), d.workload
    # A row of no prompt tokens is a context of none: the intercept of a line.
    before = 0 if row.text("isl") == "0" else workload.prompt
    step = float(model.step_s(1.0, before + workload.output / 2))
    prompt = sum(
        float(model.step_s(0.0, 0.0, chunk=c, past=p)) for c, p in chunks(workload.prompt, d.max_batched_tokens)
    )
    return {
        "tpot_ms": step * 1e3,
        "decode_step_ms": step * 1e3,
        "decode_tok_s_per_user": 1 / step,
        "output_tok_s_total": 1 / step,
        "ttft_ms": (prompt + d.scheduling.request_overhead) * 1e3,
        "prefill_tok_s": workload.prompt / prompt,
    }.get(metric)


def _static(d: Deployment, row: TruthRow, metric: str) -> float | None:
    model, workload, batch = _model(d), d.workload, row.count("batch_or_concurrency") or 1
    prompt = float(model.step_s(0.0, 0.0, chunk=float(batch * workload.prompt), pieces=batch))
    step = float(model.step_s(float(batch), workload.mean_context))
    whole = prompt + (workload.output - 1) * step
    return {
        "output_tok_s_total": batch * workload.output / whole,
        "decode_step_ms": whole / workload.output * 1e3,
        "ttft_ms": prompt * 1e3,
    }.get(metric)


def _offline(d: Deployment, _row: TruthRow, metric: str) -> float | None:
    if metric != "output_tok_s_total":
        return None
    workload = d.workload
    found = saturated(_server(d), Traffic(float(workload.prompt), float(workload.output), 1))
    return found.requests_per_s * workload.output * d.layout.dp


def _closed(d: Deployment, row: TruthRow, metric: str) -> float | None:
    workload, clients = d.workload, row.count("batch_or_concurrency") or 1
    state = closed_loop(_server(d), Traffic(float(workload.prompt), float(workload.output), clients, waves=1))
    whole = state.ttft_s + (workload.output - 1) * state.tpot_s
    return {
        "ttft_ms": state.ttft_s * 1e3,
        "tpot_ms": state.tpot_s * 1e3,
        "output_tok_s_total": clients * workload.output / whole,
    }.get(metric)


def _saturated_prefill(d: Deployment, _row: TruthRow, metric: str) -> float | None:
    if metric != "prefill_tok_s":
        return None
    filled = max(1, d.max_batched_tokens // d.workload.prompt)
    tokens = float(filled * d.workload.prompt)
    return tokens / float(_model(d).step_s(0.0, 0.0, chunk=tokens, pieces=filled))


def _server(d: Deployment) -> Server:
    scheduling = replace(d.scheduling, request_overhead=0.0)
    return Server(
        model=_model(d),
        scheduling=scheduling,
        budget=d.max_batched_tokens,
        places=max(1, places_of(d)),
        stages=d.layout.pp,
    )


def _model(d: Deployment) -> StepModel:
    return StepModel.reached(d)


_PREDICT: dict[str, Callable[[Deployment, TruthRow, str], float | None]] = {
    "single": _single,
    "static": _static,
    "offline": _offline,
    "closed": _closed,
    "saturated_prefill": _saturated_prefill,
}
