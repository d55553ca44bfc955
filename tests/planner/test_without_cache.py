"""Golden values of formula F17, against passes, query-key pairs and times that are counted one by one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import HA, M7, M8, step_model

from roofplan.errors import DomainError
from roofplan.planner import without_cache
from roofplan.planner.costs import Load
from roofplan.planner.flop import causal_pairs

EXACT = 1e-12
M7_HA = step_model(M7, HA)
M7_SIZES = {
    "block_parameters": 6476005376,
    "head_parameters": 4096 * 32000,
    "num_heads": 32,
    "head_dim": 128,
    "layers": 32,
}
TEXTBOOK = (14e9, 7e9, 312e12, 2.0e12)


@pytest.mark.parametrize(
    ("prompt", "ratio"),
    [(1, 256.5), (0, 256.0), (128, 307.28012519561815), (512, 384.1251221896383), (2048, 460.8800312622118)],
)
def test_token_passes(prompt: int, ratio: float) -> None:  # F17
    assert without_cache.token_passes(prompt, 512).ratio == approx(ratio, rel=EXACT)


def test_flop_with_attention_and_head() -> None:  # F17
    found = without_cache.generation_flop(1, 512, **M7_SIZES)
    assert (found.without_cache, found.with_cache) == (1712892818751488, 6834500927488)
    assert found.ratio == approx(250.62441821645294, rel=EXACT)


def test_textbook_time() -> None:  # F17
    found = without_cache.textbook_generation_s(1, 512, *TEXTBOOK)
    assert found.without_cache == approx(6.435423076923076, rel=EXACT)
    assert found.with_cache == approx(3.584, rel=EXACT)
    assert found.ratio == approx(1.795597956730769, rel=EXACT)
    assert without_cache.textbook_generation_s(2048, 512, *TEXTBOOK).ratio == approx(14.424343231740131, rel=EXACT)


@given(st.integers(0, 300), st.integers(1, 60))
def test_passes_one_by_one(prompt: int, output: int) -> None:  # F17
    if prompt + output == 1:
        return
    sequence, cached, without, with_cache = prompt, 0, 0, 0
    for _ in range(output):
        without += sequence
        with_cache += sequence - cached
        cached = sequence
        sequence += 1
    found = without_cache.token_passes(prompt, output)
    assert (found.without_cache, found.with_cache) == (without, with_cache)
    assert found.ratio <= output


def test_ratio_nears_the_output_with_long_prompts() -> None:  # F17
    assert without_cache.token_passes(10**9, 512).ratio == approx(512, rel=1e-6)


@given(st.integers(1, 12), st.integers(1, 8), st.none() | st.integers(1, 10))
def test_flop_key_by_key(prompt: int, output: int, window: int | None) -> None:  # F17
    """Two FLOP a multiply-add, of a tiny model, for every token and every key that it sees."""
    block, head, heads, head_dim, layers = 70, 30, 2, 4, 3

    def passed(first: int, end: int) -> int:
        total = 2 * head
        for query in range(first, end):
            total += 2 * block
            for key in range(query + 1):
                if window is None or query - key < window:
                    total += layers * heads * 2 * (head_dim + head_dim)  # scores, and weighted values
        return total

    found = without_cache.generation_flop(
        prompt,
        output,
        block_parameters=block,
        head_parameters=head,
        num_heads=heads,
        head_dim=head_dim,
        layers=layers,
        window=window,
    )
    lengths = range(prompt, prompt + output)
    assert found.without_cache == sum(passed(0, length) for length in lengths)
    assert found.with_cache == passed(0, prompt) + sum(passed(length - 1, length) for length in lengths[1:])


@given(st.integers(1, 3000), st.integers(1, 300), st.none() | st.integers(1, 4000))
def test_flop_pass_by_pass(prompt: int, output: int, window: int | None) -> None:  # F17, F2.6, F2.7
    found = without_cache.generation_flop(prompt, output, **M7_SIZES, window=window)
    lengths = range(prompt, prompt + output)
    pairs = sum(causal_pairs(length, window=window) for length in lengths)
    linear = 2 * 6476005376 * sum(lengths) + 2 * 4096 * 32000 * output
    assert found.without_cache == linear + 4 * 32 * 128 * 32 * pairs


@given(st.integers(1, 500), st.integers(1, 40))
def test_flop_of_the_step_model(prompt: int, output: int) -> None:  # F17
    found = without_cache.generation_flop(prompt, output, **M7_SIZES)
    lengths = range(prompt, prompt + output)
    without = sum(M7_HA.totals(Load(0, 0, chunk=length))[0] for length in lengths)
    cached = M7_HA.totals(Load(0, 0, chunk=prompt))[0] + sum(M7_HA.totals(Load(1, n))[0] for n in lengths[1:])
    assert found.without_cache == approx(without, rel=EXACT)
    assert found.with_cache == approx(cached, rel=EXACT)


@given(st.integers(1, 3000), st.integers(1, 40))
def test_textbook_time_pass_by_pass(prompt: int, output: int) -> None:  # F17
    def pass_s(tokens: int) -> float:
        return max(14e9 * tokens / 312e12, 0.007)

    found = without_cache.textbook_generation_s(prompt, output, *TEXTBOOK)
    assert found.without_cache == approx(sum(pass_s(prompt + made) for made in range(output)), rel=EXACT)
    assert found.with_cache == approx(pass_s(prompt) + sum(0.007 for _ in range(1, output)), rel=EXACT)


@given(st.sampled_from([M7_HA, step_model(M8, HA)]), st.integers(1, 3000), st.integers(1, 40))
@pytest.mark.parametrize("grouping", ["operators", "whole"])
def test_time_on_a_step_model_pass_by_pass(grouping: str, model, prompt: int, output: int) -> None:  # F17
    found = without_cache.generation_s(model, prompt, output, grouping)
    first = model.step_s(0, 0, chunk=prompt, grouping=grouping)
    lengths = range(prompt + 1, prompt + output)
    without = first + sum(model.step_s(0, 0, chunk=length, grouping=grouping) for length in lengths)
    cached = first + sum(model.step_s(1, length, grouping=grouping) for length in lengths)
    assert found.without_cache == approx(without, rel=1e-11)
    assert found.with_cache == approx(cached, rel=1e-11)


@given(st.integers(1, 3000), st.integers(2, 200))
def test_time_is_saved_less_than_flop(prompt: int, output: int) -> None:  # F17
    work = without_cache.generation_flop(prompt, output, **M7_SIZES).ratio
    assert without_cache.textbook_generation_s(prompt, output, *TEXTBOOK).ratio < work
    assert without_cache.generation_s(M7_HA, prompt, output).ratio < work


def test_time_on_a_step_model_is_near_the_textbook() -> None:  # F17
    found = without_cache.generation_s(M7_HA, 2048, 512, "whole")
    expected = without_cache.textbook_generation_s(2048, 512, 2 * 6607077376, 6607077376, 312e12, 2.0e12)
    assert found.without_cache == approx(expected.without_cache, rel=0.1)
    assert found.with_cache == approx(expected.with_cache, rel=0.1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: without_cache.token_passes(-1, 1),
        lambda: without_cache.token_passes(1, 0),
        lambda: without_cache.token_passes(0, 1),
        lambda: without_cache.token_passes(1.5, 2),
        lambda: without_cache.textbook_generation_s(0, 1, *TEXTBOOK),
        lambda: without_cache.textbook_generation_s(1, 0, *TEXTBOOK),
        lambda: without_cache.textbook_generation_s(1, 1, 0, 7e9, 312e12, 2e12),
        lambda: without_cache.textbook_generation_s(1, 1, 14e9, -1, 312e12, 2e12),
        lambda: without_cache.textbook_generation_s(1, 1, 14e9, 7e9, 0, 2e12),
        lambda: without_cache.textbook_generation_s(1, 1, 14e9, 7e9, 312e12, math.nan),
        lambda: without_cache.generation_s(M7_HA, 0, 1),
        lambda: without_cache.generation_s(M7_HA, 1, 0),
        lambda: without_cache.generation_s(M7_HA, 1, 2**21),
        lambda: without_cache.generation_s(M7_HA, 1, 2, "Whole"),
        lambda: without_cache.generation_flop(0, 1, **M7_SIZES),
        lambda: without_cache.generation_flop(1, 0, **M7_SIZES),
        lambda: without_cache.generation_flop(1, 1, window=0, **M7_SIZES),
    ],
)
def test_outside_the_domain(call) -> None:
    with pytest.raises(DomainError):
        call()


@pytest.mark.parametrize("name", M7_SIZES)
def test_sizes_outside_the_domain(name: str) -> None:
    with pytest.raises(DomainError, match=name):
        without_cache.generation_flop(1, 1, **{**M7_SIZES, name: -1})
