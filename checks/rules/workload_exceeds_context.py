"""The stated workload is longer than the engine accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...quantities import show_count
from ..finding import Rule
from ..spelling import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Compare prompt + output with the longest sequence."""
    options = checked.service.options
    lengths = [
        options[name] for name in ("prompt", "output") if name in options and isinstance(options[name].value, int)
    ]
    limit = options.get("max_model_len")
    if limit is None or not lengths or not isinstance(limit.value, int):
        return
    whole = sum(said.value for said in lengths)
    if whole <= limit.value:
        return
    parts = " + ".join(show_count(said.value) for said in lengths)
    message = f"requests of {parts} tokens exceed the longest sequence, {show_count(limit.value)}: they are refused or cut short"
    yield RULE.finding(
        checked,
        limit.place,
        message,
        fix=setting(checked.service, "max_model_len", whole),
        tokens=whole,
        max_model_len=limit.value,
    )


RULE = Rule(
    id="workload-exceeds-context",
    severity="error",
    title="The workload is longer than the longest sequence",
    why="Prompt and output of a request share one sequence: an engine refuses a prompt that leaves no room, or ends the output early.",
    fix="Raise the longest sequence, or state the workload that is meant.",
    check=check,
    explains=True,
)
