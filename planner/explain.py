"""Showing the work of a sizing: each figure's formula, the numbers put in, where each came from, and what binds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..quantities import show_bandwidth, show_bytes, show_compute, show_count, show_flop, show_rate, show_time
from .caching import explain_cache, source_of_model
from .explain_memory import explain_memory, source_of_device
from .kv_cache import cache_layout
from .notices import kernel_assumptions
from .results import Explanation

if TYPE_CHECKING:
    from collections.abc import Callable

    from .evidence import Evidence
    from .ranges import Range
    from .sizing import SizeResult
    from .times import Times


def explain_size(r: SizeResult) -> tuple[Explanation, ...]:
    """Explain every figure of a sizing, in the order in which they follow from one another."""
    d = r.deployment
    cache = cache_layout(d.model, d.formats.kv, entries=d.engine.entries)
    lines = [
        _weights(r),
        _weights_read(r),
        *explain_cache(d.model, cache, d.workload.length),
        *explain_memory(r),
    ]
    lines += [_ridge(r), *_intensities(r), _prefill_bound(r), _decode_bound(r), _compute_bound_batch(r), _crossover(r)]
    if r.times is not None:
        lines += _times(r, r.times)
    return tuple(lines)


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
            ("shape", f"{r.model.parameters_total:,} parameters", source_of_model(d.model)),
            *(("format", n, s) for n, s in formats.items()),
        ),
    )


def _weights_read(r: SizeResult) -> Explanation:
    d = r.deployment
    return Explanation(
        "model.weights_bytes_read_per_step",
        f"{show_bytes(r.model.weights_bytes_read_per_step)} ({r.model.weights_bytes_read_per_step:,.0f} B)",
        "matrices and head x bytes per parameter; the input table is looked up, norms are vectors; of E experts with k chosen per token"
        " E (1 - (1 - k/E)^tokens) are read (F4.3, F2.10)",
        f"a decode step of {_batch(r):g} tokens on one replica; {show_bytes(r.model.weights_bytes)} are stored",
        (("shape", f"{r.model.parameters_active:,} parameters per token", source_of_model(d.model)),),
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
            (f"dense {arithmetic} peak", show_compute(peak), source_of_device(r, f"peak.{arithmetic}")),
            ("bandwidth", show_bandwidth(bandwidth), source_of_device(r, "memory.bandwidth")),
        ),
    )


def _ridge_text(r: SizeResult) -> str:
    ridge = r.intensity.ridge_flop_per_byte
    return "unknown" if ridge is None else f"{ridge:.1f} FLOP/B"


def _intensities(r: SizeResult) -> list[Explanation]:
    chunk = min(r.deployment.workload.prompt, r.deployment.max_batched_tokens)
    formula = "FLOP / (weights read + cache read + cache written + token vectors) of one rank (F1.7)"
    steps = (
        ("prefill", r.intensity.prefill_flop_per_byte, f"a step of {show_count(chunk)} prompt tokens"),
        ("decode", r.intensity.decode_flop_per_byte, f"a step of {_batch(r):g} sequences"),
    )
    return [
        Explanation(f"intensity.{name}_flop_per_byte", f"{value:,.2f} FLOP/B", formula, step)
        for name, value, step in steps
    ]


def _prefill_bound(r: SizeResult) -> Explanation:
    work, d = r.work, r.deployment
    return Explanation(
        "work.prefill_whole_step_s",
        f"{show_time(work.prefill_whole_step_s)} for {show_count(d.workload.prompt)} tokens",
        "max(FLOP / peak, bytes / bandwidth) over the whole step (F6.1); FLOP = 2 per matrix parameter and token + causal attention",
        f"{show_flop(work.prefill_flop)} in chunks of at most {show_count(d.max_batched_tokens)} tokens,"
        f" divided by {d.layout.tp * d.layout.cp}"
        f" at {show_compute(d.hardware.peak.rate(r.intensity.arithmetic) or 0.0)} each where compute binds",
        binds=r.prefill_limit or "",
    )


def _decode_bound(r: SizeResult) -> Explanation:
    d = r.deployment
    cache = cache_layout(d.model, d.formats.kv).bytes_per_sequence(round(d.workload.mean_context))
    return Explanation(
        "work.decode_whole_step_s",
        f"{show_time(r.work.decode_whole_step_s)} per step at a mean context of {show_count(d.workload.mean_context)}",
        "max(FLOP / peak, (weights read + batch x cache) / bandwidth) (F6.2), each rank with its part",
        f"max({show_flop(r.work.decode_flop)} / {show_compute(d.hardware.peak.rate(r.intensity.arithmetic) or 0.0)},"
        f" ({show_bytes(r.model.weights_bytes_read_per_step)} + {_batch(r):g} x {show_bytes(cache)})"
        f" / {show_bandwidth(d.hardware.memory.bandwidth)}); {d.layout.tp} rank(s)",
        binds=r.decode_limit or "",
    )


def _batch(r: SizeResult) -> float:
    return round(r.decode_batch, 2)


def _compute_bound_batch(r: SizeResult) -> Explanation:
    batch, critical, rank = r.max_batch_compute_bound, r.work.critical_context, r.rank
    value = f"from a batch of {batch:,.0f}" if batch is not None else "never: the cache outgrows the weights' reuse"
    beyond = f"; never beyond {int(critical):,} tokens of context" if critical is not None else ""
    context = round(r.deployment.workload.mean_context)
    return Explanation(
        "capacity.max_batch_compute_bound",
        value,
        "W / (2 N / ridge - cache) where positive; never for a context > 2 N / (ridge c) (F7.3); of one rank, x replicas",
        f"{rank.weight_bytes:,} B / (2 x {rank.parameters:,.0f} / {_ridge_text(r)} - {rank.cache.bytes_per_sequence(context):,} B)"
        f" x {r.deployment.layout.dp}; c = {rank.cache.bytes_per_token:,} B{beyond}",
    )


def _crossover(r: SizeResult) -> Explanation:
    batch, rank = r.work.crossover_batch, r.rank
    context = round(r.deployment.workload.mean_context)
    return Explanation(
        "work.crossover_batch",
        f"{batch:.1f} sequences of a replica" if batch is not None else "none: the cache does not grow",
        "W / cache of a sequence, of one rank: cache reads then equal weight reads (F7.2)",
        f"{rank.weight_bytes:,} B / {rank.cache.bytes_per_sequence(context):,} B at {show_count(context)} tokens",
    )


def _times(r: SizeResult, times: Times) -> list[Explanation]:
    """Times as they are reached under load, with the roof beside them."""
    load, workload, latency = times.load, r.deployment.workload, times.latency
    stages = r.deployment.layout.pp
    divided = f" / {stages} stages" if stages > 1 else ""
    gaps, rate = workload.output - 1, times.throughput
    running = min(workload.concurrency, r.deployment.layout.dp * load.running)
    service = load.steady_ttft_s - load.queue_s + gaps * load.tpot_s
    lines = [
        Explanation(
            "latency.ttft_alone_s",
            _spread(latency.ttft_alone_s, show_time),
            "request overhead + sum over chunks and kernels of floor + join of FLOP / rate and bytes / bandwidth (F1.3, F6.3, F10.2)",
            f"{show_count(workload.prompt)} tokens in chunks of at most {show_count(r.deployment.max_batched_tokens)}",
            _kernel_inputs(r),
            r.prefill_limit or "",
        ),
        Explanation(
            "latency.ttft_burst_s",
            _spread(latency.ttft_burst_s, show_time),
            "mean when all begin together: t_k (ceil(C / k) + 1) / 2 with k prompts in a step, + waiting for memory",
            f"{load.running} requests of a replica",
        ),
        Explanation(
            "latency.itl_s",
            _spread(latency.itl_s, show_time),
            "sum over kernels of floor + join of FLOP / rate and bytes / bandwidth of a step without prefill, + host (F6.3)",
            f"{load.decoding:.1f} of {load.running} running sequences decode, at a context of {show_count(workload.mean_context)}",
            _kernel_inputs(r),
            r.decode_limit or "",
        ),
        Explanation(
            "latency.ttft_s",
            _spread(latency.ttft_s, show_time),
            "waiting for memory + overhead + the step under way + prompts of others ahead + own prompt in shared steps, in steady state",
            f"{show_time(load.queue_s)} waiting for memory; own prompt {show_time(load.prompt_s)} in shared steps",
        ),
        Explanation(
            "latency.e2e_s",
            _spread(latency.e2e_s, show_time),
            "TTFT + (output - 1) x TPOT (F6.7)",
            f"{show_time(load.steady_ttft_s)} + {gaps:,} x {show_time(load.tpot_s)}",
        ),
    ]
    if latency.tpot_s is not None and rate.per_user_tokens_per_s is not None:
        lines += [
            Explanation(
                "latency.tpot_s",
                _spread(latency.tpot_s, show_time),
                "step without prefill + what prompts of others add to it, spread over the output",
                f"{show_time(load.step_s)} + {load.during:.2f} x {show_time(load.prompt_added_s)}{divided} / {gaps:,}",
                binds=r.decode_limit or "",
            ),
            Explanation(
                "throughput.per_user_tokens_per_s",
                _spread(rate.per_user_tokens_per_s, show_rate),
                "1 / TPOT",
                f"1 / {show_time(load.tpot_s)}",
            ),
        ]
    for name, figure, tokens in (
        ("output", rate.output_tokens_per_s, workload.output),
        ("total", rate.total_tokens_per_s, workload.length),
    ):
        lines.append(
            Explanation(
                f"throughput.{name}_tokens_per_s",
                f"{_spread(figure, show_rate)} tokens/s",
                "sequences running x tokens of each / end-to-end time without waiting for memory (Little's law, F13.6)",
                f"{running:,} x {tokens:,} / {show_time(service)}",
            )
        )
    lines.append(
        Explanation(
            "latency.range",
            f"80 % within x/÷ {times.evidence.width:.2f}, to the first token x/÷ {times.evidence.first_token_width:.2f}",
            "exp of the root of the sum of squares of the logarithms of what each unknown adds",
            _unknowns(times.evidence),
        )
    )
    return lines


def _unknowns(evidence: Evidence) -> str:
    if not evidence.parts:
        return "no kernels are known"
    (why, width), *more = evidence.parts
    scatter = f"{why}: {width:.2f}, of times to first token {evidence.first_token:.2f}"
    return "; ".join([scatter, *(f"{why}: {width:.2f}" for why, width in more)])


def _spread(figure: Range, printed: Callable[[float], str]) -> str:
    values = [printed(value) for value in (figure.expected, figure.low, figure.high, figure.bound)]
    return f"{values[0]} ({values[1]} to {values[2]}; roof {values[3]})"


def _kernel_inputs(r: SizeResult) -> tuple[tuple[str, str, str], ...]:
    """What kernels and host are taken to reach, with where it comes from."""
    return tuple((a.name, f"{a.value:.3g}", a.source) for a in kernel_assumptions(r.deployment))
