"""The table of speculation for one deployment: every number of drafts at every concurrency, the best of each, and why where none pays.

A round costs drafting + verification + what is fixed, in plain steps, and yields E tokens: it pays while E exceeds that. Times are given as
the bound of the roofline and as reached.

Sources: formulas F11.5 to F11.8, F11.11. Left out: the k tokens by which the context grows within a round, and that requests of one step
get different numbers of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from ..errors import DomainError
from .acceptance import alpha_from_tokens
from .costs import Load
from .draft_memory import draft_memory, held_with_drafts
from .evidence import evidence_of
from .memory import plan_memory
from .parallel import divided
from .ranges import Range
from .reached import reached_model
from .speculation_rounds import PLAIN, Rounds, Steps, pays
from .speculative_steps import best_by_batch
from .step import StepModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .deployment import Deployment
    from .drafters import DraftPlan
    from .given_acceptance import GivenAcceptance
    from .speculative import SpeculationMemory
    from .speculative_steps import LargestBatch, Speculation
    from .step import Grouping

Timing = Literal["reached", "roofline", "two-part"]
TIMINGS: dict[Timing, Grouping] = {"reached": "operators", "roofline": "operators", "two-part": "parts"}
Reason = Literal[
    "draft_too_expensive",
    "fixed_cost_per_round",
    "experts_multiply",
    "batch_above_break_even",
    "verification_too_expensive",
    "acceptance_too_low",
    "no_room_in_step",
]
_SMALL = 0.05  # of a step: costs that do not stand in the way
_MORE_WEIGHTS = 1.1  # bytes of weights of a verification over those of a step: more experts are touched


@dataclass(frozen=True, slots=True)
class Row:
    """So many drafts a round at so many requests.

    ``batch`` are the sequences in a step of one replica, ``passes`` those of the drafter; ``draft_cost`` (of all passes), ``verify_ratio``,
    ``fixed_cost`` and ``round_cost``, their sum, count in plain steps. ``roofline_speedup`` is that of nominal rates. ``memory`` is what
    speculation takes on a device, ``fits`` whether it finds room beside the sequences.
    """

    k: int
    concurrency: int
    batch: int
    passes: int
    expected_tokens: float
    draft_cost: float
    verify_ratio: float
    fixed_cost: float
    speedup: float
    roofline_speedup: float
    tpot_s: Range
    output_tokens_per_s: Range
    memory: SpeculationMemory
    fits: bool
    within_budget: bool

    @property
    def round_cost(self) -> float:
        """Plain steps that a round takes."""
        return self.draft_cost + self.verify_ratio + self.fixed_cost


@dataclass(frozen=True, slots=True)
class Plain:
    """Decoding without drafts at so many requests."""

    concurrency: int
    batch: int
    tpot_s: Range
    output_tokens_per_s: Range
    fits: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """The best number of drafts at so many requests, 0 where none pays.

    ``nearest`` is the row with the largest speed-up that a step has room for, None where it has room for none. ``acceptance`` is the
    independent acceptance above which that many drafts pay (None: not even perfect acceptance, or a tree or look-ups, which have none),
    ``most_batch`` the largest batch of a replica at which they do, and what ends it (None: not asked).
    """

    concurrency: int
    batch: int
    k: int
    speedup: float
    nearest: Row | None
    acceptance: float | None
    most_batch: LargestBatch | None
    reason: Reason | None


@dataclass(frozen=True, slots=True)
class Table:
    """All rows, plain decoding beside them, and the choice at each concurrency; times are reached within x/÷ ``width``."""

    rows: tuple[Row, ...]
    plain: tuple[Plain, ...]
    choices: tuple[Choice, ...]
    width: float

    @property
    def best(self) -> Choice:
        """The choice of the largest speed-up; of equal ones that of the fewest requests."""
        return max(self.choices, key=lambda choice: (choice.speedup, -choice.concurrency))


def table_of(
    d: Deployment,
    plan: DraftPlan,
    given: GivenAcceptance,
    drafts: Sequence[int],
    concurrencies: Sequence[int],
    *,
    timing: Timing = "reached",
    hit_rate: float | None = None,
) -> Table:
    """Evaluate rounds of each number of drafts at each concurrency.

    Parameters
    ----------
    drafts : of a round, or nodes of a tree
    concurrencies : requests at a time over all replicas
    timing : steps as reached, of the roofline, or of its two parts (formula F11.6)
    hit_rate : share of the rounds in which a look-up finds something; acceptance is then that of drafts that are there

    Raises
    ------
    DomainError : for a number of drafts that nothing is known of, a hit rate outside [0, 1] or beside a tree, or a device without rates
    SpecError : when the device has no rate for an arithmetic type that is needed
    """
    if not d.hardware.has_rates:
        raise DomainError("HARDWARE", got=d.hardware.name, wanted="a device with a dense rate: steps cannot be timed")
    batches = {count: max(1, divided(divided(count, d.layout.dp), d.layout.pp)) for count in concurrencies}
    asked = Rounds(
        given,
        tuple(dict.fromkeys(given.rounds(drafts))),
        tuple(sorted(set(batches.values()))),
        d.workload.mean_context,
        d.max_batched_tokens,
        hit_rate,
    )
    nominal = StepModel.of(d)
    roof = Steps(nominal, plan.nominal, "operators")
    steps, width = roof, 1.0
    if timing == "reached":
        steps = Steps(cast("StepModel", reached_model(d)), plan.reached, TIMINGS[timing])
        width = evidence_of(d).width
    elif timing == "two-part":
        steps = roof = Steps(nominal, plan.nominal, TIMINGS[timing])
    expected, bound = asked.times(steps), asked.times(roof)
    free = {count: plan_memory(_at(d, count)).free_bytes for count in concurrencies}
    make = _Maker(d, plan, asked, nominal, steps, width, free)
    rows, plains, choices = [], [], []
    for count, batch in batches.items():
        own, roofs = expected[batch], bound[batch]
        at_count = [make.row(count, own[each], roofs[each], own[PLAIN]) for each in asked.rounds]
        rows += at_count
        plains.append(make.plain(count, own[PLAIN], roofs[PLAIN]))
        choices.append(make.choice(at_count, [own[each] for each in (PLAIN, *asked.rounds)]))
    return Table(tuple(rows), tuple(plains), tuple(choices), width)


def _at(d: Deployment, concurrency: int) -> Deployment:
    return replace(d, workload=replace(d.workload, concurrency=concurrency))


@dataclass(frozen=True, slots=True)
class _Maker:
    """Turns times of rounds into rows and choices."""

    deployment: Deployment
    plan: DraftPlan
    asked: Rounds
    nominal: StepModel
    steps: Steps
    width: float
    free: Mapping[int, int]  # bytes that the sequences leave on the fullest device, by concurrency

    def row(self, count: int, own: Speculation, roof: Speculation, plain: Speculation) -> Row:
        memory = self.memory(count, own.drafts, own.passes)
        fixed = self.steps.drafter.overhead_s / plain.round_s
        return Row(
            k=own.drafts,
            concurrency=count,
            batch=own.batch,
            passes=own.passes,
            expected_tokens=own.expected_tokens,
            draft_cost=max(0.0, own.round_s / plain.round_s - own.verify_ratio - fixed),
            verify_ratio=own.verify_ratio,
            fixed_cost=fixed,
            speedup=own.speedup,
            roofline_speedup=roof.speedup,
            tpot_s=Range.of_time(roof.tpot_s, own.tpot_s, self.width),
            output_tokens_per_s=Range.of_rate(count / roof.tpot_s, count / own.tpot_s, self.width),
            memory=memory,
            fits=self.free[count] >= memory.total_bytes,
            within_budget=own.within_budget,
        )

    def plain(self, count: int, own: Speculation, roof: Speculation) -> Plain:
        return Plain(
            count,
            own.batch,
            Range.of_time(roof.tpot_s, own.tpot_s, self.width),
            Range.of_rate(count / roof.tpot_s, count / own.tpot_s, self.width),
            self.free[count] >= 0,
        )

    def memory(self, count: int, drafts: int, passes: int) -> SpeculationMemory:
        """What speculation takes on the fullest device (formula F11.11)."""
        sequences = _at(self.deployment, count).sequences_per_replica
        return draft_memory(self.deployment, self.plan, drafts, passes, sequences)

    def choice(self, rows: Sequence[Row], times: Sequence[Speculation]) -> Choice:
        first = times[0]
        (best,) = best_by_batch([replace(row, within_budget=True) if row is first else row for row in times])
        open_rows = [row for row in rows if row.within_budget]
        nearest = max(open_rows, key=lambda row: (row.speedup, -row.k), default=None)
        if best.drafts:
            nearest = next(row for row in rows if row.k == best.drafts)
        count = rows[0].concurrency
        if nearest is None:
            return Choice(count, first.batch, 0, 1.0, None, None, None, "no_room_in_step")
        timed = next(row for row in times if row.drafts == nearest.k)
        held = held_with_drafts(self.deployment, self.plan, timed.drafts, timed.passes)
        most = self.asked.most_batch(self.steps, timed, held)
        reason = None if pays(best) else self.reason(nearest, None if most is None else most.break_even)
        return Choice(count, first.batch, best.drafts, best.speedup, nearest, self.acceptance(nearest), most, reason)

    def acceptance(self, row: Row) -> float | None:
        """Independent acceptance at which so many drafts yield what their round costs (formula F11.5)."""
        if row.passes != row.k or self.asked.hit_rate is not None or row.round_cost >= row.k + 1:
            return None
        return alpha_from_tokens(max(1.0, row.round_cost), row.k)

    def reason(self, row: Row, break_even: int | None) -> Reason:
        """What stands in the way: the largest cost of a round beside the step that is needed anyway."""
        verifying = row.verify_ratio - 1
        costs = {"draft_too_expensive": row.draft_cost, "fixed_cost_per_round": row.fixed_cost, "": verifying}
        largest = max(costs, key=lambda name: costs[name])
        if costs[largest] < _SMALL:
            return "acceptance_too_low"
        if largest:
            return cast("Reason", largest)
        context = self.asked.context
        weights = [self.nominal.totals(Load(row.batch, context, verify))[1] for verify in (row.k + 1, 1)]
        if weights[0] > _MORE_WEIGHTS * weights[1]:
            return "experts_multiply"
        return (
            "batch_above_break_even"
            if break_even is not None and break_even < row.batch
            else "verification_too_expensive"
        )
