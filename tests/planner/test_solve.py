"""Inverse questions: the answer fits, and the next step does not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofplan
from roofplan.errors import UnknownNameError
from roofplan.planner.solve import QUESTIONS

ENGINES = ["plain", "vllm@0.19", "vllm@0.7", "sglang@0.4", "tensorrt-llm", "llama.cpp"]
MODELS = ["llama-3.1-8b", "gemma-3-4b", "qwen3.5-9b", "gpt-oss-20b"]


def fits(model: str, engine: str, **options: Any) -> bool:
    return roofplan.size(model, "h100", engine=engine, **options).fits


def answer(model: str, engine: str, question: str, **options: Any) -> float:
    solution = roofplan.size(model, "h100", engine=engine, solve=question, **options).solution
    assert solution is not None
    assert solution.answer is not None
    return solution.answer


@given(st.sampled_from(MODELS), st.sampled_from(ENGINES), st.integers(1, 4))
def test_the_largest_context(model: str, engine: str, concurrency: int) -> None:
    most = int(answer(model, engine, "max-context", concurrency=concurrency))
    limit = roofplan.deployment(model, "h100").model.max_context
    assert fits(model, engine, concurrency=concurrency, prompt=most - 1, output=1, max_model_len=most)
    assert most == limit or not fits(
        model, engine, concurrency=concurrency, prompt=most, output=1, max_model_len=most + 1
    )


@given(st.sampled_from(MODELS), st.sampled_from(ENGINES), st.sampled_from([100, 1000, 8000]))
def test_the_largest_concurrency(model: str, engine: str, prompt: int) -> None:
    most = int(answer(model, engine, "max-concurrency", prompt=prompt))
    accepted = {"prompt": prompt, "output": 256, "max_model_len": prompt + 256}
    assert fits(model, engine, concurrency=most, **accepted)
    assert not fits(model, engine, concurrency=most + 1, **accepted)


@pytest.mark.parametrize(("model", "devices"), [("llama-3.1-8b", 1), ("llama-3.3-70b", 2), ("deepseek-v3", 10)])
def test_the_fewest_devices(model: str, devices: int) -> None:
    """8B: 15 GiB of 71.7; 70B: 131; DeepSeek-V3: 634 GiB, 10.4 a layer: 9 stages hold 7 layers, 73 GiB; 5 stages of 2 ranks 13 layers in two."""
    solution = roofplan.size(model, "h100", solve="min-devices").solution
    assert solution is not None
    assert solution.answer == devices


def test_no_number_of_devices_is_enough_for_a_tiny_one() -> None:
    size = roofplan.size("llama-3.3-70b", "h100", device_memory="1 GiB", solve="min-devices")
    assert size.solution is not None
    assert size.solution.answer is None


@given(st.sampled_from(MODELS), st.sampled_from(["plain", "vllm@0.19", "sglang@0.4", "tensorrt-llm"]))
def test_the_smallest_share(model: str, engine: str) -> None:
    share = answer(model, engine, "min-utilization", concurrency=4)
    assert fits(model, engine, concurrency=4, memory_utilization=share, max_model_len=1280)
    assert not fits(model, engine, concurrency=4, memory_utilization=round(share - 0.001, 3), max_model_len=1280)


def test_a_share_above_one_is_no_answer() -> None:
    size = roofplan.size("llama-3.3-70b", "h100", solve="min-utilization")
    assert size.solution is not None
    assert size.solution.answer is None


def test_a_longer_context_never_follows_from_more_users() -> None:
    contexts = [answer("llama-3.1-8b", "vllm@0.19", "max-context", concurrency=users) for users in (1, 8, 64, 256)]
    assert contexts == sorted(contexts, reverse=True)


def test_the_solution_is_in_the_json() -> None:
    result = roofplan.size("llama-3.1-8b", "h100", solve="max-context").to_dict()["result"]
    assert result["solution"]["question"] == "max-context"
    assert "solution" not in roofplan.size("llama-3.1-8b", "h100").to_dict()["result"]


def test_an_unknown_question_is_answered_with_the_known() -> None:
    with pytest.raises(UnknownNameError, match=", ".join(QUESTIONS)):
        roofplan.size("llama-3.1-8b", "h100", solve="max-fun")
