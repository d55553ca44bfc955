"""A preset as a drawing: its panels side by side, lines and marks told apart by colour, dashes and markers, a key below each.

What a line is, is said by the data: this draws any panels of curves and marks (:mod:`~roofplan.planner.presets.drawing`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..quantities import show_bytes, show_count, show_time
from .canvas import DARK, LIGHT, Theme, decades, steady
from .panels import Entry, plain_ticks, round_steps, thinned, titled
from .preset_page import new_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..planner.presets.drawing import Panel, PresetResult, Scale
    from .preset_page import Page

WIDE, TALL = (1200, 620), (480, 900)  # pixels: of a page, and of a phone
SINGLE = (900, 620)
_DASHES: tuple[Any, ...] = ("-", (0, (6, 1.5)), (0, (4, 1, 1, 1)), (0, (3, 1)), (0, (6, 1, 1, 1, 1, 1)), (0, (8, 2)))
_POINTS = ("o", "s", "^", "D", "v", "P")
_BOUNDS: tuple[Any, ...] = ((0, (1, 1.6)), (0, (5, 2)), (0, (3, 1.5, 1, 1.5)))
_LEVELS: tuple[Any, ...] = ((0, (8, 3)), (0, (2, 2)), (0, (6, 2, 1, 2)))
_MARKS = (("*", 13), ("X", 9), ("d", 9), ("p", 9))  # markers that stand out, and their sizes in points
_MARKED = 16  # points of a curve up to which each has a marker
_ROOF = "dotted: the roof at nominal rates"
_BINARY = frozenset({"tokens", "sequences", "drafts", "experts", "bytes"})
_ENOUGH_TICKS, _MOST_TICKS = 4, 9


def preset_figure(r: PresetResult, *, size: tuple[int, int] | None = None, dark: bool = False) -> Figure:
    """Draw a preset; :func:`~roofplan.report.canvas.rendered` turns it into a file.

    Parameters
    ----------
    size : width and height in pixels of 1/100 inch; default: 1200 x 620, or 900 x 620 of a single panel
    dark : on dark paper
    """
    theme = DARK if dark else LIGHT
    size = size or (WIDE if len(r.panels) > 1 else SINGLE)
    with steady():
        looks = [_Looks(panel, theme) for panel in r.panels]
        keys, titles = [list(look.key()) for look in looks], [panel.title for panel in r.panels]
        page = new_page(r.title, r.subtitle, keys, titles, size, theme)
        for axes, title, panel, look in zip(page.panels, page.titles, r.panels, looks, strict=False):  # of a low page
            _draw(page, axes, panel, look)
            titled(axes, title, theme)
    return page.figure


class _Looks:
    """How the curves, levels and marks of a panel look."""

    def __init__(self, panel: Panel, theme: Theme) -> None:
        self.theme = theme
        told = [curve for curve in panel.curves if curve.look == "line"]
        self.lines = _numbered(curve.name for curve in told)
        # A bound that is called like a line is that line's roof.
        self.bounds = _numbered(c.name for c in panel.curves if c.look == "bound" and c.name not in self.lines)
        self.roofs = any(curve.look == "bound" and curve.name in self.lines for curve in panel.curves)
        self.levels = _numbered(mark.text for mark in panel.marks if mark.x is None)
        self.points = _numbered(mark.text for mark in panel.marks if mark.x is not None)
        self.marked = all(len(curve.x) <= _MARKED for curve in told)

    def line(self, name: str) -> dict[str, Any]:
        """Style of what is told."""
        place = self.lines[name]
        return {
            "color": self.theme.series[place % len(self.theme.series)],
            "linestyle": _DASHES[place % len(_DASHES)],
            "linewidth": 1.7,
            "marker": _POINTS[place % len(_POINTS)] if self.marked else "",
            "markersize": 4,
        }

    def bound(self, name: str) -> dict[str, Any]:
        """Style of what stands back."""
        if name in self.lines:
            return {**self.line(name), "linestyle": _BOUNDS[0], "linewidth": 1.1, "marker": ""}
        style = _BOUNDS[self.bounds[name] % len(_BOUNDS)]
        return {"color": self.theme.faint, "linestyle": style, "linewidth": 1.2}

    def level(self, text: str) -> dict[str, Any]:
        """Style of a level across a panel."""
        style = _LEVELS[self.levels[text] % len(_LEVELS)]
        return {"color": self.theme.faint, "linestyle": style, "linewidth": 1}

    def point(self, text: str, curve: str) -> dict[str, Any]:
        """Style of a mark on a curve."""
        marker, points = _MARKS[self.points[text] % len(_MARKS)]
        return {
            "color": self.line(curve)["color"] if curve in self.lines else self.theme.faint,
            "marker": marker,
            "markersize": points,
            "markeredgecolor": self.theme.paper,
            "markeredgewidth": 0.7,
            "linestyle": "None",
        }

    def key(self) -> Iterator[Entry]:
        """One entry for each."""
        from matplotlib.lines import Line2D

        def sample(**style: Any) -> Line2D:
            return Line2D([], [], **style)

        for name in self.lines:
            yield Entry(sample(**self.line(name)), name)
        for name in self.bounds:
            yield Entry(sample(**self.bound(name)), name)
        if self.roofs:
            yield Entry(sample(color=self.theme.faint, linestyle=_BOUNDS[0], linewidth=1.1), _ROOF)
        for text in self.points:
            yield Entry(sample(**self.point(text, "")), text)
        for text in self.levels:
            yield Entry(sample(**self.level(text)), text)


def _numbered(names: Iterator[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(dict.fromkeys(names))}


def _draw(page: Page, axes: Axes, panel: Panel, looks: _Looks) -> None:
    values: list[float] = []
    for curve in panel.curves:
        told = curve.look == "line"
        style = looks.line(curve.name) if told else looks.bound(curve.name)
        axes.plot(curve.x, curve.y, label=curve.name, zorder=3 if told else 2, **style)
        values += curve.y
    for mark in panel.marks:
        if mark.x is None:
            axes.axhline(mark.y, label=mark.text, zorder=1, **looks.level(mark.text))
        else:
            axes.plot([mark.x], [mark.y], label=mark.text, zorder=5, **looks.point(mark.text, mark.curve))
        values.append(mark.y)
    across = [x for curve in panel.curves for x in curve.x]
    _scale(page, axes, "x", panel.across, across, looks.theme)
    _scale(page, axes, "y", panel.up, values, looks.theme)


# ------------------------------------------------------------------------------------------------ axes


def _scale(page: Page, axes: Axes, which: str, scale: Scale, values: Sequence[float], theme: Theme) -> None:
    """Limits and ticks of one axis: logarithmic as asked, else from zero."""
    low, high = min(values), max(values)
    along = float(axes.bbox.width if which == "x" else axes.bbox.height)
    if scale.logarithmic:
        low, high = _logarithmic(axes, which, scale, low, high)
        ticks = _powers(scale, low, high)
    else:
        low, high = min(low, 0.0), high * 1.04 if which == "x" else high * 1.08
        if scale.unit == "share" and high > 0.9:
            high = max(1.03, high)
        ticks = [tick for tick in round_steps(low, high) if scale.unit != "share" or tick <= 1]
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    room = max(page.ruler.extent(_shown(tick, scale), 9)[0] for tick in ticks) if which == "x" else 12.0
    kept = thinned(ticks, along, room)
    plain_ticks(axes, which, kept, lambda value: _shown(value, scale))
    (axes.set_xlabel if which == "x" else axes.set_ylabel)(scale.title, color=theme.ink)


def _logarithmic(axes: Axes, which: str, scale: Scale, low: float, high: float) -> tuple[float, float]:
    base = 2 if scale.unit in _BINARY else 10
    (axes.set_xscale if which == "x" else axes.set_yscale)("log", base=base)
    margin = (high / low) ** (0.03 if which == "x" else 0.05) if high > low else 1.5
    return low / margin, high * margin


def _powers(scale: Scale, low: float, high: float) -> list[float]:
    """Powers of two of what is counted, of ten and three times those of what is measured; not more than are wanted."""
    if scale.unit in _BINARY:
        exponents = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
        step = next(n for n in (1, 2, 4, 5, 10, 20) if len(exponents) / n <= 2 * _MOST_TICKS)
        if scale.unit == "bytes":
            step = next(n for n in (1, 2, 5, 10, 20) if len(exponents) / n <= _MOST_TICKS)
        return [2.0**power for power in exponents if power % step == 0] or [2.0**power for power in exponents]
    inside: list[float] = []
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 7, 8)):
        inside = [power * n for power in decades(low / 10, high) for n in steps if low <= power * n <= high]
        if len(inside) >= _ENOUGH_TICKS:
            break
    return inside or [low, high]


def _shown(value: float, scale: Scale) -> str:
    if not value:
        return "0"
    match scale.unit:
        case "bytes":
            return show_bytes(value, 1)
        case "s":
            return show_time(value).replace(".00 ", " ").replace(".0 ", " ")
        case "share":
            return f"{value:.0%}"
        case "tokens" | "sequences" | "drafts" | "experts" if value >= 1:
            return show_count(value)
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"
