"""Panels side by side under a title and over a key, laid out by measured widths so that nothing is cut and nothing overlaps.

What sweeps and comparisons are drawn on; settings, colours and files are those of :mod:`.canvas`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from .canvas import MOST_LINES, POINTS_PER_INCH, Ruler, TooSmallError, new_figure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from .canvas import Theme

_EDGE, _SUBTITLE, _KEY = 12.0, 8.5, 8.0  # points: room at the edges, sizes of text
# Lines and size: the first that holds a title.
_TITLES = ((1, 12.0), (1, 11.0), (1, 10.0), (2, 12.0), (2, 11.0), (2, 10.0), (MOST_LINES, 10.0))
_PANEL_TITLE, _PANEL_LINE = 9.0, 11.5  # points: size and line height of a panel's title
_SAFE = 0.92  # of the room that a line of the subtitle takes: renderers that fit letters to pixels make it wider
_LONGEST = 4000  # letters of a title
_GAP = 4.0  # points between headings and what stands close below them
_LOWEST = 60.0  # points of height of a panel
_ROW, _SAMPLE, _BETWEEN = 14.0, 26.0, 16.0  # of the key: height of a row, width of a sample, room between entries
_LEFT, _BELOW, _ABOVE, _APART = 58.0, 40.0, 18.0, 66.0  # room for what stands around a panel
NARROW = 700  # pixels of width below which panels stand one above the other


class Entry(NamedTuple):
    """One entry of the key: how it looks, and its words."""

    sample: Line2D
    text: str


class Page(NamedTuple):
    """A drawing with its panels, and the lines of their titles."""

    figure: Figure
    panels: tuple[Axes, ...]
    ruler: Ruler
    titles: tuple[str, ...]


def new_page(
    title: str,
    subtitle: str,
    entries: Sequence[Entry],
    titles: Sequence[str],
    size: tuple[int, int],
    theme: Theme,
    *,
    left: float = _LEFT,
    apart: float = _APART,
    stacked: bool | None = None,
    lowest: float = _LOWEST,
) -> Page:
    """A page with an empty panel for each title.

    Parameters
    ----------
    titles : of the panels, which get as many lines as they need; :func:`titled` writes them
    size : width and height in pixels of 1/100 inch
    left, apart : points of room on the left of the first panel, and between two of them
    stacked : one above the other; None: where the page is narrow
    lowest : points of height that a panel needs

    Raises
    ------
    TooSmallError : for a size without so much room beside title, key and what stands around panels
    """
    figure, ruler, count = new_figure(size, theme), Ruler(), len(titles)
    width, height = (pixels * POINTS_PER_INCH / 100 for pixels in size)
    y = height - 8
    room = width - 2 * _EDGE
    heading, largest = _fitting(ruler, ruler.drawable(title, _LONGEST), room)
    below = ruler.wrapped(ruler.drawable(subtitle, _LONGEST), _SAFE * room, _SUBTITLE) if subtitle else []
    for lines, points, weight, colour in (
        (heading, largest, "bold", theme.ink),
        (below, _SUBTITLE, "normal", theme.faint),
    ):
        for line in lines:
            y -= points * 1.3
            figure.text(
                _EDGE / width, y / height, line, fontsize=points, fontweight=weight, color=colour, va="baseline"
            )
    y -= _GAP if below else 2.5 * _GAP
    bottom = _draw_key(figure, entries, theme, ruler, width, height)
    if stacked is None:
        stacked = size[0] < NARROW
    across, up = (1, count) if stacked else (count, 1)
    room_wide = (width - left - _EDGE - (across - 1) * apart) / across
    wrapped = [ruler.wrapped(title, room_wide, _PANEL_TITLE) for title in titles]
    more = max(map(len, wrapped)) - 1
    above = _ABOVE + more * _PANEL_LINE + bool(more) * _GAP
    room_high = (y - bottom - (_BELOW + above) * up) / up
    if room_high < lowest:
        raise TooSmallError(size, height + (lowest - room_high) * up)
    panels = []
    for number in range(count):
        begin = left + (0 if stacked else number * (room_wide + apart))
        low = bottom + _BELOW + (count - 1 - number) * (room_high + _BELOW + above) * stacked
        rectangle = (begin / width, low / height, room_wide / width, room_high / height)
        panels.append(figure.add_axes(rectangle))
    for axes in panels:
        dressed(axes, theme)
    return Page(figure, tuple(panels), ruler, tuple("\n".join(lines) for lines in wrapped))


def _fitting(ruler: Ruler, title: str, room: float) -> tuple[list[str], float]:
    """Lines of a title and their size: few lines, then large ones."""
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
    texts = [ruler.wrapped(ruler.drawable(entry.text), width - 2 * _EDGE - _SAMPLE, _KEY) for entry in entries]
    column = max(ruler.extent(line, _KEY)[0] for text in texts for line in text) + _SAMPLE + _BETWEEN
    columns = max(1, min(len(texts), int((width - 2 * _EDGE + _BETWEEN) / column)))
    rows = [texts[start : start + columns] for start in range(0, len(texts), columns)]
    lines_of = [max(map(len, row)) for row in rows]
    for number, (entry, text) in enumerate(zip(entries, texts, strict=True)):
        row = number // columns
        x, y = _EDGE + number % columns * column, 8 + (sum(lines_of[row:]) - 1) * _ROW
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
        for place, line in enumerate(text):
            figure.text(
                (x + _SAMPLE) / width,
                (y - place * _ROW) / height,
                line,
                fontsize=_KEY,
                color=theme.ink,
                va="baseline",
            )
    return sum(lines_of) * _ROW + 10


def dressed(axes: Axes, theme: Theme) -> None:
    """Give a panel the colours of a theme, and a grid."""
    axes.set_facecolor(theme.paper)
    axes.tick_params(which="both", color=theme.faint, labelcolor=theme.ink)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(theme.faint)
    axes.grid(visible=True, color=theme.grid, linewidth=0.6)
    axes.set_axisbelow(True)


def titled(axes: Axes, text: str, theme: Theme, above: float = 0.0) -> None:
    """Write above a panel what it shows (its lines of a page's titles), over so many points that something else takes."""
    axes.set_title(text, fontsize=_PANEL_TITLE, color=theme.ink, loc="left", pad=6 + above)


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
