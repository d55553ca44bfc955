"""Records of a load on a server: what was seen, beside what the planner predicts for the same load."""

from __future__ import annotations

import datetime as dt
import platform
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from ..errors import DomainError, RoofplanError, show
from ..planner.ranges import Range
from .records import Record
from .samples import Summary, summarise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from ..api import Options
    from ..hardware.spec import HardwareSpec
    from ..models.spec import ModelSpec
    from ..planner.sizing import SizeResult
    from .environment import Environment
    from .known_devices import Devices
    from .server_client import Reply, Target
    from .server_load import Observed

_BUSY = 0.7  # of one core, from which on the client may be what limits
_LATE = 0.1  # of the median time to the first token, from which on a late client is told


@dataclass(frozen=True, slots=True)
class _Load:
    """The mean tokens of the requests of a load."""

    prompt: int | None
    output: int

    @classmethod
    def of(cls, replies: Sequence[Reply]) -> _Load:
        counted = [reply.usage.prompt for reply in replies if reply.usage is not None]
        outputs = [reply.output_tokens for reply in replies]
        return cls(round(sum(counted) / len(counted)) if counted else None, max(1, round(sum(outputs) / len(outputs))))


def records_of(
    observed: Observed,
    target: Target,
    model: str | PathLike[str] | ModelSpec | None,
    devices: Devices,
    options: Options,
    *,
    prompt: int,
    predicted: bool,
) -> Iterator[Record]:
    """The records of one load, of which some request came to its end; ``prompt`` is the length where the server counts none."""
    plan, whole, settled = observed.plan, observed.whole, observed.settled
    load = _Load.of(whole)
    common: dict[str, Any] = {
        "load": "closed loop" if plan.clients else "arrivals at random",
        **({"concurrency": plan.clients} if plan.clients else {"rate": plan.rate}),
        "output_tokens": load.output,
        **({} if load.prompt is None else {"prompt_tokens": load.prompt}),
        "api": target.api,
        "served_model": show(target.model),
        "requests": len(whole),
        "failed": sum(observed.failures.values()),
        "cut": observed.cut,
    }
    length = prompt if load.prompt is None else load.prompt
    sized = _sizes(observed, model, devices, options, length, load.output) if predicted else (None, None)
    is_alone = plan.clients == 1
    figures: list[tuple[str, str, Summary | None, str]] = [
        ("ttft", "s", _summary([r.ttft_s for r in settled]), "ttft_alone_s" if is_alone else "ttft_s"),
        ("itl", "s", _summary([gap for r in settled for gap in r.gaps_s]), "itl_s"),
        ("tpot", "s", _summary([r.tpot_s for r in settled if r.tpot_s is not None]), "tpot_s"),
        ("e2e", "s", _summary([r.e2e_s for r in settled]), "e2e_s"),
        ("output_tokens_per_s", "tokens/s", _single(observed.output_tokens_per_s), "output_tokens_per_s"),
        ("requests_per_s", "requests/s", _single(observed.requests_per_s), "requests_per_s"),
    ]
    if plan.clients > 1 and observed.first_wave:
        figures.append(("ttft_burst", "s", _summary([r.ttft_s for r in observed.first_wave]), "ttft_burst_s"))
    for name, unit, measured, figure in figures:
        if measured is None:
            continue
        ranges = [_range(size, figure, load.output, plan.rate) for size in sized]
        yield Record(
            f"server.{name}",
            unit,
            measured,
            {**common, "mean": sum(measured.samples) / measured.count, **_bounds(ranges)},
            *[None if found is None else found.expected for found in ranges],
        )


def _bounds(ranges: Sequence[Range | None]) -> dict[str, float]:
    """The roof and the range of the best prediction there is."""
    best = next((found for found in reversed(ranges) if found is not None), None)
    return {} if best is None else {"roof": best.bound, "predicted_low": best.low, "predicted_high": best.high}


def _summary(samples: Sequence[float]) -> Summary | None:
    return summarise(samples) if samples else None


def _single(value: float | None) -> Summary | None:
    """One value over a whole load: it has no scatter, and needs none to be told."""
    return None if value is None else Summary(value, value, value, 0.0, 1, (value,))


# ------------------------------------------------------------------------------------------------ predictions


def served_model(name: str) -> ModelSpec | None:
    """The catalogue's model of the name that a server gives; a name that looks like a path is none, since it came from outside."""
    from .. import models, specfiles

    if specfiles.looks_like_path(name):
        return None
    try:
        return models.load(name)
    except RoofplanError:
        return None


