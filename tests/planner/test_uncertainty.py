"""Golden values of formulas F18.1 to F18.4; elasticities in closed form against differences, errors against sampling."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, HA, HH, M7, M8, step_model

from roofplan import hardware
from roofplan.errors import DomainError
from roofplan.planner import uncertainty
from roofplan.planner.costs import Load
from roofplan.planner.parallel import Layout
from roofplan.planner.roofline import smooth_max
from roofplan.planner.step import Efficiency, StepModel

EXACT = 1e-12
M7_HA, M8_HH = step_model(M7, HA), step_model(M8, HH)
EMPTY = StepModel((), ())
CASE = Load(32, 4096)  # of F18.1 and F18.2
ENDLESS = (math.nan, math.inf, -math.inf)


def test_interval_of_a_step() -> None:  # F18.1
    low, high = Efficiency(bandwidth=0.92), Efficiency(bandwidth=0.70)
    for ends in ((low, high), (high, low)):
        found = uncertainty.interval(M7_HA, *ends, lambda model: model.step_s(32, 4096, grouping="whole"))
        assert found.low == approx(0.04452914754782609, rel=EXACT)
        assert found.high == approx(0.05852402249142857, rel=EXACT)


@given(st.floats(0.3, 1), st.floats(0.3, 1), st.floats(0, 1), st.floats(0, 1), st.integers(0, 4096))
def test_an_interval_encloses_what_lies_between(
    low: float, high: float, compute: float, bandwidth: float, chunk: int
) -> None:  # F18.1
    def step(model):
        return model.step_s(8, 1000, chunk=chunk)

    found = uncertainty.interval(M8_HH, Efficiency(low, low), Efficiency(high, high), step)
    between = Efficiency(low + compute * (high - low), low + bandwidth * (high - low))
    assert found.low * (1 - EXACT) <= step(M8_HH.at(between)) <= found.high * (1 + EXACT)


def test_shares_of_a_memory_bound_step() -> None:  # F18.2
    shares = uncertainty.byte_shares(M7_HA, CASE)
    assert shares.weights == approx(0.16127876321380122, rel=EXACT)
    assert shares.cache == approx(0.8387212367861988, rel=EXACT)
    assert shares.weights + shares.cache == approx(1, rel=EXACT)
    _, weights, cache = M7_HA.totals(CASE)
    assert shares.weights / shares.cache == approx(weights / cache, rel=EXACT)
    by_difference = uncertainty.step_elasticities(M7_HA, CASE, "whole")
    assert by_difference["bandwidth"] == approx(-1, abs=1e-7)
    assert by_difference["compute"] == approx(0, abs=1e-9)
    assert by_difference["context"] == approx(shares.cache, rel=1e-7)
    assert by_difference["decoders"] == approx(shares.cache, rel=1e-7)


def test_shares_of_a_smooth_maximum() -> None:  # F18.2
    assert smooth_max(1, 1.5, 4) == approx(1.569144496357498, rel=EXACT)
    compute, memory = uncertainty.smooth_max_shares(1, 1.5, 4)
    assert compute == approx(0.16494845360824736, rel=EXACT)
    assert memory == approx(0.8350515463917526, rel=EXACT)


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(1, 30))
def test_shares_of_a_smooth_maximum_are_elasticities(compute: float, memory: float, p: float) -> None:  # F18.2
    shares = uncertainty.smooth_max_shares(compute, memory, p)
    assert sum(shares) == approx(1)
    assert shares[0] == approx(uncertainty.elasticity(lambda x: smooth_max(x, memory, p), compute), abs=1e-5)
    assert shares[1] == approx(uncertainty.elasticity(lambda x: smooth_max(compute, x, p), memory), abs=1e-5)


@pytest.mark.parametrize("load", [CASE, Load(1, 10), Load(512, 256), Load(32, 2048, 1, 777, 300), Load(8, 500, 5)])
@pytest.mark.parametrize(
    "model",
    [
        M8_HH.at(Efficiency(0.7, 0.8)),
        step_model(DS, HH).at(Efficiency(0.5, 0.9)),
        step_model(M8, hardware.load("h100-sxm"), layout=Layout(tp=4)).at(Efficiency(0.6, 0.8, 5e-6)),
    ],
)
def test_closed_elasticities_are_those_of_differences(model: StepModel, load: Load) -> None:  # F18.2
    closed = uncertainty.rate_elasticities(model, load)
    by_difference = uncertainty.step_elasticities(model, load)
    assert closed.compute == approx(by_difference["compute"], abs=1e-6)
    assert closed.bandwidth == approx(by_difference["bandwidth"], abs=1e-6)
    assert closed.collective_latency == approx(by_difference.get("collective_latency_s", 0), abs=1e-6)
    assert -closed.compute - closed.bandwidth + closed.collective_latency == approx(1)


def test_elasticities_are_named_after_what_is_not_zero() -> None:
    assert set(uncertainty.step_elasticities(M8_HH, Load(4, 100))) == {
        "compute",
        "bandwidth",
        "decoders",
        "context",
        "verify",
    }
    prefill = uncertainty.step_elasticities(M8_HH, Load(0, 0, chunk=8192, past=100))
    assert {"chunk", "past"} <= set(prefill)
    assert 1 < prefill["chunk"] < 2  # linear work, and attention that grows with its square


@given(st.floats(0.1, 10), st.floats(-3, 3))
def test_elasticity_of_a_power(at: float, power: float) -> None:  # F18.2
    assert uncertainty.elasticity(lambda x: 7 * x**power, at) == approx(power, abs=1e-9)


def test_combination_of_errors() -> None:  # F18.3
    shares = uncertainty.byte_shares(M7_HA, CASE)
    assert uncertainty.combined_error([(-1, 0.10), (shares.cache, 0.05)]) == approx(0.10843723199432209, rel=EXACT)
    assert uncertainty.combined_error([]) == 0


@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(0, 0.05), st.floats(0, 0.05))
def test_combination_is_the_spread_of_samples(first: float, second: float, one: float, other: float) -> None:  # F18.3
    normal = np.random.default_rng(0).standard_normal((2, 20_000))
    figure = np.exp(normal[0] * one) ** first * np.exp(normal[1] * other) ** second
    spread = figure.std() / figure.mean()
    assert uncertainty.combined_error([(first, one), (second, other)]) == approx(spread, rel=0.05, abs=1e-6)


def test_errors_of_a_step_are_those_of_sampled_steps() -> None:  # F18.3 on StepModel
    rng = np.random.default_rng(0)
    bandwidth, context = 0.8 * np.exp(0.05 * rng.standard_normal(4000)), 4096 * np.exp(0.03 * rng.standard_normal(4000))
    model = M7_HA.at(Efficiency(bandwidth=0.8))
    sampled = np.array(
        [
            M7_HA.at(Efficiency(bandwidth=share)).step_s(32, length, grouping="whole")
            for share, length in zip(bandwidth, context, strict=True)
        ]
    )
    found = uncertainty.step_elasticities(model, CASE, "whole")
    expected = uncertainty.combined_error([(found["bandwidth"], 0.05), (found["context"], 0.03)])
    assert expected == approx(sampled.std() / sampled.mean(), rel=4 / math.sqrt(2 * 4000))


def test_attribution_of_a_maximum_hides_terms() -> None:  # F18.4
    terms = {"compute": 1.0, "memory": 1.5, "launch": 0.25}

    def hard(t):
        return max(t["compute"], t["memory"]) + t["launch"]

    def smooth(t):
        return smooth_max(t["compute"], t["memory"], 4) + t["launch"]

    assert uncertainty.attribution(terms, hard) == {"compute": 0.0, "memory": 0.5, "launch": 0.25}
    drops = uncertainty.attribution(terms, smooth)
    assert drops["compute"] == approx(1.569144496357498 - 1.5)
    assert drops["memory"] == approx(1.569144496357498 - 1.0)
    assert sum(drops.values()) < smooth(terms)
    assert terms == {"compute": 1.0, "memory": 1.5, "launch": 0.25}


@given(st.dictionaries(st.text(min_size=1), st.floats(0, 1e6), max_size=5))
def test_attribution_of_a_sum_is_its_terms(terms: dict[str, float]) -> None:  # F18.4
    drops = uncertainty.attribution(terms, lambda t: math.fsum(t.values()))
    assert drops == approx(terms, abs=1e-9)


def test_operators_of_a_step_are_attributed_in_full() -> None:  # F18.4: a sum of maxima over operators is additive
    terms = {cost.name: cost.time_s for cost in M8_HH.costs(CASE)}
    drops = uncertainty.attribution(terms, lambda t: math.fsum(t.values()))
    assert sum(drops.values()) == approx(M8_HH.step_s(32, 4096))


# ---------------------------------------------------------------------------------------------- domains


@pytest.mark.parametrize("bad", ENDLESS)
def test_endless_arguments_are_refused(bad: float) -> None:
    for call in (
        lambda: uncertainty.interval(M8_HH, Efficiency(compute=bad), Efficiency(), lambda _: 1),
        lambda: uncertainty.interval(M8_HH, Efficiency(), Efficiency(bandwidth=bad), lambda _: 1),
        lambda: uncertainty.interval(M8_HH, Efficiency(), Efficiency(collective_latency_s=bad), lambda _: 1),
        lambda: uncertainty.elasticity(lambda x: x, bad),
        lambda: uncertainty.elasticity(lambda _: bad),
        lambda: uncertainty.smooth_max_shares(bad, 1, 2),
        lambda: uncertainty.smooth_max_shares(1, bad, 2),
        lambda: uncertainty.smooth_max_shares(1, 1, bad),
        lambda: uncertainty.combined_error([(bad, 0.1)]),
        lambda: uncertainty.combined_error([(1, bad)]),
        lambda: uncertainty.attribution({"a": bad}, lambda t: t["a"]),
        lambda: uncertainty.attribution({"a": 1.0}, lambda _: bad),
        lambda: uncertainty.interval(M8_HH, Efficiency(), Efficiency(), lambda _: bad),
    ):
        with pytest.raises(DomainError):
            call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: uncertainty.interval(M8_HH, Efficiency(compute=0), Efficiency(), lambda _: 1),
        lambda: uncertainty.interval(M8_HH, Efficiency(bandwidth=1.01), Efficiency(), lambda _: 1),
        lambda: uncertainty.interval(M8_HH, Efficiency(), Efficiency(collective_latency_s=-1e-9), lambda _: 1),
        lambda: uncertainty.elasticity(lambda x: x, 0),
        lambda: uncertainty.elasticity(lambda x: x - 1),
        lambda: uncertainty.rate_elasticities(EMPTY, CASE),
        lambda: uncertainty.byte_shares(EMPTY, CASE),
        lambda: uncertainty.step_elasticities(EMPTY, CASE),
        lambda: uncertainty.smooth_max_shares(0, 0, 2),
        lambda: uncertainty.smooth_max_shares(1, 1, 0.5),
        lambda: uncertainty.smooth_max_shares(-1, 1, 2),
        lambda: uncertainty.combined_error([(1, -0.1)]),
        lambda: uncertainty.attribution({"a": -1.0}, lambda t: t["a"]),
    ],
)
def test_the_edges_of_the_domains(call) -> None:
    with pytest.raises(DomainError):
        call()
