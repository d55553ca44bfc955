"""The answer of ``roofplan advise``: the levers of a deployment, each evaluated on it, ranked by their gain for a goal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UnknownNameError
from .drafters import round_overhead
from .levers import LEVERS
from .levers.outcomes import GOALS, RATES, Goal
from .levers.situation import PAYS, Situation
from .levers.speculation import LOOKUP_ACCEPTANCE
from .notices import assumptions_of, overcommitted, warnings_of
from .results import Answer, Assumption, Explanation, Notice
from .sizing import deployment_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .deployment import Deployment
    from .levers.outcomes import Outcome
    from .levers.situation import Choices, Lever

_COLUMNS = (
    "id",
    "title",
    "status",
    "exact",
    "gain",
    "gain_ttft",
    "gain_tpot",
    "gain_throughput",
    "gain_capacity",
    "gain_cost",
    "reason",
    "option",
    "why",
    "quality",
    "complexity",
    "memory_bytes",
)


@dataclass(frozen=True, slots=True)
class Advice(Answer):
    """Levers, the best for the goal first; those that make it fit at all stand before the others, those without a gain last."""

    situation: Situation
    goal: Goal
    levers: tuple[Lever, ...]

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "advise"

    @property
    def now(self) -> Outcome:
        """The outcome of the deployment as it stands."""
        return self.situation.outcome

    @property
    def best(self) -> Lever | None:
        """The first lever that can be pulled and gains for the goal, or makes the deployment fit; None where none does."""
        for lever in self.levers:
            gain = lever.gains.of(self.goal)
            pays = lever.no_gain_because(self.goal) == "makes_it_fit" if gain is None else gain >= PAYS
            if lever.status == "available" and pays:
                return lever
        return None

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What the user should know about this deployment."""
        return (*warnings_of(self.situation.deployment), *overcommitted(self.situation.plan))

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What the levers take of the traffic, and what came from the engine profile or the device."""
        choices = self.situation.choices
        mine = (
            Assumption("prefix_hit", choices.prefix_hit, _PREFIX_SOURCE, "default"),
            Assumption("draft_acceptance", choices.acceptance, _DRAFT_SOURCE, "default"),
            Assumption("lookup_acceptance", LOOKUP_ACCEPTANCE, _LOOKUP_SOURCE, "derived"),
            round_overhead(self.situation.deployment, None)[1],
            Assumption("output_lengths", "geometric", _LENGTH_SOURCE, "derived"),
        )
        return (*mine, *assumptions_of(self.situation.deployment, self.situation.plan))

    def inputs(self) -> dict[str, Any]:
        """What was asked."""
        choices = self.situation.choices
        asked = {"goal": self.goal, "prefix_hit": choices.prefix_hit, "acceptance": choices.acceptance}
        return deployment_inputs(self.situation.deployment) | asked

    def figures(self) -> dict[str, Any]:
        """The outcome now, and the levers in their order."""
        best = self.best
        return {
            "goal": self.goal,
            "now": self.now.to_dict(),
            "bottleneck": {"prefill": self.situation.prefill_limit, "decode": self.situation.decode_limit},
            "best": None if best is None else best.id,
            "levers": [self._lever(lever) for lever in self.levers],
        }

    def _lever(self, lever: Lever) -> dict[str, Any]:
        return {
            "id": lever.id,
            "title": lever.title,
            "status": lever.status,
            "exact": lever.exact,
            "gain": lever.gains.of(self.goal),
            "gain_reason": lever.no_gain_because(self.goal),
            "gains": lever.gains,
            "reason": lever.reason,
            "why": lever.why,
            "cost": {"quality": lever.quality, "complexity": lever.complexity, "memory_bytes": lever.memory_bytes},
            "option": lever.option,
            "before": lever.before.to_dict(),
            "after": lever.after.to_dict(),
            "figures": dict(lever.figures),
        }

    def table(self) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
        """Columns and rows of the CSV: one lever a row."""
        rows = []
        for lever in self.levers:
            whole = self._lever(lever)
            gains = {f"gain_{name}": lever.gains.of(name) for name in GOALS}
            rows.append(whole | gains | whole["cost"])
        return _COLUMNS, rows

    def explain(self) -> tuple[Explanation, ...]:
        """How each gain came about."""
        return tuple(self._explained(lever) for lever in self.levers)

    def _explained(self, lever: Lever) -> Explanation:
        gain = lever.gains.of(self.goal)
        sides = " over ".join(_side(side, self.goal) for side in _ordered(lever, self.goal))
        return Explanation(
            f"levers.{lever.id}.gain",
            f"none: {lever.no_gain_because(self.goal)}" if gain is None else f"{gain:.4g} in {self.goal}",
            _FORMULAS[self.goal],
            sides,
            tuple((name, f"{value:.6g}", "the lever") for name, value in lever.figures.items()),
            lever.reason,
        )


_PREFIX_SOURCE = (
    "--prefix-hit; 0.5 stands for chats with a long system prompt (56 % of tokens hit in DeepSeek's published day)"
)
_DRAFT_SOURCE = (
    "--acceptance; EAGLE-3 layers yield 2.0 (role play) to 3.3 (code) tokens a round, and 0.7 with four drafts 2.8"
)
_LOOKUP_SOURCE = "1.37 and 1.66 tokens a step in first and second turns of chats (TensorRT-LLM, n-gram speculation)"
_LENGTH_SOURCE = (
    "a static batch waits for the longest of its outputs (formula F8.1); with equal lengths it wastes nothing"
)
_FORMULAS: dict[Goal, str] = {
    "ttft": "TTFT in steady state without the lever over that with it, both as size gives them",
    "tpot": "TPOT without the lever over that with it, both as size gives them",
    "throughput": "output tokens/s with the lever over those without it, at the asked concurrency, both as size gives them",
    "capacity": "sequences at full length that fit with the lever over those without it (F7.5)",
    "cost": "price of a million output tokens without the lever over that with it (F13.8); in device-seconds where no price is known",
}


def _ordered(lever: Lever, goal: Goal) -> tuple[Outcome, Outcome]:
    return (lever.after, lever.before) if goal in RATES else (lever.before, lever.after)


_UNITS: dict[Goal, str] = {"ttft": "s", "tpot": "s", "throughput": "tokens/s", "capacity": "sequences", "cost": "$"}


def _side(outcome: Outcome, goal: Goal) -> str:
    value, unit = outcome.value(goal), _UNITS[goal]
    if value is None and goal == "cost":
        value, unit = outcome.device_s_per_million_output_tokens, "device-seconds"
    return "none" if value is None else f"{value:.6g} {unit}"


def advise(d: Deployment, choices: Choices, goal: Goal = "throughput") -> Advice:
    """Evaluate every lever on a deployment and rank them by their gain for a goal.

    Parameters
    ----------
    choices : formats and devices to look at, and what is assumed of the traffic
    goal : ttft, tpot, throughput, capacity or cost

    Raises
    ------
    UnknownNameError : for another goal
    SpecError : when the device has no rate for an arithmetic type that is needed
    """
    if goal not in GOALS:
        raise UnknownNameError("--goal", got=goal, wanted=f"one of {', '.join(GOALS)}")
    situation = Situation.of(d, choices)
    levers = [lever for pull in LEVERS for lever in pull(situation)]
    return Advice(situation, goal, tuple(sorted(levers, key=lambda lever: _rank(lever, goal))))


def _rank(lever: Lever, goal: Goal) -> tuple[bool, float]:
    """Levers that make a deployment fit first, by what they then reach; the others by falling gain, those without one last.

    The sort is stable, so that equals stay in the order in which they are listed.
    """
    gain = lever.gains.of(goal)
    if lever.no_gain_because(goal) != "makes_it_fit":
        return True, math.inf if gain is None else -gain
    value = lever.after.value(goal)
    if value is None:
        return False, math.inf
    return False, -value if goal in RATES else value
