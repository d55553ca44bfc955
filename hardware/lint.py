"""Rules that a schema cannot say: whether a device's spec agrees with itself and names its sources."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING

from ..specfiles import Finding, read_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .spec import HardwareSpec

_TOLERANCE = 0.02
# Rates of neighbouring widths on real parts: the narrower type is as fast, or twice (8-bit on TPU v5p and Gaudi 3; all others).
_RATIOS = (1.0, 2.0)
_RATIO_TOLERANCE = 0.05


@functools.cache
def unit_rates() -> dict[str, dict[str, float]]:
    """FLOP per unit and clock of each chip family, by arithmetic type."""
    rates: dict[str, dict[str, float]] = read_document(Path(__file__).parent / "families.yaml").data
    return rates


def figures_of(spec: HardwareSpec) -> Iterator[str]:
    """List the keys of all figures that a spec states."""
    for group in ("memory", "peak", "units"):
        part = getattr(spec, group)
        numbers = (f.name for f in dataclasses.fields(part) if isinstance(getattr(part, f.name), (int, float)))
        yield from (f"{group}.{name}" for name in numbers if not isinstance(getattr(part, name), bool))
    yield from (name for name in ("links", "power", "price") if getattr(spec, name))


def lint_device(spec: HardwareSpec) -> list[Finding]:
    """Apply all rules to one device."""
    return [Finding(name, spec.name, message) for name, rule in RULES.items() for message in rule(spec)]


def _source_missing(spec: HardwareSpec) -> Iterator[str]:
    for figure in figures_of(spec):
        if spec.evidence_of(figure) is None:
            yield f"{figure} has no evidence entry"


def _peak_off_formula(spec: HardwareSpec) -> Iterator[str]:
    """Peak = units x rate x clock within 2 %, unless the part is capped by licence or power."""
    units = spec.units
    if units.family and units.family not in unit_rates():
        yield f"units.family {units.family} is none of {', '.join(unit_rates())}"
        return
    if units.capped or not (units.family and units.count and units.clock):
        return
    for arithmetic, rate in unit_rates()[units.family].items():
        peak, expected = spec.peak.rate(arithmetic), units.count * rate * units.clock
        if peak is not None and abs(peak / expected - 1) > _TOLERANCE:
            yield f"peak.{arithmetic} is {peak / 1e12:g} TFLOP/s; units x rate x clock gives {expected / 1e12:.1f} (sparse, or capped?)"


def _sparse_headline(spec: HardwareSpec) -> Iterator[str]:
    """A rate four times that of the next wider type is the sparse one."""
    sixteen = spec.peak.bf16 or spec.peak.fp16
    wide = max(sixteen or 0.0, spec.peak.fp32 or 0.0)  # some parts run 16 bits far below 32 (P40)
    for name in ("fp8", "int8"):
        narrow = spec.peak.rate(name)
        if narrow and wide and narrow / wide > 4 * (1 + _RATIO_TOLERANCE):
            yield f"peak.{name} is {narrow / wide:.2f} times the next wider rate: a sparse headline?"
    if (
        spec.peak.fp8
        and sixteen
        and not any(abs(spec.peak.fp8 / sixteen / ratio - 1) < _RATIO_TOLERANCE for ratio in (*_RATIOS, 3.75))
    ):
        yield f"peak.fp8 is {spec.peak.fp8 / sixteen:.2f} times the 16-bit rate; 1 or 2 is usual"


def _bandwidth_off_bus(spec: HardwareSpec) -> Iterator[str]:
    memory = spec.memory
    if memory.bus_bits and memory.data_rate:
        expected = memory.bus_bits / 8 * memory.data_rate
        if abs(memory.bandwidth / expected - 1) > _TOLERANCE:
            yield f"memory.bandwidth is {memory.bandwidth / 1e9:g} GB/s; bus x data rate gives {expected / 1e9:.1f}"


def _capacity_units_mixed(spec: HardwareSpec) -> Iterator[str]:
    """The driver's figure lies between 90 % of the decimal reading of the nameplate (ECC) and its binary reading."""
    memory = spec.memory
    if memory.reported is not None and not 0.9 * memory.nameplate <= memory.reported <= memory.nameplate * 1.0738:
        yield f"memory.reported is {memory.reported / 2**20:.0f} MiB; a nameplate of {memory.nameplate / 1e9:g} GB or GiB allows less"


def _price_without_date(spec: HardwareSpec) -> Iterator[str]:
    if spec.price is not None and not spec.price.as_of[:4].isdigit():
        yield "price.as_of must begin with a year"


RULES: dict[str, Callable[[HardwareSpec], Iterator[str]]] = {
    "source-missing": _source_missing,
    "peak-off-formula": _peak_off_formula,
    "sparse-headline": _sparse_headline,
    "bandwidth-off-bus": _bandwidth_off_bus,
    "capacity-units-mixed": _capacity_units_mixed,
    "price-without-date": _price_without_date,
}
