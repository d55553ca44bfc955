"""Sweeps: marks against the golden values of formulas F7.2 to F7.6, points against a sizing, the step model and the rule of what fits."""

import dataclasses
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from shapes import GIB, HA, HH, M7, M8, NOTHING_ELSE, deploy

import roofplan
from roofplan.errors import DomainError
from roofplan.planner import batch_curve
from roofplan.planner.deployment import MemoryOverrides
from roofplan.planner.evidence import evidence_of
from roofplan.planner.fitting import reason_of
from roofplan.planner.ranges import Range
from roofplan.planner.results import plain
from roofplan.planner.step import StepModel
from roofplan.planner.sweep_points import ExpectedSteps, Variant, of_length
from roofplan.planner.sweeping import MOST_CURVES, Axis, SweepResult, Traffic, sweep

LLAMA, H100 = "llama-3.1-8b", "h100-sxm"
MODEL_AT_4096 = {"context": 4096}


def decode(d, *axes: Axis, context: int | None = 4096, price: float | None = None, **options) -> SweepResult:
    """A sweep of one deployment of the formula collection, decode alone."""
    return sweep(axes, [Variant((), d, price)], Traffic(1, 1, 1, context), **options)


def batches(*values: int) -> Axis:
    return Axis("batch", values)


# ------------------------------------------------------------------------------------------------ marks


@pytest.mark.parametrize(
    ("model", "weights", "crossover"),
    [(M7, "bf16", 6.275638580322266), (M8, "bf16", 29.915054321289062), (M7, "all=int8", 3.137819290161133)],
)
def test_crossover_of_the_collection(model, weights: str, crossover: float) -> None:  # F7.2
    curve = decode(deploy(model, HA, weights=weights), batches(1)).curves[0]
    assert curve.crossover_batch == approx(crossover, rel=1e-12)


@pytest.mark.parametrize(("context", "batch"), [(50, 223.95861145750885), (100, 396.83089925949525), (200, None)])
def test_compute_bound_batch_of_the_collection(context: int, batch: float | None) -> None:  # F7.3
    curve = decode(deploy(M7, HA), batches(1), context=context).curves[0]
    if batch is None:
        assert (curve.compute_bound_batch, curve.compute_bound_batch_reason) == (None, "memory_bound_at_any_batch")
    else:
        assert curve.compute_bound_batch == approx(batch, rel=1e-11)
        assert curve.compute_bound_batch_reason is None


@pytest.mark.parametrize(("model", "capacity", "batch"), [(M7, 80 * 10**9, 27), (M8, 80 * GIB, 114)])
def test_largest_batch_in_memory_of_the_collection(model, capacity: int, batch: int) -> None:  # F7.5
    memory = MemoryOverrides(total_bytes=capacity, utilization=0.9, activation_bytes=0, runtime_bytes=0)
    found = decode(deploy(model, HA, memory=memory), batches(batch, batch + 1))
    assert found.columns["fits"] == [True, False]
    curve = found.curves[0]
    assert (curve.within_memory, curve.memory_binds) == (batch, "kv_less_than_concurrency")


def test_marks_are_those_of_the_batch_curve() -> None:  # F7.4, F7.6, F13.8
    d, model = deploy(M8, HH), StepModel.of(deploy(M8, HH))
    curve = decode(d, batches(1), price=2.0, limit_s=0.020).curves[0]
    within = batch_curve.batch_within_tpot(model, 4096, 0.020, curve.within_memory)
    tried = [batch for batch in range(1, curve.within_memory + 1) if model.step_s(batch, 4096) <= 0.020]
    assert curve.within_tpot == within == max(tried)
    assert curve.knee == batch_curve.knee(model, 4096, curve.within_memory, limit_s=0.020)
    assert curve.cheapest.batch == within
    price = 2.0 * 1e6 / 3600 * model.step_s(within, 4096) / within
    assert curve.cheapest.usd_per_million_output_tokens == approx(price, rel=1e-12)


