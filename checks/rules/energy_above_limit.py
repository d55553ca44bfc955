"""An output token at the workload takes more energy than the limit of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Rule
from ..limits import ENERGY, missed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the planner's figure with the limit of the file."""
    yield from missed(RULE, checked, ENERGY)


RULE = Rule(
    id="energy-above-limit",
    severity="error",
    title="Output takes more energy than promised",
    why=(
        "The power limit of all devices is divided by the tokens that they give at the workload, which is an upper bound of "
        "what they draw."
    ),
    fix="More requests at a time, narrower formats, or fewer devices.",
    check=check,
)
