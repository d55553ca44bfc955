"""Gates that every measured rate passes: fitted <= measured <= peak; and the likely cause where a rate is above, or far below.

A rate above its data sheet is no gain: a cache answered instead of memory, or a clock above the one that the sheet counts with. A rate far
below has a cause in the machine's state more often than in the code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..planner.results import Notice
from ..quantities import BANDWIDTH, COMPUTE, parse, show_bandwidth, show_compute
from .measured_kernels import streaming_rates
from .roof import BEYOND, measured_roof

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..hardware import HardwareSpec
    from .environment import Environment
    from .records import Run

ABOVE = 1.02  # of the nominal rate: data sheets round
FAR_BELOW = {
    "bytes": 0.6,
    "flop": 0.4,
}  # of the nominal rate: less than nearly every device of the catalogue's kernels reaches
_SLOW_CLOCK = 0.9


@dataclass(frozen=True, slots=True)
class Gate:
    """One rate: what was fitted, what was measured, and the nominal one (None where there is no data sheet).

    Parameters
    ----------
    name : ``memory``, or an arithmetic type
    unit : ``B/s`` or ``FLOP/s``
    """

    name: str
    unit: str
    fitted: float
    measured: float
    peak: float | None

    @property
    def holds(self) -> bool:
        """Whether fitted <= measured <= peak, within the rounding of data sheets."""
        return self.fitted <= self.measured * ABOVE and (self.peak is None or self.measured <= self.peak * ABOVE)

    @property
    def share(self) -> float | None:
        """Measured over nominal."""
        return self.measured / self.peak if self.peak else None


def gates_of(run: Run, base: HardwareSpec | None, device: dict[str, Any] | None = None) -> tuple[Gate, ...]:
    """The gates of a run's ceilings.

    Parameters
    ----------
    base : the catalogue's device, or None
    device : the overlay that was fitted to the run, if any; measured rates stand for fitted ones without it
    """
    roof = measured_roof(run.records, run.environment.cache_bytes)
    found = []
    if roof.bytes_per_s is not None:
        peak = base.memory.bandwidth if base is not None else None
        fitted = _fitted(device, "elementwise", "") or roof.bytes_per_s
        streamed = streaming_rates(run, BEYOND * run.environment.cache_bytes).values()
        found.append(Gate("memory", "B/s", fitted, max([roof.bytes_per_s, *streamed]), peak))
    for name, rate in sorted(roof.flop_per_s.items()):
        nominal = base.peak.rate(name) if base is not None else None
        found.append(Gate(name, "FLOP/s", _fitted(device, "gemm", name) or rate, rate, nominal))
    return tuple(found)


def _fitted(device: dict[str, Any] | None, kernel: str, arithmetic: str) -> float | None:
    """The rate that an overlay says of memory (copies), or of products of a type."""
    if device is None:
        return None
    kernels = device["achieved"]["kernels"]
    if kernel == "elementwise":
        share = kernels.get("elementwise", {}).get("bandwidth")
        return None if share is None else share * parse(device["memory"]["bandwidth"], BANDWIDTH)
    share = next((entry["compute"] for entry in kernels.get("gemm", []) if arithmetic in entry["arithmetic"]), None)
    peak = device["peak"].get(arithmetic)
    return None if share is None or peak is None else share * parse(peak, COMPUTE)


def warnings_of(gates: tuple[Gate, ...], environment: Environment) -> tuple[Notice, ...]:
    """What the gates say: one notice for each rate that is above, far below, or fitted above what was measured."""
    return tuple(notice for gate in gates for notice in _warnings(gate, environment))


def _warnings(gate: Gate, environment: Environment) -> Iterator[Notice]:
    shown, measured = show_bandwidth if gate.unit == "B/s" else show_compute, gate.measured
    what = "memory" if gate.name == "memory" else f"{gate.name} products"
    if gate.fitted > measured * ABOVE:
        yield Notice(
            "fitted_above_measured",
            f"{what}: {shown(gate.fitted)} were fitted, but no call reached more than {shown(measured)}: samples are disturbed",
        )
    if gate.share is None or gate.peak is None:
        return
    if gate.share > ABOVE:
        cause = (
            "a cache answered" if gate.unit == "B/s" else "the clock is above the one that the data sheet counts with"
        )
        yield Notice(
            "above_datasheet",
            f"{what}: {shown(measured)} measured, {shown(gate.peak)} on the data sheet: {cause}, or it is another device",
        )
    elif gate.share < FAR_BELOW["bytes" if gate.unit == "B/s" else "flop"]:
        yield Notice(
            "far_below_datasheet",
            f"{what}: {shown(measured)} measured, {gate.share:.0%} of the data sheet's {shown(gate.peak)};"
            f" likely: {' and '.join(likely_causes(environment, gate.unit))}",
        )


def likely_causes(environment: Environment, unit: str) -> list[str]:
    """Why a rate may be far below its data sheet, from what the environment says; a general word where it says nothing."""
    said, found = environment.nvml, []
    limit, default = said.get("power_limit_w"), said.get("power_default_w")
    if limit and default and limit < default:
        found.append(f"the power cap ({limit:.0f} of {default:.0f} W)")
    name, most = ("clock_hz", "clock_most_hz") if unit == "FLOP/s" else ("memory_clock_hz", "memory_clock_most_hz")
    clock, highest = said.get(name), said.get(most)
    if clock and highest and clock < _SLOW_CLOCK * highest:
        found.append(f"a clock of {clock / 1e6:.0f} of {highest / 1e6:.0f} MHz (the device may idle now)")
    if said.get("ecc") and unit == "B/s":
        found.append("ECC, which takes a part of the bandwidth of GDDR memory")
    if said.get("mig"):
        found.append("MIG: this is a slice of the device")
    if said.get("other_processes"):
        found.append(f"{said['other_processes']} other processes on the device")
    if environment.kind == "cpu":
        found += _causes_on_a_cpu(environment)
    return found or ["other work on the machine, heat, or a library without kernels for this type"]


def _causes_on_a_cpu(environment: Environment) -> Iterator[str]:
    if environment.threads < environment.cores:
        yield f"{environment.threads} threads on {environment.cores} cores"
    if environment.container.get("cpus", environment.threads) < environment.threads:
        yield f"a container with {environment.container['cpus']:g} processors' time"
    if environment.load is not None and environment.load > environment.cores / 2:
        yield f"other work ({environment.load:.1f} processes were running)"
    if environment.cores < 16:
        yield f"only {environment.cores} cores, of a processor that the data sheet counts whole"