def test_replicas_scale_the_marks() -> None:
    from roofplan.planner.parallel import Layout

    one, four = (
        decode(deploy(M8, HH, layout=Layout(dp=dp)), batches(4), limit_s=0.02, price=1.0).curves[0] for dp in (1, 4)
    )
    assert four.crossover_batch == approx(4 * one.crossover_batch)
    assert four.within_memory == 4 * one.within_memory
    assert four.within_tpot == 4 * one.within_tpot
    assert four.knee.by_gain == approx(4 * one.knee.by_gain, abs=4)
    assert four.cheapest.batch == 4 * one.cheapest.batch
    assert four.cheapest.usd_per_million_output_tokens == approx(one.cheapest.usd_per_million_output_tokens)


def test_the_knee_of_served_requests_keeps_their_time_per_token() -> None:
    found = roofplan.sweep(LLAMA, H100, over="batch=1,8", prompt=4096, output=512, tpot=0.012)
    curve = found.curves[0]
    times = [
        roofplan.size(LLAMA, H100, prompt=4096, output=512, concurrency=batch).times.latency.tpot_s.expected
        for batch in (curve.within_tpot, curve.within_tpot + 1)
    ]
    assert times[0] <= 0.012 < times[1]
    assert (curve.knee.batch, curve.knee.binds) == (curve.within_tpot, "latency")
    assert curve.knee.by_gain > curve.within_tpot


def test_the_cheapest_row_fits_and_keeps_the_limit() -> None:
    found = roofplan.sweep(LLAMA, H100, over="batch=1..1024:x2", context=4096)
    cost, fits = found.columns["usd_per_million_output_tokens.expected"], found.columns["fits"]
    fitting = [number for number, fit in enumerate(fits) if fit]
    assert found.cheapest == min(fitting, key=lambda number: cost[number])
    assert min(range(found.count), key=lambda number: cost[number]) not in fitting  # larger ones are cheaper still
    limited = roofplan.sweep(LLAMA, H100, over="batch=1..1024:x2", context=4096, tpot="9 ms")
    assert limited.columns["tpot_s.expected"][limited.cheapest] <= 0.009
    assert limited.columns["tpot_s.expected"][limited.cheapest + 1] > 0.009


def test_nothing_is_cheap_without_a_price() -> None:
    marks = decode(deploy(M8, HH), batches(1, 2)).figures()["marks"]
    assert (marks["cheapest"], marks["cheapest_reason"]) == (None, "no_price")
    cheapest = marks["curves"][0]["cheapest"]
    assert (cheapest["usd_per_million_output_tokens"], cheapest["usd_reason"]) == (None, "no_price")
    limited = roofplan.sweep(LLAMA, H100, over="batch=1,2", context=4096, tpot="1 us").figures()["marks"]
    assert limited["cheapest_reason"] == "nothing_within_the_limits"


def test_many_curves_have_no_marks() -> None:
    many = Axis("context", tuple(range(2, MOST_CURVES + 3)))
    found = decode(deploy(M8, HH), many, context=None)
    assert found.curves is None
    assert found.figures()["marks"]["reason"] == "too_many_curves"
    assert decode(deploy(M8, HH), Axis("context", many.values[1:]), context=None).curves is not None


