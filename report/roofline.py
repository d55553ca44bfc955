"""What a report shows of a roofline: ceilings, steps, operators and measured points, and the words that its drawings share."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..errors import show
from ..quantities import show_bandwidth, show_compute, show_count, show_rate, show_time
from .sections import Report, Row, Section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..planner.roofline_answer import RooflineResult
    from ..planner.roofline_points import Ceiling, OperatorPoint, Phase, Series, StepPoint

_FEW = 0.0005  # of the time: below it a part is not named
LIMITS = {
    "compute": "compute",
    "weight_bandwidth": "reading weights",
    "kv_bandwidth": "reading the cache",
    "interconnect": "exchanges",
    "overhead": "overhead",
}


def roofline_report(r: RooflineResult) -> Report:
    """Arrange a roofline: what binds, ceilings, steps, operators, measured points."""
    sections = [_ceilings(r), _steps(r)]
    sections += [_operators(r, one, phase) for one in r.series for phase in r.phases]
    if r.measured:
        sections.append(_measured(r))
    remarks = [f"warning: {warning.message}" for warning in r.warnings]
    remarks.append(
        "nominal: the roof; as reached: with the kernels of the device and the host of the engine. FLOP/B: of memory traffic."
    )
    title = show(" · ".join(heading(r)), 400)
    return Report(title, _verdict(r), True, tuple(sections), tuple(remarks), partial(_plot, r))


def _plot(r: RooflineResult, width: int, unicode: bool) -> Iterator[list[tuple[str, str]]]:
    from .roofline_terminal import plot_lines

    return plot_lines(r, width, unicode)


def heading(r: RooflineResult) -> tuple[str, str]:
    """What is drawn, and under which conditions."""
    d = r.series[0].deployment
    names = list(dict.fromkeys(one.deployment.hardware.name for one in r.series))
    formats = list(dict.fromkeys(one.deployment.formats.name for one in r.series))
    layout = f" ({d.layout}, one rank)" if d.layout.devices > 1 else ""
    engine = f"{d.engine.engine} {d.engine.version}" if d.engine.version else d.engine.name
    steps = {step.phase: step for step in r.series[0].steps}
    held = [
        f"prefill of {show_count(steps['prefill'].tokens)} tokens" if "prefill" in steps else "",
        f"decode of {steps['decode'].batch:g} x {show_count(d.workload.mean_context)} tokens"
        if "decode" in steps
        else "",
    ]
    said = [f"weights {' and '.join(formats)}, KV {d.formats.kv.name}", *filter(None, held), f"engine {engine}"]
    return f"{d.model.name} on {' and '.join(names)}{layout}", " · ".join(said)


def series_name(r: RooflineResult, one: Series) -> str:
    """What tells a series from the others: its device, its format, or both."""
    d = one.deployment
    devices = {other.deployment.hardware.name for other in r.series}
    formats = {other.deployment.formats.name for other in r.series}
    parts = [d.hardware.name] if len(devices) > 1 or len(formats) == 1 else []
    parts += [d.formats.name] if len(formats) > 1 else []
    return show(", ".join(parts))


def step_name(step: StepPoint) -> str:
    """A whole step in short."""
    return "prefill step" if step.phase == "prefill" else f"decode step, batch {step.batch:g}"


def bandwidth_label(ceiling: Ceiling) -> str:
    """A bandwidth ceiling with its rate."""
    return f"{show(ceiling.name)} {show_bandwidth(ceiling.nominal)}"


def without_place(one: Series, phase: Phase) -> tuple[float, list[tuple[str, float]]]:
    """The share of a step's time that is no point, and what it goes to, the largest first: work without FLOP, and the host."""
    points = [point for point in one.operators if point.phase == phase]
    parts = [(point.name, point.share) for point in points if not point.has_place]
    rest = 1 - sum(point.share for point in points)
    if rest > _FEW:
        parts.append(("host", rest))
    return sum(share for _, share in parts), sorted(parts, key=lambda part: -part[1])


def _verdict(r: RooflineResult) -> str:
    return "; ".join(_said(r, one) for one in r.series) + "."


