"""Levers of devices: more or fewer of them, divided in other ways, or others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import LayoutError, SpecError
from ...quantities import show_bandwidth, show_bytes, show_compute
from ..costs import Load
from ..notices import main_arithmetic
from ..parallel import Layout, check_layout
from ..reached import reached_model
from ..step import StepModel
from .outcomes import outcome_of
from .situation import EXACT, PAYS, Lever, room_reason, without_given_weights
from .words import change, step_gain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..deployment import Deployment
    from .situation import Neighbour, Situation


def layouts(s: Situation) -> Iterator[Lever]:
    """Twice and half as many devices, and as many in another division: tensor ranks, stages, replicas (formulas F12.2 to F12.5)."""
    for layout in _worth_a_look(s.deployment.layout):
        lever = _layout(s, layout)
        if lever is not None:
            yield lever


def _worth_a_look(now: Layout) -> list[Layout]:
    devices = now.devices
    found = [replace(now, **{name: 2 * getattr(now, name)}) for name in ("tp", "pp", "dp")]
    found += [replace(now, **{name: getattr(now, name) // 2}) for name in ("tp", "pp", "dp") if getattr(now, name) > 1]
    found += [Layout(tp=devices, ep=now.ep), Layout(pp=devices), Layout(dp=devices, ep=now.ep)]
    if devices > 2 and devices % 2 == 0:
        found += [Layout(tp=devices // 2, pp=2, ep=now.ep), Layout(tp=devices // 2, dp=2, ep=now.ep)]
    found = [replace(layout, ep=min(layout.ep, layout.tp * layout.dp)) for layout in found]
    return [layout for layout in dict.fromkeys(found) if layout != now]


def _layout(s: Situation, layout: Layout) -> Lever | None:
    """The deployment on other devices of the same kind.

    None where the model cannot be divided so, the engine divides layers only, or nothing is known of exchanges.
    """
    d = s.deployment
    if layout.tp > d.layout.tp and not isinstance(s.reached, StepModel):
        return None
    try:
        check_layout(d.model, layout)
    except LayoutError:
        return None
    kernels = s.choices.kernels or d.kernels
    if kernels is not None and layout.devices > 1 and not kernels.collective:
        return None
    changed = without_given_weights(replace(d, layout=layout, kernels=kernels))
    after = outcome_of(changed)
    name = str(layout).replace(", ", "-").replace(" ", "") if layout.devices > 1 else "one"
    more = layout.devices - d.layout.devices
    count = (
        f"{layout.devices} instead of {d.layout.devices} device(s)" if more else f"the same {layout.devices} devices"
    )
    known = layout.tp * layout.pp == 1 or d.hardware.link(layout.tp * layout.pp) is not None
    exchanged = _exchanged(changed) if layout.tp > 1 else None
    return Lever(
        id=f"layout.{name}",
        title=f"{count}: {layout}",
        status="available",
        exact=True,
        before=s.outcome,
        after=after,
        reason=room_reason(s.outcome, after)
        or _layout_reason(s, changed, known=known, gain=step_gain(s.outcome, after), exchanged=exchanged),
        why=f"{_layout_words(s, changed, known=known, exchanged=exchanged)}; {change(s.outcome, after)}",
        quality=EXACT,
        complexity="a setting of the engine" if more <= 0 else "more devices, and links between them",
        memory_bytes=s.memory_of(changed) - s.memory_of(d),
        option=" ".join(
            f"--{axis} {getattr(layout, axis)}" for axis in ("tp", "pp", "dp", "ep") if getattr(layout, axis) > 1
        ),
        figures={"devices": layout.devices} | ({} if exchanged is None else {"exchanged_share_of_decode": exchanged}),
        changed=changed,
    )


def _exchanged(d: Deployment) -> float | None:
    """Share of a decode step that ranks exchange data; None where the engine is timed as a whole, or nothing is timed."""
    reached = reached_model(d)
    if not isinstance(reached, StepModel) or not d.hardware.has_rates:
        return None
    costs = reached.costs(Load(max(1.0, d.sequences_per_replica / d.layout.pp), d.workload.mean_context))
    total = sum(cost.time_s for cost in costs)
    return sum(cost.time_s for cost in costs if cost.bound == "interconnect") / total if total else None


def _layout_reason(s: Situation, changed: Deployment, *, known: bool, gain: float, exchanged: float | None) -> str:
    now, layout = s.deployment.layout, changed.layout
    if not known:
        return "no_known_link"
    if layout.tp > now.tp:
        if gain >= PAYS:
            return "each_rank_reads_less"
        return "interconnect" if exchanged is not None and exchanged > 1 / 4 else str(s.decode_limit)
    if layout.pp > now.pp:
        return "stages_hold_less" if s.running > 1 else "one_sequence_passes_every_stage"
    if layout.dp > now.dp:
        return "replicas_share_the_load" if s.deployment.workload.concurrency > now.dp else "single_sequence"
    return "fewer_ranks_exchange_less" if gain >= 1 else "each_rank_reads_more"


def _layout_words(s: Situation, changed: Deployment, *, known: bool, exchanged: float | None) -> str:
    now, layout, words = s.deployment.layout, changed.layout, []
    if layout.tp > now.tp:
        words.append("tensor ranks divide the weights that a step reads, and exchange after every part of a layer")
    if layout.pp > now.pp:
        words.append("stages divide the memory, but a token passes all of them")
    if layout.dp > now.dp:
        words.append("replicas divide the requests and hold all weights each")
    if not words:
        words.append("fewer ranks read more each and exchange less")
    if exchanged is not None:
        words.append(f"exchanges are {exchanged:.0%} of a decode step")
    if not known:
        words.append("no link between so many devices is known: exchanges are taken as free, so this is an upper bound")
    return "; ".join(words)


# ------------------------------------------------------------------------------------------------ other devices


def other_devices(s: Situation) -> Iterator[Lever]:
    """The same on other devices of the catalogue, as many of them, with what their kernels reach and what they cost (formula F13.8)."""
    for neighbour in s.choices.devices:
        lever = _device(s, neighbour)
        if lever is not None:
            yield lever


def _device(s: Situation, neighbour: Neighbour) -> Lever | None:
    """None where the device has no rate for the arithmetic that the formats need."""
    d, other = s.deployment, neighbour.hardware
    memory = replace(d.memory, total_bytes=None)
    settings = replace(d.settings, kv_cache_bytes=None)
    changed = replace(d, hardware=other, kernels=neighbour.kernels, memory=memory, settings=settings)
    try:
        after, arithmetic = outcome_of(changed), main_arithmetic(changed)
    except SpecError:
        return None
    rates = [_rate(deployment) for deployment in (d, changed)]
    price = f"; {other.price.usd_per_hour:g} $/h ({other.price.provider}, {other.price.as_of})" if other.price else ""
    guessed = neighbour.kernels is not None and not neighbour.kernels.families
    unmeasured = "; nobody measured kernels of its family, so that this is a wide guess" if guessed else ""
    return Lever(
        id=f"device.{other.name}",
        title=other.title or other.name,
        status="available",
        exact=True,
        before=s.outcome,
        after=after,
        reason=room_reason(s.outcome, after)
        or ("faster_device" if step_gain(s.outcome, after) >= PAYS else "slower_device"),
        why=(
            f"{show_bandwidth(d.hardware.memory.bandwidth)} -> {show_bandwidth(other.memory.bandwidth)},"
            f" {rates[0]} -> {rates[1]} in {arithmetic},"
            f" {show_bytes(d.device_bytes)} -> {show_bytes(changed.device_bytes)}{price}{unmeasured}; {change(s.outcome, after)}"
        ),
        quality="none but for rounding: the formats stay",
        complexity="other devices; an engine that runs on them",
        figures={"bandwidth_bytes_per_s": other.memory.bandwidth, "memory_bytes": float(changed.device_bytes)},
        changed=changed,
    )


def _rate(d: Deployment) -> str:
    rate = d.hardware.peak.rate(main_arithmetic(d))
    return "unknown" if rate is None else show_compute(rate)
