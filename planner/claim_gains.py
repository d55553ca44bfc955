"""Whether a claimed gain is possible: ``4x`` by narrower weights, by a cache, by drafts, by devices.

A gain compares two deployments that differ in one means. The ratio of their roofs bounds nothing, since either time may be further from
its roof than the other: a ratio of work (of each device, of each token), and the tokens of a round do. A claim above such a bound is
impossible, one below it and above what is expected needs help. What each means gives stands in :mod:`.claim_levers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..errors import DomainError
from .claim_levers import by_batching, by_cache, by_devices, by_kv, by_speculation, by_weights
from .claim_speeds import Aid, Machine, speed_of
from .claims import claim_figures, claim_inputs
from .evidence import evidence_of
from .memory import plan_memory
from .notices import assumptions_of, warnings_of
from .ranges import Range
from .results import Answer, Assumption, Explanation, Notice

if TYPE_CHECKING:
    from ..engines.spec import NumberFormat
    from .claim_levers import Drafting
    from .claim_reasons import ClaimReason
    from .claim_speeds import Question
    from .claim_text import Claim
    from .claims import Verdict
    from .deployment import Deployment
    from .formats import Formats

By = Literal["cache", "weights", "kv", "speculation", "batching", "devices"]
BY: tuple[By, ...] = get_args(By)


@dataclass(frozen=True, slots=True, kw_only=True)
class GainResult(Answer):
    """The answer of ``roofplan claim`` to a gain.

    Parameters
    ----------
    speed : tokens per second with the means, None where they do not tell
    gain : its ``bound`` is the ratio of the two roofs, which is none of the gain; see ``most``
    most : more than this the means cannot gain; None where kernels are expected to reach as much themselves, so that nothing is known
    """

    claim: Claim
    question: Question
    by: By
    machine: Machine
    speed: Range | None
    gain: Range
    most: float | None
    figures_beside: dict[str, float | None]
    verdict: Verdict
    reasons: tuple[ClaimReason, ...]

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "claim"

    @property
    def deployment(self) -> Deployment:
        """The deployment with the means."""
        return self.machine.deployment

    @property
    def is_possible(self) -> bool:
        """Whether the gain is not above what the means can give."""
        return self.verdict != "impossible"

    @property
    def ratio(self) -> float | None:
        """The claim over the most that the means can give; None where nothing bounds it."""
        return None if self.most is None else self.claim.value / self.most

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What the user should know about this answer."""
        return tuple(warnings_of(self.deployment))

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Inputs that came from the engine profile or the device."""
        width = "half of a rate's, as logarithms: most errors are on both sides of a gain"
        spread = self.gain.expected / self.gain.low if self.gain.low else None
        return (
            *assumptions_of(self.deployment, plan_memory(self.deployment)),
            Assumption("gain_width", spread, width, "default"),
        )

    def inputs(self) -> dict[str, Any]:
        """What was asked."""
        users = self.deployment.workload.concurrency
        return {**claim_inputs(self.claim, self.question, users, self.deployment), "by": self.by}

    def figures(self) -> dict[str, Any]:
        """What was found, in the shape that scripts rely on."""
        return {
            "claim": claim_figures(self.claim),
            "by": self.by,
            "verdict": self.verdict,
            "reasons": self.reasons,
            "ratio": self.ratio,
            "bound_gain": self.most,
            "bound_gain_reason": "kernels_reach_as_much" if self.most is None else None,
            "roof_gain": self.gain.bound,
            "expected_gain": self.gain.expected,
            "range": {
                "low": self.gain.low,
                "expected": self.gain.expected,
                "high": self.gain.high,
                "bound": self.most,
            },
            "bound_tokens_per_s": self.speed.bound if self.speed else None,
            "expected_tokens_per_s": self.speed.expected if self.speed else None,
            "figures": self.figures_beside,
            "means": [],
        }

    def explain(self) -> tuple[Explanation, ...]:
        """How each figure came about."""
        from .claim_explain import explain_gain

        return explain_gain(self)


# ------------------------------------------------------------------------------------------------ the check


def check_gain(
    claim: Claim,
    d: Deployment,
    question: Question,
    by: By,
    *,
    weights: Formats | None = None,
    kv: NumberFormat | None = None,
    drafting: Drafting | None = None,
) -> GainResult:
    """Check the claim of a gain by one means against a deployment that has it; without it are a wider format, one user or one device.

    Parameters
    ----------
    weights, kv : the wider formats to compare with
    drafting : how drafts are used

    Raises
    ------
    DomainError : for a means that the deployment does not have
    """
    machine = Machine.of(d, question)
    users = d.workload.concurrency
    speed: Range | None = speed_of(machine, question, Aid(users=users))
    match by:
        case "cache":
            gain, speed = by_cache(machine, claim), None
        case "weights" if weights is not None:
            gain = by_weights(machine, question, weights)
        case "kv" if kv is not None:
            gain = by_kv(machine, question, kv)
        case "speculation" if drafting is not None:
            gain = by_speculation(machine, question, drafting, claim)
            speed = None
        case "batching":
            gain = by_batching(machine, question)
        case "devices":
            gain = by_devices(machine, question)
        case _:
            raise DomainError("--by", got=by, wanted="the formats or drafts that it compares")
    expected = gain.expected
    # Kernels that are expected to reach more than equal ones could are not equal: the bound does not hold for them.
    most = gain.most if expected <= gain.most * (1 + 1e-9) else None
    if gain.measured:
        found = Range(expected, expected, expected, expected)
    elif machine.is_known:
        width = evidence_of(d).width ** 0.5
        high = expected * width if most is None else min(most, expected * width)
        found = Range(gain.roof, expected / width, expected, high)
    else:
        found = Range(gain.roof, 0.0, expected, max(gain.roof, expected))
    verdict = _verdict(claim, found, most)
    return GainResult(
        claim=claim,
        question=question,
        by=by,
        machine=machine,
        speed=speed,
        gain=found,
        most=most,
        figures_beside=gain.figures,
        verdict=verdict,
        reasons=gain.reasons if verdict in {"impossible", "needs_help"} or found.expected < 1 else (),
    )


def _verdict(claim: Claim, gain: Range, most: float | None) -> Verdict:
    # Gains are said with two or three digits: half of the last one is no other claim.
    if most is not None and claim.value > most * 1.005:
        return "impossible"
    if claim.value > gain.high * 1.005:
        return "needs_help"
    return "slower_than_it_should_be" if claim.value < gain.low * 0.995 else "plausible"
