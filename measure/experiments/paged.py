"""A cache in blocks against one in one piece: the time of gathering, the same outputs, and what blocks waste (formulas F3.9, F3.10).

The gather copies every entry once more before attention reads it: it is read and written beside. A kernel made for paging spares that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import engines
from ...planner.kv_cache import cache_layout
from ...planner.paging import blocks_of, wasted_slots
from .bench import bench, copied_s, forgets

if TYPE_CHECKING:
    from ...models.spec import ModelSpec
    from ..machine import Machine
    from ..records import Record
    from ..timing import Limits

CASES = ((1, 1000), (8, 1000), (8, 250))  # sequences, tokens of each
QUICK_CASES = ((4, 500),)
BLOCK = 16


def run(
    machine: Machine,
    model: ModelSpec | None,
    limits: Limits,
    *,
    cases: tuple[tuple[int, int], ...] | None = None,
    block: int = BLOCK,
    **options: Any,
) -> list[Record]:
    """Time decode steps on both caches: records ``paged.contiguous`` and ``paged.gathered`` (s), ``paged.bytes`` (B).

    Nothing is recorded for a model whose layers keep no growing keys and values, or windows alone.

    Parameters
    ----------
    cases : pairs of sequences and tokens of each
    block : tokens of a block
    options : of :func:`~roofplan.measure.experiments.bench.bench`
    """
    own = bench(machine, model, limits, **options)
    begun = len(own.records)
    if forgets(own.spec):
        own.say(f"paged: {own.spec.name} keeps windows, latents or states, which this experiment does not page")
        return []
    built = own.model()
    per_token = cache_layout(own.spec, engines.load_format(own.dtype)).bytes_per_token
    for batch, context in cases or (QUICK_CASES if own.quick else CASES):
        for kind, name in (("contiguous", "contiguous"), ("paged", "gathered")):
            step, cache = own.decode(built, batch, context, kind=kind, block=block)
            gathered = batch * blocks_of(context, block) * block * per_token if kind == "paged" else 0
            own.add(
                f"paged.{name}",
                "s",
                own.time(step, built.matrix_bytes + cache.bytes),
                {"batch": batch, "context": context, "block": block},
                predict=lambda steps, b=batch, c=context, g=gathered: steps.step_s(b, c) + copied_s(steps, 2 * g),  # type: ignore[misc]  # mypy: defaults bind the loop
            )
        held = batch * blocks_of(context, block) * block * per_token
        waste = {"batch": batch, "context": context, "block": block, "wasted_slots": wasted_slots(context, block)}
        own.add("paged.bytes", "B", cache.bytes, waste, predicted=held)
    return own.records[begun:]
