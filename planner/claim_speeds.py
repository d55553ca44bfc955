"""What a deployment does by the measure of a claim: at the roof, and as its kernels reach it.

Everything is a speed, of which more is more: tokens per second, sequences, or one over the time to first token. The roof of decoding is the
textbook's, one bound over the whole step with weight and cache bytes only (formula F6.2, F16): no schedule of kernels beats it, so that a
claim above it is impossible without help. With exchanges between devices their bytes are added at the nominal rate of the link.

    T = t / gain + x,   per user 1 / T, all together B / T

t is a decode step of the B sequences, the gain that of drafts (formula F11.5), x what prompts of others add to a token; at the roof one
user's prompts may all come before, and the mean of them has to be computed for the sum over users.
Known to be left out: memory that drafts take; the bytes of experts that prompts of an even mixture spare.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from ..errors import DomainError
from .costs import Collective, Experts, Gemm, Load
from .evidence import evidence_of
from .fitting import reason_of
from .kernel_times import OperatorTime
from .latency import chunks
from .load import Traffic, closed_loop
from .parallel import divided
from .ranges import Range
from .reached import reached_model
from .speculative import best_drafts
from .step import StepModel
from .times import places_of, server_of

if TYPE_CHECKING:
    from .claim_text import Claim, Kind
    from .costs import Operator
    from .deployment import Deployment
    from .fitting import Reason
    from .speculative import BestDrafts
    from .step import Grouping
    from .streams import StreamModel

    Steps = StepModel | StreamModel

Model = TypeVar("Model", bound="StepModel | StreamModel")

NOTHING_RUNS = frozenset(
    {"weights_exceed_memory", "cache_exceeds_memory", "kv_less_than_one_sequence", "max_model_len_exceeds_cache"}
)
_MOST_USERS = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a claim is measured by.

    Parameters
    ----------
    context : mean tokens of a sequence in a decode step
    served : whether prompts of the workload are computed among the steps; else decoding alone is meant
    draft_cost : c_d, one draft step in plain steps
    most_acceptance, most_drafts : what drafts may be taken to reach
    all_reduce_s : measured time of one all-reduce, in place of what is known of the link
    """

    kind: Kind
    context: float
    served: bool = False
    draft_cost: float = 0.05
    most_acceptance: float = 0.9
    most_drafts: int = 16
    all_reduce_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aid:
    """What helps beside formats and devices: more users, drafts of so high an acceptance, fewer weights, a cached part of the prompt."""

    users: int = 1
    acceptance: float = 0.0  # zero: no drafts
    weights: float = 1.0  # share that is read and multiplied
    cached: int = 0  # tokens


@dataclass(frozen=True, slots=True)
class Machine:
    """A deployment that was looked at once: its steps, the sequences that a replica runs at a time, and why it does not run as asked."""

    deployment: Deployment
    nominal: StepModel
    reached: Steps
    places: int
    reason: Reason | None
    is_known: bool  # whether anything is known of what its kernels reach

    @classmethod
    def of(cls, d: Deployment, question: Question) -> Machine:
        """Look at a deployment, whose engine has to hold no longer sequence than its workload's.

        Raises
        ------
        SpecError : when the device has no rate for an arithmetic type that is needed
        """
        for_this = replace(d, max_model_len=d.max_model_len or d.workload.length)
        nominal = StepModel.of(d)
        known = d.hardware.has_rates and (d.kernels is not None or d.streams is not None)
        reached = reached_model(d) if known else nominal
        if question.all_reduce_s is not None:  # what was measured holds for the roof too
            nominal = with_all_reduce(nominal, question.all_reduce_s)
            reached = with_all_reduce(reached, question.all_reduce_s)
        return cls(d, nominal, reached, places_of(for_this), reason_of(for_this), known)

    @property
    def runs(self) -> bool:
        """Whether one sequence runs at least."""
        return self.reason not in NOTHING_RUNS and self.places > 0

    def running(self, users: int) -> int:
        """Sequences that the fullest replica runs of so many users; where nothing fits, as if it did."""
        each = divided(users, self.deployment.layout.dp)
        return min(each, self.places) if self.places else each

    def batch(self, users: int) -> float:
        """Sequences of one decode step: the stages of a pipeline work on as many groups of them."""
        return max(1.0, self.running(users) / self.deployment.layout.pp)

    @property
    def most_users(self) -> int:
        """Users that all replicas run at a time."""
        return min(_MOST_USERS, max(1, self.places) * self.deployment.layout.dp)


def with_all_reduce(model: Model, seconds: float) -> Model:
    """Give a step model a measured time of each all-reduce.

    Raises
    ------
    DomainError : for an engine that exchanges nothing between devices
    """
    if not isinstance(model, StepModel):
        raise DomainError("--all-reduce", got=f"{seconds:g} s", wanted="an engine whose devices work on the same layer")
    times = tuple(
        OperatorTime(operator.count * seconds, 0.0, 0.0) if is_all_reduce(operator) else time
        for operator, time in zip(model.operators, model.times, strict=True)
    )
    return replace(model, times=times)


def is_all_reduce(operator: Operator) -> TypeGuard[Collective]:
    """Whether an operator is an all-reduce."""
    return isinstance(operator, Collective) and operator.operation == "all_reduce"


def exchange_s(model: Steps, load: Load) -> float:
    """Time of all exchanges of a step; none where devices work on layers of their own."""
    if not isinstance(model, StepModel):
        return 0.0
    return float(sum(cost.time_s for cost in model.costs(load) if cost.bound == "interconnect"))


def all_reduces(model: Steps) -> int:
    """All-reduces of a step."""
    return sum(each.count for each in model.operators if is_all_reduce(each))


