"""Families beyond the collection: totals of the published checkpoints (see published.py), from the keys of their configurations."""

from typing import Any

import pytest
from published import PUBLISHED
from shapes import HH, deploy

from roofplan import models
from roofplan.documents import Document
from roofplan.engines import load_format
from roofplan.errors import LayoutError, SpecError
from roofplan.models.spec import Mlp, ModelSpec, Recurrent
from roofplan.planner.costs import StateUpdate
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.operators import build_operators
from roofplan.planner.parallel import Layout, check_layout
from roofplan.planner.parameters import count_parameters


@pytest.mark.parametrize("name", PUBLISHED)
def test_totals_as_published(name: str) -> None:
    total, keys = PUBLISHED[name]
    assert count_parameters(models.from_document(Document(keys, "config.json"))).total == total


def read(name: str, **changes: Any) -> ModelSpec:
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


# ------------------------------------------------------------------------------------------------ LFM2

LFM2 = "LiquidAI/LFM2-1.2B"


def width(**changes: Any) -> int:
    """Width of the MLP of an LFM2 with other keys; a key of None is the same as one that is left out."""
    part = read(LFM2, **changes).layers[0].mlp[0]
    assert isinstance(part, Mlp)
    return part.intermediate_size


def test_a_short_convolution_keeps_its_last_inputs_and_nothing_else() -> None:
    cache = cache_layout(read(LFM2), load_format("bf16"))
    assert cache.state_bytes == 10 * 2048 * 2 * 2
    assert cache.bytes_per_token == 6 * 2 * 8 * 64 * 2


def test_a_layer_without_a_state_has_no_heads_to_divide_and_no_flop_of_a_state() -> None:
    spec = read(LFM2)
    check_layout(spec, Layout(tp=32))
    with pytest.raises(LayoutError, match="a divisor of the 32 heads"):
        check_layout(spec, Layout(tp=5))
    (update,) = (operator for operator in build_operators(deploy(spec, HH)) if isinstance(operator, StateUpdate))
    assert (update.flop_per_token, update.state_bytes) == (0, 10 * 2048 * 2 * 2)


@pytest.mark.parametrize("name", ["lfm2.5-1.2b", "LiquidAI/LFM2-1.2B", "LiquidAI/LFM2.5-1.2B-Instruct"])
def test_lfm2_and_its_successor_are_one_entry_of_the_catalogue(name: str) -> None:
    known, from_keys = models.load(name), read(LFM2)
    assert (known.layers, known.tied_embeddings) == (from_keys.layers, from_keys.tied_embeddings)
    assert (known.vocab_size, known.max_context) == (from_keys.vocab_size, from_keys.max_context)


def test_listed_kinds_outrank_the_older_numbers() -> None:
    kinds = ["conv"] * 15 + ["full_attention"]
    assert [group.count for group in read(LFM2, layer_types=kinds).layers] == [15, 1]


def test_biases_are_on_both_projections_and_the_convolution() -> None:
    more = count_parameters(read(LFM2, conv_bias=True)).total - count_parameters(read(LFM2)).total
    assert more == 10 * (3 * 2048 + 2048 + 2048)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, 8192),  # 12288 x 2/3
        ({"block_ff_dim": 10240}, 6912),  # 6826 rounded up to a multiple of 256
        ({"block_ff_dim": 10240, "block_multiple_of": 100}, 6900),
        ({"block_ffn_dim_multiplier": 1.5}, 12288),
        ({"block_auto_adjust_ff_dim": False}, 12288),
        ({"block_ff_dim": None, "intermediate_size": 6144}, 4096),
        ({"intermediate_size": 8192}, 8192),  # the older name is the one that counts
        ({"block_auto_adjust_ff_dim": None, "block_ffn_dim_multiplier": None, "block_multiple_of": None}, 8192),
    ],
)
def test_the_width_is_adjusted_by_llamas_first_rule(changes: dict[str, Any], wanted: int) -> None:
    assert width(**changes) == wanted


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"num_key_value_heads": None}, "num_key_value_heads"),
        ({"conv_L_cache": None}, "conv_L_cache"),
        ({"block_ff_dim": None}, "block_ff_dim"),
        ({"full_attn_idxs": None}, "layer_types"),
        ({"full_attn_idxs": [2, 16]}, "full_attn_idxs"),
        ({"layer_types": ["conv", "linear_attention"] * 8}, "layer_types"),
        ({"layer_types": ["conv"]}, "layer_types"),
        ({"block_ffn_dim_multiplier": 0}, "block_ffn_dim_multiplier"),
        ({"block_ffn_dim_multiplier": "1.0"}, "block_ffn_dim_multiplier"),
        ({"block_ffn_dim_multiplier": 1e300}, "block_ffn_dim_multiplier"),
        ({"block_ffn_dim_multiplier": 1e-9}, "got 0"),
        ({"tie_embedding": True, "tie_word_embeddings": False}, "tie_embedding"),
    ],
)
def test_a_key_of_lfm2_that_is_missing_or_wrong_is_named(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(SpecError, match=key):
        read(LFM2, **changes)


@pytest.mark.parametrize(
    ("changes", "tied"),
    [
        ({}, True),
        ({"tie_embedding": False}, False),
        ({"tie_word_embeddings": False}, False),
        ({"tie_embedding": True, "tie_word_embeddings": True}, True),
    ],
)
def test_lfm2_is_tied_unless_one_of_two_names_says_no(changes: dict[str, Any], tied: bool) -> None:
    assert read(LFM2, **changes).tied_embeddings is tied


def test_a_recurrent_layer_keeps_something() -> None:
    with pytest.raises(ValueError, match="neither a state nor a convolution"):
        Recurrent(kind="recurrent", variant="nothing", projections=())
