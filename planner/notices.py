"""What an answer rests on: the figures that were not given, the shares that kernels reach, and what the user should be warned of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hardware.achieved import choose
from ..quantities import show_bytes
from .formats import main_class
from .memory import rank_cache
from .parameters import count_parameters
from .results import Assumption, Notice

if TYPE_CHECKING:
    from ..engines.streams import Stream, Streams
    from ..models.spec import ModelSpec
    from .deployment import Deployment
    from .memory import MemoryPlan


def main_arithmetic(d: Deployment) -> str:
    """Arithmetic type of most of the work."""
    return d.formats.arithmetic(main_class(d.model), d.hardware)


_CAUSES = {
    "buffer": "masks or rotary tables, which engines do not load",
    "duplicate": "a tied head stored a second time",
    "mtp": "draft layers, which a server loads only when asked",
    "vision": "vision or audio towers, which are loaded beside the language model",
}


_ABSENT = {"head": "is it tied?"}


def checkpoint_differences(model: ModelSpec) -> list[str]:
    """Where a checkpoint holds other parameters than the shape says, each with its likely cause."""
    if not model.checkpoint:
        return []
    counted = {str(kind): count for kind, count in count_parameters(model).by_class.items()}
    present = {stored.kind for stored in model.checkpoint}
    absent = [kind for kind, count in counted.items() if count and kind not in present and kind != "other"]
    said = [
        f"the checkpoint stores no {kind}: taken as 16 bits ({_ABSENT.get(kind, 'is it whole?')})" for kind in absent
    ]
    for stored in model.checkpoint:
        if stored.kind in _CAUSES:
            said.append(f"the checkpoint also stores {stored.parameters:,} parameters of {_CAUSES[stored.kind]}")
        elif stored.parameters != counted[stored.kind]:
            difference = stored.parameters - counted[stored.kind]
            said.append(
                f"the checkpoint stores {difference:+,} {stored.kind} parameters against the shape: its bytes are used"
            )
    return said


def warnings_of(d: Deployment) -> list[Notice]:
    """List what the user should know about any answer for this deployment."""
    warnings = []
    limit = d.model.max_context
    longest = max(d.workload.length, d.max_model_len or 0)
    if limit is not None and longest > limit:
        message = f"{longest:,} tokens exceed the {limit:,} that {d.model.name} was published for"
        warnings.append(Notice("context_exceeds_model", message))
    exchanging = max(d.layout.tp * d.layout.cp * d.layout.pp, d.layout.ep)
    if exchanging > 1 and d.hardware.link(exchanging) is None:
        message = f"no link between {exchanging} x {d.hardware.name} is known: exchanges are taken as free"
        warnings.append(Notice("interconnect_unknown", message))
    if d.engine.paging is not None and any(term.every > 1 for term in rank_cache(d).terms):
        message = (
            f"how {d.engine.engine} groups compressed caches is not known: each kind of layer is counted by itself"
        )
        warnings.append(Notice("compressed_layout_unknown", message))
    if d.engine.is_newer_than_known:
        asked, known = f"{d.engine.engine} {d.engine.version}", d.engine.checked_to
        message = f"{asked} is newer than {known}, the last version that its profile knows"
        warnings.append(Notice("engine_version_newer", message))
    main, used = d.formats.weights[main_class(d.model)], main_arithmetic(d)
    warnings += [Notice("assumed", f"{d.model.name}: {text}") for text in d.model.assumed]
    warnings += [Notice("checkpoint_differs", message) for message in checkpoint_differences(d.model)]
    if not d.hardware.has_rates:
        message = f"no dense rate of {d.hardware.name} is known: memory is planned, times are not"
        warnings.append(Notice("no_dense_rate", message))
    elif used != main.arithmetic[0]:
        message = f"{main.name} weights are multiplied in {used} on {d.hardware.name} with {d.formats.activations.name} activations"
        warnings.append(Notice("arithmetic_fallback", message))
    return warnings


def overcommitted(plan: MemoryPlan) -> list[Notice]:
    """What stands beside the engine's share (context, graphs, activations of some engines) and does not find room there."""
    if plan.spare_bytes >= 0 or plan.kv_budget_bytes < 0:
        return []
    message = f"context and what the engine's share does not pay exceed the device by {show_bytes(-plan.spare_bytes)}: a start may fail"
    return [Notice("memory_overcommitted", message)]


