"""Families beyond the collection: totals of the published checkpoints (see published.py), from the keys of their configurations."""

from typing import Any

import pytest
from published import PUBLISHED

from roofplan import models
from roofplan.documents import Document
from roofplan.engines import load_format
from roofplan.errors import SpecError
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.parameters import count_parameters


@pytest.mark.parametrize("name", PUBLISHED)
def test_totals_as_published(name: str) -> None:
    total, keys = PUBLISHED[name]
    assert count_parameters(models.from_document(Document(keys, "config.json"))).total == total


def read(name: str, **changes: Any) -> models.ModelSpec:
    return models.from_document(Document(PUBLISHED[name][1] | changes, "config.json"))


def test_half_of_the_layers_of_gpt_neo_keep_a_window() -> None:
    cache = cache_layout(read("EleutherAI/gpt-neo-1.3B"), load_format("bf16"))
    assert cache.bytes_per_sequence(2048) == 12 * 2 * 2048 * 2 * (2048 + 256)


def test_mamba_keeps_a_state_and_no_cache() -> None:
    cache = cache_layout(read("state-spaces/mamba-130m-hf"), load_format("bf16"))
    assert cache.bytes_per_token == 0
    assert cache.state_bytes == 24 * (1536 * 16 * 4 + 1536 * 3 * 2)


@pytest.mark.parametrize(
    "types", [None, [], "global", [["global", 24]], [[["global"], 12]], [[["global", "local"], "12"]], [[[], 24]]]
)
def test_attention_types_must_describe_each_layer(types: object) -> None:
    with pytest.raises(SpecError, match="attention_types"):
        read("EleutherAI/gpt-neo-1.3B", attention_types=types)
