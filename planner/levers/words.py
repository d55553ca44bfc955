"""Words that the reasons of levers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...quantities import show_count, show_rate, show_time
from .outcomes import Gains

if TYPE_CHECKING:
    from .outcomes import Outcome

LIMITS = {
    "compute": "arithmetic",
    "weight_bandwidth": "reading weights",
    "kv_bandwidth": "reading the cache",
    "interconnect": "exchanges between devices",
    "overhead": "fixed times of kernels and host",
    None: "something unknown: no rate of the device is",
}
_UNFIT = "not one sequence fits"


def times(gain: float) -> str:
    """A factor in three digits.

    >>> times(1.8), times(256.5), times(0.05)
    ('1.80x', '256x', '0.0500x')
    """
    return f"{gain:#.3g}".rstrip(".") + "x"


def change(before: Outcome, after: Outcome) -> str:
    """The figures before and after, those that both sides have."""
    if not (before.max_concurrency and after.max_concurrency):
        sides = [
            f"room for {show_count(side.max_concurrency)}" if side.max_concurrency else _UNFIT
            for side in (before, after)
        ]
        return " -> ".join(sides)
    parts = [
        f"{name} {show_time(old)} -> {show_time(new)}"
        for name, old, new in (("TTFT", before.ttft_s, after.ttft_s), ("TPOT", before.tpot_s, after.tpot_s))
        if old is not None and new is not None
    ]
    if before.output_tokens_per_s is not None and after.output_tokens_per_s is not None:
        parts.append(f"{show_rate(before.output_tokens_per_s)} -> {show_rate(after.output_tokens_per_s)} tokens/s")
    parts.append(f"room {show_count(before.max_concurrency)} -> {show_count(after.max_concurrency)}")
    return ", ".join(parts)


def step_gain(before: Outcome, after: Outcome) -> float:
    """Gain per output token, or of the first one where there is no other; 1 where nothing is timed."""
    gains = Gains.between(before, after)
    return gains.tpot or gains.ttft or 1.0
