"""Golden values of formulas F9.1 to F9.4, and their brute force: walks over tokens, a simulated LRU cache, sums in integers."""

from __future__ import annotations

import itertools
import math
import random
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, HA, HH, M7, M8, dense, number_format, step_model

from roofplan.errors import DomainError
from roofplan.planner import prefix
from roofplan.planner.flop import attention_flop, causal_pairs, linear_flop
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.paging import PagedCache, PageGroup
from roofplan.planner.prefix import CacheKey

EXACT = 1e-12
BF16 = number_format("bf16")
M7_HA, M8_HH = step_model(M7, HA), step_model(M8, HH)
WINDOWED = dense(4096, 32, 32, 8, 128, 14336, 128256, attention_changes={"kind": "sliding", "window": 1024})


def key(tokens, block: int = 16, **changes) -> CacheKey:
    return CacheKey.of(tokens, block, **{"model": "m8@main", "kv_format": "bf16", **changes})


# ------------------------------------------------------------------------------------------------ F9.1 reusable tokens


@pytest.mark.parametrize(
    ("common", "prompt", "block", "reused"),
    [
        (2005, 2200, 16, 2000),
        (2005, 2200, 1, 2005),  # a radix tree with pages of one token
        (10, 15, 4, 8),  # vLLM, docs/design/prefix_caching.md
        (15, 2200, 16, 0),
        (2200, 2200, 1, 2199),  # one token is always computed
        (32, 32, 16, 16),  # and then its whole block is
        (1, 1, 1, 0),
        (0, 5, 1, 0),
    ],
)
def test_reusable_tokens(common: int, prompt: int, block: int, reused: int) -> None:  # F9.1
    assert prefix.reusable_tokens(common, prompt, block) == reused


PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=24)  # two words, so that prompts have much in common


