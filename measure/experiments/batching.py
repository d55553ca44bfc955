"""Static against continuous batching of the same requests on the same slots: steps, time and the share of slots that did anything.

All slots are computed in every step, whether their sequence is done or not, as in a padded batch. Prompts are taken in one by one before
the step in which they decode. Sources: formula F8.4; Yu et al. 2022 (Orca, OSDI) for iteration-level scheduling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...planner.static_batching import continuous_run, static_run
from .bench import Bench, bench, forgets
from .few import few

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...models.spec import ModelSpec
    from ...planner.static_batching import SlotRun
    from ...planner.step import StepModel
    from ..machine import Machine
    from ..records import Record
    from ..reference.model import Reference
    from ..timing import Limits

SLOTS, PROMPT = 4, 16
OUTPUTS = (3, 48, 7, 20, 60, 5, 12, 30, 4, 25, 9, 40)
QUICK_OUTPUTS = (2, 8, 3, 5, 6, 2)


@dataclass(frozen=True, slots=True)
class Served:
    """What serving all requests took.

    Parameters
    ----------
    steps : decode steps
    tokens : tokens that requests got from them
    """

    steps: int
    tokens: int


def serve(model: Reference, outputs: Sequence[int], slots: int, prompt: int, *, continuous: bool) -> Served:
    """Serve requests that wait from the start: a free slot takes the next one at once, or when the whole batch is done.

    Parameters
    ----------
    outputs : tokens that each request wants from decode steps
    prompt : tokens of each prompt
    """
    waiting = list(outputs)
    cache = model.cache(slots, prompt + max(outputs) + 1, rings=False)
    left = [0] * slots
    cache.each = [0] * slots
    tokens, text = model.tokens(slots, 1), model.tokens(1, prompt)
    steps = given = 0
    while waiting or any(left):
        if continuous or not any(left):
            for slot in range(slots):
                if not left[slot] and waiting:
                    left[slot] = waiting.pop(0)
                    model(text, cache.sequence(slot))
                    cache.each[slot] = prompt
        lengths = cache.each
        tokens = model(tokens, cache)[:, -1].argmax(-1, keepdim=True)
        steps += 1
        given += sum(1 for rest in left if rest)
        # A slot that is done goes on computing in its last place.
        cache.each = [length + 1 if rest else length for length, rest in zip(lengths, left, strict=True)]
        left = [max(0, rest - 1) for rest in left]
    return Served(steps, given)


def run(
    machine: Machine,
    model: ModelSpec | None,
    limits: Limits,
    *,
    outputs: tuple[int, ...] | None = None,
    slots: int = SLOTS,
    prompt: int = PROMPT,
    **options: Any,
) -> list[Record]:
    """Serve the same requests both ways: records ``batching.static`` and ``batching.continuous`` (s), and their ``…_steps`` (1).

    Parameters
    ----------
    outputs : tokens of the requests, in the order in which they wait
    slots, prompt : sequences that run at a time, and tokens of each prompt
    options : of :func:`~roofplan.measure.experiments.bench.bench`
    """
    own = bench(machine, model, limits, **options)
    begun = len(own.records)
    if forgets(own.spec, latents=False):
        own.say(f"batching: {own.spec.name} has states or a fixed memory, of which slots are not replaced here")
        return []
    built = own.model()
    wanted = outputs or (QUICK_OUTPUTS if own.quick else OUTPUTS)
    for name, run_of in (("static", static_run), ("continuous", continuous_run)):
        expected = run_of(wanted, slots)
        once = serve(built, wanted, slots, prompt, continuous=name == "continuous")
        parts = {
            "slots": slots,
            "requests": len(wanted),
            "prompt": prompt,
            "tokens": once.tokens,
            "utilization": once.tokens / (slots * once.steps),
        }
        _add(own, built, name, wanted, slots, prompt, expected, parts)
        own.add(f"batching.{name}_steps", "1", once.steps, parts, predicted=expected.steps)
    return own.records[begun:]


def _add(
    own: Bench,
    built: Reference,
    name: str,
    wanted: Sequence[int],
    slots: int,
    prompt: int,
    expected: SlotRun,
    parts: dict[str, Any],
) -> None:
    continuous, context = name == "continuous", prompt + sum(wanted) / len(wanted) / 2

    def predicted(steps: StepModel) -> float:
        prompts = len(wanted) * float(steps.step_s(0, 0, chunk=prompt))
        return prompts + expected.duration_s(lambda _: float(steps.step_s(slots, context)))

    own.add(
        f"batching.{name}",
        "s",
        few(own).time(lambda: serve(built, wanted, slots, prompt, continuous=continuous)),
        parts,
        predict=predicted,
    )
