"""Marks on the curve of one deployment over its batch: knee, compute-bound batch, crossover, budgets, cheapest token.

All batches are sequences of the whole deployment. The knee, the compute-bound batch and the crossover are those of decode steps; the batch
within a time per token and the cheapest one are those of the sweep's traffic.
Sources: formulas F7.2 to F7.6, through :mod:`.batching` and :mod:`.batch_curve`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..quantities import show_count, show_time
from .batch_curve import CheapestBatch, Knee, batch_within_tpot, cheapest_batch, knee
from .batching import compute_bound_batch, crossover_batch
from .figures import RankFigures
from .fitting import reason_of
from .memory import plan_capacity, plan_memory
from .notices import main_arithmetic
from .parameters import count_parameters
from .results import Explanation, plain
from .sweep_points import ExpectedSteps, expected_tpot_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .deployment import Deployment
    from .fitting import Reason
    from .sweep_points import Variant

MOST_SEQUENCES = 2**20


@dataclass(frozen=True, slots=True)
class CheapestPoint:
    """The cheapest token: the batch, its expected time per token, and what a million output tokens cost (None without a price).

    ``of`` says among which batches: any that memory and the time per token allow, or those of the points that were swept.
    """

    batch: int
    tpot_s: float
    usd_per_million_output_tokens: float | None
    of: Literal["any_batch", "points"]


@dataclass(frozen=True, slots=True)
class CurveMarks:
    """What stands out on one curve.

    Parameters
    ----------
    at : the values of the axes other than the batch
    context : tokens of a sequence in a decode step
    knee : the batch to run at; None without rates
    compute_bound_batch : from which decode is compute-bound, in the textbook's convention; None with a reason
    crossover_batch : at which cache bytes equal weight bytes; None for a cache that does not grow
    within_memory : the largest batch that fits, and why one more does not (empty at the end of the search)
    within_tpot : the largest of these whose expected time per token stays within the limit; None without a limit
    cheapest : None where nothing fits within the limits
    limit_s : the most time per output token that was asked for, if any
    """

    at: tuple[tuple[str, int | str], ...]
    context: float
    knee: Knee | None
    compute_bound_batch: float | None
    compute_bound_batch_reason: str | None
    crossover_batch: float | None
    within_memory: int
    memory_binds: str
    within_tpot: int | None
    cheapest: CheapestPoint | None
    limit_s: float | None = None

    def figures(self) -> dict[str, Any]:
        """The marks as the JSON has them; every one that is null has a code that says why."""
        no_limit = "no_limit" if self.limit_s is None else "no_dense_rate" if self.within_tpot is None else None
        knee = None if self.knee is None else {**plain(self.knee), "within_latency_reason": no_limit}
        within = None if self.within_tpot is None else "tpot" if self.within_tpot < self.within_memory else "memory"
        return {
            **dict(self.at),
            "context": self.context,
            "knee": knee,
            "knee_reason": "no_dense_rate" if knee is None else None,
            "compute_bound_batch": self.compute_bound_batch,
            "compute_bound_batch_reason": self.compute_bound_batch_reason,
            "crossover_batch": self.crossover_batch,
            "crossover_batch_reason": "cache_does_not_grow" if self.crossover_batch is None else None,
            "within_memory": _largest(self.within_memory, self.memory_binds or "search_ends", None),
            "within_tpot": _largest(self.within_tpot, within, no_limit),
            "cheapest": self._cheapest(),
            "cheapest_reason": None
            if self.cheapest
            else "no_dense_rate"
            if knee is None
            else "nothing_within_the_limits",
        }

    def _cheapest(self) -> dict[str, Any] | None:
        if self.cheapest is None:
            return None
        unpriced = self.cheapest.usd_per_million_output_tokens is None
        return {**plain(self.cheapest), "usd_reason": "no_price" if unpriced else None}


def _largest(batch: int | None, binds: str | None, reason: str | None) -> dict[str, Any]:
    """A largest batch as the JSON has it: what decides it, and why there is none."""
    return {"batch": batch, "binds": binds, "reason": reason}


def marks_of(
    variant: Variant,
    d: Deployment,
    steps: ExpectedSteps,
    *,
    context: float,
    serves: bool,
    limit_s: float | None,
    at: tuple[tuple[str, int | str], ...],
) -> CurveMarks:
    """Marks of one curve.

    Parameters
    ----------
    d : the deployment with the lengths of the curve's sequences
    context : tokens of a sequence in a decode step
    serves : whether prompts come in between; the cheapest batch is then that of the swept points, and left out here
    limit_s : most time per output token, if any
    """
    rank, scale = RankFigures.of(d, count_parameters(d.model)), d.layout.dp * d.layout.pp
    ridge, cache = d.hardware.ridge(main_arithmetic(d)), rank.cache.bytes_per_sequence(round(context))
    bound = None if ridge is None else compute_bound_batch(rank.weight_bytes, rank.parameters, ridge, cache)
    crossover = crossover_batch(rank.weight_bytes, cache) if rank.cache.bytes_per_token else None
    most, binds = _within_memory(d)
    within, found, cheapest = None, None, None
    if d.hardware.has_rates:
        if limit_s is not None:
            within = _within_tpot(d, steps, context, limit_s, most, serves=serves)
        found = _knee(steps, context, most, within)
        allowed = most if within is None else within
        if allowed and not serves:
            cheapest = _cheapest(
                variant, cheapest_batch(_as_model(steps), context, variant.usd_per_hour_of_all or 0.0, allowed)
            )
    reason = "no_dense_rate" if ridge is None else "memory_bound_at_any_batch" if bound is None else None
    return CurveMarks(
        at=at,
        context=context,
        knee=found,
        compute_bound_batch=None if bound is None else bound * scale,
        compute_bound_batch_reason=reason,
        crossover_batch=None if crossover is None else crossover * scale,
        within_memory=most,
        memory_binds=binds or "",
        within_tpot=within,
        cheapest=cheapest,
        limit_s=limit_s,
    )


def _as_model(steps: ExpectedSteps) -> Any:
    """The expected steps in the place of a step model, of which the curve's functions ask for nothing but the time of a step."""
    return steps


