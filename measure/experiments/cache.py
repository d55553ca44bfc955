"""With a cache and without one: the time of a token by its position, of a whole generation, and the memory that the cache takes.

Sources: formulas F17, F3.1 to F3.3. That both ways give the same tokens, the tests of the reference transformer check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import engines
from ...planner.costs import Load
from ...planner.kv_cache import cache_layout
from ...planner.without_cache import generation_s, token_passes
from .bench import Bench, bench

if TYPE_CHECKING:
    from ...models.spec import ModelSpec
    from ..machine import Machine
    from ..records import Record
    from ..reference.caches import Cache
    from ..reference.model import Reference
    from ..timing import Limits

POSITIONS = (32, 128, 256, 512, 1024)
QUICK_POSITIONS = (32, 256)
GENERATION = (32, 32)  # prompt, output
QUICK_GENERATION = (16, 8)


def run(
    machine: Machine,
    model: ModelSpec | None,
    limits: Limits,
    *,
    positions: tuple[int, ...] | None = None,
    generation: tuple[int, int] | None = None,
    **options: Any,
) -> list[Record]:
    """Time a token with and without a cache.

    Records ``cache.token_with`` and ``cache.token_without`` (s) of the n-th token of a sequence, ``cache.bytes`` (B) of a cache for n
    tokens, ``cache.peak_with`` and ``cache.peak_without`` (B) of what a pass holds beside it and the weights, and ``cache.generation_with``
    and ``cache.generation_without`` (s) of a whole generation.

    Parameters
    ----------
    positions : n, tokens of the sequence with the new one
    generation : tokens of the prompt and of the output
    options : of :func:`~roofplan.measure.experiments.bench.bench`
    """
    own = bench(machine, model, limits, **options)
    begun = len(own.records)
    built = own.model()
    layout = cache_layout(own.spec, engines.load_format(own.dtype))
    for position in positions or (QUICK_POSITIONS if own.quick else POSITIONS):
        step, cache = own.decode(built, 1, position)
        own.add(
            "cache.token_with",
            "s",
            own.time(step, built.matrix_bytes + cache.bytes),
            {"position": position} | own.amounts(Load(1, position)),
            predict=lambda steps, n=position: steps.step_s(1, n),  # type: ignore[misc]  # mypy: defaults bind the loop
        )
        whole = built.tokens(1, position)
        own.add(
            "cache.token_without",
            "s",
            own.time(lambda tokens=whole: built(tokens)),  # type: ignore[misc]  # mypy: defaults bind the loop
            {"position": position} | own.amounts(Load(0, 0, chunk=position)),
            predict=lambda steps, n=position: steps.step_s(0, 0, chunk=n),  # type: ignore[misc]  # mypy: defaults bind the loop
        )
        own.add("cache.bytes", "B", cache.bytes, {"position": position}, predicted=layout.bytes_per_sequence(position))
        _add_peaks(own, built, cache, whole)
    prompt, output = generation or (QUICK_GENERATION if own.quick else GENERATION)
    tokens = built.tokens(1, prompt)
    for cached, name in ((True, "with"), (False, "without")):
        passes = token_passes(prompt, output)
        own.add(
            f"cache.generation_{name}",
            "s",
            own.time(lambda c=cached: built.generate(tokens, output, cached=c)),  # type: ignore[misc]  # mypy: defaults bind the loop
            {"prompt": prompt, "output": output, "token_passes": passes.with_cache if cached else passes.without_cache},
            predict=lambda steps, c=cached: _chosen(generation_s(steps, prompt, output), cached=c),  # type: ignore[misc]  # mypy: defaults bind the loop
        )
    return own.records[begun:]


def _add_peaks(own: Bench, built: Reference, cache: Cache, whole: Any) -> None:
    """What a pass holds beside weights and cache: of the last token alone, and of all tokens."""
    from ..reference.counting import peak_bytes

    position = whole.shape[1]

    def last() -> None:
        cache.length = position - 1
        built(whole[:, -1:], cache)

    for name, call in (("with", last), ("without", lambda: built(whole))):
        own.add(f"cache.peak_{name}", "B", peak_bytes(call, own.machine), {"position": position})


def _chosen(saving: Any, *, cached: bool) -> float:
    return float(saving.with_cache if cached else saving.without_cache)
