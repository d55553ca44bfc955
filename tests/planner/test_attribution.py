"""Golden values of formulas F18.2 and F18.4 on step models, and what shares and drops must obey."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, HA, HH, M7, M8, step_model

from roofplan import hardware
from roofplan.errors import DomainError
from roofplan.planner.attribution import TERMS, figure_attribution, step_attribution
from roofplan.planner.costs import Load
from roofplan.planner.parallel import Layout
from roofplan.planner.step import Efficiency, Host, StepModel

M7_HA, M8_HH = step_model(M7, HA), step_model(M8, HH)
LINKED = step_model(M8, hardware.load("h100-sxm"), layout=Layout(tp=4)).at(Efficiency(0.6, 0.8, 5e-6))
MODELS = st.sampled_from([M7_HA, M8_HH, LINKED, step_model(DS, HH)])
LOADS = st.builds(
    Load, st.integers(0, 200), st.integers(1, 20_000), st.integers(1, 6), st.integers(1, 4000), st.integers(0, 4000)
)


def test_shares_of_a_memory_bound_step() -> None:  # F18.2
    found = step_attribution(M7_HA, Load(32, 4096), "whole")
    assert found["weights"].share == approx(0.16127876321380122, rel=1e-7)
    assert found["cache"].share == approx(0.8387212367861988, rel=1e-7)
    assert found["compute"].share == approx(0, abs=1e-9)


def test_drops_of_a_step() -> None:  # F18.4: a term is set to zero
    read, cache = 13214154752, 32 * 4096 * 524288
    found = step_attribution(M7_HA, Load(32, 4096), "whole")
    step = M7_HA.step_s(32, 4096, grouping="whole")
    compute = M7_HA.totals(Load(32, 4096))[0] / 312e12
    assert found["cache"].drop_s == approx(step - max(read / 2e12, compute), rel=1e-9)
    assert found["weights"].drop_s == approx(read / 2e12, rel=1e-9)
    assert step == approx((read + cache) / 2e12, rel=1e-12)
    assert found["compute"].drop_s == 0  # it hides behind the bytes


def test_compute_bounds_a_prefill() -> None:  # F18.4
    found = step_attribution(M8_HH, Load(0, 0, chunk=8192), "whole")
    assert found["compute"].share == approx(1, abs=1e-7)
    assert found["weights"].drop_s == found["cache"].drop_s == 0


def test_links_and_hosts_are_terms_of_their_own() -> None:  # F18.4
    load = Load(16, 1000)
    exchanged = sum(cost.time_s for cost in LINKED.costs(load) if cost.bound == "interconnect")
    found = step_attribution(LINKED, load)
    step = LINKED.step_s(16, 1000)
    assert found["link"].drop_s == approx(exchanged, rel=1e-9)
    assert found["link"].share == approx(exchanged / step, rel=1e-6)
    assert found["overhead"].drop_s == 0
    hosted = StepModel(LINKED.operators, LINKED.times, LINKED.efficiency, Host(0.001, 0.0001, 0.0))
    found = step_attribution(hosted, load)
    assert found["overhead"].drop_s == approx(0.001 + 16 * 0.0001, rel=1e-9)
    assert found["overhead"].share == approx(0.0026 / (step + 0.0026), rel=1e-6)


@given(MODELS, LOADS)
def test_shares_sum_to_one_and_drops_to_no_more_than_terms_take(model: StepModel, load: Load) -> None:  # F18.2, F18.4
    held = {name: getattr(load, name) for name in ("verify", "chunk", "past")}
    step = model.step_s(load.decoders, load.context, **held)
    found = step_attribution(model, load)
    assert tuple(found) == TERMS
    assert math.fsum(each.share for each in found.values()) == approx(1, abs=1e-6)
    for each in found.values():
        assert -1e-9 * step <= each.drop_s <= step * (1 + 1e-9)
        # What binds a part of the time takes that part at least: with less of it, the step gets shorter, if not by all of the share.
        assert (each.drop_s > 0) >= (each.share > 1e-6)


def test_any_figure_of_a_step_model() -> None:  # F18.4: TTFT of two chunks
    def ttft_s(model: StepModel) -> float:
        return sum(model.step_s(0, 0, chunk=1024, past=past, grouping="whole") for past in (0, 1024))

    found = figure_attribution(M8_HH, ttft_s)
    assert found["compute"].share == approx(1, abs=1e-7)
    floor = sum(sum(M8_HH.totals(Load(0, 0, chunk=1024, past=past))[1:]) / 3.35e12 for past in (0, 1024))  # bytes alone
    assert found["compute"].drop_s == approx(ttft_s(M8_HH) - floor, rel=1e-9)


@pytest.mark.parametrize(
    "call",
    [
        lambda: step_attribution(StepModel((), ()), Load(1, 1)),
        lambda: step_attribution(M8_HH, Load(1, 1), "operator"),
        lambda: figure_attribution(M8_HH, lambda _: math.nan),
        lambda: figure_attribution(M8_HH, lambda _: 0.0),
        lambda: figure_attribution(M8_HH, lambda _: -1.0),
    ],
)
def test_outside_the_domain(call) -> None:
    with pytest.raises(DomainError):
        call()
