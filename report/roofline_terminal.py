"""The roofline as text: roofs in braille dots (2 x 4 of them a letter), points as letters with a key, where a figure has them."""

from __future__ import annotations

import math
import string
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ..errors import show
from .canvas import decades
from .roofline import bandwidth_label, series_name, step_name
from .roofline_lines import limits_of, roof_lines, roof_summary, show_tick

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..planner.roofline_answer import RooflineResult
    from .roofline_lines import Range, RoofLine

Span = tuple[str, str]  # text, style
_ACROSS, _UP = 2, 4  # dots of a letter
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row from the top, by column
_MARGIN = 8  # letters left of the plot
_NARROWEST, _LOWEST, _HIGHEST = 40, 14, 30
_INDENT = 14  # letters of a title of the key
_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")
_LETTERS = {"decode": string.ascii_lowercase, "prefill": string.ascii_uppercase}
_DASHES = {"slope": 6, "flat": 6, "further": 4}  # dots after which a broken line repeats


class Marks(NamedTuple):
    """The signs of a plot, in Unicode or in ASCII."""

    decode: str
    prefill: str
    batch: str
    measured: str
    other: str
    side: str
    corner: str
    foot: str
    tick: str
    nominal: str
    calibrated: str
    further: str


UNICODE = Marks("★", "☆", "∗", "×", "·", "│", "└", "─", "┴", "⠤⠤⠤", "⠤ ⠤", "⠄⠄⠄")
ASCII = Marks("@", "%", "*", "x", "'", "|", "+", "-", "+", "...", ". .", ", ,")


class Point(NamedTuple):
    """One thing at a place: the larger its weight, the sooner it gives the sign of its letter."""

    x: float
    y: float
    weight: float
    series: int
    kind: str  # decode, prefill (operators), or the sign of a step or measurement
    name: str


@dataclass
class Plot:
    """A plot in the making: dots and signs by letter, rows counted from the top."""

    width: int
    height: int
    across: Range
    up: Range
    dots: dict[tuple[int, int], int] = field(default_factory=dict)
    styles: dict[tuple[int, int], str] = field(default_factory=dict)
    signs: dict[tuple[int, int], Span] = field(default_factory=dict)

    def column(self, x: float) -> float:
        """Dots from the left edge."""
        low, high = (math.log(edge) for edge in self.across)
        return (math.log(x) - low) / (high - low) * (self.width * _ACROSS - 1)

    def row(self, y: float) -> float:
        """Dots from the top edge."""
        low, high = (math.log(edge) for edge in self.up)
        return (high - math.log(y)) / (high - low) * (self.height * _UP - 1)

    def letter(self, x: float, y: float) -> tuple[int, int]:
        """The letter at a place."""
        return round(self.column(x)) // _ACROSS, round(self.row(y)) // _UP

    def dot(self, column: int, row: int, style: str) -> None:
        """Set one dot, where it lies on the plot."""
        place = column // _ACROSS, row // _UP
        if 0 <= place[0] < self.width and 0 <= place[1] < self.height:
            self.dots[place] = self.dots.get(place, 0) | _DOTS[row % _UP][column % _ACROSS]
            self.styles.setdefault(place, style)

    def line(self, xs: Range, ys: Range, style: str, every: int = 1) -> None:
        """A straight line between two points, broken after so many dots."""
        begin, end = (self.column(xs[0]), self.row(ys[0])), (self.column(xs[1]), self.row(ys[1]))
        steps = max(1, math.ceil(max(abs(end[0] - begin[0]), abs(end[1] - begin[1]))))
        for step in range(steps + 1):
            part = step / steps
            column = begin[0] + part * (end[0] - begin[0])
            if every == 1 or round(column) % every < every / 2:
                self.dot(round(column), round(begin[1] + part * (end[1] - begin[1])), style)


def plot_lines(r: RooflineResult, width: int, unicode: bool = True) -> Iterator[list[Span]]:
    """The plot line by line, then its key; each line as spans of text with their styles."""
    width, marks = max(_NARROWEST, width), UNICODE if unicode else ASCII
    height = min(_HIGHEST, max(_LOWEST, round(width * 0.21)))
    plot = Plot(width - _MARGIN - 1, height, *limits_of(r))
    for line in roof_lines(r):
        _draw(plot, line, _colour(r, line.series))
    cells = _cells(plot, _points(r, marks))
    key = list(_key(r, plot, cells, marks, width))
    yield [("FLOP/s of one device".rjust(_MARGIN), "dim")]
    yield from _body(plot, marks)
    yield [("FLOP per byte of memory traffic".rjust(width), "dim")]
    yield from key


def _colour(r: RooflineResult, series: list[int]) -> str:
    return _COLOURS[series[0]] if len(r.series) > 1 and len(series) == 1 else "default"


def _draw(plot: Plot, line: RoofLine, colour: str) -> None:
    """A line of a roof, broken where it is not nominal, and dots from a ridge down to the axis."""
    ends = line.ends(plot.across, plot.up)
    if ends is None:
        return
    broken = line.calibrated or line.kind == "further"
    plot.line(*ends, colour, _DASHES[line.kind] if broken else 1)
    if line.kind == "flat" and not line.calibrated:
        column = round(plot.column(line.ridge))
        for row in range(round(plot.row(line.rate)), plot.height * _UP, 4):
            plot.dot(column, row, "dim")


