"""Showing the work of a sizing: each figure's formula, the numbers put in, where each came from, and what binds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..quantities import show_bandwidth, show_bytes, show_compute, show_count, show_flop, show_rate, show_time
from .caching import explain_cache
from .kv_cache import cache_layout, stage_share
from .notices import achieved_shares
from .results import Explanation

if TYPE_CHECKING:
    from .sizing import SizeResult


def explain_size(r: SizeResult) -> tuple[Explanation, ...]:
    """Explain every figure of a sizing, in the order in which they follow from one another."""
    d = r.deployment
    cache = cache_layout(d.model, d.formats.kv)
    lines = [
        _weights(r),
        *explain_cache(d.model, cache, d.workload.length),
        _kv_budget(r),
        _concurrency(r),
        _context(r),
    ]
    lines += [_ridge(r), _prefill_bound(r), _decode_bound(r), _compute_bound_batch(r)]
    if r.times is not None:
        lines += [_ttft(r), _tpot(r), _throughput(r)]
    return tuple(lines)


def _source_of(r: SizeResult, figure: str) -> str:
    hardware = r.deployment.hardware
    evidence = hardware.evidence_of(figure)
    return f"{hardware.name}: {evidence.kind}, {evidence.source}" if evidence else f"{hardware.name}: no source given"


def _model_source(r: SizeResult) -> str:
    model = r.deployment.model
    return f"{model.name}: {model.sources[0].source}" if model.sources else model.name


def _weights(r: SizeResult) -> Explanation:
    from .parameters import count_parameters

    d = r.deployment
    counted = [(kind, count) for kind, count in count_parameters(d.model).by_class.items() if count]
    numbers = " + ".join(
        f"{count:,} {kind} x {d.formats.weights[kind].bits_per_element / 8:g} B" for kind, count in counted
    )
    loaded = [part for part in d.model.parts if part.loaded]
    numbers += "".join(
        f" + {part.parameters:,} {part.name} x {d.formats.weights['other'].bits_per_element / 8:g} B" for part in loaded
    )
    formats = {d.formats.weights[kind].name: d.formats.weights[kind].source for kind, _ in counted}
    return Explanation(
        "model.weights_bytes",
        f"{show_bytes(r.model.weights_bytes)} ({r.model.weights_bytes:,} B); {show_bytes(r.memory.weights_bytes)} on the fullest device",
        "sum over tensor classes of parameters x bytes per parameter (F4.2)",
        numbers,
        (
            ("shape", f"{r.model.parameters_total:,} parameters", _model_source(r)),
            *(("format", n, s) for n, s in formats.items()),
        ),
    )


def _kv_budget(r: SizeResult) -> Explanation:
    plan, d = r.memory, r.deployment
    given = "given" if d.memory.total_bytes is not None else _source_of(r, "memory")
    utilization = "given" if d.memory.utilization is not None else d.engine.sources["memory_utilization"]
    runtime = "given" if d.memory.runtime_bytes is not None else d.engine.sources["runtime"]
    activation = (
        "given" if d.memory.activation_bytes is not None else f"F5.2 at {d.engine.max_batched_tokens} tokens, F5.3"
    )
    return Explanation(
        "memory.kv_budget_bytes",
        f"{show_bytes(plan.kv_budget_bytes)} per device",
        "total x utilisation - weights - activations - runtime (F5.1)",
        f"{show_bytes(plan.total_bytes)} x {plan.utilization:g} - {show_bytes(plan.weights_bytes)}"
        f" - {show_bytes(plan.activation_bytes)} - {show_bytes(plan.non_torch_bytes)}",
        (
            ("total", f"{plan.total_bytes:,} B", given),
            ("utilisation", f"{plan.utilization:g}", utilization),
            ("activations", f"{plan.activation_bytes:,} B", activation),
            ("runtime", f"{plan.non_torch_bytes:,} B", runtime),
        ),
        "memory capacity" if plan.kv_budget_bytes < 0 else "",
    )


def _concurrency(r: SizeResult) -> Explanation:
    plan, d = r.memory, r.deployment
    share = f", {stage_share(d.model, d.layout):.3g} of the layers" if d.layout.pp > 1 else ""
    return Explanation(
        "capacity.max_concurrency",
        f"{show_count(r.capacity.max_concurrency)} sequences of {show_count(d.workload.length)} tokens",
        "replicas x floor(kv budget / bytes of a sequence per device) (F7.5)",
        f"{d.layout.dp} x floor({max(0, plan.kv_budget_bytes):,} / {plan.kv_bytes_per_sequence:,})",
        (("bytes of a sequence per device", f"{plan.kv_bytes_per_sequence:,} B", f"cache of one rank{share}"),),
        "memory capacity" if "kv_less_than_concurrency" in r.reasons else "",
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


def _ridge(r: SizeResult) -> Explanation:
    hardware, arithmetic = r.deployment.hardware, r.intensity.arithmetic
    peak = hardware.peak.rate(arithmetic) or 0.0
    bandwidth = hardware.memory.bandwidth
    return Explanation(
        "intensity.ridge_flop_per_byte",
        _ridge_text(r),
        "peak / bandwidth (F1.1; Williams, Waterman, Patterson 2009)",
        f"{show_compute(peak)} {arithmetic} / {show_bandwidth(bandwidth)}",
        (
            (f"dense {arithmetic} peak", show_compute(peak), _source_of(r, f"peak.{arithmetic}")),
            ("bandwidth", show_bandwidth(bandwidth), _source_of(r, "memory.bandwidth")),
        ),
    )


def _ridge_text(r: SizeResult) -> str:
    ridge = r.intensity.ridge_flop_per_byte
    return "unknown" if ridge is None else f"{ridge:.1f} FLOP/B"


def _prefill_bound(r: SizeResult) -> Explanation:
    work, prompt = r.work, r.deployment.workload.prompt
    return Explanation(
        "work.prefill_whole_step_s",
        f"{show_time(work.prefill_whole_step_s)} for {show_count(prompt)} tokens",
        "max(FLOP / peak, bytes / bandwidth) over the whole step (F6.1); FLOP = 2 per matrix parameter and token + causal attention",
        f"{show_flop(work.prefill_flop)} over {r.deployment.layout.tp} device(s); {r.intensity.prefill_flop_per_byte:.0f} FLOP/B"
        f" against a ridge of {_ridge_text(r)}",
        binds=r.prefill_limit or "",
    )


def _decode_bound(r: SizeResult) -> Explanation:
    work, workload = r.work, r.deployment.workload
    return Explanation(
        "work.decode_whole_step_s",
        f"{show_time(work.decode_whole_step_s)} per step at a mean context of {show_count(workload.mean_context)}",
        "max(FLOP / peak, (weights read + batch x cache) / bandwidth) (F6.2)",
        f"{show_bytes(r.model.weights_bytes_read_per_step)} of weights read; {r.intensity.decode_flop_per_byte:.2f} FLOP/B"
        f" against a ridge of {_ridge_text(r)}",
        binds=r.decode_limit or "",
    )


def _compute_bound_batch(r: SizeResult) -> Explanation:
    batch = r.max_batch_compute_bound
    critical = r.work.critical_context
    value = f"from a batch of {batch:,.0f}" if batch is not None else "never: the cache outgrows the weights' reuse"
    beyond = f"; never beyond {critical:,.0f} tokens of context" if critical is not None else ""
    return Explanation(
        "capacity.max_batch_compute_bound",
        value,
        "W / (2 N / ridge - L c) where positive; never for L > 2 N / (ridge c) (F7.3)",
        f"W = {r.model.weights_bytes:,} B, N = {r.model.parameters_active:,}, c = {r.kv.bytes_per_token:,} B{beyond}",
    )


def _ttft(r: SizeResult) -> Explanation:
    assert r.times is not None  # the caller has checked
    ttft, alone = r.times.latency.ttft_s, r.times.latency.ttft_alone_s
    queue = r.times.states[2].queue_s
    waiting = f"; {show_time(queue)} of it waiting for memory" if queue else ""
    return Explanation(
        "latency.ttft_s",
        f"{show_time(ttft.expected)} ({show_time(ttft.low)} to {show_time(ttft.high)}); alone {show_time(alone.expected)}",
        "prefill chunks in steps shared with the running decoders + the step under way + waiting for memory",
        f"bound {show_time(ttft.bound)} at nominal rates, alone {show_time(alone.bound)}{waiting}",
        _share_inputs(r),
        r.prefill_limit or "",
    )


def _tpot(r: SizeResult) -> Explanation:
    assert r.times is not None  # the caller has checked
    tpot, state = r.times.latency.tpot_s, r.times.states[2]
    return Explanation(
        "latency.tpot_s",
        f"{show_time(tpot.expected)} ({show_time(tpot.low)} to {show_time(tpot.high)})",
        "sum over operators of max(FLOP / rate, bytes / bandwidth) (F6.3) + the others' prefills spread over the output",
        f"step of {state.decoding:.1f} decoding sequences {show_time(state.itl_s)}"
        f" + prefill interference {show_time(state.tpot_s - state.itl_s)}; bound {show_time(tpot.bound)}",
        _share_inputs(r),
        r.decode_limit or "",
    )


def _throughput(r: SizeResult) -> Explanation:
    assert r.times is not None  # the caller has checked
    rate, state, d = r.times.throughput.output_tokens_per_s, r.times.states[2], r.deployment
    return Explanation(
        "throughput.output_tokens_per_s",
        f"{show_rate(rate.expected)} tokens/s ({show_rate(rate.low)} to {show_rate(rate.high)})",
        "replicas x running sequences x output / end-to-end time (Little's law, F13.6)",
        f"{d.layout.dp} x {state.running} x {d.workload.output} / {show_time(state.e2e_s - state.queue_s)}",
    )


def _share_inputs(r: SizeResult) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        (name, f"{band.low:g} / {band.expected:g} / {band.high:g}", f"{file}: {band.source}")
        for name, band, file in achieved_shares(r.deployment)
    )
