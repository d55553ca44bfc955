"""Group A: the shape of the cache. See test_index."""

from __future__ import annotations

import pytest
import reference
from cases import figures
from pytest import approx

import roofplan
from roofplan import models
from roofplan.engines.spec import NumberFormat
from roofplan.planner.kv_cache import cache_layout

MIB, GIB, GB = 2**20, 2**30, 10**9
ROUNDING = 1e-9  # of floats, so that a figure exactly between two printed ones is either


# case, catalogue entry, configuration file, bytes that one more token takes
GROWTH = [
    ("1", "qwen3-32b", "Qwen/Qwen3-32B", 262144),  # not 163,840
    ("1", "qwen3-0.6b", "Qwen/Qwen3-0.6B", 114688),  # not 57,344
    ("2", "mistral-small-24b", "mistralai/Mistral-Small-24B-Instruct-2501", 163840),  # not 204,800
    ("2", "mistral-nemo", "mistralai/Mistral-Nemo-Instruct-2407", 163840),  # the same shape
    ("3a", "llama-3-8b", "meta-llama/Meta-Llama-3-8B", 131072),  # not 4 times as much
    ("3b", "llama-3-70b", "meta-llama/Meta-Llama-3-70B-Instruct", 327680),  # not 2,621,440
    ("3c", "qwen2.5-7b", "Qwen/Qwen2.5-7B", 57344),  # not 1,605,632
    ("3d", "qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B", 28672),  # the shape of R1-Distill-Qwen-1.5B; not 172,032
    (
        "3e",
        "llama-2-7b",
        "meta-llama/Llama-2-7b-hf",
        524288,
    ),  # not 8 times as much: 2 x 32 layers x 32 heads x 128 x 2 B
    ("4", "deepseek-v3", "deepseek-ai/DeepSeek-V3", 70272),  # not 1,748,992
    (
        "4",
        "deepseek-v3.2",
        "deepseek-ai/DeepSeek-V3.2",
        70272,
    ),  # under its own class name; the indexer's keys come on top
    ("4", "kimi-k2", "moonshotai/Kimi-K2-Instruct", 70272),
    ("5", "deepseek-v3", "deepseek-ai/DeepSeek-V3", 70272),  # not 124,928: stored once, with the rotary key
    (
        "7",
        "deepseek-v2-lite",
        "deepseek-ai/DeepSeek-V2-Lite",
        31104,
    ),  # latents; an engine that expands them keeps 276,480
    ("11", "gpt-oss-120b", "openai/gpt-oss-120b", 36864),  # beyond the window; 73,728 within it
    ("12a", "qwen3.5-27b", "Qwen/Qwen3.5-27B", 65536),  # not 262,144
    ("12b", "qwen3.5-35b-a3b", "Qwen/Qwen3.5-35B-A3B", 20480),  # not 81,920
    ("12b", "qwen3.6-35b-a3b", "nvidia/Qwen3.6-35B-A3B-NVFP4", 20480),
    ("19", "llama-3.1-8b", "meta-llama/Meta-Llama-3.1-8B", 131072),
    ("19", "llama-3.1-405b", "meta-llama/Meta-Llama-3.1-405B", 516096),  # 8 KV heads; the table had 16
]

# case, catalogue entry, configuration file, tokens, format, bytes of the sequence without recurrent states, unit, within
SEQUENCES = [
    ("1", "qwen3-0.6b", "Qwen/Qwen3-0.6B", 40960, "bf16", 4.375, GIB, 0),
    ("2", "mistral-small-24b", "mistralai/Mistral-Small-24B-Instruct-2501", 184832, "bf16", 28.20, GIB, 0.005),  # a log
    ("2", "gpt-oss-20b", "openai/gpt-oss-20b", 1, "bf16", 49152, 1, 0),  # all layers; not 34,560
    ("3c", "qwen2.5-7b", "Qwen/Qwen2.5-7B", 3072, "bf16", 0.176, GB, 0.0005),
    ("3c", "qwen2.5-7b", "Qwen/Qwen2.5-7B", 3072, "bf16", 0.164, GIB, 0.0005),
    ("4", "deepseek-v3", "deepseek-ai/DeepSeek-V3", 1, "fp8", 35136, 1, 0),
    ("4", "deepseek-v3", "deepseek-ai/DeepSeek-V3", 163840, "bf16", 10.72, GIB, 0.005),
    ("4", "kimi-k2.5", "moonshotai/Kimi-K2.5", 262144, "bf16", 17.16, GIB, 0.005),
    ("7", "deepseek-v3", "deepseek-ai/DeepSeek-V3", 65536, "fp16", 4.29, GIB, 0.005),  # not 321 GiB
    ("7", "deepseek-v3", "deepseek-ai/DeepSeek-V3", 65536, "int4", 1098, MIB, 0),  # 18 MiB a layer
    ("8", "gemma-3-27b", "google/gemma-3-27b-it", 131072, "bf16", 10.406, GIB, 0.0005),  # not 81.38
    (
        "9",
        "gemma-4-26b-a4b",
        "google/gemma-4-26B-A4B",
        131072,
        "bf16",
        2.894,
        GB,
        0.0005,
    ),  # the window alone; not 56.37
    ("9", "gemma-4-26b-a4b", "google/gemma-4-26B-A4B", 32768, "bf16", 0.881, GB, 0.0005),
    ("9", "gemma-4-26b-a4b", "google/gemma-4-26B-A4B", 8192, "bf16", 0.377, GB, 0.0005),
    ("9", "gemma-4-26b-a4b", "google/gemma-4-26B-A4B", 4096, "bf16", 0.294, GB, 0.0005),
    ("11", "gpt-oss-120b", "openai/gpt-oss-120b", 1, "bf16", 73728, 1, 0),
    ("11", "gpt-oss-120b", "openai/gpt-oss-120b", 131072, "bf16", 4836556800, 1, 0),
    ("12a", "qwen3.5-27b", "Qwen/Qwen3.5-27B", 262144, "bf16", 16.0, GIB, 0),
    ("17", "gpt2", "openai-community/gpt2", 8192, "fp16", 301989888, 1, 0),
    ("17", "santacoder", "bigcode/gpt_bigcode-santacoder", 8192, "fp16", 100663296, 1, 0),  # not 1.50 GiB
    *(
        ("19", slug, hf_id, tokens, "bf16", expected, GIB, within)
        for slug, hf_id, row in (
            ("llama-3.1-8b", "meta-llama/Meta-Llama-3.1-8B", (0.125, 1.953, 15.625)),
            ("llama-3.1-70b", "meta-llama/Llama-3.1-70B-Instruct", (0.313, 4.88, 39.06)),
            ("llama-3.1-405b", "meta-llama/Meta-Llama-3.1-405B", (0.492, 7.69, 61.52)),
        )
        # "1k" is 1,024 tokens there, "16k" and "128k" are 16,000 and 128,000
        for tokens, expected, within in zip((1024, 16000, 128000), row, (0.0005, 0.005, 0.005), strict=True)
    ),
    ("37", "qwen2.5-7b", "Qwen/Qwen2.5-7B", 262144, "fp16", 14.0, GIB, 0),
]

