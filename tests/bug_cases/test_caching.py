"""Group G: cache and queueing. See test_index."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import HH, M8, step_model

import roofplan
from roofplan.errors import DomainError
from roofplan.planner import admission, prefix
from roofplan.planner.deployment import Workload
from roofplan.planner.latency import steady_state

M8_HH = step_model(M8, HH)


def test_case_69_hits_without_gain() -> None:
    """64 prompts at once, 8K of prefix and 256 tokens of their own: 95.1 % of the tokens hit, and none of the work was saved."""
    prompt, cached = 8192 + 256, 8192
    hit_rate = 63 / 64  # of requests: the first one finds nothing
    assert hit_rate * cached / prompt == approx(0.951, abs=0.005)
    padded = prefix.suffix_prefill(M8_HH, prompt, cached, skipped_share=0)
    assert padded.mean_s(hit_rate) == padded.whole_s
    assert padded.saved_flop_share == 0
    mended = prefix.suffix_prefill(M8_HH, prompt, cached)
    assert mended.mean_s(hit_rate) < padded.mean_s(hit_rate) / 4  # measured 4.94, waiting included
    assert mended.mean_s(0) == mended.whole_s


def test_case_69_what_a_measurement_shows_of_a_saving() -> None:
    """Mean time to first token: 184 s without the cache, 259 s with it, 37.3 s once the kernel was mended."""
    assert prefix.realised_saving(184, 259, 37.3) == approx(-75 / 146.7)
    assert prefix.realised_saving(184, 184, 37.3) == 0
    assert prefix.realised_saving(184, 37.3, 37.3) == 1


# Most sequences that TensorRT-LLM ran at a time: ai-dynamo/aiconfigurator 652, its test of the boundary. It reserved prompt + output + 1000
# tokens a sequence, in blocks of 32, a 16-bit cache in a share of the free memory. Model, device, ranks, share, then the count at
# 2048 + 2048, 2048 + 4096, 4096 + 2048 and 4096 + 4096 tokens.
# fmt: off
MEASURED = [
    ("qwen3-32b", "h100-sxm", 1, 0.8, 27, 19, 19, 14),
    ("qwen3-32b", "h100-sxm", 2, 0.8, 75, 53, 53, 41),
    ("qwen3-32b", "h100-sxm", 4, 0.8, 169, 121, 120, 93),
    ("qwen3-32b", "gb300", 1, 0.8, 153, 109, 108, 84),
    ("qwen3-32b", "gb300", 2, 0.8, 326, 233, 232, 181),
    ("qwen3-32b", "gb300", 4, 0.8, 673, 480, 479, 373),
    ("qwen3-32b", "gb300", 1, 0.9, 172, 123, 122, 95),
    ("qwen3-32b", "gb300", 2, 0.9, 367, 262, 261, 203),
    ("qwen3-32b", "gb300", 4, 0.9, 757, 541, 539, 419),
    ("llama-3.1-8b", "h100-sxm", 1, 0.8, 78, 56, 55, 43),
    ("llama-3.1-8b", "h100-sxm", 2, 0.8, 173, 124, 123, 96),
    ("llama-3.1-8b", "h100-sxm", 4, 0.8, 363, 259, 258, 201),
    ("llama-3.1-8b", "gb300", 1, 0.8, 330, 236, 235, 183),
    ("llama-3.1-8b", "gb300", 2, 0.8, 677, 484, 483, 376),
    ("llama-3.1-8b", "gb300", 4, 0.8, 1371, 979, 978, 761),
    ("llama-3.1-8b", "gb300", 1, 0.9, 372, 265, 265, 206),
    ("llama-3.1-8b", "gb300", 2, 0.9, 762, 544, 544, 423),
    ("llama-3.1-8b", "gb300", 4, 0.9, 1542, 1101, 1100, 856),
]
# fmt: on
BLOCK, SLACK = 32, 1000


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: "-".join(map(str, row[:4])))
def test_case_70_one_pool_explains_what_ran_at_a_time(row) -> None:
    """Of each prompt length (it sizes the activations, and so the pool) two outputs: some pool gives both counts, to the sequence."""
    for prompt, counts in ((2048, row[4:6]), (4096, row[6:8])):
        lengths = [prompt + output + SLACK for output in (2048, 4096)]
        least = max(n * -(-length // BLOCK) for n, length in zip(counts, lengths, strict=True)) * BLOCK
        assert [admission.sequences_in_flight(least, length, BLOCK) for length in lengths] == list(counts)


@pytest.mark.parametrize("row", [row for row in MEASURED if row[2] == 1], ids=lambda row: "-".join(map(str, row[:4])))
def test_case_70_capacity_of_one_device(row) -> None:
    """Within the tolerance of the source's own test, 3.5 % or one sequence."""
    name, device, _, share, *counts = row
    lengths = [(2048, 2048), (2048, 4096), (4096, 2048), (4096, 4096)]
    for (prompt, output), measured in zip(lengths, counts, strict=True):
        found = roofplan.size(
            name,
            device,
            prompt=prompt,
            output=output + SLACK,
            weights="fp8" if name == "qwen3-32b" else "bf16",
            kv="bf16",
            engine="tensorrt-llm",
            memory_utilization=share,
            max_num_batched_tokens=2 * prompt,
        ).capacity.max_concurrency
        assert found == approx(measured, abs=max(1, 0.035 * measured))


