"""Rules that a schema cannot say: whether a model's spec agrees with itself and names its sources."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, get_args

from .. import engines
from ..engines.spec import TensorClass
from ..errors import UnknownNameError
from ..specfiles import Finding, spelled
from .spec import Attention, Moe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .spec import ModelSpec

LARGEST_HEAD_DIM = 1024  # twice the widest published head
SMALLEST_CONTEXT = 256


def lint_model(spec: ModelSpec) -> list[Finding]:
    """Apply all rules to one model."""
    return [Finding(name, spec.name, message) for name, rule in RULES.items() for message in rule(spec)]


def _source_missing(spec: ModelSpec) -> Iterator[str]:
    if not any(source.source.strip() for source in spec.sources):
        yield "sources is empty"
    yield from (f"{other.name} has no source" for other in spec.other_parameters if not other.source.strip())
    yield from (f"{part.name} has no source" for part in spec.parts if not part.source.strip())


def _shared_without_owner(spec: ModelSpec) -> Iterator[str]:
    """A layer that reads another one's cache needs one of its kind and width that keeps it."""
    mixers = [m for group in spec.layers for m in group.attention if isinstance(m, Attention)]
    owners = {(m.kind, m.window, m.num_kv_heads, m.head_dim) for m in mixers if m.cache == "own"}
    for mixer in mixers:
        key = (mixer.kind, mixer.window, mixer.num_kv_heads, mixer.head_dim)
        if mixer.cache == "shared" and key not in owners:
            yield f"a {mixer.kind} layer shares a cache of {mixer.num_kv_heads} x {mixer.head_dim} that no layer keeps"


def _window_beyond_context(spec: ModelSpec) -> Iterator[str]:
    for group in spec.layers:
        for mixer in group.attention:
            if isinstance(mixer, Attention) and mixer.window and spec.max_context and mixer.window > spec.max_context:
                yield f"a window of {mixer.window} never bites in a context of {spec.max_context}"


def _experts_idle(spec: ModelSpec) -> Iterator[str]:
    for group in spec.layers:
        for part in group.mlp:
            if isinstance(part, Moe) and part.num_experts == part.experts_per_token > 1:
                yield "every token uses every expert: is experts_per_token right?"


def _head_too_wide(spec: ModelSpec) -> Iterator[str]:
    """A head as wide as the layer is a slip: the width was not divided by the number of heads."""
    keys = ("head_dim", "v_head_dim", "qk_nope_head_dim", "qk_rope_head_dim")
    for mixer in (mixer for group in spec.layers for mixer in group.attention):
        for key in keys:
            width = getattr(mixer, key, None)
            if width and width > LARGEST_HEAD_DIM:
                yield f"{key} {width} of a {mixer.kind} layer is above {LARGEST_HEAD_DIM}"


def _context_too_short(spec: ModelSpec) -> Iterator[str]:
    if spec.max_context and spec.max_context < SMALLEST_CONTEXT:
        yield f"max_context {spec.max_context} is below {SMALLEST_CONTEXT}: is it in thousands?"


def _format_unknown(spec: ModelSpec) -> Iterator[str]:
    """Weights are named as ``--weights`` takes them: a format, or ``class=format`` pairs over one."""
    chosen = [("weights", spec.weights), *((f"weights of {known.id}", known.weights) for known in spec.ids)]
    for what, text in chosen:
        for part in text.split(",") if text is not None else ():
            kind, separator, name = (side.strip() for side in part.partition("="))
            if separator and kind not in {"all", *get_args(TensorClass)}:
                yield f"{what}: {kind} is no class of tensors"
            if not _is_format(name if separator else kind):
                yield f"{what}: {(name if separator else kind) or 'nothing'} is no number format"


def _is_format(name: str) -> bool:
    try:
        engines.load_format(name)
    except UnknownNameError:
        return False
    return True


def _names(spec: ModelSpec) -> list[str]:
    return [spelled(name) for name in (*(known.id for known in spec.ids), *spec.aliases)]


def _alias_repeated(spec: ModelSpec) -> Iterator[str]:
    names = _names(spec)
    yield from (f"{name} is named twice" for name in sorted({name for name in names if names.count(name) > 1}))


def _alias_taken(spec: ModelSpec) -> Iterator[str]:
    """A name has one owner in the catalogue."""
    owners = _owners()
    for name in dict.fromkeys(_names(spec)):
        owner = owners.get(name, spec.name)
        if owner != spec.name:
            yield f"{name} is a name of {owner}"


@functools.cache
def _owners() -> dict[str, str]:
    from . import CATALOGUE

    return CATALOGUE.names()


RULES: dict[str, Callable[[ModelSpec], Iterator[str]]] = {
    "source-missing": _source_missing,
    "shared-without-owner": _shared_without_owner,
    "window-beyond-context": _window_beyond_context,
    "experts-idle": _experts_idle,
    "head-too-wide": _head_too_wide,
    "context-too-short": _context_too_short,
    "format-unknown": _format_unknown,
    "alias-repeated": _alias_repeated,
    "alias-taken": _alias_taken,
}
