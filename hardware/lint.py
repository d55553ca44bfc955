"""Rules that a schema cannot say: whether a device's spec agrees with itself and names its sources."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING

from ..specfiles import Finding, read_document, spelled
from . import CATALOGUE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .spec import HardwareSpec

_TOLERANCE = 0.02
# How much faster a narrow type may be than 16 bits (or 32, where those are faster), unless the chip family has other ratios.
_NARROW = {"fp8": 2.0, "int8": 2.0, "fp4": 4.0, "int4": 4.0}
_RATIO_TOLERANCE = 0.025
# FLOP per byte and bytes per second beyond which a bandwidth is mistyped; the catalogue has 15 to 960 FLOP/B.
_RIDGE = (1.0, 1500.0)
_BANDWIDTH = (1e9, 100e12)


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
    """Peak = units x rate x clock within 2 %; a part that is capped by licence or power may have less, but not more."""
    units = spec.units
    if units.family and units.family not in unit_rates():
        yield f"units.family {units.family} is none of {', '.join(unit_rates())}"
        return
    if not (units.count and units.clock):
        return
    for arithmetic, rate in _family_rates(spec).items():
        peak, expected = spec.peak.rate(arithmetic), units.count * rate * units.clock
        if peak is None:
            continue
        excess = peak / expected - 1
        if excess > _TOLERANCE or (excess < -_TOLERANCE and not units.capped):
            yield f"peak.{arithmetic} is {peak / 1e12:g} TFLOP/s; units x rate x clock gives {expected / 1e12:.1f} (sparse, or capped?)"


def _family_rates(spec: HardwareSpec) -> dict[str, float]:
    return unit_rates().get(spec.units.family, {})


def _is_measured(spec: HardwareSpec) -> bool:
    """Whether its rates were measured: they are what a library reaches with each type, and no headline of a data sheet."""
    evidence = spec.evidence_of("peak")
    return evidence is not None and evidence.kind == "measured"


def _wide_rate(rate: Callable[[str], float | None]) -> float:
    """The rate that narrow types are compared with: 16 bits, or 32 where 16 are slower (P40)."""
    return max(rate("bf16") or rate("fp16") or 0.0, rate("fp32") or 0.0)


def _sparse_headline(spec: HardwareSpec) -> Iterator[str]:
    """A narrow type that is faster than its width allows has the sparse rate; the family's ratios count, if it has them."""
    if _is_measured(spec):
        return
    rates, wide, units = _family_rates(spec), _wide_rate(spec.peak.rate), spec.units
    by_formula = units.count and units.clock and not units.capped
    for name, usual in _NARROW.items():
        narrow = spec.peak.rate(name)
        if not narrow or not wide or (by_formula and name in rates):
            continue
        limit = rates[name] / _wide_rate(rates.get) if name in rates else usual
        if narrow / wide > limit * (1 + _RATIO_TOLERANCE):
            yield f"peak.{name} is {narrow / wide:.2f} times the next wider rate, {limit:g} is usual: a sparse headline?"


def _rates_apart(spec: HardwareSpec) -> Iterator[str]:
    """The two 16-bit types lie within a factor of two of each other, unless the family has another ratio."""
    rates, fp16, bf16 = _family_rates(spec), spec.peak.fp16, spec.peak.bf16
    if not fp16 or not bf16 or _is_measured(spec):
        return
    ratio, limit = max(fp16 / bf16, bf16 / fp16), 2.0
    if "fp16" in rates and "bf16" in rates:
        limit = max(limit, rates["fp16"] / rates["bf16"], rates["bf16"] / rates["fp16"])
    if ratio > limit * (1 + _RATIO_TOLERANCE):
        yield f"peak.fp16 and peak.bf16 are {ratio:.2f} times apart; at most {limit:g} is usual"


def _bandwidth_off_bus(spec: HardwareSpec) -> Iterator[str]:
    memory = spec.memory
    if memory.bus_bits and memory.data_rate:
        expected = memory.bus_bits / 8 * memory.data_rate
        if abs(memory.bandwidth / expected - 1) > _TOLERANCE:
            yield f"memory.bandwidth is {memory.bandwidth / 1e9:g} GB/s; bus x data rate gives {expected / 1e9:.1f}"


def _implausible_bandwidth(spec: HardwareSpec) -> Iterator[str]:
    bandwidth, wide = spec.memory.bandwidth, _wide_rate(spec.peak.rate)
    if not _BANDWIDTH[0] <= bandwidth <= _BANDWIDTH[1]:
        yield f"memory.bandwidth is {bandwidth / 1e9:g} GB/s; 1 GB/s to 100 TB/s is plausible"
    elif wide and not _RIDGE[0] <= wide / bandwidth <= _RIDGE[1]:
        yield f"memory.bandwidth is {bandwidth / 1e9:g} GB/s: {wide / bandwidth:.3g} FLOP/B, {_RIDGE[0]:g} to {_RIDGE[1]:g} is plausible"


def _capacity_units_mixed(spec: HardwareSpec) -> Iterator[str]:
    """The driver's figure lies between 93 % of the nameplate (ECC takes 1/16 of a binary one) and the binary reading of a decimal one."""
    reported, nameplate = spec.memory.reported, spec.memory.nameplate
    if reported is not None and not 0.93 * nameplate <= reported <= 1.0738 * nameplate:
        wanted = "less" if reported > nameplate else "more"
        yield f"memory.reported is {reported / 2**20:.0f} MiB; a nameplate of {nameplate / 1e9:g} GB wants {wanted}"


def _mesh_without_pair(spec: HardwareSpec) -> Iterator[str]:
    for link in spec.links:
        if link.topology == "mesh" and link.domain > 2 and link.between_pair is None:
            yield f"links: {link.name} is a mesh of {link.domain} devices without between_pair, what two of them have between them"


def _source_empty(spec: HardwareSpec) -> Iterator[str]:
    for evidence in spec.evidence:
        if not evidence.source.strip():
            yield f"the evidence of {', '.join(evidence.figures)} has an empty source"
    for name in ("bandwidth", "compute"):
        band = getattr(spec.achieved, name)
        if band is not None and not band.source.strip():
            yield f"achieved.{name} has an empty source"
    if spec.price is not None and not spec.price.provider.strip():
        yield "price.provider is empty"


def _alias_clash(spec: HardwareSpec) -> Iterator[str]:
    """Every name, in any spelling, leads to one device and is given once."""
    seen: set[str] = set()
    for alias in spec.aliases:
        name = spelled(alias)
        if name in seen:
            yield f"alias {alias} is given twice"
        seen.add(name)
    for name in sorted(seen | {spelled(spec.name)}):
        other = _catalogue_names().get(name, spec.name)
        if other != spec.name:
            yield f"{name} is also a name of {other}"


_catalogue_names = functools.cache(CATALOGUE.names)


def _price_without_date(spec: HardwareSpec) -> Iterator[str]:
    if spec.price is not None and not spec.price.as_of[:4].isdigit():
        yield "price.as_of must begin with a year"


RULES: dict[str, Callable[[HardwareSpec], Iterator[str]]] = {
    "source-missing": _source_missing,
    "peak-off-formula": _peak_off_formula,
    "sparse-headline": _sparse_headline,
    "rates-apart": _rates_apart,
    "implausible-bandwidth": _implausible_bandwidth,
    "bandwidth-off-bus": _bandwidth_off_bus,
    "capacity-units-mixed": _capacity_units_mixed,
    "price-without-date": _price_without_date,
    "source-empty": _source_empty,
    "mesh-without-pair": _mesh_without_pair,
    "alias-clash": _alias_clash,
}
