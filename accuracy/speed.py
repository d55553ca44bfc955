"""The answer of ``roofplan accuracy speed``: predictions beside published serving benchmarks and single runs, misses included.

Kinds of rows are told apart by the label ``how``: served (closed loops of ``data/e2e_serving.csv``), rate (requests at a rate), stream
(single streams of llama.cpp), and the runs of ``runs.yaml`` (offline, static, single, …). What is not scored is counted with its
reason; of rows that do not record the format of the weights the headline knows nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UnknownNameError
from ..planner.results import Answer
from .constants import FittedFile, distinct, fitted_files
from .metrics import Comparison, grouped, metrics_of, reasons_of
from .serving import DATA, read_rows, read_speed_rows
from .speed_rows import UNSTATED, ServedComparisons, count_left_out, label, left_out_of_the_fit, other_rows
from .truth import read_truth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["GROUPS", "UNSTATED", "SpeedAccuracy", "label", "shown", "speed_accuracy"]

GROUPS = ("how", "kind", "engine", "gpu", "concurrency", "precision", "devices")
_WORST = 15


@dataclass(frozen=True, slots=True)
class SpeedAccuracy(Answer):
    """Predictions beside published times and rates.

    ``metrics`` are those of all rows that record the format of their weights; the groups hold the others too.

    Parameters
    ----------
    data, by, simulate : what was asked
    comparisons : every figure that no written rule leaves out
    with_left_out : served rows, with the figures that a rule leaves out
    bare : times per token of served rows without any constant that was fitted on such rows
    by_defaults : served rows with the engine's defaults in the place of the known launch settings (client, version, cache format stay)
    left_out : served rows with constants fitted without those of their own model, device or engine (label ``left_out``)
    excluded : figures that a written rule leaves out, by its reason
    constants : what was fitted, by file
    rows : settings and figures that were read
    """

    data: str
    by: tuple[str, ...]
    simulate: bool
    comparisons: tuple[Comparison, ...]
    with_left_out: tuple[Comparison, ...]
    bare: tuple[Comparison, ...]
    by_defaults: tuple[Comparison, ...]
    left_out: tuple[Comparison, ...]
    excluded: tuple[tuple[str, int], ...]
    constants: tuple[FittedFile, ...]
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

    @property
    def left_out_by_kind(self) -> dict[str, dict[str, Any]]:
        """Metrics of rows whose own model, device or engine was left out of the fit: ``{"model, dense": {metric: Metric}}``."""
        found = {}
        for name, own in _split(self.left_out, "left_out").items():
            found[name] = metrics_of(own)
            if name == "model":
                kinds = grouped(own, ("kind",))["kind"]
                found |= {f"{name}, {kind}": metrics for kind, metrics in kinds.items()}
        return found

    def worst(self, count: int = _WORST) -> list[Comparison]:
        """The largest errors, as ratios."""
        answered = [c for c in self.comparisons if c.predicted]
        return sorted(answered, key=lambda c: (-_ratio(c), c.row, c.metric))[:count]

    def figures(self) -> dict[str, Any]:
        """What was found."""
        files = [{"file": one.file, "names": list(one.names)} for one in self.constants]
        stated = sum(len(one.figures) for one in self.constants)
        return {
            "rows": self.rows,
            "coverage": self.coverage,
            "metrics": metrics_of(self.headline),
            "metrics_of_all": metrics_of(self.comparisons),
            "metrics_with_left_out_rows": metrics_of(self.with_left_out),
            "metrics_without_serving_constants": metrics_of(self.bare),
            "metrics_by_engine_defaults": metrics_of(self.by_defaults),
            **({"left_out": self.left_out_by_kind} if self.left_out else {}),
            "groups": grouped(self.comparisons, dict.fromkeys((*GROUPS, *self.by))),
            "excluded": [{"reason": reason, "figures": count} for reason, count in self.excluded],
            "unanswered": [{"row": c.row, "metric": c.metric, "reason": c.reason} for c in self.unanswered],
            "unanswered_by_reason": [
                {"reason": reason, "figures": count} for reason, count in reasons_of(self.unanswered)
            ],
            "fitted_constants": {"stated": stated, "distinct": distinct(self.constants), "files": files},
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


_LABELS = ("how", "engine", "engine_version", "model", "gpu", "precision", "isl", "osl", "concurrency", "tp")
_COLUMNS = ("row", "metric", "measured", "predicted", "error", "low", "high", *_LABELS, "reason")


def shown(c: Comparison) -> dict[str, Any]:
    """One comparison as plain columns."""
    figures = {"row": c.row, "metric": c.metric, "measured": c.measured, "predicted": c.predicted, "error": c.error}
    return figures | {name: label(c, name) for name in _LABELS}


def _ratio(c: Comparison) -> float:
    return abs(math.log(c.predicted / c.measured)) if c.predicted and c.measured else 0.0


def _split(comparisons: Sequence[Comparison], column: str) -> dict[str, list[Comparison]]:
    found: dict[str, list[Comparison]] = {}
    for c in comparisons:
        found.setdefault(label(c, column), []).append(c)
    return dict(sorted(found.items()))


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
    SpecError : for a file that is neither, or a measured figure that is none
    UnknownNameError : for a label that no row has
    """
    served, table = _files(data)
    rows = [*(read_rows(served) if served else ()), *(read_speed_rows(table) if table else ())]
    excluded: Counter[str] = Counter()
    found = ServedComparisons()
    for number, row in enumerate(rows):
        if progress is not None and number % 50 == 0:
            progress(number, len(rows))
        count_left_out(row, excluded)
        found.add(row, simulate=simulate)
    others = tuple(other_rows(table, excluded)) if table is not None else ()
    comparisons = (*found.scored, *others)
    known = {name for c in comparisons for name in c.labels or {}}
    for name in by:
        if name not in known:
            raise UnknownNameError("--by", got=name, wanted=f"labels of the rows: {', '.join(sorted(known))}")
    closed = [row for row in rows if row.concurrency is not None]
    return SpeedAccuracy(
        data="accuracy/data" if data is None else str(data),
        by=tuple(by),
        simulate=simulate,
        comparisons=comparisons,
        with_left_out=tuple(found.with_left_out),
        bare=tuple(found.bare),
        by_defaults=tuple(found.by_defaults),
        left_out=tuple(left_out_of_the_fit(closed, simulate=simulate)) if leave_one_out else (),
        excluded=tuple(sorted(excluded.items(), key=lambda item: (-item[1], item[0]))),
        constants=fitted_files(),
        rows=len(rows) + len(others),
    )


def _files(data: str | Path | None) -> tuple[str | Path | None, str | Path | None]:
    """The file of closed loops, and the one with one line for each figure."""
    if data is None:
        return DATA / "e2e_serving.csv", DATA / "speed.csv"
    header = read_truth(data, ()) if str(data) != "-" else []
    is_table = bool(header) and "metric" in header[0].texts
    return (None, data) if is_table else (data, None)
