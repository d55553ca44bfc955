"""The answer of ``roofplan accuracy speed``: predictions beside published serving benchmarks and single runs, misses included.

Four kinds of rows, told apart by the label ``how``: served (closed loops of ``data/e2e_serving.csv``), rate (requests at a rate), stream
(single streams of llama.cpp), and the runs of ``runs.yaml`` (offline, static, single, …). What is not scored is counted with its
reason; of rows that do not record the format of the weights the headline knows nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RoofplanError, UnknownNameError
from ..planner.results import Answer
from . import runs, single_stream
from .metrics import Comparison, grouped, metrics_of
from .served import case_of, predict, without_serving_constants
from .serving import DATA, read_rows, read_speed_rows
from .truth import read_truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .served import Served
    from .serving import ServingRow

GROUPS = ("how", "kind", "engine", "gpu", "concurrency", "precision", "devices")
_WORST = 15
_MS = 1e3


@dataclass(frozen=True, slots=True)
class SpeedAccuracy(Answer):
    """Predictions beside published times and rates.

    ``metrics`` are those of all rows that record the format of their weights; the groups hold the others too. ``bare`` are the times per
    token of served rows without any constant that was fitted on such rows, ``left_out`` served rows with constants that were fitted without
    those of their own model, device or engine (label ``left_out``). ``excluded`` counts the figures that a written rule leaves out.
    """

    data: str
    by: tuple[str, ...]
    simulate: bool
    comparisons: tuple[Comparison, ...]
    bare: tuple[Comparison, ...]
    left_out: tuple[Comparison, ...]
    excluded: tuple[tuple[str, int], ...]
    rows: int

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "accuracy speed"

    def inputs(self) -> dict[str, Any]:
        """What was asked."""
        return {"data": self.data, "by": list(self.by), "simulate": self.simulate}

    @property
    def headline(self) -> tuple[Comparison, ...]:
        """Comparisons of rows that record the format of their weights."""
        return tuple(c for c in self.comparisons if label(c, "precision") != UNSTATED)

    @property
    def unanswered(self) -> tuple[Comparison, ...]:
        """Comparisons without a prediction."""
        return tuple(c for c in self.comparisons if c.predicted is None)

    @property
    def coverage(self) -> float:
        """Share of the figures that no rule leaves out which are answered."""
        return 1 - len(self.unanswered) / max(1, len(self.comparisons))

    def worst(self, count: int = _WORST) -> list[Comparison]:
        """The largest errors, as ratios."""
        answered = [c for c in self.comparisons if c.predicted]
        return sorted(answered, key=lambda c: (-_ratio(c), c.row, c.metric))[:count]

    def figures(self) -> dict[str, Any]:
        """What was found."""
        return {
            "rows": self.rows,
            "coverage": self.coverage,
            "metrics": metrics_of(self.headline),
            "metrics_of_all": metrics_of(self.comparisons),
            "metrics_without_serving_constants": metrics_of(self.bare),
            **({"left_out": grouped(self.left_out, ("left_out",))["left_out"]} if self.left_out else {}),
            "groups": grouped(self.comparisons, dict.fromkeys((*GROUPS, *self.by))),
            "excluded": [{"reason": reason, "figures": count} for reason, count in self.excluded],
            "unanswered": [{"row": c.row, "metric": c.metric, "reason": c.reason} for c in self.unanswered],
            "worst": [shown(c) for c in self.worst()],
        }

    def to_rows(self) -> str:
        """Every comparison as a line of CSV."""
        import csv
        import io

        stream = io.StringIO()
        writer = csv.DictWriter(stream, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**shown(c), "low": c.low, "high": c.high, "reason": c.reason} for c in self.comparisons)
        return stream.getvalue()


UNSTATED = "not stated"
_LABELS = ("how", "engine", "engine_version", "model", "gpu", "precision", "isl", "osl", "concurrency", "tp")
_COLUMNS = ("row", "metric", "measured", "predicted", "error", "low", "high", *_LABELS, "reason")


def label(c: Comparison, name: str) -> str:
    """A label of a comparison, or empty."""
    return (c.labels or {}).get(name, "")


def shown(c: Comparison) -> dict[str, Any]:
    """One comparison as plain columns."""
    figures = {"row": c.row, "metric": c.metric, "measured": c.measured, "predicted": c.predicted, "error": c.error}
    return figures | {name: label(c, name) for name in _LABELS}


def _ratio(c: Comparison) -> float:
    return abs(math.log(c.predicted / c.measured)) if c.predicted and c.measured else 0.0


def speed_accuracy(
    data: str | Path | None = None,
    by: Sequence[str] = (),
    *,
    simulate: bool = False,
    leave_one_out: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> SpeedAccuracy:
    """Compare predictions with published speeds.

    Parameters
    ----------
    data : CSV in the columns of accuracy/data/e2e_serving.csv or of accuracy/data/speed.csv; default both of these files
    by : labels by whose values the metrics are also given
    simulate : closed loops through the event simulation instead of the closed form
    leave_one_out : also fit the constants without each model, device and engine, and predict its rows with them (closed form)
    progress : called with the rows that are done and their number

    Raises
    ------
    SpecError : for a file that is neither
    UnknownNameError : for a label that no row has
    """
    served, table = _files(data)
    rows = [*(read_rows(served) if served else ()), *(read_speed_rows(table) if table else ())]
    excluded: Counter[str] = Counter()
    comparisons: list[Comparison] = []
    bare: list[Comparison] = []
    for number, row in enumerate(rows):
        if progress is not None and number % 50 == 0:
            progress(number, len(rows))
        comparisons += _compared(row, excluded, simulate=simulate)
        bare += _bare(row)
    count = len(rows)
    if table is not None:
        others = [*_of_runs(table, excluded), *_of_streams(table)]
        _count_unknown(table, excluded)
        count += len(others)
        comparisons += others
    known = {name for c in comparisons for name in c.labels or {}}
    for name in by:
        if name not in known:
            raise UnknownNameError("--by", got=name, wanted=f"labels of the rows: {', '.join(sorted(known))}")
    return SpeedAccuracy(
        data="accuracy/data" if data is None else str(data),
        by=tuple(by),
        simulate=simulate,
        comparisons=tuple(comparisons),
        bare=tuple(bare),
        left_out=tuple(_left_out(rows)) if leave_one_out else (),
        excluded=tuple(sorted(excluded.items(), key=lambda item: (-item[1], item[0]))),
        rows=count,
    )


def _files(data: str | Path | None) -> tuple[str | Path | None, str | Path | None]:
    """The file of closed loops, and the one with one line for each figure."""
    if data is None:
        return DATA / "e2e_serving.csv", DATA / "speed.csv"
    header = read_truth(data, ()) if str(data) != "-" else []
    is_table = bool(header) and "metric" in header[0].texts
    return (None, data) if is_table else (data, None)


# ------------------------------------------------------------------------------------------------ served rows


def _compared(row: ServingRow, excluded: Counter[str], *, simulate: bool) -> Iterator[Comparison]:
    wanted = {"tpot_ms": (row.excluded_tpot, row.tpot_s), "ttft_ms": (row.excluded_ttft, row.ttft_s)}
    for metric, (reason, _) in wanted.items():
        if reason:
            excluded[f"{metric}: {reason}"] += 1
    scored = {metric: measured for metric, (reason, measured) in wanted.items() if not reason}
    if not scored:
        return
    try:
        case = case_of(row)
        found = predict(case, simulate=simulate)
    except RoofplanError as error:
        for metric, measured in scored.items():
            yield Comparison(row.id, metric, measured * _MS, None, str(error), _labels(row))
        return
    labels = _labels(row) | {"kind": _kind(case.deployment.model)}
    for metric, measured in scored.items():
        predicted, width = _of_metric(found, metric)
        yield Comparison(
            row.id,
            metric,
            measured * _MS,
            predicted * _MS,
            "",
            labels,
            predicted / width * _MS,
            predicted * width * _MS,
        )


def _bare(row: ServingRow) -> Iterator[Comparison]:
    if row.excluded_tpot or row.concurrency is None:
        return
    try:
        found = predict(without_serving_constants(case_of(row)))
    except RoofplanError:
        return  # told with the others
    yield Comparison(row.id, "tpot_ms", row.tpot_s * _MS, found.tpot_s * _MS, "", _labels(row))


def _left_out(rows: Sequence[ServingRow]) -> Iterator[Comparison]:
    from .fit import serving as fit

    seen = fit.observations([row for row in rows if row.concurrency is not None])
    constants = fit.published()
    fitted = (constants, *fit.linearised(seen, constants, simulate=False))
    for name, label_of in fit.LABELS.items():
        for observation, error in zip(seen, fit.left_out(seen, fitted, seen, label_of, simulate=False), strict=True):
            measured = observation.measured_s * _MS
            labels = _labels(observation.row) | {"left_out": name, "kind": _kind(observation.case.deployment.model)}
            yield Comparison(
                observation.row.id, f"{observation.metric}_ms", measured, measured * math.exp(error), "", labels
            )


def _of_metric(found: Served, metric: str) -> tuple[float, float]:
    return (found.tpot_s, found.width) if metric == "tpot_ms" else (found.ttft_s, found.first_token_width)


def _labels(row: ServingRow) -> dict[str, str]:
    how = "served" if row.request_rate is None else "rate"
    return {**row.labels, "engine_version": row.version, "how": how, "precision": row.precision or UNSTATED}


def _kind(model: Any) -> str:
    """Dense, with routed experts, or with latent attention."""
    from ..models.spec import LatentAttention, Moe

    parts = [part for group in model.layers for part in (*group.attention, *group.mlp)]
    if any(isinstance(part, LatentAttention) for part in parts):
        return "latent attention"
    return "experts" if any(isinstance(part, Moe) for part in parts) else "dense"


# ------------------------------------------------------------------------------------------------ other rows


def _of_runs(table: str | Path, excluded: Counter[str]) -> Iterator[Comparison]:
    for row, rule in runs.read_run_rows(table):
        if rule.how == "none":
            excluded[rule.why] += 1
        else:
            yield _named(runs.compare_run(row, rule), {})


def _count_unknown(table: str | Path, excluded: Counter[str]) -> None:
    """Rows of series that no rule knows are not scored, and counted."""
    for row in read_truth(table, runs.COLUMNS):
        if runs.rule_of(row) is None and row.name.partition("-")[0] not in single_stream.SERIES:
            excluded["a series that no rule knows (accuracy/runs.yaml)"] += 1


def _of_streams(table: str | Path) -> Iterator[Comparison]:
    for c in single_stream.compare(single_stream.read_runs(table)):
        yield _named(c, {"how": "stream"})


def _named(c: Comparison, more: Mapping[str, str]) -> Comparison:
    """The labels of a table with one line for each figure, by the names of the served rows."""
    labels = dict(c.labels or {})
    precision = labels.get("weights_dtype") or UNSTATED
    load = labels.get("batch_or_concurrency", "")
    return replace(c, labels={**labels, "precision": precision, "concurrency": load, **more})
