"""Golden values of formula F11.9 for look-ups, and look-ups against rounds that are drawn one by one or enumerated."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, HH, M8, step_model

from roofplan.errors import DomainError
from roofplan.planner import lookup_drafts
from roofplan.planner.acceptance import independent_rates, tokens_of_round
from roofplan.planner.lookup_drafts import Lookup
from roofplan.planner.speculative_steps import Drafter, speculation_table

EXACT = 1e-12
M8_HH, DS_HH = step_model(M8, HH), step_model(DS, HH)
MIXED = Lookup(0.4, {1: 0.2, 3: 0.5, 6: 0.3}, independent_rates(0.7, 6))


@st.composite
def lookups(draw) -> Lookup:
    weights = draw(st.dictionaries(st.integers(1, 5), st.integers(1, 9), min_size=1))
    lengths = {length: weight / sum(weights.values()) for length, weight in weights.items()}
    return Lookup(draw(st.floats(0, 1)), lengths, independent_rates(draw(st.floats(0, 1)), 5))


@pytest.mark.parametrize(("drafts", "gain"), [(1, 1.5), (3, 1.875), (5, 1.96875)])
def test_a_match_in_every_round_of_one_length(drafts: int, gain: float) -> None:  # F11.9
    lookup = Lookup(1.0, {drafts: 1.0}, independent_rates(0.5, drafts))
    assert lookup_drafts.lookup_speedup(lookup) == approx(gain, rel=EXACT)
    assert lookup_drafts.lookup_rates(lookup) == approx(independent_rates(0.5, drafts), rel=EXACT)


def test_no_match_is_plain_decoding() -> None:  # F11.9
    lookup = Lookup(0.0, {4: 1.0}, independent_rates(0.9, 4))
    assert lookup_drafts.lookup_speedup(lookup) == 1
    found = lookup_drafts.lookup_speculation(M8_HH, lookup, 8, 1024)
    assert (found.expected_tokens, found.mean_drafts) == (1, 0)
    assert found.round_s == approx(M8_HH.step_s(8, 1024), rel=EXACT)
    assert found.speedup == approx(1, rel=EXACT)


@given(lookups(), st.lists(st.floats(1, 4), min_size=5, max_size=5))
def test_rounds_by_their_length(lookup: Lookup, ratios: list[float]) -> None:  # F11.4, F11.9: a mixture, term by term
    tokens = 1.0 - lookup.hit_rate
    cost = 1.0 - lookup.hit_rate
    for length, share in lookup.lengths.items():
        tokens += lookup.hit_rate * share * (1 + sum(lookup.rates[:length]))
        cost += lookup.hit_rate * share * ratios[length - 1]
    assert tokens_of_round(lookup_drafts.lookup_rates(lookup)).mean == approx(tokens, rel=1e-9)
    by_length = {length: ratios[length - 1] for length in lookup.lengths}
    assert lookup_drafts.lookup_speedup(lookup, by_length) == approx(tokens / cost, rel=1e-9)


def test_against_rounds_that_are_drawn() -> None:  # F11.9
    generator = np.random.default_rng(3)
    count = 200_000
    found = generator.random(count) < MIXED.hit_rate
    lengths = np.where(found, generator.choice([1, 3, 6], count, p=[0.2, 0.5, 0.3]), 0)
    kept = np.cumprod(generator.random((count, 6)) < 0.7, axis=1).sum(axis=1)
    tokens = 1 + np.minimum(kept, lengths)
    expected = tokens_of_round(lookup_drafts.lookup_rates(MIXED))
    assert tokens.mean() == approx(expected.mean, abs=5 * tokens.std() / math.sqrt(count))
    assert tokens.std() == approx(expected.standard_deviation, rel=0.02)
    assert lengths.mean() == approx(MIXED.mean_drafts, abs=5 * lengths.std() / math.sqrt(count))


@pytest.mark.parametrize("model", [M8_HH, DS_HH], ids=["m8", "ds"])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_a_batch_by_enumeration(model, batch: int) -> None:  # F11.6, F11.9: every combination of matches
    shares = dict(enumerate(MIXED.of_round()))
    mean = sum(
        math.prod(shares[length] for length in lengths)
        * model.step_s(float(batch), 1024, verify=1 + sum(lengths) / batch)
        for lengths in itertools.product(shares, repeat=batch)
    )
    found = lookup_drafts.lookup_speculation(model, MIXED, batch, 1024, overhead_s=1e-3)
    assert found.round_s == approx(mean + 1e-3, rel=1e-9)
    assert found.tpot_s == approx(found.round_s / found.expected_tokens, rel=EXACT)
    assert found.output_tokens_per_s == approx(batch * found.expected_tokens / found.round_s, rel=EXACT)
    assert found.speedup == approx(found.expected_tokens * model.step_s(batch, 1024) / found.round_s, rel=1e-9)


@pytest.mark.parametrize("batch", [1, 64, 500])
def test_a_match_in_every_round_is_a_table_row(batch: int) -> None:  # F11.6
    lookup = Lookup(1.0, {4: 1.0}, independent_rates(0.8, 4))
    found = lookup_drafts.lookup_speculation(M8_HH, lookup, batch, 2048)
    row = speculation_table(M8_HH, Drafter(), independent_rates(0.8, 4), [batch], 2048)[4]
    assert found.round_s == approx(row.round_s, rel=1e-9)
    assert found.speedup == approx(row.speedup, rel=1e-9)


@given(lookups(), st.integers(1, 300))
def test_drafts_that_vary_cost_no_less_than_their_mean(
    lookup: Lookup, batch: int
) -> None:  # F11.9: a step bends upwards
    found = lookup_drafts.lookup_speculation(M8_HH, lookup, batch, 1024)
    assert found.round_s >= M8_HH.step_s(batch, 1024, verify=1 + lookup.mean_drafts) * (1 - 1e-9)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Lookup(1.1, {1: 1.0}, (0.5,)),
        lambda: Lookup(0.5, {}, ()),
        lambda: Lookup(0.5, {0: 1.0}, (0.5,)),
        lambda: Lookup(0.5, {1.5: 1.0}, (0.5, 0.5)),
        lambda: Lookup(0.5, {1: 0.9}, (0.5,)),
        lambda: Lookup(0.5, {2: 1.0}, (0.5,)),
        lambda: Lookup(0.5, {2: 1.0}, (0.5, 0.6)),
        lambda: Lookup(0.5, [1.0], (0.5,)),
        lambda: lookup_drafts.lookup_speedup(MIXED, {1: 1.0}),
        lambda: lookup_drafts.lookup_speedup(MIXED, dict.fromkeys((1, 3, 6), 0.0)),
        lambda: lookup_drafts.lookup_speedup(MIXED, lookup_cost=-1),
        lambda: lookup_drafts.lookup_speculation(M8_HH, MIXED, 0, 1024),
        lambda: lookup_drafts.lookup_speculation(M8_HH, MIXED, 2**20, 1024),
        lambda: lookup_drafts.lookup_speculation(M8_HH, MIXED, 1, 0),
        lambda: lookup_drafts.lookup_speculation(M8_HH, MIXED, 1, 1024, overhead_s=math.nan),
        lambda: lookup_drafts.lookup_speculation(M8_HH, MIXED, 1, 1024, grouping="all"),
    ],
)
def test_outside_the_domain(call) -> None:
    with pytest.raises(DomainError):
        call()