def _points(r: RooflineResult, marks: Marks) -> Iterator[Point]:
    """All that has a place, with its weight: whole steps before measured points, batches and operators by their time."""
    for number, one in enumerate(r.series):
        for step in one.steps:
            if step.flop:
                sign = marks.prefill if step.phase == "prefill" else marks.decode
                yield Point(step.intensity, step.flop_per_s, 4, number, sign, step_name(step))
        told = {step.batch for step in one.steps}
        for step in one.path:
            if step.flop and step.batch not in told:
                yield Point(step.intensity, step.flop_per_s, 2, number, marks.batch, f"batch {step.batch:g}")
        for point in one.operators:
            if point.has_place:
                yield Point(point.intensity, point.flop_per_s, point.share, number, point.phase, point.name)
    for measured in r.measured:
        yield Point(measured.intensity, measured.flop_per_s, 3, -1, marks.measured, show(measured.name))


def _cells(plot: Plot, points: Iterable[Point]) -> list[tuple[tuple[int, int], list[Point]]]:
    """Points by the letter they fall on; in each, and among them, the weightiest first."""
    cells: dict[tuple[int, int], list[Point]] = {}
    for point in sorted(points, key=lambda p: (-p.weight, p.series, p.kind, p.x, p.name)):
        cells.setdefault(plot.letter(point.x, point.y), []).append(point)
    return list(cells.items())


def _key(
    r: RooflineResult, plot: Plot, cells: list[tuple[tuple[int, int], list[Point]]], marks: Marks, width: int
) -> Iterator[list[Span]]:
    """Give each letter its sign, and list what stands where, by series and kind."""
    several = len(r.series) > 1
    free = {phase: iter(letters) for phase, letters in _LETTERS.items()}
    listed: dict[tuple[int, str], list[str]] = {}
    styles: dict[tuple[int, str], str] = {}
    for place, points in cells:
        first = points[0]
        sign = next(free[first.kind], marks.other) if first.kind in free else first.kind
        number = first.series if several else list(_LETTERS).index(first.kind) if first.kind in free else -1
        style = f"bold {_COLOURS[number]}" if number >= 0 else "bold"
        plot.signs[place] = (sign, style)
        names = [point.name + _whose(r, first, point) for point in points]
        group = (first.series, first.kind)
        listed.setdefault(group, []).append(f"{sign} {', '.join(dict.fromkeys(names))}")
        styles[group] = style
    for number in dict.fromkeys(sorted(number for number, _ in listed)):
        if several and number >= 0:
            yield [(series_name(r, r.series[number]), f"bold {_COLOURS[number]}")]
        for kind, title in _titles(marks).items():
            if (number, kind) in listed:
                yield from _wrapped(title, listed[number, kind], styles[number, kind], width)
    yield from _roof_key(r, marks, width)


def _whose(r: RooflineResult, first: Point, point: Point) -> str:
    """What tells a point from the one whose sign it shares."""
    other_series = point.series != first.series and point.series >= 0
    parts = [series_name(r, r.series[point.series])] if other_series and len(r.series) > 1 else []
    parts += [point.kind] if point.kind in _LETTERS and point.kind != first.kind else []
    return f" ({', '.join(parts)})" if parts else ""


def _titles(marks: Marks) -> dict[str, str]:
    """What each kind of point is called, in the order of the key."""
    return {
        "prefill": "prefill",
        marks.prefill: "whole step",
        "decode": "decode",
        marks.decode: "whole step",
        marks.batch: "decode steps",
        marks.measured: "measured",
    }


def _wrapped(title: str, entries: list[str], style: str, width: int) -> Iterator[list[Span]]:
    """Entries behind a title, in lines that begin alike."""
    line: list[Span] = [(title.ljust(_INDENT), style)]
    used = _INDENT
    for entry in entries:
        if used > _INDENT and used + len(entry) > width:
            yield line
            line, used = [(" " * _INDENT, "")], _INDENT
        line.append((entry if used == _INDENT else f"   {entry}", ""))
        used += len(entry) + 3
    yield line


def _roof_key(r: RooflineResult, marks: Marks, width: int) -> Iterator[list[Span]]:
    for calibrated, title, sign in ((False, "nominal roof", marks.nominal), (True, "as reached", marks.calibrated)):
        for number, one in enumerate(r.series):
            told = roof_summary(r, one, calibrated=calibrated)
            whose = f"{series_name(r, one)}: " if len(r.series) > 1 else ""
            if told:
                yield from _wrapped("" if number else title, [f"{sign} {whose}{told}"], _colour(r, [number]), width)
    others = list(dict.fromkeys(bandwidth_label(ceiling) for one in r.series for ceiling in one.roof.further))
    if others:
        yield from _wrapped("other ways", [f"{marks.further} {other}" for other in others], "", width)


def _body(plot: Plot, marks: Marks) -> Iterator[list[Span]]:
    """Rows with their ticks, then the axis with its own."""
    ticks = {plot.letter(plot.across[0], tick)[1]: show_tick(tick) for tick in decades(*plot.up)}
    for row in range(plot.height):
        line: list[Span] = [(ticks.get(row, "").rjust(_MARGIN - 1) + " ", "dim"), (marks.side, "dim")]
        for column in range(plot.width):
            place = (column, row)
            if place in plot.signs:
                line.append(plot.signs[place])
            elif place in plot.dots:
                content = chr(0x2800 + plot.dots[place]) if marks is UNICODE else "."
                line.append((content, plot.styles[place]))
            else:
                line.append((" ", ""))
        yield line
    foot, below = [marks.foot] * plot.width, [" "] * (plot.width + _MARGIN + 1)
    for tick in decades(*plot.across):
        column = plot.letter(tick, plot.up[0])[0]
        foot[column] = marks.tick
        text = show_tick(tick)
        begin = min(_MARGIN + 1 + column - len(text) // 2, len(below) - len(text))
        if all(letter == " " for letter in below[max(0, begin - 1) : begin + len(text) + 1]):
            below[begin : begin + len(text)] = text
    yield [(" " * _MARGIN + marks.corner + "".join(foot), "dim")]
    yield [("".join(below).rstrip(), "dim")]
