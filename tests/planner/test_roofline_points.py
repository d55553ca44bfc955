"""A deployment on the roofline: ridges, points and steps against the formula collection and closed forms written out here."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import HA, HH, M7, M8, deploy, device

import roofplan
from roofplan import hardware
from roofplan.errors import DomainError
from roofplan.hardware.spec import Link, Peak, Units
from roofplan.planner.costs import Load
from roofplan.planner.parallel import Layout
from roofplan.planner.roofline_answer import MeasuredPoint, roofline_of
from roofplan.planner.roofline_points import OperatorPoint, Series, series_of
from roofplan.planner.step import StepModel


def operator(series: Series, name: str, phase: str) -> OperatorPoint:
    """The one operator of this name in a phase."""
    (found,) = (point for point in series.operators if (point.name, point.phase) == (name, phase))
    return found


def served(**options: object) -> Series:
    """Llama-3.1-8B on an H100, with its kernels."""
    return roofplan.roofline("llama-3.1-8b", "h100-sxm", **options).series[0]  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ ceilings


@pytest.mark.parametrize(("made", "ridge"), [(HA, 156.0), (HH, 295.34328358208955)])
def test_ridges_are_those_of_the_collection(made: hardware.HardwareSpec, ridge: float) -> None:
    """F1.1."""
    roof = series_of(deploy(M8, made)).roof
    (bf16,) = (ceiling for ceiling in roof.compute if ceiling.name == "bf16")
    assert roof.ridge(bf16) == approx(ridge, rel=1e-15)
    assert roof.ridge(bf16, calibrated=True) is None
    assert bf16.calibrated is roof.memory.calibrated is None


def test_attainable_rates_are_those_of_the_collection() -> None:
    """F1.2: R(1) = 2.0e12, R(100) = 2.0e14, R(156) = 3.12e14."""
    roof = series_of(deploy(M8, HA)).roof
    assert [roof.attainable(intensity) for intensity in (1, 100, 156, 1000)] == [2.0e12, 2.0e14, 3.12e14, 3.12e14]


def test_the_calibrated_ridge_moves_by_the_shares_that_kernels_reach() -> None:
    """F1.2: r e_c / e_m. The shares are read from the kernels of the family: products and decode attention of 16 bits."""
    kernels = hardware.kernels_of(hardware.load("h100-sxm"), 1)
    product = next(kernel for kernel in kernels.gemm if "bf16" in kernel.arithmetic)
    attention = next(kernel for kernel in kernels.decode_attention if kernel.bits == 16)
    reading = max(product.bandwidth, attention.bandwidth)
    roof = served().roof
    (bf16,) = (ceiling for ceiling in roof.compute if ceiling.name == "bf16")
    assert roof.ridge(bf16) == approx(989.4e12 / 3.35e12)
    assert roof.ridge(bf16, calibrated=True) == approx(989.4e12 * product.compute / (3.35e12 * reading))
    assert bf16.calibrated == approx(989.4e12 * product.compute)
    assert roof.memory.calibrated == approx(3.35e12 * reading)


def test_products_reach_the_largest_share_of_every_family() -> None:
    """The calibrated compute roof is theirs: no attention or expert kernel may stand above it."""
    for slug in hardware.KERNELS.slugs():
        known = next((name for name in hardware.CATALOGUE.slugs() if _family(name) == slug), None)
        if known is None:
            continue
        kernels = hardware.kernels_of(hardware.load(known), 1)
        for arithmetic in ("bf16", "fp8", "fp4"):
            product = next(k for k in kernels.gemm if not k.arithmetic or arithmetic in k.arithmetic)
            others = [k for k in kernels.experts if arithmetic in k.arithmetic]
            if arithmetic == "bf16":
                others += [kernels.prefill_attention, *kernels.decode_attention]
            assert all(other.compute <= product.compute for other in others), (slug, arithmetic)


def _family(name: str) -> str:
    return hardware.kernels_of(hardware.load(name), 1).name


def test_types_that_nothing_is_computed_in_are_not_used() -> None:
    used = {ceiling.name for ceiling in served().roof.compute if ceiling.used}
    assert used == {"bf16"}
    narrow = served(weights="fp8")
    assert {ceiling.name for ceiling in narrow.roof.compute if ceiling.used} == {"bf16", "fp8"}


def test_other_ways_of_bytes_are_ceilings_on_request_and_said_to_be_unknown_where_they_are() -> None:
    links = (
        Link(name="ring", per_direction=100e9, topology="ring", domain=8),
        Link(name="bus", per_direction=32e9, topology="host", domain=8),
    )
    linked = replace(HA, links=links, units=Units(cache=40_000_000))
    answer = roofline_of([deploy(M8, linked)], further=("cache", "link", "host"))
    roof = answer.series[0].roof
    assert [(c.kind, c.name, c.nominal) for c in roof.further] == [("link", "ring", 100e9), ("host", "bus", 32e9)]
    (unknown,) = (notice for notice in answer.warnings if notice.code == "ceiling_unknown")
    assert "only its size, 40 MB" in unknown.message
    stated = replace(linked, units=Units(cache=40_000_000, cache_bandwidth=5e12))
    known = roofline_of([deploy(M8, stated)], further=("cache",))
    assert [(c.kind, c.nominal) for c in known.series[0].roof.further] == [("cache", 5e12)]
    assert not [notice for notice in known.warnings if notice.code == "ceiling_unknown"]


def test_a_device_without_rates_has_no_roof() -> None:
    bare = replace(device("bare", 1, 1e12), peak=Peak())
    with pytest.raises(DomainError, match="no dense rate"):
        series_of(deploy(M8, bare))


# ------------------------------------------------------------------------------------------------ operators


def test_intensities_of_products_and_attention_are_the_closed_forms() -> None:
    """F1.4 at 2048 rows, 4096 x 4096: 1024. F1.6: causal prefill (S + 1) g / (2 (g + 1)), decode 3.9960975609756098 for g = 4, L = 4096."""
    prefill = series_of(deploy(M8, HA, prompt=2048))
    assert operator(prefill, "o", "prefill").intensity == approx(1024.0, rel=1e-12)
    assert operator(prefill, "attention", "prefill").intensity == approx(2049 * 4 / (2 * 5), rel=1e-12)
    decode = series_of(deploy(M8, HA, prompt=4095, output=2, concurrency=16))
    assert operator(decode, "attention", "decode").intensity == approx(3.9960975609756098, rel=1e-12)
    assert operator(decode, "o", "decode").intensity == approx(15.875968992248062, rel=1e-12)


def test_the_nominal_time_of_each_operator_is_what_the_roof_allows() -> None:
    """FLOP / min(F, I W) (F1.2), which is the larger of FLOP / F and bytes / W (F1.3)."""
    series = series_of(deploy(M8, HA, prompt=512, concurrency=8))
    for point in series.operators:
        if point.has_place:
            roof = min(HA.peak.rate(point.arithmetic) or 0, point.intensity * HA.memory.bandwidth)
            assert point.nominal_time_s == approx(point.flop / roof, rel=1e-12)
        assert point.time_s == approx(point.nominal_time_s, rel=1e-12)  # without kernels nothing else is known


def test_operators_and_host_make_the_step() -> None:
    series = served(prompt=1024, concurrency=32)
    model = StepModel.reached(series.deployment)
    for step in series.steps:
        load = {"chunk": 1024} if step.phase == "prefill" else {}
        expected = model.step_s(step.batch, series.deployment.workload.mean_context, **load)
        assert step.time_s == approx(float(expected), rel=1e-12)
        points = [point for point in series.operators if point.phase == step.phase]
        assert sum(point.time_s for point in points) <= step.time_s
        assert sum(point.share for point in points) == approx(sum(p.time_s for p in points) / step.time_s, rel=1e-12)
        assert step.flop == approx(sum(point.flop for point in points), rel=1e-12)


def test_flop_of_a_decode_step_are_those_of_the_parameters_and_of_attention() -> None:
    """2 N_mm + 4 n_h d_h L n_L per sequence, and 4 d per norm (F1.9, F2.5): M7 at a context of 4096."""
    series = series_of(deploy(M7, HA, prompt=4095, output=2))
    (step,) = (step for step in series.steps if step.phase == "decode")
    norms = 4 * 4096 * (2 * 32 + 1)
    assert step.flop == approx(2 * 6607077376 + 4 * 32 * 128 * 4096 * 32 + norms, rel=1e-12)


def test_exchanges_have_a_share_and_no_place() -> None:
    series = roofplan.roofline("llama-3-70b", "h100-sxm", devices=8).series[0]
    exchange = operator(series, "all-reduce", "decode")
    assert exchange.share > 0.01
    assert not exchange.has_place
    assert not exchange.counted
    (step,) = (step for step in series.steps if step.phase == "decode")
    counted = [point for point in series.operators if point.phase == "decode" and point.counted]
    assert step.bytes == approx(sum(point.bytes for point in counted), rel=1e-12)
    assert step.bytes < sum(point.bytes for point in series.operators if point.phase == "decode")


def test_operators_of_one_name_are_told_apart() -> None:
    for name in ("gemma-3-27b", "gemma-4-e2b", "deepseek-v4-flash"):
        series = roofplan.roofline(name, "h200-sxm").series[0]
        for phase in ("prefill", "decode"):
            names = [point.name for point in series.operators if point.phase == phase]
            assert len(set(names)) == len(names), name
    gemma = roofplan.roofline("gemma-3-27b", "h200-sxm").series[0]
    assert operator(gemma, "attention (window 1,024)", "decode").flop < operator(gemma, "attention", "decode").flop * 6


@given(
    model=st.sampled_from(["llama-3.1-8b", "gemma-3-27b", "mixtral-8x7b", "deepseek-v3", "qwen3-next-80b-a3b"]),
    name=st.sampled_from(["h100-sxm", "a100-80gb", "l40s", "rtx-4090", "mi300x"]),
    prompt=st.integers(1, 20_000),
    concurrency=st.integers(1, 300),
)
def test_nothing_stands_above_the_nominal_roof(model: str, name: str, prompt: int, concurrency: int) -> None:
    series = roofplan.roofline(model, name, prompt=prompt, concurrency=concurrency).series[0]
    for point in series.operators:
        if point.has_place:
            assert point.flop_per_s <= series.roof.attainable(point.intensity, point.arithmetic) * (1 + 1e-9), point
    for step in series.steps:
        assert step.flop_per_s <= series.roof.attainable(step.intensity) * (1 + 1e-9)
        assert step.nominal_time_s <= step.time_s * (1 + 1e-9)


# ------------------------------------------------------------------------------------------------ steps


def test_batches_climb_the_slope() -> None:
    """More sequences share the weights: intensity and rate rise, and never beyond the limit of attention (F1.7)."""
    path = served(prompt=1024, batches=[1, 2, 8, 32, 128]).path
    assert [step.batch for step in path] == [1, 2, 8, 32, 128]
    for before, after in itertools.pairwise(path):
        assert before.intensity < after.intensity
        assert before.flop_per_s < after.flop_per_s
    assert path[0].bound == "weight_bandwidth"


def test_the_decode_step_is_that_of_the_asked_concurrency_over_replicas_and_stages() -> None:
    d = deploy(M8, HA, concurrency=64, layout=Layout(pp=2, dp=4))
    (step,) = series_of(d, phases=("decode",)).steps
    assert (step.batch, step.tokens) == (8, 8)


def test_a_prompt_beyond_what_the_engine_takes_at_once_is_one_chunk() -> None:
    (step,) = served(prompt=100_000, max_num_batched_tokens=2048, phases="prefill").steps
    assert step.tokens == 2048


def test_batches_beyond_memory_are_drawn_with_a_warning() -> None:
    answer = roofplan.roofline("llama-3.1-8b", "h100-sxm", prompt=4096, output=512, batches=[8, 1000])
    (said,) = (notice for notice in answer.warnings if notice.code == "batch_exceeds_memory")
    assert "1,000 sequences of 4,608 tokens do not fit" in said.message
    assert len(answer.series[0].path) == 2


def test_engines_that_were_measured_by_whole_steps_say_so() -> None:
    answer = roofplan.roofline("llama-3.1-8b", "rtx-4090", engine="llama.cpp", weights="q4_k_m")
    assert any(notice.code == "operators_by_kernels" for notice in answer.warnings) == answer.series[0].by_kernels
    assert sum(p.share for p in answer.series[0].operators if p.phase == "decode") <= 1 + 1e-9


def test_a_measurement_above_the_roof_is_doubted() -> None:
    points = (MeasuredPoint("fine", 10, 1.9e13), MeasuredPoint("too fast", 10, 2.1e13))
    answer = roofline_of([deploy(M8, HA)], measured=points)
    assert [notice.message.partition(":")[0] for notice in answer.warnings] == ["too fast"]
    assert answer.attainable(10) == 2.0e13


def test_load_of_a_step_is_what_the_planner_times_elsewhere() -> None:
    """The nominal step is the sum of operators that sizing and the batch curve use."""
    d = deploy(M8, HH, prompt=2048, output=256, concurrency=32)
    prefill, decode = series_of(d).steps
    model = StepModel.of(d)
    assert prefill.nominal_time_s == model.step_s(0, 0, chunk=2048)
    assert decode.nominal_time_s == model.step_s(32, 2048 + 128)
    assert decode.bound == model.bottleneck(Load(32, 2048 + 128))
