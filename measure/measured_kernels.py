"""What kernels of a machine reach, from its ceilings: the planner's own constants, as shares of nominal rates.

Products and attention are fitted call by call; streams give what moves and does not compute; launches give the fixed times. For a device
of which a family was measured before, only what this run measured is changed; for any other, the rest follows from the same three.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .. import hardware
from ..quantities import BANDWIDTH, TIME, show_quantity
from .kernel_fit import Call, Fitted, fit_kernel
from .roof import BEYOND, size_of
from .samples import quantile
from .spec_text import as_mapping

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..hardware import HardwareSpec
    from .records import Record, Run

# Operations of torch that a layer of a kind takes beside its kernels, where only the launch of one was measured.
_LAUNCHES = {"routing": 8, "latent": 4, "gated_delta": 12, "sparse_index": 16}
_STATE_LAUNCHES = 4
_LEAST_SPREAD = 1.05
_LAUNCH_S = 5e-6  # of one operation, where it was not measured (torch on a CPU takes 1 to 10 us)
_DIGITS = 4
_OTHER_TYPES = {"bf16": ("fp16",), "fp16": ("bf16",), "fp32": ("tf32",)}  # that a measured type stands for
_RAMPS = (0.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0)  # tokens at which half of the rate is reached


@dataclass(frozen=True, slots=True)
class MeasuredKernels:
    """The constants as ``achieved.kernels`` holds them, the products' fits, and how far calls lie from all fits (x/÷, 80 % of them)."""

    said: dict[str, Any]
    fits: dict[str, Fitted]
    spread: float


def measured_kernels(run: Run, bandwidth: float, peaks: dict[str, float], base: HardwareSpec | None) -> MeasuredKernels:
    """Find what kernels reach.

    Parameters
    ----------
    bandwidth, peaks : nominal rates, by which shares are told; types without a peak are left out
    base : the catalogue's device, or None
    """
    least = BEYOND * run.environment.cache_bytes
    rates, launch = streaming_rates(run, least), launch_s(run)
    floor, best = launch_s(run, "gemm"), max(rates.values())
    fits = {
        name: fitted for name in peaks if (fitted := _fit(run.named(f"gemm.{name}"), least, floor, best)) is not None
    }
    products = {name: _kernel(fitted, bandwidth, peaks[name]) for name, fitted in fits.items()}
    said: dict[str, Any] = {"gemm": _of_types(products, "gemm", base)} if products else {}
    decode = _by_type(run.named("attention.decode"), peaks)
    attention = {name: _fit(records, least, launch, best, peak=peaks[name]) for name, records in decode.items()}
    attended = {name: _kernel(fitted, bandwidth, peaks[name]) for name, fitted in attention.items() if fitted}
    if attended:
        said["decode_attention"] = _attention_of(attended, base)
    prompts, ramp = _fit_prompts(_by_type(run.named("attention.prefill"), peaks), launch, best)
    for name, fitted in prompts.items():
        said["prefill_attention"] = _kernel(fitted, bandwidth, peaks[name]) | {"ramp_tokens": ramp}
    copied = _share(rates.get("copy", rates["read"]), bandwidth)
    if base is not None:
        said |= {"elementwise": {"bandwidth": copied}} if "copy" in rates else {}
        said |= _exchanges(run, base)
    elif products:
        product = products.get("bf16") or next(iter(products.values()))
        said = _of_unlisted(product, copied, _share(rates["read"], bandwidth), launch) | said
    every = [*fits.values(), *filter(None, attention.values()), *prompts.values()]
    return MeasuredKernels(said, fits, max([_LEAST_SPREAD, *(1 + fitted.p80_error for fitted in every)]))


