"""The answer of ``roofplan accuracy memory``: metrics over all rows, by groups, the rows that are not answered, and the worst misses."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UnknownNameError
from ..planner.results import Answer
from . import names
from .activations import ActivationFit, fit_activations
from .memory import COLUMNS, compare_row
from .metrics import Comparison, grouped, metrics_of
from .truth import read_truth

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA = Path(str(files("roofplan.accuracy") / "data"))
_WORST = 10


@dataclass(frozen=True, slots=True)
class MemoryAccuracy(Answer):
    """Predictions beside start-up logs.

    The metrics at the top are those of rows that agree with themselves (``consistent`` is yes); incomplete rows are in the groups. Rows
    that contradict themselves are not scored. ``coverage`` is the share of rows naming model and device that are answered in all they log.
    """

    data: str
    by: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    fit: ActivationFit | None
    coverage: float | None
    rows: int

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "accuracy memory"

    def inputs(self) -> dict[str, Any]:
        """What was asked."""
        return {"data": self.data, "by": list(self.by)}

    @property
    def scored(self) -> tuple[Comparison, ...]:
        """Comparisons of rows that agree with themselves."""
        return tuple(c for c in self.comparisons if _trusted(c) == "yes")

    @property
    def unanswered(self) -> tuple[Comparison, ...]:
        """Comparisons without a prediction."""
        return tuple(c for c in self.comparisons if c.predicted is None)

    def worst(self, comparisons: Sequence[Comparison] | None = None, count: int = _WORST) -> list[Comparison]:
        """The largest errors, over all levels or of some comparisons."""
        answered = [c for c in (self.scored if comparisons is None else comparisons) if c.error is not None]
        return sorted(answered, key=lambda c: (-abs(c.error or 0.0), c.row, c.metric))[:count]

    def figures(self) -> dict[str, Any]:
        """What was found."""
        return {
            "rows": self.rows,
            "coverage": self.coverage,
            "metrics": metrics_of(self.scored),
            "groups": grouped(self.comparisons, ("consistent", *self.by)),
            "unanswered": [{"row": c.row, "metric": c.metric, "reason": c.reason} for c in self.unanswered],
            "worst": [_shown(c) for c in self.worst()],
            "constants": {"activations": self.fit},
        }

    def to_rows(self) -> str:
        """Every comparison as a line of CSV."""
        stream = io.StringIO()
        writer = csv.DictWriter(stream, _ROW_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**_shown(c), "consistent": _trusted(c), "reason": c.reason} for c in self.comparisons)
        return stream.getvalue()


_LABELS = ("engine", "engine_version", "model", "gpu")
_ROW_COLUMNS = ("row", "metric", "measured", "predicted", "error", *_LABELS, "consistent", "reason")


def _trusted(c: Comparison) -> str:
    return (c.labels or {}).get("consistent", "yes")


def _shown(c: Comparison) -> dict[str, Any]:
    labels = c.labels or {}
    measured = {"row": c.row, "metric": c.metric, "measured": c.measured, "predicted": c.predicted, "error": c.error}
    return measured | {label: labels.get(label, "") for label in _LABELS}


def memory_accuracy(data: str | Path | None = None, by: Sequence[str] = ()) -> MemoryAccuracy:
    """Compare predictions with the start-up logs of a truth file.

    Parameters
    ----------
    data : CSV with the columns of accuracy/data/memory.csv, ``-`` for standard input; default that file
    by : columns by whose values the metrics are also given

    Raises
    ------
    SpecError : for a file that is not such a CSV
    UnknownNameError : for a column that it does not have
    """
    path = DATA / "memory.csv" if data is None else data
    rows = read_truth(path, COLUMNS)
    known = [*rows[0].texts, "consistent"]
    for column in by:
        if column not in known:
            raise UnknownNameError("--by", got=column, wanted=f"columns of the file: {', '.join(known)}")
    scored = [row for row in rows if row.trusted != "no"]
    comparisons = {row.name: tuple(compare_row(row)) for row in scored}
    named = [
        comparisons[row.name]
        for row in scored
        if comparisons[row.name] and names.is_named(row.text("model"), row.text("gpu"))
    ]
    answered = sum(all(c.predicted is not None for c in own) for own in named)
    return MemoryAccuracy(
        data="accuracy/data/memory.csv" if data is None else str(data),
        by=tuple(by),
        comparisons=tuple(c for own in comparisons.values() for c in own),
        fit=fit_activations(rows),
        coverage=answered / len(named) if named else None,
        rows=len(rows),
    )
