"""A sweep as a drawing: throughput and time per token over one axis, a line for each value of the other, marks in lanes above.

Solid where it fits, dotted where it does not; bands (bars at names) hold 80 % of cases, the fine dotted line of a single curve is the bound
at nominal rates. Each kind of mark has a lane of its own, so that none hides another or the curve.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import DomainError
from ..quantities import show_count, show_time
from .canvas import DARK, LIGHT, Theme, TooSmallError, decades, steady
from .panels import Entry, new_page, plain_ticks, round_steps, thinned, titled
from .sweep_lines import lines_of, marks_within
from .sweeps import CHEAPEST, heading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..planner.sweeping import SweepResult
    from .panels import Page
    from .sweep_lines import Line

DEFAULT_SIZE = (1200, 620)
RATE, TIME = "output_tokens_per_s_per_device", "tpot_s"
_PANELS = ((RATE, "output tokens/s per device, expected"), (TIME, "time per output token (TPOT), expected"))
_LEAST = 70.0  # points of height of a panel below its marks
_MARKED = 40  # points of a line up to which each has a marker
_LOGARITHMIC = 8  # largest over smallest value of an axis from which it is logarithmic
_FEW_TICKS = 24
_BEYOND: Any = (0, (1.5, 2))
_ROOF: Any = (0, (1, 2))
_LIMIT: Any = (0, (4, 2))
_DASHES: tuple[Any, ...] = ("-", (0, (6, 1.5)), (0, (4, 1, 1, 1)), (0, (3, 1)), (0, (6, 1, 1, 1, 1, 1)), (0, (5, 2)))
_POINTS = ("o", "s", "^", "D", "v", "P")
MARKS = {
    "knee": ("d", "knee"),
    "compute": ("p", "decode is compute-bound"),
    "crossover": ("h", "KV reads equal the weights"),
    "memory": ("X", "largest batch in memory"),
    "tpot": ("<", "largest batch within the TPOT"),
    "cheapest": ("*", "cheapest token"),
}
_LANE = 10.0  # points
_NAME_LINES = 20.0  # points of the lines of names beyond the first two
_TICK = 5.0  # points that a tick of the left axis takes, beside the room around it
_TITLES = {
    "batch": "sequences (batch)",
    "context": "context (tokens)",
    "prompt": "prompt (tokens)",
    "output": "output (tokens)",
    "devices": "devices",
    "tp": "tensor-parallel ranks",
    "pp": "pipeline stages",
    "dp": "replicas",
    "weights": "weight format",
    "kv": "format of the KV cache",
    "hardware": "device",
}


def sweep_figure(r: SweepResult, *, size: tuple[int, int] | None = None, dark: bool = False) -> Figure:
    """Draw a sweep; :func:`~roofplan.report.canvas.rendered` turns it into a file.

    Parameters
    ----------
    size : width and height in pixels of 1/100 inch; default: 1200 x 620
    dark : on dark paper

    Raises
    ------
    DomainError : when no time per token of any point is known
    TooSmallError : for a size without room even for one panel without marks
    """
    across, lines, left_out = lines_of(r)
    if not lines:
        raise DomainError(
            "figure", got="no time per token", wanted="points of which some fits, on a device with known rates"
        )
    theme = DARK if dark else LIGHT
    with steady():
        # On a small page first the second panel goes, then the marks, and the subtitle says so.
        for panels, with_marks in ((_PANELS, True), (_PANELS[:1], True), (_PANELS[:1], False)):
            drawn = lines if with_marks else [replace(line, marks=None) for line in lines]
            lanes = _LANE * len(_lanes(drawn))
            said = [f"{left_out} more lines are left out"] if left_out else []
            left = ["the time per token"] * (len(panels) < len(_PANELS)) + ["the marks"] * (drawn != lines)
            said += [f"{' and '.join(left)}: in a higher picture"] if left else []
            key = list(_key(r, drawn, theme, is_timed=len(panels) > 1))
            titles = [title for _, title in panels]
            lowest = _LEAST + lanes + (_NAME_LINES if _is_named(r, across) else 0)
            try:
                page = new_page(
                    heading(r),
                    " · ".join(said),
                    key,
                    titles,
                    size or DEFAULT_SIZE,
                    theme,
                    lowest=lowest,
                )
                break
            except TooSmallError:
                if not with_marks:
                    raise
        for number, (figure, _) in enumerate(panels):
            _panel(page, number, r, across, drawn, figure, theme)
            titled(page.panels[number], page.titles[number], theme, lanes)
    return page.figure


def _is_named(r: SweepResult, across: str) -> bool:
    """Whether names stand on the lower axis, and no numbers."""
    return isinstance(next(axis for axis in r.axes if axis.name == across).values[0], str)


def _lanes(lines: list[Line]) -> list[str]:
    """The kinds of marks that are drawn, in their order."""
    found = {kind for line in lines for kind, _ in marks_within(line)}
    return [kind for kind in MARKS if kind in found]


def _panel(page: Page, number: int, r: SweepResult, across: str, lines: list[Line], figure: str, theme: Theme) -> None:
    axes = page.panels[number]
    named = _is_named(r, across)
    _shrink(axes, _LANE * len(_lanes(lines)), _NAME_LINES if named else 0)
    for place, line in enumerate(lines):
        (_draw_names if named else _draw_line)(axes, line, figure, place, len(lines), theme)
    if figure == TIME and r.limit_s is not None:
        axes.axhline(r.limit_s, color=theme.faint, linewidth=1, linestyle=_LIMIT, label="TPOT limit")
    parts = ("low", "high", "bound") if len(lines) == 1 or named else ("low", "high")
    _up(axes, [value for line in lines for part in parts for value in line.values(figure, part)], figure)
    if named:
        _across_names(page, axes, r, across, theme)
    else:
        _across(page, axes, across, lines, theme)
    _draw_marks(axes, lines, theme)


def _shrink(axes: Axes, above: float, below: float) -> None:
    """Make room above and below a panel, in points."""
    box, page = axes.get_position(), float(axes.figure.bbox.height)
    height = box.height - (above + below) / page
    axes.set_position((box.x0, box.y0 + below / page, box.width, max(height, 1 / page)))


# ------------------------------------------------------------------------------------------------ what is drawn


def _draw_line(axes: Axes, line: Line, figure: str, place: int, count: int, theme: Theme) -> None:
    """A line that is dotted where it does not fit; a band where there are few lines, the roof where there is one."""
    colour, expected = theme.series[place], line.values(figure, "expected")
    if count <= 2:
        low, high = line.values(figure, "low"), line.values(figure, "high")
        axes.fill_between(line.across, low, high, color=colour, alpha=0.16, linewidth=0)
    if count == 1:
        axes.plot(
            line.across, line.values(figure, "bound"), color=theme.faint, linewidth=1, linestyle=_ROOF, label="roof"
        )
    fits = [row["fits"] for row in line.rows]
    last = len(fits) - 1
    edge = [fits[max(0, i - 1)] != fit or fits[min(last, i + 1)] != fit for i, fit in enumerate(fits)]
    # A stretch between a point that fits and one that does not is dotted, so that both ends belong to the dotted line.
    inside = [y if fit else math.nan for y, fit in zip(expected, fits, strict=True)]
    beyond = [y if not fit or at_edge else math.nan for y, fit, at_edge in zip(expected, fits, edge, strict=True)]
    for ys, style, what in ((inside, _DASHES[place], "fits"), (beyond, _BEYOND, "beyond")):
        axes.plot(line.across, ys, color=colour, linewidth=1.6, linestyle=style, label=f"{line.name} {what}".strip())
    if len(expected) <= _MARKED:
        _draw_points(axes, line, [*line.across], expected, place, theme)


def _draw_points(axes: Axes, line: Line, across: list[float], expected: list[float], place: int, theme: Theme) -> None:
    """Points, hollow where they do not fit."""
    colour = theme.series[place]
    for wanted in (True, False):
        chosen = [(x, y) for x, y, row in zip(across, expected, line.rows, strict=True) if row["fits"] == wanted]
        axes.scatter(
            [x for x, _ in chosen],
            [y for _, y in chosen],
            s=26,
            marker=_POINTS[place],
            facecolors=colour if wanted else theme.paper,
            edgecolors=colour,
            linewidths=1,
            zorder=3,
            label=f"{line.name} points".strip(),
        )


def _draw_names(axes: Axes, line: Line, figure: str, place: int, count: int, theme: Theme) -> None:
    """Points at names, side by side where there are several lines: a bar for the range, a dash for the roof."""
    colour, shift = theme.series[place], (place - (count - 1) / 2) * 0.8 / max(count, 2)
    across = [x + shift for x in line.across]
    low, high = line.values(figure, "low"), line.values(figure, "high")
    axes.vlines(across, low, high, color=colour, linewidth=3, alpha=0.4, zorder=2)
    roof = line.values(figure, "bound")
    axes.scatter(across, roof, s=60, marker="_", color=theme.faint, linewidths=1.4, zorder=2, label="roof")
    _draw_points(axes, line, across, line.values(figure, "expected"), place, theme)


def _draw_marks(axes: Axes, lines: list[Line], theme: Theme) -> None:
    """Marks in lanes above the panel, with stems into it where there is one line; equal ones of several lines as rings in one another."""
    lanes, height = _lanes(lines), float(axes.bbox.height)
    for place, line in enumerate(lines):
        for kind, batch in marks_within(line):
            up = 1 + _LANE * (len(lanes) - lanes.index(kind) - 0.4) / height
            if len(lines) == 1:
                axes.plot(
                    [batch, batch],
                    [0, up],
                    transform=axes.get_xaxis_transform(),
                    clip_on=False,
                    color=theme.faint,
                    linewidth=0.6,
                    zorder=1,
                )
            axes.scatter(
                [batch],
                [up],
                s=66 - 9 * place,
                marker=MARKS[kind][0],
                c=theme.series[place],
                edgecolors=theme.paper,
                linewidths=0.5,
                transform=axes.get_xaxis_transform(),
                clip_on=False,
                zorder=4 + place / 10,
                label=kind,
            )


# ------------------------------------------------------------------------------------------------ axes and key


def _across(page: Page, axes: Axes, name: str, lines: list[Line], theme: Theme) -> None:
    """Numbers on the lower axis, logarithmic where they span much."""
    axes.set_xlabel(_TITLES[name], color=theme.ink)
    distinct = sorted({x for line in lines for x in line.across})
    low, high = distinct[0], distinct[-1]

    def widest(ticks: list[float]) -> float:
        return max(page.ruler.extent(show_count(tick), 9)[0] for tick in ticks)

    room = float(axes.bbox.width)
    ticks = distinct
    if high >= _LOGARITHMIC * low:
        axes.set_xscale("log", base=2)
        axes.set_xlim(low / (high / low) ** 0.03, high * (high / low) ** 0.03)
        if len(distinct) > _FEW_TICKS or thinned(distinct, room, widest(distinct)) != distinct:
            ticks = [2.0**power for power in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
    else:
        margin = 0.03 * (high - low) or 0.5
        axes.set_xlim(low - margin, high + margin)
        if len(distinct) > _FEW_TICKS:
            ticks = round_steps(low, high)
    plain_ticks(axes, "x", thinned(ticks, room, widest(ticks)), show_count)


def _across_names(page: Page, axes: Axes, r: SweepResult, name: str, theme: Theme) -> None:
    """Names on the lower axis, in up to four lines."""
    axes.set_xlabel(_TITLES[name], color=theme.ink)
    values = next(axis.values for axis in r.axes if axis.name == name)
    room = float(axes.bbox.width) / len(values) - 6
    names = []
    for value in values:
        pieces = "".join(f"{letter} " if letter in "-,=" else letter for letter in page.ruler.drawable(str(value)))
        lines = page.ruler.wrapped(pieces, room, 8, 4)
        names.append("\n".join(re.sub("([-,=]) ", r"\1", line) for line in lines))
    plain_ticks(axes, "x", range(len(values)), lambda place: names[round(place)])
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlim(-0.5, len(values) - 0.5)


def _up(axes: Axes, values: list[float], figure: str) -> None:
    """The left axis: from zero, or logarithmic where the values span much."""
    low, high = min(values), max(values)
    shown = show_time if figure == TIME else _show_rate
    if high > 5 * _LOGARITHMIC * low:
        axes.set_yscale("log")
        low, high = low / 1.3, high * 1.3
        axes.set_ylim(low, high)
        ticks = [power * step for power in decades(low / 10, high) for step in (1, 3)]
        within = [tick for tick in ticks if low <= tick <= high]
        plain_ticks(axes, "y", thinned(within, float(axes.bbox.height), _TICK), shown)
        return
    axes.set_ylim(0, high * 1.08)
    steps = thinned(round_steps(0, high * 1.08), float(axes.bbox.height), _TICK)
    plain_ticks(axes, "y", steps, lambda y: shown(y) if y else "0")


def _show_rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def _key(r: SweepResult, lines: list[Line], theme: Theme, *, is_timed: bool) -> Iterator[Entry]:
    from matplotlib.lines import Line2D

    def sample(**style: Any) -> Line2D:
        return Line2D([], [], **style)

    across, _, _ = lines_of(r)
    named = _is_named(r, across)
    if lines[0].name:
        for place, line in enumerate(lines):
            style: dict[str, Any] = {"linestyle": "None" if named else _DASHES[place], "marker": _POINTS[place]}
            yield Entry(sample(color=theme.series[place], linewidth=1.6, markersize=4.5, **style), line.name)
    if any(not row["fits"] for line in lines for row in line.rows):
        hollow = {"marker": "o", "markersize": 5, "markerfacecolor": theme.paper}
        yield Entry(
            sample(color=theme.faint, linewidth=1.6, linestyle="None" if named else _BEYOND, **hollow), "does not fit"
        )
    if len(lines) <= 2 or named:
        width = 3 if named else 7
        yield Entry(sample(color=theme.series[0], linewidth=width, alpha=0.35, linestyle="-"), "80 % of cases")
    if named:
        yield Entry(
            sample(color=theme.faint, marker="_", markersize=8, linestyle="None"), "roof: the bound at nominal rates"
        )
    elif len(lines) == 1:
        yield Entry(sample(color=theme.faint, linewidth=1, linestyle=_ROOF), "roof: the bound at nominal rates")
    if r.limit_s is not None and is_timed:
        yield Entry(sample(color=theme.faint, linewidth=1, linestyle=_LIMIT), f"TPOT {show_time(r.limit_s)}")
    at = {kind: batch for line in lines for kind, batch in marks_within(line)}
    for kind in _lanes(lines):
        marker, text = MARKS[kind]
        face = theme.series[0] if len(lines) == 1 else theme.faint
        look = {
            "marker": marker,
            "markersize": 8,
            "markerfacecolor": face,
            "markeredgewidth": 0.3,
            "markeredgecolor": theme.ink,
        }
        text += f", {CHEAPEST[r.mode]}" if kind == "cheapest" else ""
        said = f"{text}: batch {at[kind]:,.0f}" if len(lines) == 1 else text
        yield Entry(sample(linestyle="None", **look), said)
