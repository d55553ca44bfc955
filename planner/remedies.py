"""What would make a deployment fit: more devices, fewer bits, fewer or shorter sequences."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import LayoutError
from ..quantities import show_count
from .memory import MemoryPlan, device_cache_bytes, plan_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .deployment import Deployment

_MOST_RANKS = 64
_FEWEST_BITS = 2.0


def remedies(d: Deployment, plan: MemoryPlan) -> tuple[str, ...]:
    """List single changes after which the deployment fits, each with its size; empty when it fits already."""
    if plan.kv_budget_bytes >= 0 and plan.free_bytes >= 0:
        return ()
    return tuple(_changes(d, plan))


def _changes(d: Deployment, plan: MemoryPlan) -> Iterator[str]:
    ranks = _enough_ranks(d)
    if ranks is not None:
        yield f"{ranks * d.layout.pp * d.layout.dp} devices (--tp {ranks})"
    needed = (
        plan.sequences * plan.kv_bytes_per_sequence + plan.activation_bytes + plan.non_torch_bytes + plan.graph_bytes
    )
    share = (plan.budget_bytes - needed) / plan.weights_bytes
    weight_format = (
        d.formats.weights["mlp"]
        if d.formats.weights["mlp"].bits <= d.formats.weights["experts"].bits
        else d.formats.weights["experts"]
    )
    bits = share * weight_format.bits_per_element
    if bits >= _FEWEST_BITS:
        yield f"weights of at most {bits:.1f} bits (now {weight_format.bits_per_element:g})"
    fitting = max(0, plan.kv_budget_bytes) // max(1, plan.kv_bytes_per_sequence) * d.layout.dp
    if fitting >= 1:
        yield f"at most {show_count(fitting)} sequences at a time (now {show_count(d.workload.concurrency)})"
    length = _longest_sequence(d, plan)
    if length:
        yield f"sequences of at most {show_count(length)} tokens (now {show_count(d.workload.length)})"


def _enough_ranks(d: Deployment) -> int | None:
    """Fewest tensor-parallel ranks, a doubling of those there are, with which it fits."""
    ranks = d.layout.tp * 2
    while ranks <= _MOST_RANKS:
        try:
            plan = plan_memory(replace(d, layout=replace(d.layout, tp=ranks)))
        except LayoutError:
            return None
        if plan.kv_budget_bytes >= 0 and plan.free_bytes >= 0:
            return ranks
        ranks *= 2
    return None


def _longest_sequence(d: Deployment, plan: MemoryPlan) -> int:
    """Longest sequence of which as many as were asked for fit; 0 where none does."""
    each = max(0, plan.kv_budget_bytes) // plan.sequences
    low, high = 0, d.workload.length
    while low < high:
        middle = (low + high + 1) // 2
        if device_cache_bytes(d, middle) <= each:
            low = middle
        else:
            high = middle - 1
    return low if low > 1 else 0
