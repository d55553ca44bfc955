"""Single streams of llama.cpp: every row is read, the formulas agree with a calculation by hand, and the errors are what is claimed."""

import dataclasses
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from roofplan import hardware
from roofplan.accuracy.fit.single_stream import BLOCKS, Fitted, fit_block
from roofplan.accuracy.metrics import Comparison
from roofplan.accuracy.single_stream import PROMPT, SERIES, Run, build_of, compare, read_runs
from roofplan.accuracy.single_stream import streams as published
from roofplan.engines.streams import Prompt
from roofplan.planner.evidence import evidence_of
from roofplan.planner.streams import Work, byte_s, constants, decode_s, prompt_s

RUNS = read_runs()
BY_ID = {run.truth.name: run for run in RUNS if isinstance(run, Run)}
COMPARED = list(compare(RUNS))
STREAMS = {stream.name: stream for stream in published().streams}


def test_every_row_is_predicted_within_the_range_of_its_deployment() -> None:
    assert {comparison.reason for comparison in COMPARED} == {""}
    for c in COMPARED:
        evidence = evidence_of(BY_ID[c.row].deployment)
        width = evidence.first_token_width if c.metric == PROMPT else evidence.width
        assert (c.low, c.high) == approx((c.predicted / width, c.predicted * width))
    assert {run.truth.name.partition("-")[0] for run in BY_ID.values()} == set(SERIES)
    assert all(build_of(run.truth) for run in BY_ID.values())
    assert all(math.isfinite(comparison.predicted or math.nan) for comparison in COMPARED)


def median_error(*, prompts: bool, streams: tuple[str, ...] = ()) -> float:
    def counts(comparison: Comparison) -> bool:
        name = (comparison.labels or {})["stream"]
        return (comparison.metric == PROMPT) == prompts and (not streams or name in streams)

    return statistics.median(abs(c.error) for c in COMPARED if c.error is not None and counts(c))


@pytest.mark.parametrize(
    ("prompts", "streams", "at_most"),
    [
        (False, (), 0.045),
        (False, ("cuda-2024",), 0.04),
        (False, ("cuda-2025",), 0.06),
        (False, ("spark",), 0.05),
        (False, ("apple", "apple-ultra"), 0.05),
        (False, ("amd", "amd-rocm"), 0.10),
        (False, ("cpu",), 0.20),
        (True, (), 0.08),
        (True, ("cuda-2024",), 0.10),
        (True, ("cuda-2025",), 0.15),
        (True, ("spark",), 0.07),
        (True, ("apple", "apple-ultra"), 0.05),
        (True, ("amd", "amd-rocm"), 0.10),
    ],
)
def test_median_errors_of_the_published_constants(prompts: bool, streams: tuple[str, ...], at_most: float) -> None:
    assert median_error(prompts=prompts, streams=streams) <= at_most


# ------------------------------------------------------------------------------------------------ the fit


@pytest.fixture(scope="module")
def fits() -> list[Fitted]:
    return [fit_block(block, BY_ID.values()) for block in BLOCKS]


def test_the_fit_gives_the_published_constants(fits: list[Fitted]) -> None:
    for one in fits:
        for free, value in zip(one.block.constants, one.x, strict=True):
            for name in free.streams:
                for width in free.bits:
                    assert constants(STREAMS[name], width)[free.name] == approx(value, rel=0.01), (free.name, name)


def test_errors_with_a_device_left_out(fits: list[Fitted]) -> None:
    for prompts, inside, outside in ((False, 0.06, 0.07), (True, 0.15, 0.15)):
        chosen = [one for one in fits if one.block.prompts == prompts]
        assert np.median(np.abs(np.concatenate([one.inside for one in chosen]))) <= inside
        left_out = np.concatenate([one.outside for one in chosen])
        assert np.nanmedian(np.abs(left_out)) <= outside
        assert not np.isnan(left_out).any()


# ------------------------------------------------------------------------------------------------ by hand

# Llama-3-8B: 32 layers of width 4096, 32 heads of 128 and 8 KV heads, MLP 14336, vocabulary 128256.
LAYER = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
HEAD = 4096 * 128256
ATTENTION = 2 * 2 * 128 * 32 * 32  # FLOP of a query and a key: scores and values, all heads and layers
CACHE = 2 * 2 * 1024 * 32  # bytes of a token


def joined(*seconds: float) -> float:
    return sum(s**4 for s in seconds) ** 0.25


