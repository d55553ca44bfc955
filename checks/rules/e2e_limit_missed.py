"""The time of a whole request at the workload exceeds the limit of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Rule
from ..limits import E2E, missed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the planner's figure with the limit of the file."""
    yield from missed(RULE, checked, E2E)


RULE = Rule(
    id="e2e-limit-missed",
    severity="error",
    title="Requests take longer than promised",
    why=(
        "The time of a whole request is that of its first token and of every later one; long outputs are decided by the time "
        "per token."
    ),
    fix="What shortens the time per token, or fewer requests at a time.",
    check=check,
)
