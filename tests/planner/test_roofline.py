"""Golden values of formulas F1.1 to F1.9."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import HA, HH, M7, M8, deploy, step_model

from roofplan.errors import DomainError
from roofplan.planner import roofline
from roofplan.planner.costs import Load
from roofplan.planner.parameters import count_parameters
from roofplan.planner.step import StepModel

EXACT = 1e-12


def test_ridge_is_peak_over_bandwidth() -> None:  # F1.1
    assert HA.ridge("bf16") == 156.0
    assert HH.ridge("bf16") == approx(295.34328358208955, rel=EXACT)


@pytest.mark.parametrize(("intensity", "rate"), [(1, 2.0e12), (100, 2.0e14), (156, 3.12e14), (1000, 3.12e14)])
def test_attainable_rate(intensity: float, rate: float) -> None:  # F1.2
    assert roofline.attainable_flop_per_s(intensity, 312e12, 2.0e12) == approx(rate, rel=EXACT)


@pytest.mark.parametrize(
    ("p", "time"), [(2, 1.4142135623730951), (4, 1.189207115002721), (8, 1.0905077326652577), (1, 2.0), (math.inf, 1.0)]
)
def test_smooth_max_at_the_ridge(p: float, time: float) -> None:  # F1.3
    assert roofline.smooth_max(1.0, 1.0, p) == approx(time, rel=EXACT)


def test_smooth_max_refuses_what_is_no_norm() -> None:
    for bad in ((1.0, 1.0, 0.5), (-1.0, 1.0, 2.0), (1.0, 1.0, math.nan)):
        with pytest.raises(DomainError):
            roofline.smooth_max(*bad)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1, 50))
def test_smooth_max_lies_between_maximum_and_sum(compute: float, memory: float, p: float) -> None:
    time = roofline.smooth_max(compute, memory, p)
    assert max(compute, memory) * (1 - EXACT) <= time <= (compute + memory) * (1 + EXACT)


@pytest.mark.parametrize(
    ("rows", "outputs", "weight_bytes", "intensity"),
    [
        (1, 4096, 2, 0.9995119570522206),
        (16, 4096, 2, 15.875968992248062),
        (2048, 4096, 2, 1024.0),
        (2048, 22016, 2, 1285.6058394160584),
        (16, 4096, 4.25 / 8, 58.51428571428571),
    ],
)
def test_gemm_intensity(rows: int, outputs: int, weight_bytes: float, intensity: float) -> None:  # F1.4
    assert roofline.gemm_intensity(rows, 4096, outputs, weight_bytes) == approx(intensity, rel=EXACT)


def test_rows_to_be_compute_bound() -> None:  # F1.5
    assert roofline.rows_to_be_compute_bound(156, 4096, 4096) == approx(168.86257928118394, rel=EXACT)
    assert roofline.rows_to_be_compute_bound(HH.ridge("bf16"), 4096, 4096) == approx(345.1121027352931, rel=EXACT)
    large = roofline.rows_to_be_compute_bound(156, 10**9, 10**9, weight_bytes=1)
    assert large == approx(78, rel=1e-6)  # the large-matrix limit r b_w / 2
    assert roofline.rows_to_be_compute_bound(156, 100, 100) is None


@pytest.mark.parametrize(
    ("group", "intensity"), [(1, 0.9997559189650964), (4, 3.9960975609756098), (8, 7.984405458089668)]
)
def test_decode_attention_intensity(group: int, intensity: float) -> None:  # F1.6
    assert roofline.decode_attention_intensity(group, 4096, 128) == approx(intensity, rel=EXACT)


@pytest.mark.parametrize(("group", "causal", "intensity"), [(1, False, 1024.0), (1, True, 512.25), (4, True, 819.6)])
def test_prefill_attention_intensity(group: int, causal: bool, intensity: float) -> None:  # F1.6
    assert roofline.prefill_attention_intensity(group, 2048, causal=causal) == approx(intensity, rel=EXACT)


def test_decode_step_intensity() -> None:  # F1.7
    parameters = count_parameters(M7).total
    for batch, context, intensity in ((1, 4096, 0.8625550198844942), (32, 4096, 5.246690637149957), (7, 0, 7)):
        assert roofline.decode_intensity(parameters, batch, 2 * parameters, context, 524288) == approx(
            intensity, rel=EXACT
        )
    assert roofline.decode_intensity(parameters, 1e15, 2 * parameters, 4096, 524288) == approx(
        6.275638580322266, rel=1e-6
    )


@pytest.mark.parametrize(
    ("batch", "flop", "moved", "intensity"),
    [(1, 15361638400, 15362170880, 0.9999653382321965), (32, 491572428800, 81950670848, 5.998394201211067)],
)
def test_exact_decode_step_of_m7(batch: int, flop: int, moved: int, intensity: float) -> None:  # F1.7
    model = step_model(M7, HA)
    work, weights, cache = model.totals(Load(batch, 4096))
    written, vectors = batch * 524288, batch * 4096 * 2
    assert work == flop
    assert weights + cache + written + vectors == moved
    assert work / (weights + cache + written + vectors) == approx(intensity, rel=EXACT)


def test_the_lowest_roof_binds() -> None:  # F1.8
    assert roofline.slowest_level_flop_per_s(989.4e12, [(64, 3.35e12)]) == approx(2.144e14, rel=EXACT)
    assert roofline.slowest_level_flop_per_s(989.4e12, [(64, 3.35e12), (16, 5.5e12)]) == approx(8.8e13, rel=EXACT)


# F1.9: operator, (FLOP, bytes, intensity, bound, microseconds) of prefill 2048, decode 1 and decode 512 at 2048 tokens, M8 on HH, one layer
# (the head once). None where the table leaves a value out.
OPERATORS = {
    "qkv": [
        (103079215104, 92274688, 1117.0909, "compute", 104.1836),
        (50331648, 50352128, 0.9996, "weight_bandwidth", 15.0305),
        (None, None, 423.7241, "compute", 26.0459),
    ],
    "o": [
        (68719476736, 67108864, 1024.0, "compute", 69.4557),
        (33554432, 33570816, 0.9995, "weight_bandwidth", 10.0211),
        (None, None, 409.6, "compute", 17.3639),
    ],
    "gate_up": [
        (481036337152, 369098752, 1303.2727, "compute", 486.1900),
        (None, None, 0.9997, "weight_bandwidth", 70.1333),
        (None, None, 448.0, "compute", 121.5475),
    ],
    "down": [
        (240518168576, 192937984, 1246.6087, "compute", 243.0950),
        (None, None, 0.9997, "weight_bandwidth", 35.0679),
        (None, None, 441.1077, "compute", 60.7737),
    ],
    "attention": [
        (34376515584, 41943040, 819.6, "compute", 34.7448),
        (33554432, 8404992, 3.9922, "kv_bandwidth", 2.5090),
        (None, None, 3.9922, "kv_bandwidth", 1284.5839),
    ],
    "head": [
        (1050673152, 1050937856, 0.9997, "weight_bandwidth", 313.7128),
        (1050673152, 1050937856, 0.9997, "weight_bandwidth", 313.7128),
        (None, None, 453.5019, "compute", 543.7080),
    ],
}
LOADS = [Load(0, 0, chunk=2048), Load(1, 2048), Load(512, 2048)]


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("phase", [0, 1, 2])
def test_operator_placement(name: str, phase: int) -> None:  # F1.9
    flop, moved, intensity, bound, microseconds = OPERATORS[name][phase]
    costs = {cost.name.split()[0]: cost for cost in StepModel.of(deploy(M8, HH)).costs(LOADS[phase])}
    cost, layers = costs[name], 1 if name == "head" else 32
    if flop is not None:
        assert (cost.flop, cost.bytes_moved) == (layers * flop, layers * moved)
    assert cost.intensity == approx(intensity, rel=1e-4)
    assert cost.bound == bound
    assert cost.time_s / layers * 1e6 == approx(microseconds, abs=6e-5)  # four decimals in the table


@pytest.mark.parametrize(("phase", "microseconds"), [(0, 10.0187), (1, 0.0073), (2, 2.5065)])
def test_norm_placement(phase: int, microseconds: float) -> None:  # F1.9
    norm = next(cost for cost in StepModel.of(deploy(M8, HH)).costs(LOADS[phase]) if cost.name == "norm")
    norms = 2 * 32 + 1
    assert norm.time_s / norms * 1e6 == approx(microseconds, abs=5e-5)
    if phase == 0:
        assert (norm.flop / norms, norm.bytes_moved / norms) == (33554432, 33562624)
