"""Drawings of attention and experts: what kernels move, what shapes of attention store, and which experts a step touches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import DomainError
from ...models.spec import Attention, Moe
from ...quantities import show_bytes, show_count
from .. import domain
from ..attention import column_tiled_traffic, compulsory_traffic, row_tiled_traffic, standard_traffic
from ..experts import distinct_experts
from ..kv_cache import cache_layout
from ..speculative_steps import expert_bytes_ratio
from ..step import StepModel
from ..variants import interleaved, with_kv_heads, with_latents
from .drawing import Mark, Panel, PresetResult, Scale, curve, spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...hardware.spec import HardwareSpec
    from ...models.spec import ModelSpec
    from ..deployment import Deployment

_SHORTEST = 256
_GROUPS = 8  # KV heads of most models with grouped queries
_ELEMENT = 2.0  # bytes


def attention_bytes(head_dim: int, longest: int, sram_elements: int, device: HardwareSpec) -> PresetResult:
    """Bytes that attention of one head moves over the tokens, with scores written out and without, and FLOP per byte (F15.1, F15.2).

    Parameters
    ----------
    head_dim : width of a head
    sram_elements : elements of two bytes that a block's on-chip memory holds
    device : its ridge is drawn as a level

    Raises
    ------
    DomainError : for fewer than 512 tokens, or a chip without room for a row each of Q, K, V and O
    """
    lengths = spread(_SHORTEST, domain.count("prompt", longest, 2 * _SHORTEST), 4)
    kinds = (
        ("scores written out", [standard_traffic(n, head_dim) for n in lengths]),
        (
            "FlashAttention, blocks of K and V outside",
            [column_tiled_traffic(n, head_dim, sram_elements) for n in lengths],
        ),
        ("FlashAttention-2, blocks of Q outside", [row_tiled_traffic(n, head_dim) for n in lengths]),
    )
    least = [compulsory_traffic(n, head_dim) for n in lengths]
    arithmetic = next((name for name in ("bf16", "fp16", "fp32") if device.peak.rate(name)), "")
    ridge = device.ridge(arithmetic) if arithmetic else None
    levels = () if ridge is None else (Mark(f"ridge of {device.name} in {arithmetic}: {ridge:,.0f}", None, ridge),)
    written, tiled = kinds[0][1][-1], kinds[2][1][-1]
    says = (
        f"At {show_count(longest)} tokens one head moves {show_bytes(written.moved_bytes())} with its scores written out. FlashAttention-2"
        f" asks for {show_bytes(tiled.moved_bytes())}; where K and V of the head stay in a cache of the chip, memory gives"
        f" {show_bytes(least[-1].moved_bytes())}."
    )
    across = Scale("tokens", "tokens", logarithmic=True)
    once = "Q, K, V and O once: the least"
    return PresetResult(
        "attention-bytes",
        f"Traffic of attention: one head of {head_dim}",
        f"a prefill without a mask, two bytes an element, {show_bytes(sram_elements * _ELEMENT)} on the chip",
        says,
        (
            Panel(
                "bytes between memory and chip",
                across,
                Scale("bytes", "bytes", logarithmic=True),
                (
                    *(
                        curve(name, zip(lengths, (t.moved_bytes() for t in found), strict=True))
                        for name, found in kinds
                    ),
                    curve(once, zip(lengths, (t.moved_bytes() for t in least), strict=True), "bound"),
                ),
            ),
            Panel(
                "FLOP per byte",
                across,
                Scale("FLOP per byte", "flop_per_byte", logarithmic=True),
                (
                    *(curve(name, zip(lengths, (t.intensity() for t in found), strict=True)) for name, found in kinds),
                    curve(once, zip(lengths, (t.intensity() for t in least), strict=True), "bound"),
                ),
                levels,
            ),
        ),
        "4 N d + 4 N^2 elements (F15.1); 2 N d + 3 N d T_c, 2 N d + 2 N d ceil(N / B_r), 4 N d (F15.2; Dao et al. 2022, 2023)",
    )


def attention_variants(d: Deployment, longest: int) -> PresetResult:
    """Cache and decode step of one model with other shapes of attention, over the context (F3.1 to F3.3, F2.8).

    All but the one that it has would have to be trained.

    Raises
    ------
    DomainError : for a model whose layers keep no keys and values of heads, or a context below 512
    SpecError : when the device has no rate for an arithmetic type that is needed
    """
    lengths = spread(_SHORTEST, domain.count("context", longest, 2 * _SHORTEST), 2)
    shapes = list(_shapes(d.model))
    caches = [(name, cache_layout(model, d.formats.kv)) for name, model in shapes]
    batch = d.workload.concurrency
    steps = [(name, StepModel.of(_with_model(d, model))) for name, model in shapes]
    sizes = [(cache.bytes_per_sequence(longest), name) for name, cache in caches]
    (most, greedy), (least, frugal) = max(sizes), min(sizes)
    says = (
        f"At {show_count(longest)} tokens a sequence takes {show_bytes(most)} with {greedy} and {show_bytes(least)} with {frugal}:"
        f" {most / least:,.0f} times less."
    )
    across = Scale("tokens of a sequence", "tokens", logarithmic=True)
    return PresetResult(
        "attention-variants",
        f"Shapes of attention: {d.model.name} on {d.hardware.name}",
        f"KV {d.formats.kv.name}, weights {d.formats.name} · every shape but its own would have to be trained · nominal rates",
        says,
        (
            Panel(
                "cache of one sequence",
                across,
                Scale("cache", "bytes", logarithmic=True),
                tuple(curve(name, ((n, cache.bytes_per_sequence(n)) for n in lengths)) for name, cache in caches),
            ),
            Panel(
                f"decode step of {show_count(batch)} sequence{'s' if batch > 1 else ''}",
                across,
                Scale("time", "s", logarithmic=True),
                tuple(curve(name, ((n, float(model.step_s(batch, n))) for n in lengths)) for name, model in steps),
            ),
        ),
        "2 n_L n_kv d_h b (F3.1), n_L (kv_r + d_r) b (F3.2), windows (F3.3); step: F1.9, F6.3, latents by F2.8",
    )


def _shapes(model: ModelSpec) -> Iterator[tuple[str, ModelSpec]]:
    """The model with every shape that its heads allow, each with its name."""
    mixers = [m for layer in model.layers for m in layer.attention if isinstance(m, Attention)]
    if not mixers:
        raise DomainError("--model", got=model.name, wanted="a model whose layers keep keys and values of heads")
    heads = mixers[0].num_heads
    yield f"a KV head for each of {heads} (MHA)", with_kv_heads(model, lambda m: m.num_heads)
    if all(m.num_heads % _GROUPS == 0 and m.num_heads > _GROUPS for m in mixers):
        yield f"{_GROUPS} KV heads (GQA)", with_kv_heads(model, lambda _: _GROUPS)
    yield "1 KV head (MQA)", with_kv_heads(model, lambda _: 1)
    yield "latents of 512 + 64 (MLA)", with_latents(model)
    if all(m.window is None for m in mixers):
        grouped = with_kv_heads(model, lambda m: _GROUPS if m.num_heads % _GROUPS == 0 else m.num_kv_heads)
        yield f"{_GROUPS} KV heads, 5 of 6 layers see 1,024", interleaved(grouped, 5, 1, 1024)


def _with_model(d: Deployment, model: ModelSpec) -> Deployment:
    from dataclasses import replace

    return replace(d, model=model)


def moe_coverage(models: Sequence[ModelSpec], drafts: int, most: int) -> PresetResult:
    """Experts that the tokens of a step touch, and what verifying drafts adds to the bytes of experts (F2.10, F11.7).

    Routing is taken as uniform and independent, which touches the most.

    Parameters
    ----------
    drafts : tokens that are verified beside the last one
    most : tokens of the largest step, and sequences of the largest batch

    Raises
    ------
    DomainError : for a model without routed experts, or fewer than two tokens
    """
    tokens = spread(1, domain.count("concurrency", most, 2), 4)
    found = [(model.name, *_experts(model)) for model in models]
    domain.count("models", len(found))
    domain.drafts(drafts, 1)
    labels = [f"{name}: {chosen} of {experts}" for name, experts, chosen in found]
    name, experts, chosen = found[0]
    says = (
        f"32 tokens of a step touch {distinct_experts(32, experts, chosen) / experts:.0%} of the experts of a layer of {name}; verifying"
        f" {drafts} drafts of one sequence reads {expert_bytes_ratio(1, drafts, experts, chosen):.2f} times the experts of a plain step."
    )
    return PresetResult(
        "moe-coverage",
        "Experts that a step touches",
        "experts chosen uniformly and apart from one another: real routing touches fewer",
        says,
        (
            Panel(
                "share of a layer's experts that is read",
                Scale("tokens of a step", "tokens", logarithmic=True),
                Scale("experts touched", "share"),
                tuple(
                    curve(label, ((n, distinct_experts(n, e, k) / e) for n in tokens))
                    for label, (_, e, k) in zip(labels, found, strict=True)
                ),
            ),
            Panel(
                f"expert bytes with {drafts} drafts over those without",
                Scale("sequences (batch)", "sequences", logarithmic=True),
                Scale("bytes", "times"),
                (
                    *(
                        curve(label, ((n, expert_bytes_ratio(n, drafts, e, k)) for n in tokens))
                        for label, (_, e, k) in zip(labels, found, strict=True)
                    ),
                ),
                (Mark("no more than without drafts", None, 1.0),),
            ),
        ),
        "E (1 - (1 - k/E)^T) (F2.10); D(B (k + 1)) / D(B) (F11.7; MoESD, arXiv 2505.19645)",
    )


def _experts(model: ModelSpec) -> tuple[int, int]:
    """Routed experts of a layer, and those that a token chooses."""
    for layer in model.layers:
        for part in layer.mlp:
            if isinstance(part, Moe):
                return part.num_experts, part.experts_per_token
    raise DomainError("--model", got=model.name, wanted="a model with routed experts")
