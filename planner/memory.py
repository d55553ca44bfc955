"""The memory budget of one device: what the engine may use, what weights, activations and runtime take, and what is left for the cache.

    cache = share x (total - margin - parts taken before) - parts taken within

Which part stands where is the engine's profile. Sources: formulas F5.1 to F5.4; the start-up logs named in the engine profiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .activations import activation_peak, logit_rows
from .adapters import adapter_bytes
from .kv_cache import CacheLayout, cache_layout
from .parallel import divided
from .parameters import stage_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..engines.profile import Budget, BytesByRanks, Part
    from ..models.spec import LayerGroup
    from .deployment import Deployment
    from .paging import PagedCache


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of one device, that of the worst rank.

    ``budget_bytes`` is the engine's share, ``kv_budget_bytes`` what is left of it for the cache (negative when not even the weights fit),
    ``spare_bytes`` what is left of the device beside everything, the driver's context included (negative when it is over-committed).
    """

    total_bytes: int
    utilization: float
    budget_bytes: int
    weights_bytes: int
    adapter_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    graph_bytes: int
    kv_budget_bytes: int
    spare_bytes: int
    kv_bytes_per_sequence: int  # at prompt + output, in the engine's blocks
    sequences: int  # of the workload, on this replica

    @property
    def free_bytes(self) -> int:
        """What is left when all sequences of the workload are at their full length; negative when they do not fit."""
        return self.kv_budget_bytes - self.sequences * self.kv_bytes_per_sequence


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much the cache holds, over all replicas.

    Parameters
    ----------
    kv_tokens : tokens of the cache; with an engine that has blocks the number that its log prints
    max_concurrency : sequences at full length that run at a time, in whole ones
    binds : whether the cache or the engine's limit of sequences decides it
    concurrency_at_limit : sequences of the longest length that the engine accepts, with the part of the last one, as logs print it
    max_context : longest single sequence that memory and the model allow, None where nothing limits it
    """

    kv_tokens: int
    max_concurrency: int
    binds: str
    concurrency_at_limit: float
    max_context: int | None


# ------------------------------------------------------------------------------------------------ parts


def graph_bytes(d: Deployment) -> int:
    """Memory of captured graphs; none where the engine captures none, on other makers' devices, or when told not to."""
    graphs = d.engine.graphs
    if graphs is None or d.settings.eager or d.hardware.vendor not in d.engine.budget.graph_vendors:
        return 0
    layers = divided(d.model.num_layers, d.layout.pp)
    return graphs.constant + graphs.per_layer * layers + graphs.per_hidden * d.model.hidden_size


def by_ranks(table: tuple[BytesByRanks, ...], ranks: int) -> int:
    """Bytes that hold for so many ranks: those of the largest number of ranks in the table that is not above."""
    return max((entry for entry in table if entry.ranks <= ranks), key=lambda entry: entry.ranks).bytes if table else 0


def _runtime_bytes(d: Deployment) -> int:
    pipeline = d.engine.pipeline_runtime
    ranks = d.layout.tp * d.layout.cp
    if pipeline is not None and d.layout.pp > 1 and ranks == 1:
        return pipeline
    return by_ranks(d.engine.runtime, ranks)


def share_by_ranks(budget: Budget, ranks: int) -> float:
    """The share that holds for so many ranks, as :func:`by_ranks`."""
    return max((entry for entry in budget.share if entry.ranks <= ranks), key=lambda entry: entry.ranks).share


def default_share(d: Deployment) -> float:
    """The share that the engine takes unless told otherwise."""
    budget, total = d.engine.budget, d.device_bytes
    reserve = budget.reserve
    if reserve is None:
        return share_by_ranks(budget, d.layout.tp)
    reserved = (
        reserve.constant
        + reserve.per_batched_token * d.max_batched_tokens
        + reserve.per_graph_row * (d.batching.graph_rows or 0)
        + reserve.per_rank * d.layout.tp * d.layout.pp
    )
    if total > reserve.floor_above:
        reserved = max(reserved, reserve.floor)
    return round(max(0.0, (total - reserved) / total), 3)


def divide_memory(budget: Budget, total: int, share: float, parts: Mapping[Part, int]) -> tuple[int, int]:
    """Divide the memory of a device: (bytes of the share, bytes that are left of it for the cache; formula F5.1)."""
    base = total - budget.margin - sum(parts[part] for part in budget.before)
    planned = int(share * base) if base > 0 else base  # what is lacking is lacking whole
    return planned, planned - sum(parts[part] for part in budget.within)


# ------------------------------------------------------------------------------------------------ the cache


