"""Rules that a schema cannot say: whether a model's spec agrees with itself and names its sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..specfiles import Finding
from .spec import Attention, Moe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .spec import ModelSpec


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


def _alias_repeated(spec: ModelSpec) -> Iterator[str]:
    names = [known.id.lower() for known in spec.ids] + [alias.lower() for alias in spec.aliases]
    yield from (f"{name} is named twice" for name in sorted({name for name in names if names.count(name) > 1}))


RULES: dict[str, Callable[[ModelSpec], Iterator[str]]] = {
    "source-missing": _source_missing,
    "shared-without-owner": _shared_without_owner,
    "window-beyond-context": _window_beyond_context,
    "experts-idle": _experts_idle,
    "alias-repeated": _alias_repeated,
}
