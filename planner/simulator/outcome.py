"""What clients send, and what they see."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import domain


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt of so many tokens that gets so many; ``sent_s`` counts in an open loop only."""

    prompt: int
    output: int
    sent_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse requests without a token."""
        domain.count("prompt", self.prompt)
        domain.count("output", self.output)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What clients saw, request by request in the order given, in seconds.

    Parameters
    ----------
    ttft_s, e2e_s : from sending to the first and to the last token
    tpot_s : (E2E - TTFT) / (output - 1); None for an output of a single token
    queued_s : time in which a request, or one before it, was kept out by slots or cache alone
    end_s : when the last client had its last token
    steps : of the engine
    """

    ttft_s: tuple[float, ...]
    tpot_s: tuple[float | None, ...]
    e2e_s: tuple[float, ...]
    queued_s: tuple[float, ...]
    end_s: float
    steps: int

    @property
    def mean_ttft_s(self) -> float:
        """Mean over the requests, as benchmark clients print it."""
        return math.fsum(self.ttft_s) / len(self.ttft_s)

    @property
    def mean_tpot_s(self) -> float | None:
        """Mean over the requests of more than one token, each with the same weight; None where there is none."""
        known = [tpot for tpot in self.tpot_s if tpot is not None]
        return math.fsum(known) / len(known) if known else None