def missing_prediction(
    model: str | PathLike[str] | ModelSpec | None, devices: Devices, options: Options, prompt: int, output: int
) -> str:
    """Why nothing is predicted; empty when it is.

    Raises
    ------
    RoofplanError : for a model, a device or an option that is not known
    """
    named = [device for device in (devices.datasheet, devices.measured) if device is not None]
    if not named:
        if model is not None or options:
            raise DomainError("--hardware", got="nothing", wanted="a device or overlay, beside --model and its options")
        return "nothing was predicted: --model and --hardware say what is served, and on what"
    if model is None:
        return "nothing was predicted: --model says what is served"
    for device in named:
        sized = _size(model, device, options, prompt, output, {"concurrency": 1})
        if sized.times is None:
            reasons = ", ".join(sized.reasons) or "no_dense_rate"
            return f"nothing was predicted: on {device.name} the planner gives no time ({reasons})"
    return ""


def _size(
    model: str | PathLike[str] | ModelSpec,
    device: HardwareSpec,
    options: Options,
    prompt: int,
    output: int,
    load: dict[str, Any],
) -> SizeResult:
    from .. import api

    rest: Any = {name: value for name, value in options.items() if name not in {"prompt", "output", "concurrency"}}
    return api.size(model, device, **rest, prompt=prompt, output=output, **load)


def _sizes(
    observed: Observed,
    model: str | PathLike[str] | ModelSpec | None,
    devices: Devices,
    options: Options,
    prompt: int,
    output: int,
) -> tuple[SizeResult | None, SizeResult | None]:
    plan = observed.plan
    load = {"concurrency": plan.clients} if plan.clients else {"rate": plan.rate}

    def size(device: HardwareSpec | None) -> SizeResult | None:
        return None if device is None or model is None else _size(model, device, options, prompt, output, load)

    return size(devices.datasheet), size(devices.measured)


def _range(sized: SizeResult | None, figure: str, output: int, rate: float) -> Range | None:
    """A figure of a sizing by its name. A server that keeps up ends as many requests as arrive."""
    if sized is None or sized.times is None:
        return None
    latency, throughput = sized.times.latency, sized.times.throughput
    if figure not in {"requests_per_s", "output_tokens_per_s"}:
        found: Range | None = getattr(latency, figure)
        return found
    tokens = throughput.output_tokens_per_s
    if sized.keeps_up:
        tokens = Range(*[rate * output] * 4)
    return tokens.scaled(1 / output) if figure == "requests_per_s" else tokens


# ------------------------------------------------------------------------------------------------ in words


def remarks_on(observed: Observed) -> Iterator[str]:
    """What a reader of the figures of a load should know."""
    title = observed.plan.title
    for why, count in sorted(observed.failures.items()):
        example = next(reply.detail for reply in observed.replies if reply.failure == why)
        yield f"{title}: {count} of {len(observed.replies)} requests failed: {why}" + (
            f" ({example})" if example else ""
        )
    if not observed.whole:
        yield f"{title}: no request came to its end; later loads were left out"
        return
    if observed.dropped:
        yield f"{title}: {observed.dropped} arrivals were not sent, since too many were in flight"
    if observed.cut:
        yield f"{title}: {observed.cut} requests were under way when its time was over"
    if observed.busy > _BUSY:
        yield f"{title}: the client itself computed {observed.busy:.0%} of the time: the server may be faster than it could see"
    usual = sorted(reply.ttft_s for reply in observed.whole)[len(observed.whole) // 2]
    if observed.lateness_s > _LATE * usual and not observed.plan.clients:
        yield f"{title}: the client sent requests up to {observed.lateness_s * 1e3:.0f} ms late: its own work is in the times"


def client_environment(server: str) -> Environment:
    """The server as the device, by its address, and the client's processor, memory and software. It needs no torch."""
    from .. import __version__
    from .environment import Environment, usable_cores
    from .machine import cpu_name, data_caches, host_memory

    versions = {"roofplan": __version__, "python": platform.python_version()}
    for name in ("httpx", "httpx2"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    caches, cores = data_caches(), usable_cores()
    return Environment(
        date=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        kind="client",
        device=server,
        torch_device="as a client",
        cpu=cpu_name(),
        cores=cores,
        threads=1,
        memory_bytes=host_memory(),
        cache_bytes=caches[-1] if caches else 0,
        caches=caches,
        device_memory_bytes=0,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        versions=versions,
        container={},
        nvml={},
        load=None,
        notes=(),
    )
