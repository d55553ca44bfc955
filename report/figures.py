"""Drawings: plain rows in, a file out. The same rows give the same bytes, whatever the user's settings of matplotlib."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

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
)
SETTINGS = {
    "svg.hashsalt": "roofplan",  # element names would be random otherwise
    "svg.fonttype": "path",
    "font.family": ["DejaVu Sans"],  # comes with matplotlib
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_LABEL_SIZE = 6.5
_MARKER_RADIUS = 2.6  # points
_GAP = 1.5  # points between a marker and its label
_ROOM = 1.4  # points left and right of a label, less than the gap


class DevicePoint(NamedTuple):
    """One device of the scatter figure."""

    label: str
    vendor: str
    memory_bytes: int
    bandwidth_bytes_per_s: float


def devices_figure(path: Path, devices: Iterable[DevicePoint]) -> None:
    """Draw memory against bandwidth, both logarithmic, one point a device, coloured by vendor, as SVG.

    A label is drawn where it touches no point and no other label and is nearest to its own point; points that stand alone are served
    first. Vendors are listed by the
    number of their devices.
    """
    from matplotlib import style
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    points = sorted(devices)
    settings: Any = ["default", SETTINGS]
    with style.context(settings):
        figure = Figure(figsize=(10, 7), dpi=72)  # a pixel of the layout is a point
        FigureCanvasSVG(figure)
        axes = figure.add_axes((0.08, 0.08, 0.9, 0.87))
        _prepare(axes, points)
        vendors = [point.vendor for point in points]
        for (colour, marker), vendor in zip(
            LOOKS, sorted(set(vendors), key=lambda name: (-vendors.count(name), name)), strict=False
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
        _place_labels(axes, points)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


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


class _Box(NamedTuple):
    """A rectangle in points."""

    left: float
    bottom: float
    right: float
    top: float

    def touches(self, other: _Box) -> bool:
        """Whether two rectangles overlap."""
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )

    def inside(self, other: _Box) -> bool:
        """Whether it lies wholly in another one."""
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.bottom <= self.bottom
            and self.top <= other.top
        )

    def distance(self, x: float, y: float) -> float:
        """Distance of a point from it."""
        return math.hypot(max(self.left - x, 0, x - self.right), max(self.bottom - y, 0, y - self.top))


def _place_labels(axes: Axes, points: Sequence[DevicePoint]) -> None:
    places = [
        tuple(axes.transData.transform((point.memory_bytes / GIB, point.bandwidth_bytes_per_s / GB)))
        for point in points
    ]
    radius = _MARKER_RADIUS
    taken = [_Box(x - radius, y - radius, x + radius, y + radius) for x, y in places]
    frame = _Box(*axes.bbox.extents)
    width, height = frame.right - frame.left, frame.top - frame.bottom
    taken.append(_Box(frame.left, frame.top - 0.3 * height, frame.left + 0.18 * width, frame.top))  # the legend

    def alone(position: int) -> tuple[float, str]:
        x, y = places[position]
        nearest = min((abs(x - a) + abs(y - b) for a, b in places if (a, b) != (x, y)), default=0.0)
        return -nearest, points[position].label

    for position in sorted(range(len(points)), key=alone):
        text, (x, y) = points[position].label, places[position]
        wide, high = _extent(text)
        out, middle = radius + _GAP, high / 2
        corners = (
            (x + out, y - middle),
            (x - out - wide, y - middle),
            (x - wide / 2, y + out),
            (x - wide / 2, y - out - high),
            (x + _GAP, y + out),
            (x + _GAP, y - out - high),
            (x - _GAP - wide, y + out),
            (x - _GAP - wide, y - out - high),
        )
        for left, bottom in corners:
            box = _Box(left - _ROOM, bottom, left + wide + _ROOM, bottom + high)
            is_free = box.inside(frame) and not any(box.touches(other) for other in taken)
            if is_free and box.distance(x, y) <= min(box.distance(*place) for place in places):
                taken.append(box)
                axes.annotate(
                    text,
                    (left - frame.left, bottom - frame.bottom),
                    xycoords="axes points",
                    fontsize=_LABEL_SIZE,
                    color="#333333",
                    va="bottom",
                    ha="left",
                    zorder=4,
                )
                break


def _extent(text: str) -> tuple[float, float]:
    """Width and height of a label in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    path = TextPath((0, 0), text, size=_LABEL_SIZE, prop=FontProperties(family="DejaVu Sans"))
    return float(path.get_extents().width) + 1, _LABEL_SIZE * 1.1
