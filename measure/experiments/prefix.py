"""A prompt whose beginning is in the cache already, against the whole prompt (formulas F9.1, F9.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...planner.costs import Load
from ...planner.prefix import suffix_prefill
from .bench import bench

if TYPE_CHECKING:
    from ...models.spec import ModelSpec
    from ..machine import Machine
    from ..records import Record
    from ..timing import Limits

PROMPT, REUSED = 1024, (256, 512, 896)
QUICK_PROMPT, QUICK_REUSED = 256, (192,)


def run(
    machine: Machine,
    model: ModelSpec | None,
    limits: Limits,
    *,
    prompt: int | None = None,
    reused: tuple[int, ...] | None = None,
    **options: Any,
) -> list[Record]:
    """Time a prompt with a cached prefix: records ``prefix.whole`` and ``prefix.suffix`` (s).

    Parameters
    ----------
    prompt, reused : tokens of the prompt, and how many of them are cached
    options : of :func:`~roofplan.measure.experiments.bench.bench`
    """
    own = bench(machine, model, limits, **options)
    begun = len(own.records)
    built = own.model()
    length = prompt or (QUICK_PROMPT if own.quick else PROMPT)
    tokens, cache = built.tokens(1, length), built.cache(1, length, rings=False)

    def compute(cached: int) -> Any:
        cache.length = cached
        return built(tokens[:, cached:], cache)

    own.add(
        "prefix.whole",
        "s",
        own.time(lambda: compute(0)),
        {"prompt": length} | own.amounts(Load(0, 0, chunk=length)),
        predict=lambda steps: steps.step_s(0, 0, chunk=length),
    )
    for held in reused or (QUICK_REUSED if own.quick else REUSED):
        own.add(
            "prefix.suffix",
            "s",
            own.time(lambda h=held: compute(h)),  # type: ignore[misc]  # mypy: defaults bind the loop
            {"prompt": length, "reused": held} | own.amounts(Load(0, 0, chunk=length - held, past=held)),
            predict=lambda steps, h=held: suffix_prefill(steps, length, h).suffix_s,  # type: ignore[misc]  # mypy: defaults bind the loop
        )
    return own.records[begun:]
