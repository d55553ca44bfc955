"""The roofline as a drawing: log-log, roofs as lines, operators as points sized by their share of the time, whole steps as stars.

Solid roofs are nominal, dashed ones what kernels reach; dotted lines fall from the ridges. With one deployment the colours tell prefill
from decode, with several they tell the deployments; the shapes of the points tell the phases in both.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .canvas import (
    DARK,
    DEFAULT_SIZE,
    LIGHT,
    PIXELS_PER_INCH,
    POINTS_PER_INCH,
    Ruler,
    Theme,
    TooSmallError,
    decades,
    new_figure,
    steady,
)
from .labels import Box, Label, Segment, place_most
from .roofline import step_name
from .roofline_key import (
    BATCH_AREA,
    MEASURED_AREA,
    SHAPES,
    STAR_AREA,
    area_of,
    draw_key,
    draw_title,
    further_lines,
    line_colour,
    tags,
)
from .roofline_lines import limits_of, roof_lines, show_tick

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..planner.roofline_answer import RooflineResult
    from ..planner.roofline_points import Phase, Series, StepPoint
    from .roofline_lines import RoofLine

LABEL_SIZE = 8.0
_LEFT, _RIGHT, _AXIS, _TOP = 52.0, 14.0, 34.0, 4.0  # points around the axes; those below hold ticks and title
_LEAST = 130.0  # points of height of the axes
_DESCENT = 0.23  # of the height of a label: what letters such as g need below the line
_REACHES = (9.0, 15.0, 22.0, 30.0, 40.0, 52.0, 66.0, 82.0, 100.0)
_INSIDE = 2.0  # points between the axes and a label
_CLEARANCE = 8.0  # points by which a label without leader is nearer to its own marker than to others
# The order in which labels are placed: whole steps, roofs, ridges, steps of batches, measured points, and operators by their share.
_STEP_ORDER, _ROOF_ORDER, _RIDGE_ORDER, _BATCH_ORDER = -3.0, -2.0, -1.0, 0.5
_SAME = 3.0  # points between markers that share a label
_LONGEST_JOINED = 36  # letters of a label of several operators
_ALONG = tuple(step / 20 for step in range(19, 0, -1))  # places of a label on a line


class Want(NamedTuple):
    """A label that is wanted: the smaller the order, the sooner it is placed; the colour is that of its leader.

    ``whose`` are the numbers of the series that it is about, where there are several.
    """

    order: float
    text: str
    label: Label
    colour: str = ""
    whose: tuple[int, ...] = ()


@dataclass
class Sheet:
    """A drawing in the making: what is on it, and what still wants a label."""

    result: RooflineResult
    figure: Figure
    axes: Axes
    theme: Theme
    ruler: Ruler
    taken: list[Box] = field(default_factory=list)
    lines: list[Segment] = field(default_factory=list)
    anchors: list[tuple[float, float]] = field(default_factory=list)
    wanted: list[Want] = field(default_factory=list)

    def colour(self, one: int, phase: Phase) -> str:
        """Of a point: by phase where there is one series, else by series."""
        if len(self.result.series) > 1:
            return self.theme.series[one]
        return self.theme.series[("prefill", "decode").index(phase)]

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Points on the sheet of a pair of values."""
        across, up = self.axes.transData.transform((x, y))
        return float(across), float(up)

    def mark(self, x: float, y: float, area: float) -> None:
        """Keep labels away from a marker."""
        (across, up), radius = self.place(x, y), math.sqrt(area) / 2
        self.taken.append(Box(across - radius, up - radius, across + radius, up + radius))
        self.anchors.append((across, up))

    def line(self, xs: Sequence[float], ys: Sequence[float], **style: Any) -> None:
        """Draw a line, and keep labels away from it."""
        self.axes.plot(xs, ys, **style)
        places = [self.place(x, y) for x, y in zip(xs, ys, strict=True)]
        self.lines += [(*begin, *end) for begin, end in itertools.pairwise(places)]

    def want(self, order: float, text: str, x: float, y: float, area: float, colour: str, *whose: int) -> None:
        """Ask for a label beside a marker, with the tag of its series."""
        text = self.ruler.drawable(text, 60)
        label = Label(*self.place(x, y), *self.size(text, whose), math.sqrt(area) / 2, _REACHES)
        self.wanted.append(Want(order, text, label, colour, whose))

    def want_along(
        self, text: str, line: Segment, whose: tuple[int, ...], colour: str, *, above: bool, far: bool
    ) -> None:
        """Ask for a label beside a line, above on its left side or below on its right side, as far to the right as there is room.

        Where there is none and it may stand ``far``, at the end of a leader from the middle of the line.
        """
        wide, high = self.size(text, whose)
        x, y, x_end, y_end = line
        flat = abs(y_end - y) < 1
        places = []
        for part in _ALONG:
            across, up = x + part * (x_end - x), y + part * (y_end - y)
            if flat:
                places.append((across - wide / 2, up + 2 if above else up - high - 2))
            else:
                places.append((across - wide - 5, up + 1) if above else (across + 5, up - high - 1))
        reaches = _REACHES if far else ()
        label = Label((x + x_end) / 2, (y + y_end) / 2, wide, high, 0, reaches, tuple(places), around=False)
        self.wanted.append(Want(_ROOF_ORDER, text, label, colour, whose))

    def said(self, text: str, whose: Iterable[int]) -> str:
        """A label with the tags of its series."""
        named = list(whose)
        return f"{tags(self.result, named)}{text}" if named else text

    def size(self, text: str, whose: Iterable[int]) -> tuple[float, float]:
        """Width and height of a label."""
        return self.ruler.extent(self.said(text, whose), LABEL_SIZE)


