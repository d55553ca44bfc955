"""What engines count of speculation, and how it becomes tokens per round and cumulative rates.

Conventions differ. Accepted / drafted is not alpha (see :mod:`~roofplan.planner.acceptance`); rates by position are cumulative; the mean
acceptance length of vLLM counts the bonus token, that of others does not.

Sources: formula F11.4; vllm-project/vllm, vllm/v1/spec_decode/metrics.py at 016a858; ggml-org/llama.cpp pull request 24536.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DomainError
from . import domain

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class DraftCounters:
    """What an engine counts: rounds (target steps with drafts), tokens drafted, and those of them that were accepted.

    Known to differ: counters of vLLM in 2024 (issue 7301) also took accepted tokens after the first rejection; they do not fit here.

    Raises
    ------
    DomainError : without a round, or for more accepted tokens than drafted ones
    """

    rounds: int
    drafted: int
    accepted: int

    def __post_init__(self) -> None:
        """Refuse counters that cannot be."""
        domain.count("rounds", self.rounds)
        domain.count("drafted", self.drafted, 0)
        if domain.count("accepted", self.accepted, 0) > self.drafted:
            raise DomainError("accepted", got=self.accepted, wanted=f"at most {self.drafted}, the drafted tokens")

    @property
    def accepted_share(self) -> float | None:
        """What engines print as acceptance rate, accepted / drafted (formula F11.4): not alpha; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_round(self) -> float:
        """Mean tokens per round, 1 + accepted / rounds: the "mean acceptance length" of vLLM, bonus token included (formula F11.4)."""
        return 1 + self.accepted / self.rounds


def rates_from_counts(rounds: int, accepted: Sequence[int]) -> tuple[float, ...]:
    """Cumulative rates from the rounds whose draft at each position was accepted, R_j = n_j / rounds (formula F11.4).

    Raises
    ------
    DomainError : without a round, or for counts that rise or exceed the rounds
    """
    domain.count("rounds", rounds)
    counts = [
        domain.count(f"accepted at position {position}", count, 0)
        for position, count in enumerate(domain.several("accepted", accepted), 1)
    ]
    return domain.falling_rates([count / rounds for count in counts])


def accepted_share(tokens: float, drafts: int) -> float:
    """Accepted / drafted of rounds that yield E tokens of k drafts each, (E - 1) / k (formula F11.4): below alpha, except at 0 and 1.

    Raises
    ------
    DomainError : without a draft, or for E outside [1, k + 1]
    """
    return (domain.tokens_per_round(tokens, domain.drafts(drafts, 1)) - 1) / drafts


def tokens_from_accepted_share(share: float, drafts: int) -> float:
    """Mean tokens per round from accepted / drafted, E = 1 + k share (formula F11.4), when every round drafts k tokens.

    Raises
    ------
    DomainError : for a share outside [0, 1] or drafts outside 0 to 1000
    """
    return 1 + domain.drafts(drafts) * domain.probability("share", share)


@dataclass(frozen=True, slots=True)
class AcceptanceRange:
    """Accepted / drafted over workloads: the lowest and highest of one workload, and that of all together."""

    low: float
    pooled: float
    high: float

    def tokens_per_round(self, drafts: int) -> tuple[float, float, float]:
        """Mean tokens per round at each of the three, 1 + k share (formula F11.4).

        Raises
        ------
        DomainError : for drafts outside 0 to 1000
        """
        low, pooled, high = (tokens_from_accepted_share(share, drafts) for share in (self.low, self.pooled, self.high))
        return low, pooled, high


def acceptance_over_workloads(workloads: Sequence[DraftCounters]) -> AcceptanceRange:
    """Range and pooled value of accepted / drafted: sum accepted / sum drafted (formula F11.4).

    Acceptance depends on the workload: a pooled value holds for no workload but the mix that it was measured on.

    Raises
    ------
    DomainError : when no workload drafted anything
    """
    given = domain.several("workloads", workloads, DraftCounters)
    shares = [share for counters in given if (share := counters.accepted_share) is not None]
    if not shares:
        raise DomainError("workloads", got=f"{len(given)} without a draft", wanted="at least one drafted token")
    pooled = sum(counters.accepted for counters in given) / sum(counters.drafted for counters in given)
    return AcceptanceRange(min(shares), pooled, max(shares))
