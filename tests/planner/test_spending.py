"""Golden values of formulas F13.8 and F13.9: dollars and energy per token, and a published day that closes on itself."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from roofplan.errors import DomainError
from roofplan.planner import spending

EXACT = 1e-12
DAY_S = 86400
PRICES = st.floats(0.01, 1e4)
RATES = st.floats(0.1, 1e6)


def test_cost_per_million_tokens() -> None:  # F13.8
    assert spending.usd_per_million_tokens(8 * 2, 14800) == approx(0.3003003003003003, rel=EXACT)


def test_the_published_day() -> None:  # F13.8
    assert spending.usd_of_devices(226.75 * 8, 2, 24) == approx(87072, rel=EXACT)
    loads = [(608e9 / DAY_S, 73.7e3), (168e9 / DAY_S, 14.8e3)]
    assert spending.servers_busy(loads[:1]) == approx(95.48, abs=0.005)
    assert spending.servers_busy(loads[1:]) == approx(131.38, abs=0.005)
    assert spending.servers_busy(loads) == approx(226.86, abs=0.005)
    assert spending.servers_busy(loads) == approx(226.75, rel=1e-3)  # as reported
    assert spending.usd_of_tokens([(342e9, 0.14), (266e9, 0.55), (168e9, 2.19)]) == approx(562100, rel=EXACT)
    assert spending.margin(562027, 87072) == approx(5.4547, abs=5e-5)


def test_energy_per_token() -> None:  # F13.9
    assert spending.joules_per_token(700, 32 / 0.010) == approx(0.21875, rel=EXACT)
    joules = spending.joules_per_token(700 * 8, 14800, overhead=1.2)
    assert joules == approx(0.4540540540540541, rel=EXACT)
    assert spending.kwh_per_million_tokens(joules) == approx(0.12612612612612614, rel=EXACT)


@given(PRICES, RATES, RATES)
def test_an_hour_of_tokens_costs_the_hour(price: float, inputs: float, outputs: float) -> None:  # F13.8
    costs = spending.token_costs(price, inputs, outputs)
    for cost, rate in (
        (costs.usd_per_million_input, inputs),
        (costs.usd_per_million_output, outputs),
        (costs.usd_per_million_total, inputs + outputs),
    ):
        assert cost is not None
        assert cost * rate * 3600 / 1e6 == approx(price, rel=1e-9)


def test_tokens_that_do_not_come_have_no_cost() -> None:
    assert spending.token_costs(3.6, 0, 1000) == spending.TokenCosts(None, 1.0, 1.0)
    assert spending.token_costs(3.6, 0, 0) == spending.TokenCosts(None, None, None)


@given(st.floats(0, 1e5), RATES)
def test_energy_is_that_of_an_hour_on_the_meter(power: float, rate: float) -> None:  # F13.9
    kwh_of_an_hour = power / 1000
    per_million = spending.kwh_per_million_tokens(spending.joules_per_token(power, rate))
    assert per_million * rate * 3600 / 1e6 == approx(kwh_of_an_hour, rel=1e-9)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_negative_and_endless_arguments_are_refused(bad: float) -> None:
    for call in (
        lambda: spending.usd_per_million_tokens(bad, 1),
        lambda: spending.usd_per_million_tokens(1, bad),
        lambda: spending.token_costs(bad, 0, 0),
        lambda: spending.token_costs(1, bad, 1),
        lambda: spending.token_costs(1, 1, bad),
        lambda: spending.servers_busy([(bad, 1)]),
        lambda: spending.servers_busy([(1, bad)]),
        lambda: spending.usd_of_devices(bad, 1, 1),
        lambda: spending.usd_of_devices(1, bad, 1),
        lambda: spending.usd_of_devices(1, 1, bad),
        lambda: spending.usd_of_tokens([(bad, 1)]),
        lambda: spending.usd_of_tokens([(1, bad)]),
        lambda: spending.margin(bad, 1),
        lambda: spending.margin(1, bad),
        lambda: spending.joules_per_token(bad, 1),
        lambda: spending.joules_per_token(1, bad),
        lambda: spending.joules_per_token(1, 1, bad),
        lambda: spending.kwh_per_million_tokens(bad),
    ):
        with pytest.raises(DomainError):
            call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: spending.usd_per_million_tokens(1, 0),
        lambda: spending.servers_busy([(1, 0)]),
        lambda: spending.margin(1, 0),
        lambda: spending.joules_per_token(1, 0),
        lambda: spending.joules_per_token(1, 1, 0.99),
    ],
)
def test_the_edges_of_the_domains(call) -> None:
    with pytest.raises(DomainError):
        call()
