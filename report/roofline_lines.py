"""What is drawn of a roofline, in a figure or a terminal: the lines of its roofs, each once, and the range of the axes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ..quantities import show_bandwidth, show_compute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..planner.roofline_answer import RooflineResult
    from ..planner.roofline_points import Series

_ROOM_BELOW, _ROOM_ABOVE, _ROOM_ASIDE = 3.0, 3.0, 2.5  # factors around what is drawn

Range = tuple[float, float]


@dataclass
class RoofLine:
    """One line: a slope (``rate`` is where it ends), or a flat part from its ridge on; of one or several series.

    ``names`` are what carries the bytes, or the arithmetic types that share the rate.
    """

    kind: Literal["slope", "flat", "further"]
    bandwidth: float
    rate: float
    calibrated: bool
    names: list[str] = field(default_factory=list)
    series: list[int] = field(default_factory=list)

    @property
    def ridge(self) -> float:
        """Intensity at which it ends or begins."""
        return self.rate / self.bandwidth

    @property
    def label(self) -> str:
        """Its name and number."""
        number = show_compute(self.rate) if self.kind == "flat" else show_bandwidth(self.bandwidth)
        return f"{number} as reached" if self.calibrated else f"{', '.join(self.names)} {number}"

    def ends(self, across: Range, up: Range) -> tuple[Range, Range] | None:
        """Both ends within the axes, as (x, x) and (y, y); None where it lies outside."""
        if self.kind == "flat":
            xs, ys = (max(self.ridge, across[0]), across[1]), (self.rate, self.rate)
        else:
            begin, end = max(across[0], up[0] / self.bandwidth), min(across[1], self.ridge)
            xs, ys = (begin, end), (begin * self.bandwidth, end * self.bandwidth)
        return (xs, ys) if xs[0] < xs[1] else None


def roof_lines(r: RooflineResult) -> list[RoofLine]:
    """All lines of the roofs of a result: those that several series share are one."""
    return _joined((number, line) for number, one in enumerate(r.series) for line in _each_line(r, one))


def lines_of(r: RooflineResult, one: Series) -> list[RoofLine]:
    """The lines of one roof: arithmetic types with the same rate share one."""
    return _joined((0, line) for line in _each_line(r, one))


def _joined(every: Iterable[tuple[int, RoofLine]]) -> list[RoofLine]:
    lines: dict[tuple[object, ...], RoofLine] = {}
    for number, line in every:
        end = line.rate if line.kind == "flat" else None
        known = lines.setdefault((line.kind, line.calibrated, line.bandwidth, end), line)
        known.rate = max(known.rate, line.rate)
        known.names += [name for name in line.names if name not in known.names]
        known.series += [number] if number not in known.series else []
    return list(lines.values())


def _each_line(r: RooflineResult, one: Series) -> Iterator[RoofLine]:
    drawn, memory = r.drawn(one), one.roof.memory
    for calibrated in (False, True):
        bandwidth = memory.calibrated if calibrated else memory.nominal
        rates = [(ceiling.name, ceiling.calibrated if calibrated else ceiling.nominal) for ceiling in drawn]
        known = [(name, rate) for name, rate in rates if rate is not None]
        if bandwidth is not None and known:
            yield RoofLine("slope", bandwidth, max(rate for _, rate in known), calibrated, [memory.name])
            yield from (RoofLine("flat", bandwidth, rate, calibrated, [name]) for name, rate in known)
    for ceiling in one.roof.further:
        yield RoofLine("further", ceiling.nominal, max(c.nominal for c in drawn), False, [ceiling.name])


def roof_summary(r: RooflineResult, one: Series, *, calibrated: bool) -> str:
    """A roof in one line: its bandwidth, its rates, its ridges."""
    lines = [line for line in lines_of(r, one) if line.calibrated == calibrated and line.kind != "further"]
    said = [show_bandwidth(line.bandwidth) for line in lines if line.kind == "slope"]
    said += [
        f"{', '.join(line.names)} {show_compute(line.rate)} (ridge {line.ridge:,.0f})"
        for line in lines
        if line.kind == "flat"
    ]
    return ", ".join(said)


def limits_of(r: RooflineResult) -> tuple[Range, Range]:
    """Intensities and rates that hold all points and ridges, with room around."""
    places = [(p.intensity, p.flop_per_s) for one in r.series for p in one.operators if p.has_place]
    places += [(s.intensity, s.flop_per_s) for one in r.series for s in (*one.steps, *one.path) if s.flop]
    places += [(p.intensity, p.flop_per_s) for p in r.measured]
    places += [(line.ridge, line.rate) for line in roof_lines(r) if line.kind == "flat"]
    across, up = zip(*places, strict=True)
    return (min(across) / _ROOM_ASIDE, max(across) * _ROOM_ASIDE), (min(up) / _ROOM_BELOW, max(up) * _ROOM_ABOVE)


def show_tick(value: float) -> str:
    """A power of ten as people write it.

    >>> [show_tick(x) for x in (0.01, 1.0, 1000.0, 1e14, 1e16)]
    ['0.01', '1', '1 k', '100 T', '10 P']
    """
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g} {prefix}"
    return f"{value:g}"
