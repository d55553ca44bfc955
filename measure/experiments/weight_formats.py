"""Weights in fewer bits: what they take, how long a decode step is, and how far the output moves from that in 32 bits.

The output's distance is the mean of KL(p || p') over the tokens of a random text, in nats, p from the same weights in 32 bits. Random
weights are harder on a format than trained ones are in one way (no structure) and easier in another (no outliers): the order of formats is
to be read, not the figures. Formulas F4.2 for bytes, F6.2 for the step.

The predicted step is that of the model's own type with the bytes that unpacking moves beside, which are counted; ``fused_s`` among the
parameters is what a kernel would take that unpacks as it multiplies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import engines
from ...errors import DomainError
from ...planner.costs import Load
from .bench import Bench, bench, copied_s

if TYPE_CHECKING:
    from ...models.spec import ModelSpec
    from ..machine import Machine
    from ..records import Record
    from ..reference.linear import WeightFormat
    from ..reference.model import Reference
    from ..timing import Limits

CONTEXT, BATCH = 256, 1
TEXT, QUICK_TEXT = 64, 16
QUICK_FORMATS: tuple[WeightFormat, ...] = ("int8-channel", "int4-g128", "nf4")


def run(
    machine: Machine,
    model: ModelSpec | None,
    limits: Limits,
    *,
    formats: tuple[WeightFormat, ...] | None = None,
    text: int | None = None,
    **options: Any,
) -> list[Record]:
    """Compare formats: records ``weight_formats.bytes`` (B), ``weight_formats.step`` (s) and ``weight_formats.divergence`` (1).

    Parameters
    ----------
    formats : of the layers' matrices; head and tables stay in the model's type
    text : tokens over which the distance is taken
    options : of :func:`~roofplan.measure.experiments.bench.bench`
    """
    from ..reference.linear import WEIGHT_FORMATS

    own = bench(machine, model, limits, **options)
    begun = len(own.records)
    length = text or (QUICK_TEXT if own.quick else TEXT)
    exact, small = None, 0
    for dtype in dict.fromkeys(("fp32", "bf16", own.dtype)):
        plain = own.of(own.spec, dtype)
        built = plain.model()
        logits = _logits(built, length)
        exact = logits if exact is None else exact
        _add(plain, built, dtype, "", _divergence(exact, logits), sum(m.matrix_bytes for m in built.stored))
        small = small if dtype != own.dtype else _small_bytes(built)
        del built
    for name in formats or (QUICK_FORMATS if own.quick else WEIGHT_FORMATS):
        built = own.model()
        try:
            built.store(name)
        except DomainError as error:
            own.say(f"weight_formats: {name} left out: {error}")
            continue
        divergence, counted = _divergence(exact, _logits(built, length)), _counted(built, name)
        _add(own, built, name, name, divergence, counted, unpacked=_small_bytes(built) - small)
        del built
    return own.records[begun:]


def _counted(built: Reference, name: WeightFormat) -> int:
    """Bytes as the planner's formats count them, matrix by matrix; the list of outlier columns beside."""
    from ..reference.linear import format_of, outlier_columns

    return sum(
        format_of(name, m.inputs, engines.load_format).bytes_of(m.inputs * m.outputs)
        + (4 * outlier_columns(m.inputs) if name == "llm-int8" else 0)
        for m in built.stored
    )


def _small_bytes(built: Reference) -> int:
    """Bytes that the small operations of a step read and write; those of unpacking among them."""
    from ..reference.counting import count_launches

    cache = built.cache(BATCH, 2)
    token = built.tokens(BATCH, 1)
    return count_launches(lambda: built(token, cache)).small_bytes


def _add(
    own: Bench, built: Reference, shown: str, weights: str, divergence: float, counted: int, unpacked: int = 0
) -> None:
    """The records of one format; ``unpacked`` bytes are moved for multiplying matrices out in a step."""
    parts = {"format": shown, "batch": BATCH, "context": CONTEXT}
    own.add("weight_formats.bytes", "B", sum(m.matrix_bytes for m in built.stored), parts, predicted=counted)
    step, cache = own.decode(built, BATCH, CONTEXT)
    read = built.matrix_bytes + cache.bytes
    fused = own.step_models(weights)[1] if weights else None
    least = {"fused_s": float(fused.step_s(BATCH, CONTEXT))} if fused is not None else {}
    measured = own.time(step, read)
    read += built.touched_expert_bytes
    own.add(
        "weight_formats.step",
        "s",
        measured,
        parts | own.amounts(Load(BATCH, CONTEXT), weights) | {"bytes": read, "unpacked_bytes": unpacked} | least,
        predict=lambda steps: steps.step_s(BATCH, CONTEXT) + copied_s(steps, unpacked),
    )
    own.add("weight_formats.divergence", "1", divergence, parts)


def _logits(built: Reference, length: int) -> Any:
    """Logits of all tokens of a random text, in 64 bits (on the host: not every device has them)."""
    return built(built.tokens(1, length), every=True)[0].cpu().double()


def _divergence(exact: Any, other: Any) -> float:
    """Mean of KL(p || p') over the tokens, never below zero."""
    p, q = exact.log_softmax(-1), other.log_softmax(-1)
    return max(0.0, float((p.exp() * (p - q)).sum(-1).mean()))
