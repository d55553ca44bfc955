"""A prompt in chunks against the whole at once: what cutting costs, and how short the longest step becomes (formulas F10.2, F10.3).

The chunks run alone. Left out: sequences that decode in the same steps, which the reference transformer does not mix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...planner.chunked import chunked_prefill
from .bench import bench

if TYPE_CHECKING:
    from ...models.spec import ModelSpec
    from ..machine import Machine
    from ..records import Record
    from ..timing import Limits

PROMPT, CHUNKS = 1024, (128, 256, 512, 1024)
QUICK_PROMPT, QUICK_CHUNKS = 256, (64, 256)


def run(
    machine: Machine,
    model: ModelSpec | None,
    limits: Limits,
    *,
    prompt: int | None = None,
    chunks: tuple[int, ...] | None = None,
    **options: Any,
) -> list[Record]:
    """Time a prompt in chunks: records ``chunked.prompt`` and ``chunked.longest_step`` (s).

    The longest step is the last one, which attends to all that is before it.

    Parameters
    ----------
    prompt, chunks : tokens of the prompt, and largest chunks to cut it into
    options : of :func:`~roofplan.measure.experiments.bench.bench`
    """
    own = bench(machine, model, limits, **options)
    begun = len(own.records)
    built = own.model()
    length = prompt or (QUICK_PROMPT if own.quick else PROMPT)
    tokens, cache = built.tokens(1, length), built.cache(1, length, rings=False)

    def compute(begin: int, chunk: int) -> None:
        cache.length = begin
        for first in range(begin, length, chunk):
            built(tokens[:, first : first + chunk], cache)

    for chunk in chunks or (QUICK_CHUNKS if own.quick else CHUNKS):
        parts = {"prompt": length, "chunk": chunk}
        last = (length - 1) // chunk * chunk
        for name, begin, figure in (("prompt", 0, "ttft_s"), ("longest_step", last, "longest_step_s")):
            own.add(
                f"chunked.{name}",
                "s",
                own.time(lambda b=begin, c=chunk: compute(b, c)),  # type: ignore[misc]  # mypy: defaults bind the loop
                parts,
                predict=lambda steps, c=chunk, f=figure: getattr(chunked_prefill(steps, length, [c])[0], f),  # type: ignore[misc]  # mypy: defaults bind the loop
            )
    return own.records[begun:]
