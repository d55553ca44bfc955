"""Plans of what is described: built when they are first asked for, and once for all services that say the same."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .. import hardware, models
from ..api.building import deployment
from ..api.options import DEFAULT_OUTPUT, DEFAULT_PROMPT
from ..errors import RoofplanError
from ..planner.memory import Capacity, MemoryPlan, plan_capacity, plan_memory
from ..planner.sizing import SizeResult, size_deployment
from ..planner.step import StepModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..api.options import Options
    from ..hardware.spec import HardwareSpec
    from ..models.spec import ModelSpec
    from ..planner.deployment import Deployment
    from .record import Service

T = TypeVar("T")
_MOST_KEPT = 128
_MOST_OFFLOADED = 2**63  # bytes


class Unbuilt(Exception):  # noqa: N818  # no error: a rule ends quietly when what it needs is not there
    """What a rule asked for cannot be built; the rules about the cause report it."""


class Plan:
    """What follows from the engine and the options of a service.

    Parameters
    ----------
    engine : profile, with a version where one is said
    options : what :func:`roofplan.api.deployment` takes, by those names, and ``model`` and ``hardware``
    offloaded_bytes : weights of each device that are kept in the host's memory
    """

    def __init__(self, engine: str, options: dict[str, Any], offloaded_bytes: int = 0) -> None:
        self._engine = engine
        self._options = options
        self._offloaded_bytes = offloaded_bytes
        self._kept: dict[str, Any] = {}

    @functools.cached_property
    def built(self) -> Deployment | RoofplanError:
        """The deployment, or the error that its names, layout or settings give."""
        if isinstance(self.model, RoofplanError):
            return self.model
        if isinstance(self.hardware, RoofplanError):
            return self.hardware
        options = {name: value for name, value in self._options.items() if name not in {"model", "hardware"}}
        options = {"engine": self._engine, **usual_workload(options), **options}
        try:
            return self._without_offloaded(deployment(self.model, self.hardware, **cast("Options", options)))
        except RoofplanError as error:
            return error

    @functools.cached_property
    def model(self) -> ModelSpec | RoofplanError:
        """The model's spec, or the error that its name gives."""
        return _named("model", self._options.get("model"), models.load)

    @functools.cached_property
    def hardware(self) -> HardwareSpec | RoofplanError:
        """The device's spec, or the error that its name gives."""
        return _named("hardware", self._options.get("hardware"), hardware.load)

    def _without_offloaded(self, d: Deployment) -> Deployment:
        if not self._offloaded_bytes:
            return d
        kept = max(0, plan_memory(d).weights_bytes - d.memory.beside_bytes - self._offloaded_bytes)
        return replace(d, memory=replace(d.memory, weights_bytes=kept))

    @property
    def deployment(self) -> Deployment:
        """The deployment.

        Raises
        ------
        Unbuilt : where there is none
        """
        if isinstance(self.built, RoofplanError):
            raise Unbuilt
        return self.built

    @functools.cached_property
    def memory(self) -> MemoryPlan:
        """What the memory of a device holds."""
        return self._made(lambda: plan_memory(self.deployment))

    @functools.cached_property
    def capacity(self) -> Capacity:
        """How many sequences and tokens the cache holds."""
        return self._made(lambda: plan_capacity(self.deployment, self.memory))

    @functools.cached_property
    def sizing(self) -> SizeResult:
        """The whole answer of ``roofplan size``: memory, capacity and times."""
        return self._made(lambda: size_deployment(self.deployment))

    @functools.cached_property
    def steps(self) -> StepModel:
        """The step model, as reached."""
        if not self.deployment.hardware.has_rates or self.deployment.kernels is None:
            raise Unbuilt
        return self._made(lambda: StepModel.reached(self.deployment))

    def once(self, name: str, build: Callable[[], T]) -> T:
        """What ``build`` gives, made once under a name.

        Raises
        ------
        Unbuilt : where it ends with an error of roofplan's, now and whenever it is asked for again
        """
        if name not in self._kept:
            try:
                self._kept[name] = build()
            except (RoofplanError, Unbuilt):
                self._kept[name] = None
                raise Unbuilt from None
        if self._kept[name] is None:
            raise Unbuilt
        kept: T = self._kept[name]
        return kept

    @staticmethod
    def _made(build: Callable[[], T]) -> T:
        try:
            return build()
        except RoofplanError as error:
            raise Unbuilt from error


_plans: dict[tuple[Any, ...], Plan] = {}


def plan_of(service: Service) -> Plan:
    """The plan of a service; the same one for services whose engine and options are equal."""
    options = service.plain_options()
    if service.pod.hardware is not None:
        options.setdefault("hardware", service.pod.hardware.value)
    offloaded = offloaded_bytes(service)
    key = (service.engine.value, offloaded, *sorted((name, repr(value)) for name, value in options.items()))
    plan = _plans.pop(key, None) or Plan(service.engine.value, options, offloaded)
    _plans[key] = plan  # the newest last
    while len(_plans) > _MOST_KEPT:
        del _plans[next(iter(_plans))]
    return plan


def offloaded_bytes(service: Service) -> int:
    """Weights of each device that are kept in the host's memory; what cannot be such a number is as good as left out."""
    said = service.features.get("cpu_offload_bytes")
    is_size = said is not None and isinstance(said.value, (int, float)) and 0 < said.value <= _MOST_OFFLOADED
    return int(said.value) if said is not None and is_size else 0


def forget() -> None:
    """Drop the plans that are kept: files of models or devices may have changed."""
    _plans.clear()


def _named(what: str, name: Any, load: Callable[[str], T]) -> T | RoofplanError:
    if not name or name == "-":  # a file has no standard input
        return RoofplanError(what, got="nothing", wanted="a name")
    try:
        return load(str(name))
    except RoofplanError as error:
        return error


def usual_workload(options: dict[str, Any]) -> dict[str, int]:
    """The parts of the default workload that are not said, in the same proportion within the longest sequence, where that is shorter."""
    limit, prompt, output = (options.get(name) for name in ("max_model_len", "prompt", "output"))
    if not isinstance(limit, int) or (prompt is not None and output is not None):
        return {}
    if prompt is None and output is None:
        whole = min(limit, DEFAULT_PROMPT + DEFAULT_OUTPUT)
        last = max(1, whole * DEFAULT_OUTPUT // (DEFAULT_PROMPT + DEFAULT_OUTPUT))
        return {"prompt": max(1, whole - last), "output": last}
    if isinstance(prompt, int):
        return {"output": max(1, min(DEFAULT_OUTPUT, limit - prompt))}
    return {"prompt": max(1, min(DEFAULT_PROMPT, limit - output))} if isinstance(output, int) else {}
