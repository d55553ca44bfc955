"""Golden values of formulas F6.6 to F6.8, and what the steady state must obey."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import HA, HH, M7, M8, step_model

import roofplan
from roofplan.errors import DomainError
from roofplan.planner import latency
from roofplan.planner.costs import Load
from roofplan.planner.deployment import Workload
from roofplan.planner.parallel import Layout

EXACT = 1e-12
M8_HH = step_model(M8, HH)


def test_mean_of_a_generation_is_its_middle() -> None:  # F6.6
    tpot = M8_HH.step_s(1, 1024 + 200 / 2, grouping="whole")
    assert tpot == approx(0.004524370684179105, rel=EXACT)
    prefill = M8_HH.step_s(0, 0, chunk=1024, grouping="whole")
    assert latency.end_to_end_s(prefill, tpot, 200) == approx(0.9150757093259292, rel=EXACT)


def test_end_to_end() -> None:  # F6.7
    assert latency.end_to_end_s(0.3, 0.02, 200) == approx(4.28, rel=EXACT)


def test_time_per_output_token_leaves_out_the_first() -> None:  # bug case 58
    assert latency.time_per_output_token_s(10.0, 2.0, 101) == approx(0.080, rel=EXACT)
    with pytest.raises(DomainError):
        latency.time_per_output_token_s(10.0, 2.0, 1)


def test_utilisations() -> None:  # F6.8
    read = step_model(M7, HA).totals(Load(1, 0))
    assert latency.bandwidth_utilization(read[1] + read[2], 0.011, 2.0e12) == approx(0.6006433978181819, rel=EXACT)
    work = step_model(M7, HA).totals(Load(0, 0, chunk=2048))[0]
    assert latency.flop_utilization(work, 0.15, 312e12) == approx(0.5902997577517949, rel=EXACT)


@given(st.integers(1, 10**6), st.integers(1, 10**5))
def test_chunks_cover_the_prompt_once(prompt: int, largest: int) -> None:
    pieces = list(latency.chunks(prompt, largest)) if prompt / largest < 10**4 else []
    position = 0
    for tokens, past in pieces:
        assert past == position
        assert 0 < tokens <= largest
        position += tokens
    assert not pieces or position == prompt


@given(st.integers(1, 3000), st.integers(1, 300), st.integers(0, 50), st.integers(0, 5000))
def test_many_chunks_are_timed_like_single_ones(
    prompt: int, largest: int, decoders: int, cached: int
) -> None:  # F10.1, F10.2
    company = {"decoders": decoders, "context": 1000}
    times = latency.chunk_times_s(M8_HH, prompt, largest, cached=cached, **company)
    one_by_one = [
        M8_HH.step_s(decoders, 1000, chunk=tokens, past=cached + past)
        for tokens, past in latency.chunks(prompt, largest)
    ]
    assert times == approx(one_by_one, rel=EXACT)
    if not cached:
        assert latency.prefill_s(M8_HH, prompt, largest, **company) == approx(sum(one_by_one), rel=EXACT)


def test_one_user_waits_for_nobody() -> None:
    state = latency.steady_state(M8_HH, Workload(1024, 200), users=1, slots=10, largest_chunk=8192)
    assert state.ttft_s == state.ttft_alone_s
    assert state.tpot_s == state.itl_s
    assert state.queue_s == 0


@given(st.integers(1, 200), st.integers(1, 200), st.integers(16, 16384), st.integers(1, 2048))
def test_steady_state_obeys_littles_law_and_its_bounds(users: int, slots: int, prompt: int, output: int) -> None:
    state = latency.steady_state(M8_HH, Workload(prompt, output), users, slots, 8192)
    assert state.running == min(users, slots)
    assert 0 <= state.decoding <= state.running
    assert state.ttft_s >= state.ttft_alone_s * (1 - EXACT)
    assert (state.tpot_s is None) == (output == 1)
    if state.tpot_s is not None:
        assert state.tpot_s >= state.itl_s * (1 - EXACT)
        assert state.e2e_s == approx(latency.end_to_end_s(state.ttft_s, state.tpot_s, output))
    # All others are prefilled once in the time of one request.
    assert state.prefills_before + state.prefills_during == approx(state.running - 1)
    # Little: users = arrival rate x end-to-end time, with the rate of those that run.
    rate = state.running / (state.e2e_s - state.queue_s)
    assert rate * state.e2e_s == approx(users)


def test_more_users_than_slots_wait_for_memory() -> None:
    crowded = latency.steady_state(M8_HH, Workload(1024, 200), users=30, slots=10, largest_chunk=8192)
    alone = latency.steady_state(M8_HH, Workload(1024, 200), users=10, slots=10, largest_chunk=8192)
    assert crowded.queue_s == approx(2 * alone.e2e_s)
    assert crowded.tpot_s == alone.tpot_s


def test_steady_state_needs_a_slot() -> None:
    with pytest.raises(DomainError):
        latency.steady_state(M8_HH, Workload(1024, 200), users=1, slots=0, largest_chunk=8192)


def test_ranges_are_ordered_and_never_beat_the_roof() -> None:
    times = roofplan.size("llama-3.1-8b", "h100-sxm", prompt=4096, output=512, concurrency=64).times
    assert times is not None
    for figure in (times.latency.ttft_s, times.latency.tpot_s, times.latency.e2e_s, times.latency.ttft_alone_s):
        assert figure.bound <= figure.low <= figure.expected <= figure.high
    for rate in (times.throughput.output_tokens_per_s, times.throughput.per_user_tokens_per_s):
        assert rate.low <= rate.expected <= rate.high <= rate.bound


LAYOUTS = [Layout(), Layout(tp=2), Layout(pp=4), Layout(tp=2, pp=2)]


@given(st.sampled_from(LAYOUTS), st.integers(1, 300), st.integers(1, 300), st.integers(16, 30000), st.integers(1, 600))
def test_no_load_needs_more_than_the_devices_can_do(
    layout: Layout, users: int, slots: int, prompt: int, output: int
) -> None:
    model = step_model(M8, HH, layout=layout)
    state = latency.steady_state(model, Workload(prompt, output), users, slots, 8192, layout.pp)
    requests_per_s = state.running / (state.e2e_s - state.queue_s)
    # Counted apart from the step model: 2 FLOP per matrix parameter and token (the head once per request in prefill), causal attention.
    tokens = prompt + output - 1
    work = 2 * 6979321856 * tokens + 2 * 4096 * 128256 * output + 4 * 32 * 128 * 32 * tokens * (tokens + 1) / 2
    devices = layout.tp * layout.pp
    assert requests_per_s * work <= devices * 989.4e12 * (1 + 1e-9)
    # Every output token but the first reads its own sequence's cache.
    read = (output - 1) * (prompt + output / 2) * 131072
    assert requests_per_s * read <= devices * 3.35e12 * (1 + 1e-9)


def test_a_burst_of_prompts_with_one_token_is_prefill_after_prefill() -> None:
    state = latency.steady_state(M8_HH, Workload(4096, 1), users=64, slots=64, largest_chunk=8192)
    assert state.ttft_s == approx(64 * state.ttft_alone_s, rel=0.02)
    assert state.tpot_s is None
