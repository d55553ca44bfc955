"""Showing the work of a memory plan: activations, the budget, what is left, and what the cache holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..quantities import show_bytes, show_count
from .activations import activation_peak, logit_rows
from .memory import engine_cache
from .paging import PagedCache
from .results import Explanation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .sizing import SizeResult


def explain_memory(r: SizeResult) -> tuple[Explanation, ...]:
    """Explain the figures of the memory plan and of the capacity that follows from it."""
    return (_activations(r), _kv_budget(r), *_paged(r), _free(r), _kv_tokens(r), _concurrency(r), _context(r))


def source_of_device(r: SizeResult, figure: str) -> str:
    """Where a figure of the device comes from."""
    hardware = r.deployment.hardware
    evidence = hardware.evidence_of(figure)
    return f"{hardware.name}: {evidence.kind}, {evidence.source}" if evidence else f"{hardware.name}: no source given"


def _profile_source(r: SizeResult, figure: str) -> str:
    engine = r.deployment.engine
    origin = engine.origin(figure)
    return f"{engine.name}: {origin.kind}, {origin.source}" if origin else f"{engine.name}: no source given"


def _activations(r: SizeResult) -> Explanation:
    d, plan, how = r.deployment, r.memory, r.deployment.engine.activations
    if d.memory.activation_bytes is not None:
        return Explanation("memory.activation_bytes", show_bytes(plan.activation_bytes), "as given", "")
    rows = logit_rows(d)
    peak = activation_peak(d, rows)
    join = "sampling + forward + experts"
    if how.join == "largest":
        join = "max(sampling, forward) + experts" if how.experts_stay else "max(sampling, forward + experts)"
    copies = f"{how.logit_bytes:g} + {how.logits:g} b_a" if how.logits else f"{how.logit_bytes:g}"
    return Explanation(
        "memory.activation_bytes",
        f"{show_bytes(plan.activation_bytes)} per device",
        f"{join}; sampling = rows x vocabulary x ({copies}) B + T b_a {how.sampled_hidden:g} d + constant,"
        f" forward = T b_a ({how.hidden:g} d + {how.width:g} d_ff / tp) (F5.2, F5.3); engines differ",
        f"sampling {show_bytes(peak.sampling_bytes)}, forward {show_bytes(peak.forward_bytes)}, experts {show_bytes(peak.expert_bytes)};"
        f" {rows:,} rows x {d.model.vocab_size:,}, T = {d.step_tokens:,}, b_a = {d.formats.activation_bytes:g} B,"
        f" d = {d.model.hidden_size:,}",
        (
            ("T", f"{d.step_tokens:,} tokens", _profile_source(r, "batching")),
            ("form", how.join, _profile_source(r, "activations")),
        ),
    )


def _kv_budget(r: SizeResult) -> Explanation:
    plan, d = r.memory, r.deployment
    budget = d.engine.budget
    if d.settings.kv_cache_bytes is not None:
        return Explanation("memory.kv_budget_bytes", show_bytes(plan.kv_budget_bytes), "as given", "")
    sizes = {
        "weights": plan.weights_bytes + plan.adapter_bytes,
        "activations": plan.activation_bytes,
        "runtime": plan.non_torch_bytes,
        "graphs": plan.graph_bytes,
    }
    before = "".join(f" - {show_bytes(sizes[part])}" for part in budget.before)
    before += f" - {show_bytes(budget.margin)}" if budget.margin else ""
    inner = f"({show_bytes(plan.total_bytes)}{before})" if before else show_bytes(plan.total_bytes)
    within = "".join(f" - {show_bytes(sizes[part])}" for part in budget.within)
    named = "".join(f" - {part}" for part in (*budget.before, *(("margin",) if budget.margin else ())))
    formula = f"utilisation x (total{named})" if named else "total x utilisation"
    formula += "".join(f" - {part}" for part in budget.within)
    given = d.memory
    total = "given" if given.total_bytes is not None else source_of_device(r, d.hardware.memory.total_key(budget.total))
    share = "budget.share" if budget.reserve is None else "budget.reserve"
    return Explanation(
        "memory.kv_budget_bytes",
        f"{show_bytes(plan.kv_budget_bytes)} per device",
        f"{formula} (F5.1)",
        f"{inner} x {plan.utilization:g}{within}",
        (
            ("total", f"{plan.total_bytes:,} B", total),
            (
                "utilisation",
                f"{plan.utilization:g}",
                "given" if given.utilization is not None else _profile_source(r, share),
            ),
            (
                "runtime",
                f"{plan.non_torch_bytes:,} B",
                "given" if given.runtime_bytes is not None else _profile_source(r, "runtime"),
            ),
        ),
        "memory capacity" if plan.kv_budget_bytes < 0 else "",
    )


def _paged(r: SizeResult) -> Iterator[Explanation]:
    """How the engine's blocks make a sequence larger than its entries."""
    d, cache = r.deployment, engine_cache(r.deployment)
    if not isinstance(cache, PagedCache):
        return
    length = d.workload.length
    parts = " + ".join(
        f"{group.copies} x {group.blocks(length):,} blocks of {show_bytes(group.block_bytes)} ({group.label})"
        for group in cache.groups
    )
    ideal, real = r.kv.ideal_bytes_per_sequence_per_device, r.kv.bytes_per_sequence_per_device
    yield Explanation(
        "kv.bytes_per_sequence_per_device",
        f"{show_bytes(real)} ({real:,} B); {show_bytes(ideal)} without blocks",
        "sum over groups of layers of blocks x bytes of a block; a window also keeps room for a step (F3.3, F3.9)",
        f"{parts}; a block holds {cache.block_tokens} tokens",
        (("paging", f"blocks of {cache.block_tokens} tokens", _profile_source(r, "paging")),),
    )


