"""A deployment on the roofline: its ceilings, its operators as points, and its steps with batches that climb the slope.

A point stands at its intensity (FLOP over bytes of memory traffic) and at the rate that it reaches (FLOP over its time with the kernels as
they are reached); its nominal time is what the roof allows. Work without FLOP (look-ups, exchanges, the host) has no place on logarithmic
axes: it keeps its share of the time.

Sources: Williams, Waterman, Patterson 2009 (the roof; ceilings below it); formulas F1.1 to F1.3, F1.8. Calibrated ceilings are the nominal
ones times the shares that kernels reach (``hardware/kernels``). Left out: ceilings of single kernels, and bytes that caches save.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ..errors import DomainError
from ..hardware.achieved import choose
from ..hardware.spec import ARITHMETIC_TYPES
from .costs import ActivationTraffic, Collective, Load, Scores
from .formats import main_class
from .memory import plan_capacity, plan_memory
from .notices import main_arithmetic
from .reached import reached_model
from .roofline import attainable_flop_per_s, ridge_point
from .step import StepModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..hardware.achieved import Kernels
    from ..hardware.spec import HardwareSpec
    from .costs import Bottleneck, Operator
    from .deployment import Deployment
    from .streams import StreamModel

Phase = Literal["prefill", "decode"]
Further = Literal["cache", "link", "host"]
PHASES: tuple[Phase, ...] = get_args(Phase)
FURTHER: tuple[Further, ...] = get_args(Further)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One ceiling: FLOP per second of an arithmetic type, or bytes per second of memory, cache or a link.

    ``calibrated`` is what kernels reach of it, None where nobody measured it; ``used`` tells whether products or attention of the
    deployment are computed in it.
    """

    kind: Literal["compute", "memory"] | Further
    name: str
    nominal: float
    calibrated: float | None
    used: bool = True


@dataclass(frozen=True, slots=True)
class Roof:
    """The ceilings of one device: memory, each arithmetic type, and those that were asked for besides."""

    memory: Ceiling
    compute: tuple[Ceiling, ...]
    further: tuple[Ceiling, ...] = ()

    def ridge(self, compute: Ceiling, *, calibrated: bool = False) -> float | None:
        """Ridge of an arithmetic type in FLOP per byte, F/W (formula F1.1); of the calibrated roof e_c F / (e_m W) (F1.2)."""
        if not calibrated:
            return ridge_point(compute.nominal, self.memory.nominal)
        if compute.calibrated is None or self.memory.calibrated is None:
            return None
        return ridge_point(compute.calibrated, self.memory.calibrated)

    def attainable(self, intensity: float, arithmetic: str = "") -> float:
        """Rate under the nominal roof in FLOP/s, min(F, I W), of one arithmetic type or else of the fastest that is used (formula F1.2)."""
        named = [ceiling.nominal for ceiling in self.compute if ceiling.name == arithmetic]
        used = [ceiling.nominal for ceiling in self.compute if ceiling.used]
        return attainable_flop_per_s(intensity, max(named or used), self.memory.nominal)


@dataclass(frozen=True, slots=True)
class OperatorPoint:
    """One operator of one step, of all layers together.

    ``bytes`` are those of memory, of an exchange those on the link; ``nominal_time_s`` is the bound of the roof, ``share`` the part of the
    step's time, ``counted`` whether FLOP and bytes belong to the roofline of the step.
    """

    name: str
    phase: Phase
    arithmetic: str
    flop: float
    bytes: float
    time_s: float
    nominal_time_s: float
    bound: Bottleneck
    share: float
    counted: bool

    @property
    def intensity(self) -> float:
        """FLOP per byte; 0 where nothing is computed."""
        return self.flop / self.bytes if self.bytes else 0.0

    @property
    def flop_per_s(self) -> float:
        """Rate that is reached."""
        return self.flop / self.time_s if self.time_s else 0.0

    @property
    def has_place(self) -> bool:
        """Whether it can be drawn on logarithmic axes."""
        return self.intensity > 0 and self.flop_per_s > 0


