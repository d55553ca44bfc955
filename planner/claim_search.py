"""The search for means that explain a claim: what it looks at, each combination of formats and devices once.

The settings of a means are tried from the mildest on; what is continuous (acceptance, users) is found by halving.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..errors import LayoutError
from .claim_speeds import Aid, Machine, reaches, speed_of
from .parallel import check_layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..engines.spec import NumberFormat
    from ..hardware.achieved import Kernels
    from .claim_reasons import ClaimReason
    from .claim_speeds import Question
    from .claim_text import Claim
    from .deployment import Deployment
    from .formats import Formats
    from .parallel import Layout
    from .ranges import Range

_MOST_DEVICES = 64
HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Mean:
    """One means alone.

    Parameters
    ----------
    setting : what it takes, by the names of the options; of one that does not suffice its strongest setting, or what would be needed
    speed : with that setting; None where there is none
    reason : a code of why it does not explain the claim; None where it does
    """

    id: str
    setting: dict[str, Any]
    speed: Range | None
    reason: ClaimReason | None

    @property
    def explains(self) -> bool:
        """Whether it explains the claim alone."""
        return self.reason is None


@dataclass(frozen=True, slots=True)
class Combination:
    """Means that explain a claim together, with their settings."""

    ids: tuple[str, ...]
    setting: dict[str, Any]
    speed: Range


@dataclass(frozen=True, slots=True)
class Search:
    """The search for means: a claim, what it is measured by, and the formats that there are.

    Parameters
    ----------
    weights, kv : formats narrower than those in use, the mildest first
    kernels : what kernels reach on several devices, exchanges included; None where only nominal times are known
    roof : whether the claim is above the roof, so that means must lift that; else above what is reached
    """

    claim: Claim
    question: Question
    base: Deployment
    users: int
    weights: tuple[Formats, ...]
    kv: tuple[NumberFormat, ...]
    roof: bool
    kernels: Kernels | None = None
    looked_at: dict[tuple[int, int, Layout], Machine] = field(default_factory=dict)

    def machine(self, weights: int = 0, kv: int = 0, layout: Layout | None = None) -> Machine:
        """The deployment with the n-th narrower formats (0: as it is) and another layout; each is looked at once."""
        d, place = self.base, layout or self.base.layout
        key = (weights, kv, place)
        if key not in self.looked_at:
            formats = d.formats if not weights else self.weights[weights - 1]
            formats = replace(formats, kv=self.kv[kv - 1] if kv else d.formats.kv)
            memory = replace(d.memory, weights_bytes=None) if weights or place != d.layout else d.memory
            kernels = d.kernels if place == d.layout else self.kernels
            changed = replace(d, formats=formats, layout=place, memory=memory, kernels=kernels)
            self.looked_at[key] = Machine.of(changed, self.question)
        return self.looked_at[key]

    def speed(self, machine: Machine, aid: Aid | None = None) -> Range:
        """Speed with what helps."""
        return speed_of(machine, self.question, aid or self.aid)

    def suffices(self, machine: Machine, aid: Aid | None = None) -> bool:
        """Whether the claim is reached."""
        return machine.runs and reaches(self.speed(machine, aid), self.claim, roof=self.roof)

    @property
    def aid(self) -> Aid:
        """Nothing but the users that were asked for."""
        return Aid(users=self.users)

    def layouts(self) -> list[Layout]:
        """Layouts on more devices, by their number: more ranks, more replicas where there is more than one sequence, or both.

        Ranks are no more than a known link joins: what is exchanged over an unknown one cannot be timed.
        """
        now = self.base.layout
        one = self.claim.kind in {"user_rate", "token_time", "first_token"} or self.users == 1
        replicas = self.claim.kind == "sequences" or not one
        found = []
        for factor in (2, 4, 8, 16, 32, 64):
            for ranks in (each for each in (64, 32, 16, 8, 4, 2, 1) if factor % each == 0):
                layout = replace(now, tp=now.tp * ranks, dp=now.dp * factor // ranks)
                if layout.devices <= _MOST_DEVICES and (replicas or ranks == factor) and self._is_possible(layout):
                    found.append(layout)
        return found

    def _is_possible(self, layout: Layout) -> bool:
        joined = layout.tp * layout.pp
        try:
            check_layout(self.base.model, layout)
        except LayoutError:
            return False
        return joined == 1 or self.base.hardware.link(joined) is not None


def least(possible: Callable[[int], bool], low: int, high: int) -> int | None:
    """Least number of a range for which something is possible that then stays so; None where it never is."""
    if high < low or not possible(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if possible(middle) else (middle + 1, high)
    return low


def least_acceptance(s: Search, machine: Machine, aid: Aid) -> float | None:
    """Acceptance with which drafts reach the claim, by halving; None where not even perfect drafts do."""
    if not s.suffices(machine, replace(aid, acceptance=1.0)):
        return None
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if s.suffices(machine, replace(aid, acceptance=middle)) else (middle, high)
    return high
