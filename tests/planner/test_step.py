"""Golden values of formulas F6.1 to F6.3, F10.1 and F11.6, and properties of the step model."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import HA, HH, M7, M8, M70, deploy, device, step_model

from roofplan import hardware, models
from roofplan.planner.costs import Load
from roofplan.planner.parallel import Layout
from roofplan.planner.step import Efficiency, StepModel

EXACT = 1e-12
M7_HA, M8_HH, M70_HH = step_model(M7, HA), step_model(M8, HH), step_model(M70, HH)


@pytest.mark.parametrize(
    ("model", "tokens", "seconds"),
    [
        (M7_HA, 2048, 0.08854496366276923),
        (M7_HA, 10000, 0.4991583048205128),
        (M8_HH, 1024, 0.014725943174287447),
        (M8_HH, 8192, 0.13335819030717608),
        (M8_HH, 131072, 6.401073768345745),
    ],
)
def test_prefill_as_one_compute_bound(model: StepModel, tokens: int, seconds: float) -> None:  # F6.1
    assert model.step_s(0, 0, chunk=tokens, grouping="whole") == approx(seconds, rel=EXACT)


def test_prefill_at_60_percent_of_the_peak() -> None:  # F6.1
    slower = M7_HA.at(Efficiency(compute=0.6))
    assert slower.step_s(0, 0, chunk=2048, grouping="whole") == approx(0.14757493943794872, rel=EXACT)


def test_decode_as_one_memory_bound() -> None:  # F6.2
    assert M7_HA.step_s(1, 0, grouping="whole") == approx(0.006607077376, rel=EXACT)
    assert 1 / M7_HA.step_s(1, 0, grouping="whole") == approx(151.35, abs=0.005)
    assert M8_HH.step_s(1, 1024, grouping="whole") == approx(0.004520458087164179, rel=EXACT)


def operator_sums(model: StepModel, load: Load) -> tuple[float, float]:
    """Per-operator sum, and the maximum of the sums, of the operators that F6.3 counts (norms and table look-up are left out)."""
    costs = [cost for cost in model.costs(load) if cost.name not in {"norm", "embedding"}]
    whole = max(sum(cost.flop for cost in costs) / 989.4e12, sum(cost.bytes_moved for cost in costs) / 3.35e12)
    return sum(cost.time_s for cost in costs), whole


def test_operators_against_the_whole() -> None:  # F6.3
    assert operator_sums(M8_HH, Load(1, 1024)) == approx((0.004522063016119403, 0.004522063016119403), rel=EXACT)
    summed, whole = operator_sums(M8_HH, Load(512, 256))
    assert summed == approx(0.01299558315336308, rel=EXACT)
    assert whole == approx(0.010430435878208955, rel=EXACT)
    assert summed / whole == approx(1.2459, abs=5e-5)


def test_operators_agree_with_the_step() -> None:
    for load in (Load(1, 1024), Load(512, 256), Load(32, 2048, chunk=512, past=1024)):
        listed = sum(cost.time_s for cost in M8_HH.costs(load))
        step = M8_HH.step_s(load.decoders, load.context, chunk=load.chunk, past=load.past)
        assert listed == approx(step, rel=EXACT)


@pytest.mark.parametrize(
    ("batch", "context", "ratio"),
    [
        (1, 1024, 1.0),
        (16, 1024, 1.0),
        (64, 1024, 1.0530971046132638),
        (128, 1024, 1.5441399072529882),
        (256, 1024, 2.0135935972495744),
        (256, 8192, 1.1726193987719815),
        (256, 32768, 1.0448983561287664),
    ],
)
def test_verifying_five_tokens(batch: int, context: int, ratio: float) -> None:  # F11.6
    plain = M8_HH.step_s(batch, context, grouping="parts")
    assert M8_HH.step_s(batch, context, verify=5, grouping="parts") / plain == approx(ratio, rel=EXACT)


def test_tensor_parallel_step_of_70b() -> None:  # F12.2, the memory part: 160 exchanges of 3 us come on top
    model = StepModel.of(deploy(M70, device("linked", 989.4e12, 3.35e12), layout=Layout(tp=8)))
    assert model.step_s(1, 0, grouping="whole") == approx(0.0051866951068656715, rel=EXACT)
    late = model.at(Efficiency(collective_latency_s=3e-6))
    assert late.step_s(1, 0, grouping="whole") == approx(0.005666695106865672, rel=EXACT)


def test_pipeline_gives_one_sequence_no_speed() -> None:  # F12.3
    model = StepModel.of(deploy(M70, HH, layout=Layout(pp=4)))
    assert model.step_s(1, 0, grouping="whole") == approx(0.04149356085492537, rel=EXACT)


DEVICES = [hardware.load(name) for name in hardware.CATALOGUE.slugs()]
MODELS = [models.load(name) for name in models.CATALOGUE.slugs()]
batches, contexts = st.integers(1, 4096), st.integers(1, 2**20)


@given(
    st.sampled_from(MODELS), st.sampled_from(DEVICES), batches, contexts, st.integers(0, 8192), st.integers(0, 10**5)
)
def test_nothing_exceeds_the_roof(model, gpu, batch: int, context: int, chunk: int, past: int) -> None:
    step = StepModel.of(deploy(model, gpu))
    by_operators = step.step_s(batch, context, chunk=chunk, past=past)
    parts = step.step_s(batch, context, chunk=chunk, past=past, grouping="parts")
    whole = step.step_s(batch, context, chunk=chunk, past=past, grouping="whole")
    assert 0 < whole <= parts * (1 + EXACT)
    assert parts <= by_operators * (1 + EXACT)
    reached = step.at(Efficiency(compute=0.7, bandwidth=0.8)).step_s(batch, context, chunk=chunk, past=past)
    assert by_operators <= reached <= by_operators / 0.7 * (1 + EXACT)


@given(st.sampled_from([M7, M8, M70]), batches, contexts)
def test_doubling_bandwidth_never_slows_and_at_most_halves(model, batch: int, context: int) -> None:
    slow = StepModel.of(deploy(model, device("slow", 989.4e12, 1e12))).step_s(batch, context)
    fast = StepModel.of(deploy(model, device("fast", 989.4e12, 2e12))).step_s(batch, context)
    assert slow / 2 * (1 - EXACT) <= fast <= slow


@given(st.sampled_from(MODELS), batches, contexts)
def test_more_work_takes_no_less_time(model, batch: int, context: int) -> None:
    step = StepModel.of(deploy(model, HH))
    once = step.step_s(batch, context)
    assert once <= step.step_s(batch + 1, context) * (1 + EXACT)
    assert once <= step.step_s(batch, context + 1) * (1 + EXACT)
    assert once <= step.step_s(batch, context, verify=2) * (1 + EXACT)
    assert step.step_s(batch, context, verify=3) <= 3 * once * (1 + EXACT)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_arrays_give_what_numbers_give(model) -> None:
    step = StepModel.of(deploy(model, HH))
    grid = [(1, 1, 0, 0), (7, 100, 0, 0), (64, 5000, 512, 0), (512, 70000, 512, 9000)]
    columns = [np.array(column, dtype=float) for column in zip(*grid, strict=True)]
    together = step.step_s(columns[0], columns[1], chunk=columns[2], past=columns[3])
    alone = [step.step_s(batch, context, chunk=chunk, past=past) for batch, context, chunk, past in grid]
    assert together == approx(np.array(alone), rel=EXACT)


def test_the_slowest_resource_is_named() -> None:
    assert M8_HH.bottleneck(Load(1, 128)) == "weight_bandwidth"
    assert M8_HH.bottleneck(Load(64, 32768)) == "kv_bandwidth"
    assert M8_HH.bottleneck(Load(0, 0, chunk=4096)) == "compute"
    linked = StepModel.of(deploy(M70, hardware.load("l40s"), layout=Layout(tp=8)))
    assert linked.bottleneck(Load(0, 0, chunk=4096)) == "interconnect"
