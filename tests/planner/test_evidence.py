"""How wide ranges are: each unknown widens, unknowns combine as independent ones, and a measured machine narrows."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from round_numbers import KERNELS, SPREAD, TIMING, reach
from shapes import DS, HA, HH, M7, M8, deploy

import roofplan
from roofplan import engines, hardware, models
from roofplan.hardware.spec import Achieved, HardwareSpec
from roofplan.models.spec import ModelSpec
from roofplan.planner.deployment import Deployment
from roofplan.planner.evidence import Evidence, evidence_of

EXACT = 1e-12
KNOWN = replace(TIMING, fitted_on=("m8", "ds"))
MOE = models.load("qwen3-30b-a3b")


def known(model: ModelSpec = M8, gpu: HardwareSpec = HH, **options: Any) -> Deployment:
    """Everything about it was compared, unless an option says otherwise."""
    return reach(model, gpu, **{"timing": KNOWN, **options})


def together(*widths: float) -> float:
    """Independent scatter of logarithms adds up in squares."""
    return math.exp(math.sqrt(sum(math.log(width) ** 2 for width in widths)))


def test_what_is_known_scatters_all_the_same() -> None:
    evidence = evidence_of(known())
    assert [width for _, width in evidence.parts] == [1.1]
    assert evidence.width == approx(1.1, rel=EXACT)
    assert evidence.first_token_width == approx(1.5, rel=EXACT)
    assert evidence_of(known(DS)).width == approx(1.1, rel=EXACT)


@pytest.mark.parametrize(
    ("d", "added"),
    [
        (known(M7), 1.2),
        (known(MOE), 1.3),
        (known(DS, timing=replace(KNOWN, fitted_on=("m8",))), 1.3),
        (known(gpu=HA), 1.15),
        (known(kernels=replace(KERNELS, families=(), measured_on=("hh",))), 1.4),
    ],
    ids=["dense model", "experts", "latents", "device of the family", "family"],
)
def test_each_unknown_widens(d: Deployment, added: float) -> None:
    evidence = evidence_of(d)
    assert [width for _, width in evidence.parts] == [1.1, added]
    assert evidence.width == approx(together(1.1, added), rel=EXACT)
    assert evidence.first_token_width == approx(together(added, 1.5), rel=EXACT)


def test_an_engine_that_was_compared_with_nothing_does_not_know_the_model_either() -> None:
    evidence = evidence_of(known(timing=TIMING))
    assert [width for _, width in evidence.parts] == [1.1, 1.25, 1.2]


@pytest.mark.parametrize(("version", "parts"), [("0.19", [1.1]), ("99.0", [1.1, 1.25])])
def test_a_version_that_is_newer_than_known_widens(version: str, parts: list[float]) -> None:
    engine = replace(engines.load(f"vllm@{version}"), timing=KNOWN)
    evidence = evidence_of(replace(known(), engine=engine))
    assert [width for _, width in evidence.parts] == parts


def test_all_unknowns_at_once() -> None:
    d = known(MOE, HA, timing=TIMING, kernels=replace(KERNELS, families=()))
    evidence = evidence_of(d)
    assert evidence.width == approx(together(1.1, 1.4, 1.25, 1.3), rel=EXACT)
    assert len({why for why, _ in evidence.parts}) == 4
    assert "qwen3-30b-a3b" in evidence.parts[-1][0]
    assert "ha" in evidence.parts[1][0]


def test_a_measured_machine_narrows() -> None:
    own = replace(HH, name="mine", achieved=Achieved(kernels={"measured_on": ["mine"]}))
    evidence = evidence_of(known(gpu=own, kernels=replace(KERNELS, families=())))
    assert [width for _, width in evidence.parts] == [1.05]
    others = replace(own, achieved=Achieved(kernels={"measured_on": ["theirs"]}))
    assert evidence_of(known(gpu=others)).width > evidence.width


def test_without_kernels_nothing_is_known_of_a_range() -> None:
    evidence = evidence_of(deploy(M8, HH))
    assert (evidence.parts, evidence.width, evidence.first_token_width) == ((), 1.0, 1.0)


widths = st.lists(st.floats(1, 10), max_size=6)


@given(widths, st.floats(1, 10))
def test_widths_combine_whatever_their_order(parts: list[float], more: float) -> None:
    def of(listed: list[float]) -> float:
        return Evidence(tuple(("", width) for width in listed), 1.0).width

    assert of(parts) == approx(together(*parts), rel=1e-9)
    assert of([*parts, more]) == approx(of([more, *parts]), rel=1e-9)
    assert of([*parts, more]) >= max([1.0, *parts, more]) * (1 - 1e-9)
    assert of([*parts, more]) <= math.prod([*parts, more]) * (1 + 1e-9)
    assert of([*parts, 1.0]) == approx(of(parts), rel=1e-9)


def test_ten_percent_of_bandwidth_and_five_of_length() -> None:
    """The same sum as F18.3, 0.108437 with these elasticities, here of logarithms."""
    share = 0.8387212367861988
    width = Evidence((("bandwidth", math.exp(0.1)), ("length", math.exp(0.05 * share))), 1.0).width
    assert math.log(width) == approx(0.10843723199432209, rel=1e-9)


@pytest.mark.parametrize("family", hardware.KERNELS.slugs())
def test_published_widths_are_in_order(family: str) -> None:
    """The notes on time, section 8: 1.12 measured, 1.15 known, 1.20 a new dense model or device, 1.30 new experts; these may be fitted anew."""
    devices = (hardware.load(slug) for slug in hardware.CATALOGUE.slugs())
    spread = next(kernels for gpu in devices if (kernels := hardware.kernels_of(gpu)).name == family).spread
    assert 1 < spread.measured < 1.3
    assert 1 < spread.new_model <= spread.new_experts < 2
    assert 1 < spread.new_device <= spread.unmeasured_family < 2
    assert 1 < spread.new_engine < 2


def test_answers_have_these_widths() -> None:
    result = roofplan.size("llama-3.1-8b", "h100-sxm", engine="vllm@0.19", prompt=2048, output=256, concurrency=32)
    times = result.times
    assert times is not None
    assert times.evidence == evidence_of(result.deployment)
    for figure in (times.latency.tpot_s, times.latency.itl_s, times.latency.e2e_s):
        assert figure is not None
        assert figure.high / figure.expected == approx(times.evidence.width)
    for figure in (times.latency.ttft_s, times.latency.ttft_alone_s, times.latency.ttft_burst_s):
        assert figure.high / figure.expected == approx(times.evidence.first_token_width)
    rate = times.throughput.output_tokens_per_s
    assert rate.expected / rate.low == approx(times.evidence.width)


def test_ranges_of_the_catalogue_widen_with_what_is_unknown() -> None:
    def width(model: str, gpu: str, engine: str) -> float:
        times = roofplan.size(model, gpu, engine=engine, prompt=128, output=128).times
        assert times is not None
        return times.evidence.width

    # A device of a family, one of a family that nobody measured; a model that no source names; an engine without rows.
    h100, h20, mi300x = (width("llama-3.1-8b", gpu, "vllm@0.19") for gpu in ("h100-sxm", "h20-96gb", "mi300x"))
    assert h100 < h20 < mi300x
    strange, plain = width("gpt2", "h100-sxm", "vllm@0.19"), width("llama-3.1-8b", "h100-sxm", "plain")
    assert h100 <= strange
    assert h100 <= plain


def test_an_engine_that_launches_layers_on_a_class_that_nobody_measured() -> None:
    d = roofplan.deployment("llama-3.1-8b", "tpu-v6e", engine="llama.cpp")
    assert d.streams is not None
    assert d.streams.of(d.hardware, "b9000") is None  # so that generic kernels stand in
    assert evidence_of(d).width > evidence_of(roofplan.deployment("llama-3.1-8b", "rtx-4090", engine="llama.cpp")).width


def test_reasons_are_told_once() -> None:
    for model, gpu, timing in itertools.product((M8, MOE, DS), (HH, HA), (KNOWN, TIMING)):
        reasons = [why for why, _ in evidence_of(known(model, gpu, timing=timing)).parts]
        assert len(set(reasons)) == len(reasons)
        assert all(reasons)


def test_a_spread_of_round_numbers_is_what_these_tests_assume() -> None:
    assert (TIMING.spread, SPREAD.new_model, SPREAD.new_experts, SPREAD.new_device) == (1.1, 1.2, 1.3, 1.15)
