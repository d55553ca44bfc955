"""Whether a claimed figure is possible: against the roof, against what is reached, and by which means if not.

    ratio = claim / roof          roof: one bound over a step's bytes and FLOP at nominal rates, 1 / t_0 (formula F16)

Above the roof a claim is impossible without help; below it and above what kernels reach it needs help too, if less of it; below the range
of what is reached something is slower than it should be. Sequences in memory are counted as the engine plans them: no range.

Sources: formulas F16 (the check), F6.2 (the floor of a decode step), F6.1 (of a prompt), F7.5 (sequences in memory).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..errors import DomainError
from .claim_combinations import combinations_of
from .claim_means import means_of, narrowing_fails
from .claim_search import Search
from .claim_speeds import Aid, Machine, all_reduces, exchange_s, reaches, speed_of
from .costs import Load
from .memory import plan_memory
from .notices import assumptions_of, warnings_of
from .results import Answer, Assumption, Explanation, Notice
from .sizing import deployment_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engines.spec import NumberFormat
    from ..hardware.achieved import Kernels
    from .claim_reasons import CauseCode, ClaimReason
    from .claim_search import Combination, Mean
    from .claim_speeds import Question
    from .claim_text import Claim
    from .costs import Bottleneck
    from .deployment import Deployment
    from .formats import Formats
    from .ranges import Range

Verdict = Literal["impossible", "needs_help", "plausible", "slower_than_it_should_be"]


@dataclass(frozen=True, slots=True)
class Cause:
    """What may make a deployment slower than it should be, with the figure that would explain all of it."""

    code: CauseCode
    figures: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResult(Answer):
    """The answer of ``roofplan claim``.

    Parameters
    ----------
    users : sequences at a time, over all replicas
    speed : without help, in a unit of which more is more (a time is turned over)
    reasons : codes of why it is not plausible as it is
    means, combinations : each means alone, and the fewest that explain the claim; none where it is within what is reached
    causes : of a claim below what is reached
    """

    claim: Claim
    question: Question
    users: int
    machine: Machine
    speed: Range
    verdict: Verdict
    reasons: tuple[ClaimReason, ...]
    means: tuple[Mean, ...]
    combinations: tuple[Combination, ...]
    causes: tuple[Cause, ...]

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "claim"

    @property
    def deployment(self) -> Deployment:
        """What the claim is made of."""
        return self.machine.deployment

    @property
    def is_possible(self) -> bool:
        """Whether it is plausible, or explained by some means."""
        return self.verdict != "impossible"

    @property
    def ratio(self) -> float | None:
        """The claim over the roof; None where the roof is nothing."""
        return self.claim.speed / self.speed.bound if self.speed.bound else None

    @property
    def bottleneck(self) -> Bottleneck | None:
        """What most of the time is spent on as reached; None where it is memory that is claimed, or no rate is known."""
        load = self._load
        return None if load is None else self.machine.reached.bottleneck(load)

    @property
    def roof_bottleneck(self) -> Bottleneck | None:
        """What most of the time is spent on at nominal rates, which the roof is made of; None as above."""
        load = self._load
        return None if load is None else self.machine.nominal.bottleneck(load)

    @property
    def _load(self) -> Load | None:
        if self.claim.kind == "sequences" or not self.deployment.hardware.has_rates:
            return None
        if self.claim.kind == "first_token":
            return Load(0, 0, chunk=self.deployment.workload.prompt)
        return Load(self.machine.batch(self.users), self.question.context)

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What the user should know about this answer."""
        found = list(warnings_of(self.deployment))
        running = min(self.users, self.machine.most_users)
        if self.claim.kind != "sequences" and self.machine.runs and running < self.users:
            message = f"of {self.users:,} users {running:,} run at a time, the others wait"
            found.append(Notice(self.machine.reason or "kv_less_than_concurrency", message))
        if self.claim.kind in {"rate", "device_rate"} and self.users > 1:
            message = (
                "a rate of all users is a mean: it does not say how many of them keep a limit of latency (goodput)"
            )
            found.append(Notice("average_without_limit", message))
        return tuple(found)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Inputs that came from the engine profile or the device, and what drafts are taken to cost and to reach."""
        q, d = self.question, self.deployment
        drafts = "--draft-cost, --acceptance and --drafts say otherwise"
        own = [
            Assumption("draft_cost", q.draft_cost, f"of a plain step, for each draft; {drafts}", "default"),
            Assumption(
                "most_acceptance", q.most_acceptance, f"DeepSeek-V3 report (arXiv 2412.19437); {drafts}", "default"
            ),
            Assumption("most_drafts", q.most_drafts, drafts, "default"),
            Assumption("draft_memory_bytes", 0, "memory of drafts is not counted", "default"),
        ]
        if self.claim.kind not in {"first_token", "sequences"}:
            served = (
                "prompts are computed among the steps"
                if q.served
                else "decoding alone; --prompt and --output add prompts"
            )
            own.append(Assumption("served", q.served, served, "default"))
            if not q.context:
                own.append(
                    Assumption("context", 0, "none was given: no cache is read, which favours the claim", "default")
                )
        return (*assumptions_of(d, plan_memory(d)), *own)

    def inputs(self) -> dict[str, Any]:
        """What was asked."""
        return claim_inputs(self.claim, self.question, self.users, self.deployment)

    def figures(self) -> dict[str, Any]:
        """What was found, in the shape that scripts rely on."""
        claim = self.claim
        return {
            "claim": claim_figures(claim),
            "verdict": self.verdict,
            "reasons": self.reasons,
            "ratio": self.ratio,
            "headroom": self.speed.expected / claim.speed,
            "bound_tokens_per_s": None if claim.kind in {"first_token", "sequences"} else self.speed.bound,
            **speed_figures(claim, self.speed),
            "range": _in_its_unit(claim, self.speed),
            "bottleneck": self.bottleneck,
            "roof_bottleneck": self.roof_bottleneck,
            "means": [self._mean(means) for means in self.means],
            "combinations": [
                {"means": each.ids, "setting": each.setting, **speed_figures(claim, each.speed)}
                for each in self.combinations
            ],
            "causes": self.causes,
        }

    def _mean(self, means: Mean) -> dict[str, Any]:
        speed, now = means.speed, self.speed.bound
        gain = speed.bound / now if speed is not None and now else None
        as_reached = means.explains and speed is not None and reaches(speed, self.claim, roof=False)
        named = {"id": means.id, "explains": means.explains, "explains_as_reached": as_reached}
        named |= {"setting": means.setting, "reason": means.reason}
        return {**named, "gain": gain, **speed_figures(self.claim, speed)}

    def explain(self) -> tuple[Explanation, ...]:
        """How each figure came about."""
        from .claim_explain import explain_claim

        return explain_claim(self)


def claim_figures(claim: Claim) -> dict[str, Any]:
    """A claim as data."""
    return {"text": claim.text, "kind": claim.kind, "value": claim.value}


def speed_figures(claim: Claim, speed: Range | None) -> dict[str, float | None]:
    """Roof and expected value under names that carry the unit."""
    unit = {"first_token": "s", "token_time": "s", "sequences": "sequences"}.get(claim.kind, "tokens_per_s")
    if speed is None:
        return {f"bound_{unit}": None, f"expected_{unit}": None}
    own = _in_its_unit(claim, speed)
    return {f"bound_{unit}": own["bound"], f"expected_{unit}": own["expected"]}


def _in_its_unit(claim: Claim, speed: Range) -> dict[str, float | None]:
    """The four values in the claim's unit; low is the least of a time too, None where there is no end of it."""
    if not claim.is_time:
        return {"bound": speed.bound, "low": speed.low, "expected": speed.expected, "high": speed.high}
    turned = {"bound": speed.bound, "low": speed.high, "expected": speed.expected, "high": speed.low}
    return {name: 1 / value if value else None for name, value in turned.items()}


