"""The KV cache and the prefix cache against formulas F9 and F17."""

import pytest
from levers import choices, levers, levers_of, without_overhead
from pytest import approx
from shapes import DS, HA, HH, M7, M8, deploy, step_model

from roofplan.planner import without_cache
from roofplan.planner.levers.caching import AfterPrefix, generation_flop, generation_s
from roofplan.planner.prefix import suffix_prefill


def test_a_cache_saves_256_fold_in_passes_250_fold_in_flop_and_far_less_in_time() -> None:
    lever = levers(M7, HA, prompt=1, output=512)["kv_cache"]
    assert lever.figures["token_passes_ratio"] == 256.5
    assert lever.figures["flop_ratio"] == approx(250.62441821645294, rel=1e-12)
    assert lever.figures["time_ratio_alone"] == approx(1.80, rel=0.03)  # 1.7956 where only products and weights count
    assert (lever.status, lever.exact) == ("in_use", True)
    assert lever.gains.tpot == approx(1.80, rel=0.03)
    assert lever.gains.ttft == 1


@pytest.mark.parametrize("prompt", [1, 128, 2048])
@pytest.mark.parametrize("output", [2, 17, 512])
@pytest.mark.parametrize("model", [M7, M8, DS], ids=lambda model: model.name)
def test_a_few_lengths_give_the_time_of_all_of_them(model, prompt: int, output: int) -> None:
    steps = step_model(model, HH)
    ours, theirs = generation_s(steps, prompt, output), without_cache.generation_s(steps, prompt, output)
    assert ours.with_cache == approx(theirs.with_cache, rel=2e-3)
    assert ours.without_cache == approx(theirs.without_cache, rel=2e-3)


@pytest.mark.parametrize(("prompt", "output"), [(1, 1), (1, 2), (1, 512), (100, 9), (2048, 777)])
def test_flop_of_a_generation_is_the_closed_form(prompt: int, output: int) -> None:
    closed = without_cache.generation_flop(
        prompt,
        output,
        block_parameters=32 * (4 * 4096 * 4096 + 3 * 4096 * 11008),
        head_parameters=32000 * 4096,
        num_heads=32,
        head_dim=128,
        layers=32,
    )
    ours = generation_flop(step_model(M7, HA), prompt, output)
    assert ours.without_cache == approx(closed.without_cache, rel=1e-12)
    assert ours.with_cache == approx(closed.with_cache, rel=1e-12)


def test_more_users_gain_more_of_a_cache() -> None:
    gains = [levers(M8, HH, prompt=1024, output=256, concurrency=users)["kv_cache"].gains.tpot for users in (1, 4, 16)]
    assert gains == sorted(gains)
    assert gains[0] > 1


def test_a_single_output_token_needs_no_cache() -> None:
    lever = levers(M8, HH, prompt=1024, output=1)["kv_cache"]
    assert (lever.status, lever.gains.tpot) == ("not_applicable", None)


# ------------------------------------------------------------------------------------------------ prefixes


def test_a_cached_prefix_of_2000_tokens_leaves_9_of_95_ms() -> None:
    """The textbook's system prompt: 95.4 -> 9.0 ms for a prompt of 2,200 tokens on a 312 TFLOP/s device."""
    d = without_overhead(deploy(M7, HA, prompt=2200, output=2))
    lever = levers_of(d, choices(prefix_hit=2000 / 2200))["prefix_cache"]
    expected = suffix_prefill(step_model(M7, HA), 2200, 2000)
    assert lever.figures["cached_tokens"] == 2000
    assert (expected.whole_s, expected.suffix_s) == (approx(0.0954, rel=0.05), approx(0.0090, rel=0.05))
    # The prompt's step also decodes for one sequence.
    assert lever.before.ttft_s == approx(expected.whole_s, rel=0.03)
    assert lever.after.ttft_s == approx(expected.suffix_s, rel=0.15)
    assert (lever.exact, lever.reason) == (True, "less_to_compute")


def test_a_shared_prefix_is_stored_once() -> None:
    lever = levers(M7, HH, choices(prefix_hit=0.5), prompt=4096, output=512, concurrency=8)["prefix_cache"]
    budget, per_token = 72 * 10**9 - 2 * 6738415616, 524288
    assert lever.before.max_concurrency == budget // (per_token * 4608)
    assert lever.after.max_concurrency == (budget - per_token * 2048) // (per_token * (4608 - 2048))
    assert lever.memory_bytes == per_token * 2048


def test_a_prefix_is_cached_in_whole_blocks_of_the_engine() -> None:
    import roofplan
    from roofplan.planner.levers.situation import Choices

    d = roofplan.deployment("llama-3.1-8b", "h100", engine="vllm@0.19", prompt=1000, output=100, block_size=32)
    lever = levers_of(d, Choices(prefix_hit=0.777))["prefix_cache"]
    assert lever.figures["cached_tokens"] == 777 // 32 * 32


def test_nothing_in_common_gains_nothing() -> None:
    lever = levers(M8, HH, choices(prefix_hit=0.0), prompt=1024, output=64, concurrency=8)["prefix_cache"]
    assert lever.reason == "no_shared_prefix"
    assert {lever.gains.ttft, lever.gains.tpot, lever.gains.throughput, lever.gains.capacity} == {1}


def test_more_in_common_never_gains_less() -> None:
    shares = [0.1, 0.3, 0.5, 0.9]
    found = [
        levers(M8, HH, choices(prefix_hit=share), prompt=2048, output=128, concurrency=32)["prefix_cache"].gains
        for share in shares
    ]
    for goal in ("ttft", "throughput", "capacity"):
        gains = [gain.of(goal) for gain in found]
        assert gains == sorted(gains)


def test_long_answers_to_short_prompts_gain_nothing_of_a_prefix_cache() -> None:
    """vllm-project/vllm 8223: a prefix cache without a gain, since decoding takes the time."""
    lever = levers(M8, HH, choices(prefix_hit=0.5), prompt=32, output=1024, concurrency=1)["prefix_cache"]
    assert lever.gains.throughput == approx(1, abs=0.01)
    assert lever.reason == "prompts_are_short_beside_the_rest"


def test_lengths_after_a_prefix_count_what_is_left() -> None:
    steps = step_model(M8, HH)
    shifted = AfterPrefix(steps, 1000)
    assert shifted.step_s(4, 200) == steps.step_s(4, 1200)
    assert shifted.step_s(4, 200, chunk=64, past=100, pieces=2) == steps.step_s(4, 1200, chunk=64, past=1100, pieces=2)