def rank_cache(d: Deployment) -> CacheLayout:
    """What a sequence keeps on the device that holds most of it: one tensor-parallel rank of the fullest pipeline stage."""
    model = d.model if d.layout.pp == 1 else replace(d.model, layers=tuple(_fullest_stage(d)))
    return cache_layout(model, d.formats.kv, d.layout, d.engine.entries)


def engine_cache(d: Deployment) -> CacheLayout | PagedCache:
    """The same as the engine lays it out: in blocks, where it has any."""
    cache, paging = rank_cache(d), d.engine.paging
    if paging is None:
        return cache
    from .paging import paged

    # A block of a context-parallel rank holds as many tokens as ever: those of the sequence that it stands for are more.
    return paged(cache, paging, (d.settings.block or paging.block) * d.layout.cp, d.step_tokens)


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


# ------------------------------------------------------------------------------------------------ plans


def plan_memory(d: Deployment) -> MemoryPlan:
    """Divide the memory of the device of a deployment that has least room for the cache."""
    return min(stage_plans(d), key=lambda plan: plan.kv_budget_bytes)


def stage_plans(d: Deployment) -> tuple[MemoryPlan, ...]:
    """Divide the memory of a device of each pipeline stage: one stage, or the first, those between and the last, which alone samples."""
    weights = stage_bytes(d.model, d.formats, d.layout, d.engine.expert_padding)
    per_sequence = engine_cache(d).bytes_per_sequence(d.workload.length)
    last = len(weights) - 1
    return tuple(_plan(d, size, per_sequence, samples=stage == last) for stage, size in enumerate(weights))


def _plan(d: Deployment, weights: int, per_sequence: int, *, samples: bool) -> MemoryPlan:
    given, settings = d.memory, d.settings
    activations = given.activation_bytes
    if activations is None:
        activations = activation_peak(d, logit_rows(d) if samples else 0).total_bytes
    weights = (weights if given.weights_bytes is None else given.weights_bytes) + given.beside_bytes
    adapters = adapter_bytes(d.model, d.layout, settings.adapters, settings.adapter_rank)
    runtime = given.runtime_bytes if given.runtime_bytes is not None else _runtime_bytes(d)
    graphs = given.graph_bytes if given.graph_bytes is not None else graph_bytes(d)
    parts: dict[Part, int] = {
        "weights": weights + adapters,
        "activations": activations,
        "runtime": runtime,
        "graphs": graphs,
    }
    total = d.device_bytes
    share = given.utilization if given.utilization is not None else default_share(d)
    planned, cache = divide_memory(d.engine.budget, total, share, parts)
    if settings.kv_cache_bytes is not None:
        cache = settings.kv_cache_bytes
    spare = total - by_ranks(d.engine.context, d.layout.tp * d.layout.cp) - sum(parts.values()) - max(0, cache)
    return MemoryPlan(
        total,
        share,
        planned,
        weights,
        adapters,
        activations,
        runtime,
        graphs,
        cache,
        spare,
        per_sequence,
        d.sequences_per_replica,
    )


def plan_capacity(d: Deployment, plan: MemoryPlan) -> Capacity:
    """Count what the cache holds: sequences at full length, their tokens, and the longest single sequence (formula F7.5)."""
    budget, length, replicas = max(0, plan.kv_budget_bytes), d.workload.length, d.layout.dp
    per_sequence = max(1, plan.kv_bytes_per_sequence)
    held, admitted = budget // per_sequence, d.max_num_seqs
    cache, paging, limit = engine_cache(d), d.engine.paging, d.longest_sequence
    if paging is not None and not isinstance(cache, CacheLayout):
        tokens, at_limit = cache.printed_tokens(budget, paging, limit), cache.concurrency(budget, limit)
    else:
        tokens, at_limit = budget * length // per_sequence, budget / max(1, cache.bytes_per_sequence(limit))
    return Capacity(
        kv_tokens=replicas * tokens,
        max_concurrency=replicas * (held if admitted is None else min(held, admitted)),
        binds="cache" if admitted is None or held <= admitted else "max_num_seqs",
        concurrency_at_limit=replicas * at_limit,
        max_context=_longest(d, cache, budget),
    )


_FAR = 2**40  # tokens; a sequence that long means that memory does not limit it


def _longest(d: Deployment, cache: CacheLayout | PagedCache, budget: int) -> int | None:
    limit = d.context_limit
    longest = longest_within(cache, budget, _FAR if limit is None else limit)
    return None if longest == _FAR else longest


def longest_within(cache: CacheLayout | PagedCache, budget: int, limit: int) -> int:
    """Find the longest sequence, at most ``limit`` tokens, whose cache stays within a budget; by halving, since it never shrinks."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if cache.bytes_per_sequence(middle) <= budget:
            low = middle
        else:
            high = middle - 1
    return low
