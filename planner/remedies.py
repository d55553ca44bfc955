"""What would make a deployment fit: more devices, fewer bits, fewer or shorter sequences."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ..engines.spec import NumberFormat
from ..errors import LayoutError
from ..quantities import show_count
from .formats import LINEAR_CLASSES, main_class
from .memory import MemoryPlan, engine_cache, longest_within, plan_memory

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
    for name in ("tp", "pp"):
        ranks = _enough_ranks(d, name)
        if ranks is not None:
            devices = d.layout.devices // getattr(d.layout, name) * ranks
            yield f"{devices} devices (--{name} {ranks})"
            break
    bits, now = _most_bits(d), d.formats.weights[main_class(d.model)].bits_per_element
    if _FEWEST_BITS <= bits < now:
        yield f"weights of at most {math.floor(bits * 10) / 10:.1f} bits in the layers (now {now:g})"
    fitting = max(0, plan.kv_budget_bytes) // max(1, plan.kv_bytes_per_sequence) * d.layout.dp
    if fitting >= 1:
        yield f"at most {show_count(fitting)} sequences at a time (now {show_count(d.workload.concurrency)})"
    length = _longest_sequence(d, plan)
    if length:
        yield f"sequences of at most {show_count(length)} tokens (now {show_count(d.workload.length)})"


def _most_bits(d: Deployment) -> float:
    """Most bits of an element of the layers' matrices with which it fits; what formats leave at 16 bits stays there."""

    def free(bits: int) -> int:
        source = "a number of so many bits, to weigh the matrices of the layers"
        plain = NumberFormat(
            schema="roofplan/format/v1", name="", bits=bits, arithmetic=(), activations="", source=source
        )
        formats = replace(d.formats, weights={**d.formats.weights, **dict.fromkeys(LINEAR_CLASSES, plain)})
        return plan_memory(replace(d, formats=formats)).free_bytes

    eight, sixteen = free(8), free(16)
    return 16 + 8 * sixteen / max(1, eight - sixteen)


def _enough_ranks(d: Deployment, name: str) -> int | None:
    """Fewest tensor-parallel ranks or pipeline stages, a doubling of those there are, with which it fits."""
    ranks: int = getattr(d.layout, name) * 2
    while ranks <= _MOST_RANKS:
        try:
            plan = plan_memory(replace(d, layout=replace(d.layout, **{name: ranks})))
        except LayoutError:
            return None
        if plan.kv_budget_bytes >= 0 and plan.free_bytes >= 0:
            return ranks
        ranks *= 2
    return None


def _longest_sequence(d: Deployment, plan: MemoryPlan) -> int:
    """Longest sequence of which as many as were asked for fit; 0 where none does."""
    each = max(0, plan.kv_budget_bytes) // plan.sequences
    longest = longest_within(engine_cache(d), each, d.workload.length)
    return longest if longest > 1 else 0
