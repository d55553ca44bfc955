"""The memory budget of one device: what the engine may use, what weights, activations and runtime take, and what is left for the cache.

    kv = total x utilisation - weights - activations - runtime

Sources: formulas F5.1 to F5.4; the start-up logs named in the engine profiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..models.spec import Mlp
from .kv_cache import CacheLayout, cache_layout, stage_share
from .parallel import divided
from .parameters import stored_bytes

if TYPE_CHECKING:
    from ..models.spec import FeedForward, ModelSpec
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
    """The cache of one sequence on one tensor-parallel rank, all pipeline stages together."""
    return cache_layout(d.model, d.formats.kv, d.layout)


def device_cache_bytes(d: Deployment, tokens: int) -> int:
    """Cache bytes of one sequence on the device that holds most of them."""
    return round(rank_cache(d).bytes_per_sequence(tokens) * stage_share(d.model, d.layout))


def plan_memory(d: Deployment) -> MemoryPlan:
    """Divide the memory of the worst device of a deployment (formula F5.1)."""
    overrides, engine = d.memory, d.engine
    total = overrides.total_bytes if overrides.total_bytes is not None else d.hardware.memory.total_bytes
    utilization = overrides.utilization if overrides.utilization is not None else engine.memory_utilization
    activation = overrides.activation_bytes
    if activation is None:
        chunk = activation_peak_bytes(d.model, engine.max_batched_tokens, d.layout.tp, d.formats.activation_bytes)
        activation = chunk + logits_bytes(d.sequences_per_replica, d.model.vocab_size)
    runtime = overrides.runtime_bytes if overrides.runtime_bytes is not None else engine.runtime
    return MemoryPlan(
        total,
        utilization,
        int(total * utilization),
        stored_bytes(d.model, d.formats, d.layout),
        activation,
        runtime,
        0,
        device_cache_bytes(d, d.workload.length),
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
    """Find the longest sequence that fits by halving, since cache bytes never fall with length."""
    limit = d.context_limit
    low, high = 0, limit if limit is not None else _FAR
    if device_cache_bytes(d, high) <= budget:
        return limit
    while low < high:
        middle = (low + high + 1) // 2
        if device_cache_bytes(d, middle) <= budget:
            low = middle
        else:
            high = middle - 1
    return low
