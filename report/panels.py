"""Panels side by side under a title and over a key, laid out by measured widths so that nothing is cut and nothing overlaps.

What sweeps and comparisons are drawn on; settings, colours and files are those of :mod:`.canvas`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from .canvas import POINTS_PER_INCH, Ruler, new_figure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from .canvas import Theme

_EDGE, _SUBTITLE, _KEY = 12.0, 8.5, 8.0  # points: room at the edges, sizes of text
_TITLES = (
    (1, 12.0),
    (1, 11.0),
    (1, 10.0),
    (2, 12.0),
    (2, 11.0),
    (2, 10.0),
    (3, 10.0),
)  # lines and size: the first that holds a title
_ROW, _SAMPLE, _BETWEEN = 14.0, 26.0, 16.0  # of the key: height of a row, width of a sample, room between entries
_LEFT, _BELOW, _ABOVE, _APART = 58.0, 40.0, 18.0, 66.0  # room for what stands around a panel
NARROW = 700  # pixels of width below which panels stand one above the other
_LONGEST_NAME = 260.0  # points of an entry of the key


class Entry(NamedTuple):
    """One entry of the key: how it looks, and its words."""

    sample: Line2D
    text: str


class Page(NamedTuple):
    """A drawing with its panels."""

    figure: Figure
    panels: tuple[Axes, ...]
    ruler: Ruler


def new_page(
    title: str,
    subtitle: str,
    entries: Sequence[Entry],
    count: int,
    size: tuple[int, int],
    theme: Theme,
    *,
    left: float = _LEFT,
    apart: float = _APART,
    stacked: bool | None = None,
) -> Page:
    """A page with so many empty panels.

    Parameters
    ----------
    size : width and height in pixels of 1/100 inch
    left, apart : points of room on the left of the first panel, and between two of them
    stacked : one above the other; None: where the page is narrow
    """
    figure, ruler = new_figure(size, theme), Ruler()
    width, height = (pixels * POINTS_PER_INCH / 100 for pixels in size)
    y = height - 8
    room = width - 2 * _EDGE
    heading, largest = _fitting(ruler, ruler.drawable(title, 400), room)
    below = ruler.wrapped(ruler.drawable(subtitle, 400), room, _SUBTITLE, 2)
    for lines, points, weight, colour in (
        (heading, largest, "bold", theme.ink),
        (below, _SUBTITLE, "normal", theme.faint),
    ):
        for line in lines:
            y -= points * 1.3
            figure.text(
                _EDGE / width, y / height, line, fontsize=points, fontweight=weight, color=colour, va="baseline"
            )
    bottom = _draw_key(figure, entries, theme, ruler, width, height)
    if stacked is None:
        stacked = size[0] < NARROW
    across, up = (1, count) if stacked else (count, 1)
    room_wide = (width - left - _EDGE - (across - 1) * apart) / across
    room_high = (y - bottom - (_BELOW + _ABOVE) * up) / up
    panels = []
    for number in range(count):
        begin = left + (0 if stacked else number * (room_wide + apart))
        low = bottom + _BELOW + (count - 1 - number) * (room_high + _BELOW + _ABOVE) * stacked
        rectangle = (begin / width, low / height, room_wide / width, max(room_high, 1) / height)
        panels.append(figure.add_axes(rectangle))
    for axes in panels:
        dressed(axes, theme)
    return Page(figure, tuple(panels), ruler)


def _fitting(ruler: Ruler, title: str, room: float) -> tuple[list[str], float]:
    """Lines of a title and their size: few lines, then large ones; cut only where three small ones do not hold it."""
    for most, points in _TITLES:
        lines = ruler.wrapped(title, room, points, most, "bold")
        if " ".join(lines) == title:
            break
    return lines, points


def _draw_key(
    figure: Figure, entries: Sequence[Entry], theme: Theme, ruler: Ruler, width: float, height: float
) -> float:
    """Draw the key in columns of one width; returns the height that it takes, in points."""
    if not entries:
        return 8.0
    longest = min(_LONGEST_NAME, width - 2 * _EDGE - _SAMPLE)
    texts = [ruler.cut(ruler.drawable(entry.text), longest, _KEY) for entry in entries]
    column = max(ruler.extent(text, _KEY)[0] for text in texts) + _SAMPLE + _BETWEEN
    columns = max(1, min(len(texts), int((width - 2 * _EDGE + _BETWEEN) / column)))
    rows = math.ceil(len(texts) / columns)
    for number, (entry, text) in enumerate(zip(entries, texts, strict=True)):
        x, y = _EDGE + number % columns * column, 8 + (rows - 1 - number // columns) * _ROW
        middle = (y + _KEY * 0.36) / height
        sample = entry.sample
        marked = sample.get_marker() not in {"", "None", None}
        is_line = sample.get_linestyle() not in {"None", ""}
        ends = (x, x + _SAMPLE - 6) if is_line else (x + _SAMPLE / 2 - 3,)
        sample.set_data([end / width for end in ends], [middle] * len(ends))
        if is_line and marked:
            sample.set_data([x / width, (x + (_SAMPLE - 6) / 2) / width, (x + _SAMPLE - 6) / width], [middle] * 3)
            sample.set_markevery([1])
        figure.add_artist(sample)
        figure.text((x + _SAMPLE) / width, y / height, text, fontsize=_KEY, color=theme.ink, va="baseline")
    return rows * _ROW + 10


def dressed(axes: Axes, theme: Theme) -> None:
    """Give a panel the colours of a theme, and a grid."""
    axes.set_facecolor(theme.paper)
    axes.tick_params(which="both", color=theme.faint, labelcolor=theme.ink)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(theme.faint)
    axes.grid(visible=True, color=theme.grid, linewidth=0.6)
    axes.set_axisbelow(True)


def titled(axes: Axes, text: str, theme: Theme, above: float = 0.0) -> None:
    """Write above a panel what it shows, over so many points that something else takes."""
    axes.set_title(text, fontsize=9, color=theme.ink, loc="left", pad=6 + above)


def headroom(page: Page, axes: Axes, above: float) -> None:
    """Let a panel begin at zero and end so many points above the highest place of its lines, with some paper."""
    room = axes.get_position().height * page.figure.get_figheight() * POINTS_PER_INCH
    axes.set_ylim(0, float(axes.dataLim.y1) / max(1 - (above + 2) / room, 0.5))


def plain_ticks(axes: Axes, which: str, values: Sequence[float], shown: Callable[[float], str]) -> None:
    """Ticks at these values alone, printed so; no small ones between them."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: shown(value)))
    make_locator: Callable[[], NullLocator] = NullLocator
    axis.set_minor_locator(make_locator())
    axis.set_minor_formatter(NullFormatter())


def thinned(values: Sequence[float], room: float, widest: float) -> list[float]:
    """Every n-th of some ticks, so that labels of this width do not touch in this room.

    >>> thinned([1, 2, 4, 8, 16], 90, 20)
    [1, 4, 16]
    """
    step = 1
    while len(values[::step]) > 1 and len(values[::step]) * (widest + 8) > room:
        step += 1
    return list(values[::step])


def round_steps(low: float, high: float) -> list[float]:
    """Round numbers between two numbers, at most nine of them.

    >>> round_steps(0, 7)
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    """
    power = 10.0 ** math.floor(math.log10(max(high - low, 1e-12)))
    step = next(size for part in (0.1, 0.2, 0.5, 1, 2) if (high - low) / (size := part * power) <= 8)
    return [step * place for place in range(math.ceil(low / step), math.floor(high / step) + 1)]
