"""Golden values of formulas F10.1 to F10.4, and chunks against the whole prefill."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, HA, HH, M7, M8, dense, step_model

from roofplan.errors import DomainError
from roofplan.planner import chunked, prefix
from roofplan.planner.costs import Load
from roofplan.planner.flop import attention_flop, causal_pairs, linear_flop
from roofplan.planner.latency import chunks, prefill_s

EXACT = 1e-12
M8_HH = step_model(M8, HH)
WINDOW = 1024
WINDOWED = step_model(
    dense(4096, 32, 32, 8, 128, 14336, 128256, attention_changes={"kind": "sliding", "window": WINDOW}), HH
)
N_BLOCK, HEAD = 6979321856, 4096 * 128256  # of M8
COMPANY = {"decoders": 32, "context": 2048}
PARTS = {**COMPANY, "grouping": "parts"}


@pytest.mark.parametrize(
    ("chunk", "past", "seconds"),
    [
        (0, 0, 0.0070445526734328355),  # one head row less than in the collection, which the weights hide
        (256, 0, 0.007061984428080097),
        (512, 0, 0.010343650268814085),
        (1024, 0, 0.017775546598387565),
        (2048, 0, 0.03305607350093052),
        (8192, 0, 0.13640779373127618),
        (512, 7680, 0.012427321485794073),
    ],
)
def test_mixed_step(chunk: int, past: int, seconds: float) -> None:  # F10.1
    assert chunked.mixed_step_s(M8_HH, 32, 2048, chunk, past, grouping="parts") == approx(seconds, rel=EXACT)


@given(st.integers(0, 400), st.integers(0, 100_000), st.integers(1, 20_000), st.integers(0, 100_000))
def test_mixed_step_by_hand(decoders: int, context: int, chunk: int, past: int) -> None:  # F10.1
    flop_per_s, bytes_per_s, growth, pair = 989.4e12, 3.35e12, 131072, 4 * 32 * 128 * 32
    rows = linear_flop(N_BLOCK, HEAD, decoders + chunk, decoders + 1)
    parts = [
        (rows, 2 * (N_BLOCK + HEAD)),
        (pair * decoders * context, decoders * context * growth),
        (pair * sum(range(past + 1, past + chunk + 1)), (past + chunk) * growth),  # token by token
    ]
    by_hand = sum(max(flop / flop_per_s, moved / bytes_per_s) for flop, moved in parts)
    assert chunked.mixed_step_s(M8_HH, decoders, context, chunk, past, grouping="parts") == approx(by_hand, rel=1e-11)


@pytest.mark.parametrize(
    ("chunk", "seconds"),
    [
        (256, 0.2432085170922643),
        (512, 0.18216777403686524),
        (1024, 0.15776245120721774),
        (2048, 0.145559789792394),
        (8192, 0.13640779373127618),
    ],
)
def test_time_to_first_token(chunk: int, seconds: float) -> None:  # F10.2
    (row,) = chunked.chunked_prefill(M8_HH, 8192, [chunk], **PARTS)
    assert row.ttft_s == approx(seconds, rel=EXACT)
    assert row.growth == approx(seconds / 0.13640779373127618, rel=EXACT)
    assert row.steps == 8192 // chunk


def test_extra_reads() -> None:  # F10.3
    assert chunked.reread_bytes(M8_HH, 8192, 512) == 8053063680
    assert chunked.reread_bytes(M8_HH, 8192, 8192) == 0


@pytest.mark.parametrize(("limit", "chunk", "in_tiles"), [(0.015, 653, 640), (0.020, 931, 896)])
def test_largest_chunk_for_a_limit(limit: float, chunk: int, in_tiles: int) -> None:  # F10.4
    assert chunked.chunk_within_latency(M8_HH, limit, 8192, **PARTS) == chunk
    assert chunked.chunk_within_latency(M8_HH, limit, 8192, tile=128, **PARTS) == in_tiles


# ------------------------------------------------------------------------------------------------ brute force


@given(st.integers(1, 20_000), st.integers(16, 20_000))
def test_chunks_do_the_work_of_the_whole_prefill_exactly(prompt: int, largest: int) -> None:  # F10.2: integers
    pieces = list(chunks(prompt, largest))
    assert sum(causal_pairs(tokens, past) for tokens, past in pieces) == causal_pairs(prompt)
    assert sum(causal_pairs(tokens, past, WINDOW) for tokens, past in pieces) == causal_pairs(prompt, window=WINDOW)
    in_pieces = sum(M8_HH.totals(Load(0, 0, chunk=tokens, past=past))[0] for tokens, past in pieces)
    whole = linear_flop(N_BLOCK, HEAD, prompt) + attention_flop(32, 128, 32, causal_pairs(prompt))
    # Each chunk gives logits once, those before the last for nothing.
    assert in_pieces == whole + (len(pieces) - 1) * 2 * HEAD


@given(st.integers(1, 20_000), st.integers(16, 20_000))
def test_extra_reads_are_those_of_all_earlier_chunks_exactly(prompt: int, largest: int) -> None:  # F10.3: integers
    growth, count = 131072, math.ceil(prompt / largest)
    assert chunked.reread_bytes(M8_HH, prompt, largest) == growth * largest * count * (count - 1) // 2
    # A window: of its past a chunk reads at most the window, and in one chunk every token once.
    windowed = growth * sum(min(past, WINDOW) for past in range(0, prompt, largest))
    assert chunked.reread_bytes(WINDOWED, prompt, largest) == windowed


@given(st.integers(2, 20_000), st.integers(64, 20_000), st.integers(0, 200), st.data())
def test_rows_of_the_trade_off(prompt: int, largest: int, decoders: int, data) -> None:  # F10.2
    (row, whole) = chunked.chunked_prefill(M8_HH, prompt, [largest, prompt], decoders=decoders, context=1000)
    assert row.ttft_s == approx(prefill_s(M8_HH, prompt, largest, decoders=decoders, context=1000), rel=EXACT)
    assert whole.ttft_s == whole.longest_step_s
    assert whole.growth == 1
    assert row.growth >= 1 - EXACT
    assert row.longest_step_s <= whole.longest_step_s * (1 + EXACT)
    cached = data.draw(st.integers(0, prompt - 1))
    (suffix,) = chunked.chunked_prefill(M8_HH, prompt, [prompt], cached=cached)
    assert suffix.ttft_s == prefix.suffix_prefill(M8_HH, prompt, cached).suffix_s
    assert suffix.reread_bytes == 0


def test_cached_prefixes_are_read_by_every_chunk() -> None:  # F10.3
    # Chunks of 100 after 1000 cached tokens read 1100, 1200 and 1300 instead of 1300 at once.
    assert chunked.reread_bytes(M8_HH, 1300, 100, cached=1000) == 131072 * (1100 + 1200)


@pytest.mark.parametrize(
    "model", [M8_HH, step_model(M7, HA), WINDOWED, step_model(DS, HH)], ids=["m8", "m7", "windowed", "ds"]
)
@settings(max_examples=20)
@given(st.floats(0.001, 0.5), st.integers(1, 3000), st.integers(0, 64), st.integers(1, 200))
def test_largest_chunk_by_enumeration(model, limit: float, prompt: int, decoders: int, tile: int) -> None:  # F10.4
    import numpy as np

    sizes = np.arange(1, prompt + 1)
    kept = sizes[model.step_s(decoders, 1500, chunk=sizes, past=prompt - sizes) <= limit]
    found = chunked.chunk_within_latency(model, limit, prompt, decoders=decoders, context=1500)
    assert found == (kept[-1] if len(kept) else 0)
    in_tiles = chunked.chunk_within_latency(model, limit, prompt, tile=tile, decoders=decoders, context=1500)
    assert in_tiles == (prompt if found == prompt else found - found % tile)


@given(st.floats(0.001, 0.2), st.integers(1, 3000), st.integers(0, 64), st.data())
def test_largest_chunk_after_a_cached_prefix_by_enumeration(
    limit: float, prompt: int, decoders: int, data
) -> None:  # F10.4
    import numpy as np

    cached = data.draw(st.integers(0, prompt - 1))
    sizes = np.arange(1, prompt - cached + 1)
    kept = sizes[M8_HH.step_s(decoders, 1500, chunk=sizes, past=prompt - sizes) <= limit]
    company = {"cached": cached, "decoders": decoders, "context": 1500}
    found = chunked.chunk_within_latency(M8_HH, limit, prompt, **company)
    assert found == (kept[-1] if len(kept) else 0)
    # The table says the same of a chunk that is the whole suffix.
    (row,) = chunked.chunked_prefill(M8_HH, prompt, [prompt], **company)
    assert (row.longest_step_s <= limit) == (found == prompt - cached)


@pytest.mark.parametrize(("prompt", "tile"), [(100, 128), (8242, 128), (8192, 128), (1, 4096)])
def test_a_prompt_that_keeps_the_limit_is_one_chunk(
    prompt: int, tile: int
) -> None:  # F10.4: a part of a tile is not cut off
    assert chunked.chunk_within_latency(M8_HH, 10, prompt, tile=tile) == prompt
    assert chunked.chunk_within_latency(M8_HH, 10, prompt + 50, cached=50, tile=tile) == prompt


def test_small_chunks_are_free_beside_a_small_batch() -> None:
    """288 rows still wait for the weights: 7.06 ms with a chunk of 256, 7.04 ms without (notes on F10.1)."""
    with_chunk, without = (chunked.mixed_step_s(M8_HH, 32, 2048, n, grouping="parts") for n in (256, 0))
    assert with_chunk * 1e3 == approx(7.06, abs=0.005)
    assert without * 1e3 == approx(7.04, abs=0.005)


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "call",
    [
        lambda: chunked.mixed_step_s(M8_HH, -1, 2048, 512),
        lambda: chunked.mixed_step_s(M8_HH, 1, math.nan, 512),
        lambda: chunked.mixed_step_s(M8_HH, 1, 2048, -1),
        lambda: chunked.mixed_step_s(M8_HH, 1, 2048, 512, -1),
        lambda: chunked.mixed_step_s(M8_HH, 1, 2048, 1.5),
        lambda: chunked.reread_bytes(M8_HH, 0, 1),
        lambda: chunked.reread_bytes(M8_HH, 100, 0),
        lambda: chunked.reread_bytes(M8_HH, 100, 10, cached=100),
        lambda: chunked.chunked_prefill(M8_HH, 100, [0]),
        lambda: chunked.chunked_prefill(M8_HH, 0, [1]),
        lambda: chunked.chunked_prefill(M8_HH, 100, [10], cached=100),
        lambda: chunked.chunked_prefill(M8_HH, 100, [10], decoders=-1),
        lambda: chunked.chunk_within_latency(M8_HH, 0, 100),
        lambda: chunked.chunk_within_latency(M8_HH, math.inf, 100),
        lambda: chunked.chunk_within_latency(M8_HH, 1, 0),
        lambda: chunked.chunk_within_latency(M8_HH, 1, 100, tile=0),
        lambda: chunked.chunk_within_latency(M8_HH, 1, 100, decoders=-1),
        lambda: chunked.chunk_within_latency(M8_HH, 1, 100, cached=100),
        lambda: chunked.mixed_step_s(M8_HH, 1, 2048, 512, grouping="operator"),
        lambda: chunked.mixed_step_s(M8_HH, 1e308, 1e308, 512),
        lambda: chunked.reread_bytes(M8_HH, 2**18, 1),
    ],
)
def test_outside_the_domain(call) -> None:
    with pytest.raises(DomainError):
        call()
