"""Layouts in which ranks divide the tokens of each sequence: work, cache and exchanges of one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, HH, M8, M70, deploy

from roofplan import engines, hardware, models
from roofplan.engines.profiles import load as load_engine
from roofplan.errors import LayoutError
from roofplan.hardware.spec import Link
from roofplan.planner.costs import Load
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.memory import engine_cache, plan_capacity, plan_memory, rank_cache
from roofplan.planner.parallel import Layout, check_layout
from roofplan.planner.step import StepModel

EXACT = 1e-12
NVLINK = Link(name="NVLink", per_direction=450e9, topology="switch", domain=64)
LINKED = replace(HH, links=(NVLINK,))
ranks = st.sampled_from([2, 3, 4, 8, 16])


def model_of(model=M8, cp: int = 1, hw=LINKED) -> StepModel:
    return StepModel.of(deploy(model, hw, layout=Layout(cp=cp)))


def test_a_prompt_that_eight_ranks_share() -> None:  # F12.6
    step = model_of(cp=8).step_s(0, 0, chunk=131072, grouping="whole")
    # Attention and linear layers are divided; the one row of logits and the weights that every rank reads are not.
    assert step == approx(0.8001342210432181 + 0.03340530119111111, rel=1e-4)


def test_the_ring_carries_the_prompt_once() -> None:  # F12.6
    (ring,) = [cost for cost in model_of(cp=8).costs(Load(0, 0, chunk=131072)) if cost.name == "context ring"]
    assert ring.bytes_moved == 15032385536
    assert ring.time_s == approx(0.03340530119111111, rel=EXACT)


def test_a_chunk_fetches_what_came_before_it_too() -> None:
    def sent(load: Load) -> float:
        return sum(cost.bytes_moved for cost in model_of(cp=4).costs(load) if cost.name == "context ring")

    assert sent(Load(0, 0, chunk=1000, past=3000)) == approx(sent(Load(0, 0, chunk=4000)))


@given(ranks)
def test_decoding_reads_its_part_of_the_cache_and_all_weights(cp: int) -> None:
    alone, shared = model_of(), model_of(cp=cp)
    load = Load(16, 48 * 1024)
    whole, own = alone.totals(load), shared.totals(load)
    assert own[1] == whole[1]
    assert own[2] == approx(whole[2] / cp, rel=EXACT)


def test_merging_does_not_grow_with_the_context() -> None:
    def merged(context: int) -> float:
        return sum(cost.bytes_moved for cost in model_of(cp=4).costs(Load(8, context)) if cost.name == "context merge")

    # 32 layers x 3/4 x 8 sequences x 32 heads x (128 x 2 B + 4 B)
    assert merged(1024) == merged(65536) == 32 * 0.75 * 8 * 32 * 260


@given(ranks, st.integers(1, 10**6))
def test_ranks_together_hold_a_sequence_and_at_most_an_entry_more(cp: int, tokens: int) -> None:
    for model in (M8, DS):
        whole = cache_layout(model, deploy(model, HH).formats.kv)
        rank = cache_layout(model, deploy(model, HH).formats.kv, Layout(cp=cp))
        assert whole.bytes_per_sequence(tokens) <= cp * rank.bytes_per_sequence(tokens)
        assert cp * rank.bytes_per_sequence(tokens) < whole.bytes_per_sequence(tokens + cp)


def test_windows_are_divided_too() -> None:
    gemma = models.load("gemma-3-27b")
    formats = deploy(gemma, HH).formats
    one, four = (cache_layout(gemma, formats.kv, Layout(cp=cp)) for cp in (1, 4))
    assert four.bytes_per_sequence(32768) == one.bytes_per_sequence(32768) / 4


def test_blocks_hold_as_many_tokens_on_each_rank() -> None:
    engine = load_engine("vllm@0.19")
    built = replace(deploy(M8, hardware.load("h100-sxm")), engine=engine)
    block = engine.paging.block
    one, four = (replace(built, layout=Layout(cp=cp)) for cp in (1, 4))
    assert engine_cache(four).bytes_per_sequence(1) == engine_cache(one).bytes_per_sequence(1)
    assert engine_cache(four).bytes_per_sequence(4 * block) == engine_cache(one).bytes_per_sequence(block)
    assert engine_cache(four).bytes_per_sequence(4 * block + 1) == engine_cache(one).bytes_per_sequence(block + 1)


def test_capacity_grows_with_the_ranks() -> None:
    built = deploy(M8, hardware.load("h100-sxm"), prompt=32768, output=1024)
    one, four = (replace(built, layout=Layout(cp=cp)) for cp in (1, 4))
    held = [plan_capacity(d, plan_memory(d)).kv_tokens for d in (one, four)]
    assert 4 * held[0] <= held[1] < 4.2 * held[0]  # activations of a step are divided as well


def test_latents_are_divided_where_heads_only_copy_them() -> (
    None
):  # F3.8: each tensor-parallel rank holds the whole latent
    built = deploy(DS, hardware.load("h200"))
    per_token = [
        rank_cache(replace(built, layout=layout)).bytes_per_token for layout in (Layout(), Layout(tp=8), Layout(cp=8))
    ]
    assert per_token == [70272, 70272, 70272 // 8]


def test_sparse_and_latent_attention_divide_their_pairs() -> None:
    for name in ("deepseek-v3", "deepseek-v3.2-exp", "llama-3.1-8b"):
        model = models.load(name)
        one, four = (model_of(model, cp, replace(hardware.load("h200"), links=(NVLINK,))) for cp in (1, 4))
        for load in (Load(8, 16384), Load(0, 0, chunk=4096, past=4096)):
            scores = [
                sum(cost.flop for cost in step.costs(load) if cost.name.startswith(("attention", "index")))
                for step in (one, four)
            ]
            assert scores[1] == approx(scores[0] / 4, rel=0.35 if name.startswith("deepseek") else EXACT)


def test_devices_are_counted() -> None:
    assert Layout(tp=2, pp=2, dp=2, cp=4).devices == 32
    assert str(Layout(tp=2, cp=4)) == "tp 2, cp 4"


def test_recurrent_layers_cannot_be_divided() -> None:
    with pytest.raises(LayoutError, match="--cp: got 2, want 1: tokens of the recurrent layers"):
        check_layout(models.load("qwen3-next-80b-a3b"), Layout(cp=2))


@given(ranks, st.integers(1, 64), st.integers(1, 2**17), st.integers(0, 8192))
def test_a_step_is_never_slower_than_alone_but_for_its_exchanges(cp: int, batch: int, context: int, chunk: int) -> None:
    one, shared = model_of(M70), model_of(M70, cp)
    load = Load(batch, context, chunk=chunk)
    exchanged = sum(cost.time_s for cost in shared.costs(load) if cost.name.startswith("context"))
    own = shared.step_s(batch, context, chunk=chunk)
    alone = one.step_s(batch, context, chunk=chunk)
    assert alone / cp * (1 - 1e-9) <= own <= alone + exchanged + 1e-9


def test_kernels_as_reached_know_the_exchanges() -> None:
    d = deploy(M8, hardware.load("h100-sxm"), layout=Layout(cp=4))
    d = replace(d, engine=engines.load("vllm@0.19"), kernels=hardware.kernels_of(d.hardware, 4))
    named = {cost.name: cost.time_s for cost in StepModel.reached(d).costs(Load(4, 4096, chunk=2048))}
    assert named["context ring"] > 0
    assert named["context merge"] > 0
