"""What every sizing obeys, whatever the model and device, and figures worked out by hand."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, GIB, HH, M7, M8, M70, deploy

import roofplan
from roofplan import hardware, models
from roofplan.planner.activations import activation_peak, logits_bytes
from roofplan.planner.costs import Load
from roofplan.planner.deployment import Deployment, MemoryOverrides
from roofplan.planner.memory import plan_capacity, plan_memory, rank_cache
from roofplan.planner.parallel import Layout
from roofplan.planner.results import plain
from roofplan.planner.sizing import size_deployment
from roofplan.planner.step import StepModel

MIB = 2**20
MODELS = [models.load(name) for name in models.CATALOGUE.slugs()]
DEVICES = [hardware.load(name) for name in hardware.CATALOGUE.slugs()]


def test_activations_of_a_chunk() -> None:  # F5.2
    assert activation_peak(deploy(M8, HH), rows=0).total_bytes == 838860800


def test_logits_are_float32() -> None:  # F5.3
    assert logits_bytes(256, 128256) == 131334144
    assert logits_bytes(8192, 128256) / GIB == 3.9140625


def test_the_budget_adds_up() -> None:  # F5.1
    d = dataclasses.replace(deploy(M8, HH, prompt=1000, output=24, concurrency=10), memory=MemoryOverrides())
    plan = plan_memory(d)
    used = plan.weights_bytes + plan.activation_bytes + plan.non_torch_bytes + plan.graph_bytes + plan.kv_budget_bytes
    assert used == plan.budget_bytes == int(80 * 10**9 * 0.9)
    assert plan.free_bytes == plan.kv_budget_bytes - 10 * 1024 * 131072


def test_kv_budget_of_a_tensor_parallel_group_subtracts_activations_on_every_rank() -> None:  # bug case 24
    qwen = roofplan.size(
        "qwen3-32b",
        "h100",
        tp=2,
        device_memory=int(79.18 * GIB),
        activation_memory=int(5.64 * GIB),
        runtime_memory=int(0.54 * GIB),
        memory_utilization=0.9,
    )
    assert 2 * qwen.memory.kv_budget_bytes / GIB == approx(
        68.98, rel=0.005
    )  # a vLLM start-up log; once per group would give 74.69


@pytest.mark.parametrize(
    ("model", "weights", "expected"),
    [("llama-3.1-8b", "bf16", 51.38), ("qwen3-32b", "bf16", 4.45), ("qwen3-0.6b", "bf16", 64.45)],
)
def test_budget_identity_of_published_logs(model: str, weights: str, expected: float) -> None:  # bug case 26
    """Total 79.18 GiB at 0.9, activations and non-torch as logged; the weights are computed here."""
    logged = {"llama-3.1-8b": (4.76, 0.13), "qwen3-32b": (5.64, 0.14), "qwen3-0.6b": (5.56, 0.13)}
    activation, runtime = logged[model]
    result = roofplan.size(
        model,
        "h100",
        weights=weights,
        device_memory=int(79.18 * GIB),
        activation_memory=int(activation * GIB),
        runtime_memory=int(runtime * GIB),
    )
    assert result.memory.kv_budget_bytes / GIB == approx(expected, abs=0.08)


def test_deepseek_v3_on_eight_h200_without_overhead() -> None:
    result = roofplan.size(
        "deepseek-v3", "h200", devices=8, prompt=8000, output=192, activation_memory=0, runtime_memory=0
    )
    assert (
        80 <= result.capacity.max_concurrency <= 90
    )  # latents replicated on every rank; divided by the ranks it would be 689
    again = roofplan.size("deepseek-v3", "h200", dp=8, ep=8, prompt=8000, output=192, concurrency=8)
    # With data-parallel attention each rank keeps its own sequences, but all of the attention's weights too.
    assert 5 * result.capacity.max_concurrency < again.capacity.max_concurrency < 8 * result.capacity.max_concurrency


def test_sequences_per_node_are_what_the_memory_holds() -> None:  # bug case 61: the claim was 360
    fixed = {
        "device_memory": int(79.18 * GIB),
        "activation_memory": int(5.4 * GIB),
        "runtime_memory": 0,
        "prompt": 4000,
        "output": 96,
    }
    found = [
        roofplan.size("llama-3-70b", "h100", devices=4, weights=weights, kv=kv, **fixed).capacity.max_concurrency
        for weights, kv in (("bf16", "bf16"), ("all=fp8", "bf16"), ("all=fp8", "fp8"))
    ]
    assert found == approx([105, 158, 316], abs=2)


def test_mixture_memory_counts_all_experts() -> None:  # bug case 32
    assert roofplan.size("mixtral-8x7b", "h200").model.weights_bytes == 2 * 46702792704
    result = roofplan.size("deepseek-v3", "h200", devices=8)
    assert result.model.weights_bytes > 671e9


layouts = st.sampled_from([Layout(), Layout(tp=2), Layout(tp=4, pp=2), Layout(tp=2, dp=2), Layout(pp=3)])


@given(
    st.sampled_from(MODELS),
    st.sampled_from(DEVICES),
    layouts,
    st.integers(1, 10**5),
    st.integers(1, 4096),
    st.integers(1, 512),
)
def test_every_answer_is_finite_and_within_the_roof(
    model, gpu, layout: Layout, prompt: int, output: int, users: int
) -> None:
    try:
        d: Deployment = deploy(
            model, gpu, prompt=prompt, output=output, concurrency=users, layout=layout, memory=MemoryOverrides()
        )
    except roofplan.RoofplanError:
        return  # heads that do not divide
    result = size_deployment(d)
    said = result.to_dict()
    json.dumps(said, allow_nan=False)
    capacity = result.capacity
    assert result.fits == (not result.reasons)
    assert result.fits == (
        result.memory.kv_budget_bytes >= 0 and result.memory.free_bytes >= 0 and capacity.max_concurrency >= 1
    )
    assert bool(result.remedies) <= (not result.fits)
    assert capacity.max_concurrency >= (users if result.fits else 0)
    if result.times is None:
        assert capacity.max_concurrency == 0 or result.memory.kv_budget_bytes < 0 or not gpu.has_rates
        return
    for figure in dataclasses.astuple(result.times.latency):
        if figure is None:
            assert output == 1
            continue
        bound, low, expected, high = figure
        assert 0 < bound <= low * (1 + 1e-9)
        assert low <= expected * (1 + 1e-9)
        assert expected <= high * (1 + 1e-9)
    rates = result.times.throughput.output_tokens_per_s
    assert 0 < rates.low <= rates.expected * (1 + 1e-9)
    assert rates.high <= rates.bound * (1 + 1e-9)


@given(st.sampled_from([M7, M8, M70, DS]), st.integers(1, 10**5), st.integers(10, 200))
def test_the_longest_context_is_the_longest_that_fits(model, prompt: int, gib: int) -> None:
    d = deploy(
        model, HH, prompt=prompt, memory=MemoryOverrides(total_bytes=gib * GIB, activation_bytes=0, runtime_bytes=0)
    )
    plan = plan_memory(d)
    longest = plan_capacity(d, plan).max_context
    assert longest is not None
    assert rank_cache(d).bytes_per_sequence(longest) <= max(0, plan.kv_budget_bytes)
    assert rank_cache(d).bytes_per_sequence(longest + 1) > plan.kv_budget_bytes


def test_remedies_do_make_it_fit() -> None:
    stuck = roofplan.size("llama-3-70b", "a100-80gb", prompt=4096, output=512, concurrency=4)
    assert not stuck.fits
    devices = int(stuck.remedies[0].split()[0])
    assert devices == 2
    assert roofplan.size("llama-3-70b", "a100-80gb", prompt=4096, output=512, concurrency=4, devices=devices).fits
    bits = float(stuck.remedies[1].split()[4])
    assert not roofplan.size(
        "llama-3-70b", "a100-80gb", prompt=4096, output=512, concurrency=4, weights="all=int8-g128"
    ).fits
    assert bits < 8.25
    assert roofplan.size("llama-3-70b", "a100-80gb", prompt=4096, output=512, concurrency=4, weights="int4").fits
    crowded = roofplan.size("llama-3.1-8b", "h100", prompt=4096, output=512, concurrency=500)
    fewer = next(remedy for remedy in crowded.remedies if "sequences at a time" in remedy)
    users = int(fewer.split()[2].replace(",", ""))
    assert (
        roofplan.size("llama-3.1-8b", "h100", prompt=4096, output=512, concurrency=users).capacity.max_concurrency
        >= users
    )


def test_a_device_without_rates_gets_memory_and_no_times() -> None:
    result = roofplan.size("gpt2", "apple-m5-pro", prompt=500, output=10)
    said = result.to_dict()
    assert result.fits
    assert said["result"]["latency"] == dict.fromkeys(
        ("ttft_s", "ttft_alone_s", "ttft_burst_s", "tpot_s", "itl_s", "e2e_s")
    ) | {"reason": "no_dense_rate"}
    assert said["result"]["bottleneck"] == {"prefill": None, "decode": None}
    assert said["result"]["capacity"]["max_batch_compute_bound_reason"] == "no_dense_rate"
    assert [notice.code for notice in result.warnings] == ["no_dense_rate"]


def test_notices_name_what_the_user_should_know() -> None:
    def codes(*args: object, **options: object) -> set[str]:
        return {notice.code for notice in roofplan.size(*args, **options).warnings}

    assert codes("llama-2-7b", "h100", prompt=8000) == {"context_exceeds_model"}
    assert codes("llama-3.1-8b", "t4") == {"arithmetic_fallback"}
    assert codes("llama-3.1-8b", "a100", weights="fp8") == {"arithmetic_fallback"}
    assert codes("llama-3.1-8b", "h100", weights="fp8") == set()
    assert codes("llama-3.1-8b", "epyc-9654", tp=2) == {"arithmetic_fallback", "interconnect_unknown"}


def test_assumptions_vanish_when_they_are_given() -> None:
    given_all = roofplan.size(
        "llama-3.1-8b", "h100", memory_utilization=0.8, activation_memory="1 GiB", runtime_memory="1 GiB"
    )
    names = {assumption.name for assumption in given_all.assumptions}
    assert not names & {"memory_utilization", "activation_bytes", "runtime_bytes"}
    usual = {assumption.name for assumption in roofplan.size("llama-3.1-8b", "h100").assumptions}
    assert usual >= {
        "memory_utilization",
        "activation_bytes",
        "runtime_bytes",
        "gemm.bandwidth_share",
        "host_per_step_s",
    }
    assert all(assumption.source for assumption in given_all.assumptions)


def test_results_refuse_what_is_not_finite() -> None:
    with pytest.raises(ArithmeticError):
        plain({"a": float("nan")})
    with pytest.raises(ArithmeticError):
        plain([float("inf")])


def test_notebooks_get_an_escaped_table() -> None:
    result = roofplan.size("llama-3.1-8b", "h100")
    renamed = dataclasses.replace(
        result, deployment=dataclasses.replace(result.deployment, model=dataclasses.replace(M8, name="<b>"))
    )
    assert "<table>" in result._repr_html_()
    assert "<b>" not in renamed._repr_html_()


def test_replicas_do_not_multiply_users() -> None:
    alone = roofplan.size("llama-3.1-8b", "h100-sxm").times.throughput
    eight = roofplan.size("llama-3.1-8b", "h100-sxm", dp=8).times.throughput
    assert eight.output_tokens_per_s == alone.output_tokens_per_s  # one user cannot be on eight replicas
    nine = roofplan.size("llama-3.1-8b", "h100-sxm", dp=8, concurrency=9).times
    assert nine.throughput.output_tokens_per_s.expected == approx(9 * 256 / nine.latency.e2e_s.expected)


def test_decode_bound_by_a_replicated_cache_is_never_compute_bound() -> None:
    options = {"devices": 8, "ep": 8, "weights": "nf4-double", "kv": "fp8", "prompt": 8192, "output": 512}
    result = roofplan.size("deepseek-v3", "h200", concurrency=1024, **options)
    # Each rank holds the whole latent: 2 x 37.55e9 / 8 / 206.1 FLOP/B = 45.6 MB of weights' reuse against 8448 x 35136 B of cache.
    assert result.max_batch_compute_bound is None
    assert result.work.crossover_batch == approx(149, rel=0.01)
    model = StepModel.of(result.deployment)
    assert model.bottleneck(Load(50_000, 8448)) == "kv_bandwidth"


@pytest.mark.parametrize(("model", "tp", "batch"), [("llama-3-70b", 16, 26.0), ("qwen3-30b-a3b", 8, 36.8)])
def test_copies_of_kv_heads_move_the_crossover(model: str, tp: int, batch: float) -> None:
    result = roofplan.size(model, "h200", tp=tp, prompt=8192, output=512)
    assert result.work.crossover_batch == approx(batch, abs=0.5)


def test_waiting_requests_take_no_memory() -> None:
    crowd = roofplan.size("llama-3.1-8b", "h100", concurrency=200_000)
    assert crowd.reasons == ("kv_less_than_concurrency",)
    assert crowd.capacity.max_concurrency > 300
    assert any("sequences at a time" in remedy for remedy in crowd.remedies)


def test_fewer_bits_count_only_where_formats_apply() -> None:
    stuck = roofplan.size("llama-3-70b", "h100-sxm", device_memory="80.6 GB")
    bits = next(float(re.search(r"at most ([0-9.]+) bits", text)[1]) for text in stuck.remedies if "bits" in text)
    assert bits < 8  # in 8 bits the embedding and the head still take 16
    assert not roofplan.size("llama-3-70b", "h100-sxm", device_memory="80.6 GB", weights="int8").fits
    assert roofplan.size("llama-3-70b", "h100-sxm", device_memory="80.6 GB", weights="int4").fits


def test_heads_that_do_not_divide_leave_stages() -> None:
    assert "2 devices (--pp 2)" in roofplan.size("falcon-7b", "t4").remedies


def test_the_fullest_stage_holds_more_than_the_mean_layer() -> None:
    # 10 full and 52 sliding layers: of 62 stages one holds a full layer, of 8 one holds two of them and six others.
    for stages, held in ((62, 256 * MIB), (8, 2 * 256 * MIB + 6 * 8 * MIB)):
        result = roofplan.size("gemma-3-27b", "h100", pp=stages, prompt=32768 - 16, output=16)
        assert result.kv.bytes_per_sequence_per_device == held


def test_work_and_reads_are_those_of_the_model_however_it_is_divided() -> None:
    one, eight = (roofplan.size("gemma-2b", "h100-sxm", tp=tp, prompt=4096) for tp in (1, 8))
    assert eight.work.prefill_flop == approx(one.work.prefill_flop)
    assert eight.model.weights_bytes_read_per_step == one.model.weights_bytes_read_per_step
    assert eight.model.weights_bytes_read_per_step <= eight.model.weights_bytes


def test_a_single_token_has_no_gap() -> None:
    result = roofplan.size("llama-3.1-8b", "h100", output=1).to_dict()["result"]
    assert result["latency"]["tpot_s"] is None
    assert result["latency"]["reason"] == "single_token_has_no_gap"
    assert result["throughput"]["per_user_tokens_per_s"] is None


@pytest.mark.parametrize("device", ["h100-sxm", "m2-ultra", "epyc-9654"])
def test_every_input_of_an_explanation_has_a_source(device: str) -> None:
    for line in roofplan.size("llama-3.1-8b", device, prompt=2048, concurrency=4).explain():
        for what, _, source in line.inputs:
            assert source, (line.figure, what)
            assert "no source given" not in source, (line.figure, what)


def test_explanations_cover_every_figure_of_the_report() -> None:
    explained = {line.figure for line in roofplan.size("llama-3.1-8b", "h100", concurrency=4).explain()}
    result = roofplan.size("llama-3.1-8b", "h100", concurrency=4).to_dict()["result"]
    for section in ("latency", "throughput", "intensity"):
        names = {f"{section}.{key}" for key in result[section] if key != "arithmetic"}
        assert names <= explained, names - explained


def test_inputs_say_what_was_asked() -> None:
    inputs = roofplan.size("llama-3.1-8b", "h100", memory_utilization=0.8, device_memory="60 GB").to_dict()["inputs"]
    assert (inputs["memory_utilization"], inputs["device_memory"]) == (0.8, 60_000_000_000)
    assert inputs["runtime_memory"] is None


@pytest.mark.parametrize("options", [{"prmpt": 3}, {"strict": "no"}, {"weights": 5}, {"kv": 5}, {"activations": b"x"}])
def test_options_that_do_not_exist_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(roofplan.RoofplanError):
        roofplan.size("llama-3.1-8b", "h100", **options)
    with pytest.raises(roofplan.RoofplanError, match="MODEL"):
        roofplan.size(3, "h100")


def test_a_path_is_a_path() -> None:
    source = Path(__file__).parents[2] / "examples" / "llama-3.1-8b"
    assert roofplan.size(source, "h100").model.parameters_total == 8030261248
    assert roofplan.size(source / "config.json", "h100").fits


def test_a_class_that_a_model_lacks_is_refused() -> None:
    with pytest.raises(roofplan.RoofplanError, match="a class that llama"):
        roofplan.size("llama-3.1-8b", "h100", weights="experts=fp8")


def test_strict_looks_at_the_longest_sequence_too() -> None:
    with pytest.raises(roofplan.RoofplanError, match="at most 131072"):
        roofplan.size("llama-3.1-8b", "h100", max_model_len=400_000, strict=True)
    with pytest.raises(roofplan.RoofplanError, match="at most 131072"):
        roofplan.kv("llama-3.1-8b", context=400_000, strict=True)
    codes = {notice.code for notice in roofplan.size("llama-3.1-8b", "h100", max_model_len=400_000).warnings}
    assert "context_exceeds_model" in codes


def test_devices_that_do_not_divide_are_named_as_they_were_asked_for() -> None:
    with pytest.raises(roofplan.RoofplanError, match=r"^--devices: got 3"):
        roofplan.size("llama-3.1-8b", "h100", devices=3)
