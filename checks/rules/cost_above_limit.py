"""A million output tokens at the workload cost more than the limit of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Rule
from ..limits import COST, missed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the planner's figure with the limit of the file."""
    yield from missed(RULE, checked, COST)


RULE = Rule(
    id="cost-above-limit",
    severity="error",
    title="Output costs more than promised",
    why=(
        "The price of all devices is divided by the tokens that they give at the workload: a server that is not full is an "
        "expensive one."
    ),
    fix=(
        "More requests at a time, narrower formats, or fewer devices; usd_per_hour where the price of the catalogue is not "
        "yours."
    ),
    check=check,
)
