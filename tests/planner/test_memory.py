"""Memory as engines divide it: published identities, spot values of the activation peak by version, and what every plan obeys."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import GIB

import roofplan
from roofplan import engines
from roofplan.engines.profile import Part
from roofplan.errors import DomainError
from roofplan.planner.memory import default_share, divide_memory, engine_cache, plan_memory, stage_plans
from roofplan.planner.paging import PagedCache, PageGroup

ENGINES = engines.CATALOGUE.slugs()


def parts(**gib: float) -> dict[Part, int]:
    sizes: dict[Part, float] = {"weights": 0, "activations": 0, "runtime": 0, "graphs": 0, **gib}
    return {part: round(size * GIB) for part, size in sizes.items()}


# ------------------------------------------------------------------------------------------------ F5.1


def test_a_published_log_with_graphs_inside() -> None:
    """F5.1, vLLM PR 21489: the log prints 141.11 GiB, which is 150 MiB below the identity."""
    sizes = parts(weights=8.58, activations=9.96, runtime=0.07, graphs=0.65)
    share, cache = divide_memory(engines.load("vllm@0.21").budget, round(178.36 * GIB), 0.9, sizes)
    assert share / GIB == approx(160.53, abs=0.01)
    assert cache / GIB == approx(141.27, abs=0.01)
    assert (cache - 150 * 2**20) / 151519866880 == approx(1, abs=1e-4)


def test_a_published_log_and_its_blocks() -> None:
    """F5.1, vLLM issue 11251: 3.76 GiB, 3852 blocks of 16, 1.54x of 40000 tokens."""
    sizes = parts(weights=7.51, activations=2.53, runtime=0.39)
    cache = divide_memory(engines.load("vllm@0.6").budget, round(15.77 * GIB), 0.9, sizes)[1]
    assert cache / GIB == approx(3.763, abs=0.001)
    paged = PagedCache((PageGroup("full", 1, 16, 10**6),), shared=True)
    assert paged.concurrency(3852 * 10**6, 40000) == approx(1.5408)
    assert 3852 * 16 == 61632


def test_a_share_of_free_memory() -> None:
    """F5.1: TensorRT-LLM takes its fraction of what everything else leaves."""
    sizes = parts(weights=6, activations=1, runtime=1)
    share, cache = divide_memory(engines.load("tensorrt-llm").budget, 80 * GIB, 0.9, sizes)
    assert share == cache == int(0.9 * 72 * GIB)


def test_a_static_fraction_leaves_activations_and_graphs_outside() -> None:
    sizes = parts(weights=10, activations=5, runtime=0.6, graphs=2)
    cache = divide_memory(engines.load("sglang@0.4").budget, 80 * GIB, 0.88, sizes)[1]
    assert cache == int(0.88 * (80 * GIB - sizes["runtime"])) - 10 * GIB


# ------------------------------------------------------------------------------------------------ the activation peak


@pytest.mark.parametrize(
    ("model", "device", "engine", "options", "gib"),
    [  # engine_memory.md section 3: peaks that logs print, in GiB
        ("gpt-oss-20b", "h100", "vllm@0.15", {}, 7.38),
        ("qwen2.5-14b", "h100", "vllm@0.15", {}, 5.64),
        ("qwen2.5-14b", "h100", "vllm@0.16", {}, 5.64),
        ("qwen2.5-14b", "h100", "vllm@0.17", {}, 2.23),
        ("qwen2.5-14b", "h100", "vllm@0.18", {}, 2.23),
        ("qwen3-32b", "h100", "vllm@0.15", {}, 5.64),
        ("llama-3.3-70b", "h100", "vllm@0.15", {"tp": 2}, 4.84),
        ("llama-3.1-8b", "h100", "vllm@0.15", {}, 4.76),
        ("qwen3-0.6b", "h100", "vllm@0.15", {}, 5.56),
        ("qwen3-next-80b-a3b", "h200", "vllm@0.10.2", {"tp": 2}, 5.58),
        ("qwen2.5-7b", "v100-sxm2-32gb", "vllm@0.7", {"max_model_len": 32768}, 4.35),
        ("qwen2.5-1.5b", "t4", "vllm@0.7.3", {"max_model_len": 32768}, 2.02),
        ("qwen3-4b", "rtx-2080-ti", "vllm@0.8", {"max_model_len": 10000, "max_num_seqs": 1}, 0.74),
        ("llama-3.2-3b", "t4", "vllm@0.8.5", {"max_model_len": 2048, "max_num_seqs": 160}, 0.75),
        ("llama-3.2-3b", "t4", "vllm@0.8.2", {"max_model_len": 2048, "max_num_seqs": 192}, 0.90),
        ("llama-3.2-3b", "t4", "vllm@0.8.2", {"max_model_len": 2048, "max_num_seqs": 320}, 1.49),
        ("llama-3.1-8b", "a10", "vllm@0.7.0", {"max_model_len": 131072}, 0.22),
    ],
)
def test_activation_peaks_of_logs(model: str, device: str, engine: str, options: dict[str, Any], gib: float) -> None:
    plan = roofplan.size(model, device, engine=engine, prompt=1, output=1, **options).memory
    assert plan.activation_bytes / GIB == approx(gib, abs=0.1)


@pytest.mark.parametrize(
    ("engine", "tp", "gib"),
    [
        ("vllm@0.15", 1, 0.13),
        ("vllm@0.18", 1, 0.25),
        ("vllm@0.15", 2, 0.55),
        ("vllm@0.19", 2, 2.07),
        ("vllm@0.19", 4, 2.17),
    ],
)
def test_runtime_by_version_and_ranks(engine: str, tp: int, gib: float) -> None:
    assert roofplan.size("llama-3.1-8b", "h100", engine=engine, tp=tp).memory.non_torch_bytes / GIB == approx(
        gib, abs=0.01
    )


def test_a_pipeline_samples_on_its_last_stage_only() -> None:
    """Llama-8B on two and four stages: 1.10 and 1.05 GiB without the sampler, 0.91 by the forward term."""
    d = roofplan.deployment("llama-3.1-8b", "h100", engine="vllm@0.19", pp=4)
    first, middle, last = stage_plans(d)
    assert first.activation_bytes == middle.activation_bytes < last.activation_bytes
    assert first.activation_bytes / GIB == approx(0.91, abs=0.01)
    assert [plan.weights_bytes / GIB for plan in (first, middle, last)] == approx(
        [4.26, 3.28, 4.26], abs=0.05
    )  # logged
    assert plan_memory(d) == last


def test_experts_are_padded_as_the_loader_does() -> None:
    """gpt-oss-20b: 12.82 GiB stored, 13.47 loaded by older releases, 13.64 by 0.19."""
    loaded = {
        v: roofplan.size("gpt-oss-20b", "h100", engine=f"vllm@{v}").memory.weights_bytes / GIB for v in ("0.10", "0.19")
    }
    assert loaded == {"0.10": approx(13.47, abs=0.05), "0.19": approx(13.64, abs=0.05)}


# ------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("device", "offline", "tokens", "sequences"),
    [
        ("h100", False, 8192, 1024),
        ("h100", True, 16384, 1024),
        ("a100-80gb", False, 2048, 256),
        ("l40s", True, 8192, 256),
    ],
)
def test_default_limits_by_device_and_entry(device: str, offline: bool, tokens: int, sequences: int) -> None:
    d = roofplan.deployment("llama-3.1-8b", device, engine="vllm@0.19", offline=offline)
    assert (d.max_batched_tokens, d.max_num_seqs) == (tokens, sequences)


@pytest.mark.parametrize(("tp", "share"), [(1, 0.88), (2, 0.87), (4, 0.85), (8, 0.81)])
def test_static_fractions_by_ranks(tp: int, share: float) -> None:
    assert default_share(roofplan.deployment("llama-3.1-8b", "h100", engine="sglang@0.4", tp=tp)) == share


def test_a_static_fraction_by_formula() -> None:
    """SGLang 0.5 on an RTX 4090 with graphs up to 24 sequences: 512 + 1.5 x 2048 + 2 x 24 + 128 MiB of 23.64 GiB."""
    reserved = 512 + 1.5 * 2048 + 2 * 24 + 128
    expected = round(1 - reserved / (23.64 * 1024), 3)
    assert default_share(roofplan.deployment("llama-3.1-8b", "rtx-4090", engine="sglang@0.5")) == expected


def test_bytes_of_the_cache_replace_the_share() -> None:
    size = roofplan.size("llama-3.1-8b", "h100", engine="vllm@0.19", kv_cache_bytes="10 GiB")
    assert size.memory.kv_budget_bytes == 10 * GIB
    assert size.capacity.kv_tokens == 10 * GIB // 131072
    with pytest.raises(DomainError, match="one of them"):
        roofplan.size("llama-3.1-8b", "h100", kv_cache_bytes="10 GiB", memory_utilization=0.5)


def test_a_cache_larger_than_the_device_does_not_fit() -> None:
    size = roofplan.size("llama-3.1-8b", "h100", engine="vllm@0.19", kv_cache_bytes="70 GiB")
    assert size.reasons == ("cache_exceeds_memory",)


def test_an_engine_does_not_start_when_its_longest_sequence_does_not_fit() -> None:
    """Llama-3.1-8B at its 131,072 tokens on a 24 GB card: vLLM refuses; with a shorter limit it starts."""
    size = roofplan.size("llama-3.1-8b", "rtx-4090", engine="vllm@0.19")
    assert size.reasons == ("max_model_len_exceeds_cache",)
    longest = size.capacity.max_context
    assert longest is not None
    assert any("--max-model-len" in remedy for remedy in size.remedies)
    assert roofplan.size("llama-3.1-8b", "rtx-4090", engine="vllm@0.19", max_model_len=longest).fits
    assert roofplan.size("llama-3.1-8b", "rtx-4090", engine="tensorrt-llm").fits  # others do not check it


def test_what_stands_beside_the_share_must_find_room() -> None:
    codes = {w.code for w in roofplan.size("llama-3.1-8b", "h100", engine="vllm@0.19", memory_utilization=1).warnings}
    assert "memory_overcommitted" in codes
    assert "memory_overcommitted" not in {
        w.code for w in roofplan.size("llama-3.1-8b", "h100", engine="vllm@0.19").warnings
    }


def test_what_a_share_of_free_memory_lacks_is_lacking_whole() -> None:
    plan = roofplan.size("llama-3.1-8b", "rtx-3060", engine="tensorrt-llm", memory_utilization=0.1).memory
    needed = plan.weights_bytes + plan.activation_bytes + plan.non_torch_bytes
    assert plan.kv_budget_bytes == plan.total_bytes - needed < 0


def test_pools_of_windowed_layers_have_a_size_of_their_own() -> None:
    """SGLang: tokens of windowed layers are 0.8 of the others: gpt-oss-20b has 12 layers of each, 2048 B a token and layer."""
    size = roofplan.size("gpt-oss-20b", "h100", engine="sglang@0.4", prompt=30000, output=256)
    tokens = size.memory.kv_budget_bytes / (12 * 2048 * (1 + 0.8))
    assert size.capacity.kv_tokens == approx(tokens, rel=1e-5)
    assert size.capacity.max_concurrency == int(tokens // 30256)


CASES = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["llama-3.1-8b", "gemma-3-12b", "qwen3.5-9b", "mixtral-8x7b", "deepseek-v2-lite"]),
        "engine": st.sampled_from(ENGINES),
        "prompt": st.sampled_from([100, 5000, 60000]),
        "concurrency": st.sampled_from([1, 30, 700]),
    },
    optional={
        "max_num_seqs": st.sampled_from([1, 16, 4096]),
        "dp": st.sampled_from([2, 4]),
        "tp": st.just(2),
        "device_memory": st.sampled_from(["12 GiB", "24 GiB"]),
    },
)


@given(CASES)
def test_every_remedy_makes_it_fit(case: dict[str, Any]) -> None:
    """Where something helps, what is offered is that: remedies of counts are tried again through the library."""
    model = case.pop("model")
    size = roofplan.size(model, "h100", **case)
    assert not (size.fits and size.remedies)
    for remedy in size.remedies:
        number = int("".join(filter(str.isdigit, remedy.split("(now")[0].split("(--")[0])) or 0)
        changed = dict(case)
        if "devices (--tp" in remedy:
            changed["tp"] = int(remedy.rpartition(" ")[2].rstrip(")"))
        elif "sequences at a time (now" in remedy:
            changed["concurrency"] = number
        elif "--max-num-seqs" in remedy:
            changed["max_num_seqs"] = number
        elif "--max-model-len" in remedy:
            changed["max_model_len"] = number
        else:
            continue
        assert roofplan.size(model, "h100", **changed).fits, remedy


def test_an_engine_runs_no_more_than_it_admits() -> None:
    size = roofplan.size("llama-3.1-8b", "h100", engine="vllm@0.19", max_num_seqs=8, concurrency=16)
    assert (size.capacity.max_concurrency, size.capacity.binds) == (8, "max_num_seqs")
    assert size.reasons == ("engine_admits_fewer",)


def test_a_newer_version_is_answered_with_a_warning() -> None:
    codes = {warning.code for warning in roofplan.size("llama-3.1-8b", "h100", engine="vllm@0.99").warnings}
    assert "engine_version_newer" in codes
    assert "engine_version_newer" not in {
        w.code for w in roofplan.size("llama-3.1-8b", "h100", engine="vllm@0.19").warnings
    }


def test_deepseek_v3_on_eight_h200() -> None:
    """bf16 cache, 8k: 70 to 90 sequences; 87 to 89 with nothing but weights in 0.9 of 143771 MiB; 689 divide the latents by ranks."""
    workload: dict[str, Any] = {"devices": 8, "prompt": 7168, "output": 1024}
    assert 70 <= roofplan.size("deepseek-v3", "h200", engine="vllm@0.19", **workload).capacity.max_concurrency <= 90
    plain = roofplan.size("deepseek-v3", "h200", activation_memory=0, runtime_memory=0, **workload)
    assert plain.memory.total_bytes == 143771 * 2**20
    assert 87 <= plain.capacity.max_concurrency <= 89


# ------------------------------------------------------------------------------------------------ properties

MODELS = ["llama-3.1-8b", "gemma-3-4b", "qwen3.5-9b", "gpt-oss-20b", "deepseek-v2-lite", "mixtral-8x7b"]


@given(st.sampled_from(MODELS), st.sampled_from(ENGINES), st.integers(4, 200), st.integers(0, 40))
def test_more_memory_never_holds_less(model: str, engine: str, gib: int, more: int) -> None:
    small, large = (
        roofplan.size(
            model, "h100", engine=engine, device_memory=size * GIB, max_num_batched_tokens=2048, max_num_seqs=64
        ).capacity
        for size in (gib, gib + more)
    )
    assert small.kv_tokens <= large.kv_tokens
    assert small.max_concurrency <= large.max_concurrency
    assert (small.max_context or 0) <= (large.max_context or 0)


@given(st.sampled_from(MODELS), st.sampled_from(ENGINES), st.sampled_from([16, 32, 64, 256]))
def test_parts_and_cache_never_exceed_the_share(model: str, engine: str, gib: int) -> None:
    d = roofplan.deployment(model, "h100", engine=engine, device_memory=gib * GIB)
    plan, budget = plan_memory(d), d.engine.budget
    sizes = {
        "weights": plan.weights_bytes,
        "activations": plan.activation_bytes,
        "runtime": plan.non_torch_bytes,
        "graphs": plan.graph_bytes,
    }
    assert plan.kv_budget_bytes + sum(sizes[part] for part in budget.within) == plan.budget_bytes
    assert plan.budget_bytes <= plan.total_bytes


@given(st.sampled_from(MODELS), st.sampled_from(ENGINES), st.integers(1, 64))
def test_what_is_said_to_fit_takes_no_more_than_the_budget(model: str, engine: str, concurrency: int) -> None:
    size = roofplan.size(model, "h200", engine=engine, concurrency=concurrency, prompt=3000, output=1000)
    held = size.capacity.max_concurrency
    each = engine_cache(size.deployment).bytes_per_sequence(4000)
    assert held * each <= max(0, size.memory.kv_budget_bytes)
    assert size.capacity.binds == "max_num_seqs" or (held + 1) * each > size.memory.kv_budget_bytes


def test_eager_mode_needs_no_graphs_and_changes_nothing_else() -> None:
    usual, eager = (roofplan.size("llama-3.1-8b", "h100", engine="vllm", eager=eager).memory for eager in (False, True))
    fields = {field.name for field in dataclasses.fields(usual)} - {"graph_bytes", "kv_budget_bytes", "spare_bytes"}
    assert all(getattr(usual, name) == getattr(eager, name) for name in fields)