def roofline_figure(result: RooflineResult, *, size: tuple[int, int] = DEFAULT_SIZE, dark: bool = False) -> Figure:
    """Draw a roofline.

    Parameters
    ----------
    size : width and height in pixels of 1/100 inch
    dark : on dark paper

    The figure is turned into a file by :func:`~roofplan.report.canvas.rendered`.

    Raises
    ------
    TooSmallError : for a size without room for the axes beside title, key and notes
    """
    theme = DARK if dark else LIGHT
    with steady():
        figure = new_figure(size, theme)
        ruler = Ruler()
        width, height = (pixels * POINTS_PER_INCH / PIXELS_PER_INCH for pixels in size)
        top = draw_title(figure, result, theme, ruler)
        bottom = draw_key(figure, result, theme, ruler)
        missing = _LEAST - (top - _TOP - bottom - _AXIS)
        if missing > 0:
            raise TooSmallError(size, height + missing)
        left, right = _LEFT / width, 1 - _RIGHT / width
        low, high = (bottom + _AXIS) / height, (top - _TOP) / height
        axes = figure.add_axes((left, low, right - left, high - low))
        sheet = Sheet(result, figure, axes, theme, ruler)
        _prepare(sheet)
        for line in roof_lines(result):
            if line.kind != "further":
                _draw_roof(sheet, line)
        for dashes, line in further_lines(result):
            _draw_roof(sheet, line, dashes)
        for number, one in enumerate(result.series):
            _draw_operators(sheet, number, one)
            _draw_steps(sheet, number, one)
        _draw_measured(sheet)
        _draw_labels(sheet)
    return figure


# ------------------------------------------------------------------------------------------------ axes


def _prepare(sheet: Sheet) -> None:
    """Logarithmic axes with plain numbers at the decades, and fine ticks between them."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes, theme = sheet.axes, sheet.theme
    across, up = limits_of(sheet.result)
    axes.set(xscale="log", yscale="log", xlim=across, ylim=up, facecolor=theme.paper)
    axes.set_xlabel("arithmetic intensity (FLOP per byte of memory traffic)", color=theme.ink)
    axes.set_ylabel("FLOP/s of one device", color=theme.ink)
    for axis, (low, high) in ((axes.xaxis, across), (axes.yaxis, up)):
        axis.set_major_locator(FixedLocator(decades(low, high)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: show_tick(value)))
    _fine_ticks(sheet)
    axes.tick_params(which="both", color=theme.faint, labelcolor=theme.ink)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(theme.faint)
    axes.grid(visible=True, color=theme.grid, linewidth=0.6)
    axes.set_axisbelow(True)


def _fine_ticks(sheet: Sheet) -> None:
    """Ticks between the decades as the markers of one line per axis: ticks of their own would take a tenth of the drawing's time."""
    axes = sheet.axes
    for (low, high), marker, is_across in ((axes.get_xlim(), 3, True), (axes.get_ylim(), 0, False)):
        fine = [digit * power for power in decades(low / 10, high) for digit in range(2, 10)]
        places, edge = [tick for tick in fine if low <= tick <= high], [0.0]
        axes.plot(
            places if is_across else edge * len(places),
            edge * len(places) if is_across else places,
            transform=axes.get_xaxis_transform() if is_across else axes.get_yaxis_transform(),
            linestyle="none",
            marker=marker,
            markersize=2,
            markeredgewidth=0.6,
            color=sheet.theme.faint,
            clip_on=False,
            label="fine ticks",
        )


