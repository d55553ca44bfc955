"""Golden values of formula F12.6; splits of prompts against counted pairs, divided caches against attention that is merged from its parts."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, HH, M8, number_format, step_model

from roofplan.errors import DomainError
from roofplan.planner import context_parallel
from roofplan.planner.attention import merge_states, softmax_state
from roofplan.planner.costs import Load
from roofplan.planner.flop import causal_pairs
from roofplan.planner.kv_cache import cache_layout

EXACT = 1e-12
NVLINK = 450e9
M8_HH = step_model(M8, HH)
BF16 = number_format("bf16")
SHAPE = {"layers": 32, "num_heads": 32, "head_dim": 128}

# ---------------------------------------------------------------------------------------------- prefill


def test_context_parallel_prefill() -> None:  # F12.6
    alone = M8_HH.step_s(0, 0, chunk=131072, grouping="whole")
    cache = cache_layout(M8, BF16).bytes_per_sequence(131072)
    found = context_parallel.context_parallel_prefill(alone, cache, 8, NVLINK)
    assert found.compute_s == approx(0.8001342210432181, rel=EXACT)
    assert found.sent_bytes == 15032385536
    assert found.transfer_s == approx(0.03340530119111111, rel=EXACT)
    assert found.serial_s == approx(0.8001342210432181 + 0.03340530119111111, rel=EXACT)
    assert found.overlapped_s == found.compute_s
    assert context_parallel.attention_share(7, 8, "contiguous") == 0.234375
    assert context_parallel.attention_share(7, 8, "zigzag") == 0.125


@given(st.integers(1, 16))
def test_shares_of_attention_are_those_of_counted_pairs(ranks: int) -> None:  # F12.6
    piece = 100_000  # half of a rank's tokens
    whole = causal_pairs(2 * ranks * piece)
    for rank in range(ranks):
        contiguous = causal_pairs(2 * piece, past=2 * rank * piece)
        zigzag = causal_pairs(piece, past=rank * piece) + causal_pairs(piece, past=(2 * ranks - 1 - rank) * piece)
        assert context_parallel.attention_share(rank, ranks, "contiguous") == approx(contiguous / whole, rel=1e-4)
        assert context_parallel.attention_share(rank, ranks, "zigzag") == approx(zigzag / whole, rel=1e-4)
    for split in ("contiguous", "zigzag"):
        assert sum(context_parallel.attention_share(rank, ranks, split) for rank in range(ranks)) == approx(1)


@given(st.integers(1, 16))
def test_bytes_of_a_ring_that_is_played_through(ranks: int) -> None:  # F12.6
    held, sent = [{rank} for rank in range(ranks)], [0] * ranks
    passing = list(range(ranks))
    while len(held[0]) < ranks:
        sent = [count + 1 for count in sent]
        passing = [passing[rank - 1] for rank in range(ranks)]
        for rank, piece in enumerate(passing):
            held[rank].add(piece)
    assert all(len(pieces) == ranks for pieces in held)
    assert context_parallel.context_parallel_prefill(1, 1e9, ranks, 1).sent_bytes == approx(max(sent) * 1e9 / ranks)


@given(st.integers(1, 16), st.floats(0, 10), st.floats(0, 1))
def test_the_last_rank_of_a_contiguous_split_is_the_busiest(ranks: int, alone: float, share: float) -> None:  # F12.6
    attention = alone * share
    times = [
        (alone - attention) / ranks + attention * context_parallel.attention_share(rank, ranks, "contiguous")
        for rank in range(ranks)
    ]
    found = context_parallel.context_parallel_prefill(
        alone, 1e9, ranks, NVLINK, attention_s=attention, split="contiguous"
    )
    assert found.compute_s == approx(max(times), rel=EXACT)
    even = context_parallel.context_parallel_prefill(alone, 1e9, ranks, NVLINK, attention_s=attention)
    assert even.compute_s == approx(alone / ranks, rel=1e-9)
    assert even.compute_s <= found.compute_s * (1 + EXACT)


def test_a_contiguous_split_of_a_long_prompt() -> None:  # F12.6: 0.234375 of the attention instead of 0.125
    costs = M8_HH.costs(Load(0, 0, chunk=131072))
    alone = sum(cost.time_s for cost in costs)
    attention = sum(cost.time_s for cost in costs if "attention" in cost.name)
    found = context_parallel.context_parallel_prefill(alone, 1.0, 8, NVLINK, attention_s=attention, split="contiguous")
    assert found.compute_s == approx((alone - attention) / 8 + 0.234375 * attention, rel=EXACT)
    assert found.compute_s > 1.5 * alone / 8


# ---------------------------------------------------------------------------------------------- decode


@given(st.integers(1, 8), st.integers(1, 40), st.integers(0, 2**32))
def test_partial_outputs_merge_to_the_whole(ranks: int, tokens: int, seed: int) -> None:  # F12.6, F15.3
    """Every rank attends to its own tokens; what one sends for a head is an output and one number, and the merge is exact."""
    draw, width = random.Random(seed), 4
    scores = [draw.gauss(0, 3) for _ in range(tokens)]
    values = [[draw.gauss(0, 1) for _ in range(width)] for _ in range(tokens)]
    held = [[*range(rank, tokens, ranks)] for rank in range(ranks)]
    parts = [softmax_state([scores[i] for i in mine], [values[i] for i in mine]) for mine in held if mine]
    whole = softmax_state(scores, values)
    merged = merge_states(parts)
    assert merged.output == approx(whole.output, abs=1e-12)
    assert merged.log_sum_exp == approx(whole.log_sum_exp)


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 64))
def test_merges_that_are_played_through(ranks: int, heads_per_rank: int, tokens: int) -> None:  # F12.6
    """The head of rank r is merged there: all others send it their part, an output of 128 x 2 bytes and a sum of 4."""
    heads = heads_per_rank * ranks
    sent = [0] * ranks
    for source in range(ranks):
        for head in range(heads):
            if head // heads_per_rank != source:
                sent[source] += tokens * (128 * 2 + 4)
    assert context_parallel.merge_bytes(tokens, heads, 128, ranks) == approx(max(sent), rel=EXACT)


def test_decode_with_a_divided_cache() -> None:  # F12.6: closed form of section 0 and F6.2
    read, growth = 15009316864, 131072
    found = context_parallel.context_parallel_decode(
        M8_HH, 4, 131072, 8, NVLINK, **SHAPE, latency_s=3e-6, grouping="whole"
    )
    assert found.rank_context == 16384
    assert found.compute_s == approx((read + 4 * 16384 * growth) / 3.35e12, rel=EXACT)
    assert found.sent_bytes == approx(32 * 4 * 32 * (128 * 2 + 4) * 7 / 8, rel=EXACT)
    assert found.merge_s == approx(32 * 3e-6 + found.sent_bytes / NVLINK, rel=EXACT)
    assert found.step_s == approx(found.compute_s + found.merge_s, rel=EXACT)
    assert found.overlapped_s == found.compute_s
    # What is merged does not grow with the context.
    longer = context_parallel.context_parallel_decode(M8_HH, 4, 10**6, 8, NVLINK, **SHAPE, latency_s=3e-6)
    assert longer.merge_s == found.merge_s


@given(st.sampled_from([M8_HH, step_model(DS, HH)]), st.integers(1, 64), st.integers(1, 10**6), st.integers(1, 16))
def test_a_divided_cache_is_read_in_parallel_and_weights_are_not(model, batch: int, context: int, ranks: int) -> None:
    alone = model.step_s(batch, context)
    found = context_parallel.context_parallel_decode(model, batch, context, ranks, NVLINK, **SHAPE)
    assert alone / ranks * (1 - EXACT) <= found.compute_s <= alone * (1 + EXACT)
    if ranks == 1:
        assert found.step_s == alone


# ---------------------------------------------------------------------------------------------- domains


@pytest.mark.parametrize(
    "call",
    [
        lambda: context_parallel.attention_share(2, 2, "zigzag"),
        lambda: context_parallel.attention_share(-1, 2, "contiguous"),
        lambda: context_parallel.attention_share(0, 0, "contiguous"),
        lambda: context_parallel.attention_share(7, 8, "zig-zag"),
        lambda: context_parallel.context_parallel_prefill(1, 1, 0, 1),
        lambda: context_parallel.context_parallel_prefill(-1, 1, 2, 1),
        lambda: context_parallel.context_parallel_prefill(1, math.nan, 2, 1),
        lambda: context_parallel.context_parallel_prefill(1, 1, 2, math.inf),
        lambda: context_parallel.context_parallel_prefill(1, 1, 2, 1, split="contiguous"),
        lambda: context_parallel.context_parallel_prefill(1, 1, 2, 1, attention_s=2),
        lambda: context_parallel.context_parallel_prefill(1, 1, 2, 1, attention_s=1, split="ring"),
        lambda: context_parallel.merge_bytes(1, 0, 128, 8),
        lambda: context_parallel.merge_bytes(1, 32, 128, 8, 0),
        lambda: context_parallel.context_parallel_decode(M8_HH, 0, 100, 8, NVLINK, **SHAPE),
        lambda: context_parallel.context_parallel_decode(M8_HH, 1, 100, 0, NVLINK, **SHAPE),
        lambda: context_parallel.context_parallel_decode(M8_HH, 1, 100, 8, NVLINK, **SHAPE, latency_s=-1),
        lambda: context_parallel.context_parallel_decode(M8_HH, 1, 100, 8, NVLINK, **SHAPE, grouping="part"),
    ],
)
def test_outside_the_domain(call) -> None:
    with pytest.raises(DomainError):
        call()
