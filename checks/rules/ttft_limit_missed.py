"""The time to first token at the workload exceeds the limit of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Rule
from ..limits import TTFT, missed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the planner's figure with the limit of the file."""
    yield from missed(RULE, checked, TTFT)


RULE = Rule(
    id="ttft-limit-missed",
    severity="error",
    title="The first token comes later than promised",
    why=(
        "At the concurrency of the workload a request waits for the step at hand, for prompts of others and for its own "
        "prompt; the limit is on the mean that users with spread arrivals see."
    ),
    fix=(
        "Fewer requests at a time or more replicas shorten the wait, more or faster devices the prompt; a larger step lets "
        "prompts pass sooner."
    ),
    check=check,
)
