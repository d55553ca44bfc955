"""Ids of one architecture that stop at another context than the base model."""

from __future__ import annotations

import pytest

from roofplan import models


@pytest.mark.parametrize("size", ["7B", "14B", "32B", "72B"])
def test_instruct_models_of_qwen_2_5_stop_where_their_configuration_does(size: str) -> None:
    """modelscope/ms-swift issue 3907: vLLM derives 32,768 tokens from the configuration of Qwen2.5-7B-Instruct, not the base model's."""
    assert models.load(f"Qwen/Qwen2.5-{size}").max_context == 131072
    assert models.load(f"Qwen/Qwen2.5-{size}-Instruct").max_context == 32768
    assert models.load(f"qwen2.5-{size.lower()}").max_context == 131072


def test_an_id_keeps_the_weights_and_the_context_that_it_implies() -> None:
    found = models.load("Qwen/Qwen2.5-7B-Instruct-AWQ")
    assert (found.weights, found.max_context) == ("int4-g128", 32768)
