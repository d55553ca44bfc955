"""What a deployment reaches in the figures that people weigh levers by, and the gain from one such outcome to another.

Every figure comes from the functions that ``roofplan size`` uses: :func:`~roofplan.planner.memory.plan_capacity` for what the cache holds,
and :func:`~roofplan.planner.times.times_of` for times at the asked concurrency, so that a gain is the ratio of two sizings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args

from ..fitting import reason_against
from ..memory import plan_capacity, plan_memory
from ..reached import reached_model
from ..spending import usd_per_million_tokens
from ..step import StepModel
from ..times import times_of

if TYPE_CHECKING:
    from ..costs import Amount
    from ..deployment import Deployment
    from ..memory import MemoryPlan

Goal = Literal["ttft", "tpot", "throughput", "capacity", "cost"]
GOALS: tuple[Goal, ...] = get_args(Goal)
RATES: frozenset[Goal] = frozenset({"throughput", "capacity"})  # of which more is better
_MILLION = 1e6


class Steps(Protocol):
    """Anything that times a step, as :meth:`StepModel.step_s <roofplan.planner.step.StepModel.step_s>` does."""

    def step_s(
        self,
        decoders: Amount,
        context: Amount,
        *,
        verify: Amount = 1,
        chunk: Amount = 0,
        past: Amount = 0,
        pieces: Amount = 1,
        grouping: Any = "operators",
    ) -> Amount:
        """Time of one step in seconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is expected of a deployment at its asked concurrency; None where nothing can be timed.

    Parameters
    ----------
    ttft_s, tpot_s : time to first token in steady state, and per output token (None for an output of a single token)
    output_tokens_per_s : of all devices and users together
    max_concurrency : sequences at full length that all replicas hold
    devices, hardware, usd_per_hour : how many of which device, and the price of all of them (None where none is known)
    refused : why the sequences of the workload do not all run, as ``size`` says it; None when they do
    """

    ttft_s: float | None
    tpot_s: float | None
    output_tokens_per_s: float | None
    max_concurrency: int
    devices: int
    hardware: str
    usd_per_hour: float | None
    refused: str | None = None

    @property
    def usd_per_million_output_tokens(self) -> float | None:
        """Price of a million output tokens, p 1e6 / (3600 X) (formula F13.8); None where price or rate are unknown."""
        if self.usd_per_hour is None or not self.output_tokens_per_s:
            return None
        return usd_per_million_tokens(self.usd_per_hour, self.output_tokens_per_s)

    @property
    def device_s_per_million_output_tokens(self) -> float | None:
        """Seconds of one device that a million output tokens take: the cost where no price is known."""
        return self.devices * _MILLION / self.output_tokens_per_s if self.output_tokens_per_s else None

    def value(self, goal: Goal) -> float | None:
        """The figure that a goal is about."""
        return {
            "ttft": self.ttft_s,
            "tpot": self.tpot_s,
            "throughput": self.output_tokens_per_s,
            "capacity": self.max_concurrency,
            "cost": self.usd_per_million_output_tokens,
        }[goal]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in base units."""
        return {
            "ttft_s": self.ttft_s,
            "tpot_s": self.tpot_s,
            "output_tokens_per_s": self.output_tokens_per_s,
            "max_concurrency": self.max_concurrency,
            "devices": self.devices,
            "hardware": self.hardware,
            "usd_per_million_output_tokens": self.usd_per_million_output_tokens,
            "device_s_per_million_output_tokens": self.device_s_per_million_output_tokens,
            "refused": self.refused,
        }


@dataclass(frozen=True, slots=True)
class Gains:
    """How many times as good each figure gets: above one is better in all of them, None where one of both sides has no figure."""

    ttft: float | None
    tpot: float | None
    throughput: float | None
    capacity: float | None
    cost: float | None

    @classmethod
    def between(cls, before: Outcome, after: Outcome) -> Gains:
        """Old over new for times and cost, new over old for rates and room.

        Costs are compared in dollars; where a price is missing in device-seconds, but only between equal devices.
        """
        return cls(
            ttft=_ratio(before.ttft_s, after.ttft_s),
            tpot=_ratio(before.tpot_s, after.tpot_s),
            throughput=_ratio(after.output_tokens_per_s, before.output_tokens_per_s),
            capacity=_ratio(after.max_concurrency, before.max_concurrency),
            cost=_cost_ratio(before, after),
        )

    def of(self, goal: Goal) -> float | None:
        """The gain in one of the figures."""
        gain: float | None = getattr(self, goal)
        return gain


def _ratio(better: float | None, worse: float | None) -> float | None:
    return better / worse if better is not None and worse else None


def _cost_ratio(before: Outcome, after: Outcome) -> float | None:
    dollars = _ratio(before.usd_per_million_output_tokens, after.usd_per_million_output_tokens)
    if dollars is not None or before.hardware != after.hardware:
        return dollars
    return _ratio(before.device_s_per_million_output_tokens, after.device_s_per_million_output_tokens)


def outcome_of(
    d: Deployment,
    *,
    plan: MemoryPlan | None = None,
    nominal: Steps | None = None,
    reached: Steps | None = None,
) -> Outcome:
    """Evaluate a deployment; what a lever changes beside it may be given: its memory plan, and its step times.

    Raises
    ------
    SpecError : when the device has no rate for an arithmetic type that is needed
    """
    plan = plan_memory(d) if plan is None else plan
    capacity = plan_capacity(d, plan)
    places = capacity.max_concurrency // d.layout.dp
    empty = without_times(d, capacity.max_concurrency, reason_against(d, plan, capacity))
    if not places or not d.hardware.has_rates:
        return empty
    times = times_of(
        d,
        cast("StepModel", StepModel.of(d) if nominal is None else nominal),
        cast("StepModel", reached_model(d) if reached is None else reached),
        places,
    )
    latency = times.latency
    return Outcome(
        ttft_s=latency.ttft_s.expected,
        tpot_s=None if latency.tpot_s is None else latency.tpot_s.expected,
        output_tokens_per_s=times.throughput.output_tokens_per_s.expected,
        max_concurrency=empty.max_concurrency,
        devices=empty.devices,
        hardware=empty.hardware,
        usd_per_hour=empty.usd_per_hour,
        refused=empty.refused,
    )


def without_times(d: Deployment, max_concurrency: int, refused: str | None) -> Outcome:
    """The outcome of a deployment of which only the room is known."""
    price, devices = d.hardware.price, d.layout.devices
    return Outcome(
        ttft_s=None,
        tpot_s=None,
        output_tokens_per_s=None,
        max_concurrency=max_concurrency,
        devices=devices,
        hardware=d.hardware.name,
        usd_per_hour=None if price is None else devices * price.usd_per_hour,
        refused=refused,
    )
