"""Steps on kernels as they are reached: what is launched how often, what adds up, what never beats the roof, and published times.

Launches per layer are those of the notes on time (section 2): four products, attention and four small kernels in a dense layer, one more
with norms of queries and keys, seven with latents, two more with a recurrence or with routed experts, two all-reduces.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from round_numbers import FREE, IDEAL, KERNELS, KIB, MIXED, NOTHING, TIMING, US, linked, reach, table
from shapes import DS, HH, M7, M8, deploy

import roofplan
from roofplan import engines, hardware, models
from roofplan.engines.timing import Timing
from roofplan.errors import DomainError, RoofplanError, SpecError
from roofplan.hardware.achieved import UsualExchange
from roofplan.hardware.spec import Peak
from roofplan.models.spec import ModelSpec
from roofplan.planner.costs import ActivationTraffic, LatentScores, Load, Scores
from roofplan.planner.deployment import Deployment
from roofplan.planner.parallel import Layout
from roofplan.planner.step import StepModel

EXACT = 1e-12
ROUNDED = 1e-9
LLAMA, QWEN, MOE, HYBRID = (models.load(n) for n in ("llama-3.1-8b", "qwen3-32b", "qwen3-30b-a3b", "qwen3.5-27b"))
GLM = models.load("glm-5")

# ------------------------------------------------------------------------------------------------ launches

ONE = replace(FREE, floor=1.0)  # a second for each launch


def launched(
    model: ModelSpec, layout: Layout | None = None, *, chunk: int = 0, decoders: int = 1, **seconds: object
) -> float:
    """Launches in a step: its seconds where one kind of kernel takes one and nothing else takes any (but for the work, microseconds)."""
    endless = replace(
        linked(HH), memory=replace(HH.memory, bandwidth=1e30), peak=replace(HH.peak, bf16=1e30, fp32=1e30)
    )
    d = reach(model, endless, kernels=replace(IDEAL, **seconds), layout=layout or Layout())
    return round(StepModel.reached(d).step_s(decoders, 100, chunk=chunk), 6)


@pytest.mark.parametrize(
    ("model", "products", "small"),
    [
        (LLAMA, 32 * 4 + 1, 32 * 4 + 2),  # and the head; the table look-up and the last norm
        (QWEN, 64 * 4 + 1, 64 * 5 + 2),
        (MOE, 48 * 3 + 1, 48 * (4 + 1 + 2) + 2),  # QKV, O and the router
        (HYBRID, 64 * 4 + 1, 48 * (4 + 2) + 16 * 5 + 2),  # in and out of the recurrence
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_launches_of_products_and_small_kernels(model: ModelSpec, products: int, small: int) -> None:
    assert launched(model, gemm=(ONE,)) == products
    assert launched(model, elementwise=ONE) == small


def test_small_kernels_of_latent_layers() -> None:
    assert launched(DS, elementwise=ONE) == 3 * 7 + 58 * (7 + 2) + 2


@pytest.mark.parametrize(
    ("model", "layers"), [(LLAMA, 32), (DS, 61), (HYBRID, 16)], ids=lambda value: getattr(value, "name", None)
)
def test_launches_of_attention(model: ModelSpec, layers: int) -> None:
    decoding, prompt = {"decode_attention": (ONE,)}, {"prefill_attention": ONE}
    assert launched(model, **decoding) == launched(model, chunk=64, **decoding) == layers
    assert launched(model, decoders=0, chunk=64, **prompt) == launched(model, chunk=64, **prompt) == layers
    assert launched(model, decoders=0, chunk=64, **decoding) == launched(model, **prompt) == 0


def test_a_window_takes_no_kernel_more() -> None:
    gemma = models.load("gemma-3-27b")
    assert launched(gemma, decode_attention=(ONE,)) == 62
    assert launched(gemma, elementwise=ONE) == 62 * 7 + 2  # four norms a layer, and that of queries and keys


@pytest.mark.parametrize(
    ("model", "layers"), [(LLAMA, 0), (MOE, 48), (DS, 58)], ids=lambda value: getattr(value, "name", None)
)
def test_launches_of_experts(model: ModelSpec, layers: int) -> None:
    assert launched(model, experts=(ONE,)) == layers
    assert launched(model, floors=replace(NOTHING, routing=1.0)) == layers


def test_launches_of_recurrences_and_latents() -> None:
    assert launched(HYBRID, state=ONE) == launched(HYBRID, floors=replace(NOTHING, gated_delta=1.0)) == 48
    assert launched(DS, floors=replace(NOTHING, latent=1.0)) == 61
    assert launched(LLAMA, state=ONE, floors=replace(NOTHING, latent=1.0, sparse_index=1.0)) == 0


def test_every_layer_that_chooses_entries_takes_time_to_choose() -> None:
    choosing = sum(g.count for g in GLM.layers for mixer in g.attention if getattr(mixer, "indexer", None) is not None)
    assert launched(GLM, floors=replace(NOTHING, sparse_index=1.0)) == choosing == GLM.num_layers


@pytest.mark.parametrize(
    ("layout", "count"),
    [(Layout(tp=8), 2 * 32), (Layout(pp=4), 3), (Layout(tp=2, pp=4), 2 * 32 + 3), (Layout(dp=8), 0)],
)
def test_launches_of_exchanges(layout: Layout, count: int) -> None:
    one = UsualExchange(operation="all_reduce", kernel="quick", ranks=8, floor=1.0, bandwidth=1.0)
    assert launched(LLAMA, layout, collective=(one,)) == approx(count, abs=1e-3)


def test_two_all_to_alls_in_a_layer_of_experts_on_other_replicas() -> None:
    one = UsualExchange(operation="alltoall", kernel="quick", ranks=8, floor=1.0, bandwidth=1.0)
    assert launched(DS, Layout(dp=8, ep=8), collective=(one,)) == approx(2 * 58, abs=1e-3)


# ------------------------------------------------------------------------------------------------ host


def test_the_host_takes_time_per_step_and_per_sequence() -> None:
    plain, busy = (
        StepModel.reached(reach(M8, HH, timing=replace(TIMING, host_per_step=step, host_per_sequence=each)))
        for step, each in ((0.0, 0.0), (2e-3, 3e-5))
    )

    def added(decoders: float, **load: float) -> float:
        return busy.step_s(decoders, 1000, **load) - plain.step_s(decoders, 1000, **load)

    assert added(1) == approx(2e-3 + 3e-5, rel=ROUNDED)
    assert added(64) == approx(2e-3 + 64 * 3e-5, rel=ROUNDED)
    assert added(64, chunk=512) == approx(2e-3 + 65 * 3e-5, rel=ROUNDED)
    assert added(0, chunk=4096, pieces=16) == approx(2e-3 + 16 * 3e-5, rel=ROUNDED)


@pytest.mark.parametrize(("model", "floor"), [(M8, 32 * 1.0), (DS, 61 * 2.0)])
def test_prompts_are_launched_kernel_by_kernel(model: ModelSpec, floor: float) -> None:
    timing = replace(TIMING, host_per_step=0.5, prompt_floor=1.0, expert_prompt_floor=2.0)
    step = StepModel.reached(reach(model, HH, timing=timing))
    assert step.step_s(0, 0, chunk=100) == step.step_s(10, 100, chunk=100) == floor + 0.5
    assert step.step_s(10, 100) < 1
    assert step.step_s(np.array([10, 0]), 100, chunk=np.array([0, 100])) == approx([step.step_s(10, 100), floor + 0.5])
    long = step.step_s(0, 0, chunk=10**7)
    assert long > floor + 0.5
    assert long == approx(StepModel.reached(reach(model, HH)).step_s(0, 0, chunk=10**7) + 0.5, rel=ROUNDED)


# ------------------------------------------------------------------------------------------------ against the roof


def test_ideal_kernels_are_the_roof() -> None:
    for model in (M8, DS, HYBRID):
        d = reach(model, HH, kernels=IDEAL)
        nominal, reached = StepModel.of(d), StepModel.reached(d)
        # The roof does not count what activations pass through memory.
        passed = sum(
            o.bytes_per_token for o in reached.operators if isinstance(o, ActivationTraffic) and o.kind == "gate"
        )
        for load in ({}, {"chunk": 900}, {"chunk": 64, "past": 10_000, "pieces": 4}):
            beside = (7 + load.get("chunk", 0)) * passed / HH.memory.bandwidth
            assert reached.step_s(7, 3000, **load) == approx(nominal.step_s(7, 3000, **load) + beside, rel=EXACT)


DEVICES = [hardware.load(name) for name in hardware.CATALOGUE.slugs()]
MODELS = [models.load(name) for name in models.CATALOGUE.slugs()]
ENGINES = [engines.load(name) for name in ("plain", "vllm@0.19", "sglang@0.5", "tensorrt-llm@1.1", "gpt-fast")]
ONE_RANK = [Layout(), Layout(dp=4)]
SEVERAL = [Layout(tp=2), Layout(tp=8), Layout(tp=4, pp=2), Layout(pp=3), Layout(dp=8, ep=8), Layout(tp=2, dp=2, ep=2)]
loads = st.tuples(
    st.integers(0, 1024),
    st.integers(1, 2**17),
    st.sampled_from([0, 1, 100, 8192]),
    st.integers(0, 10**5),
    st.integers(1, 4),
).filter(lambda load: load[0] + load[2] > 0)


def built(model: ModelSpec, gpu: hardware.HardwareSpec, engine: object, layout: Layout) -> Deployment | None:
    """A deployment on the catalogue's kernels, or None where heads do not divide or no rate is known."""
    try:
        d = replace(deploy(model, gpu, layout=layout), engine=engine, kernels=hardware.kernels_of(gpu))
        StepModel.of(d)
    except RoofplanError:
        return None
    return d