def test_case_70_a_batch_above_the_cache_waits_and_says_so() -> None:
    slots = admission.sequences_in_flight(400_000, 5096, BLOCK)
    assert slots == 78
    workload = Workload(2048, 2048)
    fits, crowded = (admission.admit(M8_HH, workload, users, slots, 8192) for users in (78, 156))
    assert (fits.in_flight, fits.waiting, fits.queue_s) == (78, 0, 0)
    assert (crowded.in_flight, crowded.waiting) == (78, 78)
    # Those that run see nothing of it: it is all in the time to the first token, here a whole request long.
    assert crowded.ttft_running_s == approx(fits.ttft_s)
    assert crowded.queue_s == approx(steady_state(M8_HH, workload, 78, 78, 8192).e2e_s)
    assert crowded.ttft_s > 50 * fits.ttft_s


def test_case_70_where_not_one_sequence_fits_nobody_is_served() -> None:
    slots = admission.sequences_in_flight(5000, 5096, BLOCK)
    assert slots == 0
    assert admission.admit(M8_HH, Workload(2048, 2048), 8, slots, 8192) == admission.Admission(0, 8, None, None, None)


def simulated_wait(users: int, slots: int, service_s: float, rounds: int) -> float:
    """Mean wait of requests whose users ask again at once, first come first served on so many slots, after two rounds."""
    free, asking, waits = [0.0] * slots, [(0.0, user) for user in range(users)], []
    while len(waits) < rounds * users:
        asked, user = heapq.heappop(asking)
        start = max(asked, heapq.heappop(free))
        waits.append(start - asked)
        heapq.heappush(free, start + service_s)
        heapq.heappush(asking, (start + service_s, user))
    later = waits[2 * users :]
    return sum(later) / len(later)


@given(st.integers(1, 20), st.integers(1, 6))
def test_case_70_wait_against_a_simulation(slots: int, times: int) -> None:
    found = admission.admit(M8_HH, Workload(1000, 100), slots * times, slots, 8192)
    service = steady_state(M8_HH, Workload(1000, 100), slots, slots, 8192).e2e_s
    assert found.queue_s == approx(simulated_wait(slots * times, slots, service, rounds=8))


@given(st.integers(0, 10**6), st.integers(1, 10**4), st.integers(1, 64))
def test_case_70_sequences_in_flight_by_giving_out_blocks(pool: int, tokens: int, block: int) -> None:
    found = admission.sequences_in_flight(pool, tokens, block)
    needed = len(range(0, tokens, block))  # a block begins at each of these tokens
    assert found * needed * block <= pool < (found + 1) * needed * block + block


@pytest.mark.parametrize(
    "call",
    [
        lambda: admission.sequences_in_flight(-1, 1),
        lambda: admission.sequences_in_flight(1, 0),
        lambda: admission.sequences_in_flight(1, 1, 0),
        lambda: admission.sequences_in_flight(1.5, 1),
        lambda: admission.admit(M8_HH, Workload(1000, 100), 0, 1, 8192),
        lambda: admission.admit(M8_HH, Workload(1000, 100), 1, -1, 8192),
        lambda: admission.admit(M8_HH, Workload(1000, 100), 1, 1, 0),
    ],
)
def test_case_70_outside_the_domain(call) -> None:
    with pytest.raises(DomainError):
        call()
