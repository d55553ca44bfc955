"""A prompt in one pass against its length: products of many rows, and attention that grows with the square (formulas F2.5, F2.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...planner.costs import Load
from .bench import bench

if TYPE_CHECKING:
    from ...models.spec import ModelSpec
    from ..machine import Machine
    from ..records import Record
    from ..timing import Limits

LENGTHS = (32, 128, 512, 1024, 2048)
QUICK_LENGTHS = (32, 256)


def run(
    machine: Machine, model: ModelSpec | None, limits: Limits, *, lengths: tuple[int, ...] | None = None, **options: Any
) -> list[Record]:
    """Time prompts: records ``prefill.prompt`` in seconds.

    Parameters
    ----------
    lengths : tokens of the prompts
    options : of :func:`~roofplan.measure.experiments.bench.bench`
    """
    own = bench(machine, model, limits, **options)
    begun = len(own.records)
    built = own.model()
    for length in lengths or (QUICK_LENGTHS if own.quick else LENGTHS):
        with own.within_memory(f"a prompt of {length} tokens"):
            tokens, cache = built.tokens(1, length), built.cache(1, length)

            def prompt(tokens: Any = tokens, cache: Any = cache) -> Any:
                cache.length = 0
                return built(tokens, cache)

            own.add(
                "prefill.prompt",
                "s",
                own.time(prompt),
                {"prompt": length} | own.amounts(Load(0, 0, chunk=length)),
                predict=lambda steps, n=length: steps.step_s(0, 0, chunk=n),  # type: ignore[misc]  # mypy: defaults bind the loop
            )
    return own.records[begun:]
