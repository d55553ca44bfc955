"""The measured roofline as a drawing: roofs of the data sheet and as measured, measured work as points; and memory by working set."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

from ..errors import DomainError
from ..quantities import show_bandwidth, show_bytes, show_compute
from .canvas import DARK, LIGHT, Theme, decades, steady
from .panels import Entry, new_page, plain_ticks, round_steps, titled
from .roofline_lines import show_tick

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..measure.gates import Gate
    from ..measure.records import Record
    from ..measure.results import MeasureResult

DEFAULT_SIZE = (1200, 680)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_SHEET: Any = (0, (5, 2))
_ROOM = 2.5


def measured_figure(r: MeasureResult, *, size: tuple[int, int] = DEFAULT_SIZE, dark: bool = False) -> Figure:
    """Draw a run.

    Parameters
    ----------
    size : width and height in pixels of 1/100 inch
    dark : on dark paper

    Raises
    ------
    DomainError : for a run without rates, of which there is no roof
    """
    memory = next((gate for gate in r.gates if gate.name == "memory"), None)
    work = _work(r.run.records)
    products = [gate for gate in r.gates if gate.name != "memory"]
    if memory is None or not products or not work:
        raise DomainError("figure", got="a run without ceilings", wanted="measured streams and products")
    theme = DARK if dark else LIGHT
    streams = [record for record in r.run.named("stream") if not record.parameters.get("cold") and record.bytes_per_s]
    there = r.run.environment
    with steady():
        title = f"The measured roofline of {there.device}"
        subtitle = f"{there.shown_threads}, torch {there.versions.get('torch', '')}, {r.run.started[:10]}"
        titles = (f"FLOP/s; memory {show_bandwidth(memory.measured)}", "streaming by working set")
        page = new_page(title, subtitle, list(_key(work, streams, products, theme)), titles, size, theme)
        _roofline(page.panels[0], memory, products, work, theme)
        _streams(page.panels[1], streams, memory, there.cache_bytes, theme)
        for axes, text in zip(page.panels, page.titles, strict=True):
            titled(axes, text, theme)
    return page.figure


def _work(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Measured work with bytes and operations, by the name of the record."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.flop_per_s and record.bytes_per_s:
            found.setdefault(record.name, []).append(record)
    return found


def _looks(names: Sequence[str], theme: Theme) -> Iterator[tuple[str, str, str]]:
    """Name, colour and marker."""
    yield from zip(names, cycle(theme.series), cycle(_MARKERS), strict=False)


def _key(
    work: dict[str, list[Record]], streams: Sequence[Record], products: Sequence[Gate], theme: Theme
) -> Iterator[Entry]:
    from matplotlib.lines import Line2D

    for name, colour, marker in _looks(list(work), theme):
        yield Entry(Line2D([], [], color=colour, marker=marker, linestyle="None", markersize=5), name.replace("_", " "))
    yield Entry(Line2D([], [], color=theme.ink, linewidth=1.6), "roof as measured")
    if any(gate.peak for gate in products):
        yield Entry(Line2D([], [], color=theme.faint, linestyle=_SHEET), "roof of the data sheet")
    for name, colour, marker in _looks(_stream_names(streams), theme):
        yield Entry(Line2D([], [], color=colour, marker=marker, markersize=4), name.replace(".", " "))


def _stream_names(streams: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(record.name for record in streams))


def _roofline(axes: Axes, memory: Gate, products: Sequence[Gate], work: dict[str, list[Record]], theme: Theme) -> None:
    points = [
        (float(r.parameters["flop"]) / float(r.parameters["bytes"]), r.flop_per_s or 0.0)
        for records in work.values()
        for r in records
    ]
    ridges = [gate.measured / memory.measured for gate in products]
    across = (min(x for x, _ in points) / _ROOM, max([*(x for x, _ in points), *ridges]) * _ROOM)
    tops = [rate for gate in products for rate in (gate.measured, gate.peak) if rate]
    up = (min(y for _, y in points) / _ROOM, max(tops) * _ROOM)
    axes.set(xscale="log", yscale="log", xlim=across, ylim=up)
    for gate in products:
        _roof(axes, memory.measured, gate.measured, across, {"color": theme.ink, "linewidth": 1.6})
        label = f"{gate.name} {show_compute(gate.measured)}"
        place = (across[1] / 1.08, gate.measured * 1.06)
        axes.text(*place, label, fontsize=8, color=theme.ink, ha="right", va="bottom")
        if gate.peak and memory.peak:
            look: dict[str, Any] = {"color": theme.faint, "linewidth": 1.2, "linestyle": _SHEET}
            _roof(axes, memory.peak, gate.peak, across, look)
    for name, colour, marker in _looks(list(work), theme):
        xs = [float(r.parameters["flop"]) / float(r.parameters["bytes"]) for r in work[name]]
        ys = [r.flop_per_s or 0.0 for r in work[name]]
        axes.plot(xs, ys, color=colour, marker=marker, linestyle="None", markersize=5, alpha=0.85, label=name)
    for which, low, high in (("x", *across), ("y", *up)):
        plain_ticks(axes, which, decades(low, high), show_tick)
    axes.set_xlabel("FLOP per byte", color=theme.ink)


def _roof(axes: Axes, bandwidth: float, rate: float, across: tuple[float, float], look: dict[str, Any]) -> None:
    ridge = rate / bandwidth
    xs = [across[0], min(max(ridge, across[0]), across[1]), across[1]]
    axes.plot(xs, [min(rate, bandwidth * x) for x in xs], zorder=1, **look)


def _streams(axes: Axes, streams: Sequence[Record], memory: Gate, cache_bytes: int, theme: Theme) -> None:
    axes.set_xscale("log", base=2)
    sizes: set[float] = set()
    for name, colour, marker in _looks(_stream_names(streams), theme):
        own = sorted((float(r.parameters["bytes"]), r.bytes_per_s or 0.0) for r in streams if r.name == name)
        sizes.update(size for size, _ in own)
        axes.plot(*zip(*own, strict=True), color=colour, marker=marker, markersize=4, linewidth=1.2, label=name)
    rates = [record.bytes_per_s or 0.0 for record in streams]
    top = max([*rates, memory.peak or 0.0]) * 1.1
    axes.set_ylim(0, top)
    if memory.peak:
        axes.axhline(memory.peak, color=theme.faint, linestyle=_SHEET, linewidth=1.2)
    low, high = min(sizes) / 1.5, max(sizes) * 1.5
    axes.set_xlim(low, high)
    if low < cache_bytes < high:
        axes.axvline(cache_bytes, color=theme.faint, linewidth=1, linestyle=":")
        axes.text(cache_bytes * 1.1, top * 0.97, "last cache", fontsize=8, color=theme.faint, va="top")
    marks = [2.0**power for power in range(10, 41, 4) if low <= 2.0**power <= high]
    plain_ticks(axes, "x", marks, lambda size: show_bytes(size, 2))
    plain_ticks(axes, "y", round_steps(0, top), show_bandwidth)
    axes.set_xlabel("bytes of the working set", color=theme.ink)
