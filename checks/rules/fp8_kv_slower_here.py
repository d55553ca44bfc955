"""A narrower cache makes decode steps longer here, and a cache of 16 bits would fit as well."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ... import engines
from ...planner.fitting import fits
from ...planner.step import StepModel
from ...quantities import show_count, show_time
from ..finding import Rule
from ..serving import batch, timed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...planner.deployment import Deployment
    from ..checked import Checked
    from ..finding import Finding

_SLOWER = 1.005  # steps that differ by less are equal
_FARTHEST = 2**20  # tokens of a context


def check(checked: Checked) -> Iterator[Finding]:
    """Compare a decode step of the workload with the cache as it is and in 16 bits."""
    d = checked.deployment
    if d.formats.kv.bits >= 16 or "concurrency" not in checked.service.options:
        return  # without a load nobody knows what a step reads
    steps, decoders, context = timed(checked), batch(checked), d.workload.mean_context
    wide = replace(d, formats=replace(d.formats, kv=engines.load_format("bf16")))
    wide_steps = StepModel.reached(wide)

    def times(tokens: float) -> tuple[float, float]:
        return float(steps.step_s(decoders, tokens)), float(wide_steps.step_s(decoders, tokens))

    narrow_s, wide_s = times(context)
    if narrow_s < _SLOWER * wide_s or not fits(wide):
        return
    pays = next((tokens for tokens in _doubled(context) if (both := times(tokens))[0] < both[1]), None)
    farther = (
        "no longer context turns that"
        if pays is None or pays > _longest(d)
        else f"the narrow one is the faster one from contexts of about {show_count(pays)} tokens on"
    )
    message = (
        f"with {show_count(decoders)} x {show_count(context)} tokens in memory a decode step takes {show_time(narrow_s)} with the cache in"
        f" {d.formats.kv.name} and {show_time(wide_s)} with 16 bits, which fit as well; {farther}"
    )
    yield RULE.finding(
        checked,
        checked.service.place_of("kv"),
        message,
        fix="kv: bf16"
        if checked.service.kind == "deployment"
        else "leave the format of the cache at its default, 16 bits",
        step_s=narrow_s,
        step_16_bit_s=wide_s,
    )


def _doubled(context: float) -> Iterator[float]:
    tokens = context
    while tokens <= _FARTHEST:
        tokens *= 2
        yield tokens


def _longest(d: Deployment) -> float:
    return d.context_limit or _FARTHEST


RULE = Rule(
    id="fp8-kv-slower-here",
    severity="note",
    title="A narrower cache is slower here",
    why=(
        "Attention that reads a narrow cache has to widen every entry, and its kernels reach less of the bandwidth on many "
        "devices. Where the cache is a small part of what a step reads, that costs more than it saves."
    ),
    fix="Keep the cache in 16 bits as long as it fits; take the narrow one for long contexts and many sequences.",
    check=check,
)
