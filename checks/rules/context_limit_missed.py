"""The longest sequence that fits is shorter than a deployment file asks for."""

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

_MEMORY = "the cache's memory"


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the longest single sequence that memory, model and engine allow with the limit."""
    limit = checked.service.limits.get("context")
    longest = None if limit is None else checked.capacity.max_context
    if limit is None or longest is None or longest >= limit.value:
        return
    d = checked.deployment
    by_setting = d.max_model_len is not None and longest == d.max_model_len
    binds = (
        "the engine's longest sequence"
        if by_setting
        else f"the context of {d.model.name}"
        if longest == d.context_limit
        else _MEMORY
    )
    message = (
        f"the longest sequence is {show_count(longest)} tokens, by {binds}: want at least {show_count(limit.value)}"
    )
    fix = setting(checked.service, "max_model_len", limit.value) if by_setting else ""
    if binds == _MEMORY and limit.value > 1:
        workload = replace(d.workload, prompt=limit.value - 1, output=1, concurrency=1)
        fix = remedies_for(checked.service, replace(d, workload=workload, max_model_len=limit.value), same_load=True)
    yield RULE.finding(checked, limit.place, message, fix=fix, max_context=longest, limit_tokens=limit.value)


RULE = Rule(
    id="context-limit-missed",
    severity="error",
    title="The longest sequence is shorter than is asked for",
    why=(
        "The longest sequence is the least of what the model was published for, what the engine accepts and what the cache can "
        "hold."
    ),
    fix="Raise what binds: the engine's longest sequence, the memory of the cache, or the bits of its entries.",
    check=check,
)
