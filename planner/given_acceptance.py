"""Acceptance as users know it (one probability, counters of an engine, a tree), made into rounds of 1, 2, ... k drafts.

Any one of five figures describes a drafter: alpha; cumulative rates by position, as vLLM prints them; the mean tokens of a round at some
number of drafts; accepted / drafted at some number of drafts; or the probability of each rank at each depth of a tree. Two of them at a
time would contradict each other, or repeat each other.

Sources: formulas F11.2, F11.4, F11.8. Known to be inexact: figures of one number of drafts are carried to others by one alpha, which is too
high for later positions where acceptance falls with the position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from ..errors import DomainError
from . import domain
from .acceptance import alpha_from_tokens, independent_rates
from .draft_counters import tokens_from_accepted_share
from .draft_trees import DraftRound, chain_rounds, tree_rounds

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["acceptance", "per_position", "mean_length", "accepted_per_drafted", "tree"]
OPTIONS: dict[Kind, str] = {
    "acceptance": "--acceptance",
    "per_position": "--per-position",
    "mean_length": "--mean-length",
    "accepted_per_drafted": "--accepted-per-drafted",
    "tree": "--tree",
}
_AT_ONE_NUMBER: tuple[Kind, ...] = ("mean_length", "accepted_per_drafted")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GivenAcceptance:
    """What was said of a drafter, checked.

    Parameters
    ----------
    kind : which of the five figures
    alpha : the independent acceptance that stands for it; None for rates by position and trees, which are taken as they are
    rates : cumulative rates by position; probabilities of the ranks by depth for a tree
    measured_at : drafts per round at which a mean length or accepted / drafted was measured
    """

    kind: Kind
    alpha: float | None = None
    rates: tuple[float, ...] = ()
    ranks: tuple[tuple[float, ...], ...] = ()
    measured_at: int | None = None

    @property
    def most_drafts(self) -> int | None:
        """Drafts of a round beyond which nothing is known; None where any number follows from alpha."""
        match self.kind:
            case "per_position":
                return len(self.rates)
            case "tree":
                # Every node has as many children as its depth has ranks.
                return sum(
                    math.prod(len(ranks) for ranks in self.ranks[:depth]) for depth in range(1, len(self.ranks) + 1)
                )
        return None

    def rates_of(self, drafts: int) -> tuple[float, ...]:
        """Cumulative rates of a chain of so many drafts.

        Raises
        ------
        DomainError : for a tree, or more drafts than there are rates
        """
        if self.kind == "tree":
            raise DomainError("--tree", got="branches", wanted="drafts in a chain")
        self._check(drafts)
        return self.rates[:drafts] if self.alpha is None else independent_rates(self.alpha, drafts)

    def rounds(self, drafts: Sequence[int]) -> tuple[DraftRound, ...]:
        """The rounds of so many drafts each; of a tree, of its best so many nodes.

        Raises
        ------
        DomainError : for a number of drafts that nothing is known of
        """
        largest = max(drafts)
        self._check(largest)
        if self.kind == "tree":
            return tree_rounds(self.ranks, drafts)
        chains = chain_rounds(self.rates_of(largest))
        return tuple(chains[count] for count in drafts)

    def _check(self, drafts: int) -> None:
        most = self.most_drafts
        if most is not None and drafts > most:
            what = "nodes that the ranks make" if self.kind == "tree" else "positions that have a rate"
            raise DomainError("--k", got=drafts, wanted=f"at most {most}, the {what}")


def given_acceptance(
    *,
    acceptance: float | None = None,
    per_position: Sequence[float] | None = None,
    mean_length: float | None = None,
    accepted_per_drafted: float | None = None,
    tree: Sequence[Sequence[float]] | None = None,
    measured_at: int | None = None,
) -> GivenAcceptance:
    """Read exactly one of the five figures.

    Parameters
    ----------
    acceptance : alpha, the probability that a draft is kept, given that it was looked at
    per_position : cumulative rates of the first, second, ... draft
    mean_length : mean tokens of a round, the one that the target adds counted
    accepted_per_drafted : what engines print as acceptance rate
    tree : for each depth the probabilities of the ranks
    measured_at : drafts per round of a ``mean_length`` or ``accepted_per_drafted``

    Raises
    ------
    DomainError : for none or several of them, a number of drafts missing or without use, or figures outside their domain
    """
    given: dict[Kind, object] = {
        "acceptance": acceptance,
        "per_position": per_position,
        "mean_length": mean_length,
        "accepted_per_drafted": accepted_per_drafted,
        "tree": tree,
    }
    said = [kind for kind, value in given.items() if value is not None]
    if len(said) != 1:
        got = " and ".join(OPTIONS[kind] for kind in said) or "nothing"
        hint = "" if said else "published: 0.53 to 0.82 for small draft models, 0.85 to 0.9 for one MTP head"
        raise DomainError("acceptance", got=got, wanted=f"one of {', '.join(OPTIONS.values())}", hint=hint)
    (kind,) = said
    if (kind in _AT_ONE_NUMBER) != (measured_at is not None):
        if measured_at is not None:
            wanted = f"it beside {' or '.join(OPTIONS[known] for known in _AT_ONE_NUMBER)} only"
            raise DomainError("--measured-at", got=f"{measured_at} with {OPTIONS[kind]}", wanted=wanted)
        wanted = "--measured-at K beside it: the drafts per round of the measurement"
        raise DomainError(OPTIONS[kind], got="several numbers of drafts", wanted=wanted)
    match kind:
        case "per_position":
            assert per_position is not None
            return GivenAcceptance(kind, rates=_some(kind, domain.falling_rates(per_position)))
        case "tree":
            assert tree is not None
            tree_rounds(tree, [1])  # checks the probabilities
            return GivenAcceptance(kind, ranks=_some(kind, tuple(tuple(ranks) for ranks in tree)))
        case "acceptance":
            assert acceptance is not None
            return GivenAcceptance(kind, domain.probability(OPTIONS[kind], acceptance))
    assert measured_at is not None
    tokens = mean_length
    if accepted_per_drafted is not None:
        domain.probability(OPTIONS[kind], accepted_per_drafted)
        tokens = tokens_from_accepted_share(accepted_per_drafted, measured_at)
    assert tokens is not None
    domain.between(OPTIONS[kind], tokens, 1, domain.drafts(measured_at, 1) + 1)
    return GivenAcceptance(kind, alpha_from_tokens(tokens, measured_at), measured_at=measured_at)


def _some(kind: Kind, values: tuple[T, ...]) -> tuple[T, ...]:
    if not values:
        raise DomainError(OPTIONS[kind], got="nothing", wanted="at least one probability")
    return values
