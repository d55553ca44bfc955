"""Summaries of samples against values worked out by hand, and what makes samples doubtful."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from roofplan.errors import MeasureError
from roofplan.measure.samples import Summary, noise, quantile, relative_mad, summarise

POSITIVE = st.floats(1e-9, 1e3)


def test_by_hand() -> None:
    # 1..9: median 5, quartiles between ranks 3 and 7; deviations 0,1,1,2,2,3,3,4,4 with median 2.
    said = summarise([9, 1, 8, 2, 7, 3, 6, 4, 5])
    assert (said.median, said.q1, said.q3, said.count) == (5, 3, 7, 9)
    assert said.relative_mad == approx(2 / 5)
    assert said.samples[0] == 9  # in the order in which they were taken


def test_quantiles_lie_between_ranks() -> None:  # Hyndman and Fan 1996, type 7: rank 1 + (n - 1) q
    assert quantile([10, 20, 30, 40], 0.25) == approx(17.5)
    assert quantile([10, 20, 30, 40], 0.5) == 25
    assert quantile([7], 0.9) == 7


def test_noise_of_normal_samples_is_their_deviation() -> None:
    import random

    draw = random.Random(1)
    samples = [draw.gauss(100, 2) for _ in range(20_000)]
    assert noise(samples) == approx(0.02, rel=0.03)


def test_noise_forgives_interruptions() -> None:
    assert relative_mad([1.0] * 9 + [50.0]) == 0


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([1.0] * 5, "only 5 samples"),
        ([1.0, 1.3] * 10, "unsteady"),
        ([1.0] * 20 + [1.6], "1 of 21 samples lie 50% or more"),
    ],
)
def test_doubts_are_told(samples: list[float], words: str) -> None:
    assert any(words in warning for warning in summarise(samples).warnings)


def test_steady_samples_raise_no_doubt() -> None:
    assert summarise([1.0, 1.001] * 10).warnings == ()


def test_dropped_samples_are_told() -> None:
    said = summarise([1.0] * 10, dropped=3)
    assert said.dropped == 3
    assert said.warnings == ("3 samples were dropped: the machine was throttled",)


def test_no_sample_has_a_message_of_its_own() -> None:
    with pytest.raises(MeasureError, match="none was taken"):
        summarise([])
    with pytest.raises(MeasureError, match="all 12 were taken while the machine was throttled"):
        summarise([], dropped=12)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0])
def test_what_is_no_sample(wrong: float) -> None:
    with pytest.raises(MeasureError, match="finite numbers"):
        summarise([1.0, wrong])


def test_times_of_zero_are_samples() -> None:
    assert summarise([0.0] * 10).relative_mad == 0


def test_scaled_and_inverted() -> None:
    said = summarise([1.0, 2.0, 4.0])
    assert said.scaled(1e6).median == 2e6
    assert said.scaled(1e6).relative_mad == said.relative_mad
    rates = said.inverted(8.0)
    assert sorted(rates.samples) == [2.0, 4.0, 8.0]


@given(st.lists(POSITIVE, min_size=1, max_size=50))
def test_order_of_figures(samples: list[float]) -> None:
    said = summarise(samples)
    assert min(samples) <= said.q1 <= said.median <= said.q3 <= max(samples)


@given(st.lists(POSITIVE, min_size=1, max_size=30), st.booleans())
def test_there_and_back(samples: list[float], whole: bool) -> None:
    said = summarise(samples, dropped=1, unmet="noise")
    back = Summary.from_dict(said.to_dict(samples=whole))
    assert back.median == said.median
    assert back.samples == (said.samples if whole else ())
    assert (back.dropped, back.unmet, back.warnings) == (1, "noise", said.warnings)
