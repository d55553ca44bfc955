"""Drawings: plain rows in, a file out. The same rows give the same bytes, whatever the user's settings of matplotlib."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from .canvas import SETTINGS as STEADY
from .canvas import Ruler, new_figure, rendered, steady
from .labels import Box, Label, place_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

GIB, GB = 2**30, 10**9

# Colours of Okabe and Ito (2008), told apart with every common kind of colour blindness; the markers differ too.
LOOKS = (
    ("#009E73", "o"),
    ("#D55E00", "s"),
    ("#0072B2", "^"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
    ("#000000", "X"),
    ("#8A7A00", "*"),
    ("#777777", "p"),
    ("#882255", "<"),
)
# For drawings whose ticks are powers of ten in matplotlib's own notation, which needs its mathematics.
SETTINGS = {key: value for key, value in STEADY.items() if not key.startswith("text.")}
_LABEL_SIZE = 6.5
_MARKER_RADIUS = 2.6  # points


class DevicePoint(NamedTuple):
    """One device of the scatter figure."""

    label: str
    vendor: str
    memory_bytes: int
    bandwidth_bytes_per_s: float


def devices_figure(path: Path, devices: Iterable[DevicePoint]) -> None:
    """Draw memory against bandwidth, both logarithmic, one point a device, coloured by vendor, as SVG.

    A label is drawn where it touches no point and no other label and is nearest to its own point; points that stand alone are served
    first. Vendors are listed by the number of their devices.
    """
    points = sorted(devices)
    with steady():
        figure = new_figure((1000, 700))
        axes = figure.add_axes((0.08, 0.08, 0.9, 0.87))
        _prepare(axes, points)
        vendors = [point.vendor for point in points]
        for (colour, marker), vendor in zip(
            itertools.cycle(LOOKS), sorted(set(vendors), key=lambda name: (-vendors.count(name), name)), strict=False
        ):
            own = [point for point in points if point.vendor == vendor]
            axes.scatter(
                [point.memory_bytes / GIB for point in own],
                [point.bandwidth_bytes_per_s / GB for point in own],
                s=22,
                c=colour,
                marker=marker,
                linewidths=0.4,
                edgecolors="white",
                label=f"{vendor} ({len(own)})",
                zorder=3,
            )
        axes.legend(loc="upper left", title="vendor (devices)", frameon=True, framealpha=1)
        _label(axes, points)
    path.write_bytes(rendered(figure, "svg"))


def _prepare(axes: Axes, points: Sequence[DevicePoint]) -> None:
    """Axes with their units, round ticks, and room around the points."""
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="memory as the driver reports it, else as advertised (GiB)",
        ylabel="memory bandwidth (GB/s)",
        title="Devices of the catalogue: how much they hold, and how fast they read it",
    )
    memory = [point.memory_bytes / GIB for point in points]
    bandwidth = [point.bandwidth_bytes_per_s / GB for point in points]
    axes.set_xlim(min(memory) / 1.2, max(memory) * 1.35)
    axes.set_ylim(min(bandwidth) / 1.3, max(bandwidth) * 1.3)
    powers = [2.0**power for power in range(20)]
    decades = [step * 10.0**power for power in range(7) for step in (1, 2, 5)]
    axes.set_xticks([tick for tick in powers if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]])
    axes.set_yticks([tick for tick in decades if axes.get_ylim()[0] <= tick <= axes.get_ylim()[1]])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axis.set_minor_locator(_no_ticks())
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.5, zorder=0)


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    make: Callable[[], Any] = NullLocator
    return make()


def _label(axes: Axes, points: Sequence[DevicePoint]) -> None:
    """Labels next to the markers; those of points that stand alone come first."""
    ruler, radius = Ruler(), _MARKER_RADIUS
    placed = [axes.transData.transform((p.memory_bytes / GIB, p.bandwidth_bytes_per_s / GB)) for p in points]
    places = [(float(x), float(y)) for x, y in placed]
    frame = Box(*axes.bbox.extents)
    width, height = frame.right - frame.left, frame.top - frame.bottom
    taken = [Box(x - radius, y - radius, x + radius, y + radius) for x, y in places]
    taken.append(Box(frame.left, frame.top - 0.3 * height, frame.left + 0.18 * width, frame.top))  # the legend

    def alone(position: int) -> tuple[float, str]:
        x, y = places[position]
        nearest = min((abs(x - a) + abs(y - b) for a, b in places if (a, b) != (x, y)), default=0.0)
        return -nearest, points[position].label

    order = sorted(range(len(points)), key=alone)
    sizes = [ruler.extent(points[one].label, _LABEL_SIZE) for one in order]
    labels = [Label(*places[one], wide, high, radius) for one, (wide, high) in zip(order, sizes, strict=True)]
    for one, place in zip(order, place_labels(labels, frame, taken, (), places), strict=True):
        if place is not None:
            axes.annotate(
                points[one].label,
                (place.left - frame.left, place.bottom - frame.bottom),
                xycoords="axes points",
                fontsize=_LABEL_SIZE,
                color="#333333",
                va="bottom",
                ha="left",
                zorder=4,
            )
