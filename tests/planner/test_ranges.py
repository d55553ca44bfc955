"""Ranges: nothing beats the roof, low to high lie around what is expected, and rates are times turned round."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from roofplan.planner.ranges import Range

figures, widths = st.floats(1e-9, 1e9), st.floats(1, 10)


def test_a_time_by_hand() -> None:
    assert Range.of_time(2.0, 4.0, 1.25) == Range(bound=2.0, low=3.2, expected=4.0, high=5.0)
    assert Range.of_time(3.9, 4.0, 1.25) == Range(bound=3.9, low=3.9, expected=4.0, high=5.0)
    assert Range.of_time(5.0, 4.0, 1.25) == Range(bound=5.0, low=5.0, expected=5.0, high=6.25)


def test_a_rate_by_hand() -> None:
    assert Range.of_rate(8.0, 4.0, 1.25) == Range(bound=8.0, low=3.2, expected=4.0, high=5.0)
    assert Range.of_rate(4.5, 4.0, 1.25) == Range(bound=4.5, low=3.2, expected=4.0, high=4.5)
    assert Range.of_rate(3.0, 4.0, 1.25) == Range(bound=3.0, low=2.4, expected=3.0, high=3.0)


@given(figures, figures, widths)
def test_no_time_is_shorter_than_the_roof(bound: float, expected: float, width: float) -> None:
    time = Range.of_time(bound, expected, width)
    assert time.bound == bound <= time.low <= time.expected <= time.high
    assert time.expected == max(bound, expected)
    assert time.high == approx(time.expected * width)
    assert time.low >= time.expected / width * (1 - 1e-12)


@given(figures, figures, widths)
def test_no_rate_is_above_the_roof(bound: float, expected: float, width: float) -> None:
    rate = Range.of_rate(bound, expected, width)
    assert rate.low <= rate.expected <= rate.high <= rate.bound == bound
    assert rate.expected == min(bound, expected)
    assert rate.low == approx(rate.expected / width)


@given(figures, figures, widths)
def test_a_rate_is_a_time_turned_round(bound: float, expected: float, width: float) -> None:
    time, rate = Range.of_time(bound, expected, width), Range.of_rate(1 / bound, 1 / expected, width)
    turned = (1 / rate.bound, 1 / rate.high, 1 / rate.expected, 1 / rate.low)
    assert turned == approx((time.bound, time.low, time.expected, time.high), rel=1e-9)


@given(figures, figures, widths, st.floats(1e-3, 1e3))
def test_scaling_keeps_the_order(bound: float, expected: float, width: float, factor: float) -> None:
    time = Range.of_time(bound, expected, width)
    scaled = time.scaled(factor)
    assert scaled.bound <= scaled.low <= scaled.expected <= scaled.high
    assert scaled == Range(time.bound * factor, time.low * factor, time.expected * factor, time.high * factor)


@given(figures, figures, widths, st.floats(1, 2))
def test_a_wider_range_holds_a_narrower_one(bound: float, expected: float, width: float, more: float) -> None:
    for make in (Range.of_time, Range.of_rate):
        narrow, wide = make(bound, expected, width), make(bound, expected, width * more)
        assert wide.low <= narrow.low * (1 + 1e-12)
        assert wide.high >= narrow.high * (1 - 1e-12)
        assert wide.expected == narrow.expected
