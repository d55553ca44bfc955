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
    from ..finding import Finding

_FITTED = ("auto", "-1", -1)  # --max-model-len auto: the engine takes what fits


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the cache with what one sequence needs."""
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


RULE = Rule(
    id="kv-less-than-one-sequence",
    severity="error",
    title="The cache is smaller than one sequence",
    why=(
        "An engine with a paged cache checks at its start that one sequence of the longest length finds room, and stops where it does not. "
        "Where no longest length is said, it is the model's own, which is often far more than is needed."
    ),
    fix="State a shorter longest sequence, give the cache more memory, or store it in fewer bits.",
    check=check,
)