def never_faster(d: Deployment, load: tuple[int, int, int, int, int]) -> None:
    decoders, context, chunk, past, pieces = load
    more = {"chunk": chunk, "past": past, "pieces": pieces}
    nominal = StepModel.of(d).step_s(decoders, context, **more)
    assert 0 < nominal <= StepModel.reached(d).step_s(decoders, context, **more) * (1 + ROUNDED)


@given(st.sampled_from(MODELS), st.sampled_from(DEVICES), st.sampled_from(ENGINES), st.sampled_from(ONE_RANK), loads)
def test_nothing_is_faster_than_the_roof(model, gpu, engine, layout: Layout, load) -> None:
    d = built(model, gpu, engine, layout)
    if d is not None:
        never_faster(d, load)


@given(st.sampled_from(MODELS), st.sampled_from(DEVICES), st.sampled_from(ENGINES), st.sampled_from(SEVERAL), loads)
def test_nothing_is_faster_than_the_roof_of_several_devices(model, gpu, engine, layout: Layout, load) -> None:
    d = built(model, gpu, engine, layout)
    if d is not None:
        never_faster(d, load)


@pytest.mark.parametrize("gpu", ["h800-pcie-80gb", "h100-pcie-80gb", "a100-pcie-80gb", "gh200-96gb"])
def test_exchanges_over_another_link_than_measured_do_not_beat_it(gpu: str) -> None:
    d = built(models.load("llama-2-70b"), hardware.load(gpu), engines.load("vllm@0.19"), Layout(tp=8))
    assert d is not None
    never_faster(d, (1, 1000, 8192, 0, 1))


