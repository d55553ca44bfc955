"""The cache cannot hold one sequence: of the workload, or of the longest length where the engine insists on that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...planner.memory import engine_cache
from ...quantities import show_bytes, show_count
from ..finding import Rule
from ..spelling import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding, Severity

_FITTED = ("auto", "-1", -1)  # --max-model-len auto: the engine takes what fits


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the cache with what one sequence needs."""
    if checked.reason is None:
        yield from _never_whole(checked)
    if checked.reason not in {"kv_less_than_one_sequence", "max_model_len_exceeds_cache"}:
        return
    d, plan, service = checked.deployment, checked.memory, checked.service
    refuses = checked.reason == "max_model_len_exceeds_cache"
    if refuses and any(flag.name == "--max-model-len" and flag.value.value in _FITTED for flag in service.flags):
        return
    length = d.longest_sequence if refuses else d.workload.length
    needed = engine_cache(d).bytes_per_sequence(length)
    whose = "" if d.max_model_len is not None or not refuses else f", the limit of {d.model.name},"
    end = f"{d.engine.engine} refuses to start" if refuses else "no request is ever served whole"
    message = (
        f"the cache has {show_bytes(plan.kv_budget_bytes)} on each device and one sequence of {show_count(length)} tokens{whose} "
        f"needs {show_bytes(needed)}: {end}"
    )
    longest = checked.capacity.max_context or 0
    rounded = longest // 1024 * 1024 or longest
    fix = setting(service, "max_model_len", rounded) if refuses and rounded >= d.workload.length else ""
    place = service.place_of("max_model_len", "prompt", "model")
    yield RULE.finding(
        checked, place, message, fix=fix, kv_bytes=plan.kv_budget_bytes, needed_bytes=needed, max_context=longest
    )


def _never_whole(checked: Checked) -> Iterator[Finding]:
    """A longest sequence that is asked for, where the engine does not look at its start whether the cache holds one."""
    said, d = checked.service.options.get("max_model_len"), checked.deployment
    stops = d.engine.budget.takes_all  # the cache of the whole context is allocated at the start
    slots = _slots(checked) if stops else 1
    if said is None or d.max_model_len is None or checked.capacity.concurrency_at_limit >= d.layout.dp * slots:
        return
    longest = checked.capacity.kv_tokens // slots if slots > 1 else checked.capacity.max_context or 0
    of_all = f" in each of {show_count(slots)} slots" if slots > 1 else ""
    end = "allocates all of it at its start, and stops" if stops else "starts, and longer requests are turned away"
    message = (
        f"the longest sequence is to be {show_count(d.max_model_len)} tokens{of_all} and the cache has room for {show_count(longest)}: "
        f"{d.engine.engine} {end}"
    )
    fix = setting(checked.service, "max_model_len", longest // 1024 * 1024 or longest) if longest else ""
    severity: Severity = "error" if stops else "warning"
    yield RULE.finding(checked, said.place, message, fix=fix, severity=severity, max_context=longest)


def _slots(checked: Checked) -> int:
    """Slots that have a context of their own."""
    said = checked.service.options.get("max_num_seqs")
    return (
        said.value if said is not None and isinstance(said.value, int) and not checked.feature("shared_context") else 1
    )


RULE = Rule(
    id="kv-less-than-one-sequence",
    severity="error",
    title="The cache is smaller than one sequence",
    why=(
        "An engine with a paged cache checks at its start that one sequence of the longest length finds room, and stops where it does not. "
        "Where no longest length is said, it is the model's own, which is often far more than is needed. It is a warning where an engine "
        "starts without that check and turns longer requests away."
    ),
    fix="State a shorter longest sequence, give the cache more memory, or store it in fewer bits.",
    check=check,
)
