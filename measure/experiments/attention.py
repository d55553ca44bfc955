"""Attention of one layer: torch's fused kernel against plain products in time and peak memory, and the reading of long caches.

Sources: formulas F15.1 to F15.3. Records ``attention.decode`` and ``attention.prefill`` are the fused kernel's. A measured device takes its
attention kernels from the ceilings (:mod:`~roofplan.measure.attention`), whose records name their arithmetic, and not from these.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...models.spec import Attention
from ...planner.attention import compulsory_traffic, standard_traffic
from ...planner.costs import Load
from ..timing import copies_needed, rotate
from .bench import Bench, bench, copied_s, operator_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...models.spec import LayerGroup, ModelSpec
    from ..machine import Machine
    from ..records import Record
    from ..timing import Limits

CACHES = ((1, 1024), (1, 4096), (8, 1024), (8, 4096))
QUICK_CACHES = ((4, 512),)
PROMPTS = (128, 512, 1024, 2048)
QUICK_PROMPTS = (256,)
_MOST_ROTATED = 2**30  # bytes of copies of a cache


def run(
    machine: Machine,
    model: ModelSpec | None,
    limits: Limits,
    *,
    caches: tuple[tuple[int, int], ...] | None = None,
    prompts: tuple[int, ...] | None = None,
    **options: Any,
) -> list[Record]:
    """Time attention alone: ``attention.decode``, ``attention.prefill`` and ``attention.plain`` (s), ``attention.…_peak`` (B).

    Parameters
    ----------
    caches : pairs of sequences and tokens that one new token of each attends to
    prompts : tokens that attend to one another
    options : of :func:`~roofplan.measure.experiments.bench.bench`
    """
    own = bench(machine, model, limits, **options)
    begun = len(own.records)
    found = full_heads(own.spec)
    if found is None:
        own.say(f"attention: {own.spec.name} has no layer that attends to all tokens with heads of keys and values")
        return []
    group, heads = found
    layer = replace(group, count=1, attention=(heads,))
    own = own.of(replace(own.spec, name=f"{own.spec.name}, attention of a layer", layers=(layer,)))
    for batch, context in caches or (QUICK_CACHES if own.quick else CACHES):
        with own.within_memory(f"attention of {batch} x {context} tokens"):
            _decode(own, heads, batch, context)
    for tokens in prompts or (QUICK_PROMPTS if own.quick else PROMPTS):
        with own.within_memory(f"attention of a prompt of {tokens} tokens"):
            _prompt(own, heads, tokens)
    return own.records[begun:]


def full_heads(spec: ModelSpec) -> tuple[LayerGroup, Attention] | None:
    """The first group of layers that attend to all tokens with heads of keys and values, and this attention."""
    for group in spec.layers:
        for mixer in group.attention:
            if isinstance(mixer, Attention) and mixer.kind == "full" and mixer.cache == "own":
                return group, mixer
    return None


def tensors(own: Bench, heads: Attention, batch: int, asked: int, held: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Random queries, keys and values of one layer."""
    import torch

    random = torch.Generator(own.machine.torch_device).manual_seed(seed)

    def drawn(count: int, tokens: int, width: int) -> Any:
        made = torch.randn(batch, count, tokens, width, generator=random, device=own.machine.torch_device)
        return made.to(own.torch_dtype)

    return (
        drawn(heads.num_heads, asked, heads.head_dim),
        drawn(heads.num_kv_heads, held, heads.head_dim),
        drawn(heads.num_kv_heads, held, heads.value_dim),
    )


def _decode(own: Bench, heads: Attention, batch: int, context: int) -> None:
    """One new token of each sequence; caches rotate, so that they come from memory."""
    queries, keys, values = tensors(own, heads, batch, 1, context)
    moved = sum(t.numel() * t.element_size() for t in (keys, values))
    copies = min(copies_needed(moved, own.machine.cache_bytes), max(2, _MOST_ROTATED // moved))
    pairs = [(keys, values), *((keys.clone(), values.clone()) for _ in range(copies - 1))]
    load = Load(batch, context)
    own.add(
        "attention.decode",
        "s",
        own.time(rotate([_call(queries, k, v, None, fused=True) for k, v in pairs])),
        {
            "batch": batch,
            "context": context,
            "bytes": moved + 2 * queries.numel() * queries.element_size(),
            "flop": 2 * batch * context * heads.num_heads * (heads.head_dim + heads.value_dim),
            "rotated": copies >= copies_needed(moved, own.machine.cache_bytes),
        },
        predict=lambda steps: operator_s(steps, "attention decode", load),
    )


def _prompt(own: Bench, heads: Attention, tokens: int) -> None:
    """A prompt that attends to itself, in both forms."""
    from ..reference.counting import peak_bytes

    queries, keys, values = tensors(own, heads, 1, tokens, tokens)
    load, size = Load(0, 0, chunk=tokens), queries.element_size()
    wide = max(heads.head_dim, heads.value_dim)
    scores = heads.num_heads * standard_traffic(tokens, wide).extra_elements * size
    written = standard_traffic(tokens, wide).elements - compulsory_traffic(tokens, wide).elements
    beside = heads.num_heads * written * size
    moved = 2 * queries.numel() * size + (keys.numel() + values.numel()) * size
    flop = heads.num_heads * (heads.head_dim + heads.value_dim) * tokens * (tokens + 1)
    for name, fused, extra in (("prefill", True, 0), ("plain", False, beside)):
        call = _call(queries, keys, values, "causal", fused=fused)
        own.add(
            f"attention.{name}",
            "s",
            own.time(call),
            {"tokens": tokens, "bytes": moved + extra, "flop": flop},
            predict=lambda steps, e=extra: operator_s(steps, "attention prefill", load) + copied_s(steps, e),  # type: ignore[misc]  # mypy: defaults bind the loop
        )
        own.add(
            f"attention.{name}_peak",
            "B",
            peak_bytes(call, own.machine),
            {"tokens": tokens},
            predicted=2 * queries.numel() * size + (0 if fused else scores),  # the output, and its heads side by side
        )


def _call(queries: Any, keys: Any, values: Any, mask: Any, *, fused: bool) -> Callable[[], Any]:
    import torch

    from ..reference.attention import attend

    def call() -> Any:
        with torch.inference_mode():
            return attend(queries, keys, values, mask, fused=fused)

    return call