@dataclass(frozen=True, slots=True)
class StepPoint:
    """A whole step: ``batch`` sequences that decode, or ``tokens`` of a prompt. FLOP and bytes are those of all its operators."""

    phase: Phase
    batch: float
    tokens: float
    flop: float
    bytes: float
    time_s: float
    nominal_time_s: float
    bound: Bottleneck

    @property
    def intensity(self) -> float:
        """FLOP per byte of memory traffic, activations included."""
        return self.flop / self.bytes

    @property
    def flop_per_s(self) -> float:
        """Rate that is reached."""
        return self.flop / self.time_s


@dataclass(frozen=True, slots=True)
class Series:
    """One deployment on the roofline: its roof, its operators, one step of each phase, and steps of several batches.

    ``most_sequences`` is what the cache of a replica holds at full length.
    """

    deployment: Deployment
    roof: Roof
    operators: tuple[OperatorPoint, ...]
    steps: tuple[StepPoint, ...]
    path: tuple[StepPoint, ...]
    most_sequences: int
    unknown: tuple[Further, ...]  # ceilings that were asked for, of which the device says nothing
    by_kernels: bool  # operators are timed by kernels, though the engine launches layers (streams)

    @property
    def arithmetic(self) -> str:
        """Arithmetic type of most of the work."""
        return main_arithmetic(self.deployment)


def series_of(
    d: Deployment,
    batches: Sequence[int] = (),
    phases: Sequence[Phase] = PHASES,
    further: Sequence[Further] = (),
) -> Series:
    """Put a deployment on the roofline.

    Parameters
    ----------
    batches : sequences of the decode steps of the path, at the workload's mean context
    phases : which steps are looked at; a prefill step holds one prompt, or as much of it as the engine takes at once
    further : ceilings besides memory and compute

    Raises
    ------
    DomainError : for a device of which no dense rate is known
    """
    if not d.hardware.has_rates:
        wanted = "a device with one: a roof has no top without it"
        raise DomainError(f"{d.hardware.name}.peak", got="no dense rate", wanted=wanted)
    nominal = StepModel.of(d)
    kernels = nominal if d.kernels is None else StepModel.reached(d)
    reached = reached_model(d)
    operators: list[OperatorPoint] = []
    steps: list[StepPoint] = []
    for phase in phases:
        step, points = _step(d, nominal, kernels, reached, phase, None)
        steps.append(step)
        operators += points
    path = tuple(_step(d, nominal, kernels, reached, "decode", batch)[0] for batch in batches)
    ceilings = [(kind, tuple(_further(d.hardware, kind))) for kind in further]
    return Series(
        deployment=d,
        roof=Roof(
            _memory(d),
            tuple(_compute(d, {o.arithmetic for o in nominal.operators if o.part not in {"elementwise", "link"}})),
            tuple(ceiling for _, known in ceilings for ceiling in known),
        ),
        operators=tuple(operators),
        steps=tuple(steps),
        path=path,
        most_sequences=plan_capacity(d, plan_memory(d)).max_concurrency // d.layout.dp,
        unknown=tuple(kind for kind, known in ceilings if not known),
        by_kernels=not isinstance(reached, StepModel),
    )


def _step(
    d: Deployment,
    nominal: StepModel,
    kernels: StepModel,
    reached: StepModel | StreamModel,
    phase: Phase,
    batch: int | None,
) -> tuple[StepPoint, list[OperatorPoint]]:
    load = _load(d, phase, batch)
    held = {"chunk": load.chunk, "past": load.past}
    time_s = float(reached.step_s(load.decoders, load.context, **held))
    points = list(_points(nominal, kernels, load, phase, time_s))
    counted = [point for point in points if point.counted]
    step = StepPoint(
        phase=phase,
        batch=float(load.decoders),
        tokens=float(load.tokens),
        flop=sum(point.flop for point in counted),
        bytes=sum(point.bytes for point in counted),
        time_s=time_s,
        nominal_time_s=float(nominal.step_s(load.decoders, load.context, **held)),
        bound=reached.bottleneck(load),
    )
    return step, points


def _load(d: Deployment, phase: Phase, batch: int | None) -> Load:
    """A decode step of so many sequences (else of what runs at the asked concurrency), or one prompt up to the tokens of a step."""
    if phase == "prefill":
        return Load(0, 0, chunk=min(d.workload.prompt, d.max_batched_tokens))
    running = max(1.0, d.sequences_per_replica / d.layout.pp)
    return Load(running if batch is None else float(batch), d.workload.mean_context)