def walked(cached: list[list[int]], prompt: list[int], block: int) -> int:
    """Token by token through a tree of all cached prompts; back to the last border between blocks that leaves a token to compute."""
    tree: dict = {}
    for tokens in cached:
        node = tree
        for token in tokens[: len(tokens) // block * block]:
            node = node.setdefault(token, {})
    node, reused = tree, 0
    for position, token in enumerate(prompt[:-1], 1):
        if token not in node:
            break
        node = node[token]
        if position % block == 0:
            reused = position
    return reused


@given(st.lists(PROMPTS, min_size=1, max_size=6), PROMPTS, st.integers(1, 6))
def test_blocks_and_radix_pages_against_a_walk_over_the_tokens(cached, prompt, block: int) -> None:  # F9.1
    common = max(prefix.shared_tokens(key(tokens, 1), key(prompt, 1)) for tokens in cached)
    assert common == max(equal_head(tokens, prompt) for tokens in cached)
    assert prefix.reusable_tokens(common, len(prompt), block) == walked(
        [tokens[:common] for tokens in cached], prompt, block
    )
    by_hash = max(prefix.shared_tokens(key(tokens, block), key(prompt, block)) for tokens in cached)
    assert min(by_hash, (len(prompt) - 1) // block * block) == walked(cached, prompt, block)


def equal_head(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def test_key_covers_model_adapter_format_positions() -> None:
    text = list(range(100, 164))
    base = key(text)
    assert prefix.why_not_shared(base, key(text)) == ()
    assert prefix.shared_tokens(base, key(text)) == 64
    for changed, reason in (
        (key(text, model="m8@other"), "model: m8@main and m8@other"),
        (key(text, adapter="lora-1"), "adapter: None and lora-1"),
        (key(text, kv_format="fp8"), "kv_format: bf16 and fp8"),
        (key(text, block=32), "block: 16 and 32"),
    ):
        assert prefix.why_not_shared(base, changed) == (reason,)
        assert prefix.shared_tokens(base, changed) == 0
    (shifted,) = prefix.why_not_shared(base, key([1, *text]))  # the same text one token later
    assert shifted.startswith("positions")
    (short,) = prefix.why_not_shared(base, key(text[:15]))
    assert short.startswith("no full block")


def test_a_block_depends_on_what_is_before_it() -> None:
    one, other = key([1, 2, 3, 4], 2), key([9, 2, 3, 4], 2)
    assert one.blocks[1] != other.blocks[1]
    assert len({*key([1, 1, 1, 1], 2).blocks}) == 2  # equal tokens at another position
    assert key([1, 23], 2).blocks != key([12, 3], 2).blocks


# ------------------------------------------------------------------------------------------------ F9.2 what a hit saves


def test_time_and_work_saved() -> None:  # F9.2
    saved = prefix.suffix_prefill(M7_HA, 2200, 2000, grouping="whole")
    assert saved.whole_flop == 29764039475200
    assert saved.suffix_flop == 2810917683200
    assert saved.whole_s == approx(0.09539756242051282, rel=EXACT)
    assert saved.suffix_s == approx(0.009009351548717948, rel=EXACT)
    assert saved.saved_flop_share * 100 == approx(90.56, abs=0.005)
    assert saved.saved_s == approx(0.09539756242051282 - 0.009009351548717948, rel=EXACT)


def test_floor_of_a_hit() -> None:  # F9.2
    read = 2 * 6607077376  # W_read of M7: all weights but the input embedding, at 2 bytes
    assert prefix.suffix_floor_s(read, 2000 * 524288, 2.0e12) == approx(0.007131365376, rel=EXACT)


@given(st.integers(1, 20000), st.data())
def test_saved_work_is_that_of_the_prefix(prompt: int, data) -> None:  # F9.2: exact in integers
    reused = data.draw(st.integers(0, prompt - 1))
    saved = prefix.suffix_prefill(M7_HA, prompt, reused)
    # The prefix alone, without a head: nobody asks for its logits.
    of_prefix = linear_flop(6476005376, 0, reused) + attention_flop(32, 128, 32, causal_pairs(reused))
    assert saved.whole_flop - saved.suffix_flop == of_prefix
    assert saved.computed_tokens == prompt - reused
    assert saved.saved_s >= -EXACT


@pytest.mark.parametrize("model", [M8_HH, step_model(DS, HH), step_model(WINDOWED, HH)], ids=["m8", "ds", "windowed"])
def test_a_longer_prefix_never_costs_time(model) -> None:
    times = [prefix.suffix_prefill(model, 8192, reused).suffix_s for reused in range(0, 8192, 64)]
    assert times == sorted(times, reverse=True)


@given(st.integers(0, 8191), st.floats(0, 1), st.floats(0, 1))
def test_hits_and_skipped_work_are_separate(reused: int, share: float, rate: float) -> None:
    saved = prefix.suffix_prefill(M8_HH, 8192, reused, skipped_share=share)
    least = prefix.suffix_prefill(M8_HH, 8192, reused)
    assert least.suffix_s <= saved.suffix_s <= saved.whole_s
    assert 8192 - saved.computed_tokens == approx(share * reused, abs=1)
    assert saved.mean_s(rate) == approx(rate * saved.suffix_s + (1 - rate) * saved.whole_s, rel=EXACT)


def test_a_share_of_tokens_is_not_rounded_by_floats() -> None:
    assert prefix.suffix_prefill(M8_HH, 20, 10, skipped_share=0.7).computed_tokens == 13  # 10 own, and 3 of the prefix


@given(st.integers(1, 10**6), st.data())
def test_whole_shares_skip_whole_tokens(reused: int, data) -> None:
    skipped = data.draw(st.integers(0, reused))
    for share in (skipped / reused, 1 - (reused - skipped) / reused):
        assert (
            prefix.suffix_prefill(M8_HH, reused + 5, reused, skipped_share=share).computed_tokens
            == reused + 5 - skipped
        )


# ------------------------------------------------------------------------------------------------ F9.3 memory held


def test_memory_held() -> None:  # F9.3
    assert prefix.held_bytes(cache_layout(M7, BF16), [2000]) == 1048576000
    # Two prompts with a common head of 2000 tokens and own tails: the head is held once.
    assert prefix.held_bytes(cache_layout(M7, BF16), [2000, 100, 50]) == 524288 * 2150
    assert prefix.held_bytes(cache_layout(WINDOWED, BF16), [2000]) == 131072 * 1024
    in_blocks = PagedCache((PageGroup("full", 1, 16, 16 * 524288),), shared=True)
    assert prefix.held_bytes(in_blocks, [2005]) == 126 * 16 * 524288


# ------------------------------------------------------------------------------------------------ F9.4 hit rates

ZIPF = [
    (0.8, 133.86473273504453, 0.3777902212829579, 0.525826511576791),
    (1, 180.92892814305714, 0.5765246161690034, 0.6929928142500623),
    (1.2, 288.3729865428296, 0.7574503358049721, 0.8310029058089393),
]


@pytest.mark.parametrize(("exponent", "lasting", "hit", "perfect"), ZIPF)
def test_hit_rates_of_a_thousand_equal_prefixes(exponent: float, lasting: float, hit: float, perfect: float) -> None:
    popularity = prefix.zipf_popularity(1000, exponent)  # F9.4
    assert prefix.characteristic_requests(popularity, 100) == approx(lasting, rel=EXACT)
    assert prefix.lru_hit_rates(popularity, 100).requests == approx(hit, rel=EXACT)
    assert prefix.lru_hit_rates(popularity, 100).tokens == approx(hit, rel=EXACT)
    assert prefix.perfect_hit_rates(popularity, 100).requests == approx(perfect, rel=EXACT)


def simulated(popularity, capacity: float, sizes, requests: int, seed: int) -> tuple[float, float]:
    """Hit rates of an LRU cache, of requests and of tokens, after it has filled."""
    draw = random.Random(seed)
    cache: OrderedDict[int, float] = OrderedDict()
    held, hits, hit_tokens, tokens = 0.0, 0, 0.0, 0.0
    for number, item in enumerate(draw.choices(range(len(popularity)), popularity, k=requests)):
        hit = item in cache
        if number >= requests // 10:
            hits += hit
            tokens += sizes[item]
            hit_tokens += sizes[item] * hit
        if hit:
            cache.move_to_end(item)
            continue
        cache[item] = sizes[item]
        held += sizes[item]
        while held > capacity:
            held -= cache.popitem(last=False)[1]
    return hits / (requests - requests // 10), hit_tokens / tokens


@pytest.mark.parametrize("exponent", [row[0] for row in ZIPF])
def test_che_against_a_simulated_cache(exponent: float) -> None:  # F9.4
    popularity = prefix.zipf_popularity(1000, exponent)
    found, _ = simulated(popularity, 100, [1.0] * 1000, 300_000, seed=1)
    assert prefix.lru_hit_rates(popularity, 100).requests == approx(found, abs=0.004)
    if exponent == 1:
        assert found == approx(0.5772, abs=0.004)  # the simulation of the formula collection


def test_che_against_a_simulated_cache_of_unequal_prefixes() -> None:  # F9.4
    draw = random.Random(3)
    sizes = [float(draw.choice([16, 64, 256, 1024])) for _ in range(500)]
    popularity = prefix.zipf_popularity(500, 1)
    requests, tokens = simulated(popularity, 20_000, sizes, 300_000, seed=2)
    found = prefix.lru_hit_rates(popularity, 20_000, sizes)
    assert found.requests == approx(requests, abs=0.01)
    assert found.tokens == approx(tokens, abs=0.01)
    assert abs(found.requests - found.tokens) > 0.02  # hits of requests are not hits of tokens


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 5000)), min_size=1, max_size=40), st.floats(0, 1.1))
def test_che_solves_its_equation_below_the_perfect_cache(items, share: float) -> None:  # F9.4
    asked = [count for count, _ in items]
    asked[0] += 1
    sizes = [float(size) for _, size in items]
    popularity = [count / sum(asked) for count in asked]
    capacity = max(*sizes, 1.0, share * sum(sizes))
    lasting = prefix.characteristic_requests(popularity, capacity, sizes)
    rates, most = (
        function(popularity, capacity, sizes) for function in (prefix.lru_hit_rates, prefix.perfect_hit_rates)
    )
    if lasting is None:
        assert sum(size for p, size in zip(popularity, sizes, strict=True) if p) <= capacity
        assert rates.requests == approx(1) == rates.tokens
    else:
        filled = sum(size * (1 - math.exp(-p * lasting)) for p, size in zip(popularity, sizes, strict=True))
        assert filled == approx(capacity, rel=1e-9)
    assert 0 < rates.requests <= most.requests * (1 + EXACT) <= 1 + EXACT
    assert 0 < rates.tokens <= most.tokens * (1 + EXACT) <= 1 + EXACT


