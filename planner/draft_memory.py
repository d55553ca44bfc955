"""What a way of drafting takes in the memory of a deployment, and how many sequences are held beside it.

Source: formula F11.11.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .memory import plan_memory, rank_cache
from .parallel import divided
from .speculative import speculation_memory

if TYPE_CHECKING:
    from .deployment import Deployment
    from .drafters import DraftPlan
    from .memory import MemoryPlan
    from .speculative import SpeculationMemory


def draft_memory(d: Deployment, plan: DraftPlan, drafts: int, passes: int, sequences: int) -> SpeculationMemory:
    """Bytes that rounds of so many drafts take on the fullest device: weights, draft caches, slots and states (formula F11.11).

    Parameters
    ----------
    drafts, passes : tokens of a round that are verified beside the last one, and passes of the drafter; none of both take nothing
    sequences : of one replica, each at its full length

    Raises
    ------
    DomainError : for drafts outside 0 to 1000, or no sequence
    """
    return speculation_memory(
        rank_cache(d),
        drafts,
        sequences,
        d.workload.length,
        draft_weights_bytes=plan.weights_bytes + passes * plan.head_bytes,
        draft=plan.cache,
    )


def with_drafts(d: Deployment, memory: MemoryPlan, plan: DraftPlan, drafts: int, passes: int) -> MemoryPlan:
    """The memory of a device of which a drafter takes its part: less for caches, and more of it for each sequence (formula F11.11)."""
    one = draft_memory(d, plan, drafts, passes, 1)
    return replace(
        memory,
        kv_budget_bytes=memory.kv_budget_bytes - one.draft_weights_bytes,
        kv_bytes_per_sequence=memory.kv_bytes_per_sequence + one.total_bytes - one.draft_weights_bytes,
    )


def held_with_drafts(d: Deployment, plan: DraftPlan, drafts: int, passes: int) -> int:
    """Sequences of one decode step that memory holds beside a drafter: of a replica over its stages (F7.5, F11.11)."""
    left = with_drafts(d, plan_memory(d), plan, drafts, passes)
    return divided(max(0, left.kv_budget_bytes) // max(1, left.kv_bytes_per_sequence), d.layout.pp)
