"""Weights that are kept in the host's memory are read over the bus in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...quantities import show_bandwidth, show_bytes, show_time
from ..finding import Rule
from ..plans import offloaded_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Divide the offloaded bytes by the bandwidth of the link to the host."""
    service, device = checked.service, checked.hardware
    size = offloaded_bytes(service)
    rate = max((link.per_direction for link in device.links if link.topology == "host"), default=None)
    if not size or rate is None:
        return
    seconds = size / rate
    message = (
        f"{show_bytes(size)} of the weights are read from the host in every step: at {show_bandwidth(rate)} at least "
        f"{show_time(seconds)} for each token of a user"
    )
    yield RULE.finding(checked, service.place_of("cpu_offload_bytes"), message, tpot_s=seconds, offloaded_bytes=size)


RULE = Rule(
    id="offload-slows-every-step",
    severity="warning",
    title="Offloaded weights slow every step",
    why=(
        "A model that fits only with a part of its weights in the host's memory reads that part over the bus again for every step, which "
        "is some fifty times slower than the device's own memory. Times of such a deployment are not planned."
    ),
    fix="Use fewer bits for the weights, or another device, and offload nothing.",
    check=check,
)
