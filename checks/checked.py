"""One service under check: its deployment, its plan and its step model, each built when a rule first asks for it.

Rules ask for what they need and are skipped where it cannot be built: what stands in the way (an unknown model, a layout that does not
divide) is a finding of the rule that is about it. Services of equal engine and options share what is built (:mod:`.plans`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

from .. import engines
from ..api.deployments import key_of
from ..errors import DomainError, RoofplanError
from ..planner.fitting import reason_against
from .launcher_spec import launcher_of
from .plans import Unbuilt, plan_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..engines.profile import EngineProfile
    from ..hardware.spec import HardwareSpec
    from ..models.spec import ModelSpec
    from ..planner.deployment import Deployment
    from ..planner.fitting import Reason
    from ..planner.memory import Capacity, MemoryPlan
    from ..planner.sizing import SizeResult
    from ..planner.step import StepModel
    from .launcher_spec import Launcher
    from .plans import Plan
    from .record import Service

T = TypeVar("T")

__all__ = ["Checked", "Unbuilt"]


class Checked:
    """One service and what follows from it.

    Parameters
    ----------
    service : as it was read
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self._plan = plan_of(service)

    @property
    def _planned(self) -> Plan:
        """The plan, unless it would be one of another deployment."""
        if self.hindrance is not None:
            raise Unbuilt
        return self._plan

    @property
    def hindrance(self) -> RoofplanError | None:
        """Why nothing is planned though everything is known: an option whose value cannot be told, or a part of the model elsewhere."""
        on_host = self.service.features.get("partly_on_host")
        if on_host is not None:
            got, wanted = on_host.text or "a part of the model in the host's memory", "all of it on devices"
            return DomainError("weights", got=got, wanted=wanted, hint="what stays in the host's memory is not planned")
        return next(iter(self.service.lost.values()), None)

    @property
    def built(self) -> Deployment | RoofplanError:
        """The deployment, or the error that its names, layout or settings give, or what keeps it from being planned."""
        return self.hindrance or self._plan.built

    @property
    def named_model(self) -> ModelSpec | RoofplanError:
        """The model, whatever else is wrong, or the error that its name gives."""
        return self._plan.model

    @property
    def named_hardware(self) -> HardwareSpec | RoofplanError:
        """The device, whatever else is wrong, or the error that its name gives; where no option names one, that of the pod."""
        return self._plan.hardware

    @property
    def model(self) -> ModelSpec:
        """The model, whatever else is wrong.

        Raises
        ------
        Unbuilt : where it is not known
        """
        return _known(self.named_model)

    @property
    def hardware(self) -> HardwareSpec:
        """The device, whatever else is wrong.

        Raises
        ------
        Unbuilt : where it is not known
        """
        return _known(self.named_hardware)

    @property
    def deployment(self) -> Deployment:
        """The deployment.

        Raises
        ------
        Unbuilt : where there is none
        """
        return self._planned.deployment

    @property
    def memory(self) -> MemoryPlan:
        """What the memory of a device holds."""
        return self._planned.memory

    @property
    def capacity(self) -> Capacity:
        """How many sequences and tokens the cache holds."""
        return self._planned.capacity

    @property
    def reason(self) -> Reason | None:
        """Why the sequences of the workload do not all run at their full length; None when they do."""
        return reason_against(self.deployment, self.memory, self.capacity)

    @property
    def plan(self) -> SizeResult:
        """The whole answer of ``roofplan size``: memory, capacity and times."""
        return self._planned.sizing

    @property
    def steps(self) -> StepModel:
        """The step model, as reached."""
        return self._planned.steps

    def once(self, name: str, build: Callable[[], T]) -> T:
        """What ``build`` gives, made once for all services of equal engine and options.

        It must follow from :attr:`deployment` alone; what else it depends on belongs into the name (``price 2.5``). None is no result.

        Raises
        ------
        Unbuilt : where it ends with an error of roofplan's
        """
        return self._planned.once(name, build)

    @functools.cached_property
    def engine(self) -> EngineProfile:
        """The engine's profile; the plain one where the engine is unknown."""
        try:
            return engines.load(self.service.engine.value)
        except RoofplanError:
            return engines.load("plain")

    @functools.cached_property
    def launcher(self) -> Launcher | None:
        """What is known of the engine's command lines and processes; None for an engine without a launcher file."""
        return launcher_of(self.engine.engine)

    def feature(self, name: str, default: Any = None) -> Any:
        """A feature's value, or what holds where nothing is said."""
        said = self.service.features.get(name)
        return default if said is None else said.value

    @property
    def promises_fit(self) -> bool:
        """Whether the file says that all sequences of the workload fit (``fits: true`` among its limits)."""
        said = self.service.limits.get("fits")
        return said is not None and said.value is True

    def option_of(self, error: RoofplanError) -> str:
        """The option, or ``engine``, that an error of the planner is about; empty where that is unclear."""
        return key_of(error, {**self.service.plain_options(), "engine": self.service.engine.value})


def _known(found: T | RoofplanError) -> T:
    if isinstance(found, RoofplanError):
        raise Unbuilt
    return found
