"""What a preset gives: panels of series and marks, as plain numbers in base units, which any drawing, table or file can show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..domain import finite, positive
from ..results import Answer, Explanation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Unit = Literal[
    "tokens",
    "sequences",
    "drafts",
    "experts",
    "bytes",
    "s",
    "tokens_per_s",
    "flop_per_byte",
    "times",
    "share",
]
Look = Literal["line", "bound"]  # what is told, and what bounds it or stands behind it


@dataclass(frozen=True, slots=True)
class Scale:
    """One axis: what stands on it, its unit, and whether it is logarithmic."""

    title: str
    unit: Unit
    logarithmic: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """One series of points, in the order of their abscissae.

    Parameters
    ----------
    name : the same in every panel of a drawing in which the series stands for the same
    look : a ``line``, or a ``bound`` that stands back: a limit, a reference, the ideal

    Raises
    ------
    DomainError : for a number that is not finite
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    look: Look = "line"

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        for value in (*self.x, *self.y):
            finite(self.name, value)
        if len(self.x) != len(self.y):
            raise ValueError(f"{self.name}: {len(self.x)} abscissae and {len(self.y)} ordinates")


@dataclass(frozen=True, slots=True)
class Mark:
    """A point that stands out on a curve, or where there is no abscissa a level across the panel.

    Parameters
    ----------
    text : what it is: marks of one text look alike
    curve : the name of the curve that it lies on, or empty
    """

    text: str
    x: float | None
    y: float
    curve: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes with its curves and marks."""

    title: str
    across: Scale
    up: Scale
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class PresetResult(Answer):
    """A drawing as data.

    Parameters
    ----------
    name : of the preset
    title, subtitle : what is drawn, and under which conditions
    says : one sentence that the drawing shows, with its numbers
    settings : the options that it was made with, by the names of the command line
    """

    name: str
    title: str
    subtitle: str
    says: str
    panels: tuple[Panel, ...]
    sources: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "figure"

    def inputs(self) -> dict[str, Any]:
        """The preset and its options."""
        return {"name": self.name, **self.settings}

    def figures(self) -> dict[str, Any]:
        """Panels with their curves and marks."""
        return {"title": self.title, "says": self.says, "panels": self.panels}

    def explain(self) -> tuple[Explanation, ...]:
        """From which formulas the points come."""
        points = sum(len(curve.x) for panel in self.panels for curve in panel.curves)
        return (Explanation("panels", f"{points:,} points", self.sources, self.says),)

    def table(self) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
        """One row a point, then one row a mark: what a spreadsheet takes."""
        columns = ("panel", "kind", "name", "x", "x_unit", "y", "y_unit")
        rows: list[dict[str, Any]] = []
        for panel in self.panels:
            units = {"panel": panel.title, "x_unit": panel.across.unit, "y_unit": panel.up.unit}
            for curve in panel.curves:
                rows += [
                    {**units, "kind": curve.look, "name": curve.name, "x": x, "y": y}
                    for x, y in zip(curve.x, curve.y, strict=True)
                ]
            rows += [{**units, "kind": "mark", "name": mark.text, "x": mark.x, "y": mark.y} for mark in panel.marks]
        return columns, rows


def curve(name: str, points: Iterable[tuple[float, float]], look: Look = "line") -> Curve:
    """A series from pairs of numbers."""
    pairs = [(float(x), float(y)) for x, y in points]
    return Curve(name, tuple(x for x, _ in pairs), tuple(y for _, y in pairs), look)


def doubled(first: int, last: int) -> tuple[int, ...]:
    """Whole numbers that double from one to the other, the last one included.

    >>> doubled(1, 10)
    (1, 2, 4, 8, 10)
    """
    steps = [first]
    while steps[-1] * 2 < last:
        steps.append(steps[-1] * 2)
    return (*steps, last) if steps[-1] < last else tuple(steps)


def spread(first: int, last: int, per_doubling: int = 8) -> tuple[int, ...]:
    """Whole numbers evenly spread on a logarithmic axis, each once, both ends included: enough for a smooth line.

    Raises
    ------
    DomainError : for a number below one

    >>> spread(1, 4, 2)
    (1, 2, 3, 4)
    """
    positive("first", first)
    positive("last", last)
    ratio, steps = 2 ** (1 / per_doubling), {first, last}
    value = float(first)
    while value < last:
        steps.add(round(value))
        value *= ratio
    return tuple(sorted(steps))
