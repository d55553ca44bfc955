"""Levers of number formats: fewer bytes of weights, and fewer bytes of cache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...quantities import show_bytes
from ..formats import main_class
from ..notices import main_arithmetic
from .outcomes import outcome_of
from .situation import PAYS, Lever, not_applicable, room_reason, without_given_weights
from .words import LIMITS, change, step_gain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...engines.spec import NumberFormat
    from ..deployment import Deployment
    from ..formats import Formats
    from .outcomes import Outcome
    from .situation import Situation


def weight_formats(s: Situation) -> Iterator[Lever]:
    """Narrower weights: the bytes that a step reads shrink, and prompts are faster where the device multiplies the format natively.

    The bytes are those of formula F4.2: scales counted, and what the engine leaves in 16 bits left there.
    """
    now = s.deployment.formats.weights[main_class(s.deployment.model)]
    if not s.choices.weights:
        why = f"the weights have {now.bits_per_element:g} bits: no narrower format that {s.deployment.hardware.name} computes is offered"
        yield not_applicable(s, "weights", "narrower weights", why, exact=False)
    for formats in s.choices.weights:
        yield _weights(s, formats)


def _weights(s: Situation, formats: Formats) -> Lever:
    d = s.deployment
    changed = without_given_weights(replace(d, formats=formats))
    after, kind = outcome_of(changed), main_class(d.model)
    weights, activations = formats.weights[kind], formats.activations.name
    bits = weights.bits_per_element
    asked = activations not in {weights.activations, "bf16"}  # not those that it is served with by itself
    return Lever(
        id=f"weights.{formats.name}" + (f".{activations}-activations" if asked else ""),
        title=f"weights in {formats.name}" + (f", activations in {activations}" if asked else ""),
        status="available",
        exact=False,
        before=s.outcome,
        after=after,
        reason=_reason(s, after, "fewer_weight_bytes"),
        why=f"{_share_read(s, weights=True)}; {_arithmetic(d, changed)}; {change(s.outcome, after)}",
        quality=_weight_quality(bits),
        complexity="a quantised checkpoint, or quantising at load; kernels for the format",
        memory_bytes=s.memory_of(changed) - s.memory_of(d),
        option=f"--weights {formats.name}" + (f" --activations {activations}" if asked else ""),
        figures={"bits_per_weight": bits},
        changed=changed,
    )


def kv_formats(s: Situation) -> Iterator[Lever]:
    """A narrower cache: more sequences fit, and a step reads less where the cache is what it reads (formulas F3.1, F3.7)."""
    now = s.deployment.formats.kv
    if not s.choices.kv:
        why = f"the cache has {now.bits_per_element:g} bits: no narrower format is offered"
        yield not_applicable(s, "kv", "a narrower cache", why, exact=False)
    for kv in s.choices.kv:
        yield _kv(s, kv)


def _kv(s: Situation, kv: NumberFormat) -> Lever:
    d = s.deployment
    changed = replace(d, formats=replace(d.formats, kv=kv))
    after = outcome_of(changed)
    return Lever(
        id=f"kv.{kv.name}",
        title=f"KV cache in {kv.name}",
        status="available",
        exact=False,
        before=s.outcome,
        after=after,
        reason=_reason(s, after, "fewer_cache_bytes"),
        why=f"{_share_read(s, weights=False)}; {change(s.outcome, after)}",
        quality=_cache_quality(kv.bits_per_element),
        complexity="a setting of the engine; attention kernels that read the format",
        memory_bytes=s.memory_of(changed) - s.memory_of(d),
        option=f"--kv {kv.name}",
        figures={"bits_per_entry": kv.bits_per_element},
        changed=changed,
    )


def _reason(s: Situation, after: Outcome, pays: str) -> str:
    room = room_reason(s.outcome, after)
    if room is not None:
        return room
    return pays if step_gain(s.outcome, after) >= PAYS else str(s.decode_limit)


def _share_read(s: Situation, *, weights: bool) -> str:
    share = s.weights_share if weights else 1 - s.weights_share
    read, what = (s.weights_read, "weights") if weights else (s.cache_read, "cache")
    return f"a decode step reads {show_bytes(read)} of {what}, {share:.0%} of its bytes, and is bound by {LIMITS[s.decode_limit]}"


def _arithmetic(before: Deployment, after: Deployment) -> str:
    """What the format does to prompts: by the rate at which it is multiplied."""
    old, new = main_arithmetic(before), main_arithmetic(after)
    rate, other = (before.hardware.peak.rate(name) for name in (old, new))
    if old == new or rate == other or not rate or not other:
        return f"prompts are still multiplied in {new}, so that they get no faster by it"
    return f"prompts are multiplied in {new} instead of {old}, at {other / rate:.3g} times the rate"


def _weight_quality(bits: float) -> str:
    if bits > 6:
        return "usually small at 8 bits; compare on your own tasks"
    return "some at 4 bits, more for small models and long reasoning; compare on your own tasks"


def _cache_quality(bits: float) -> str:
    if bits > 6:
        return "usually small at 8 bits; compare at your longest contexts"
    return "keys have outlier channels, so that few bits need care (KIVI); compare at your longest contexts"
