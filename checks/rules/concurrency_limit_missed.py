"""Fewer sequences run at a time than a deployment file asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...quantities import show_count
from ..finding import Rule
from ..remedying import remedies_for
from ..spelling import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the sequences of the workload's length that run at a time with the limit."""
    limit = checked.service.limits.get("concurrency")
    if limit is None or checked.capacity.max_concurrency >= limit.value:
        return
    d, capacity = checked.deployment, checked.capacity
    admits = capacity.binds == "max_num_seqs"
    binds = "the engine admits" if admits else "the cache holds"
    message = (
        f"{binds} {show_count(capacity.max_concurrency)} sequences of {show_count(d.workload.length)} tokens: "
        f"want at least {show_count(limit.value)}"
    )
    if admits:
        fix = setting(checked.service, "max_num_seqs", -(-limit.value // d.layout.dp))
    else:
        fix = remedies_for(
            checked.service, replace(d, workload=replace(d.workload, concurrency=limit.value)), same_load=True
        )
    yield RULE.finding(
        checked, limit.place, message, fix=fix, max_concurrency=capacity.max_concurrency, limit_sequences=limit.value
    )


RULE = Rule(
    id="concurrency-limit-missed",
    severity="error",
    title="Fewer sequences run than are asked for",
    why=(
        "The sequences that run at a time, each at prompt + output, are limited by the cache and by the engine's own number."
    ),
    fix="Raise what binds: the sequences that the engine admits, the memory of the cache, or the bits of its entries.",
    check=check,
)