# ------------------------------------------------------------------------------------------------ what is drawn


_STYLES: dict[bool, dict[str, Any]] = {  # nominal, and calibrated
    False: {"linewidth": 1.6, "linestyle": "solid"},
    True: {"linewidth": 1.1, "linestyle": (0, (5, 3))},
}


def _draw_roof(sheet: Sheet, line: RoofLine, dashes: Any = None) -> None:
    """A slope or a flat part with its label, and for a flat part a dotted line from the ridge down to its intensity."""
    across, up = sheet.axes.get_xlim(), sheet.axes.get_ylim()
    ends, colour, further = line.ends(across, up), line_colour(sheet.result, line, sheet.theme), line.kind == "further"
    if ends is None:
        return
    kind = "calibrated" if line.calibrated else "nominal"
    name, whose = sheet.ruler.drawable(f"{line.kind} {kind} {', '.join(line.names)}"), tuple(line.series)
    style = {"linewidth": 1.0, "linestyle": dashes} if further else _STYLES[line.calibrated]
    sheet.line(*ends, label=name, color=colour, zorder=2, **style)
    text, above = sheet.ruler.drawable(line.label, 60), not (line.calibrated or further)
    sheet.want_along(text, sheet.lines[-1], whose, colour, above=above, far=further)
    if line.kind != "flat":
        return
    sheet.line(
        [line.ridge] * 2,
        [up[0], line.rate],
        label=sheet.ruler.drawable(f"ridge {kind} {', '.join(line.names)}"),
        color=colour,
        linewidth=0.8,
        linestyle=(0, (1, 3)),
        zorder=1,
    )
    # Its number stands at the foot, where no point is: to the right for nominal, to the left for calibrated ones; else at its corner.
    text = f"{line.ridge:,.0f}" if line.calibrated else f"ridge {line.ridge:,.0f}"
    (x, y), corner = sheet.place(line.ridge, up[0]), sheet.place(line.ridge, line.rate)
    wide, high = sheet.size(text, whose)
    sides = (x - wide - 3, x + 3) if line.calibrated else (x + 3, x - wide - 3)
    places = tuple((side, y + 3 + row * (high + 1)) for row in range(6) for side in sides)
    label = Label(*corner, wide, high, 1.0, () if line.calibrated else _REACHES, places, around=not line.calibrated)
    sheet.wanted.append(Want(_RIDGE_ORDER, text, label, colour, whose))


def _draw_operators(sheet: Sheet, number: int, one: Series) -> None:
    """Operators as points, those of a phase together, the small ones over the large ones."""
    for phase in sheet.result.phases:
        points = [point for point in one.operators if point.phase == phase and point.has_place]
        if not points:
            continue
        points.sort(key=lambda point: (-point.share, point.name))
        areas, colour = [area_of(point.share) for point in points], sheet.colour(number, phase)
        sheet.axes.scatter(
            [point.intensity for point in points],
            [point.flop_per_s for point in points],
            s=areas,
            c=colour,
            marker=SHAPES[phase],
            linewidths=0.5,
            edgecolors=sheet.theme.paper,
            alpha=0.9,
            label=f"operators of {phase}, {number}",
            zorder=3,
        )
        for point, area in zip(points, areas, strict=True):
            sheet.mark(point.intensity, point.flop_per_s, area)
            sheet.want(2 - point.share, point.name, point.intensity, point.flop_per_s, area, colour, number)


def _draw_steps(sheet: Sheet, number: int, one: Series) -> None:
    """Whole steps as stars; the steps of several batches as smaller ones on a line."""
    path = [step for step in one.path if step.flop]
    colour = sheet.colour(number, "decode")
    if len(path) > 1:
        across, up = [step.intensity for step in path], [step.flop_per_s for step in path]
        sheet.line(across, up, color=colour, linewidth=1.0, alpha=0.8, zorder=4, label="batches")
    told = {step.batch for step in one.steps}  # their stars have names
    for step in path:
        text = "" if step.batch in told else f"batch {step.batch:g}"
        _draw_star(sheet, step, BATCH_AREA, colour, text, number)
    for step in one.steps:
        if step.flop:
            _draw_star(sheet, step, STAR_AREA, sheet.colour(number, step.phase), step_name(step), number)


