"""A comparison as a drawing: a panel for each main figure, a row for each alternative.

Points are expected values (hollow where the alternative does not fit), bars hold 80 % of cases, dashes are the bound at nominal rates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import DomainError
from ..quantities import show_count, show_time
from .canvas import DARK, LIGHT, Ruler, Theme, decades, steady
from .comparison import heading
from .panels import NARROW, Entry, new_page, plain_ticks, round_steps, thinned, titled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..planner.comparing import CompareResult
    from .panels import Page

DEFAULT_WIDTH = 1200
_ROW, _AROUND = 34, 190  # pixels of an alternative, and of what stands around
_LONGEST, _LABEL = 190.0, 8.5  # points
_LINE = 12.0  # points of height of a line of a label
_APART = 22.0
_MOST_PANELS = 4
_LOGARITHMIC = 40  # largest over smallest value from which a panel is logarithmic

PANELS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("throughput.output_tokens_per_s_per_device", "output tokens/s per device", lambda x: f"{x:,.4g}"),
    ("latency.tpot_s", "TPOT", show_time),
    ("latency.ttft_s", "TTFT", show_time),
    ("cost.usd_per_million_output_tokens", "USD per million tokens", lambda x: f"{x:g}"),
    ("capacity.max_concurrency", "sequences in memory", show_count),
)


def compare_figure(r: CompareResult, *, size: tuple[int, int] | None = None, dark: bool = False) -> Figure:
    """Draw a comparison; :func:`~roofplan.report.canvas.rendered` turns it into a file.

    Parameters
    ----------
    size : width and height in pixels of 1/100 inch; default: 1200, and as high as the alternatives need
    dark : on dark paper

    Raises
    ------
    DomainError : when none of the main figures is known of any alternative
    TooSmallError : for a size without room for a row for each of them
    """
    figures = [one.figures() for one in r.alternatives]
    panels = [panel for panel in PANELS if any(found.get(panel[0]) is not None for found in figures)][:_MOST_PANELS]
    if not panels:
        raise DomainError("figure", got="no figures", wanted="an alternative that fits")
    size = size or (DEFAULT_WIDTH, _AROUND + _ROW * (len(r.alternatives) + 1))
    panels = panels[:2] if size[0] < NARROW else panels
    theme = DARK if dark else LIGHT
    with steady():
        ruler = Ruler()
        labels = [ruler.wrapped(_breakable(ruler.drawable(label)), _LONGEST, _LABEL, 2) for label in r.labels]
        left = max(ruler.extent(line, _LABEL)[0] for label in labels for line in label) + 22
        page = new_page(
            heading(r),
            "",
            list(_key(r, theme)),
            [title for _, title, _ in panels],
            size,
            theme,
            left=left,
            apart=_APART,
            stacked=False,
            lowest=len(labels) * _LINE * max(map(len, labels)),
        )
        for number, (name, _, shown) in enumerate(panels):
            _panel(page, number, r, [found.get(name) for found in figures], shown, theme)
            titled(page.panels[number], page.titles[number], theme)
        plain_ticks(page.panels[0], "y", range(len(labels)), lambda place: "\n".join(labels[round(place)]))
        page.panels[0].tick_params(axis="y", labelsize=_LABEL)
    return page.figure


def _breakable(label: str) -> str:
    """A label whose parts are words, so that it is wrapped between them."""
    return label.replace(",", ", ").replace(",  ", ", ")


def _panel(
    page: Page, number: int, r: CompareResult, values: list[Any], shown: Callable[[float], str], theme: Theme
) -> None:
    axes = page.panels[number]
    drawn: list[float] = []
    for place, (one, value) in enumerate(zip(r.alternatives, values, strict=True)):
        if value is None:
            said = "does not fit" if not one.result.fits else "not known"
            axes.text(
                0.03,
                place,
                said,
                transform=axes.get_yaxis_transform(),
                fontsize=8,
                color=theme.faint,
                va="center",
                bbox={"facecolor": theme.paper, "edgecolor": "none", "pad": 1},
            )
            continue
        colour, expected = theme.series[number % len(theme.series)], value
        if isinstance(value, dict):
            expected = value["expected"]
            axes.hlines([place], [value["low"]], [value["high"]], color=colour, linewidth=4, alpha=0.4, zorder=2)
            axes.scatter([value["bound"]], [place], s=60, marker="|", color=theme.faint, linewidths=1.4, zorder=2)
            drawn += value.values()
        face = colour if one.result.fits else theme.paper
        axes.scatter(
            [expected], [place], s=30, marker="o", facecolors=face, edgecolors=colour, zorder=3, label=one.label
        )
        drawn.append(expected)
    _prepare(page, axes, len(r.alternatives), drawn, shown)


def _prepare(page: Page, axes: Axes, count: int, drawn: list[float], shown: Callable[[float], str]) -> None:
    """Growing to the right, from zero unless the values span much; the first alternative on top."""
    low, high = min(drawn), max(drawn) or 1.0
    if low > 0 and high > _LOGARITHMIC * low:
        low, high = low / 1.3, high * 1.3
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        ticks = [tick for tick in decades(low / 10, high) if low <= tick <= high]
    else:
        high *= 1.06
        axes.set_xlim(0, high)
        ticks = round_steps(0, high)
    axes.set_ylim(count - 0.4, -0.6)

    def printed(value: float) -> str:
        return shown(value) if value else "0"

    widest = max(page.ruler.extent(printed(tick), 9)[0] for tick in ticks)
    kept = thinned(ticks, float(axes.bbox.width), widest)
    # Where there is room for one tick alone, the last one tells the scale, and zero does not.
    plain_ticks(axes, "x", kept if len(kept) > 1 else ticks[-1:], printed)
    plain_ticks(axes, "y", [], lambda _: "")
    axes.tick_params(axis="y", length=0)


def _key(r: CompareResult, theme: Theme) -> Iterator[Entry]:
    from matplotlib.lines import Line2D

    def sample(**style: Any) -> Line2D:
        return Line2D([], [], **style)

    point: dict[str, Any] = {"marker": "o", "linestyle": "None", "markersize": 5.5, "markeredgecolor": theme.ink}
    yield Entry(sample(markerfacecolor=theme.ink, **point), "expected")
    if any(not one.result.fits for one in r.alternatives):
        yield Entry(sample(markerfacecolor=theme.paper, **point), "does not fit")
    yield Entry(sample(color=theme.ink, linewidth=4, alpha=0.4), "80 % of cases")
    roof = sample(marker="|", linestyle="None", markersize=8, color=theme.faint)
    yield Entry(roof, "roof: the bound at nominal rates")