# ------------------------------------------------------------------------------------------------ identities

MODELS_BY_KIND = [M8, MOE, DS, HYBRID, GLM]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_arrays_give_what_numbers_give(model: ModelSpec) -> None:
    tables = (table("quick", 2, {KIB: 3, 1024 * KIB: 40}), table("quick", 8, {KIB: 6, 1024 * KIB: 60}, "alltoall"))
    timing = Timing(
        host_per_step=2e-4,
        host_per_sequence=2e-5,
        small_kernels=1.5,
        layer_passes=4,
        expert_passes=3,
        exchange_kernels=("quick",),
        prompt_floor=1e-3,
        expert_prompt_floor=2e-3,
    )
    for layout in (Layout(), Layout(tp=2), Layout(dp=8, ep=8)):
        try:
            d = reach(model, linked(HH), kernels=replace(KERNELS, collectives=tables), timing=timing, layout=layout)
        except RoofplanError:
            continue  # heads or experts that do not divide
        step = StepModel.reached(d)
        grid = [
            (1, 1, 0, 0, 1),
            (7, 100, 0, 0, 1),
            (0, 1, 512, 0, 4),
            (64, 5000, 512, 0, 1),
            (512, 70000, 4096, 9000, 3),
        ]
        columns = [np.array(column, dtype=float) for column in zip(*grid, strict=True)]
        together = step.step_s(columns[0], columns[1], chunk=columns[2], past=columns[3], pieces=columns[4])
        alone = [step.step_s(b, c, chunk=n, past=p, pieces=k) for b, c, n, p, k in grid]
        assert together == approx(np.array(alone), rel=EXACT)


