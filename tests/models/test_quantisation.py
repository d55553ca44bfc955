"""Which number format the settings of each quantisation method imply, and which settings are refused."""

from __future__ import annotations

from typing import Any

import pytest
from safetensors_models import config_of

from roofplan import engines
from roofplan.documents import Document
from roofplan.models.config import Config
from roofplan.models.quantisation import UnknownFormatError, implied_weights

LAYERS = config_of().layers


def implied(**settings: Any) -> str:
    """What the settings imply for the usual small Llama."""
    data = {"quantization_config": settings}
    return implied_weights(Config(Document(data, "config.json"), data), LAYERS)


def group(**weights: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "config_groups": groups}


@pytest.mark.parametrize("method", ["awq", "gptq"])
@pytest.mark.parametrize(
    ("bits", "size", "name"),
    [
        (4, 32, "int4-g32"),
        (4, 64, "int4-g64"),
        (4, 128, "int4-g128"),
        (4, -1, "int4-channel"),
        (8, 128, "int8-g128"),
        (8, -1, "int8-channel"),
    ],
)
def test_integers_of_awq_and_gptq(method: str, bits: int, size: int, name: str) -> None:
    assert implied(quant_method=method, bits=bits, group_size=size) == name
    assert implied(quant_method=method, w_bit=bits, q_group_size=size) == name


def test_awq_and_gptq_mean_4_bits_in_groups_of_128() -> None:
    assert implied(quant_method="awq") == implied(quant_method="gptq") == "int4-g128"


@pytest.mark.parametrize(
    "settings",
    [
        {"quant_method": "gptq", "bits": 3, "group_size": 128},
        {"quant_method": "gptq", "bits": 8, "group_size": 32},
        {"quant_method": "awq", "w_bit": 4, "q_group_size": 256},
        {"quant_method": "awq", "bits": [4], "group_size": {}},
        {"quant_method": "fp8", "weight_block_size": [64, 64]},
        {"quant_method": "fp8", "weight_block_size": [1, 128]},
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
        {"quant_method": "bitsandbytes"},
        {"quant_algo": "W4A16_AWQ", "group_size": 16},
        group(num_bits=4, type="int", group_size=16, symmetric=True),
        group(num_bits=8, type="float", strategy="block", block_structure=[64, 64]),
        group(num_bits=4, type="text", group_size=128),
    ],
)
def test_settings_without_a_format_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UnknownFormatError, match="a known quantisation"):
        implied(**settings)


def test_the_refused_settings_are_named() -> None:
    with pytest.raises(UnknownFormatError, match="got gptq with bits 3, group_size 128"):
        implied(quant_method="gptq", bits=3, group_size=128)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"weight_block_size": [128, 128]}, "fp8-block128"),
        ({"weight_block_size": None}, "fp8"),
        ({}, "fp8"),
    ],
)
def test_blocks_of_fp8(settings: dict[str, Any], name: str) -> None:
    assert implied(quant_method="fp8", **settings) == name


@pytest.mark.parametrize(
    ("weights", "name"),
    [
        ({"num_bits": 4, "type": "int", "group_size": 32, "symmetric": True}, "int4-g32-sym"),
        ({"num_bits": 4, "type": "int", "group_size": 32, "symmetric": False}, "int4-g32"),
        ({"num_bits": 4, "type": "int", "group_size": 64, "symmetric": True}, "int4-g64-sym"),
        ({"num_bits": 4, "type": "int", "group_size": 64, "symmetric": False}, "int4-g64"),
        ({"num_bits": 4, "type": "int", "group_size": 128, "symmetric": True}, "int4-g128-sym"),
        ({"num_bits": 4, "type": "int", "group_size": 128, "symmetric": False}, "int4-g128"),
        ({"num_bits": 4, "type": "int", "group_size": None, "symmetric": True}, "int4-channel-sym"),
        ({"num_bits": 4, "type": "int", "group_size": None, "symmetric": False}, "int4-channel"),
        ({"num_bits": 8, "type": "int", "group_size": None, "symmetric": True}, "int8-channel"),
        ({"num_bits": 8, "type": "float", "group_size": None, "symmetric": True}, "fp8"),
        ({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}, "fp8-block128"),
        ({"num_bits": 4, "type": "float", "group_size": 16}, "nvfp4"),
    ],
)
def test_groups_of_compressed_tensors(weights: dict[str, Any], name: str) -> None:
    assert implied(**group(**weights)) == name


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"load_in_8bit": True}, "int8-channel"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}, "nf4-double"),
    ],
)
def test_bitsandbytes(settings: dict[str, Any], name: str) -> None:
    assert implied(quant_method="bitsandbytes", **settings) == name


def test_modules_that_bitsandbytes_skips_stay_as_they_are() -> None:
    settings = {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": ["lm_head", "self_attn"]}
    assert implied(**settings) == "mlp=int8-channel"


@pytest.mark.parametrize(
    ("name", "bits", "bytes_of_one"),
    [  # from the layouts: bits + (scale + zero point) / group; one element stores itself and the scale of its group
        ("int4-g64", 4 + (16 + 4) / 64, 3),
        ("int4-g64-sym", 4 + 16 / 64, 3),
        ("int4-channel", 4 + (16 + 4) / 4096, 3),
        ("int4-channel-sym", 4 + 16 / 4096, 3),
        ("nf4", 4 + 32 / 64, 5),
    ],
)
def test_bits_of_the_formats(name: str, bits: float, bytes_of_one: int) -> None:
    number = engines.load_format(name)
    assert (number.bits_per_element, number.bytes_of(1)) == (bits, bytes_of_one)