# case, catalogue entry, configuration file, bytes of recurrent states and convolutions of one sequence
STATES = [
    ("13", "qwen3.6-35b-a3b", "nvidia/Qwen3.6-35B-A3B-NVFP4", 62914560 + 1474560),  # not 3,686,400
    ("13", "qwen3.5-27b", "Qwen/Qwen3.5-27B", 144 * MIB + 2949120),
]


def named(rows: list[tuple]) -> list[object]:
    """Parameters whose ids start with the case's number."""
    return [pytest.param(*row[1:], id=f"{row[0]}-{row[1]}-{row[3]}") for row in rows]


@pytest.mark.parametrize(("slug", "hf_id", "expected"), named(GROWTH))
def test_growth_per_token(slug: str, hf_id: str, expected: int) -> None:
    for model in (slug, str(reference.config_path(hf_id))):
        assert figures("kv", model)["bytes_per_token"] == expected


@pytest.mark.parametrize(("slug", "hf_id", "tokens", "kv", "expected", "unit", "within"), named(SEQUENCES))
def test_bytes_of_a_sequence(
    slug: str, hf_id: str, tokens: int, kv: str, expected: float, unit: int, within: float
) -> None:
    for model in (slug, str(reference.config_path(hf_id))):
        found = figures("kv", model, context=tokens, kv=kv)
        growing = found["bytes_per_sequence"] - found["fixed_bytes_per_sequence"]
        assert growing / unit == approx(expected, abs=within + ROUNDING, rel=0)


@pytest.mark.parametrize(("slug", "hf_id", "expected"), named(STATES))
def test_states_are_matrices(slug: str, hf_id: str, expected: int) -> None:
    for model in (slug, str(reference.config_path(hf_id))):
        assert figures("kv", model)["fixed_bytes_per_sequence"] == expected


def test_case_12b_at_131072_tokens() -> None:
    """The difference to attention in all layers, which the reporter saw as up to about 7.6 GiB."""
    growing = 131072 * figures("kv", "qwen3.5-35b-a3b")["bytes_per_token"]
    assert (131072 * 81920 - growing) / GIB == 7.5


def test_case_19b_windows_gain_at_most_8_38() -> None:
    """Every layer at its full rate, over what is kept of 32,768 tokens: an upper bound of the gain that an engine can have."""
    cache = roofplan.kv("gemma-4-26b-a4b").whole
    everything = 32768 * cache.bytes_per_sequence(1)
    assert everything / cache.bytes_per_sequence(32768) == approx(8.38, abs=0.005)
    assert everything / cache.bytes_per_sequence(32768) > 664225 / 171536  # the gain that was logged


def test_case_37_an_8_bit_cache_stores_its_scales() -> None:
    """q8_0: 32 values of 8 bits share a 16-bit scale."""
    q8_0 = NumberFormat(
        schema="roofplan/format/v1",
        name="q8-0",
        bits=8,
        group=32,
        scale_bits=16,
        arithmetic=("bf16",),
        activations="bf16",
        source="ggml: block_q8_0",
    )
    assert q8_0.bits_per_element == 8.5
    cache = cache_layout(models.load("qwen2.5-7b"), q8_0)
    assert cache.bytes_per_sequence(262144) / GIB == approx(7.44, abs=0.005)
