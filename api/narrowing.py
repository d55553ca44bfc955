"""Narrower formats than those of a deployment, which its device computes and its engine stores: what quantisation may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import engines
from ..errors import RoofplanError
from ..planner.formats import main_class
from .building import deployment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engines.spec import NumberFormat
    from ..planner.deployment import Deployment
    from ..planner.formats import Formats
    from .options import Options

# Formats that engines serve, the mildest first; the arithmetic that the device must have for each, and that with which another is better.
_WEIGHTS: tuple[tuple[str, str | None, str | None], ...] = (
    ("fp8", "fp8", None),
    ("int8", None, "fp8"),
    ("nvfp4", "fp4", None),
    ("int4-g128", None, None),
)
GGUF_WEIGHTS: tuple[tuple[str, str | None, str | None], ...] = (("q8_0", None, None), ("q4_k_m", None, None))
_KV: tuple[tuple[str, str | None], ...] = (("fp8", None), ("nvfp4", "fp4"))
_GGUF_KV: tuple[tuple[str, str | None], ...] = (("q8_0", None), ("q4_0", None))
_NARROWER = 0.9  # share of the bits up to which a format is worth a look: other scales alone are not


def narrower_weights(d: Deployment, options: Options) -> Iterator[Formats]:
    """Weight formats with fewer bits than those in use, the mildest first, of which the device has the arithmetic."""
    rate = d.hardware.peak.rate
    for name, needed, better_with in GGUF_WEIGHTS if d.streams is not None else _WEIGHTS:
        if (needed and rate(needed) is None) or (better_with and rate(better_with) is not None):
            continue
        formats = if_narrower(d, {**options, "weights": name})
        if formats is not None:
            yield formats


def if_narrower(d: Deployment, options: Options) -> Formats | None:
    """The formats of other options for the same model and device; None where its weights have no fewer bits, or there are no such ones."""
    kind = main_class(d.model)
    try:
        formats = deployment(d.model, d.hardware, **options).formats
    except RoofplanError:  # a mixture of types that has no rules for this model
        return None
    return (
        formats
        if formats.weights[kind].bits_per_element < _NARROWER * d.formats.weights[kind].bits_per_element
        else None
    )


def narrower_kv(d: Deployment) -> Iterator[NumberFormat]:
    """Cache formats with fewer bits than the one in use, the mildest first."""
    for name, arithmetic in _GGUF_KV if d.streams is not None else _KV:
        if arithmetic is None or d.hardware.peak.rate(arithmetic) is not None:
            kv = engines.load_format(name)
            if kv.bits_per_element < _NARROWER * d.formats.kv.bits_per_element:
                yield kv