def assumptions_of(d: Deployment, plan: MemoryPlan) -> list[Assumption]:
    """List what came from the device, the engine profile or a formula instead of from the user."""
    hardware, overrides = d.hardware, d.memory
    listed = [device_assumption(d, "memory.bandwidth", hardware.memory.bandwidth)]
    if overrides.total_bytes is None:
        listed.append(device_assumption(d, hardware.memory.total_key(d.engine.budget.total), d.device_bytes))
    if hardware.has_rates:
        arithmetic = main_arithmetic(d)
        listed.append(device_assumption(d, f"peak.{arithmetic}", hardware.peak.rate(arithmetic)))
        listed += kernel_assumptions(d)
    listed += _of_settings(d)
    if overrides.utilization is None and d.settings.kv_cache_bytes is None:
        reserve = "budget.share" if d.engine.budget.reserve is None else "budget.reserve"
        listed.append(_of_profile(d, reserve, "memory_utilization", plan.utilization))
    if overrides.runtime_bytes is None:
        listed.append(_of_profile(d, "runtime", "runtime_bytes", plan.non_torch_bytes))
    if overrides.activation_bytes is None:
        listed.append(_of_profile(d, "activations", "activation_bytes", plan.activation_bytes))
    if overrides.graph_bytes is None and plan.graph_bytes:
        listed.append(_of_profile(d, "graphs", "graph_bytes", plan.graph_bytes))
    if main_class(d.model) == "experts":
        source = "formula F2.10: uniform independent routing; real routing is skewed and touches fewer experts"
        listed.append(Assumption("expert_routing", "uniform", source, "derived"))
    return listed


def device_assumption(d: Deployment, figure: str, value: object) -> Assumption:
    """A figure of the device, with where it comes from."""
    evidence = d.hardware.evidence_of(figure)
    source, kind = (evidence.source, evidence.kind) if evidence else ("no source given", "user")
    return Assumption(figure, value, f"{d.hardware.name}: {source}", kind)


def kernel_assumptions(d: Deployment) -> list[Assumption]:
    """What the kernels of the device and the host of the engine are taken to reach, or the launches of its layers."""
    stream = d.streams.of(d.hardware, d.build) if d.streams is not None else None
    if d.streams is not None and stream is not None:
        return _stream_assumptions(d, d.streams, stream)
    kernels, timing = d.kernels, d.engine.timing
    if kernels is None:
        return []
    product, attention = (
        choose(kernels.gemm, main_arithmetic(d)),
        choose(kernels.decode_attention, "", d.formats.kv.bits),
    )
    figures: list[tuple[str, str, object]] = [
        ("gemm", "gemm.bandwidth_share", product.bandwidth),
        ("gemm", "gemm.compute_share", product.compute),
        ("gemm", "gemm.floor_s", product.floor),
        ("decode_attention", "decode_attention.bandwidth_share", attention.bandwidth),
        ("decode_attention", "decode_attention.floor_s", attention.floor),
    ]
    listed = []
    for key, name, value in figures:
        origin = kernels.sources[key]
        listed.append(Assumption(name, value, f"kernels {kernels.name}: {origin.source}", origin.kind))
    listed.append(_of_profile(d, "timing", "host_per_step_s", timing.host_per_step))
    listed.append(_of_profile(d, "timing", "host_per_sequence_s", timing.host_per_sequence))
    listed.append(_of_profile(d, "scheduling", "request_overhead_s", d.scheduling.request_overhead))
    return listed


def _stream_assumptions(d: Deployment, streams: Streams, stream: Stream) -> list[Assumption]:
    from .streams import width_of

    width = str(width_of(d.formats.weights[main_class(d.model)].bits))
    figures = {
        "layer_launch_s": stream.per_layer,
        "weights.bandwidth_share": stream.bandwidth[width],
        "cache.bandwidth_share": stream.cache_bandwidth * stream.bandwidth[width],
        "prompt.compute_share": stream.prompt.compute[width],
    }
    source = f"devices of class {stream.name}, fitted on {streams.fit.data}"
    return [Assumption(name, value, source, "fitted") for name, value in figures.items()]


def _of_settings(d: Deployment) -> list[Assumption]:
    """Limits of a step and of the cache that were not given."""
    settings, listed = d.settings, []
    if settings.max_batched_tokens is None:
        listed.append(_of_profile(d, "batching", "max_batched_tokens", d.max_batched_tokens))
    if settings.max_num_seqs is None and d.max_num_seqs is not None:
        listed.append(_of_profile(d, "batching", "max_num_seqs", d.max_num_seqs))
    if settings.block is None and d.engine.paging is not None:
        listed.append(_of_profile(d, "paging", "block_size", d.engine.paging.block))
    return listed


def _of_profile(d: Deployment, figure: str, name: str, value: object) -> Assumption:
    origin = d.engine.origin(figure)
    source, kind = (origin.source, origin.kind) if origin else ("no source given", "user")
    return Assumption(name, value, f"engine profile {d.engine.name}: {source}", kind)
