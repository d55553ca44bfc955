"""Tests of fit against closed forms, printed tables and draws."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from roofplan.errors import DomainError
from roofplan.planner import goodness

# ------------------------------------------------------------------------------------------------ chi-square


@pytest.mark.parametrize(
    ("statistic", "degrees", "tail"),
    [  # printed tables: upper points of chi-square
        (3.841459, 1, 0.05),
        (6.634897, 1, 0.01),
        (18.307038, 10, 0.05),
        (124.342113, 100, 0.05),
        (1074.679449, 1000, 0.05),
        (1.145476, 5, 0.95),
    ],
)
def test_printed_tables(statistic: float, degrees: int, tail: float) -> None:
    assert goodness.chi_square_tail(statistic, degrees) == approx(tail, rel=1e-5)


@given(st.floats(0, 400), st.integers(1, 30))
def test_even_degrees_have_a_closed_form(statistic: float, half: int) -> None:
    """With 2 m degrees the tail is that of a Poisson process: fewer than m events in x / 2."""
    x = statistic / 2
    tail = math.fsum(math.exp(-x + n * math.log(x) - math.lgamma(n + 1)) if x else float(n == 0) for n in range(half))
    assert goodness.chi_square_tail(statistic, 2 * half) == approx(tail, rel=1e-9, abs=1e-300)


def test_one_degree_is_a_normal_square() -> None:
    for z in (0.1, 1.0, 3.0, 6.0):
        assert goodness.chi_square_tail(z * z, 1) == approx(math.erfc(z / math.sqrt(2)), rel=1e-9)


def test_counts() -> None:
    found = goodness.chi_square([60, 40], [0.5, 0.5])
    assert (found.statistic, found.degrees, found.pooled) == (4.0, 1, 0)
    assert found.p_value == approx(math.erfc(math.sqrt(2)), rel=1e-12)  # sqrt(4 / 2)


def test_rare_kinds_are_pooled() -> None:
    # Of 100: 2, 2, 2, 10 and 84 expected. The first three make 6.
    found = goodness.chi_square([1, 3, 5, 11, 80], [0.02, 0.02, 0.02, 0.1, 0.84])
    assert (found.pooled, found.degrees) == (3, 2)
    assert found.statistic == approx((9 - 6) ** 2 / 6 + 1 / 10 + 16 / 84)


def test_a_pool_that_stays_small_takes_the_next_kind() -> None:
    found = goodness.chi_square([1, 5, 94], [0.01, 0.06, 0.93])
    assert (found.pooled, found.degrees) == (2, 1)
    assert found.statistic == approx(1 / 7 + 1 / 93)


def test_what_is_impossible_does_not_happen() -> None:
    assert goodness.chi_square([50, 49, 1], [0.5, 0.5, 0]).p_value == 0


def test_p_values_of_draws_are_uniform() -> None:
    rng = np.random.default_rng(3)
    shares = [0.4, 0.3, 0.2, 0.06, 0.04]
    p_values = [goodness.chi_square(rng.multinomial(1000, shares).tolist(), shares).p_value for _ in range(400)]
    assert goodness.kolmogorov_tail(goodness.kolmogorov_distance(p_values), 400) > 0.01


# ------------------------------------------------------------------------------------------------ Kolmogorov


@pytest.mark.parametrize(
    ("count", "distance", "tail"),
    [(5, 0.563, 0.05), (10, 0.409, 0.05), (20, 0.294, 0.05), (20, 0.352, 0.01), (50, 0.188, 0.05)],  # printed tables
)
def test_critical_distances(count: int, distance: float, tail: float) -> None:
    assert goodness.kolmogorov_tail(distance, count) == approx(tail, abs=0.004)


def test_distance() -> None:
    assert goodness.kolmogorov_distance([0.1, 0.2, 0.9]) == approx(2 / 3 - 0.2)
    assert goodness.kolmogorov_distance([0.0, 0.0]) == 1
    assert goodness.kolmogorov_tail(0, 20) == 1


# ------------------------------------------------------------------------------------------------ domains


@pytest.mark.parametrize(
    "call",
    [
        lambda: goodness.chi_square_tail(-1, 1),
        lambda: goodness.chi_square_tail(math.nan, 1),
        lambda: goodness.chi_square_tail(1, 0),
        lambda: goodness.chi_square([1, 2], [0.5, 0.6]),
        lambda: goodness.chi_square([1, 2, 3], [0.5, 0.5]),
        lambda: goodness.chi_square([0, 0], [0.5, 0.5]),
        lambda: goodness.chi_square([-1, 2], [0.5, 0.5]),
        lambda: goodness.chi_square([3, 3], [0.5, 0.5]),  # fewer than five of each: one kind is left
        lambda: goodness.kolmogorov_distance([]),
        lambda: goodness.kolmogorov_distance([1.5]),
        lambda: goodness.kolmogorov_tail(2, 20),
        lambda: goodness.kolmogorov_tail(0.1, 0),
    ],
)
def test_domains(call) -> None:
    with pytest.raises(DomainError):
        call()
