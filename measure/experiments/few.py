"""Long calls: a whole generation or a whole run of requests is timed a few times and not ten."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bench import Bench

SAMPLES = {True: 1, False: 3}  # by whether the run is a quick one


def few(own: Bench) -> Bench:
    """The same bench for long calls: fewer samples, no repeats and no more warm-up than the first call."""
    limits = replace(own.limits, least=min(own.limits.least, SAMPLES[own.quick]), warm_s=0.0)
    return replace(own, limits=limits)
