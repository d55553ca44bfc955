"""The engine's share leaves too little for what it does not count."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...quantities import show_bytes
from ..finding import Rule
from ..spelling import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Compare what is left of the device beside share, driver's context and graphs with nothing."""
    d, plan, service = checked.deployment, checked.memory, checked.service
    if plan.spare_bytes >= 0 or plan.kv_budget_bytes < 0 or d.settings.kv_cache_bytes is not None:
        return
    base = plan.budget_bytes / plan.utilization
    share = math.floor(100 * (plan.utilization + plan.spare_bytes / base)) / 100
    message = (
        f"a share of {plan.utilization:g} leaves {show_bytes(plan.total_bytes - plan.budget_bytes)} of {d.hardware.name} for the driver's "
        f"context and what {d.engine.engine} allocates beside its share: {show_bytes(-plan.spare_bytes)} too little"
    )
    fix = setting(service, "memory_utilization", f"{share:g}") if share > 0 else ""
    yield RULE.finding(
        checked,
        service.place_of("memory_utilization"),
        message,
        fix=fix,
        severity="warning" if "memory_utilization" in service.options else "note",
        lacking_bytes=-plan.spare_bytes,
        utilization=plan.utilization,
    )


RULE = Rule(
    id="utilisation-risky",
    severity="warning",
    title="The memory share leaves no room beside it",
    why=(
        "The share of memory that an engine takes does not hold everything: the driver's context and, in many versions, captured graphs "
        "and activations come on top. A start then fails, or succeeds until the first large batch. Of the engine's own default it is only "
        "noted."
    ),
    fix="Lower the share of memory, or capture no graphs.",
    check=check,
)
