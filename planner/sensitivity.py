"""Which input moves the answer most: elasticities of the expected times of a deployment, by differences.

An elasticity of 0.5 says that one per cent more of the input makes the figure half a per cent larger. Each input is changed by a tenth
alone, and everything is computed again: memory, places, steps, load.
Left out: inputs that change in steps (devices, formats), and that inputs move together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from .reached import reached_model
from .step import StepModel
from .times import Times, places_of, times_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..engines.streams import Stream
    from .deployment import Deployment

_FACTOR = 1.1
_Changed = tuple["Deployment", float]  # with the factor by which the input was changed; one: it has no such input


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Elasticities of the expected figures to one input; None where a figure does not exist."""

    name: str
    ttft: float
    tpot: float | None
    output_rate: float

    @property
    def most(self) -> float:
        """The largest of them, whatever its sign."""
        return max(abs(self.ttft), abs(self.tpot or 0.0), abs(self.output_rate))


def sensitivities(d: Deployment) -> tuple[Sensitivity, ...]:
    """Elasticities of TTFT, TPOT and output rate to each input, the one that moves any of them most first.

    Empty where no time is known: nothing fits, or the device has no rates.
    """
    base = _times(d)
    if base is None:
        return ()
    found = []
    for name, change in _CHANGES.items():
        changed, factor = change(d)
        moved = None if factor == 1 else _times(changed)
        if moved is not None:
            found.append(_compared(name, base, moved, factor))
    return tuple(sorted(found, key=lambda s: -s.most))


def _times(d: Deployment) -> Times | None:
    places = places_of(d)
    if places < 1 or not d.hardware.has_rates:
        return None
    return times_of(d, StepModel.of(d), reached_model(d), places)


def _compared(name: str, base: Times, moved: Times, factor: float) -> Sensitivity:
    tpot = None
    if base.latency.tpot_s is not None and moved.latency.tpot_s is not None:
        tpot = _elasticity(base.latency.tpot_s.expected, moved.latency.tpot_s.expected, factor)
    before, after = (times.throughput.output_tokens_per_s.expected for times in (base, moved))
    return Sensitivity(
        name,
        _elasticity(base.latency.ttft_s.expected, moved.latency.ttft_s.expected, factor),
        tpot,
        _elasticity(before, after, factor),
    )


def _elasticity(before: float, after: float, factor: float) -> float:
    return math.log(after / before) / math.log(factor)


def _bandwidth(d: Deployment) -> _Changed:
    memory = d.hardware.memory
    faster = replace(d.hardware, memory=replace(memory, bandwidth=memory.bandwidth * _FACTOR))
    return replace(d, hardware=faster), _FACTOR


def _peak(d: Deployment) -> _Changed:
    peak = d.hardware.peak
    rates = {f.name: value * _FACTOR for f in fields(peak) if isinstance(value := getattr(peak, f.name), (int, float))}
    return replace(d, hardware=replace(d.hardware, peak=replace(peak, **rates))), _FACTOR


def _memory(d: Deployment) -> _Changed:
    return replace(d, memory=replace(d.memory, total_bytes=round(d.device_bytes * _FACTOR))), _FACTOR


def _kernel_floors(d: Deployment) -> _Changed:
    if d.streams is not None:
        return replace(d, streams=replace(d.streams, streams=tuple(map(_slower_launches, d.streams.streams)))), _FACTOR
    if d.kernels is None:
        return d, 1.0
    kernels = d.kernels
    slower: dict[str, Any] = {
        name: tuple(replace(k, floor=k.floor * _FACTOR) for k in getattr(kernels, name)) for name in _LISTS
    }
    slower |= {name: replace(getattr(kernels, name), floor=getattr(kernels, name).floor * _FACTOR) for name in _SINGLE}
    of_layers = {f.name: getattr(kernels.floors, f.name) * _FACTOR for f in fields(kernels.floors)}
    return replace(d, kernels=replace(kernels, **slower, floors=replace(kernels.floors, **of_layers))), _FACTOR


_LISTS = ("gemm", "decode_attention", "experts")
_SINGLE = ("prefill_attention", "elementwise", "state")


def _slower_launches(stream: Stream) -> Stream:
    return replace(stream, per_layer=stream.per_layer * _FACTOR, per_expert_layer=stream.per_expert_layer * _FACTOR)


def _host(d: Deployment) -> _Changed:
    timing, scheduling = d.engine.timing, d.engine.scheduling
    slower = replace(
        timing,
        host_per_step=timing.host_per_step * _FACTOR,
        host_per_sequence=timing.host_per_sequence * _FACTOR,
        prompt_floor=timing.prompt_floor * _FACTOR,
        expert_prompt_floor=timing.expert_prompt_floor * _FACTOR,
    )
    later = replace(
        scheduling,
        request_overhead=scheduling.request_overhead * _FACTOR,
        expert_request_overhead=scheduling.expert_request_overhead * _FACTOR,
    )
    return replace(d, engine=replace(d.engine, timing=slower, scheduling=later)), _FACTOR


def _exchanges(d: Deployment) -> _Changed:
    if d.kernels is None or d.layout.devices == 1 or d.streams is not None:
        return d, 1.0
    slower = tuple(replace(known, us=tuple(time * _FACTOR for time in known.us)) for known in d.kernels.collectives)
    usual = tuple(
        replace(known, floor=known.floor * _FACTOR, bandwidth=known.bandwidth / _FACTOR)
        for known in d.kernels.collective
    )
    return replace(d, kernels=replace(d.kernels, collectives=slower, collective=usual)), _FACTOR


def _workload(name: str) -> Callable[[Deployment], _Changed]:
    def change(d: Deployment) -> _Changed:
        before = getattr(d.workload, name)
        after = max(before + 1, round(before * _FACTOR))
        limit = d.max_model_len
        if limit is not None and name != "concurrency" and d.workload.length + after - before > limit:
            return d, 1.0
        return replace(d, workload=replace(d.workload, **{name: after})), after / before

    return change


_CHANGES: dict[str, Callable[[Deployment], _Changed]] = {
    "memory bandwidth": _bandwidth,
    "dense peak": _peak,
    "memory size": _memory,
    "fixed time of kernels": _kernel_floors,
    "time of exchanges between devices": _exchanges,
    "host time of the engine": _host,
    "prompt tokens": _workload("prompt"),
    "output tokens": _workload("output"),
    "concurrency": _workload("concurrency"),
}