def _said(r: RooflineResult, one: Series) -> str:
    """What binds each step, and how much of its roof is reached; of one deployment alone also where it stands."""
    ridge = next(one.roof.ridge(ceiling) for ceiling in one.roof.compute if ceiling.name == one.arithmetic)
    several, said = len(r.series) > 1, []
    for step in one.steps:
        where = "" if several else f" at {show_rate(step.intensity)} FLOP/B (ridge {ridge:,.0f} in {one.arithmetic})"
        said.append(f"{step.phase}: {LIMITS[step.bound]}{where}, {step.nominal_time_s / step.time_s:.0%} of the roof")
    return f"{series_name(r, one)}: {', '.join(said)}" if several else "; ".join(said)


def _ceilings(r: RooflineResult) -> Section:
    return Section("Ceilings", ("", "nominal", "as reached", "ridge", "ridge as reached"), tuple(_ceiling_rows(r)))


def _ceiling_rows(r: RooflineResult) -> Iterator[Row]:
    for one in r.series:
        whose = f"{series_name(r, one)}: " if len(r.series) > 1 else ""
        for ceiling in (one.roof.memory, *one.roof.further):
            reached = "" if ceiling.calibrated is None else show_bandwidth(ceiling.calibrated)
            yield (whose + ceiling.name, show_bandwidth(ceiling.nominal), reached, "", "")
        for ceiling in r.drawn(one):
            reached = "" if ceiling.calibrated is None else show_compute(ceiling.calibrated)
            calibrated = one.roof.ridge(ceiling, calibrated=True)
            yield (
                f"{whose}{ceiling.name}{'' if ceiling.used else ' (not used)'}",
                show_compute(ceiling.nominal),
                reached,
                f"{one.roof.ridge(ceiling):,.1f} FLOP/B",
                "" if calibrated is None else f"{calibrated:,.1f} FLOP/B",
            )


def _steps(r: RooflineResult) -> Section:
    header = ("", "FLOP/B", "as reached", "time", "nominal", "binds")
    return Section("Whole steps", header, tuple(_step_rows(r)))


def _step_rows(r: RooflineResult) -> Iterator[Row]:
    for one in r.series:
        whose = f"{series_name(r, one)}: " if len(r.series) > 1 else ""
        told = {step.batch for step in one.steps}
        for step in (*one.steps, *(step for step in one.path if step.batch not in told)):
            yield (
                whose + ("prefill" if step.phase == "prefill" else f"decode, batch {step.batch:g}"),
                show_rate(step.intensity),
                show_compute(step.flop_per_s),
                show_time(step.time_s),
                show_time(step.nominal_time_s),
                LIMITS[step.bound],
            )


def _operators(r: RooflineResult, one: Series, phase: Phase) -> Section:
    """The operators of a step by their time; the host's is what is left."""
    whose = f", {series_name(r, one)}" if len(r.series) > 1 else ""
    points = sorted((p for p in one.operators if p.phase == phase), key=lambda point: -point.share)
    rows = [_operator(point) for point in points]
    step = next(step for step in one.steps if step.phase == phase)
    rest = 1 - sum(point.share for point in points)
    if rest > _FEW:
        rows.append(("host", "", "", show_time(rest * step.time_s), f"{rest:.1%}", ""))
    header = ("", "FLOP/B", "as reached", "time", "share", "binds")
    return Section(f"Operators of {phase}{whose}", header, tuple(rows))


def _operator(point: OperatorPoint) -> Row:
    return (
        point.name,
        show_rate(point.intensity) if point.has_place else "",
        show_compute(point.flop_per_s) if point.has_place else "",
        show_time(point.time_s),
        f"{point.share:.1%}",
        LIMITS[point.bound],
    )


def _measured(r: RooflineResult) -> Section:
    rows = tuple(
        (
            show(point.name),
            show_rate(point.intensity),
            show_compute(point.flop_per_s),
            f"{point.flop_per_s / r.attainable(point.intensity):.0%}",
        )
        for point in r.measured
    )
    return Section("Measured", ("", "FLOP/B", "measured", "of the roof"), rows)