def test_a_token_by_hand() -> None:
    run = BY_ID["LCXJ-0071"]  # RTX 4090: 1008 GB/s, 128 units at 2.52 GHz; F16, 512 tokens from an empty context
    assert (run.device.name, run.truth.text("weights_dtype"), run.truth.text("osl")) == ("rtx-4090", "F16", "512")
    c = STREAMS["cuda-2024"]
    per_byte = joined(1 / (c.bandwidth["16"] * 1008e9), 1 / (c.bytes_per_clock * 128 * 2.52e9))
    weights, cache = 2 * (32 * LAYER + HEAD), 256 * CACHE
    expected = 32 * c.per_layer + (weights + cache / c.cache_bandwidth) * per_byte
    assert run.predicted_s() == approx(expected, rel=1e-9)
    assert expected == approx(
        0.0186, rel=0.02
    )  # 15.01 GB at 0.94 of 1008 GB/s and 2.7 ms of launches; measured: 18.2 ms


def test_a_prompt_by_hand() -> None:
    run = BY_ID["LCXJ-0074"]  # 1024 tokens: two micro-batches
    assert (run.truth.text("gpu"), run.truth.text("weights_dtype"), run.truth.text("isl")) == ("RTX4090", "F16", "1024")
    c = STREAMS["cuda-2024"]
    p = c.prompt
    per_byte = joined(1 / (c.bandwidth["16"] * 1008e9), 1 / (c.bytes_per_clock * 128 * 2.52e9))
    # 165.2 TFLOP/s accumulate in 32 bits; in 16 bits it is twice that. The head computes one row of each micro-batch.
    products = 2 * (32 * LAYER * 1024 + HEAD * 2) / (p.compute["16"] * 2 * 165.2e12)
    scores = ATTENTION * 1024 * 1025 / 2 / p.attention_per_byte * per_byte
    weights = 2 * 2 * (32 * LAYER + HEAD) * per_byte
    expected = 2 * 32 * (c.per_layer + p.per_layer) + weights + products + scores
    assert run.predicted_s() == approx(expected, rel=1e-9)


def test_queries_of_a_group_read_the_cache_again_on_apple() -> None:
    run = BY_ID["LCXJ-0763"]  # M2 Ultra, Llama-3-70B, 8192 tokens: 64 heads share 8 KV heads
    assert run.work.cache_bytes == approx(4096 * 2 * 2 * 64 * 128 * 80)


def test_expanding_weights_costs_writing_and_reading_them_in_16_bits() -> None:
    run = BY_ID["LCXJ-0064"]  # RTX 4090, Q4_K_M, 512 tokens
    c = constants(run.stream, run.bits)
    kept = {**c, "dequantised": 0.0}
    matrices = 2 * (32 * LAYER + HEAD / 512)  # the head, of which one row is computed, is not expanded
    assert run.truth.text("isl") == "512"
    assert run.predicted_s(c) - run.predicted_s(kept) == approx(2 * matrices * byte_s(run.work, c), rel=1e-6)


def test_an_expert_model_reads_the_experts_of_its_tokens() -> None:
    run = BY_ID["LCGO-0002"]  # gpt-oss-20b: 24 layers with 4 of 32 experts
    assert run.work.expert_layers == run.work.layers == 24
    experts = 24 * 4 * 3 * 2880 * 2880 * 4.25 / 8  # MXFP4
    assert experts < run.work.weight_bytes < experts + 1.5e9


def test_a_pipeline_fills_and_is_limited_by_what_is_launched_ahead() -> None:
    run = BY_ID["LCXJ-0074"]
    c = constants(run.stream, run.bits)
    alone = prompt_s(run.work, c)
    two = prompt_s(dataclasses.replace(run.work, devices=2), c)
    assert two == approx(alone * 3 / 4)  # two micro-batches on two devices: three steps of half the time
    deep = dataclasses.replace(run.work, devices=2, layers=80)
    assert prompt_s(deep, c) == approx(
        prompt_s(dataclasses.replace(deep, devices=1), c)
    )  # 27 of the 40 layers of a stage
    many = dataclasses.replace(run.work, devices=64, micro_batches=64)
    one = dataclasses.replace(many, devices=1)
    assert prompt_s(many, c) == approx(prompt_s(one, c) / 4)  # four copies of the inputs


# ------------------------------------------------------------------------------------------------ properties

