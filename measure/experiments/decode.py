"""A decode step of the reference transformer against batch and context: what reading weights and cache takes (formulas F6.2, F7.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...planner.costs import Load
from .bench import bench

if TYPE_CHECKING:
    from ...models.spec import ModelSpec
    from ..machine import Machine
    from ..records import Record
    from ..timing import Limits

GRID = tuple((batch, context) for context in (128, 1024) for batch in (1, 2, 4, 8, 16, 32))
QUICK_GRID = ((1, 128), (8, 128), (1, 1024), (8, 1024))


def run(
    machine: Machine,
    model: ModelSpec | None,
    limits: Limits,
    *,
    grid: tuple[tuple[int, int], ...] | None = None,
    **options: Any,
) -> list[Record]:
    """Time decode steps: records ``decode.step`` in seconds.

    Parameters
    ----------
    grid : pairs of sequences and tokens of each, the new one counted
    options : of :func:`~roofplan.measure.experiments.bench.bench`
    """
    own = bench(machine, model, limits, **options)
    begun = len(own.records)
    built = own.model()
    for batch, context in grid or (QUICK_GRID if own.quick else GRID):
        with own.within_memory(f"decode of {batch} x {context} tokens"):
            step, cache = own.decode(built, batch, context)
            read = built.matrix_bytes + cache.bytes
            measured = own.time(step, read)
            read += built.touched_expert_bytes
            own.add(
                "decode.step",
                "s",
                measured,
                {"batch": batch, "context": context, "bytes": read} | _flop(own.amounts(Load(batch, context))),
                predict=lambda steps, b=batch, c=context: steps.step_s(b, c),  # type: ignore[misc]  # mypy: defaults bind the loop
            )
            del step, cache
    return own.records[begun:]


def _flop(amounts: dict[str, float]) -> dict[str, float]:
    """The FLOP alone: bytes are counted from the tensors."""
    return {name: amount for name, amount in amounts.items() if name == "flop"}
