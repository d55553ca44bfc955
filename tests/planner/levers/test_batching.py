"""Continuous batches, paging and chunks against formulas F3, F8 and F10."""

from dataclasses import replace

import pytest
from levers import levers, levers_of, without_overhead
from pytest import approx
from shapes import HA, HH, M7, M8, deploy, step_model

import roofplan


def test_static_batches_wait_for_the_longest_output() -> None:
    """Eight geometric outputs of 200 tokens in the mean: slots are used to 36.85 % (formula F8.1)."""
    d = without_overhead(deploy(M8, HH, prompt=128, output=200, concurrency=8))
    lever = levers_of(d)["continuous_batching"]
    assert lever.figures["static_utilization"] == approx(0.36852, abs=1e-5)
    longest = 200 / 0.36852
    steps = step_model(M8, HH)
    step, prompts = steps.step_s(8, 228.0), steps.step_s(0, 0, chunk=8 * 128, pieces=8)
    assert lever.before.output_tokens_per_s == approx(8 * 200 / (prompts + (longest - 1) * step), rel=1e-4)
    assert lever.before.tpot_s == approx(step)
    assert lever.before.ttft_s == approx((longest - 200) * step + prompts, rel=1e-4)
    assert 2 < lever.gains.throughput < 1 / 0.36852 * 1.02
    assert lever.gains.capacity == 1
    assert (lever.status, lever.exact) == ("in_use", True)


def test_one_sequence_waits_for_nobody() -> None:
    lever = levers(M8, HH, prompt=128, output=200)["continuous_batching"]
    assert lever.reason == "single_sequence"
    assert {lever.gains.ttft, lever.gains.tpot, lever.gains.throughput, lever.gains.capacity} == {1}


def test_larger_batches_gain_more_of_being_continuous() -> None:
    gains = [
        levers(M8, HH, prompt=64, output=256, concurrency=users)["continuous_batching"].gains.throughput
        for users in (2, 8, 64)
    ]
    assert gains == sorted(gains)


# ------------------------------------------------------------------------------------------------ paging


def test_reserving_2048_tokens_for_500_leaves_three_quarters_empty() -> None:
    d = replace(deploy(M7, HA, prompt=300, output=400, concurrency=4), max_model_len=2048)
    lever = levers_of(d)["paged_cache"]
    assert lever.figures["reserved_waste"] == 0.755859375  # formula F3.10
    budget, per_token = 72 * 10**9 - 2 * 6738415616, 524288
    assert (lever.before.max_concurrency, lever.after.max_concurrency) == (
        budget // (per_token * 2048),
        budget // (per_token * 700),
    )
    assert (lever.exact, lever.reason) == (True, "nothing_reserved")


def test_sequences_as_long_as_the_longest_gain_nothing_of_pages() -> None:
    d = replace(deploy(M7, HA, prompt=1648, output=400, concurrency=4), max_model_len=2048)
    lever = levers_of(d)["paged_cache"]
    assert lever.gains.capacity == 1
    assert lever.reason == "sequences_are_as_long_as_reserved"


# ------------------------------------------------------------------------------------------------ chunks


def test_chunks_shorten_the_longest_gap_and_delay_the_first_token() -> None:
    d = replace(deploy(M8, HH, prompt=32768, output=512, concurrency=4), settings=roofplan_settings(40000))
    lever = levers_of(d)["chunked_prefill"]
    assert lever.status == "available"
    assert lever.option == "--max-num-batched-tokens 512"
    steps, chunk = step_model(M8, HH), 512 - 4
    context = 32768 + 256
    assert lever.figures["longest_gap_whole_s"] == approx(steps.step_s(4, context, chunk=32768))
    assert lever.figures["longest_gap_chunked_s"] == approx(steps.step_s(4, context, chunk=chunk, past=32768 - chunk))
    assert lever.figures["longest_gap_whole_s"] > 10 * lever.figures["longest_gap_chunked_s"]
    assert lever.gains.ttft < 1
    assert lever.reason == "shorter_gaps"


def roofplan_settings(tokens: int):
    from roofplan.planner.deployment import EngineSettings

    return EngineSettings(max_batched_tokens=tokens)


def test_prompts_that_are_cut_already_are_compared_with_whole_ones() -> None:
    lever = levers(M8, HH, prompt=32768, output=512, concurrency=4)["chunked_prefill"]  # the plain engine cuts at 8,192
    assert (lever.status, lever.option) == ("in_use", "")
    assert lever.figures["chunk_tokens"] == 8192 - 4
    assert lever.changed.max_batched_tokens == 32768 + 4


def test_a_short_prompt_gains_nothing_of_chunks() -> None:
    lever = levers(M8, HH, prompt=128, output=128, concurrency=4)["chunked_prefill"]
    assert lever.reason == "prompt_is_short"
    assert {lever.gains.ttft, lever.gains.tpot, lever.gains.throughput, lever.gains.capacity} == {1}


@pytest.mark.parametrize("users", [1, 16, 200])
def test_a_step_keeps_room_for_those_that_decode_and_for_the_prompts_that_come(users: int) -> None:
    d = roofplan.deployment("llama-3.1-8b", "h200", prompt=2048, output=512, concurrency=users)
    lever = levers_of(d)["chunked_prefill"]
    chunk = lever.figures.get("chunk_tokens", 2048)
    assert chunk * 512 >= min(users * 2048, 2048 * 512)


def test_engines_that_run_prompts_first_have_no_chunks_beside_decoding() -> None:
    d = deploy(M8, HH, prompt=8192, output=128, concurrency=4)
    first = replace(d.engine, scheduling=replace(d.engine.scheduling, admission="prefill_first"))
    assert levers_of(replace(d, engine=first))["chunked_prefill"].status == "not_applicable"