def _points(nominal: StepModel, kernels: StepModel, load: Load, phase: Phase, step_s: float) -> Iterator[OperatorPoint]:
    """The operators of a step, one by one: each is a step model of its own."""
    found = []
    for operator, name, reached_time, nominal_time in zip(
        nominal.operators, _names(nominal.operators), kernels.times, nominal.times, strict=True
    ):
        for cost in StepModel((operator,), (reached_time,)).costs(load):
            bound_s = sum(bound.time_s for bound in StepModel((operator,), (nominal_time,)).costs(load))
            found.append((operator, name, cost, bound_s))
    total = max(step_s, sum(cost.time_s for _, _, cost, _ in found))
    for operator, name, cost, bound_s in found:
        yield OperatorPoint(
            name=name,
            phase=phase,
            arithmetic=operator.arithmetic,
            flop=float(cost.flop),
            bytes=float(cost.bytes_moved),
            time_s=cost.time_s,
            nominal_time_s=bound_s,
            bound=cost.bound,
            share=cost.time_s / total if total else 0.0,
            counted=not isinstance(operator, (Collective, ActivationTraffic)),
        )


def _names(operators: Iterable[Operator]) -> list[str]:
    """Names that tell operators of a phase apart: what attention keeps, then a number."""
    seen: dict[tuple[str, str], int] = {}
    names = []
    for operator in operators:
        phase = getattr(operator, "phase", "")
        name = operator.name.removesuffix(f" {phase}")
        if isinstance(operator, Scores):
            name += _kept(operator)
        seen[phase, name] = seen.get((phase, name), 0) + 1
        names.append(name if seen[phase, name] == 1 else f"{name} {seen[phase, name]}")
    return names


def _kept(scores: Scores) -> str:
    if scores.fixed is not None:
        return f" (over {scores.fixed:,})"
    if scores.cap == scores.kept == float("inf"):
        return f" (1 in {scores.every})" if scores.every > 1 else ""
    return f" (window {scores.kept:,.0f})" if scores.cap == scores.kept else f" (at most {scores.cap:,.0f})"


def _memory(d: Deployment) -> Ceiling:
    """Bandwidth, and the largest share of it that a kernel reaches which reads weights or cache in this deployment."""
    bandwidth = d.hardware.memory.bandwidth
    share = None if d.kernels is None else bandwidth_share(d, d.kernels)
    calibrated = None if share is None else share * bandwidth
    return Ceiling("memory", d.hardware.memory.technology or "memory", bandwidth, calibrated)


def bandwidth_share(d: Deployment, kernels: Kernels) -> float:
    """Largest share of the bandwidth that products, decode attention or routed experts of a deployment reach."""
    main, expert_bits = main_arithmetic(d), d.formats.weights["experts"].bits
    readers = [
        choose(kernels.gemm, main),
        choose(kernels.decode_attention, d.formats.attention_arithmetic(d.hardware), d.formats.kv.bits),
    ]
    if main_class(d.model) == "experts":
        readers.append(choose(kernels.experts, main, expert_bits))
    return max(kernel.bandwidth for kernel in readers)


def _compute(d: Deployment, used: set[str]) -> Iterator[Ceiling]:
    """Dense peak of each arithmetic type of the device, and the share of it that large products reach."""
    for arithmetic in ARITHMETIC_TYPES:
        rate = d.hardware.peak.rate(arithmetic)
        if rate is not None:
            share = None if d.kernels is None else choose(d.kernels.gemm, arithmetic).compute
            yield Ceiling("compute", arithmetic, rate, None if share is None else share * rate, arithmetic in used)


def _further(hardware: HardwareSpec, kind: Further) -> Iterator[Ceiling]:
    """Other ways of bytes to the arithmetic units: the device's cache, links to other devices, the way to the host."""
    if kind == "cache":
        if hardware.units.cache_bandwidth is not None:
            yield Ceiling("cache", "L2 cache", hardware.units.cache_bandwidth, None)
        return
    for link in hardware.links:
        if (link.topology == "host") == (kind == "host"):
            yield Ceiling(kind, link.name, link.per_direction, None)