def claim_inputs(claim: Claim, question: Question, users: int, d: Deployment) -> dict[str, Any]:
    """What was asked, by the names of the options."""
    asked = {"claim": claim.text, "users": users, "context": question.context, "served": question.served}
    asked |= {"draft_cost": question.draft_cost, "all_reduce_s": question.all_reduce_s}
    if not question.served:
        asked |= {"prompt": d.workload.prompt if claim.kind == "first_token" else None, "output": None}
    return {**deployment_inputs(d), **asked}


# ------------------------------------------------------------------------------------------------ the check


def check_claim(
    claim: Claim,
    d: Deployment,
    question: Question,
    *,
    weights: tuple[Formats, ...] = (),
    kv: tuple[NumberFormat, ...] = (),
    kernels: Kernels | None = None,
) -> ClaimResult:
    """Check a claim of a rate, a time or sequences in memory against a deployment; its workload's concurrency is the users (formula F16).

    Parameters
    ----------
    weights, kv : narrower formats that may explain it, the mildest first
    kernels : what kernels reach on several devices; None where only nominal times are known

    Raises
    ------
    DomainError : for a time to first token on a device without a known dense rate, or outside the formulas' domain
    SpecError : when the device has no rate for an arithmetic type that is needed
    """
    if claim.kind == "first_token" and not d.hardware.has_rates:
        raise DomainError(
            "HARDWARE", got=f"{d.hardware.name}, no dense rate of which is known", wanted="one with a rate"
        )
    users = d.workload.concurrency
    machine = Machine.of(d, question)
    speed = speed_of(machine, question, Aid(users=users))
    within = machine.runs and reaches(speed, claim, roof=True)
    is_reached = within and reaches(speed, claim, roof=False)
    search = Search(claim, question, d, users, weights, kv, roof=not within, kernels=kernels)
    means = () if is_reached else means_of(search)
    combinations = () if is_reached else combinations_of(search, means)
    slow = is_reached and claim.kind != "sequences" and claim.speed < speed.low
    verdict: Verdict = "plausible"
    if not is_reached:
        verdict = "needs_help" if within or combinations else "impossible"
    elif slow:
        verdict = "slower_than_it_should_be"
    return ClaimResult(
        claim=claim,
        question=question,
        users=users,
        machine=machine,
        speed=speed,
        verdict=verdict,
        reasons=() if is_reached and not slow else tuple(_reasons(machine, claim, slow=slow, within=within)),
        means=means,
        combinations=combinations,
        causes=tuple(_causes(machine, question, claim, users)) if slow else (),
    )


