"""Whether a deployment fits, and why not: the one rule that sizing, inverse questions and remedies share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .memory import plan_capacity, plan_memory

if TYPE_CHECKING:
    from .costs import Amount
    from .deployment import Deployment
    from .memory import Capacity, MemoryPlan

Reason = Literal[
    "weights_exceed_memory",
    "cache_exceeds_memory",
    "kv_less_than_one_sequence",
    "max_model_len_exceeds_cache",
    "kv_less_than_concurrency",
    "engine_admits_fewer",
]


def conditions(
    d: Deployment,
    *,
    kv_budget: Amount,
    spare: Amount,
    per_sequence: Amount,
    free: Amount,
    at_limit: Amount,
    running: Amount,
    asked: Amount,
) -> tuple[tuple[Reason, Amount], ...]:
    """Every reason and whether it holds, in the order in which they are told; of numbers, or of numpy arrays of many plans.

    Parameters
    ----------
    kv_budget, spare, per_sequence, free : bytes of a :class:`~roofplan.planner.memory.MemoryPlan`
    at_limit, running : sequences of a :class:`~roofplan.planner.memory.Capacity`, of the longest length and of the workload's
    asked : sequences that were asked for
    """
    holds_longest = d.engine.paging is not None and d.engine.paging.holds_longest
    return (
        ("weights_exceed_memory", kv_budget < 0),
        ("cache_exceeds_memory", (spare < 0) & (d.settings.kv_cache_bytes is not None)),
        ("kv_less_than_one_sequence", kv_budget < per_sequence),
        ("max_model_len_exceeds_cache", (at_limit < d.layout.dp) & holds_longest),
        ("kv_less_than_concurrency", free < 0),
        ("engine_admits_fewer", running < asked),
    )


def reason_against(d: Deployment, plan: MemoryPlan, capacity: Capacity) -> Reason | None:
    """Why the sequences of the workload do not all run at their full length, the first reason in this order; None when they do.

    ``max_model_len_exceeds_cache``: the engine refuses to start when not even one sequence of the longest length that it accepts fits.
    """
    found = conditions(
        d,
        kv_budget=plan.kv_budget_bytes,
        spare=plan.spare_bytes,
        per_sequence=plan.kv_bytes_per_sequence,
        free=plan.free_bytes,
        at_limit=capacity.concurrency_at_limit,
        running=capacity.max_concurrency,
        asked=d.workload.concurrency,
    )
    return next((reason for reason, holds in found if holds), None)


def reason_of(d: Deployment) -> Reason | None:
    """The same for a deployment that is not planned yet."""
    plan = plan_memory(d)
    return reason_against(d, plan, plan_capacity(d, plan))


def fits(d: Deployment) -> bool:
    """Whether all sequences of the workload run at their full length."""
    return reason_of(d) is None
