"""Less memory stays free than a deployment file asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...quantities import show_bytes, show_count
from ..finding import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the cache that stays free, once all sequences are at their full length, with the limit."""
    limit = checked.service.limits.get("headroom")
    if limit is None or checked.memory.free_bytes >= limit.value:
        return
    plan = checked.memory
    free = (
        f"{show_bytes(plan.free_bytes)} stay free"
        if plan.free_bytes >= 0
        else f"{show_bytes(-plan.free_bytes)} are lacking"
    )
    message = (
        f"{free} on each device once {show_count(plan.sequences)} sequences are at their full length, "
        f"of {show_bytes(max(0, plan.kv_budget_bytes))}: "
        f"want at least {show_bytes(limit.value)}"
    )
    fewer = max(0, plan.kv_budget_bytes - limit.value) // max(1, plan.kv_bytes_per_sequence)
    message += f", which {show_count(fewer)} sequences leave" if 0 < fewer < plan.sequences else ""
    yield RULE.finding(checked, limit.place, message, free_bytes=plan.free_bytes, limit_bytes=limit.value)


RULE = Rule(
    id="headroom-missed",
    severity="error",
    title="Less memory stays free than is asked for",
    why="Head-room is the cache that is left when every sequence of the workload has its full length: room for bursts and longer prompts.",
    fix="Serve fewer or shorter sequences, store the cache in fewer bits, or give the engine more memory.",
    check=check,
)