def _free(r: SizeResult) -> Explanation:
    plan = r.memory
    return Explanation(
        "memory.free_bytes",
        f"{show_bytes(plan.free_bytes)} per device",
        "kv budget - sequences of a replica x bytes of a sequence per device",
        f"{plan.kv_budget_bytes:,} B - {plan.sequences:,} x {plan.kv_bytes_per_sequence:,} B",
    )


def _kv_tokens(r: SizeResult) -> Explanation:
    plan, d = r.memory, r.deployment
    cache, budget = engine_cache(d), max(0, r.memory.kv_budget_bytes)
    formula = "replicas x floor(kv budget x tokens of a sequence / bytes of a sequence per device)"
    numbers = f"{d.layout.dp} x floor({budget:,} x {d.workload.length:,} / {plan.kv_bytes_per_sequence:,})"
    if isinstance(cache, PagedCache) and d.engine.paging is not None:
        if d.engine.paging.printed == "concurrency":
            formula = "as the engine's log prints it: floor(sequences of the longest length x that length)"
            numbers = f"{cache.concurrency(budget, d.longest_sequence):.2f} x {d.longest_sequence:,} tokens"
        else:
            formula = "as the engine's log prints it: floor(blocks / groups of layers) x tokens of a block"
            groups = cache.group_count if cache.shared else 1
            numbers = f"floor({cache.blocks_within(budget):,} / {groups}) x {cache.block_tokens}"
        numbers = f"{d.layout.dp} x {numbers}"
    return Explanation("capacity.kv_tokens", f"{show_count(r.capacity.kv_tokens)} tokens", formula, numbers)


def _concurrency(r: SizeResult) -> Explanation:
    plan, d = r.memory, r.deployment
    share = f" of the fullest of {d.layout.pp} stages" if d.layout.pp > 1 else ""
    admitted = "" if d.max_num_seqs is None else f"; at most {d.max_num_seqs:,} run at a time"
    binds = "the engine's limit of sequences" if r.capacity.binds == "max_num_seqs" else ""
    return Explanation(
        "capacity.max_concurrency",
        f"{show_count(r.capacity.max_concurrency)} sequences of {show_count(d.workload.length)} tokens",
        "replicas x floor(kv budget / bytes of a sequence per device) (F7.5), at most what the engine admits",
        f"{d.layout.dp} x floor({max(0, plan.kv_budget_bytes):,} / {plan.kv_bytes_per_sequence:,}){admitted}",
        (("bytes of a sequence per device", f"{plan.kv_bytes_per_sequence:,} B", f"cache of one rank{share}"),),
        "memory capacity" if "kv_less_than_concurrency" in r.reasons else binds,
    )


def _context(r: SizeResult) -> Explanation:
    limit, longest = r.deployment.context_limit, r.capacity.max_context
    by_model = limit is not None and longest == limit
    return Explanation(
        "capacity.max_context",
        f"{show_count(longest)} tokens" if longest is not None else "no limit",
        "longest single sequence whose cache stays within the budget, at most the model's context",
        f"cache bytes <= {max(0, r.memory.kv_budget_bytes):,} B; model's limit {show_count(limit) if limit else 'unknown'}",
        binds="the model's context" if by_model else "memory capacity",
    )