def test_pieces_alone_may_be_an_array() -> None:
    step = StepModel.reached(reach(M8, HH))
    assert step.step_s(0, 0, chunk=1024, pieces=np.array([1, 4])) == approx(
        [step.step_s(0, 0, chunk=1024, pieces=k) for k in (1, 4)]
    )


kinds = st.sampled_from(MODELS_BY_KIND)


@given(kinds, st.sampled_from([Layout(), Layout(tp=2), Layout(tp=8, pp=2)]), loads)
@settings(max_examples=60)
def test_costs_add_up_to_the_step_without_the_host(model: ModelSpec, layout: Layout, load) -> None:
    timing = replace(TIMING, host_per_step=1e-3, host_per_sequence=1e-5, layer_passes=6, expert_passes=2)
    kernels = replace(KERNELS, collectives=(table("quick", 8, {KIB: 6, 1024 * KIB: 60}),))
    step = StepModel.reached(reach(model, linked(HH), kernels=kernels, timing=timing, layout=layout))
    decoders, context, chunk, past, pieces = load
    host = 1e-3 + 1e-5 * (decoders + (pieces if chunk else 0))
    listed = sum(cost.time_s for cost in step.costs(Load(decoders, context, 1, chunk, past, pieces)))
    assert listed + host == approx(step.step_s(decoders, context, chunk=chunk, past=past, pieces=pieces), rel=ROUNDED)


def test_costs_add_up_where_attention_does_not_overlap() -> None:
    summed = tuple(replace(kernel, overlap=1.0) for kernel in KERNELS.decode_attention)
    step = StepModel.reached(reach(M8, HH, kernels=replace(KERNELS, decode_attention=summed)))
    assert sum(cost.time_s for cost in step.costs(Load(64, 4096))) == approx(step.step_s(64, 4096), rel=ROUNDED)


@given(kinds, st.integers(1, 16), st.integers(1, 4096), st.integers(0, 50_000))
@settings(max_examples=60)
def test_attention_of_equal_prompts_is_the_sum_of_theirs(model: ModelSpec, count: int, tokens: int, past: int) -> None:
    operators = [
        operator
        for operator in StepModel.reached(reach(model, HH)).operators
        if isinstance(operator, (Scores, LatentScores)) and operator.phase == "prefill"
    ]
    assert operators
    for operator in operators:
        together = operator.cost(Load(0, 0, 1, count * tokens, past, count))
        alone = operator.cost(Load(0, 0, 1, tokens, past))
        assert together == approx([count * part for part in alone], rel=ROUNDED)


def test_equal_prompts_together_read_the_weights_once() -> None:
    step = StepModel.reached(reach(M8, HH, timing=replace(TIMING, host_per_step=1e-3)))
    alone, together, long = (step.step_s(0, 0, chunk=n, pieces=k) for n, k in ((256, 1), (8 * 256, 8), (8 * 256, 1)))
    assert alone < together < 8 * alone
    assert together < long  # whose tokens attend to more, with one row of the head instead of eight
    sums = [
        sum(c.flop for c in step.costs(Load(0, 0, 1, n, 0, k)) if c.name != "head") for n, k in ((256, 1), (2048, 8))
    ]
    assert sums[1] == approx(8 * sums[0], rel=EXACT)


