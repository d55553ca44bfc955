"""Whether a deployment fits, and why not: the one rule that sizing, inverse questions and remedies share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .memory import plan_capacity, plan_memory

if TYPE_CHECKING:
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


def reason_against(d: Deployment, plan: MemoryPlan, capacity: Capacity) -> Reason | None:
    """Why the sequences of the workload do not all run at their full length, the first reason in this order; None when they do.

    ``max_model_len_exceeds_cache``: the engine refuses to start when not even one sequence of the longest length that it accepts fits.
    """
    if plan.kv_budget_bytes < 0:
        return "weights_exceed_memory"
    if d.settings.kv_cache_bytes is not None and plan.spare_bytes < 0:
        return "cache_exceeds_memory"
    if plan.kv_budget_bytes < plan.kv_bytes_per_sequence:
        return "kv_less_than_one_sequence"
    if d.engine.paging is not None and d.engine.paging.holds_longest and capacity.concurrency_at_limit < d.layout.dp:
        return "max_model_len_exceeds_cache"
    if plan.free_bytes < 0:
        return "kv_less_than_concurrency"
    return "engine_admits_fewer" if capacity.max_concurrency < d.workload.concurrency else None


def reason_of(d: Deployment) -> Reason | None:
    """The same for a deployment that is not planned yet."""
    plan = plan_memory(d)
    return reason_against(d, plan, plan_capacity(d, plan))


def fits(d: Deployment) -> bool:
    """Whether all sequences of the workload run at their full length."""
    return reason_of(d) is None
