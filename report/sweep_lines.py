"""The lines of a sweep's drawing: which axis goes across, which points a line has, and which marks lie on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .sweeps import value_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..planner.sweep_marks import CurveMarks
    from ..planner.sweeping import SweepResult

MOST_LINES = 6
MOST_POINTS = 1000  # of a line: more of them are not seen


@dataclass(frozen=True, slots=True)
class Line:
    """One line: the value of the other axis (empty for a single one), its marks, and its points."""

    name: str
    marks: CurveMarks | None
    across: tuple[float, ...]
    rows: tuple[dict[str, Any], ...]

    def values(self, figure: str, part: str) -> list[float]:
        """One part of a range, of every point."""
        return [row[figure][part] for row in self.rows]


def lines_of(r: SweepResult) -> tuple[str, list[Line], int]:
    """The axis that goes across, the lines, and how many lines were left out.

    The axis across is one of numbers where there is one, the batch first.
    """
    across = next((axis for axis in r.axes if axis.name == "batch"), None) or next(
        (axis for axis in r.axes if isinstance(axis.values[0], int)), r.axes[0]
    )
    other = next((axis for axis in r.axes if axis is not across), None)
    wanted = _some(list(other.values) if other else [""], MOST_LINES)
    step = next((i for i, axis in enumerate(r.axes) if axis is across))
    inner = len(r.axes[1].values) if len(r.axes) > 1 else 1
    lines = []
    for value in wanted:
        place = other.values.index(value) if other else 0
        numbers = _some(range(len(across.values)), MOST_POINTS)
        rows = r.rows(number * inner + place if step == 0 else place * inner + number for number in numbers)
        pairs = [(_position(across.values[number], number), row) for number, row in zip(numbers, rows, strict=True)]
        known = sorted(((x, row) for x, row in pairs if row["tpot_s"] is not None), key=lambda pair: pair[0])
        if known:
            name = "" if other is None else f"{other.name} {value_of(rows[0], other.name)}"
            curve = _curve_of(r, other.name if other else "", value) if across.name == "batch" else None
            lines.append(Line(name, curve, tuple(x for x, _ in known), tuple(row for _, row in known)))
    return across.name, lines, (len(other.values) if other else 1) - len(wanted)


def _position(value: int | str, number: int) -> float:
    return float(value) if isinstance(value, int) else float(number)


def _some(values: Sequence[Any], most: int) -> list[Any]:
    """All values, or so many at even distances, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    return [values[place * (len(values) - 1) // (most - 1)] for place in range(most)]


def _curve_of(r: SweepResult, name: str, value: int | str) -> CurveMarks | None:
    return next((curve for curve in r.curves or () if not name or dict(curve.at)[name] == value), None)


def marks_within(line: Line) -> Iterator[tuple[str, float]]:
    """Kinds and batches of the marks of a line that lie within its points."""
    curve = line.marks
    if curve is None:
        return
    found: dict[str, float | None] = {
        "knee": curve.knee.batch if curve.knee else None,
        "compute": curve.compute_bound_batch,
        "crossover": curve.crossover_batch,
        "memory": curve.within_memory,
        "tpot": curve.within_tpot,
        "cheapest": curve.cheapest.batch if curve.cheapest else None,
    }
    for kind, batch in found.items():
        if batch is not None and line.across[0] <= batch <= line.across[-1]:
            yield kind, float(batch)
