"""Blocks: the closed forms of F3.9 to F3.11, and the layouts of engines against the concurrency that their logs print."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import GIB

import roofplan
from roofplan import engines, models
from roofplan.engines.profile import Paging
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.memory import engine_cache
from roofplan.planner.paging import (
    PagedCache,
    blocks_of,
    copy_on_write_blocks,
    mean_wasted_slots,
    paged,
    reserved_waste,
    wasted_fraction,
    wasted_slots,
)
from roofplan.planner.parallel import Layout

BF16, FP8 = engines.load_format("bf16"), engines.load_format("fp8")


def test_blocks_and_their_ends() -> None:  # F3.9
    assert (blocks_of(1000, 16), wasted_slots(1000, 16)) == (63, 8)
    assert mean_wasted_slots(16) == 7.5
    assert wasted_fraction(180, 16) == approx(0.04)
    assert all(wasted_fraction(mean, 16) < 0.04 for mean in (181, 1000))


@given(st.integers(1, 64))
def test_the_mean_waste_is_that_of_all_residues(block: int) -> None:
    wasted = [wasted_slots(tokens, block) for tokens in range(1, block + 1)]
    assert sum(wasted) / block == mean_wasted_slots(block)


def test_a_reserved_cache_stands_mostly_empty() -> None:  # F3.10
    assert reserved_waste(500, 2048) == 0.755859375
    assert (reserved_waste(0.382, 1), reserved_waste(0.204, 1)) == approx((0.618, 0.796))


def test_samples_share_the_full_blocks_of_their_prompt() -> None:  # F3.11
    assert copy_on_write_blocks(1000, 200, 4, 16) == 114
    assert 4 * blocks_of(1200, 16) == 300


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 8), st.integers(1, 32))
def test_shared_blocks_are_those_that_a_walk_over_the_samples_counts(
    prompt: int, output: int, samples: int, block: int
) -> None:
    held = set()
    for sample in range(samples):
        for position in range(prompt + output):
            number = position // block
            full_of_prompt = (number + 1) * block <= prompt
            held.add((number, None if full_of_prompt else sample))
    assert copy_on_write_blocks(prompt, output, samples, block) == len(held)


# ------------------------------------------------------------------------------------------------ the table of hybrid models


def layout_of(model: str, engine: str, *, tp: int = 1, kv: str = "bf16", step: int = 8192) -> tuple[PagedCache, Paging]:
    profile = engines.load(engine)
    assert profile.paging is not None
    cache = cache_layout(models.load(model), engines.load_format(kv), Layout(tp=tp), profile.entries)
    return paged(cache, profile.paging, profile.paging.block, step), profile.paging


# (model, engine, tp, kv, length, groups, block, blocks of the log, concurrency of the log); engine_memory.md section 6, from logs of
# vLLM 0.19.0 on H100 (jgchn/llm-d-planner d3121e0), 0.19.0 on L40S and 0.26 for LFM2.5
LOGGED = [
    ("gemma-2-27b", "vllm@0.19", 1, "bf16", 8192, 2, 16, 7335, 7.16),
    ("gemma-3-4b", "vllm@0.19", 1, "bf16", 8192, 7, 16, 204817, 57.05),
    ("gemma-3-12b", "vllm@0.19", 1, "bf16", 8192, 6, 16, 48867, 15.88),
    ("gpt-oss-20b", "vllm@0.19", 2, "bf16", 8192, 2, 16, 323972, 316.07),
    ("llama-4-scout", "vllm@0.19", 4, "bf16", 8192, 4, 16, 91495, 44.68),
    ("qwen3.5-9b", "vllm@0.19", 1, "bf16", 262144, 4, 528, 1258, 2.52),
    ("lfm2.5-1.2b", "vllm@0.26", 1, "fp8", 32768, 3, 16, 145549, 70.93),
]


@pytest.mark.parametrize(
    ("model", "engine", "tp", "kv", "length", "groups", "block", "blocks", "concurrency"),
    LOGGED,
    ids=[row[0] for row in LOGGED],
)
def test_hybrid_models_reach_the_logged_concurrency(
    model: str, engine: str, tp: int, kv: str, length: int, groups: int, block: int, blocks: int, concurrency: float
) -> None:
    cache, _ = layout_of(model, engine, tp=tp, kv=kv)
    assert (cache.shared, cache.group_count, cache.block_tokens) == (True, groups, block)
    assert round(cache.concurrency(blocks * cache.block_bytes, length), 2) == concurrency


@pytest.mark.parametrize(
    ("model", "tp", "kv", "block"),
    [  # the same section: block sizes that logs of models with linear attention show
        ("qwen3-next-80b-a3b", 2, "bf16", 544),
        ("qwen3.5-9b", 1, "bf16", 528),
        ("qwen3.5-9b", 1, "fp8", 1056),
        ("qwen3.5-35b-a3b", 1, "bf16", 1056),
        ("qwen3.5-27b", 1, "bf16", 784),
        ("qwen3.5-27b", 1, "fp8", 1568),
    ],
)
def test_an_attention_block_is_made_as_large_as_a_state(model: str, tp: int, kv: str, block: int) -> None:
    assert layout_of(model, "vllm@0.19", tp=tp, kv=kv)[0].block_tokens == block


@pytest.mark.parametrize(("length", "tokens"), [(32768, 78433), (65536, 116025), (131072, 152592)])
def test_printed_tokens_of_a_hybrid_grow_with_the_longest_length(length: int, tokens: int) -> None:
    """Rows M159 to M161: Gemma-4-26B-A4B on vLLM 0.29.0 with 2496 batched tokens, 4.25 GiB; the log rounds the GiB."""
    cache, paging = layout_of("gemma-4-26b-a4b", "vllm@0.29", step=2496)
    assert cache.printed_tokens(round(4.25 * GIB), paging, length) == approx(tokens, rel=2e-3)


@pytest.mark.parametrize(
    ("model", "engine", "tp", "kv", "per_token"),
    [  # bytes per token and device that logs show (rows M002, M028, M109, M147 and the collection's DSA rows)
        ("deepseek-v2-lite", "vllm@0.19", 1, "bf16", 27 * 1152),
        ("llama-3.1-8b", "vllm@0.19", 4, "bf16", 32768),
        ("deepseek-v3", "vllm@0.7.3", 8, "bf16", 61 * 1280),
        ("deepseek-v3", "vllm@0.11.2", 8, "bf16", 61 * 1152),
        ("deepseek-v3", "llama.cpp@b4701", 1, "bf16", 4997120),
        ("deepseek-v3", "llama.cpp@b6000", 1, "bf16", 61 * (576 + 512) * 2),
        ("deepseek-v3", "llama.cpp@b8000", 1, "bf16", 70272),
        ("deepseek-v3.2", "vllm@0.19", 8, "fp8", 48068),  # F3.2: 656 B and an index key of 132 B
    ],
)
def test_latents_are_laid_out_as_the_engine_does(model: str, engine: str, tp: int, kv: str, per_token: int) -> None:
    cache, _ = layout_of(model, engine, tp=tp, kv=kv)
    assert cache.block_bytes == per_token * cache.block_tokens


@pytest.mark.parametrize(
    ("engine", "kept", "windowed_layers"),
    [
        ("vllm@0.8", 131072, 52),  # every layer keeps every token
        ("vllm@0.19", 577 * 16, 60),  # 1023 + 8192 tokens are 576 blocks, and one more; 52 layers in groups of 10
        ("llama.cpp", 1024 + 512, 52),
    ],
)
def test_a_window_keeps_room_for_a_step(engine: str, kept: int, windowed_layers: int) -> None:
    size = roofplan.size("gemma-3-27b", "b200", engine=engine, prompt=131000, output=72, max_num_batched_tokens=8192)
    # 16 KV heads of 128 in bf16: 8192 B a token and layer; 10 layers keep everything
    assert size.kv.bytes_per_sequence_per_device == 8192 * (10 * 131072 + windowed_layers * kept)
    assert size.kv.ideal_bytes_per_sequence_per_device == 11173625856  # F3.3


# ------------------------------------------------------------------------------------------------ properties

HYBRIDS = [
    "gemma-3-4b",
    "gpt-oss-20b",
    "qwen3.5-9b",
    "llama-4-scout",
    "lfm2.5-1.2b",
    "deepseek-v3.2",
    "deepseek-v4-flash",
    "llama-3.1-8b",
]
ENGINES = ["vllm@0.8", "vllm@0.19", "vllm", "sglang", "tensorrt-llm", "llama.cpp"]


@given(st.sampled_from(HYBRIDS), st.sampled_from(ENGINES), st.integers(1, 200_000), st.integers(1, 5000))
def test_blocks_never_hold_less_than_the_entries_and_never_shrink(
    model: str, engine: str, tokens: int, more: int
) -> None:
    size = roofplan.api.deployment(model, "b200", engine=engine)
    cache = engine_cache(size)
    profile = engines.load(engine)
    entries = cache_layout(size.model, BF16, entries=profile.entries).bytes_per_sequence(tokens)
    assert entries <= cache.bytes_per_sequence(tokens) <= cache.bytes_per_sequence(tokens + more)


@given(st.sampled_from(HYBRIDS), st.integers(0, 2**40), st.integers(0, 2**36), st.integers(1, 100_000))
def test_a_larger_budget_holds_no_less(model: str, budget: int, more: int, length: int) -> None:
    cache, paging = layout_of(model, "vllm@0.19")
    assert cache.concurrency(budget, length) <= cache.concurrency(budget + more, length)
    assert cache.printed_tokens(budget, paging, length) <= cache.printed_tokens(budget + more, paging, length)
