"""The memory budget of one device: what the engine may use, what weights, activations and runtime take, and what is left for the cache.

    kv = total x utilisation - weights - activations - runtime

Sources: formulas F5.1 to F5.4; the start-up logs named in the engine profiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..models.spec import Mlp
from .kv_cache import CacheLayout, cache_layout
from .parallel import divided
from .parameters import stored_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..models.spec import FeedForward, LayerGroup, ModelSpec
    from .deployment import Deployment

_LOGIT_BYTES = 4  # samplers work on float32 logits


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of one device, that of the worst rank."""

    total_bytes: int
    utilization: float
    budget_bytes: int
    weights_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    graph_bytes: int
    kv_bytes_per_sequence: int  # at prompt + output
    sequences: int  # of the workload, on this replica

    @property
    def kv_budget_bytes(self) -> int:
        """What is left for the cache; negative when not even the weights fit."""
        used = self.weights_bytes + self.activation_bytes + self.non_torch_bytes + self.graph_bytes
        return self.budget_bytes - used

    @property
    def free_bytes(self) -> int:
        """What is left when all sequences of the workload are at their full length; negative when they do not fit."""
        return self.kv_budget_bytes - self.sequences * self.kv_bytes_per_sequence


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much the cache holds, over all replicas.

    ``max_context`` is the longest single sequence that memory and the model allow, None where nothing limits it.
    """

    kv_tokens: int
    max_concurrency: int
    max_context: int | None


def activation_peak_bytes(model: ModelSpec, tokens: int, tp: int = 1, activation_bytes: float = 2.0) -> int:
    """Activations of a prefill chunk of T tokens with fused attention and reused buffers: T b_a (2 d + 3 d_ff / tp) (formula F5.2).

    An order-of-magnitude estimate: engines differ by gigabytes. Where experts are routed d_ff is the width that one token uses.
    """
    widths = [sum(active_width(part) for part in group.mlp) for group in model.layers]
    return round(tokens * activation_bytes * (2 * model.hidden_size + 3 * divided(max(widths, default=0), tp)))


def active_width(part: FeedForward) -> int:
    """Intermediate width that one token uses: that of the MLP, or of its experts and the shared one."""
    if isinstance(part, Mlp):
        return part.intermediate_size
    return part.experts_per_token * part.intermediate_size + (part.shared.intermediate_size if part.shared else 0)


def logits_bytes(rows: int, vocab_size: int) -> int:
    """Float32 logits of the rows that are sampled (formula F5.3).

    >>> logits_bytes(256, 128256)
    131334144
    """
    return rows * vocab_size * _LOGIT_BYTES


def rank_cache(d: Deployment) -> CacheLayout:
    """The cache of one sequence on the device that holds most of it: one tensor-parallel rank of the fullest pipeline stage."""
    model = d.model if d.layout.pp == 1 else replace(d.model, layers=tuple(_fullest_stage(d)))
    return cache_layout(model, d.formats.kv, d.layout)


def _fullest_stage(d: Deployment) -> Iterator[LayerGroup]:
    """Layers of the stage that keeps most: ceil(layers / pp) of them, of each kind at most its even share, rounded up.

    Known to be inexact: the order of the layers is not looked at; no stage of neighbours that are spread evenly holds more.
    """

    def kept(group: LayerGroup) -> int:
        one = replace(d.model, layers=(replace(group, count=1),))
        return cache_layout(one, d.formats.kv, d.layout).bytes_per_sequence(d.workload.length)

    room = divided(d.model.num_layers, d.layout.pp)
    for group in sorted(d.model.layers, key=kept, reverse=True):
        count = min(room, divided(group.count, d.layout.pp))
        room -= count
        if count:
            yield replace(group, count=count)


def plan_memory(d: Deployment) -> MemoryPlan:
    """Divide the memory of the worst device of a deployment (formula F5.1)."""
    overrides, engine = d.memory, d.engine
    total = overrides.total_bytes if overrides.total_bytes is not None else d.hardware.memory.total_bytes
    utilization = overrides.utilization if overrides.utilization is not None else engine.memory_utilization
    activation = overrides.activation_bytes
    if activation is None:
        chunk = activation_peak_bytes(d.model, engine.max_batched_tokens, d.layout.tp, d.formats.activation_bytes)
        rows = min(d.sequences_per_replica, engine.max_logit_rows)
        activation = chunk + logits_bytes(rows, d.model.vocab_size)
    runtime = overrides.runtime_bytes if overrides.runtime_bytes is not None else engine.runtime
    return MemoryPlan(
        total,
        utilization,
        int(total * utilization),
        stored_bytes(d.model, d.formats, d.layout),
        activation,
        runtime,
        0,
        rank_cache(d).bytes_per_sequence(d.workload.length),
        d.sequences_per_replica,
    )


def plan_capacity(d: Deployment, plan: MemoryPlan) -> Capacity:
    """Count what the cache holds: sequences at full length, their tokens, and the longest single sequence (formula F7.5)."""
    budget = max(0, plan.kv_budget_bytes)
    length = d.workload.length
    per_sequence = max(1, plan.kv_bytes_per_sequence)
    return Capacity(
        kv_tokens=d.layout.dp * (budget * length // per_sequence),
        max_concurrency=d.layout.dp * (budget // per_sequence),
        max_context=_longest(d, budget),
    )


_FAR = 2**40  # tokens; a sequence that long means that memory does not limit it


def _longest(d: Deployment, budget: int) -> int | None:
    limit, cache = d.context_limit, rank_cache(d)
    longest = longest_within(cache, budget, _FAR if limit is None else limit)
    return None if longest == _FAR else longest


def longest_within(cache: CacheLayout, budget: int, limit: int) -> int:
    """Find the longest sequence, at most ``limit`` tokens, whose cache stays within a budget; by halving, since it never shrinks."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if cache.bytes_per_sequence(middle) <= budget:
            low = middle
        else:
            high = middle - 1
    return low