@given(st.lists(st.integers(1, 9), min_size=1, max_size=7), st.data())
def test_perfect_cache_by_enumeration(asked, data) -> None:  # F9.4
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=len(asked), max_size=len(asked)))
    capacity = data.draw(st.integers(max(sizes), 30))
    popularity = [count / sum(asked) for count in asked]

    def dot(pick, values) -> float:
        return sum(value for picked, value in zip(pick, values, strict=True) if picked)

    def best(sizes, gains) -> float:
        chosen = itertools.product([0, 1], repeat=len(sizes))
        return max(dot(pick, gains) for pick in chosen if dot(pick, sizes) <= capacity)

    def best_tokens() -> float:
        tokens = [p * size for p, size in zip(popularity, sizes, strict=True)]
        return best(sizes, tokens) / sum(tokens)

    alike = [1] * len(asked)
    assert prefix.perfect_hit_rates(popularity, capacity).requests == approx(best(alike, popularity))
    bound = prefix.perfect_hit_rates(popularity, capacity, sizes)
    assert bound.requests >= best(sizes, popularity) - EXACT
    assert bound.tokens >= best_tokens() - EXACT


def test_a_cache_for_everything_always_hits() -> None:
    assert prefix.characteristic_requests([0.5, 0.5, 0.0], 2) is None
    assert prefix.lru_hit_rates([0.5, 0.5, 0.0], 2) == prefix.HitRates(1.0, 1.0)
    # The second is asked for so rarely that the time overflows: it is as if it were not.
    assert prefix.lru_hit_rates([1.0, 1e-320], 1.5).requests == 1.0


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "call",
    [
        lambda: key([1, 2], 0),
        lambda: key([1.5, 2.9], 2),  # not the key of [1, 2]
        lambda: key([1.0, 2.0], 2),
        lambda: key([True, False], 2),
        lambda: key([-1, 2], 2),
        lambda: key("12", 2),
        lambda: key([1, 2], 2, model=None),
        lambda: prefix.reusable_tokens(5, 4),
        lambda: prefix.reusable_tokens(0, 0),
        lambda: prefix.reusable_tokens(-1, 4),
        lambda: prefix.reusable_tokens(1, 4, 0),
        lambda: prefix.suffix_tokens(4, 4),
        lambda: prefix.suffix_tokens(4, -1),
        lambda: prefix.suffix_tokens(4, 1.5),
        lambda: prefix.held_bytes(cache_layout(M7, BF16), [-1]),
        lambda: prefix.suffix_prefill(M8_HH, 0, 0),
        lambda: prefix.suffix_prefill(M8_HH, 100, 100),
        lambda: prefix.suffix_prefill(M8_HH, 100, 50, skipped_share=1.1),
        lambda: prefix.suffix_prefill(M8_HH, 100, 50, skipped_share=math.nan),
        lambda: prefix.suffix_prefill(M8_HH, 100, 50).mean_s(-0.1),
        lambda: prefix.suffix_floor_s(-1, 0, 1),
        lambda: prefix.suffix_floor_s(1, -1, 1),
        lambda: prefix.suffix_floor_s(1, 1, 0),
        lambda: prefix.realised_saving(1, 1, 1),
        lambda: prefix.realised_saving(0, 1, 1),
        lambda: prefix.realised_saving(1, math.inf, 0.5),
        lambda: prefix.zipf_popularity(0, 1),
        lambda: prefix.zipf_popularity(10, -1),
        lambda: prefix.zipf_popularity(10, math.inf),
        lambda: prefix.lru_hit_rates([], 1),
        lambda: prefix.lru_hit_rates([0.5, 0.4], 1),
        lambda: prefix.lru_hit_rates([1.5, -0.5], 1),
        lambda: prefix.lru_hit_rates([0.5, 0.5], 0),
        lambda: prefix.lru_hit_rates([0.5, 0.5], math.nan),
        lambda: prefix.lru_hit_rates([0.5, 0.5], 1, [1]),
        lambda: prefix.lru_hit_rates([0.5, 0.5], 1, [1, 0]),
        lambda: prefix.lru_hit_rates([0.5, 0.5], 1, [1, 2]),
        lambda: prefix.perfect_hit_rates([0.5, 0.4], 1),
        lambda: prefix.characteristic_requests([0.5, 0.5], 0.5),
    ],
)
def test_outside_the_domain(call) -> None:
    with pytest.raises(DomainError):
        call()
