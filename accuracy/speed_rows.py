"""Rows of published speeds beside their predictions: served rows in several ways, single runs, single streams.

A row that names what nothing describes, or is too large to be real, is answered without a prediction and with the reason: no row ends a
comparison of others. Only a file that cannot be read, or a measured figure that is none, does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..errors import RoofplanError
from ..models.spec import LatentAttention, Moe
from . import runs, single_stream
from .metrics import Comparison
from .served import case_of, predict, without_serving_constants
from .serving import figure_ids
from .truth import read_truth

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ..models.spec import ModelSpec
    from .served import Case, Served
    from .serving import ServingRow

UNSTATED = "not stated"
_MS = 1e3


def label(c: Comparison, name: str) -> str:
    """A label of a comparison, or empty."""
    return (c.labels or {}).get(name, "")


# ------------------------------------------------------------------------------------------------ served rows


@dataclass(slots=True)
class ServedComparisons:
    """What served rows gave, in several ways.

    Parameters
    ----------
    scored : figures that no rule leaves out
    with_left_out : all figures of closed loops, those that a rule leaves out among them
    bare : times per token of closed loops without any constant that was fitted on such rows
    by_defaults : closed loops with the engine's own defaults in the place of what is known of the launch
    """

    scored: list[Comparison] = field(default_factory=list)
    with_left_out: list[Comparison] = field(default_factory=list)
    bare: list[Comparison] = field(default_factory=list)
    by_defaults: list[Comparison] = field(default_factory=list)

    def add(self, row: ServingRow, *, simulate: bool) -> None:
        """Compare a row in all these ways."""
        scored = scored_figures(row)
        every = {"tpot_ms": row.tpot_s, "ttft_ms": row.ttft_s}
        is_load_known = row.concurrency is not None or row.request_rate is not None
        try:
            case = case_of(row)
            found = predict(case, simulate=simulate) if is_load_known else None
        except RoofplanError as error:
            self.scored += _unanswered(row, scored, str(error))
            return
        labels = labels_of(row) | {"kind": kind_of(case.deployment.model)}
        if found is None:
            self.scored += _unanswered(row, scored, "neither a concurrency nor a rate is recorded")
            return
        labels["queues"] = "yes" if found.waiting > 0 else "no"
        answers = [_answer(row, metric, measured, found, labels) for metric, measured in every.items()]
        self.scored += [answer for answer in answers if answer.metric in scored]
        if row.concurrency is None:
            return
        self.with_left_out += answers
        if "tpot_ms" in scored:
            found = predict(without_serving_constants(case))
            bare = replace(_answer(row, "tpot_ms", row.tpot_s, found, labels), low=None, high=None)
            self.bare.append(bare)
        if scored:
            self._add_by_defaults(row, scored, labels, simulate=simulate)

    def _add_by_defaults(
        self, row: ServingRow, scored: Mapping[str, float], labels: Mapping[str, str], *, simulate: bool
    ) -> None:
        try:
            found = predict(case_of(row, launched_by_defaults=True), simulate=simulate)
        except RoofplanError as error:
            self.by_defaults += _unanswered(row, scored, str(error))
            return
        self.by_defaults += [_answer(row, metric, measured, found, labels) for metric, measured in scored.items()]


def scored_figures(row: ServingRow) -> dict[str, float]:
    """The figures of a row that no rule leaves out, in seconds."""
    wanted = {"tpot_ms": (row.excluded_tpot, row.tpot_s), "ttft_ms": (row.excluded_ttft, row.ttft_s)}
    return {metric: measured for metric, (reason, measured) in wanted.items() if not reason}


def count_left_out(row: ServingRow, excluded: Counter[str]) -> None:
    """Count the figures of a row that a rule leaves out, by its reason."""
    for metric, reason in (("tpot_ms", row.excluded_tpot), ("ttft_ms", row.excluded_ttft)):
        if reason:
            excluded[f"{metric}: {reason}"] += 1


def _answer(row: ServingRow, metric: str, measured: float, found: Served, labels: Mapping[str, str]) -> Comparison:
    seconds, width = (found.tpot_s, found.width) if metric == "tpot_ms" else (found.ttft_s, found.first_token_width)
    predicted = seconds * _MS
    return Comparison(row.id, metric, measured * _MS, predicted, "", labels, predicted / width, predicted * width)


def _unanswered(row: ServingRow, figures: Mapping[str, float], reason: str, **labels: str) -> list[Comparison]:
    known = labels_of(row) | labels
    return [Comparison(row.id, metric, measured * _MS, None, reason, known) for metric, measured in figures.items()]


def left_out_of_the_fit(rows: Sequence[ServingRow], *, simulate: bool = False) -> Iterator[Comparison]:
    """Closed loops with constants that were fitted without the rows of their own model, device or engine (label ``left_out``).

    The constants are those of ``data/left_out.yaml``, fitted like the published ones: times to first token by the event simulation. With
    ``simulate`` they are also judged by it.
    """
    from .fit import serving as fit

    cases: list[Case] = []
    for row in rows:
        try:
            cases.append(fit.checked(case_of(row)))
        except RoofplanError as error:
            for name in fit.LABELS:
                yield from _unanswered(row, scored_figures(row), str(error), left_out=name)
    seen, published = fit.observed(cases), fit.published()
    for name, label_of in fit.LABELS.items():
        errors = fit.left_out(seen, fit.read_left_out()[name], published, label_of, simulate)
        for observation, log_error in zip(seen, errors, strict=True):
            measured = observation.measured_s * _MS
            labels = labels_of(observation.row) | {"left_out": name, "kind": kind_of(observation.case.deployment.model)}
            yield Comparison(
                observation.row.id, f"{observation.metric}_ms", measured, measured * math.exp(log_error), "", labels
            )


def labels_of(row: ServingRow) -> dict[str, str]:
    """The labels of a served row, by which results are grouped."""
    how = "served" if row.request_rate is None else "rate"
    return {**row.labels, "engine_version": row.version, "how": how, "precision": row.precision or UNSTATED}


def kind_of(model: ModelSpec) -> str:
    """Dense, with routed experts, or with latent attention."""
    parts = [part for group in model.layers for part in (*group.attention, *group.mlp)]
    if any(isinstance(part, LatentAttention) for part in parts):
        return "latent attention"
    return "experts" if any(isinstance(part, Moe) for part in parts) else "dense"


# ------------------------------------------------------------------------------------------------ other rows


def other_rows(table: str | Path, excluded: Counter[str]) -> Iterator[Comparison]:
    """Figures of a table with one line for each that are no served rows; those of a series that no rule knows are not answered."""
    for row, rule in runs.read_run_rows(table):
        if rule.how == "none":
            excluded[rule.why] += 1
        else:
            yield _named(runs.compare_run(row, rule), {})
    for c in single_stream.compare(single_stream.read_runs(table)):
        yield _named(c, {"how": "stream"})
    served = figure_ids(table)
    for row in read_truth(table, runs.COLUMNS):
        if row.name not in served and not single_stream.is_stream(row) and runs.rule_of(row) is None:
            reason = "a series that no rule knows (accuracy/runs.yaml)"
            metric, measured = row.text("metric"), row.positive("value")
            yield _named(Comparison(row.name, metric, measured, None, reason, row.labels), {"how": "unknown"})


def _named(c: Comparison, more: Mapping[str, str]) -> Comparison:
    """The labels of a table with one line for each figure, by the names of the served rows."""
    labels: dict[str, Any] = dict(c.labels or {})
    precision = labels.get("weights_dtype") or UNSTATED
    load = labels.get("batch_or_concurrency", "")
    return replace(c, labels={**labels, "precision": precision, "concurrency": load, **more})
