"""Golden values of formulas F3.1 to F3.6 and F3.8, the issue's figures, and properties."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, GIB, M7, M7_ONE_HEAD, M8, M70, number_format

import roofplan
from roofplan import models
from roofplan.engines.profile import Entries
from roofplan.models.spec import Attention, LayerGroup
from roofplan.planner import kv_cache
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.parallel import Layout

BF16 = number_format("bf16")
ALL_MODELS = models.CATALOGUE.slugs()


@pytest.mark.parametrize(
    ("model", "growth"), [(M7, 524288), (M8, 131072), (M70, 327680), (M7_ONE_HEAD, 16384), (DS, 70272)]
)
def test_growth_per_token(model: models.ModelSpec, growth: int) -> None:  # F3.1, F3.2
    assert cache_layout(model, BF16).bytes_per_token == growth


@pytest.mark.parametrize(
    ("model", "tokens", "size"),
    [(M7, 4096, 2147483648), (M7, 16 * 4096, 34359738368), (M8, 131072, 17179869184), (M70, 8192, 2684354560)],
)
def test_bytes_of_a_sequence(model: models.ModelSpec, tokens: int, size: int) -> None:  # F3.1
    assert cache_layout(model, BF16).bytes_per_sequence(tokens) == size


def test_expanded_latents_would_take_71_times_as_much() -> None:  # F3.2, bug cases 4 and 5
    latent = cache_layout(DS, BF16)
    assert latent.bytes_per_token == 61 * (512 + 64) * 2
    assert 61 * 128 * (192 + 128) * 2 == 4997120
    assert cache_layout(DS, number_format("fp8")).bytes_per_token == 35136
    assert latent.bytes_per_sequence(163840) / GIB == approx(10.72, abs=0.005)


def interleaved(local: int, window: int, full: int, kv_heads: int) -> models.ModelSpec:
    full_attention = Attention(kind="full", num_heads=kv_heads, num_kv_heads=kv_heads, head_dim=128)
    sliding = dataclasses.replace(full_attention, kind="sliding", window=window)
    groups = tuple(
        LayerGroup(count=count, attention=(mixer,))
        for count, mixer in ((local, sliding), (full, full_attention))
        if count
    )
    return dataclasses.replace(M7, layers=groups)


def test_sliding_layers_keep_their_window_only() -> None:  # F3.3, bug case 8
    cache = cache_layout(interleaved(52, 1024, 10, 16), BF16)
    assert cache.bytes_per_sequence(131072) == 11173625856
    assert cache.bytes_per_sequence(131072) / (62 * 2 * 16 * 128 * 2 * 131072) == approx(0.16784274193548387, rel=1e-12)
    assert cache.bytes_per_token == 10 * 8192
    windowed = cache_layout(interleaved(32, 4096, 0, 8), BF16)
    assert [windowed.bytes_per_sequence(tokens) for tokens in (4096, 8192, 10**6)] == [536870912] * 3
    assert windowed.bytes_per_token == 0


def test_chunked_local_attention() -> None:  # F3.4
    live = [kv_cache.chunk_live_tokens(position, 8192) for position in range(3 * 8192)]
    assert live[0] == 1
    assert max(live) == 8192
    assert sum(live) / len(live) == (8192 + 1) / 2


def test_shared_caches_are_stored_once_and_read_by_all() -> None:  # F3.5
    own = Attention(kind="full", num_heads=8, num_kv_heads=8, head_dim=128)
    shared = dataclasses.replace(own, cache="shared", projections="none")
    model = dataclasses.replace(
        M7, layers=(LayerGroup(count=3, attention=(own,)), LayerGroup(count=2, attention=(shared,)))
    )
    cache = cache_layout(model, BF16)
    assert cache.bytes_per_token == 3 * 2 * 8 * 128 * 2
    read = sum(term.layers * term.entries(100) * term.elements for term in cache.terms)
    assert read == 5 * 100 * 2 * 8 * 128


def test_eviction_and_sinks() -> None:  # F3.6
    live = kv_cache.evicted_live_tokens(4096, 0.2)
    assert live == 819
    assert cache_layout(M7, BF16).bytes_per_sequence(live) == 429391872
    assert kv_cache.sink_live_tokens(10**6, 4, 1020) == 1024
    assert cache_layout(M7, BF16).bytes_per_sequence(1024) == 536870912


@pytest.mark.parametrize(("tp", "per_rank"), [(8, 40960), (16, 40960), (4, 81920)])
def test_heads_are_divided_down_to_one_per_rank(tp: int, per_rank: int) -> None:  # F3.8
    assert cache_layout(M70, BF16, Layout(tp=tp)).bytes_per_token == per_rank


def test_latents_are_replicated_on_every_rank() -> None:  # F3.8, bug case 22
    assert cache_layout(DS, BF16, Layout(tp=8)).bytes_per_token == 70272
    assert roofplan.kv("deepseek-v3", tp=8).to_dict()["result"]["kv"]["bytes_per_token_all_ranks"] == 562176


@pytest.mark.parametrize(
    ("kv", "per_token"), [("bf16", 131072), ("fp8", 65536), ("int8", 65536), ("int8-g128", 67584), ("int4-g32", 37888)]
)
def test_quantised_caches_count_their_scales(
    kv: str, per_token: int
) -> None:  # F3.7 where the format is in this catalogue
    assert cache_layout(M8, number_format(kv)).bytes_per_token == per_token


def test_the_issues_models() -> None:
    growth = {
        "llama-2-7b": 524288,
        "llama-3.1-8b": 131072,
        "llama-3-70b": 327680,
        "deepseek-v3": 70272,
        "qwen3-32b": 262144,  # bug case 1: not 163840, which hidden / heads would give
        "qwen3-0.6b": 114688,
        "mistral-7b-v0.1": 0,
        "qwen3-next-80b-a3b": 24576,
    }
    for name, size in growth.items():
        assert roofplan.kv(name).whole.bytes_per_token == size
    assert roofplan.kv("gemma-3-27b").whole.bytes_per_sequence(32768) / GIB == approx(2.906, abs=5e-4)
    assert roofplan.kv("gpt-oss-120b").whole.bytes_per_sequence(8192) / GIB == approx(0.286, abs=5e-4)


def test_bug_cases_of_group_a() -> None:
    assert roofplan.kv("qwen3-0.6b").whole.bytes_per_sequence(40960) / GIB == 4.375  # case 1
    assert roofplan.kv("gemma-3-27b").whole.bytes_per_sequence(131072) / GIB == approx(10.406, abs=5e-4)  # case 8
    oss = roofplan.kv("gpt-oss-120b").whole
    assert (oss.bytes_per_sequence(1), oss.bytes_per_sequence(131072), oss.bytes_per_token) == (
        73728,
        4836556800,
        36864,
    )  # case 11
    assert roofplan.kv("gpt2").whole.bytes_per_sequence(8192) == 301989888  # case 17
    assert roofplan.kv("llama-3.1-8b").whole.bytes_per_sequence(16000) / GIB == approx(
        1.953, abs=5e-4
    )  # case 19: 16k is 16,000


def test_fixed_states_and_windows_match_the_reference() -> None:
    """Fixed state and caps as noted in model_reference.csv (copied facts)."""
    fixed = {"qwen3-next-80b-a3b": 77266944, "nemotron-3-super-120b-a12b": 170229760}
    for name, size in fixed.items():
        assert roofplan.kv(name).whole.fixed_bytes == size
    caps = {
        "mistral-7b-v0.1": 536870912,
        "gemma-3-27b": 436207616,
        "gpt-oss-120b": 4718592,
        "llama-4-scout": 1207959552,
        "gemma-4-e2b": 6291456,
        "deepseek-v4-flash": 5636096,
    }
    for name, cap in caps.items():
        cache, tokens = roofplan.kv(name).whole, 2**17
        assert cache.bytes_per_sequence(tokens) - cache.bytes_per_token * tokens == cap


@pytest.mark.parametrize(
    ("name", "layers", "matrices", "inputs", "bits"),
    [
        ("qwen3.5-9b", 24, 32 * 128 * 128, 8192 * 3, {32: 32, 16: 32}),  # its configuration states float32
        ("qwen3-next-80b-a3b", 36, 32 * 128 * 128, 8192 * 3, {32: 32, 16: 16}),  # states none
        ("lfm2-1.2b", 10, 0, 2048 * 2, {32: 0, 16: 0}),  # has no matrices
    ],
)
def test_an_engine_decides_on_the_bits_of_a_state_where_the_model_states_none(
    name: str, layers: int, matrices: int, inputs: int, bits: dict[int, int]
) -> None:
    for unstated, used in bits.items():
        cache = cache_layout(_LOADED[name], BF16, entries=Entries(state_bits=unstated))
        assert cache.state_bytes == layers * (matrices * used // 8 + inputs * 2)
    assert cache_layout(_LOADED[name], BF16).state_bytes == layers * (matrices * bits[32] // 8 + inputs * 2)


@pytest.mark.parametrize("name", ALL_MODELS)
@given(tokens=st.integers(0, 2**20), more=st.integers(1, 2**16), tp=st.sampled_from([1, 2, 4, 8, 16]))
def test_cache_bytes_never_fall_with_length_and_are_conserved_by_terms(
    name: str, tokens: int, more: int, tp: int
) -> None:
    cache = cache_layout(_LOADED[name], BF16, Layout(tp=tp))
    size = cache.bytes_per_sequence(tokens)
    assert 0 <= size <= cache.bytes_per_sequence(tokens + more)
    assert cache.state_bytes + sum(part for _, part in cache.by_term(tokens)) == size
    assert size >= cache.fixed_bytes


_LOADED = {name: models.load(name) for name in ALL_MODELS}
