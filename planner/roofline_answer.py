"""The answer of ``roofplan roofline``: ceilings, operators and steps of one or several deployments, and measured points beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..quantities import BYTES, show_bandwidth, show_bytes, show_compute, show_flop, show_quantity, show_time
from .notices import device_assumption, kernel_assumptions, warnings_of
from .results import Answer, Assumption, Explanation, Notice
from .roofline_points import PHASES, Ceiling, OperatorPoint, Phase, Series, StepPoint, series_of
from .sizing import deployment_inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .deployment import Deployment
    from .roofline_points import Further

_ABOVE = 1.001  # of the roof: measurements are printed with few digits
_FURTHER_NAMES = {
    "cache": "bandwidth of the cache",
    "link": "link to other devices",
    "host": "link to the host",
}
COLUMNS = (
    "kind",
    "hardware",
    "weights",
    "phase",
    "name",
    "arithmetic",
    "batch",
    "flop",
    "bytes",
    "intensity",
    "time_s",
    "flop_per_s",
    "nominal_time_s",
    "share",
    "bound",
)


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """What somebody measured: FLOP per byte of memory traffic, and FLOP per second."""

    name: str
    intensity: float
    flop_per_s: float


@dataclass(frozen=True, slots=True)
class RooflineResult(Answer):
    """Deployments on the roofline, in the order in which they were asked for; all serve the same model and workload."""

    series: tuple[Series, ...]
    phases: tuple[Phase, ...]
    batches: tuple[int, ...] = ()
    measured: tuple[MeasuredPoint, ...] = ()
    arithmetic: tuple[str, ...] = ()  # types whose roofs are drawn; empty: those that operators use

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "roofline"

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What holds for the deployments, ceilings that are not known, batches that do not fit, and measurements above the roof."""
        said = [notice for one in self.series for notice in (*warnings_of(one.deployment), *_remarks(one))]
        said += [notice for point in self.measured for notice in self._above_roof(point)]
        return tuple(dict.fromkeys(said))

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Rates of the devices, and what kernels and engines are taken to reach."""
        return tuple(dict.fromkeys(entry for one in self.series for entry in _assumptions(one)))

    def attainable(self, intensity: float) -> float:
        """Rate under the highest of the nominal roofs, in FLOP/s."""
        return max(one.roof.attainable(intensity) for one in self.series)

    def drawn(self, one: Series) -> tuple[Ceiling, ...]:
        """The compute ceilings of a series that are drawn: as asked for, else those that its operators use."""
        return tuple(
            ceiling
            for ceiling in one.roof.compute
            if (ceiling.name in self.arithmetic if self.arithmetic else ceiling.used)
        )

    def inputs(self) -> dict[str, Any]:
        """What was asked: that of the first deployment, and what differs between them as lists."""
        return {
            **deployment_inputs(self.series[0].deployment),
            "hardware": list(dict.fromkeys(one.deployment.hardware.name for one in self.series)),
            "weights": list(dict.fromkeys(one.deployment.formats.name for one in self.series)),
            "activations": list(dict.fromkeys(one.deployment.formats.activations.name for one in self.series)),
            "batches": self.batches,
            "phases": self.phases,
        }

    def figures(self) -> dict[str, Any]:
        """What was found, in the shape that scripts rely on."""
        return {
            "ceilings": [{**_whose(one), **row} for one in self.series for row in _ceilings(one)],
            "operators": [{**_whose(one), **_operator(point)} for one in self.series for point in one.operators],
            "steps": [{**_whose(one), **row} for one in self.series for row in _steps(one)],
            "measured": [
                {
                    "name": point.name,
                    "intensity": point.intensity,
                    "flop_per_s": point.flop_per_s,
                    "attainable_flop_per_s": self.attainable(point.intensity),
                }
                for point in self.measured
            ],
        }

    def table(self) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
        """All points as rows: operators, whole steps, steps of the path, and measured ones."""
        rows: list[dict[str, Any]] = []
        for one in self.series:
            rows += [{"kind": "operator", **_whose(one), **_operator(point)} for point in one.operators]
            rows += [{"kind": "step", "name": "", **_whose(one), **row} for row in _steps(one)]
        rows += [
            {"kind": "measured", "name": point.name, "intensity": point.intensity, "flop_per_s": point.flop_per_s}
            for point in self.measured
        ]
        return COLUMNS, rows

    def explain(self) -> tuple[Explanation, ...]:
        """How ridges, operators and steps came about."""
        return tuple(line for one in self.series for line in _explained(one))

    def _above_roof(self, point: MeasuredPoint) -> Iterator[Notice]:
        roof = self.attainable(point.intensity)
        if point.flop_per_s > roof * _ABOVE:
            said = f"{show_compute(point.flop_per_s)} are above the roof, {show_compute(roof)} at {point.intensity:g} FLOP/B"
            hint = "bytes that a cache served, a sparse or narrower arithmetic, or a wrong count"
            yield Notice("measured_above_roof", f"{point.name}: {said}: {hint}")


def roofline_of(
    deployments: Iterable[Deployment],
    *,
    batches: Sequence[int] = (),
    phases: Sequence[Phase] = PHASES,
    further: Sequence[Further] = (),
    measured: Sequence[MeasuredPoint] = (),
    arithmetic: Sequence[str] = (),
) -> RooflineResult:
    """Put deployments on one roofline.

    Parameters
    ----------
    batches : sequences of the decode steps that make the path
    phases : which steps are looked at
    further : ceilings besides memory and compute
    measured : points that were measured
    arithmetic : arithmetic types whose roofs are drawn; empty for those that operators use

    Raises
    ------
    DomainError : for a device of which no dense rate is known
    """
    series = tuple(series_of(d, batches, phases, further) for d in deployments)
    return RooflineResult(series, tuple(phases), tuple(batches), tuple(measured), tuple(arithmetic))


def _whose(one: Series) -> dict[str, str]:
    return {"hardware": one.deployment.hardware.name, "weights": one.deployment.formats.name}


def _ceilings(one: Series) -> Iterator[dict[str, Any]]:
    """Compute ceilings with their ridges, then those of bandwidth; what a kind does not have is null."""
    for ceiling in one.roof.compute:
        yield {
            "kind": ceiling.kind,
            "name": ceiling.name,
            "used": ceiling.used,
            "nominal_flop_per_s": ceiling.nominal,
            "calibrated_flop_per_s": ceiling.calibrated,
            "nominal_bytes_per_s": None,
            "calibrated_bytes_per_s": None,
            "ridge_flop_per_byte": one.roof.ridge(ceiling),
            "calibrated_ridge_flop_per_byte": one.roof.ridge(ceiling, calibrated=True),
        }
    for ceiling in (one.roof.memory, *one.roof.further):
        yield {
            "kind": ceiling.kind,
            "name": ceiling.name,
            "used": ceiling.used,
            "nominal_flop_per_s": None,
            "calibrated_flop_per_s": None,
            "nominal_bytes_per_s": ceiling.nominal,
            "calibrated_bytes_per_s": ceiling.calibrated,
            "ridge_flop_per_byte": None,
            "calibrated_ridge_flop_per_byte": None,
        }


def _operator(point: OperatorPoint) -> dict[str, Any]:
    return {
        "name": point.name,
        "phase": point.phase,
        "arithmetic": point.arithmetic,
        "flop": point.flop,
        "bytes": point.bytes,
        "intensity": point.intensity,
        "time_s": point.time_s,
        "flop_per_s": point.flop_per_s,
        "nominal_time_s": point.nominal_time_s,
        "share": point.share,
        "bound": point.bound,
    }


def _steps(one: Series) -> Iterator[dict[str, Any]]:
    for on_path, steps in ((False, one.steps), (True, one.path)):
        for step in steps:
            yield {
                "phase": step.phase,
                "on_path": on_path,
                "batch": step.batch,
                "tokens": step.tokens,
                "flop": step.flop,
                "bytes": step.bytes,
                "intensity": step.intensity,
                "time_s": step.time_s,
                "flop_per_s": step.flop_per_s,
                "nominal_time_s": step.nominal_time_s,
                "bound": step.bound,
            }


def _remarks(one: Series) -> Iterator[Notice]:
    d = one.deployment
    for kind in one.unknown:
        known = (
            f" (only its size, {show_quantity(d.hardware.units.cache, BYTES)})"
            if kind == "cache" and d.hardware.units.cache
            else ""
        )
        message = f"no {_FURTHER_NAMES[kind]} of {d.hardware.name} is known{known}: no such ceiling is drawn"
        yield Notice("ceiling_unknown", message)
    largest = max([*(step.batch for step in one.path), *(step.batch for step in one.steps)]) * d.layout.pp
    if largest > one.most_sequences:
        message = (
            f"{largest:,.0f} sequences of {d.workload.length:,} tokens do not fit in {d.hardware.name}"
            f" with {d.formats.name} weights: at most {one.most_sequences:,} do"
        )
        yield Notice("batch_exceeds_memory", message)
    if one.by_kernels:
        message = (
            f"{d.engine.engine} was measured by whole steps: its operators are drawn with the kernels of the device's family,"
            " its steps as they are reached"
        )
        yield Notice("operators_by_kernels", message)


def _assumptions(one: Series) -> Iterator[Assumption]:
    d = one.deployment
    yield device_assumption(d, "memory.bandwidth", d.hardware.memory.bandwidth)
    for ceiling in one.roof.compute:
        if ceiling.used:
            yield device_assumption(d, f"peak.{ceiling.name}", ceiling.nominal)
    for ceiling in one.roof.further:
        if ceiling.kind == "cache":
            yield device_assumption(d, "units.cache_bandwidth", ceiling.nominal)
    yield from kernel_assumptions(d)


def _explained(one: Series) -> Iterator[Explanation]:
    d, roof = one.deployment, one.roof
    where = f"{d.hardware.name}, {d.formats.name}"
    bandwidth = device_assumption(d, "memory.bandwidth", roof.memory.nominal)
    for ceiling in roof.compute:
        if ceiling.used:
            peak = device_assumption(d, f"peak.{ceiling.name}", ceiling.nominal)
            yield Explanation(
                f"ridge of {ceiling.name} ({where})",
                _ridges(one, ceiling),
                "F / W at nominal rates, e_c F / (e_m W) of what kernels reach (F1.1, F1.2; Williams, Waterman, Patterson 2009)",
                _ridge_numbers(one, ceiling),
                (
                    (f"dense {ceiling.name} peak", show_compute(ceiling.nominal), f"{peak.kind}, {peak.source}"),
                    ("bandwidth", show_bandwidth(roof.memory.nominal), f"{bandwidth.kind}, {bandwidth.source}"),
                ),
            )
    for point in one.operators:
        yield _explained_operator(one, point, where)
    for step in (*one.steps, *one.path):
        yield _explained_step(step, where)


def _ridges(one: Series, ceiling: Ceiling) -> str:
    calibrated = one.roof.ridge(ceiling, calibrated=True)
    reached = "" if calibrated is None else f"; as reached {calibrated:.1f} FLOP/B"
    return f"{one.roof.ridge(ceiling):.1f} FLOP/B{reached}"


def _ridge_numbers(one: Series, ceiling: Ceiling) -> str:
    memory = one.roof.memory
    numbers = f"{show_compute(ceiling.nominal)} / {show_bandwidth(memory.nominal)}"
    if ceiling.calibrated is None or memory.calibrated is None:
        return numbers
    return f"{numbers}; {show_compute(ceiling.calibrated)} / {show_bandwidth(memory.calibrated)}"


def _explained_operator(one: Series, point: OperatorPoint, where: str) -> Explanation:
    name = f"{point.name} in {point.phase} ({where})"
    shown = f"{show_time(point.time_s)}, {point.share:.1%} of the step"
    moved = f"{show_flop(point.flop)}, {show_bytes(point.bytes)}"
    if not point.has_place:
        return Explanation(name, shown, "time without FLOP: no place on logarithmic axes", moved, binds=point.bound)
    roof = one.roof.attainable(point.intensity, point.arithmetic)
    return Explanation(
        name,
        f"{shown}: {show_compute(point.flop_per_s)} at {point.intensity:,.4g} FLOP/B",
        "FLOP / time under min(F, I W), I = FLOP / bytes (F1.2); time = fixed + FLOP / (e_c F) (+)_p bytes / (e_m W) (F1.3)",
        f"{moved}; roof {show_compute(roof)}, nominal time {show_time(point.nominal_time_s)}",
        binds=point.bound,
    )


def _explained_step(step: StepPoint, where: str) -> Explanation:
    held = f"{step.tokens:,.0f} tokens of a prompt" if step.phase == "prefill" else f"{step.batch:g} sequences"
    return Explanation(
        f"{step.phase} step of {held} ({where})",
        f"{show_time(step.time_s)}: {show_compute(step.flop_per_s)} at {step.intensity:,.4g} FLOP/B",
        "FLOP and bytes of all operators; time = sum of theirs + exchanges + host",
        f"{show_flop(step.flop)} / {show_bytes(step.bytes)}; nominal time {show_time(step.nominal_time_s)}",
        binds=step.bound,
    )