def _of_unlisted(product: dict[str, Any], copied: float, read: float, launch: float) -> dict[str, Any]:
    """What else a device needs of which no family was measured: from streaming, launches and products."""
    attention = {"floor": _time(launch), "bandwidth": read, "compute": product["compute"]}
    moving = {"floor": _time(launch), "bandwidth": copied}
    return {
        "decode_attention": [attention],
        "prefill_attention": attention | {"ramp_tokens": 0},
        "experts": [{"floor": _time(2 * launch), **{key: product[key] for key in ("bandwidth", "compute", "overlap")}}],
        "elementwise": moving,
        "state": moving | {"floor": _time(_STATE_LAUNCHES * launch)},
        "floors": {name: _time(count * launch) for name, count in _LAUNCHES.items()},
    }


def _of_types(own: dict[str, dict[str, Any]], name: str, base: HardwareSpec | None) -> list[dict[str, Any]]:
    """Measured types first; then what the family's kernels say of types that were not measured."""
    covered, listed = set(own), []
    for arithmetic, kernel in own.items():
        stands_for = [other for other in _OTHER_TYPES.get(arithmetic, ()) if other not in covered]
        covered.update(stands_for)
        listed.append({"arithmetic": [arithmetic, *stands_for], **kernel})
    for entry in [] if base is None else as_mapping(hardware.kernels_of(base, 1))[name]:
        left = [other for other in entry.get("arithmetic", ()) if other not in covered]
        if left:
            listed.append(entry | {"arithmetic": left})
    return listed


def _attention_of(own: dict[str, dict[str, Any]], base: HardwareSpec | None) -> list[dict[str, Any]]:
    """Measured decode attention, of 16-bit caches on a GPU; narrower ones stay as the family's are."""
    if base is None:
        # The kernel of the widest caches is that of all types that were not measured: it names none.
        return [{**kernel, **({"arithmetic": [name]} if len(own) > 1 else {})} for name, kernel in own.items()]
    kernel = own.get("bf16") or next(iter(own.values()))
    family = as_mapping(hardware.kernels_of(base, 1))["decode_attention"]
    return [kernel | {"bits": 16}, *(entry for entry in family if entry.get("bits", 16) < 16)]


