"""Title, key and caption of a roofline drawing, laid out by measured widths so that nothing is cut and nothing overlaps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from .roofline import heading, series_name, without_place
from .roofline_lines import roof_lines, roof_summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matplotlib.figure import Figure

    from ..planner.roofline_answer import RooflineResult
    from .canvas import Ruler, Theme
    from .roofline_lines import RoofLine

_EDGE = 12.0  # points left and right
_TITLES = (12.0, 11.0, 10.0)  # the largest that fits; the last one in two lines
_SUBTITLE, _SMALL = 8.5, 8.0
_ROW, _LINE, _MARGIN = 15.0, 10.8, 12.0  # heights of an entry, of a line of the caption, and of the room below
_SAMPLE, _BETWEEN = 22.0, 14.0  # width of a sample, room between entries
_FEW = 0.01  # of the time: smaller parts are not named
SHAPES: dict[str, str] = {"prefill": "^", "decode": "o", "measured": "X"}
STAR_AREA, BATCH_AREA, MEASURED_AREA = 150.0, 45.0, 40.0  # square points
_SMALLEST, _LARGEST = 14.0, 420.0  # of an operator


_FURTHER: tuple[Any, ...] = ((0, (1, 1.5)), (0, (4, 1.5, 1, 1.5)), (0, (1, 4)), (0, (8, 2, 1, 2, 1, 2)), (0, (3, 3)))
_TAGS = "ABCDEFGHIJ"  # of the series; there are no more than colours


def tags(r: RooflineResult, numbers: Iterable[int]) -> str:
    """What names the series of a label or an entry, in short: ``A, C: ``; nothing where there is one series."""
    return f"{', '.join(_TAGS[number] for number in sorted(set(numbers)))}: " if len(r.series) > 1 else ""


def line_colour(r: RooflineResult, line: RoofLine, theme: Theme) -> str:
    """Of a roof: that of its series, ink where it is the roof of several or of all there is."""
    return theme.series[line.series[0]] if len(r.series) > 1 and len(line.series) == 1 else theme.ink


def further_lines(r: RooflineResult) -> Iterator[tuple[Any, RoofLine]]:
    """The slopes of other ways of bytes, each with dashes of its own."""
    further = [line for line in roof_lines(r) if line.kind == "further"]
    for place, line in enumerate(further):
        yield _FURTHER[place % len(_FURTHER)], line


def area_of(share: float) -> float:
    """Area of an operator's point in square points, by its share of the step's time."""
    return _SMALLEST + (_LARGEST - _SMALLEST) * share


class Entry(NamedTuple):
    """One entry of the key: its words, and how its sample looks (a line style, or a marker with its area)."""

    text: str
    colour: str
    line: Any = None
    width: float = 1.0
    marker: str = ""
    area: float = 0.0
    edge: str = ""


def draw_title(figure: Figure, r: RooflineResult, theme: Theme, ruler: Ruler) -> float:
    """Write what is drawn at the top; returns the height that is left below, in points."""
    width, height = (float(edge) for edge in figure.bbox.extents[2:])
    what, conditions = (ruler.drawable(text, 400) for text in heading(r))
    room, y = width - 2 * _EDGE, height - 8
    title = f"Roofline of {what}"
    size = next((s for s in _TITLES if ruler.extent(title, s, "bold")[0] <= room), _TITLES[-1])
    for text, points, weight, colour in (
        (title, size, "bold", theme.ink),
        (conditions, _SUBTITLE, "normal", theme.faint),
    ):
        for line in ruler.wrapped(text, room, points, weight=weight):
            y -= points * 1.25 + (points == _SUBTITLE) * 2
            figure.text(
                _EDGE / width, y / height, line, fontsize=points, fontweight=weight, color=colour, va="baseline"
            )
    return y - 8


def draw_key(figure: Figure, r: RooflineResult, theme: Theme, ruler: Ruler) -> float:
    """Draw the key and the caption at the bottom; returns the height that they take, in points."""
    width, height = (float(edge) for edge in figure.bbox.extents[2:])
    room = width - 2 * _EDGE
    rows = _rows(list(_groups(r, theme)), room, ruler)
    lines = [line for text in caption(r) for line in ruler.wrapped(text, room, _SMALL)]
    y = _MARGIN - 4
    for line in reversed(lines):
        figure.text(_EDGE / width, y / height, line, fontsize=_SMALL, color=theme.faint, va="baseline")
        y += _LINE
    y += 4
    for row in reversed(rows):
        for x, entry in row:
            _draw_entry(figure, entry, x, y, theme)
        y += _ROW
    return y


def _rows(groups: list[tuple[Entry, ...]], room: float, ruler: Ruler) -> list[list[tuple[float, Entry]]]:
    """Entries in rows, each with its left edge; what belongs together stays in one row, what is too long goes on below."""
    rows: list[list[tuple[float, Entry]]] = [[]]
    x = 0.0
    for group in groups:
        texts = [ruler.drawable(entry.text, 400) for entry in group]
        widths = [_SAMPLE + ruler.extent(text, _SMALL)[0] + _BETWEEN for text in texts]
        if rows[-1] and x + sum(widths) - _BETWEEN > room:
            rows.append([])
            x = 0.0
        for entry, text, width in zip(group, texts, widths, strict=True):
            first, *more = ruler.wrapped(text, room - _SAMPLE, _SMALL)
            rows[-1].append((_EDGE + x, entry._replace(text=first)))
            rows += [[(_EDGE, Entry(line, entry.colour))] for line in more]
            x += room if more else width
    return rows


def _draw_entry(figure: Figure, entry: Entry, x: float, y: float, theme: Theme) -> None:
    from matplotlib.lines import Line2D

    width, height = (float(edge) for edge in figure.bbox.extents[2:])
    middle = (y + _SMALL * 0.36) / height
    if entry.marker:
        figure.add_artist(
            Line2D(
                [(x + _SAMPLE / 2 - 3) / width],
                [middle],
                linestyle="none",
                marker=entry.marker,
                markersize=math.sqrt(entry.area),
                markerfacecolor=entry.colour,
                markeredgecolor=entry.edge or theme.paper,
                markeredgewidth=0.6,
            )
        )
    elif entry.line is not None:
        style = {"color": entry.colour, "linestyle": entry.line, "linewidth": entry.width}
        figure.add_artist(Line2D([x / width, (x + _SAMPLE - 6) / width], [middle, middle], **style))
    figure.text((x + _SAMPLE) / width, y / height, entry.text, fontsize=_SMALL, color=theme.ink, va="baseline")


def _groups(r: RooflineResult, theme: Theme) -> Iterator[tuple[Entry, ...]]:
    several = len(r.series) > 1
    if several:
        for number, one in enumerate(r.series):
            text = f"{tags(r, [number])}{series_name(r, one)}, {roof_summary(r, one, calibrated=False)}"
            yield (Entry(text, theme.series[number], "solid", 3.0),)
    first = r.series[0]
    told = "" if several else f": {roof_summary(r, first, calibrated=False)}"
    yield (Entry(f"nominal roof{told}", theme.ink, "solid", 1.6),)
    if any(one.roof.memory.calibrated is not None for one in r.series):
        told = "" if several else f": {roof_summary(r, first, calibrated=True)}"
        yield (Entry(f"as kernels reach it{told}", theme.ink, (0, (5, 3)), 1.1),)
    for dashes, line in further_lines(r):
        yield (Entry(f"{tags(r, line.series)}{line.label}", line_colour(r, line, theme), dashes, 1.2),)
    for number, phase in enumerate(("prefill", "decode")):
        if phase in r.phases:
            colour = theme.faint if several else theme.series[number]
            yield (Entry(f"operator of {phase}", colour, marker=SHAPES[phase], area=55),)
    yield (Entry("whole step", theme.faint, marker="*", area=STAR_AREA, edge=theme.ink),)
    if r.batches:
        colour = theme.faint if several else theme.series[1]
        yield (Entry("decode step of a batch", colour, marker="*", area=BATCH_AREA, edge=theme.ink),)
    if r.measured:
        yield (Entry("measured", theme.ink, marker=SHAPES["measured"], area=MEASURED_AREA),)
    yield tuple(
        Entry(text, theme.faint, marker="o", area=area_of(share))
        for share, text in ((0.01, "1 %"), (0.1, "10 %"), (0.4, "40 % of the step's time"))
    )


def caption(r: RooflineResult) -> Iterator[str]:
    """How to read the points, and the share of the time that no point shows."""
    said = []
    for number, one in enumerate(r.series):
        whose = tags(r, [number])
        for phase in r.phases:
            share, parts = without_place(one, phase)
            if share >= _FEW:
                named = [f"{name} {part:.0%}" for name, part in parts if part >= _FEW]
                said.append(f"{whose}{phase} {share:.0%}" + (f" ({', '.join(named)})" if named else ""))
    if said:
        yield f"Time without FLOP, which has no point: {'; '.join(said)}."
    yield "Points: the rate that is reached, launches and fixed times included; the smallest may have no name."
