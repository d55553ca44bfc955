"""FlashAttention and shapes of attention against formulas F3 and F15."""

from dataclasses import replace

import pytest
from levers import levers, levers_of, without_overhead
from pytest import approx
from shapes import DS, HA, HH, M7, M7_ONE_HEAD, M8, M70, deploy, device

from roofplan.models.spec import Attention
from roofplan.planner.attention import compulsory_traffic, standard_traffic
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.levers.attention import query_heads, with_kv_heads, with_latents, with_windows, without_latents
from roofplan.planner.parallel import Layout
from roofplan.planner.parameters import count_parameters

BF16_GROWTH = {"m7": 524288, "m8": 131072}


def growth(model) -> int:
    return cache_layout(model, deploy(model, HH).formats.kv).bytes_per_token


def test_written_scores_move_what_standard_attention_moves_beyond_q_k_v_and_o() -> None:
    """Formula F15.1: 4 N^2 elements of a head beyond the compulsory 4 N d, here of 32 heads in 32 layers."""
    d = without_overhead(deploy(M7, HA, prompt=4096, output=2))
    lever = levers_of(d)["flash_attention"]
    one = standard_traffic(4096, 128).elements - compulsory_traffic(4096, 128).elements
    assert lever.figures["score_traffic_bytes"] == 32 * 32 * 2 * one
    assert lever.before.ttft_s - lever.after.ttft_s == approx(32 * 32 * 2 * one / 2.0e12, rel=0.01)
    assert lever.figures["score_matrix_bytes"] == 32 * 2 * standard_traffic(4096, 128).extra_elements
    assert (lever.status, lever.exact, lever.reason) == ("in_use", True, "scores_stay_on_the_chip")


def test_ranks_write_the_scores_of_their_own_heads() -> None:
    one, four = (
        levers(M70, device("large", 1e15, 3e12, capacity=2 * 10**11), layout=Layout(tp=tp), prompt=2048, output=2)
        for tp in (1, 4)
    )
    key = "score_traffic_bytes"
    assert one["flash_attention"].figures[key] == 4 * four["flash_attention"].figures[key]


def test_scores_of_a_long_prompt_leave_no_room_for_a_cache() -> None:
    d = deploy(M8, HH, prompt=100_000, output=64)
    whole = replace(d, settings=replace(d.settings, max_batched_tokens=100_000))
    lever = levers_of(whole)["flash_attention"]
    assert lever.before.max_concurrency == 0
    assert (lever.reason, lever.no_gain_because("ttft")) == ("makes_it_fit", "makes_it_fit")


def test_query_heads_are_counted_over_layers() -> None:
    assert (query_heads(M7), query_heads(DS), query_heads(DS, per_layer=True)) == (32 * 32, 61 * 128, 128)


# ------------------------------------------------------------------------------------------------ shapes


def test_one_head_keeps_a_thirty_second_of_the_cache() -> None:
    lever = levers(M7, HH, prompt=4000, output=96)["mqa"]
    assert (growth(M7), growth(M7_ONE_HEAD)) == (524288, 16384)
    assert lever.figures["cache_bytes_without"] == 32 * lever.figures["cache_bytes_with"]
    fewer = 32 * 2 * 4096 * (4096 - 128)  # parameters of the projections that fall away
    assert count_parameters(lever.changed.model).total == 6738415616 - fewer
    assert lever.before.max_concurrency == (72 * 10**9 - 2 * 6738415616) // (524288 * 4096)
    assert lever.after.max_concurrency == (72 * 10**9 - 2 * (6738415616 - fewer)) // (16384 * 4096)
    assert (lever.status, lever.exact, lever.reason) == ("training", False, "fewer_cache_bytes")
    assert "trained" in lever.why


def test_groups_in_use_are_compared_with_a_head_for_each_query() -> None:
    lever = levers(M8, HH, prompt=1000, output=24, concurrency=4)["gqa"]
    assert lever.status == "in_use"
    assert lever.figures["cache_bytes_without"] == 4 * lever.figures["cache_bytes_with"]
    mixers = [mixer for layer in lever.changed.model.layers for mixer in layer.attention]
    assert all(mixer.num_kv_heads == mixer.num_heads == 32 for mixer in mixers)


def test_ranks_that_keep_a_head_each_gain_nothing_of_one_head() -> None:
    lever = levers(M8, HH, layout=Layout(tp=8), prompt=1000, output=24)["mqa"]
    assert lever.reason == "ranks_hold_copies"
    assert "each of 8 ranks keeps a whole entry" in lever.why
    assert lever.gains.capacity == approx(1, abs=0.01)


def test_latents_of_512_and_64_keep_1152_bytes_a_layer() -> None:
    model = with_latents(M7)
    assert growth(model) == 32 * (512 + 64) * 2
    assert levers(M7, HH, prompt=1000, output=24)["mla"].status == "training"


def test_latents_in_use_are_compared_with_keys_and_values_of_every_head() -> None:
    lever = levers(DS, device("large", 1e15, 5e12, capacity=2 * 10**12), prompt=1000, output=24)["mla"]
    assert lever.status == "in_use"
    assert growth(without_latents(DS)) == 61 * 128 * (192 + 128) * 2
    assert lever.figures["cache_bytes_without"] / lever.figures["cache_bytes_with"] == approx(128 * 320 / 576)


def test_windows_in_five_of_six_layers_bound_their_cache() -> None:
    model = with_windows(M8)
    kept = [(layer.count, layer.attention[0].window) for layer in model.layers]
    assert kept == [(27, 1024), (5, None)]  # every sixth layer is full
    long = cache_layout(model, deploy(model, HH).formats.kv).bytes_per_sequence(100_000)
    assert long == (27 * 1024 + 5 * 100_000) * 131072 // 32


def test_windows_in_use_are_compared_with_full_attention() -> None:
    lever = levers(with_windows(M8), HH, prompt=8000, output=192)["window"]
    assert lever.status == "in_use"
    assert lever.gains.capacity > 2


def test_a_window_that_is_never_filled_saves_nothing() -> None:
    lever = levers(M8, HH, prompt=500, output=24)["window"]
    assert lever.reason == "cache_is_no_smaller"
    assert lever.gains.capacity == 1


@pytest.mark.parametrize("heads", [1, 8, 32])
def test_changing_heads_changes_nothing_else(heads: int) -> None:
    changed = with_kv_heads(M7, lambda _: heads)
    mixer = changed.layers[0].attention[0]
    assert isinstance(mixer, Attention)
    assert replace(changed, layers=M7.layers) == M7
    assert replace(mixer, num_kv_heads=32) == M7.layers[0].attention[0]
