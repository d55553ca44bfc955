"""A drawing of speculation: how many drafts pay at which acceptance, and up to which batch and from which context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...quantities import show_count
from .. import domain
from ..acceptance import expected_tokens
from ..speculative import best_drafts, speedup
from ..speculative_steps import verify_ratio
from ..step import StepModel
from .drawing import Mark, Panel, PresetResult, Scale, curve, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..deployment import Deployment
    from ..step import Grouping

_NO_GAIN = "no gain"


def speculation(
    d: Deployment,
    acceptances: Sequence[float],
    draft_cost: float,
    drafts: int,
    contexts: Sequence[int],
    most: int,
    *,
    grouping: Grouping = "parts",
) -> PresetResult:
    """Speed-up over the drafts of a round at several acceptances, and over the batch at several contexts (F11.5, F11.6).

    Parameters
    ----------
    d : the target, whose verification is timed
    acceptances : independent ones; the batch is looked at with the first of them
    draft_cost : of a draft, in plain steps of the target
    drafts : of a round, for the second panel; the first goes to three times as many
    contexts : tokens of each sequence
    most : largest batch
    grouping : which bound of a step (``parts`` is the closed form)

    Raises
    ------
    DomainError : for an acceptance outside [0, 1], a negative cost, no draft, or a batch below two
    SpecError : when the device has no rate for an arithmetic type that is needed
    """
    model, alpha = StepModel.of(d), acceptances[0]
    numbers = range(3 * domain.drafts(drafts, 1) + 1)
    batches = spread(1, domain.count("concurrency", most, 2), 4)
    tokens = expected_tokens(alpha, drafts)

    def gain(batch: int, context: int) -> float:
        return speedup(tokens, drafts, draft_cost, float(verify_ratio(model, batch, drafts, context, grouping)))

    names = [f"acceptance {a:g}" for a in acceptances]
    gains = [[speedup(expected_tokens(a, k), k, draft_cost) for k in numbers] for a in acceptances]
    best = [best_drafts([a**j for j in numbers[1:]], draft_cost) for a in acceptances]
    lines = {n: f"{show_count(domain.count('context', n))} tokens each" for n in contexts}
    far = {n: gain(most, n) for n in contexts}
    says = (
        f"At acceptance {alpha:g} and a draft cost of {draft_cost:g}, {drafts} drafts give {tokens:.4g} tokens a round and"
        f" {gains[0][drafts]:.4g} times the speed; the best number is {best[0].drafts}, with {best[0].speedup:.4g}. At"
        f" {show_count(most)} sequences {drafts} drafts give "
        + " and ".join(f"{far[n]:.3g} at {show_count(n)} tokens" for n in contexts)
        + "."
    )
    level = Mark(_NO_GAIN, None, 1.0)
    return PresetResult(
        "speculation",
        f"Speculation: {d.model.name} on {d.hardware.name}",
        f"a draft costs {draft_cost:g} of a step · weights {d.formats.name}, KV {d.formats.kv.name} · nominal rates",
        says,
        (
            Panel(
                "speed-up while verification costs one step",
                Scale("drafts of a round (k)", "drafts"),
                Scale("times as fast", "times"),
                tuple(curve(name, zip(numbers, found, strict=True)) for name, found in zip(names, gains, strict=True)),
                (
                    *(
                        Mark("best number of drafts", one.drafts, one.speedup, name)
                        for name, one in zip(names, best, strict=True)
                        if one.drafts
                    ),
                    level,
                ),
            ),
            Panel(
                f"speed-up with {drafts} drafts at acceptance {alpha:g}",
                Scale("sequences (batch)", "sequences", logarithmic=True),
                Scale("times as fast", "times"),
                tuple(curve(lines[n], ((b, gain(b, n)) for b in batches)) for n in contexts),
                (level,),
            ),
        ),
        "E / (k c + v), E = (1 - alpha^(k+1)) / (1 - alpha) (F11.2, F11.5); v = t(k + 1 tokens) / t(1 token) by batch (F11.6)",
    )
