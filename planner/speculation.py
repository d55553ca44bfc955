"""The answer of ``roofplan speculate``: rounds by drafts and concurrency, the best, where it stops to pay, and trials of the rule."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .notices import kernel_assumptions, warnings_of
from .results import Answer, Assumption, Explanation, Notice
from .sizing import deployment_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .deployment import Deployment
    from .draft_trials import Measured, Trials
    from .drafters import DraftPlan
    from .given_acceptance import GivenAcceptance
    from .speculation_table import Choice, Row, Table, Timing

COLUMNS = (
    "k",
    "concurrency",
    "expected_tokens",
    "speedup",
    "roofline_speedup",
    "tpot_s",
    "output_tokens_per_s",
    "round_cost",
    "draft_cost",
    "verify_ratio",
    "fixed_cost",
    "memory_bytes",
    "fits",
    "within_budget",
)


_ALONE = Assumption(
    "served",
    value=False,
    source="decoding alone: prompts set the context and are not computed among the rounds",
    kind="default",
)
LEAST = 1e-6  # p-value of a rule that is taken to fail
_LEAST_EVEN = 1e-3


@dataclass(frozen=True, slots=True)
class Planned:
    """Speculation for a deployment: what was asked, and the table.

    Parameters
    ----------
    deployment : the target at the largest concurrency that was asked for
    plan, given : how drafts are made, and how often they are kept
    """

    deployment: Deployment
    plan: DraftPlan
    given: GivenAcceptance
    timing: Timing
    hit_rate: float | None
    table: Table
    assumed: tuple[Assumption, ...]

    @property
    def pays(self) -> bool:
        """Whether some number of drafts gains at some concurrency that was asked for."""
        return any(choice.k for choice in self.table.choices)


@dataclass(frozen=True, slots=True)
class TriedRules:
    """Trials of the exact rule and of a relaxed one on the same distributions.

    ``p_values`` are those of the exact rule over several seeds, ``relaxed_p_values`` of the relaxed one; ``uniformity`` is the p-value
    of Kolmogorov's test of the former, None with too few seeds.
    """

    exact: Trials
    relaxed: Trials
    divergence: float
    tokens: int
    p_values: tuple[float, ...]
    relaxed_p_values: tuple[float, ...]
    uniformity: float | None

    @property
    def holds(self) -> bool:
        """Whether the exact rule passes: no p-value below a millionth, and those of several seeds as even as uniform ones are."""
        even = self.uniformity is None or self.uniformity >= _LEAST_EVEN
        return min(self.p_values) >= LEAST and even


@dataclass(frozen=True, slots=True)
class SpeculationResult(Answer):
    """Speculation for a deployment, trials of the acceptance rule, or both."""

    planned: Planned | None
    tried: TriedRules | None

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "speculate"

    @property
    def good(self) -> bool:
        """Whether speculation pays somewhere; of trials alone, whether the exact rule passes."""
        if self.planned is not None:
            return self.planned.pays
        return self.tried is None or self.tried.holds

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What the user should know."""
        if self.planned is None:
            return ()
        p = self.planned
        return (*warnings_of(p.deployment), *p.plan.notices, *_notices(p))

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What was not given."""
        if self.planned is None:
            return ()
        kernels = kernel_assumptions(self.planned.deployment) if self.planned.timing == "reached" else []
        return (*self.planned.assumed, _ALONE, *self.planned.plan.assumptions, *kernels)

    def inputs(self) -> dict[str, Any]:
        """What was asked."""
        p, asked = self.planned, {}
        if p is not None:
            asked = deployment_inputs(p.deployment) | {
                "concurrency": [choice.concurrency for choice in p.table.choices],
                "context": p.deployment.workload.mean_context,
                "k": sorted({row.k for row in p.table.rows}),
                "method": p.plan.method,
                "drafter": p.plan.name,
                "acceptance": {
                    "kind": p.given.kind,
                    "alpha": p.given.alpha,
                    "rates": list(p.given.rates),
                    "ranks": [list(ranks) for ranks in p.given.ranks],
                    "measured_at": p.given.measured_at,
                    "hit_rate": p.hit_rate,
                },
                "timing": p.timing,
            }
        if self.tried is not None:
            t = self.tried
            asked["simulation"] = {
                "rounds": t.exact.rounds,
                "k": t.exact.drafts,
                "seed": t.exact.seed,
                "seeds": len(t.p_values),
                "tokens": t.tokens,
                "divergence": t.divergence,
                "relaxed": str(t.relaxed.rule),
            }
        return asked

    def figures(self) -> dict[str, Any]:
        """What was found."""
        found: dict[str, Any] = {}
        if self.planned is not None:
            table = self.planned.table
            best = table.best
            found = {
                "pays": self.planned.pays,
                "rows": [_row(row) for row in table.rows],
                "plain": [_plain(plain) for plain in table.plain],
                "best": _best(best),
                "best_by_concurrency": [_best(choice) for choice in table.choices],
                "break_even": _break_even(best),
                "break_even_by_concurrency": [_break_even(choice) for choice in table.choices],
            }
        if self.tried is not None:
            found["simulation"] = _tried(self.tried)
        return found

    def table(self) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
        """The rows as a table; of trials alone what was measured of each rule."""
        if self.planned is not None:
            rows = [_row(row) for row in self.planned.table.rows]
            return COLUMNS, [
                row | {name: row[name]["expected"] for name in ("tpot_s", "output_tokens_per_s")} for row in rows
            ]
        assert self.tried is not None
        found = _tried(self.tried)
        columns = ("rule", "p_value", "acceptance", "tokens_per_round", "distance")
        rows = [
            {
                "rule": found[name]["rule"],
                "p_value": found[name]["chi_square"]["p_value"],
                "acceptance": found[name]["acceptance"]["value"],
                "tokens_per_round": found[name]["tokens_per_round"]["value"],
                "distance": found[name]["distance"],
            }
            for name in ("exact", "relaxed")
        ]
        return columns, rows

    def explain(self) -> tuple[Explanation, ...]:
        """How the best row came about."""
        if self.planned is None:
            return ()
        from .explain_speculation import explain_speculation

        return explain_speculation(self.planned)


def _notices(p: Planned) -> list[Notice]:
    notices = []
    plain = {each.concurrency: each for each in p.table.plain}
    crowded = [choice.concurrency for choice in p.table.choices if not plain[choice.concurrency].fits]
    if crowded:
        message = f"even without drafts the cache holds fewer than {_listed(crowded)} sequences: times are those of a larger memory"
        notices.append(Notice("cache_exceeds_memory", message))
    short = [
        choice.concurrency
        for choice in p.table.choices
        if plain[choice.concurrency].fits and choice.nearest is not None and choice.k and not choice.nearest.fits
    ]
    if short:
        message = f"at {_listed(short)} requests the drafter and its cache leave too little memory for all sequences"
        notices.append(Notice("speculation_exceeds_memory", message))
    full = sorted({row.concurrency for row in p.table.rows if not row.within_budget})
    if full:
        message = (
            f"at {_listed(full)} requests some rounds exceed the {p.deployment.max_batched_tokens:,} tokens of a step"
        )
        notices.append(Notice("step_budget_exceeded", message))
    return notices


def _listed(counts: Sequence[int]) -> str:
    return " and ".join(filter(None, (", ".join(f"{count:,}" for count in counts[:-1]), f"{counts[-1]:,}")))


def _row(row: Row) -> dict[str, Any]:
    return {
        "k": row.k,
        "concurrency": row.concurrency,
        "batch": row.batch,
        "passes": row.passes,
        "expected_tokens": row.expected_tokens,
        "draft_cost": row.draft_cost,
        "verify_ratio": row.verify_ratio,
        "fixed_cost": row.fixed_cost,
        "round_cost": row.round_cost,
        "speedup": row.speedup,
        "roofline_speedup": row.roofline_speedup,
        "tpot_s": asdict(row.tpot_s),
        "output_tokens_per_s": asdict(row.output_tokens_per_s),
        "memory_bytes": row.memory.total_bytes,
        "fits": row.fits,
        "within_budget": row.within_budget,
    }


def _plain(plain: Any) -> dict[str, Any]:
    return asdict(plain)


def _best(choice: Choice) -> dict[str, Any]:
    row = choice.nearest if choice.k else None
    return {
        "concurrency": choice.concurrency,
        "k": choice.k,
        "speedup": choice.speedup,
        "pays": bool(choice.k),
        "reason": choice.reason,
        "expected_tokens": 1.0 if row is None else row.expected_tokens,
        "tpot_s": None if row is None else asdict(row.tpot_s),
        "output_tokens_per_s": None if row is None else asdict(row.output_tokens_per_s),
        "memory": None
        if row is None
        else asdict(row.memory) | {"total_bytes": row.memory.total_bytes, "fits": row.fits},
    }


def _break_even(choice: Choice) -> dict[str, Any]:
    """What would have to be so for ``k`` drafts to gain nothing: the acceptance, the cost of a round, the batch."""
    row = choice.nearest
    return {
        "concurrency": choice.concurrency,
        "k": None if row is None else row.k,
        "acceptance": choice.acceptance,
        "acceptance_reason": _why_none(choice) if choice.acceptance is None else None,
        "round_cost": None if row is None else row.expected_tokens,
        **_break_even_batch(choice),
    }


def _break_even_batch(choice: Choice) -> dict[str, Any]:
    """The batch above which drafts gain nothing; where there is none the reason, and what they still gain at as ``batch_limit``."""
    most = choice.most_batch
    if most is None:
        reason: str | None = "no_room_in_step" if choice.nearest is None else "only_of_chains"
        return {"batch": None, "batch_reason": reason, "batch_limit": None}
    reason = None if most.break_even else "gains_at_no_batch" if most.binds == "break_even" else most.binds
    return {"batch": most.break_even, "batch_reason": reason, "batch_limit": most.limit}


def _why_none(choice: Choice) -> str:
    row = choice.nearest
    if row is None:
        return "no_room_in_step"
    if row.round_cost >= row.k + 1:
        return "not_even_perfect_acceptance"
    return "no_single_acceptance"


def _tried(t: TriedRules) -> dict[str, Any]:
    return {
        "holds": t.holds,
        "exact": _trials(t.exact),
        "relaxed": _trials(t.relaxed),
        "divergence": t.divergence,
        "p_values": list(t.p_values),
        "relaxed_p_values": list(t.relaxed_p_values),
        "uniformity_p_value": t.uniformity,
    }


def _trials(trials: Trials) -> dict[str, Any]:
    return {
        "rule": str(trials.rule),
        "rounds": trials.rounds,
        "tokens": trials.tokens,
        "chi_square": asdict(trials.fit),
        "acceptance": _measured(trials.acceptance),
        "tokens_per_round": _measured(trials.tokens_per_round),
        "distance": trials.distance,
        "rule_distance": trials.rule_distance,
    }


def _measured(measured: Measured) -> dict[str, Any]:
    return asdict(measured) | {"agrees": measured.agrees}