@given(kinds, st.integers(1, 2000), st.integers(1, 2**17), st.integers(1, 9000), st.integers(0, 10**5))
@settings(max_examples=60)
def test_more_work_takes_no_less_time(model: ModelSpec, decoders: int, context: int, chunk: int, past: int) -> None:
    step = StepModel.reached(reach(model, linked(HH), layout=Layout(tp=2)))

    def rises(*times: float) -> bool:
        return all(less <= more * (1 + ROUNDED) for less, more in itertools.pairwise(times))

    assert rises(*(step.step_s(n, context) for n in (decoders, decoders + 1, 2 * decoders)))
    assert rises(*(step.step_s(decoders, tokens) for tokens in (context, context + 1, 2 * context)))
    assert rises(*(step.step_s(decoders, context, chunk=n, past=past) for n in (0, chunk, chunk + 1, 2 * chunk)))
    assert rises(*(step.step_s(decoders, context, verify=n) for n in (1, 2, 3)))
    assert step.step_s(decoders, context, chunk=chunk) <= (
        step.step_s(decoders, context) + step.step_s(0, 0, chunk=chunk)
    ) * (1 + ROUNDED)


@given(kinds, st.integers(1, 500), st.integers(1, 10**5))
@settings(max_examples=30)
def test_worse_kernels_take_no_less_time(model: ModelSpec, decoders: int, context: int) -> None:
    def step(**changes: object) -> float:
        d = reach(model, linked(HH), kernels=replace(KERNELS, **changes), layout=Layout(tp=2))
        return StepModel.reached(d).step_s(decoders, context, chunk=300)

    usual = step()
    slower = replace(KERNELS.gemm[0], floor=5 * US, bandwidth=0.7)
    assert usual < step(gemm=(slower,))
    assert usual < step(elementwise=replace(KERNELS.elementwise, floor=3 * US))
    assert usual < step(decode_attention=tuple(k.scaled(0.9, 0.9) for k in KERNELS.decode_attention))
    assert usual < step(gemm=tuple(replace(k, overlap=1.0) for k in KERNELS.gemm))


def test_times_as_reached_need_kernels_and_rates() -> None:
    with pytest.raises(DomainError, match="kernels"):
        StepModel.reached(deploy(M8, HH))
    without = replace(HH, peak=Peak(int8=1e12))
    with pytest.raises(SpecError, match="no dense rate"):
        StepModel.reached(reach(M7, without))


# ------------------------------------------------------------------------------------------------ published times


@pytest.mark.parametrize("context", [0, 32_768, 131_072])
def test_vllm_llama_8b_on_one_h100(context: int) -> None:
    """vLLM 0.19, bf16 (vllm-project blog of 2026-04-22): 6.44 ms, and 4.37e-5 ms for each token of the context."""
    step = StepModel.reached(roofplan.deployment("llama-3.1-8b", "h100-sxm", engine="vllm@0.19"))
    assert step.step_s(1.0, context) * 1e3 == approx(6.44 + 4.37e-5 * context, rel=0.08)


def test_gpt_fast_llama_8b_on_one_a100() -> None:
    """README of gpt-fast, bf16: 93.9 tokens/s of 5 + 200."""
    d = roofplan.deployment(
        "llama-3.1-8b", "a100-sxm4-80gb", engine="gpt-fast", activations="bf16", prompt=5, output=200
    )
    assert 1 / StepModel.reached(d).step_s(1.0, 5 + 200 / 2) == approx(93.9, rel=0.08)


@pytest.mark.parametrize(("tp", "milliseconds"), [(2, 12.0), (4, 8.0), (8, 6.3)])
def test_tensorrt_llm_llama_70b_on_h200(tp: int, milliseconds: float) -> None:
    """InferenceX: fp8, 1024/1024, four in flight."""
    options = {"weights": "fp8", "kv": "fp8", "prompt": 1024, "output": 1024, "concurrency": 4}
    times = roofplan.size("llama-3.1-70b", "h200", engine="tensorrt-llm@1.1", tp=tp, **options).times
    assert times is not None
    assert times.load.tpot_s * 1e3 == approx(milliseconds, rel=0.20)


def test_what_an_engine_adds_to_requests_for_experts_is_added_for_them_alone() -> None:
    scheduling = replace(MIXED, request_overhead=20e-3, expert_request_overhead=50e-3)
    dense, experts = (reach(model, HH, scheduling=scheduling).scheduling for model in (M8, DS))
    assert dense.request_overhead == 20e-3
    assert experts.request_overhead == approx(70e-3)
    assert experts.expert_request_overhead == 0
