"""What would make a deployment fit: more devices, fewer bits, fewer or shorter sequences."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ..engines.spec import NumberFormat
from ..errors import LayoutError
from ..quantities import show_bytes, show_count
from .fitting import fits, reason_against
from .formats import LINEAR_CLASSES, main_class
from .memory import Capacity, MemoryPlan, engine_cache, longest_within, plan_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .deployment import Deployment

_MOST_RANKS = 64
_FEWEST_BITS = 2.0


def remedies(d: Deployment, plan: MemoryPlan, capacity: Capacity) -> tuple[str, ...]:
    """List single changes after which the deployment fits, each with its size; empty when it fits already."""
    if reason_against(d, plan, capacity) is None:
        return ()
    return tuple(text for text, changed in _changes(d, plan, capacity) if fits(changed))


def _changes(d: Deployment, plan: MemoryPlan, capacity: Capacity) -> Iterator[tuple[str, Deployment]]:
    """Changes that may help, each with the deployment that it makes."""
    more = _more_ranks(d)
    if more is not None:
        name, changed = more
        yield f"{changed.layout.devices} devices (--{name} {getattr(changed.layout, name)})", changed
    bits, now = _most_bits(d), d.formats.weights[main_class(d.model)].bits_per_element
    if _FEWEST_BITS <= bits < now:
        text = f"weights of at most {math.floor(bits * 10) / 10:.1f} bits in the layers (now {now:g})"
        yield text, _with_bits(d, math.floor(bits))
    held = max(0, plan.kv_budget_bytes) // max(1, plan.kv_bytes_per_sequence)
    running = d.layout.dp * (held if d.max_num_seqs is None else min(held, d.max_num_seqs))
    if 1 <= running < d.workload.concurrency:
        text = f"at most {show_count(running)} sequences at a time (now {show_count(d.workload.concurrency)})"
        yield text, replace(d, workload=replace(d.workload, concurrency=running))
    length = _longest_sequence(d, plan)
    if 1 < length < d.workload.length:
        text = f"sequences of at most {show_count(length)} tokens (now {show_count(d.workload.length)})"
        yield (
            text,
            replace(
                d, workload=replace(d.workload, prompt=length - 1, output=1), max_model_len=d.max_model_len or length
            ),
        )
    longest = capacity.max_context or 0
    if d.workload.length <= longest < d.longest_sequence:
        yield (
            f"an engine that accepts at most {show_count(longest)} tokens (--max-model-len)",
            replace(d, max_model_len=longest),
        )
    if d.max_num_seqs is not None and d.max_num_seqs < d.sequences_per_replica:
        admitted = replace(d.settings, max_num_seqs=d.sequences_per_replica)
        yield (
            f"{show_count(d.sequences_per_replica)} sequences at a time in the engine (--max-num-seqs)",
            replace(d, settings=admitted),
        )
    if d.settings.kv_cache_bytes is not None and plan.spare_bytes < 0:
        smaller = d.settings.kv_cache_bytes + plan.spare_bytes
        if smaller > 0:
            text = f"a cache of at most {show_bytes(smaller)} (--kv-cache-bytes)"
            yield text, replace(d, settings=replace(d.settings, kv_cache_bytes=smaller))


def _with_bits(d: Deployment, bits: int) -> Deployment:
    """The same with matrices of the layers in so many bits."""
    source = "a number of so many bits, to weigh the matrices of the layers"
    plain = NumberFormat(schema="roofplan/format/v1", name="", bits=bits, arithmetic=(), activations="", source=source)
    weights = {**d.formats.weights, **dict.fromkeys(LINEAR_CLASSES, plain)}
    return replace(d, formats=replace(d.formats, weights=weights))


def _most_bits(d: Deployment) -> float:
    """Most bits of an element of the layers' matrices with which it fits; what formats leave at 16 bits stays there."""
    eight, sixteen = (plan_memory(_with_bits(d, bits)).free_bytes for bits in (8, 16))
    return 16 + 8 * sixteen / max(1, eight - sixteen)


def _more_ranks(d: Deployment) -> tuple[str, Deployment] | None:
    """Fewest tensor-parallel ranks, else pipeline stages, a doubling of those there are, with which it fits."""
    for name in ("tp", "pp"):
        ranks: int = getattr(d.layout, name) * 2
        while ranks <= _MOST_RANKS:
            try:
                changed = replace(d, layout=replace(d.layout, **{name: ranks}))
            except LayoutError:
                break
            if fits(changed):
                return name, changed
            ranks *= 2
    return None


def _longest_sequence(d: Deployment, plan: MemoryPlan) -> int:
    """Longest sequence of which as many as were asked for fit; 0 where none does."""
    each = max(0, plan.kv_budget_bytes) // plan.sequences
    longest = longest_within(engine_cache(d), each, d.workload.length)
    return longest if longest > 1 else 0