def _draw_star(sheet: Sheet, step: StepPoint, area: float, colour: str, text: str, number: int) -> None:
    x, y = step.intensity, step.flop_per_s
    sheet.axes.scatter(
        [x],
        [y],
        s=area,
        c=colour,
        marker="*",
        linewidths=0.8,
        edgecolors=sheet.theme.ink,
        label=sheet.said(text, [number]) if text else "",
        zorder=5,
    )
    sheet.mark(x, y, area)
    if text:
        sheet.want(_STEP_ORDER if area == STAR_AREA else _BATCH_ORDER, text, x, y, area, sheet.theme.ink, number)


def _draw_measured(sheet: Sheet) -> None:
    for point in sheet.result.measured:
        sheet.axes.scatter(
            [point.intensity],
            [point.flop_per_s],
            s=MEASURED_AREA,
            c=sheet.theme.ink,
            marker=SHAPES["measured"],
            linewidths=0.5,
            edgecolors=sheet.theme.paper,
            label=sheet.ruler.drawable(f"measured: {point.name}"),
            zorder=6,
        )
        sheet.mark(point.intensity, point.flop_per_s, MEASURED_AREA)
        sheet.want(0.7, point.name, point.intensity, point.flop_per_s, MEASURED_AREA, sheet.theme.ink)


def _draw_labels(sheet: Sheet) -> None:
    """Labels where there is room, the most important first, each in the colour of ink."""
    wanted = _distinct(
        sheet, sorted(sheet.wanted, key=lambda want: (want.order, want.text, want.whose, want.label.x, want.label.y))
    )
    left, bottom, right, top = (float(edge) for edge in sheet.axes.bbox.extents)
    frame = Box(left + _INSIDE, bottom + _INSIDE, right, top)
    places = place_most([want.label for want in wanted], frame, sheet.taken, sheet.lines, sheet.anchors, _CLEARANCE)
    for want, place in zip(wanted, places, strict=True):
        if place is None:
            continue
        sheet.axes.annotate(
            sheet.said(want.text, want.whose),
            (place.left - left, place.bottom - bottom + want.label.height * _DESCENT),
            xycoords="axes points",
            fontsize=LABEL_SIZE,
            color=sheet.theme.ink,
            va="baseline",
            ha="left",
            zorder=8,
        )
        if place.leader:
            _draw_leader(sheet, place.leader, want.colour)


def _distinct(sheet: Sheet, wanted: list[Want]) -> list[Want]:
    """One label for what stands at the same place: the same word of several series once, names of several operators together."""
    kept: list[Want] = []
    for want in wanted:
        near = [n for n, other in enumerate(kept) if math.dist(want.label[:2], other.label[:2]) < _SAME]
        same = next((n for n in near if kept[n].text == want.text), None)
        if same is not None:
            whose = (*kept[same].whose, *(number for number in want.whose if number not in kept[same].whose))
            kept[same] = _resized(sheet, kept[same]._replace(whose=whose))
            continue
        if any(want.whose == kept[n].whose and want.text in kept[n].text.split(", ") for n in near):
            continue
        joined = next((n for n in near if _joins(want, kept[n])), None)
        if joined is None:
            kept.append(want)
            continue
        kept[joined] = _resized(sheet, kept[joined]._replace(text=f"{kept[joined].text}, {want.text}"))
    return kept


def _resized(sheet: Sheet, want: Want) -> Want:
    wide, high = sheet.size(want.text, want.whose)
    return want._replace(label=want.label._replace(width=wide, height=high))


def _joins(want: Want, other: Want) -> bool:
    """Whether two operators of one colour share a label; lines and stars (orders up to one) keep their own."""
    together = len(want.text) + len(other.text) + 2
    alike = want.colour == other.colour and want.whose == other.whose
    return min(want.order, other.order) >= 1 and alike and together <= _LONGEST_JOINED


def _draw_leader(sheet: Sheet, leader: Segment, colour: str) -> None:
    from matplotlib.lines import Line2D

    width, height = (float(edge) for edge in sheet.figure.bbox.extents[2:])
    x, y, x_end, y_end = leader
    sheet.figure.add_artist(
        Line2D([x / width, x_end / width], [y / height, y_end / height], color=colour, linewidth=0.6, alpha=0.8)
    )