def thinned(model: Model, share: float) -> Model:
    """Give a step model that reads and multiplies only a share of its weight matrices; indices of the others are not counted."""
    if share == 1:
        return model
    return replace(model, operators=tuple(_thin(each, share) for each in model.operators))


def _thin(operator: Operator, share: float) -> Operator:
    if isinstance(operator, Gemm):
        flop, weights = operator.flop_per_row * share, operator.weight_bytes * share
        return replace(operator, flop_per_row=flop, weight_bytes=weights)
    if isinstance(operator, Experts):
        flop, weights = operator.flop_per_row * share, operator.weight_bytes_per_expert * share
        return replace(operator, flop_per_row=flop, weight_bytes_per_expert=weights)
    return operator


# ------------------------------------------------------------------------------------------------ speeds


def speed_of(machine: Machine, question: Question, aid: Aid) -> Range:
    """Speed of a deployment by the measure of a claim, with what helps it.

    Raises
    ------
    DomainError : outside the formulas' domain
    """
    if question.kind == "sequences":
        held = float(machine.places * machine.deployment.layout.dp if machine.runs else 0)
        return Range(held, held, held, held)
    if question.kind == "first_token":
        bound, expected = _first_token(machine, aid)
        width = evidence_of(machine.deployment).first_token_width
    else:
        bound, expected = _decoding(machine, question, aid)
        width = evidence_of(machine.deployment).width
    found = Range.of_rate(bound, expected, width)
    return found if machine.is_known else replace(found, low=0.0, high=bound)


def _decoding(machine: Machine, question: Question, aid: Aid) -> tuple[float, float]:
    running, batch = machine.running(aid.users), machine.batch(aid.users)
    nominal, reached = thinned(machine.nominal, aid.weights), thinned(machine.reached, aid.weights)
    context, of_one = question.context, question.kind in {"user_rate", "token_time"}
    roof_s = float(nominal.step_s(batch, context, grouping="whole"))
    step_s = float(reached.step_s(batch, context))
    roof_prompts = prompts = 0.0
    if question.served:
        each = batch / machine.deployment.workload.output  # prompts that come with a step
        size = each * machine.deployment.workload.prompt
        if not of_one:
            mixed_s = nominal.step_s(batch, context, chunk=size, pieces=each, grouping="whole")
            roof_prompts = float(mixed_s) - roof_s
        prompts = max(roof_prompts, _served_s(machine, reached, running, of_one=of_one) - step_s)
    if aid.acceptance:
        roof_s /= drafted(nominal, question, aid.acceptance, batch, "whole").speedup
        step_s /= drafted(reached, question, aid.acceptance, batch, "operators").speedup
    total = 1.0 if of_one else float(min(aid.users, running * machine.deployment.layout.dp))
    if question.kind == "device_rate":
        total /= machine.deployment.layout.devices
    return total / (roof_s + roof_prompts), total / (step_s + prompts)


def _served_s(machine: Machine, reached: Steps, running: int, *, of_one: bool) -> float:
    """Expected time per token of requests in a closed loop: between tokens, or with the first one counted as the others are."""
    d, places = machine.deployment, max(1, machine.places)
    load = closed_loop(server_of(d, reached, places), Traffic(d.workload.prompt, d.workload.output, running))
    if of_one:
        return load.tpot_s
    whole = load.steady_ttft_s - load.queue_s + (d.workload.output - 1) * load.tpot_s
    return whole / d.workload.output


def verify_ratios(
    model: Steps, drafts: int, batch: float, context: float, grouping: Grouping = "operators"
) -> tuple[float, ...]:
    """Verification of 1, 2, ... k drafts over a plain step (formula F11.6), without numpy."""
    plain, *verify = (
        float(model.step_s(batch, context, verify=tokens, grouping=grouping)) for tokens in range(1, drafts + 2)
    )
    return tuple(each / plain for each in verify)


def drafted(model: Steps, question: Question, acceptance: float, batch: float, grouping: Grouping) -> BestDrafts:
    """The number of drafts that gains most at an acceptance, and its gain, verification at this batch counted (formula F11.5)."""
    ratios = verify_ratios(model, question.most_drafts, batch, question.context, grouping)
    rates = [acceptance**position for position in range(1, question.most_drafts + 1)]
    return best_drafts(rates, question.draft_cost, ratios)


def _first_token(machine: Machine, aid: Aid) -> tuple[float, float]:
    d, running = machine.deployment, machine.running(aid.users)
    nominal, reached = thinned(machine.nominal, aid.weights), thinned(machine.reached, aid.weights)
    prompt, places = d.workload.prompt, max(1, machine.places)
    new = prompt - aid.cached
    roof_s = float(nominal.step_s(0, 0, chunk=new, past=aid.cached, grouping="whole"))
    load = closed_loop(
        server_of(d, reached, places), Traffic(prompt, d.workload.output, divided(aid.users, d.layout.dp))
    )
    expected_s = load.alone_ttft_s if running == 1 and not load.waiting else load.steady_ttft_s
    if aid.cached:
        expected_s -= max(0.0, _prompt_s(reached, d, 0) - _prompt_s(reached, d, aid.cached))
    return 1 / roof_s, 1 / max(roof_s, expected_s)


def _prompt_s(model: Steps, d: Deployment, cached: int) -> float:
    """Time of the chunks of a prompt of which so many tokens are cached."""
    pieces = chunks(d.workload.prompt - cached, d.max_batched_tokens)
    return float(sum(model.step_s(0, 0, chunk=chunk, past=cached + past) for chunk, past in pieces))


def reaches(speed: Range, claim: Claim, *, roof: bool) -> bool:
    """Whether a claim is within a speed: at the roof, or within what is reached."""
    return claim.speed <= (speed.bound if roof else speed.high) * (1 + 1e-12)
