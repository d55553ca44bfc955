"""Speculation as a drawing: speed-up over drafts of a round for each concurrency, and what a round costs against what it yields."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

from ..errors import DomainError
from ..quantities import show_count
from .canvas import DARK, LIGHT, POINTS_PER_INCH, Theme, steady
from .panels import Entry, headroom, new_page, plain_ticks, thinned, titled
from .speculation import heading_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..planner.speculation import Planned, SpeculationResult
    from ..planner.speculation_table import Choice, Row
    from .panels import Page

DEFAULT_SIZE = (1200, 620)
_PANELS = ("speed-up over decoding without drafts", "a round: cost in steps, and tokens")
MOST_LINES = 6
_MARKERS = ("o", "s", "^", "D", "v", "P")
_STAR = 15.0
_DOT = 4.0  # points that a marker reaches above its place
_NOTHING: Any = (0, (4, 2))


def speculation_figure(r: SpeculationResult, *, size: tuple[int, int] = DEFAULT_SIZE, dark: bool = False) -> Figure:
    """Draw the table of an answer; :func:`~roofplan.report.canvas.rendered` turns it into a file.

    Parameters
    ----------
    size : width and height in pixels of 1/100 inch
    dark : on dark paper

    Raises
    ------
    DomainError : for trials alone, of which there is nothing to draw
    """
    if r.planned is None:
        raise DomainError("figure", got="trials alone", wanted="a target and a device, whose table is drawn")
    p, theme = r.planned, DARK if dark else LIGHT
    shown = p.table.choices[:MOST_LINES]
    with steady():
        left_out = len(p.table.choices) - len(shown)
        subtitle = f"left out: {left_out} more of the concurrencies" if left_out else ""
        page = new_page(heading_of(p), subtitle, list(_key(p, shown, theme)), _PANELS, size, theme)
        _speedups(page.panels[0], p, shown, theme)
        _costs(page.panels[1], p, shown, theme)
        of = "nodes of the tree" if p.given.kind == "tree" else "drafts of a round (k)"
        for axes, above in zip(page.panels, (_STAR / 2, _DOT), strict=True):
            headroom(page, axes, above)
        for axes, title in zip(page.panels, page.titles, strict=True):
            axes.set_xlabel(of, color=theme.ink)
            titled(axes, title, theme)
            _across(page, axes, p)
    return page.figure


def _rows(p: Planned, choice: Choice) -> list[Row]:
    return [row for row in p.table.rows if row.concurrency == choice.concurrency]


def _looks(shown: tuple[Choice, ...], theme: Theme) -> Iterator[tuple[Choice, dict[str, Any]]]:
    """How each line looks: those that are drawn first are wider, so that equal lines do not hide one another."""
    for place, (choice, colour, marker) in enumerate(zip(shown, cycle(theme.series), cycle(_MARKERS), strict=False)):
        width = 1.3 + 0.7 * (len(shown) - 1 - place)
        yield choice, {"color": colour, "marker": marker, "markersize": 3.5 + 0.5 * width, "linewidth": width}


def _key(p: Planned, shown: tuple[Choice, ...], theme: Theme) -> Iterator[Entry]:
    from matplotlib.lines import Line2D

    for choice, look in _looks(shown, theme):
        text = f"{show_count(choice.concurrency)} request{'s' if choice.concurrency > 1 else ''}"
        yield Entry(Line2D([], [], **look), text)
    if any(choice.k for choice in shown):
        star = Line2D([], [], color=theme.ink, marker="*", markersize=_STAR * 0.7, linestyle="None")
        yield Entry(star, "best number")
    yield Entry(Line2D([], [], color=theme.faint, linestyle=_NOTHING), "no gain")
    yield Entry(Line2D([], [], color=theme.ink, linewidth=2), "tokens that a round yields")
    if any(not row.within_budget for row in p.table.rows):
        yield Entry(Line2D([], [], color=theme.faint, marker="x", linestyle="None"), "more tokens than a step holds")


def _speedups(axes: Axes, p: Planned, shown: tuple[Choice, ...], theme: Theme) -> None:
    axes.axhline(1, color=theme.faint, linewidth=1, linestyle=_NOTHING, label="no gain")
    for choice, look in _looks(shown, theme):
        rows = _rows(p, choice)
        drafts, gains = [0, *(row.k for row in rows)], [1.0, *(row.speedup for row in rows)]
        axes.plot(drafts, gains, label=f"{choice.concurrency}", **look)
        beyond = [(row.k, row.speedup) for row in rows if not row.within_budget]
        if beyond:
            axes.plot(
                *zip(*beyond, strict=True), color=theme.faint, marker="x", markersize=7, linestyle="None", zorder=4
            )
        if choice.k:
            axes.plot(
                [choice.k],
                [choice.speedup],
                color=look["color"],
                marker="*",
                markersize=_STAR,
                markeredgecolor=theme.paper,
                zorder=5,
                label="best",
            )


def _costs(axes: Axes, p: Planned, shown: tuple[Choice, ...], theme: Theme) -> None:
    rows = _rows(p, shown[0])
    drafts = [0, *(row.k for row in rows)]
    axes.plot(
        drafts, [1.0, *(row.expected_tokens for row in rows)], color=theme.ink, linewidth=2, label="tokens", zorder=4
    )
    for choice, look in _looks(shown, theme):
        costs = [1.0, *(row.round_cost for row in _rows(p, choice))]
        axes.plot(drafts, costs, label=f"{choice.concurrency}", **look)


def _across(page: Page, axes: Axes, p: Planned) -> None:
    drafts = [0.0, *sorted({float(row.k) for row in p.table.rows})]
    room = axes.get_position().width * page.figure.get_figwidth() * POINTS_PER_INCH
    widest = max(page.ruler.extent(f"{value:g}", 9)[0] for value in drafts)
    plain_ticks(axes, "x", thinned(drafts, room, widest), lambda value: f"{value:g}")
    axes.set_xlim(-0.02 * drafts[-1] - 0.15, drafts[-1] * 1.02 + 0.15)
