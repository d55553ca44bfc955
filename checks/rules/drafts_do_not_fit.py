"""A draft model beside the model leaves no cache for one sequence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...api.building import deployment
from ...errors import LayoutError, RoofplanError
from ...planner.draft_memory import with_drafts
from ...planner.drafters import of_cost
from ...planner.memory import rank_cache
from ...planner.parameters import stored_bytes
from ...quantities import show_bytes, show_count
from ..checked import Unbuilt
from ..finding import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...planner.deployment import Deployment
    from ..checked import Checked
    from ..finding import Finding

_BY_A_MODEL = ("", "draft", "draft_model", "standalone")


def check(checked: Checked) -> Iterator[Finding]:
    """Take weights and cache of a draft model off what the cache has (formula F11.11); a deployment that does not fit is told without."""
    said = checked.service.features.get("speculation")
    if said is None or not isinstance(said.value, dict) or checked.reason not in {None, "kv_less_than_concurrency"}:
        return
    name, drafts = said.value.get("model"), said.value.get("k")
    by_a_model = str(said.value.get("method") or "").lower().replace("-", "_") in _BY_A_MODEL
    if not by_a_model or not isinstance(name, str) or not isinstance(drafts, int) or not 1 <= drafts <= 1000:
        return
    d = checked.deployment
    draft = _draft(d, name)
    stored = stored_bytes(draft.model, draft.formats, draft.layout)
    drafter = replace(
        of_cost(0.0), weights_bytes=stored, cache=rank_cache(draft)
    )  # its memory alone: what it costs is not asked
    plan = with_drafts(d, checked.memory, drafter, drafts, drafts)
    if plan.kv_budget_bytes >= plan.kv_bytes_per_sequence:
        return
    message = (
        f"weights of {draft.model.name}, {show_bytes(stored)} on each device, leave "
        f"{show_bytes(max(0, plan.kv_budget_bytes))} of {show_bytes(checked.memory.kv_budget_bytes)} for the cache, and one sequence of "
        f"{show_count(d.workload.length)} tokens needs {show_bytes(plan.kv_bytes_per_sequence)} with its drafts"
    )
    yield RULE.finding(
        checked,
        said.place,
        message,
        draft_weights_bytes=stored,
        kv_bytes=plan.kv_budget_bytes,
        needed_bytes=plan.kv_bytes_per_sequence,
    )


def _draft(d: Deployment, name: str) -> Deployment:
    """The draft model on as many ranks as the target, on one where its heads do not divide.

    Raises
    ------
    Unbuilt : where it is not known
    """
    same: dict[str, Any] = {"engine": d.engine, "prompt": d.workload.prompt, "output": d.workload.output}
    try:
        try:
            return deployment(name, d.hardware, tp=d.layout.tp, **same)
        except LayoutError:
            return deployment(name, d.hardware, **same)
    except RoofplanError as error:
        raise Unbuilt from error


RULE = Rule(
    id="drafts-do-not-fit",
    severity="error",
    title="The draft model leaves no room for the cache",
    why=(
        "A draft model has weights and a cache of its own on the same devices. An engine that fits without it then stops at its start, or "
        "serves so few sequences that nothing is gained."
    ),
    fix="Use a smaller draft model, a trained head (EAGLE, MTP), drafts from the prompt itself (ngram), or fewer bits for the weights.",
    check=check,
)
