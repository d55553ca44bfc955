"""Cases of groups A and C that depend on what a serving engine keeps: pages, micro-batches, graphs, drafts, towers, adapters."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from cases import GIB
from pytest import approx

import roofplan
from roofplan import models
from roofplan.documents import Document
from roofplan.planner.memory import engine_cache

CONFIGS = Path(__file__).parents[1] / "data" / "model_configs"


@pytest.mark.parametrize(
    ("engine", "context", "gigabytes"),
    [
        pytest.param("llama.cpp", 131072, 2.999, id="9-128k"),
        pytest.param("llama.cpp", 32768, 0.986, id="9-32k"),
        pytest.param("llama.cpp", 8192, 0.482, id="9-8k"),
        pytest.param("llama.cpp", 4096, 0.398, id="9-4k"),
        pytest.param("plain", 131072, 2.894, id="9-128k, window only"),
        pytest.param("plain", 32768, 0.881, id="9-32k, window only"),
        pytest.param("plain", 8192, 0.377, id="9-8k, window only"),
        pytest.param("plain", 4096, 0.294, id="9-4k, window only"),
    ],
)
def test_case_9_window_and_micro_batch(engine: str, context: int, gigabytes: float) -> None:
    """25 layers of window 1024 and 5 full ones of another shape; llama.cpp keeps window + micro-batch."""
    size = roofplan.size("gemma-4-26b-a4b", "h100", engine=engine, prompt=context - 1, output=1)
    assert size.kv.bytes_per_sequence / 1e9 == approx(gigabytes, abs=0.0005)


def test_case_19_pages_of_hybrid_layers_gain_less_than_their_windows() -> None:
    """19b: the gain over charging every layer in full stays below that of windows alone, 8.38, since a page and a step are kept."""

    def per_sequence(engine: str) -> int:
        return roofplan.size(
            "gemma-4-26b-a4b", "h100", engine=engine, prompt=32767, output=1, max_num_batched_tokens=2048
        ).kv.bytes_per_sequence

    full, pages = per_sequence("vllm@0.8"), per_sequence("vllm@0.19")
    assert full == 32768 * (20480 + 204800)
    # 5 sliding groups of ceil((1023 + 2048) / 16) + 1 pages and one full group, 5 layers each, 131072 B a page and layer
    assert pages == 5 * 131072 * (5 * 193 + 32768 // 32)
    assert 1 < full / pages < 8.38


def test_case_19_pages_are_made_equal() -> None:
    """19b: two head shapes share a pool: the full layers' pages hold more tokens in the same bytes."""
    groups = engine_cache(roofplan.deployment("gemma-4-26b-a4b", "h100", engine="vllm@0.19")).groups
    assert {group.block_bytes for group in groups} == {5 * 131072}
    assert sorted((group.copies, group.block_tokens) for group in groups) == [(1, 32), (5, 16)]


def test_case_29_graphs_are_a_term_of_their_own() -> None:
    """A log with 6.24 GiB of graphs: a share of 0.62 equals 0.5413 without them."""
    shared = {"device_memory": round(79.29 * GIB), "engine": "vllm@0.22"}
    counted = roofplan.size("llama-3.1-8b", "h100", memory_utilization=0.62, graph_memory=round(6.24 * GIB), **shared)
    without = roofplan.size("llama-3.1-8b", "h100", memory_utilization=0.5413, graph_memory=0, **shared)
    assert counted.memory.kv_budget_bytes == approx(without.memory.kv_budget_bytes, rel=1e-3)
    assert counted.memory.graph_bytes == round(6.24 * GIB)


@pytest.mark.parametrize(("engine", "inside"), [("vllm@0.19", False), ("vllm@0.21", True)])
def test_case_29_graphs_are_inside_of_the_share_since_0_21(engine: str, inside: bool) -> None:
    usual = roofplan.size("llama-3.1-8b", "h100", engine=engine).memory
    eager = roofplan.size("llama-3.1-8b", "h100", engine=engine, eager=True).memory
    assert usual.graph_bytes > 0
    assert eager.graph_bytes == 0
    assert eager.kv_budget_bytes - usual.kv_budget_bytes == (usual.graph_bytes if inside else 0)
    assert eager.spare_bytes - usual.spare_bytes == (0 if inside else usual.graph_bytes)


def test_case_34_draft_layers_do_not_add_activations() -> None:
    """The tokens of a step already include drafts: the cache's budget is the same for 0, 1 and 2 draft layers."""
    config = json.loads((CONFIGS / "deepseek-ai__DeepSeek-V3.json").read_text(encoding="utf-8"))
    budgets = {
        roofplan.size(
            models.from_document(Document(config | {"num_nextn_predict_layers": drafts}, "config.json")),
            "gb200",
            engine="vllm",
            devices=8,
        ).memory.kv_budget_bytes
        for drafts in (0, 1, 2)
    }
    assert len(budgets) == 1


def test_case_35_a_projector_takes_context() -> None:
    """207,346,528 B of a projector at 12,288 B a token: 16,874 tokens less; reported were 16,896 in steps of 256."""
    model = dataclasses.replace(models.load("qwen2.5-0.5b"), max_context=None)

    def context(**options: object) -> int:
        longest = roofplan.size(model, "h100", device_memory="4 GiB", **options).capacity.max_context
        assert longest is not None
        return longest

    fewer = context() - context(beside_memory=207346528)
    assert fewer == approx(207346528 / 12288, abs=1)
    assert abs(fewer - (111616 - 94720)) < 256


def test_case_35_described_towers_are_loaded() -> None:
    """The tower of Gemma 3 is part of what a server loads: 4.30 billion parameters, of which 3.88 are the language model."""
    model = models.load("gemma-3-4b")
    tower = sum(part.parameters for part in model.parts if part.loaded)
    without = dataclasses.replace(model, parts=())
    difference = roofplan.size(model, "h100").memory.weights_bytes - roofplan.size(without, "h100").memory.weights_bytes
    assert difference == 2 * tower > 0


def test_case_40_adapter_slots_are_a_term() -> None:
    """Llama-3.1-8B at rank 16: 16 x (q 8192 + k, v 2 x 5120 + o 8192 + gate, up, down 3 x 18432) elements a layer."""
    usual = roofplan.size("llama-3.1-8b", "h100", engine="vllm@0.19").memory
    held = roofplan.size("llama-3.1-8b", "h100", engine="vllm@0.19", max_loras=2, max_lora_rank=16).memory
    expected = 2 * 32 * 16 * (8192 + 2 * 5120 + 8192 + 3 * 18432) * 2
    assert held.adapter_bytes == expected
    assert usual.kv_budget_bytes - held.kv_budget_bytes == expected
