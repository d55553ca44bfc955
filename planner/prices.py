"""Prices of devices as an input of sweeps and comparisons: where they come from, and ranges of cost from ranges of rates.

Source: the price of a catalogue entry with its provider and day; formula F13.8 through :mod:`.spending`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .ranges import Range
from .results import Assumption
from .spending import usd_per_million_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..hardware.spec import HardwareSpec


def price_assumption(device: HardwareSpec, usd_per_hour: float | None) -> Iterator[Assumption]:
    """The price of a device, where it is that of its spec and not one that was given."""
    if usd_per_hour is None or device.price is None or device.price.usd_per_hour != usd_per_hour:
        return
    evidence = device.evidence_of("price")
    source = f"{device.name}: {device.price.provider}, {device.price.as_of}"
    yield Assumption("usd_per_device_hour", usd_per_hour, source, evidence.kind if evidence else "user")


def cost_range(usd_per_hour: float, tokens_per_s: Range) -> Range:
    """Dollars per million tokens from the price and the rate of all devices together: the highest rate is the lowest cost.

    Raises
    ------
    DomainError : for a negative price, or a rate that is not above zero
    """
    return Range(
        bound=usd_per_million_tokens(usd_per_hour, tokens_per_s.bound),
        low=usd_per_million_tokens(usd_per_hour, tokens_per_s.high),
        expected=usd_per_million_tokens(usd_per_hour, tokens_per_s.expected),
        high=usd_per_million_tokens(usd_per_hour, tokens_per_s.low),
    )
