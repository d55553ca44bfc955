"""Advice by names: which formats and devices are looked at."""

import pytest

import roofplan
from roofplan import hardware
from roofplan.api.advising import advise, priced


def ids(*names: str, **options: object) -> set[str]:
    return {lever.id for lever in advise(*names, **options).levers}


def test_the_devices_with_a_price_are_those_whose_spec_has_one() -> None:
    """The text of the files is searched; here all of them are parsed."""
    specs = [hardware.load(slug) for slug in hardware.CATALOGUE.slugs()]
    wanted = {spec.name for spec in specs if spec.price is not None and (spec.peak.bf16 or spec.peak.fp16)}
    assert {spec.name for spec in priced()} == wanted


@pytest.mark.parametrize(
    ("device", "there", "absent"),
    [
        ("h100-sxm", {"weights.fp8", "weights.int8", "weights.int4-g128"}, {"weights.nvfp4"}),
        ("b200", {"weights.nvfp4", "weights.fp8", "kv.nvfp4"}, set()),
        ("a100-80gb", {"weights.int8", "weights.int8.int8-activations", "weights.int4-g128"}, {"weights.fp8"}),
        ("epyc-9654", {"weights.int4-g128", "kv.fp8"}, {"weights.fp8", "weights.nvfp4"}),
    ],
)
def test_formats_are_those_that_the_device_computes(device: str, there: set[str], absent: set[str]) -> None:
    found = ids("llama-3.1-8b", device)
    assert there <= found
    assert not absent & found


def test_llama_cpp_is_offered_its_own_file_types() -> None:
    found = ids("llama-3.1-8b", "rtx-4090", engine="llama.cpp")
    assert {"weights.q8_0", "weights.q4_k_m", "kv.q8_0", "kv.q4_0"} <= found
    assert "layout.tp2" not in found  # it divides layers


def test_formats_that_are_no_narrower_are_left_out() -> None:
    found = ids("llama-3.1-8b", "h100-sxm", weights="int4-g128", kv="fp8")
    assert {"weights", "kv"} <= found
    assert not any(name.startswith(("weights.", "kv.")) for name in found)


def test_neighbours_hold_the_weights_and_have_a_price() -> None:
    advice = advise("llama-3-70b", "h200", prompt=64, output=64)
    devices = [lever.changed.hardware for lever in advice.levers if lever.id.startswith("device.")]
    assert len(devices) >= 2
    assert all(device.price is not None and device.memory.total_bytes > 141 * 10**9 for device in devices)
    assert all(device.name != "h200-sxm-141gb" for device in devices)


def test_a_device_of_ones_own_has_neighbours_too() -> None:
    own = hardware.load("h100-sxm")
    assert any(name.startswith("device.") for name in ids("llama-3.1-8b", own))


@pytest.mark.parametrize(
    ("model", "device", "options"),
    [
        ("gpt2", "m2-ultra", {"output": 1}),
        ("deepseek-v3", "h200", {"devices": 8, "concurrency": 64}),
        ("qwen3-next-80b-a3b", "h200", {"tp": 2}),
        ("gpt-oss-120b", "h100", {"concurrency": 16}),
        ("gemma-3-27b", "a100-80gb", {"engine": "vllm", "prompt": 30000, "concurrency": 20}),
        ("codestral-mamba-7b", "rtx-4090", {"concurrency": 2}),
        ("kimi-k3", "b300", {"devices": 16, "prompt": 30000}),
        ("llama-3-70b", "rtx-4090", {}),
        ("minimax-m3", "h200", {"devices": 8, "ep": 8, "prompt": 8192, "concurrency": 32}),
        ("granite-4.0-h-small", "l40s", {"devices": 2, "concurrency": 8}),
        ("mixtral-8x7b", "h100", {"tp": 2, "engine": "sglang", "concurrency": 64}),
        ("llama-3.1-8b", "rtx-4090", {"engine": "llama.cpp", "weights": "q4_k_m"}),
        ("whisper-large-v2", "l4", {}),
    ],
)
@pytest.mark.parametrize("goal", ["throughput", "cost"])
def test_every_kind_of_model_and_engine_is_answered(model: str, device: str, options: dict, goal: str) -> None:
    advice = advise(model, device, goal=goal, **options)
    assert len(advice.levers) > 8
    assert advice.to_dict()["result"]["levers"]


def test_defaults_are_those_of_the_command_line() -> None:
    assert (
        roofplan.advise("gpt2", "h100").to_dict()
        == advise("gpt2", "h100", prefix_hit="0.5", acceptance="70%").to_dict()
    )
