"""A page of panels that each have a key of their own: what lines of one panel are called says nothing about those of another.

Laid out by measured widths, so that nothing is cut and nothing overlaps; where all panels have the same key it is drawn once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .canvas import POINTS_PER_INCH, Ruler, TooSmallError, new_figure
from .panels import NARROW, dressed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .canvas import Theme
    from .panels import Entry

_EDGE, _TITLE, _SUBTITLE, _KEY = 12.0, 12.0, 8.5, 8.0  # points: room at the edges, sizes of text
_ROW, _SAMPLE, _BETWEEN, _UNDER = 13.0, 28.0, 12.0, 6.0  # of a key: row, sample, room between entries, room below it
_LEFT, _BELOW, _ABOVE, _APART = 60.0, 34.0, 22.0, 22.0  # room around a panel
_SAFE = 0.95  # of the room that a line of a heading takes: renderers that fit letters to pixels make it wider
_LEAST, _HEADINGS = 70.0, 62.0  # points: least height of a panel, and what the headings may take beside several
_PANEL_TITLE, _PANEL_LINE = 9.0, 11.5  # points: size and line height of a panel's title


class Page(NamedTuple):
    """A drawing with its panels, and the lines of their titles."""

    figure: Figure
    panels: tuple[Axes, ...]
    ruler: Ruler
    titles: tuple[str, ...]


class _Column(NamedTuple):
    """Where a panel and its key go, in points."""

    left: float
    width: float
    top: float
    bottom: float


def new_page(
    title: str,
    subtitle: str,
    keys: Sequence[Sequence[Entry]],
    titles: Sequence[str],
    size: tuple[int, int],
    theme: Theme,
) -> Page:
    """A page with one empty panel for each key; where it is too low for all of them, fewer, which its subtitle says.

    Parameters
    ----------
    titles : of the panels
    size : width and height in pixels of 1/100 inch; panels stand one above the other where it is narrow

    Raises
    ------
    TooSmallError : for a size without room even for one panel
    """
    figure, ruler = new_figure(size, theme), Ruler()
    width, height = (pixels * POINTS_PER_INCH / 100 for pixels in size)
    stacked = size[0] < NARROW
    kept = _kept(ruler, keys, titles, width, height) if stacked else len(keys)
    if kept < len(keys):
        subtitle += f" · {len(keys) - kept} more in a higher picture"
        keys, titles = keys[:kept], titles[:kept]
    top = _headings(figure, ruler, title, subtitle, theme)
    count = len(keys)
    shared = _shared(keys)
    bottom = _UNDER
    if shared:
        bottom += _draw_key(figure, keys[0], theme, ruler, _Column(_EDGE, width - 2 * _EDGE, 0, bottom))
    wide = (width - 2 * _EDGE - (0 if stacked else (count - 1) * _APART)) / (1 if stacked else count)
    high = (top - bottom) / (count if stacked else 1)
    wrapped = [ruler.wrapped(ruler.drawable(text), wide - _LEFT + _EDGE, _PANEL_TITLE) for text in titles]
    more = max(map(len, wrapped)) - 1
    above = _ABOVE + more * _PANEL_LINE
    used = 0.0 if shared else max(_plan_key(ruler, key, wide).height for key in keys)
    missing = _LEAST - (high - used - _BELOW - above)
    if missing > 0:
        raise TooSmallError(size, height + missing * (count if stacked else 1))
    panels = []
    for number, key in enumerate(keys):
        column = _Column(
            _EDGE + (0 if stacked else number * (wide + _APART)),
            wide,
            top - number * high * stacked,
            bottom + (count - 1 - number) * high * stacked,
        )
        used = 0.0 if shared else _draw_key(figure, key, theme, ruler, column)
        floor = column.bottom + used + _BELOW
        box = (
            (column.left + _LEFT - _EDGE) / width,
            floor / height,
            (column.width - _LEFT + _EDGE) / width,
            (column.top - above - floor) / height,
        )
        panels.append(figure.add_axes(box))
        dressed(panels[-1], theme)
    return Page(figure, tuple(panels), ruler, tuple("\n".join(lines) for lines in wrapped))


def _shared(keys: Sequence[Sequence[Entry]]) -> bool:
    return len(keys) > 1 and len({tuple(entry.text for entry in key) for key in keys}) == 1


def _kept(ruler: Ruler, keys: Sequence[Sequence[Entry]], titles: Sequence[str], width: float, height: float) -> int:
    """How many panels find room one above the other, at least one."""
    for count in range(len(keys), 1, -1):
        used = [_plan_key(ruler, key, width - 2 * _EDGE).height for key in keys[:count]]
        taken = used[0] if _shared(keys[:count]) else count * max(used)
        lines = max(len(ruler.wrapped(title, width - _EDGE - _LEFT, _PANEL_TITLE)) for title in titles[:count])
        above = _ABOVE + (lines - 1) * _PANEL_LINE
        if height - _HEADINGS - taken >= count * (_BELOW + above + _LEAST):
            return count
    return 1


def _headings(figure: Figure, ruler: Ruler, title: str, subtitle: str, theme: Theme) -> float:
    """Write title and subtitle; returns how high there is room below them."""
    width, height = (inches * POINTS_PER_INCH for inches in figure.get_size_inches())
    y = height - 8
    for text, points, weight, colour in (
        (title, _TITLE, "bold", theme.ink),
        (subtitle, _SUBTITLE, "normal", theme.faint),
    ):
        for line in ruler.wrapped(ruler.drawable(text, 400), _SAFE * (width - 2 * _EDGE), points, weight=weight):
            y -= points * 1.3
            figure.text(
                _EDGE / width, y / height, line, fontsize=points, fontweight=weight, color=colour, va="baseline"
            )
    return float(y - 6)


class _PlannedKey(NamedTuple):
    """A key that has not been drawn yet: of each entry its lines, in columns of one width."""

    texts: list[list[str]]
    step: float
    across: int

    @property
    def lines(self) -> list[int]:
        """Lines of each row."""
        starts = range(0, len(self.texts), self.across)
        return [max(map(len, self.texts[start : start + self.across])) for start in starts]

    @property
    def height(self) -> float:
        """Points that it takes."""
        return sum(self.lines) * _ROW + _UNDER if self.texts else 0.0


def _plan_key(ruler: Ruler, key: Sequence[Entry], width: float) -> _PlannedKey:
    """Wrap the texts of a key, and lay its entries out in columns of one width."""
    texts = [ruler.wrapped(ruler.drawable(entry.text), width - _SAMPLE, _KEY) for entry in key]
    widest = max((ruler.extent(line, _KEY)[0] for text in texts for line in text), default=0.0)
    step = widest + _SAMPLE + _BETWEEN
    return _PlannedKey(texts, step, max(1, min(len(texts), int((width + _BETWEEN) / step))))


def _draw_key(figure: Figure, key: Sequence[Entry], theme: Theme, ruler: Ruler, column: _Column) -> float:
    """Draw a key at the bottom of a column; returns the height that it takes."""
    width, height = (inches * POINTS_PER_INCH for inches in figure.get_size_inches())
    plan = _plan_key(ruler, key, column.width)
    for number, (entry, text) in enumerate(zip(key, plan.texts, strict=True)):
        x = column.left + number % plan.across * plan.step
        y = column.bottom + (sum(plan.lines[number // plan.across :]) - 1) * _ROW
        _draw_sample(figure, entry, (x / width, (y + _KEY * 0.36) / height), (_SAMPLE - 7) / width)
        for place, line in enumerate(text):
            figure.text(
                (x + _SAMPLE) / width,
                (y - place * _ROW) / height,
                line,
                fontsize=_KEY,
                color=theme.ink,
                va="baseline",
            )
    return plan.height


def _draw_sample(figure: Figure, entry: Entry, start: tuple[float, float], length: float) -> None:
    """A piece of the line with its marker in the middle, or the marker alone."""
    sample, (x, y) = entry.sample, start
    middle = x + length / 2
    if sample.get_linestyle() in {"None", ""}:
        sample.set_data([middle], [y])
    else:
        sample.set_data([x, middle, x + length], [y, y, y])
        sample.set_markevery([1])
    figure.add_artist(sample)
