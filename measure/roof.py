"""A roof as three plain rates, from a data sheet or from what was measured, and the least time of work under it.

The same two lines give both predictions that stand beside a measurement, so that they differ in nothing but their rates.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..hardware.spec import ARITHMETIC_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..hardware import HardwareSpec
    from .records import Record

BEYOND = 4  # a working set of so many caches is read from memory: of the caches' usual replacement rules nearly nothing survives a pass


@dataclass(frozen=True, slots=True)
class Roof:
    """Rates of one device.

    Parameters
    ----------
    bytes_per_s : of reading memory; None where it is not known
    flop_per_s : by arithmetic type (``bf16``)
    cache_bytes : of the last cache; work on fewer bytes is not bound by memory
    host_bytes_per_s : of the link to the host, in one direction
    """

    bytes_per_s: float | None
    flop_per_s: dict[str, float] = field(default_factory=dict)
    cache_bytes: int = 0
    host_bytes_per_s: float | None = None

    def seconds(self, moved_bytes: float, flop: float = 0.0, arithmetic: str = "") -> float | None:
        """The least time of work, max(bytes / W, FLOP / F) in seconds (formula F1.3); None where a rate of it is unknown."""
        if self.bytes_per_s is None:
            return None
        if not flop:
            return moved_bytes / self.bytes_per_s
        rate = self.flop_per_s.get(arithmetic)
        return None if rate is None else max(moved_bytes / self.bytes_per_s, flop / rate)


NO_ROOF = Roof(None)


def datasheet_roof(hardware: HardwareSpec | None, cache_bytes: int) -> Roof:
    """The nominal rates of a device; a roof without rates for one that no catalogue has."""
    if hardware is None:
        return replace(NO_ROOF, cache_bytes=cache_bytes)
    rates = {name: hardware.peak.rate(name) for name in ARITHMETIC_TYPES}
    host = [link.per_direction for link in hardware.links if link.topology == "host"]
    return Roof(
        hardware.memory.bandwidth,
        {name: rate for name, rate in rates.items() if rate is not None},
        cache_bytes,
        max(host, default=None),
    )


def measured_roof(records: Sequence[Record], cache_bytes: int) -> Roof:
    """The best rates of measured ceilings.

    Memory: the best streaming read of a working set of at least four last caches (of the largest one, where none was so large);
    arithmetic: the best product of each type, whatever its rows.
    """
    reads = [record for record in records if record.name == "stream.read" and not record.parameters.get("cold")]
    most = max((size_of(record) for record in reads), default=0)
    large = [record for record in reads if size_of(record) >= min(BEYOND * cache_bytes, most)]
    rates: dict[str, float] = {}
    for record in records:
        if record.name.startswith("gemm.") and record.flop_per_s is not None:
            name = str(record.parameters["arithmetic"])
            rates[name] = max(rates.get(name, 0.0), record.flop_per_s)
    return Roof(
        best(large),
        rates,
        cache_bytes,
        best(record for record in records if record.name == "transfer.host_to_device"),
    )


def cache_bytes_per_s(records: Iterable[Record], cache_bytes: int) -> float | None:
    """The rate of reading the last cache: the best streaming read of a working set between a quarter and a half of it; None without one."""
    return best(
        record
        for record in records
        if record.name == "stream.read"
        and not record.parameters.get("cold")
        and cache_bytes / 4 <= size_of(record) <= cache_bytes / 2
    )


def beside(records: Iterable[Record], roof: Roof) -> list[Record]:
    """The records with what a measured roof predicts for them.

    Work within the cache has no prediction: the roof of memory does not hold for it. Nor have launches, which do no work.
    """
    return [replace(record, predicted_measured=_predicted(record, roof)) for record in records]


def _predicted(record: Record, roof: Roof) -> float | None:
    moved, kind = record.parameters.get("bytes", 0), record.name.partition(".")[0]
    if kind == "stream":
        return of_memory(roof, moved, cold=bool(record.parameters.get("cold")))
    if kind in {"gemm", "attention"}:
        return roof.seconds(moved, record.parameters["flop"], record.parameters["arithmetic"])
    if record.name == "transfer.host_to_device" and roof.host_bytes_per_s:
        return float(moved) / roof.host_bytes_per_s
    return record.predicted_measured


def of_memory(roof: Roof, moved_bytes: float, *, cold: bool = False) -> float | None:
    """The least time of streaming through memory; None for what a cache may hold."""
    return roof.seconds(moved_bytes) if cold or moved_bytes >= BEYOND * roof.cache_bytes else None


def size_of(record: Record) -> float:
    """Bytes of the working set of a streaming record."""
    return float(record.parameters["bytes"])


def best(records: Iterable[Record]) -> float | None:
    """The highest rate of bytes among records; None without one."""
    return max((rate for record in records if (rate := record.bytes_per_s) is not None), default=None)
