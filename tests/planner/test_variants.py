"""Variants of attention as changed models: bytes by hand, published patterns, and properties of every model of the catalogue."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes import DS, M7, M8, M70, number_format

from roofplan import models
from roofplan.errors import DomainError
from roofplan.models.spec import Attention, Indexer, LatentAttention, LayerGroup, ModelSpec
from roofplan.planner import variants
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.parameters import count_parameters

BF16 = number_format("bf16")
LENGTH = 8192


def growth(model: ModelSpec) -> int:
    return cache_layout(model, BF16).bytes_per_token


def size(model: ModelSpec, tokens: int = LENGTH) -> int:
    return cache_layout(model, BF16).bytes_per_sequence(tokens)


def mixers(model: ModelSpec) -> list:
    return [mixer for group in model.layers for _ in range(group.count) for mixer in group.attention]


# ------------------------------------------------------------------------------------------------ one by one


@pytest.mark.parametrize(("heads", "per_token"), [(1, 16384), (2, 32768), (8, 131072), (32, 524288)])
def test_kv_heads(heads: int, per_token: int) -> None:  # F3.1
    changed = variants.with_kv_heads(M8, lambda _: heads)
    assert growth(changed) == per_token == 2 * 32 * heads * 128 * 2
    assert all(mixer.num_heads == 32 for mixer in mixers(changed))


def test_fewer_kv_heads_are_fewer_parameters() -> None:
    changed = variants.with_kv_heads(M8, lambda _: 1)
    fewer = 32 * 2 * 4096 * (8 - 1) * 128
    assert count_parameters(changed).total == 8030261248 - fewer


@pytest.mark.parametrize("heads", [3, 5, 64])
def test_kv_heads_that_do_not_divide(heads: int) -> None:
    with pytest.raises(DomainError, match="a divisor of 32, the query heads"):
        variants.with_kv_heads(M8, lambda _: heads)


def test_latents_in_the_place_of_heads() -> None:  # F3.2: 32 x 576 x 2
    changed = variants.with_latents(M8)
    assert growth(changed) == 36864
    [mixer] = changed.layers[0].attention
    assert isinstance(mixer, LatentAttention)
    assert (mixer.num_heads, mixer.qk_nope_head_dim, mixer.v_head_dim) == (32, 128, 128)
    # F2.3 without a query latent: d n_h (d_n + d_r) + d (kv_r + d_r) + kv_r + kv_r n_h (d_n + d_v) + n_h d_v d, a layer.
    layer = 4096 * 32 * 192 + 4096 * 576 + 512 + 512 * 32 * 256 + 32 * 128 * 4096
    old = 4096 * (4096 + 2 * 1024) + 4096 * 4096
    assert count_parameters(changed).total == 8030261248 + 32 * (layer - old)


def test_latents_of_other_widths() -> None:
    assert growth(variants.with_latents(DS, 256, 32)) == 61 * (256 + 32) * 2
    assert variants.with_latents(DS) == DS


def test_latents_leave_windows_alone() -> None:
    gemma = models.load("gemma-3-27b")
    assert growth(variants.with_latents(gemma)) == 10 * 576 * 2
    assert size(variants.with_latents(gemma)) == 10 * 576 * 2 * LENGTH + 52 * 2 * 16 * 128 * 2 * 1024


def test_windows() -> None:  # F3.3: 536870912 at any length from 4096 on
    changed = variants.within_window(M8, 4096)
    assert [size(changed, tokens) for tokens in (4096, 8192, 10**6)] == [536870912] * 3
    assert size(changed, 1000) == size(M8, 1000)
    assert growth(changed) == 0


def test_a_window_only_gets_narrower() -> None:
    gemma = models.load("gemma-3-27b")
    kept = {mixer.window for mixer in mixers(variants.within_window(gemma, 4096))}
    assert kept == {1024, 4096}
    assert {mixer.window for mixer in mixers(variants.within_window(gemma, 512))} == {512}


@pytest.mark.parametrize(
    ("local", "full", "layers", "windowed"),
    [(5, 1, 62, 52), (5, 1, 48, 40), (5, 1, 34, 29), (1, 1, 46, 23), (3, 1, 32, 24), (5, 1, 4, 4), (2, 2, 7, 4)],
)
def test_interleaving_counts_as_published_models_do(local: int, full: int, layers: int, windowed: int) -> None:
    """Gemma 3 of 27, 12 and 4 billion parameters, Gemma 2, and patterns counted by hand."""
    model = replace(M8, layers=(replace(M8.layers[0], count=layers),))
    found = mixers(variants.interleaved(model, local, full, 1024))
    pattern = [(place % (local + full)) < local for place in range(layers)]
    assert sum(mixer.window == 1024 for mixer in found) == windowed == sum(pattern)
    assert len(found) == layers


@pytest.mark.parametrize(("name", "window"), [("gemma-3-27b", 1024), ("gemma-3-12b", 1024), ("gemma-3-4b", 1024)])
def test_gemma_3_is_five_to_one_already(name: str, window: int) -> None:
    gemma = models.load(name)
    assert variants.same_layers(variants.interleaved(gemma, 5, 1, window), gemma)
    assert not variants.same_layers(variants.interleaved(gemma, 4, 1, window), gemma)


def test_interleaved_bytes() -> None:  # 27 windowed and 5 full layers of 4096 B a token
    changed = variants.interleaved(M8, 5, 1, 1024)
    assert growth(changed) == 5 * 4096
    assert size(changed) == 4096 * (5 * 8192 + 27 * 1024) == 281018368


def test_first_and_recent_tokens() -> None:  # F3.6
    changed = variants.with_first_tokens(M7, 4, 1020)
    assert size(changed, 4096) == 536870912
    assert size(changed, 1024) == size(M7, 1024)
    assert growth(changed) == 0


def test_eviction() -> None:  # F3.6: 819 of 4096 tokens
    changed = variants.evicting(M7, 0.2)
    assert size(changed, 4096) == 429391872
    assert growth(changed) == 524288 * 2 // 10
    assert size(variants.evicting(M7, 0.29), 100) == 29 * 524288  # 0.29 x 100 is 28.999... in binary
    assert size(changed, 1) == 524288  # the newest token is always kept
    assert variants.evicting(M7, 1) == M7


def test_shared_layers() -> None:  # F3.5
    assert growth(variants.sharing(M8, 2)) == 65536
    changed = variants.sharing(M8, 3)
    assert growth(changed) == 11 * 4096  # of 32 layers every third, the first included
    readers = sum(mixer.cache == "shared" for mixer in mixers(changed))
    assert readers == 21
    assert count_parameters(changed).total == 8030261248 - readers * 2 * 4096 * 1024
    assert variants.sharing(M8, 1) == M8
    assert growth(variants.sharing(M8, 32)) == 4096


# ------------------------------------------------------------------------------------------------ reach


def test_reach() -> None:  # F3.3: n (w - 1) + 1
    assert variants.reach(variants.within_window(M8, 4096)) == 32 * 4095 + 1 == 131041
    assert variants.reach(variants.with_first_tokens(M8, 4, 1020)) == 32 * 1019 + 1
    for whole in (M8, DS, variants.interleaved(M8, 5, 1, 1024), variants.evicting(M8, 0.2)):
        assert variants.reach(whole) is None
    assert variants.reach(models.load("codestral-mamba-7b")) is None
    assert variants.reach(replace(M8, layers=(replace(M8.layers[0], attention=()),))) == 1


# ------------------------------------------------------------------------------------------------ refused


@pytest.mark.parametrize(
    "change",
    [
        lambda model: variants.with_kv_heads(model, lambda _: 1),
        lambda model: variants.within_window(model, 1024),
        lambda model: variants.interleaved(model, 5, 1, 1024),
        lambda model: variants.with_first_tokens(model, 4, 1020),
        lambda model: variants.evicting(model, 0.2),
        lambda model: variants.sharing(model, 2),
    ],
)
def test_a_model_without_heads_that_keep_keys_is_refused(change) -> None:
    for name in ("deepseek-v3", "codestral-mamba-7b", "deepseek-v4-flash"):
        with pytest.raises(DomainError, match=f"got {name}, want a model with layers"):
            change(models.load(name))


def test_no_more_layers_share_than_there_are_of_a_kind() -> None:
    mixed = variants.interleaved(M8, 5, 1, 1024)  # 27 with windows, 5 without
    for model, most in ((M8, 32), (mixed, 27)):
        variants.sharing(model, most)
        for layers in (most + 1, 1000):
            with pytest.raises(DomainError, match=f"got {layers}, want 1 to {most}, the neighbours of one kind"):
                variants.sharing(model, layers)


def test_what_has_no_full_layers_cannot_get_latents_sinks_or_eviction() -> None:
    windowed = variants.within_window(M8, 1024)
    for change in (
        variants.with_latents,
        lambda model: variants.with_first_tokens(model, 4, 60),
        lambda model: variants.evicting(model, 0.5),
    ):
        with pytest.raises(DomainError, match="attend to all tokens"):
            change(windowed)


def test_latents_want_a_cache_of_their_own_and_no_choice() -> None:
    indexer = Indexer(num_heads=4, head_dim=128, top_k=1024)
    sparse = replace(M8.layers[0].attention[0], indexer=indexer)
    for model in (
        variants.sharing(M8, 2),
        replace(M8, layers=(LayerGroup(count=2, attention=(sparse,)),)),
    ):
        with pytest.raises(DomainError, match="keep a cache of their own and attend to all of it"):
            variants.with_latents(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda: variants.with_kv_heads(M8, lambda _: 0),
        lambda: variants.with_latents(M8, 0),
        lambda: variants.with_latents(M8, 512, -1),
        lambda: variants.within_window(M8, 0),
        lambda: variants.interleaved(M8, 0, 1, 1024),
        lambda: variants.interleaved(M8, 5, 0, 1024),
        lambda: variants.interleaved(M8, 5, 1, 0),
        lambda: variants.with_first_tokens(M8, -1, 1020),
        lambda: variants.with_first_tokens(M8, 4, 0),
        lambda: variants.evicting(M8, 0),
        lambda: variants.evicting(M8, 1.1),
        lambda: variants.evicting(M8, float("nan")),
        lambda: variants.sharing(M8, 0),
        lambda: variants.sharing(M8, 1.5),
    ],
)
def test_domains(change) -> None:
    with pytest.raises(DomainError):
        change()


@pytest.mark.parametrize(
    "fields", [{"kind": "full", "first_tokens": 4}, {"kind": "sliding", "window": 8, "kept_share": 0.5}]
)
def test_a_mixer_refuses_what_its_kind_has_not(fields: dict) -> None:
    with pytest.raises(ValueError, match="want"):
        Attention(num_heads=8, num_kv_heads=8, head_dim=64, **fields)


# ------------------------------------------------------------------------------------------------ properties

ANY = {
    "heads": lambda model: variants.with_kv_heads(model, lambda _: 1),
    "window": lambda model: variants.within_window(model, 777),
    "interleaved": lambda model: variants.interleaved(model, 3, 1, 333),
    "share": lambda model: variants.sharing(model, 3),
    "latents": lambda model: variants.with_latents(model, 64, 16),
    "first": lambda model: variants.with_first_tokens(model, 4, 60),
    "evict": lambda model: variants.evicting(model, 0.3),
}
CATALOGUE = {name: models.load(name) for name in models.CATALOGUE.slugs()}


@pytest.mark.parametrize("kind", ANY)
@given(name=st.sampled_from(sorted(CATALOGUE)), tokens=st.integers(1, 2**18), more=st.integers(1, 4096))
def test_only_layers_change_and_caches_do_not_shrink_with_length(kind: str, name: str, tokens: int, more: int) -> None:
    model = CATALOGUE[name]
    try:
        changed = ANY[kind](model)
    except DomainError:
        return  # not every model has such layers
    assert replace(changed, layers=model.layers) == model
    assert changed.num_layers == model.num_layers
    assert 0 <= size(changed, tokens) <= size(changed, tokens + more)
    if kind in {"heads", "window", "share", "first", "evict"}:
        assert size(changed, tokens) <= size(model, tokens)
    if kind in {"window", "first"} and tokens <= 64:
        assert size(changed, tokens) == size(model, tokens)


@given(
    heads=st.sampled_from([1, 2, 4, 8, 16, 32]),
    rank=st.integers(1, 1024),
    rotary=st.integers(0, 128),
    tokens=st.integers(0, 10**6),
)
def test_closed_forms_of_a_plain_model(heads: int, rank: int, rotary: int, tokens: int) -> None:  # F3.1, F3.2
    assert size(variants.with_kv_heads(M7, lambda _: heads), tokens) == 2 * 32 * heads * 128 * 2 * tokens
    assert size(variants.with_latents(M70, rank, rotary), tokens) == 80 * (rank + rotary) * 2 * tokens


@given(first=st.integers(0, 64), recent=st.integers(1, 4096), share=st.floats(0.01, 1), tokens=st.integers(1, 10**5))
def test_kept_tokens_of_a_plain_model(first: int, recent: int, share: float, tokens: int) -> None:  # F3.6
    kept = size(variants.with_first_tokens(M8, first, recent), tokens)
    assert kept == 131072 * min(tokens, first + recent)
    live, rest = divmod(size(variants.evicting(M8, share), tokens), 131072)
    assert rest == 0
    assert 1 <= live <= tokens
    assert live == 1 or abs(live - tokens * share) < 1 + 1e-6
