"""A measured machine as a device of the catalogue's form: what ``--save`` writes, and every verb accepts as HARDWARE.

Nominal rates are the data sheet's where the catalogue knows the device; the measured shares of them stand under ``achieved.kernels``. A
processor that nobody listed gets the best measured rates as its nominal ones. Every figure says when and with what it was measured.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..errors import MeasureError
from ..quantities import BANDWIDTH, BYTES, COMPUTE, show_quantity
from .known_devices import devices_of
from .measured_kernels import best_rate, measured_kernels, rounded
from .roof import measured_roof
from .spec_text import as_mapping

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..hardware import HardwareSpec
    from .kernel_fit import Fitted
    from .measured_kernels import MeasuredKernels
    from .records import Run

_MEASURED_BY = {
    "decode_attention": "attention.decode",
    "prefill_attention": "attention.prefill",
    "elementwise": "stream.copy",
    "collectives": "collective",
}


def catalogued(run: Run) -> HardwareSpec | None:
    """The catalogue's device of a run, by the name that the driver prints; None for one that nobody listed."""
    return devices_of(None, run.environment.device).datasheet


def overlay(run: Run, base: HardwareSpec | None = None) -> dict[str, Any]:
    """The hardware YAML of a measured machine.

    Parameters
    ----------
    run : with the records of ``measure ceilings``
    base : the catalogue's device, or None for one that it does not have

    Raises
    ------
    MeasureError : when the run has no streaming reads of memory, or no products
    """
    roof = measured_roof(run.records, run.environment.cache_bytes)
    if roof.bytes_per_s is None or not roof.flop_per_s:
        wanted = "streaming reads and products, which roofplan measure ceilings takes"
        raise MeasureError("overlay", got=f"a run of {run.command} without them", wanted=wanted)
    peaks: dict[str, float] = dict(roof.flop_per_s)
    if base is None:
        bandwidth, said = best_rate(run), _new_device(run, best_rate(run), peaks)
    else:
        bandwidth, said = base.memory.bandwidth, _changed(base, run)
        if base.has_rates:
            peaks = {name: rate for name in peaks if (rate := base.peak.rate(name)) is not None}
        else:  # no data sheet says any
            said["peak"] = _written(peaks)
            said["evidence"].append({"figures": ["peak"], "kind": "measured", "source": _source(run)})
    found = measured_kernels(run, bandwidth, peaks, base)
    said["achieved"] = {"kernels": found.said | _facts(said["name"], run, found)}
    return said


def to_yaml(device: dict[str, Any]) -> str:
    """The text of a device's file."""
    import yaml

    class Plain(yaml.SafeDumper):
        """Writes every value where it is used: spec files have no anchors."""

        def ignore_aliases(self, _data: Any) -> bool:
            return True

    text: str = yaml.dump(device, Dumper=Plain, sort_keys=False, width=140, allow_unicode=True)
    return text


# ------------------------------------------------------------------------------------------------ the device


def _new_device(run: Run, bandwidth: float, peaks: dict[str, float]) -> dict[str, Any]:
    there = run.environment
    size = there.memory_bytes if there.kind == "cpu" else there.device_memory_bytes
    return {
        "schema": "roofplan/hardware/v1",
        "name": f"{_slug(there.device)}-measured",
        "title": f"{there.device}, {there.shown_threads}" if there.kind == "cpu" else there.device,
        "architecture": there.system.rpartition(" ")[2] if there.kind == "cpu" else there.kind,
        "memory": {
            "nameplate": show_quantity(size or 2**30, BYTES),
            "bandwidth": show_quantity(rounded(bandwidth), BANDWIDTH),
            "shared_with_host": there.kind != "cuda",
        },
        "peak": _written(peaks),
        "units": {"cache": show_quantity(there.cache_bytes, BYTES)},
        "evidence": [{"figures": ["memory", "peak", "units"], "kind": "measured", "source": _source(run)}],
        "notes": f"No data sheet: the nominal rates are the best that were measured. {_environment(run)}",
    }


def _changed(base: HardwareSpec, run: Run) -> dict[str, Any]:
    """The catalogue's device under another name; what others measured on it is replaced."""
    said = as_mapping(base)
    for name in ("aliases", "achieved", "price"):
        said.pop(name, None)
    said["evidence"] = [entry for entry in said["evidence"] if entry["figures"] not in (["price"], ["achieved"])]
    notes = f"{said.get('notes', '')} {_environment(run)}".strip()
    return said | {"name": f"{base.name}-measured", "title": f"{base.title or base.name}, measured", "notes": notes}


def _written(peaks: dict[str, float]) -> dict[str, str]:
    return {name: show_quantity(rounded(rate), COMPUTE) for name, rate in sorted(peaks.items())}


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:48] or "machine"


def _source(run: Run) -> str:
    there = run.environment
    software = ", ".join(f"{name} {there.versions[name]}" for name in ("roofplan", "torch") if name in there.versions)
    command = f"roofplan measure {run.command}{' --quick' if run.quick else ''}"
    return f"measured {run.started[:10] or there.date[:10]}: {command} ({software}) on {there.device}"


def _environment(run: Run) -> str:
    there = run.environment
    parts = [f"Measured {run.started or there.date} on {there.device} ({there.system}; {there.shown_threads})"]
    parts += [f"{name} {version}" for name, version in sorted(there.versions.items())]
    driver = there.nvml.get("driver")
    parts += [f"driver {driver}"] if driver else []
    disturbed = f" Disturbed by: {'; '.join(there.notes)}." if there.notes else ""
    return f"{', '.join(parts)}.{disturbed}"


# ------------------------------------------------------------------------------------------------ what is said of its kernels


def _facts(name: str, run: Run, found: MeasuredKernels) -> dict[str, Any]:
    source = _source(run)
    return {
        "measured_on": [name],
        "sources": _sources(run, found.fits, found.said),
        "spread": {"measured": rounded(found.spread)},
        "notes": f"{source}. Spread: 80 % of the calls that were fitted lie within x/÷ {found.spread:.2f}.",
    }


def _sources(run: Run, fits: dict[str, Fitted], changed: Iterable[str]) -> dict[str, Any]:
    """The origin of each figure that is changed; ``fit: null`` takes the place of what the family's says of its own fit."""
    source = _source(run)
    derived = f"launches, rates of memory and products; {source}"
    said: dict[str, Any] = {}
    for name in changed:
        own = bool(run.named(_MEASURED_BY.get(name, "none")))
        said[name] = {"kind": "measured" if own else "derived", "source": source if own else derived, "fit": None}
    if fits:
        errors = "; ".join(f"{name} {f.median_error:.1%} and {f.p90_error:.1%}" for name, f in fits.items())
        said["gemm"] = {
            "kind": "fitted",
            "source": source,
            "fit": {
                "data": "; ".join(f"{name}: {f.calls} calls" for name, f in fits.items()),
                "error": f"absolute error of time, median and 90 %: {errors}",
                "not_fitted_on": "types that were not measured, and other shapes",
            },
        }
    return said
