"""The deployment gives fewer tokens or requests per second than the limits of the file want of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Rule
from ..limits import OUTPUT_RATE, REQUEST_RATE, missed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the rates of all devices at the workload with the limits."""
    for limit in (OUTPUT_RATE, REQUEST_RATE):
        yield from missed(RULE, checked, limit)


RULE = Rule(
    id="throughput-below-workload",
    severity="error",
    title="The throughput is lower than the workload wants",
    why=(
        "Both rates are those of all devices at the concurrency of the workload. What arrives beyond them queues without end."
    ),
    fix="More requests at a time where memory has room, narrower formats, or more replicas.",
    check=check,
)