# ------------------------------------------------------------------------------------------------ points


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["plain", "vllm", "sglang", "tensorrt-llm", "llama.cpp"]),
    st.sampled_from(
        [{}, {"tp": 2}, {"pp": 2}, {"dp": 2}, {"kv": "fp8"}, {"max_num_seqs": 40}, {"max_model_len": 9000}]
    ),
    st.lists(st.integers(1, 3000), min_size=1, max_size=12, unique=True),
    st.lists(st.integers(2, 9000), min_size=1, max_size=4, unique=True),
    st.sampled_from(["24 GB", "40 GB", "80 GB"]),
)
def test_what_fits_is_what_the_one_rule_says(engine, options, counts, lengths, memory) -> None:
    asked = {"engine": engine, "device_memory": memory, **options}
    found = roofplan.sweep(LLAMA, H100, over={"context": lengths, "batch": counts}, **asked)
    d = roofplan.deployment(LLAMA, H100, prompt=1, output=1, **asked)
    places = [(length, batch) for length in lengths for batch in counts]
    assert found.columns["reason"] == [reason_of(of_length(d, *place)) for place in places]
    assert found.columns["fits"] == [reason is None for reason in found.columns["reason"]]


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(
        [(LLAMA, {}), ("mixtral-8x7b", {"tp": 2}), ("deepseek-v3", {"tp": 8}), (LLAMA, {"pp": 2, "dp": 2})]
    ),
    st.lists(st.integers(1, 2000), min_size=1, max_size=6, unique=True),
    st.lists(st.integers(2, 100_000), min_size=1, max_size=3, unique=True),
)
def test_points_of_decode_are_those_of_single_steps(model, counts, lengths) -> None:
    name, options = model
    found = roofplan.sweep(name, "h200", over={"batch": counts, "context": lengths}, usd_per_hour=2, **options)
    d = roofplan.deployment(name, "h200", prompt=1, output=1, **options)
    nominal, reached, width = StepModel.of(d), StepModel.reached(d), evidence_of(d).width
    devices = d.layout.devices
    for row, (batch, length) in zip(found.rows(), [(b, c) for b in counts for c in lengths], strict=True):
        decoders = max(1.0, -(-batch // d.layout.dp) / d.layout.pp)
        step = Range.of_time(nominal.step_s(decoders, length), reached.step_s(decoders, length), width)
        assert row["step_s"] == row["tpot_s"] == approx(plain(step), rel=1e-12)
        assert row["output_tokens_per_s"]["expected"] == approx(batch / step.expected)
        assert row["output_tokens_per_s"]["low"] == approx(batch / step.high)
        assert row["output_tokens_per_s_per_device"]["bound"] == approx(batch / step.bound / devices)
        assert row["per_user_tokens_per_s"]["high"] == approx(1 / step.low)
        cost = 2 * devices * 1e6 / 3600 / batch
        assert row["usd_per_million_output_tokens"] == approx({k: cost * v for k, v in plain(step).items()})


@pytest.mark.parametrize(
    "options",
    [
        {"prompt": 4096, "output": 512},
        {"prompt": 100, "output": 1},
        {"prompt": 2000, "output": 300, "tp": 2, "dp": 2, "engine": "vllm"},
        {"prompt": 2000, "output": 300, "engine": "llama.cpp"},
    ],
)
def test_points_of_served_requests_are_those_of_a_sizing(options: dict[str, object]) -> None:
    found = roofplan.sweep(LLAMA, H100, over="batch=1,7,64,500", **options)
    for row in found.rows():
        sized = roofplan.size(LLAMA, H100, concurrency=row["batch"], **options)
        figures = plain(sized.figures())
        latency, rates = figures["latency"], figures["throughput"]
        assert (row["step_s"], row["tpot_s"]) == (latency["itl_s"], latency["tpot_s"])
        assert (row["ttft_s"], row["e2e_s"]) == (latency["ttft_s"], latency["e2e_s"])
        assert row["output_tokens_per_s"] == rates["output_tokens_per_s"]
        assert row["per_user_tokens_per_s"] == rates["per_user_tokens_per_s"]
        assert row["fits"] == sized.fits
        assert [row["reason"]] == list(sized.reasons or [None])
        assert row["free_bytes"] == sized.memory.free_bytes
        assert row["weights_bytes"] == sized.memory.weights_bytes


def test_memory_adds_up() -> None:  # F5.1
    for row in roofplan.sweep("llama-3-70b", H100, over="tp=2,4,8", context=8192, concurrency=9).rows():
        used = row["memory_bytes"] - row["kv_bytes"]
        assert row["kv_bytes"] == 9 * 8192 * 2 * 80 * 8 * 128 * 2 // row["devices"]
        assert row["free_bytes"] == row["kv_budget_bytes"] - row["kv_bytes"]
        assert used + row["kv_budget_bytes"] == approx(0.9 * 81559 * 2**20, abs=1)


def test_rows_follow_the_axes_the_last_one_fastest() -> None:
    found = roofplan.sweep(LLAMA, H100, over={"kv": ["fp8", "bf16"], "batch": [4, 1]}, context=512)
    assert [(row["kv"], row["batch"]) for row in found.rows()] == [("fp8", 4), ("fp8", 1), ("bf16", 4), ("bf16", 1)]
    turned = roofplan.sweep(LLAMA, H100, over={"batch": [4, 1], "kv": ["fp8", "bf16"]}, context=512)
    assert [(row["kv"], row["batch"]) for row in turned.rows()] == [("fp8", 4), ("bf16", 4), ("fp8", 1), ("bf16", 1)]
    by_place = {(row["kv"], row["batch"]): row for row in found.rows()}
    assert all(row == by_place[row["kv"], row["batch"]] for row in turned.rows())


def test_more_sequences_never_make_a_step_shorter_or_a_user_faster() -> None:
    found = roofplan.sweep("deepseek-v3", "h200", over="batch=1..2000", context=3000, tp=8)
    step, rate = found.columns["step_s.expected"], found.columns["output_tokens_per_s.expected"]
    assert all(a <= b for a, b in pairwise(step))
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(rate))


def test_a_device_without_rates_has_memory_and_no_times() -> None:
    unknown = dataclasses.replace(HH, peak=dataclasses.replace(HH.peak, bf16=None, fp32=None))
    found = decode(deploy(M8, unknown, memory=NOTHING_ELSE), batches(1, 2))
    assert [row["step_s"] for row in found.rows()] == [None, None]
    assert found.columns["fits"] == [True, True]
    curve = found.curves[0]
    assert (curve.knee, curve.cheapest, curve.within_tpot) == (None, None, None)
    assert curve.compute_bound_batch_reason == "no_dense_rate"
    assert json.dumps(found.to_dict(), allow_nan=False)


# ------------------------------------------------------------------------------------------------ the answer


def test_the_dictionary_is_plain_and_whole() -> None:
    found = roofplan.sweep(LLAMA, H100, over="batch=1,64,500", prompt=2000, output=200, tpot="20 ms")
    told = found.to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == json.loads(json.dumps(told))
    assert told["result"] == plain(found.figures())
    assert told["inputs"]["over"] == {"batch": [1, 64, 500]}
    assert "concurrency" not in told["inputs"]
    assert {"usd_per_device_hour", "memory.bandwidth"} <= {entry["name"] for entry in told["assumptions"]}


def test_a_number_that_is_not_finite_is_a_fault() -> None:
    found = decode(deploy(M8, HH), batches(1))
    columns = {**found.columns, "step_s.low": [float("nan")]}
    with pytest.raises(ArithmeticError):
        dataclasses.replace(found, columns=columns).to_dict()


def test_marks_and_times_are_explained() -> None:
    found = roofplan.sweep(LLAMA, H100, over="batch=1,64", context=4096, tpot="20 ms")
    explained = {line.figure: line for line in found.explain()}
    assert {"rows.0.step_s", "marks.knee", "marks.crossover_batch", "marks.within_tpot", "marks.cheapest"} <= set(
        explained
    )
    assert all(line.formula and line.numbers for line in explained.values())


def test_progress_counts_up_to_all_points() -> None:
    told: list[tuple[int, int]] = []
    roofplan.sweep(
        LLAMA,
        H100,
        over={"kv": ["bf16", "fp8"], "batch": range(1, 30_001)},
        context=1024,
        progress=lambda *at: told.append(at),
    )
    assert told == [(20_000, 60_000), (30_000, 60_000), (50_000, 60_000), (60_000, 60_000)]


@pytest.mark.parametrize(
    ("context", "count"),
    [(None, 10_001), (4096, 1_000_001)],
)
def test_too_many_points_are_refused(context: int | None, count: int) -> None:
    with pytest.raises(DomainError, match="points"):
        sweep([batches(*range(1, count + 1))], [Variant((), deploy(M8, HH), None)], Traffic(1, 1, 1, context))


def test_expected_steps_stand_on_the_roof() -> None:
    steps = ExpectedSteps.of(roofplan.deployment(LLAMA, H100, prompt=1, output=1))
    for batch in (1, 64, 1000):
        bound, reached = steps.both_s(batch, 4096)
        assert steps.step_s(batch, 4096) == max(bound, reached) >= bound
