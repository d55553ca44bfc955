"""Variants of a model's attention: each a changed ModelSpec, so that bytes, FLOP and times follow as for any model.

Every function takes a model and gives the same with another shape of attention; nothing else changes. The layers that cannot be changed so
(recurrent ones, cross attention, windows where only full layers are meant) stay as they are, and a model without any that can is refused.

Sources: formulas F3.1 to F3.6; Shazeer 2019 (arXiv 1911.02150) and Ainslie et al. 2023 (arXiv 2305.13245) for heads, the DeepSeek-V2 report
(arXiv 2405.04434) for latents, Jiang et al. 2023 (arXiv 2310.06825) and the Gemma 3 report (arXiv 2503.19786) for windows, Xiao et al. 2023
(arXiv 2309.17453) for sinks, Zhang et al. 2023 (arXiv 2306.14048) for eviction, Brandon et al. 2024 (arXiv 2405.12981) for shared layers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeGuard

from ..errors import DomainError
from ..models.spec import Attention, LatentAttention
from . import domain
from .attention import receptive_field
from .parallel import divided

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..models.spec import LayerGroup, Mixer, ModelSpec

_HEADS = "a model with layers that keep keys and values of heads"
_FULL = "a model with layers of heads that attend to all tokens"


# ------------------------------------------------------------------------------------------------ heads and latents


def with_kv_heads(model: ModelSpec, count_of: Callable[[Attention], int]) -> ModelSpec:
    """The same with another number of key and value heads in each layer of attention (formula F3.1).

    Raises
    ------
    DomainError : for a number that does not divide a layer's query heads, or a model without such layers
    """

    def changed(mixer: Mixer) -> Mixer:
        if not isinstance(mixer, Attention):
            return mixer
        count = domain.count("KV heads", count_of(mixer))
        if mixer.num_heads % count:
            raise DomainError(
                "KV heads", got=count, wanted=f"a divisor of {mixer.num_heads}, the query heads of a layer"
            )
        return replace(mixer, num_kv_heads=count)

    return _with_mixers(model, changed, lambda mixer: isinstance(mixer, Attention), _HEADS)


def with_latents(model: ModelSpec, rank: int = 512, rotary: int = 64) -> ModelSpec:
    """The same with one latent of ``rank`` and one rotary key per token in the place of keys and values (MLA; formula F3.2).

    Full layers are changed, and layers with latents get these widths; windowed ones stay, since a latent layer has no window.

    Raises
    ------
    DomainError : for a width that is no whole number, a model without such layers, or one whose full layers read each other's cache or
        choose the tokens that they attend to
    """
    domain.count("latent rank", rank)
    domain.count("rotary width", rotary, 0)

    def changed(mixer: Mixer) -> Mixer:
        if isinstance(mixer, LatentAttention):
            return replace(mixer, kv_lora_rank=rank, qk_rope_head_dim=rotary)
        if not isinstance(mixer, Attention) or mixer.kind != "full":
            return mixer
        if mixer.cache == "shared" or mixer.indexer is not None:
            wanted = "a model whose full layers keep a cache of their own and attend to all of it"
            raise DomainError("model", got=model.name, wanted=wanted)
        return LatentAttention(
            kind="mla",
            num_heads=mixer.num_heads,
            kv_lora_rank=rank,
            qk_nope_head_dim=mixer.head_dim,
            qk_rope_head_dim=rotary,
            v_head_dim=mixer.value_dim,
        )

    return _with_mixers(model, changed, lambda mixer: isinstance(mixer, LatentAttention) or _is_full(mixer), _FULL)


# ------------------------------------------------------------------------------------------------ windows and eviction


def within_window(model: ModelSpec, window: int) -> ModelSpec:
    """The same with no layer of heads attending to more than the last ``window`` tokens, its own included (formula F3.3).

    Raises
    ------
    DomainError : for a window without a token, or a model without such layers
    """
    domain.count("window", window)

    def changed(mixer: Mixer) -> Mixer:
        if not isinstance(mixer, Attention):
            return mixer
        if mixer.window is not None:
            return replace(mixer, window=min(mixer.window, window))
        return _sliding(mixer, window)

    return _with_mixers(model, changed, lambda mixer: isinstance(mixer, Attention), _HEADS)


def interleaved(model: ModelSpec, local: int, full: int, window: int) -> ModelSpec:
    """The same with ``local`` windowed layers before every ``full`` ones that attend to all tokens (formula F3.3).

    The pattern runs over all layers of heads in the order in which the model lists them, and begins with windowed ones, as Gemma 3 does
    (62 layers of 5 : 1 are 52 and 10). What they were before, windowed or not, does not matter.

    Raises
    ------
    DomainError : for a number that is not a whole one of at least 1, or a model without such layers
    """
    period = domain.count("local layers", local) + domain.count("full layers", full)
    domain.count("window", window)

    def full_among(layers: int) -> int:
        return layers // period * full + max(0, layers % period - local)

    def split() -> Iterator[LayerGroup]:
        before = 0
        for group in model.layers:
            if not any(isinstance(mixer, Attention) for mixer in group.attention):
                yield group
                continue
            count = full_among(before + group.count) - full_among(before)
            before += group.count
            if group.count - count:
                yield _changed(group, lambda mixer: _sliding(mixer, window), group.count - count)
            if count:
                yield _changed(group, lambda mixer: replace(mixer, kind="full", window=None, first_tokens=0), count)

    return _of_groups(model, tuple(split()), lambda mixer: isinstance(mixer, Attention), _HEADS)


def with_first_tokens(model: ModelSpec, first: int, recent: int) -> ModelSpec:
    """The same with full layers keeping the ``first`` tokens and the last ``recent`` ones, min(L, s + w) of them (formula F3.6).

    Raises
    ------
    DomainError : without a recent token, or for a model without such layers
    """
    domain.count("first tokens", first, 0)
    domain.count("recent tokens", recent)

    def slide(mixer: Mixer) -> Mixer:
        return _sliding(mixer, recent, first) if _is_full(mixer) else mixer

    return _with_mixers(model, slide, _is_full, _FULL)


def evicting(model: ModelSpec, share: float) -> ModelSpec:
    """The same with full layers keeping a share of the tokens, heavy hitters and recent ones: floor(f L) of them (formula F3.6).

    Raises
    ------
    DomainError : for a share that is not above 0 and at most 1, or a model without such layers
    """
    if domain.probability("kept share", share) == 0:
        raise DomainError("kept share", got=share, wanted="more than 0: something must be kept")

    def evict(mixer: Mixer) -> Mixer:
        if isinstance(mixer, Attention) and mixer.kind == "full":
            return replace(mixer, kept_share=None if share == 1 else share)
        return mixer

    return _with_mixers(model, evict, _is_full, _FULL)


# ------------------------------------------------------------------------------------------------ layers


def sharing(model: ModelSpec, layers: int) -> ModelSpec:
    """The same with every ``layers`` neighbours of one kind sharing the cache of the first of them (formula F3.5).

    The others store nothing and have no key and value projections, but read the cache in every step.

    Raises
    ------
    DomainError : when there is no layer to share, for more layers than there are of any kind, or a model that has none that keep keys and
        values of heads
    """
    domain.count("layers that share", layers)

    def is_owner(mixer: Mixer) -> bool:
        return isinstance(mixer, Attention) and mixer.cache == "own"

    def read(mixer: Attention) -> Attention:
        indexer = None if mixer.indexer is None else replace(mixer.indexer, shared=True)
        return replace(mixer, cache="shared", projections="none", indexer=indexer)

    most = max((group.count for group in model.layers if any(map(is_owner, group.attention))), default=layers)
    if layers > most:
        raise DomainError("layers that share", got=layers, wanted=f"1 to {most}, the neighbours of one kind")

    def split() -> Iterator[LayerGroup]:
        for group in model.layers:
            owners = divided(group.count, layers) if any(map(is_owner, group.attention)) else group.count
            yield replace(group, count=owners)
            if group.count - owners:
                yield _changed(group, read, group.count - owners)

    return _of_groups(model, tuple(split()), is_owner, _HEADS)


def same_layers(one: ModelSpec, other: ModelSpec) -> bool:
    """Whether two models have the same layers, in whatever order and groups they are listed."""
    return _counts(one) == _counts(other)


def _counts(model: ModelSpec) -> dict[LayerGroup, int]:
    counts: dict[LayerGroup, int] = {}
    for group in model.layers:
        kind = replace(group, count=1)
        counts[kind] = counts.get(kind, 0) + group.count
    return counts


# ------------------------------------------------------------------------------------------------ reach


def reach(model: ModelSpec) -> int | None:
    """Tokens that can reach a position through all layers (formula F3.3); None where that is the whole context.

    See :func:`~roofplan.planner.attention.receptive_field`. Of a layer with several mixers the one that reaches farthest counts; a layer
    without attention, or with cross attention alone, adds nothing, and a recurrent state carries all tokens. First tokens that stay visible
    reach every position besides. Chunks count as windows, which is a bound: nothing passes from one chunk to the next within a layer.
    """
    windows: list[int | None] = []
    for group in model.layers:
        seen = [_window(mixer) for mixer in group.attention if mixer.kind != "cross"]
        if seen:
            windows += [None if None in seen else max(window for window in seen if window is not None)] * group.count
    return receptive_field(windows)


def _window(mixer: Mixer) -> int | None:
    return mixer.window if isinstance(mixer, Attention) else None


# ------------------------------------------------------------------------------------------------ parts


def _is_full(mixer: Mixer) -> TypeGuard[Attention]:
    return isinstance(mixer, Attention) and mixer.kind == "full"


def _sliding(mixer: Attention, window: int, first: int = 0) -> Attention:
    """The same attending to a window, which leaves nothing to choose or to evict."""
    return replace(mixer, kind="sliding", window=window, first_tokens=first, indexer=None, kept_share=None)


def _changed(group: LayerGroup, change_of: Callable[[Attention], Attention], count: int) -> LayerGroup:
    mixers = tuple(change_of(mixer) if isinstance(mixer, Attention) else mixer for mixer in group.attention)
    return replace(group, count=count, attention=mixers)


def _with_mixers(
    model: ModelSpec, change_of: Callable[[Mixer], Mixer], qualifies: Callable[[Mixer], bool], wanted: str
) -> ModelSpec:
    groups = tuple(replace(group, attention=tuple(map(change_of, group.attention))) for group in model.layers)
    return _of_groups(model, groups, qualifies, wanted)


def _of_groups(
    model: ModelSpec, groups: tuple[LayerGroup, ...], qualifies: Callable[[Mixer], bool], wanted: str
) -> ModelSpec:
    """The model with other layers, unless none of its own could be changed."""
    if not any(qualifies(mixer) for group in model.layers for mixer in group.attention):
        raise DomainError("model", got=model.name, wanted=wanted)
    return replace(model, layers=groups)