def _cheapest(variant: Variant, found: CheapestBatch) -> CheapestPoint:
    cost = None if variant.usd_per_hour is None else found.usd_per_million_tokens
    return CheapestPoint(found.batch, found.step_s, cost, "any_batch")


def _within_memory(d: Deployment) -> tuple[int, Reason | None]:
    """Most sequences that fit, found by halving, and why one more does not."""

    def against(batch: int) -> Reason | None:
        return reason_of(replace(d, workload=replace(d.workload, concurrency=batch)))

    alone = replace(d, workload=replace(d.workload, concurrency=1))
    # Memory leaves no more to the cache of many sequences than to that of one.
    limit = min(MOST_SEQUENCES, plan_capacity(alone, plan_memory(alone)).max_concurrency)
    most = bisect_left(range(1, limit + 1), True, key=lambda batch: against(batch) is not None)
    return most, None if most == MOST_SEQUENCES else against(most + 1)


def _within_tpot(
    d: Deployment, steps: ExpectedSteps, context: float, limit_s: float, most: int, *, serves: bool
) -> int:
    """Most sequences whose expected time per token stays within a limit, by halving: it never falls with one more."""
    if not serves:
        return batch_within_tpot(_as_model(steps), context, limit_s, most)

    def tpot_s(batch: int) -> float:
        return expected_tpot_s(replace(d, workload=replace(d.workload, concurrency=batch)), steps) or 0.0

    return bisect_right(range(1, most + 1), limit_s, key=tpot_s)


def _knee(steps: ExpectedSteps, context: float, most: int, within: int | None) -> Knee:
    """The knee of decode steps, cut at the batch that keeps the time per token."""
    found = knee(_as_model(replace(steps, even=True)), context, most)
    if within is None:
        return found
    is_cut = within < found.batch or (within == found.batch and found.binds == "gain")
    return replace(
        found,
        within_latency=within,
        batch=within if is_cut else found.batch,
        binds="latency" if is_cut else found.binds,
    )


# ------------------------------------------------------------------------------------------------ explanations


def among(found: CheapestPoint) -> str:
    """Among which batches a token is the cheapest one."""
    return "of any batch within the limits" if found.of == "any_batch" else "of the points"


def explain_marks(m: CurveMarks, limit_s: float | None) -> Iterator[Explanation]:
    """How each mark of a curve came about."""
    at = f"{m.context:,.0f} tokens of context"
    if m.knee is not None:
        yield Explanation(
            "marks.knee",
            f"batch {show_count(m.knee.batch)}",
            "min(within memory, within TPOT, largest B with 1 - B t'(B) / t(B) >= 1/2) (F7.6)",
            f"memory {show_count(m.knee.within_memory)}, "
            + ("" if m.knee.within_latency is None else f"TPOT {show_count(m.knee.within_latency)}, ")
            + f"gain {show_count(m.knee.by_gain)}",
            (("context", at, "asked"),),
            m.knee.binds,
        )
    bound = "never" if m.compute_bound_batch is None else f"batch {m.compute_bound_batch:,.1f}"
    yield Explanation(
        "marks.compute_bound_batch",
        bound,
        "W / (2 N / r - L c), never where the denominator is not positive (F7.3)",
        m.compute_bound_batch_reason or f"{bound} at {at}",
    )
    if m.crossover_batch is not None:
        yield Explanation(
            "marks.crossover_batch",
            f"batch {m.crossover_batch:,.2f}",
            "W / (L c): cache bytes equal weight bytes, throughput is half its limit (F7.2)",
            f"batch {m.crossover_batch:,.2f} at {at}",
        )
    yield Explanation(
        "marks.within_memory",
        f"batch {show_count(m.within_memory)}",
        "largest batch that the memory plan and the engine hold (F7.5)",
        f"{show_count(m.within_memory)} at {at}",
        binds=m.memory_binds,
    )
    if m.within_tpot is not None and limit_s is not None:
        yield Explanation(
            "marks.within_tpot",
            f"batch {show_count(m.within_tpot)}",
            "largest batch in memory whose expected time per output token stays within the limit (F7.4)",
            f"{show_count(m.within_tpot)} within {show_time(limit_s)}",
        )
    if m.cheapest is not None and m.cheapest.usd_per_million_output_tokens is not None:
        cost = m.cheapest.usd_per_million_output_tokens
        yield Explanation(
            "marks.cheapest",
            f"{cost:.3g} USD per million tokens",
            "price of all devices 1e6 / (3600 X), X output tokens per second of all users (F13.8)",
            f"batch {show_count(m.cheapest.batch)}, TPOT {show_time(m.cheapest.tpot_s)}; {among(m.cheapest)}",
        )
