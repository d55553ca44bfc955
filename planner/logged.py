"""A start-up log beside the prediction for the same deployment, part by part.

The log shows the first rank, so bytes are compared with the first pipeline stage; tokens and concurrency follow the rank with least room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .memory import divide_memory, engine_cache, plan_capacity, plan_memory, stage_plans
from .paging import PagedCache

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engines.profile import Part
    from ..engines.startup_log import StartupLog
    from .deployment import Deployment


@dataclass(frozen=True, slots=True)
class LoggedPart:
    """One figure of a log, and what was predicted for it; in bytes, or as a number."""

    name: str
    logged: float
    predicted: float
    unit: Literal["bytes", "number"] = "bytes"

    @property
    def error(self) -> float | None:
        """Relative error of the prediction; None where the log says zero."""
        return self.predicted / self.logged - 1 if self.logged else None


def compare_log(d: Deployment, log: StartupLog) -> tuple[LoggedPart, ...]:
    """Compare every part that a log states with what the deployment's plan gives."""
    return tuple(_parts(d, log))


def _parts(d: Deployment, log: StartupLog) -> Iterator[LoggedPart]:
    first, capacity = stage_plans(d)[0], plan_capacity(d, plan_memory(d))
    nothing_sized = d.engine.budget.takes_all and log.max_model_len
    cache = engine_cache(d)
    kv_bytes = cache.bytes_per_sequence(log.max_model_len or 1) if nothing_sized else first.kv_budget_bytes
    sizes: dict[str, tuple[int | None, int]] = {
        "total": (log.total_bytes, d.hardware.memory.total(d.engine.budget.total)),
        "weights": (log.weights_bytes, first.weights_bytes + first.adapter_bytes),
        "activations": (log.activation_bytes, first.activation_bytes),
        "compute buffer": (log.compute_buffer_bytes, first.activation_bytes),
        "runtime": (log.non_torch_bytes, first.non_torch_bytes),
        "graphs": (log.graph_bytes, first.graph_bytes),
        "cache": (log.kv_bytes, kv_bytes),
    }
    for name, (logged, predicted) in sizes.items():
        if logged is not None:
            yield LoggedPart(name, logged, predicted)
    own = _from_own_parts(d, log)
    if own is not None and log.kv_bytes:
        yield LoggedPart("cache, from the log's own parts", log.kv_bytes, own)
    if nothing_sized:
        return
    counts: dict[str, tuple[float | None, float]] = {
        "tokens": (log.kv_tokens, capacity.kv_tokens),
        "concurrency": (log.max_concurrency, capacity.concurrency_at_limit),
    }
    if isinstance(cache, PagedCache) and cache.shared:
        counts["blocks"] = (log.kv_blocks, cache.blocks_within(max(0, plan_memory(d).kv_budget_bytes)))
    for name, (count, predicted_count) in counts.items():
        if count is not None:
            yield LoggedPart(name, count, predicted_count, "number")


def _from_own_parts(d: Deployment, log: StartupLog) -> int | None:
    """The engine's identity on the log's parts; None where one is missing."""
    budget, share = d.engine.budget, log.memory_utilization
    if budget.before and not budget.within and log.free_before_bytes is not None and share is not None:
        return int(log.free_before_bytes * share)
    if log.total_bytes is None or share is None:
        return None
    known = {"weights": log.weights_bytes, "activations": log.activation_bytes, "runtime": log.non_torch_bytes}
    known["graphs"] = log.graph_estimate_bytes or 0
    parts: dict[Part, int] = {}
    for part in (*budget.before, *budget.within):
        size = known[part]
        if size is None:
            return None
        parts[part] = size
    return divide_memory(budget, log.total_bytes, share, parts)[1]
