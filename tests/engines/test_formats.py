"""Every number format says where it is from, and is what its source says."""

import pytest
from shapes import M7

import roofplan
from roofplan import engines
from roofplan.errors import UnknownNameError
from roofplan.planner.kv_cache import cache_layout

FORMATS = engines.FORMATS.slugs()


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_source_and_arithmetic_it_can_use(name: str) -> None:
    format_ = engines.load_format(name)
    assert format_.source.strip()
    assert format_.arithmetic
    assert format_.activations in FORMATS


@pytest.mark.parametrize(
    ("name", "bits"),
    [  # bits of an element with its scales, from the definitions of the formats
        ("fp32", 32),
        ("bf16", 16),
        ("fp16", 16),
        ("fp8", 8),
        ("int8", 8),
        ("int4", 4),
        ("mxfp4", 4 + 8 / 32),  # OCP Microscaling 1.0: blocks of 32 with an 8-bit scale
        ("mxfp8", 8 + 8 / 32),
        ("nvfp4", 4 + 8 / 16),  # blocks of 16 with an FP8 scale
        ("fp8-block128", 8 + 32 / 128**2),  # DeepSeek-V3: 128 x 128 with an FP32 scale
        ("int4-g128", 4 + (16 + 4) / 128),  # AWQ, GPTQ: FP16 scale and packed 4-bit zero point
        ("int4-g32", 4 + (16 + 4) / 32),
        ("int4-g32-sym", 4 + 16 / 32),
        ("int4-g128-sym", 4 + 16 / 128),
        ("int8-channel", 8.00390625),  # F4.1
        ("int8-g128", 8.25),
        ("nf4-double", 4.126953125),
        ("nf4", 4.5),
        ("int4-g128-zero16", 4.25),  # F3.7, F4.1
        ("int8-head128", 8.25),
        ("fp8-head128", 8.25),
        ("kivi-4", 5),
        ("kivi-2", 3),
        ("int2-g64", 2.5),
        ("llm-int8", 8 + 32 / 4096 + 0.001 * 8),  # arXiv 2208.07339: 0.1 % of the features in 16 bits
        ("q4_0", 4.5),
        ("q4_1", 5),
        ("q5_0", 5.5),
        ("q5_1", 6),
        ("q8_0", 8.5),
        ("q2_k", 2.625),
        ("q3_k", 3.4375),
        ("q4_k", 4.5),
        ("q5_k", 5.5),
        ("Q6_K", 6.5625),
        ("iq2_xxs", 2.0625),
        ("iq4_xs", 4.25),
        ("tq1_0", 1.6875),
    ],
)
def test_bits_of_an_element(name: str, bits: float) -> None:
    assert engines.load_format(name).bits_per_element == bits


def test_a_partly_filled_group_stores_its_scale() -> None:
    nvfp4 = engines.load_format("nvfp4")
    assert nvfp4.bytes_of(16) == 9
    assert nvfp4.bytes_of(17) == 11  # 8.5 bytes of elements and two scales, rounded up


@pytest.mark.parametrize(
    ("kv", "bytes_per_token"),
    [  # F3.7, of M8
        ("bf16", 131072),
        ("fp16", 131072),
        ("fp8", 65536),
        ("int8-head128", 67584),
        ("fp8-head128", 67584),
        ("q8_0", 69632),
        ("q4_0", 36864),
        ("nvfp4", 36864),
        ("int4-g128-zero16", 34816),
        ("kivi-4", 40960),
        ("kivi-2", 24576),
        ("int2-g64", 20480),
    ],
)
def test_a_quantised_cache_stores_its_scales(kv: str, bytes_per_token: int) -> None:
    assert roofplan.kv("llama-3.1-8b", kv=kv).whole.bytes_per_token == bytes_per_token


def test_recent_tokens_stay_in_16_bits() -> None:  # F3.7: 0.2129 of fp16, not an eighth
    cache = cache_layout(M7, engines.load_format("kivi-2"))
    assert cache.bytes_per_sequence(4096) == 457179136
    assert cache.bytes_per_sequence(100) == 100 * 524288  # all of them are recent
    assert cache.bytes_per_token == 524288 * 3 // 16  # growth beyond them


def test_a_page_of_per_head_scales() -> None:  # F3.7: 16 tokens, 8 heads of 128
    assert engines.load_format("int8-head128").bytes_of(16 * 8 * 2 * 128) == 33792


@pytest.mark.parametrize("name", ["i32", "f64", "q9_9", ""])
def test_what_is_no_format_of_weights_is_not_found(name: str) -> None:
    with pytest.raises(UnknownNameError):
        engines.load_format(name)
