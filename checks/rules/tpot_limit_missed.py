"""The time per output token at the workload exceeds the limit of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Rule
from ..limits import TPOT, missed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the planner's figure with the limit of the file."""
    yield from missed(RULE, checked, TPOT)


RULE = Rule(
    id="tpot-limit-missed",
    severity="error",
    title="Tokens come more slowly than promised",
    why=(
        "The time per output token grows with the sequences of a step, with their cache, and with the prompts that are "
        "computed in between."
    ),
    fix=(
        "Fewer requests at a time, narrower weights or cache, or more tensor-parallel ranks; fewer prompt tokens in a step."
    ),
    check=check,
)
