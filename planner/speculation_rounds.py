"""Times of rounds of speculation for one deployment: all numbers of drafts at all batches, with drafts that are always there or looked up.

Sources: formulas F11.5 to F11.9.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .draft_trees import DraftRound
from .lookup_drafts import Lookup, lookup_speculation
from .speculative import TIE
from .speculative_steps import break_even_batch, rounds_table
from .step import StepModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .given_acceptance import GivenAcceptance
    from .speculative_steps import Drafter, LargestBatch, Speculation
    from .step import Grouping

PLAIN = DraftRound(0, 0, 1.0)  # a step without drafts
_MOST_BATCH, _MOST_STREAMS = 4096, 256  # batches that are looked at; fewer where each is timed on its own


@dataclass(frozen=True, slots=True)
class Steps:
    """With what rounds are timed: the target's steps, the drafter's, and how bounds are taken together."""

    target: StepModel
    drafter: Drafter
    grouping: Grouping


@dataclass(frozen=True, slots=True)
class Rounds:
    """What is asked of step models.

    Parameters
    ----------
    given : acceptance; ``rounds`` follow from it
    batches : sequences in a step
    context : mean tokens of a sequence
    budget : most tokens of a step
    hit_rate : share of the rounds in which something is found, None where drafts are always there
    """

    given: GivenAcceptance
    rounds: tuple[DraftRound, ...]
    batches: tuple[int, ...]
    context: float
    budget: int
    hit_rate: float | None = None

    def times(self, steps: Steps) -> Mapping[int, Mapping[DraftRound, Speculation]]:
        """Times of each round, the plain one too, at each batch (formula F11.6)."""
        rounds = (PLAIN, *self.rounds)
        table = rounds_table(
            steps.target,
            steps.drafter,
            rounds,
            self.batches,
            self.context,
            max_batched_tokens=self.budget,
            grouping=steps.grouping,
        )
        found = iter(table)
        by_batch = {batch: {each: next(found) for each in rounds} for batch in self.batches}
        if self.hit_rate is None:
            return by_batch
        return {
            batch: {each: self._looked_up(steps, row) for each, row in own.items()} for batch, own in by_batch.items()
        }

    def _looked_up(self, steps: Steps, row: Speculation) -> Speculation:
        """The same round where only a share of the sequences finds drafts (formula F11.9)."""
        if not row.drafts or self.hit_rate is None:
            return row
        found = lookup_speculation(
            steps.target,
            Lookup(self.hit_rate, {row.drafts: 1.0}, self.given.rates_of(row.drafts)),
            row.batch,
            self.context,
            overhead_s=steps.drafter.overhead_s,
            grouping=steps.grouping,
        )
        plain_s = found.speedup * found.round_s / found.expected_tokens
        return replace(
            row,
            expected_tokens=found.expected_tokens,
            verify_ratio=(found.round_s - steps.drafter.overhead_s) / plain_s,
            round_s=found.round_s,
            speedup=found.speedup,
            tpot_s=found.tpot_s,
            output_tokens_per_s=found.output_tokens_per_s,
        )

    def most_batch(self, steps: Steps, row: Speculation, places: int) -> LargestBatch | None:
        """Largest batch at which so many drafts pay, and what ends it; None for trees and look-ups, of which it is not asked.

        Up to 4096 are looked at, 256 on engines that launch layer by layer; memory holds ``places`` in a step.
        """
        if row.passes != row.drafts or self.hit_rate is not None:
            return None
        most = _MOST_BATCH if isinstance(steps.target, StepModel) else _MOST_STREAMS
        return break_even_batch(
            steps.target,
            steps.drafter,
            row.expected_tokens,
            row.drafts,
            self.context,
            max_batched_tokens=self.budget,
            places=places,
            most=most,
            grouping=steps.grouping,
        )


def pays(row: Speculation) -> bool:
    """Whether a round gains more than rounding."""
    return row.speedup > 1 + TIE
