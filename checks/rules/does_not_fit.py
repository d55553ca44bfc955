"""What stands in memory before the first request exceeds a device; with ``limits.fits``, or the sequences of the workload do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...quantities import show_bytes, show_count
from ..finding import Rule
from ..remedying import remedies_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...engines.profile import Part
    from ..checked import Checked
    from ..finding import Finding

_BEFORE_REQUESTS = ("weights_exceed_memory", "cache_exceeds_memory")
_WITH_REQUESTS = ("kv_less_than_concurrency", "engine_admits_fewer")


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the parts of a device's memory with what the engine may use of it."""
    d, plan, reason = checked.deployment, checked.memory, checked.reason
    service = checked.service
    if reason in _BEFORE_REQUESTS:
        fix = remedies_for(service, d)
        if reason == "weights_exceed_memory":
            sizes: dict[Part, int] = {
                "weights": plan.weights_bytes + plan.adapter_bytes,
                "activations": plan.activation_bytes,
                "runtime": plan.non_torch_bytes,
                "graphs": plan.graph_bytes,
            }
            counted = {
                part: sizes[part] for part in sizes if part in (*d.engine.budget.before, *d.engine.budget.within)
            }
            room = sum(counted.values()) + plan.kv_budget_bytes
            listed = ", ".join(f"{part} {show_bytes(size)}" for part, size in counted.items() if size)
            message = (
                f"{d.model.name} does not fit {d.hardware.name}: {listed} on each device, where the engine may use "
                f"{show_bytes(room)} of {show_bytes(plan.total_bytes)}: {show_bytes(-plan.kv_budget_bytes)} too much"
            )
            lacking, place = -plan.kv_budget_bytes, service.place_of("model")
        else:
            message = (
                f"a cache of {show_bytes(plan.kv_budget_bytes)} beside {d.model.name} exceeds {d.hardware.name}: "
                f"{show_bytes(-plan.spare_bytes)} of {show_bytes(plan.total_bytes)} too much"
            )
            lacking, place = -plan.spare_bytes, service.place_of("kv_cache_bytes", "model")
        yield RULE.finding(
            checked,
            place,
            message,
            fix=fix,
            lacking_bytes=lacking,
            total_bytes=plan.total_bytes,
        )
    elif reason in _WITH_REQUESTS and checked.promises_fit:
        asked, running = d.workload.concurrency, checked.capacity.max_concurrency
        message = (
            f"fits: true does not hold: {show_count(asked)} sequences of {show_count(d.workload.length)} tokens are asked for "
            f"and {show_count(running)} run at a time"
        )
        fix = remedies_for(service, d)
        yield RULE.finding(
            checked, service.place_of("fits"), message, fix=fix, concurrency=asked, max_concurrency=running
        )


RULE = Rule(
    id="does-not-fit",
    severity="error",
    title="The deployment does not fit its devices",
    why=(
        "Weights, activations and the runtime leave no room for a cache, so that the engine runs out of memory while it starts. With "
        "`fits: true` among the limits the sequences of the workload must find room too."
    ),
    fix="Use more or larger devices, fewer bits for the weights, or shorter and fewer sequences.",
    check=check,
)
