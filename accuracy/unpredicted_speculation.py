"""Rows of ``data/speed.csv`` on speculation that nothing predicts: why not, and what their figures imply."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..planner.speculative import implied_round_cost
from .metrics import Comparison

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .truth import TruthRow

# What a row's metric and remarks hold, and why it is not predicted; the first that fits holds.
_WHY = (
    (r"accept_len", "tokens per round are an input: no roofline predicts them"),
    (r"tpot_ms", "times of target and draft are inputs"),
    (r"replay oracle", "tokens per second of whole runs, prompts included, whose lengths are not recorded"),
    (r"Lookahead|REST|Recycling|SAMD", "the cost of finding drafts in Hugging Face Transformers is not stated"),
    (r"greedy", "the host time of a draft in Hugging Face Transformers is not stated"),
)
_OTHERWISE = "tokens per round are not stated"
_TAKEN = re.compile(r"SPEC (\S+), greedy; mean accepted tokens per step ([\d.]+)")
_REPLAYED = re.compile(r"SPEC (replay oracle) \(alpha=1\) gamma=(\d+); ([\d.]+)x")


@dataclass(frozen=True, slots=True)
class Implied:
    """What a published speed-up implies: the cost of a round, and of one draft where their number is known, in plain steps."""

    row: str
    drafter: str
    tokens_per_round: float
    speedup: float
    round_cost: float
    draft_cost: float | None


def unpredicted(row: TruthRow) -> Comparison:
    """A row without a prediction, with the reason."""
    text = f"{row.text('metric')} {row.text('notes')}"
    reason = next((why for pattern, why in _WHY if re.search(pattern, text)), _OTHERWISE)
    labels = {
        "how": "none",
        "role": "scored",
        "complete": "no",
        "engine": row.text("engine"),
        "target": row.text("model"),
    }
    return Comparison(row.name, row.text("metric"), row.number("value") or 0.0, None, reason, labels)


def implied_of(rows: Iterable[TruthRow]) -> Iterator[Implied]:
    """What rounds cost by the methods of Spec-Bench, whose trees differ, and in replays, which keep all drafts."""
    for row in rows:
        notes, gain = row.text("notes"), row.number("value")
        if (found := _TAKEN.search(notes)) and row.text("metric") == "spec_speedup" and gain:
            tokens = float(found[2])
            yield Implied(row.name, found[1], tokens, gain, implied_round_cost(tokens, gain), None)
        elif found := _REPLAYED.search(notes):
            drafts, gain = int(found[2]), float(found[3])
            cost = implied_round_cost(drafts + 1, gain)
            yield Implied(row.name, found[1], drafts + 1, gain, cost, (cost - 1) / drafts)