def _reasons(machine: Machine, claim: Claim, *, slow: bool, within: bool) -> Iterator[ClaimReason]:
    if slow:
        yield "below_what_is_reached"
    elif within:
        yield "datasheet_is_not_reached"
    elif not machine.runs:
        yield machine.reason or "kv_less_than_one_sequence"
    else:
        yield "memory_holds_fewer" if claim.kind == "sequences" else "above_the_roof"


def _causes(machine: Machine, question: Question, claim: Claim, users: int) -> Iterator[Cause]:
    """What may take the time that is missing, each with the figure that would explain all of it."""
    aid = Aid(users=users)
    own = speed_of(machine, question, aid)
    d, share = machine.deployment, claim.speed / own.bound
    reached = {"share_of_roof": share, "bandwidth_bytes_per_s": share * d.hardware.memory.bandwidth}
    yield Cause("datasheet_is_not_reached", reached)
    if claim.kind == "first_token":
        yield Cause("waiting", {"waiting_s": 1 / claim.speed - 1 / own.expected})
        return
    load = Load(machine.batch(users), question.context)
    step_s = float(machine.reached.step_s(load.decoders, load.context))
    missing_s = step_s * (own.expected / claim.speed - 1)
    yield Cause("host_time", {"host_s_per_step": missing_s})
    count = all_reduces(machine.reached)
    if count:
        now = exchange_s(machine.reached, load)
        yield Cause("exchange_time", {"exchange_s": now, "all_reduce_s": (now + missing_s) / count})
    if narrowing_fails(machine, load) == "dequantised_to_16_bit_compute":
        yield Cause("dequantised_to_16_bit_compute", {"batch": load.decoders})
    if not question.served and users > 1:
        yield Cause("prompts_are_computed_too", {"prompts_s_per_step": missing_s})