def _by_type(records: Sequence[Record], peaks: dict[str, float]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        arithmetic = str(record.parameters.get("arithmetic"))
        if arithmetic in peaks:
            found.setdefault(arithmetic, []).append(record)
    return found


def _fit_prompts(by_type: dict[str, list[Record]], launch: float, best_bytes: float) -> tuple[dict[str, Fitted], float]:
    """Attention of prompts, whose rate rises with their length: FLOP x (1 + ramp / tokens); of the type that has most records."""
    if not by_type:
        return {}, 0.0
    name = max(by_type, key=lambda arithmetic: len(by_type[arithmetic]))
    found: tuple[float, float, Fitted] | None = None
    for ramp in _RAMPS if len(by_type[name]) > 2 else _RAMPS[:1]:
        fitted = _fit(by_type[name], 0, launch, best_bytes, ramp)
        if fitted is not None and fitted.flop_per_s:
            error = fitted.median_error + fitted.p90_error
            if found is None or error < found[0] - 1e-3:
                found = (error, ramp, fitted)
    return ({}, 0.0) if found is None else ({name: found[2]}, found[1])


def _fit(
    records: Sequence[Record],
    least_bytes: float,
    launch: float,
    best_bytes: float,
    ramp: float = 0.0,
    *,
    peak: float = 0.0,
) -> Fitted | None:
    """A kernel fitted to records; those that a cache held do not show what memory gives."""
    fitting = [record for record in records if is_from_memory(record, least_bytes)] or list(records)
    calls = [
        Call(float(r.parameters["bytes"]), _flop(r, ramp), r.measured.median)
        for r in fitting
        if r.parameters.get("bytes") and r.measured.median > 0
    ]
    if not calls:
        return None
    fitted = fit_kernel(calls, stream_bytes_per_s=best_bytes, product_flop_per_s=peak)
    # Where no call is short the floor is free: it is at least that of a launch.
    least = min([launch, *(call.seconds for call in calls)])
    return replace(fitted, floor=max(fitted.floor, least))


def _flop(record: Record, ramp: float) -> float:
    flop = float(record.parameters.get("flop", 0))
    return flop * (1 + ramp / float(record.parameters["tokens"])) if ramp else flop


def is_from_memory(record: Record, least_bytes: float) -> bool:
    """Whether memory, and no cache, gave the bytes of a record: cold or rotated buffers, or more than caches hold."""
    return bool(record.parameters.get("cold")) or float(record.parameters.get("bytes", 0)) >= least_bytes


def _kernel(fitted: Fitted, bandwidth: float, peak: float) -> dict[str, Any]:
    return {
        "floor": _time(fitted.floor),
        "bandwidth": _share(fitted.bytes_per_s, bandwidth),
        "compute": _share(fitted.flop_per_s, peak) if fitted.flop_per_s else 1.0,
        "overlap": fitted.overlap,
    }


# ------------------------------------------------------------------------------------------------ streams, launches, exchanges


def streaming_rates(run: Run, least_bytes: float) -> dict[str, float]:
    """Bytes per second of read, copy and triad on memory: the median over working sets that no cache holds (else the largest)."""
    found = {}
    for name in ("read", "copy", "triad"):
        records = [r for r in run.named(f"stream.{name}") if r.bytes_per_s is not None and not r.parameters.get("cold")]
        most = max((size_of(record) for record in records), default=0.0)
        rates = sorted(r.bytes_per_s or 0.0 for r in records if size_of(r) >= min(least_bytes, most))
        if rates:
            found[name] = quantile(rates, 0.5)
    return found


def best_rate(run: Run) -> float:
    """The best rate of bytes that memory gave to anything: streams, or products and attention that read from it."""
    least = BEYOND * run.environment.cache_bytes
    calls = [r for r in (*run.named("gemm"), *run.named("attention.decode")) if "arithmetic" in r.parameters]
    others = [r for r in calls if is_from_memory(r, least)]
    return max([*streaming_rates(run, least).values(), *(record.bytes_per_s or 0.0 for record in others)])


def launch_s(run: Run, *kinds: str) -> float:
    """Seconds of one launch: the first of some kinds that was measured (within a graph, as engines launch; else called one by one)."""
    for kind in (*kinds, "graph", "call"):
        times = [record.measured.median for record in run.named(f"launch.{kind}")]
        if times:
            return min(times)
    return _LAUNCH_S


def _exchanges(run: Run, base: HardwareSpec) -> dict[str, Any]:
    """Measured exchanges of NCCL over the device's link, in place of the family's; those of other kernels stay."""
    tables: dict[tuple[str, int], dict[int, float]] = {}
    for record in run.named("collective"):
        own = record.parameters
        if own.get("kernel") == "nccl" and own.get("bytes"):
            key = (record.name.partition(".")[2], int(own["ranks"]))
            tables.setdefault(key, {})[int(own["bytes"])] = record.measured.median
    tables = {key: times for key, times in tables.items() if len(times) > 1}
    link = next((found for _, ranks in tables if (found := base.link(ranks)) is not None), None)
    if not tables or link is None:
        return {}
    listed = [
        {
            "operation": operation,
            "kernel": "nccl",
            "ranks": ranks,
            "bytes": [f"{size} B" for size in sorted(times)],
            "us": [rounded(times[size] * 1e6) for size in sorted(times)],
        }
        for (operation, ranks), times in tables.items()
    ]
    family = as_mapping(hardware.kernels_of(base, 2)).get("collectives", [])
    kept = [e for e in family if e["kernel"] != "nccl" or (e["operation"], e["ranks"]) not in tables]
    return {"collectives": listed + kept, "link": show_quantity(link.per_direction, BANDWIDTH)}


def _share(rate: float, nominal: float) -> float:
    """A share of a nominal rate, at most one: what is beyond it, the gates tell."""
    return min(1.0, rounded(rate / nominal))


def _time(seconds: float) -> str:
    return show_quantity(0.0 if seconds < 1e-9 else rounded(seconds), TIME)


def rounded(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.{_DIGITS}g}")
