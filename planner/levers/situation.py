"""What a lever is, and what every lever looks at: the deployment as it stands, and what there is to choose from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ...errors import DomainError
from .. import domain
from ..costs import Load
from ..memory import plan_capacity, plan_memory
from ..reached import reached_model
from ..step import StepModel
from .outcomes import Gains, outcome_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...engines.spec import NumberFormat
    from ...hardware.achieved import Kernels
    from ...hardware.spec import HardwareSpec
    from ..costs import Bottleneck
    from ..deployment import Deployment
    from ..formats import Formats
    from ..memory import MemoryPlan
    from ..streams import StreamModel
    from .outcomes import Goal, Outcome

Status = Literal["available", "in_use", "training", "not_applicable"]

PAYS = 1.02  # gains below it are not called any


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another device, with what its kernels reach."""

    hardware: HardwareSpec
    kernels: Kernels | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What levers may take, and what they assume of the traffic.

    Parameters
    ----------
    weights, kv : formats narrower than those in use, which the device computes and the engine stores
    devices : other devices
    kernels : what kernels reach on several devices, collectives included; None where only nominal times are known
    prefix_hit : share of every prompt's tokens that the cache holds already, the same for all requests
    acceptance : probability that a draft of a trained draft layer is kept, given that it was looked at
    sixteen_bits : formats of draft layers that were trained for a model and are published in 16 bits; its own where not given

    Raises
    ------
    DomainError : for a share outside [0, 1)
    """

    weights: tuple[Formats, ...] = ()
    kv: tuple[NumberFormat, ...] = ()
    devices: tuple[Neighbour, ...] = ()
    kernels: Kernels | None = None
    prefix_hit: float = 0.5
    acceptance: float = 0.7
    sixteen_bits: Formats | None = None

    def __post_init__(self) -> None:
        """Refuse shares that mean nothing."""
        for name, share in (("--prefix-hit", self.prefix_hit), ("--acceptance", self.acceptance)):
            if domain.probability(name, share) == 1:
                raise DomainError(name, got=share, wanted="a share below 1: not everything is cached or kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A deployment as it stands: its plan, its times, what binds it, and the choices.

    Parameters
    ----------
    running : sequences that one replica runs at a time
    weights_read, cache_read : bytes that a decode step reads of both, on one rank
    prefill_limit, decode_limit : what most of the time of a prompt, and of a decode step, is spent on; None without rates
    """

    deployment: Deployment
    choices: Choices
    plan: MemoryPlan
    outcome: Outcome
    nominal: StepModel
    reached: StepModel | StreamModel
    running: int
    weights_read: float
    cache_read: float
    prefill_limit: Bottleneck | None
    decode_limit: Bottleneck | None

    @classmethod
    def of(cls, d: Deployment, choices: Choices) -> Situation:
        """Evaluate a deployment.

        Raises
        ------
        SpecError : when the device has no rate for an arithmetic type that is needed
        """
        plan = plan_memory(d)
        nominal, reached = StepModel.of(d), reached_model(d)
        outcome = outcome_of(d, plan=plan, nominal=nominal, reached=reached)
        places = plan_capacity(d, plan).max_concurrency // d.layout.dp
        running = min(d.sequences_per_replica, places) or d.sequences_per_replica
        decode = Load(max(1.0, running / d.layout.pp), d.workload.mean_context)
        prefill = Load(0, 0, chunk=min(d.workload.prompt, d.max_batched_tokens))
        _, weights, cache = nominal.totals(decode)
        known = d.hardware.has_rates
        return cls(
            deployment=d,
            choices=choices,
            plan=plan,
            outcome=outcome,
            nominal=nominal,
            reached=reached,
            running=running,
            weights_read=float(weights),
            cache_read=float(cache),
            prefill_limit=reached.bottleneck(prefill) if known else None,
            decode_limit=reached.bottleneck(decode) if known else None,
        )

    @property
    def batch(self) -> float:
        """Sequences of one decode step: the stages of a pipeline share those that run."""
        return max(1.0, self.running / self.deployment.layout.pp)

    @property
    def weights_share(self) -> float:
        """Share of the bytes that a decode step reads which are weights."""
        read = self.weights_read + self.cache_read
        return self.weights_read / read if read else 0.0

    def memory_of(self, d: Deployment, plan: MemoryPlan | None = None) -> int:
        """Bytes per device that a deployment takes with as many sequences as run here."""
        plan = plan_memory(d) if plan is None else plan
        parts = plan.weights_bytes + plan.activation_bytes + plan.non_torch_bytes + plan.graph_bytes
        return parts + self.running * self.deployment.layout.dp // d.layout.dp * plan.kv_bytes_per_sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """One lever with the outcome before and after it is pulled.

    Parameters
    ----------
    id, title : a stable name, and one for people
    status : ``available``: ``after`` is with it; ``in_use``: ``before`` is without it, ``after`` as it is now; ``training``: another model
        must be trained; ``not_applicable``: there is nothing to pull
    exact : whether the model's output distribution stays what it is
    reason : a code of why it does or does not pay here
    why : the same in words, with the figures
    quality, complexity, memory_bytes : what it costs; bytes per device beside what is taken without it, negative where it saves
    option : what to change on the command line, or empty
    figures : further figures, in base units
    changed : the deployment with it (of a lever in use: without it), where it is one
    """

    id: str
    title: str
    status: Status
    exact: bool
    before: Outcome
    after: Outcome
    reason: str
    why: str
    quality: str
    complexity: str
    memory_bytes: int = 0
    option: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    changed: Deployment | None = None

    @property
    def gains(self) -> Gains:
        """How many times as good each figure is with the lever."""
        if self.status == "not_applicable":
            return Gains(None, None, None, None, None)
        return Gains.between(self.before, self.after)

    def no_gain_because(self, goal: Goal) -> str | None:
        """A code of why there is no figure for a goal; None where there is one."""
        if self.gains.of(goal) is not None:
            return None
        if self.status == "not_applicable":
            return "not_applicable"
        if not self.after.max_concurrency:
            return "does_not_fit"
        if not self.before.max_concurrency:
            return "makes_it_fit"
        if self.after.output_tokens_per_s is None or self.before.output_tokens_per_s is None:
            return "no_dense_rate"
        return "no_price" if goal == "cost" else "single_token_has_no_gap"


EXACT = "none: the outputs are the same"


def not_applicable(s: Situation, lever_id: str, title: str, why: str, *, exact: bool = True) -> Lever:
    """A lever that there is nothing to pull of here."""
    return Lever(
        id=lever_id,
        title=title,
        status="not_applicable",
        exact=exact,
        before=s.outcome,
        after=s.outcome,
        reason="not_applicable",
        why=why,
        quality="",
        complexity="",
    )


def room_reason(before: Outcome, after: Outcome) -> str | None:
    """The code of a change whose effect is that of room: times of fewer or more sequences that run do not compare; None elsewhere."""
    if not after.max_concurrency:
        return "does_not_fit"
    if not before.max_concurrency:
        return "makes_it_fit"
    if before.refused in _QUEUEING and after.max_concurrency > before.max_concurrency:
        return "more_run_at_a_time"
    if after.refused in _QUEUEING and after.max_concurrency < before.max_concurrency:
        return "fewer_run_at_a_time"
    return None


_QUEUEING = {"kv_less_than_concurrency", "engine_admits_fewer"}


def without_given_weights(d: Deployment) -> Deployment:
    """The same without the bytes of weights that were given: they hold for this format and layout only."""
    return replace(d, memory=replace(d.memory, weights_bytes=None))