WORKS = st.builds(
    Work,
    layers=st.integers(1, 128),
    expert_layers=st.integers(0, 64),
    devices=st.integers(1, 8),
    sequences=st.integers(1, 64),
    tokens=st.integers(1, 8192),
    micro_batches=st.integers(1, 16),
    weight_bytes=st.floats(1e8, 1e12),
    narrow=st.sampled_from([0.0, 1.0]),
    cache_bytes=st.floats(0, 1e11),
    flop=st.floats(1e9, 1e16),
    expert_flop=st.floats(0, 1e15),
    attention_flop=st.floats(0, 1e15),
    bandwidth=st.floats(1e10, 1e13),
    unit_hz=st.floats(1e10, 1e12) | st.just(math.inf),
    rate=st.floats(1e11, 1e15),
)
MORE = st.floats(1, 10)
ANY = st.sampled_from(sorted(STREAMS))


@given(work=WORKS, factor=MORE, name=ANY, faster=st.sampled_from(["bandwidth", "unit_hz", "rate"]))
def test_a_faster_device_is_never_slower(work: Work, factor: float, name: str, faster: str) -> None:
    c = constants(STREAMS[name], 4)
    better = dataclasses.replace(work, **{faster: getattr(work, faster) * factor})
    for formula in (decode_s, prompt_s):
        assert formula(better, c) <= formula(work, c) * (1 + 1e-9)


@given(
    work=WORKS,
    factor=MORE,
    name=ANY,
    grown=st.sampled_from(["layers", "weight_bytes", "cache_bytes", "flop", "expert_flop", "attention_flop"]),
)
def test_more_work_never_takes_less_time(work: Work, factor: float, name: str, grown: str) -> None:
    c = constants(STREAMS[name], 4)
    more = dataclasses.replace(work, **{grown: getattr(work, grown) * factor})
    for formula in (decode_s, prompt_s):
        assert formula(more, c) >= formula(work, c) * (1 - 1e-9)


@given(work=WORKS, name=ANY)
def test_reading_is_never_faster_than_the_memory(work: Work, name: str) -> None:
    assert decode_s(work, constants(STREAMS[name], 16)) >= work.weight_bytes / work.bandwidth


# ------------------------------------------------------------------------------------------------ classes


@pytest.mark.parametrize(
    ("device", "build", "name"),
    [
        ("rtx-4090", "b2900", "cuda-2024"),
        ("rtx-4090", "b6500", "cuda-2025"),
        ("rtx-4090", "", "cuda-2024"),
        ("h100-pcie-80gb", "b2900", "cuda-2024"),
        ("p40", "b1900", "pascal"),
        ("p40", "b7000", "cuda-2025"),
        ("dgx-spark-gb10", "b6918", "spark"),
        ("apple-m2-ultra", "b2900", "apple-ultra"),
        ("apple-m1-ultra-48", "b1520", "apple-ultra"),
        ("apple-m4-max-40", "b4900", "apple"),
        ("r9700", "b7300", "amd"),
        ("rx-7900-xt", "b6200", "amd-rocm"),
        ("arc-b580", "b7800", "intel"),
        ("epyc-9654", "b3700", "cpu"),
        ("raspberry-pi-5-16gb", "b4600", "cpu"),
    ],
)
def test_the_class_of_a_device(device: str, build: str, name: str) -> None:
    stream = published().of(hardware.load(device), build)
    assert stream is not None
    assert stream.name == name


def test_a_device_of_no_class_has_no_constants() -> None:
    assert published().of(hardware.load("tpu-v5e"), "b7000") is None


def test_variants_of_a_chip_have_their_own_cores_and_bandwidth() -> None:
    assert BY_ID["LCAP-0149"].device.memory.bandwidth == 410e9
    assert BY_ID["LCAP-0155"].device.memory.bandwidth == 546e9
    assert BY_ID["LCAP-0025"].device.units.count == 24


@pytest.mark.parametrize("given_limits", [{}, {"attention_per_byte": 18.0, "attention_compute": 0.5}])
def test_attention_has_one_limit(given_limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="want one of them"):
        Prompt(arithmetic="fp16", compute={"16": 0.5, "8": 0.5, "4": 0.5}, **given_limits)


def test_shares_cover_all_widths() -> None:
    with pytest.raises(ValueError, match="want it for 16, 8, 4"):
        Prompt(arithmetic="fp16", compute={"16": 0.5}, attention_compute=0.5)
    with pytest.raises(ValueError, match="got bandwidth for 4 bits"):
        dataclasses.replace(STREAMS["apple"], bandwidth={"4": 0.5})
