"""Settings as files say them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import service

from roofplan.checks.record import Flag, Said
from roofplan.checks.spelling import setting, switched_on, with_flags


@pytest.mark.parametrize(
    ("kind", "engine", "option", "value", "said"),
    [
        ("deployment", "vllm@0.19.0", "tp", 4, "tp: 4"),
        ("command", "vllm@0.19.0", "tp", 4, "--tensor-parallel-size 4"),
        ("kubernetes", "vllm", "max_num_seqs", 64, "--max-num-seqs 64"),
        ("command", "vllm@0.19.0", "kv", "bf16", "--kv-cache-dtype bfloat16"),
        ("command", "vllm@0.19.0", "kv", "fp8", "--kv-cache-dtype fp8"),
        ("ray", "vllm@0.19.0", "tp", 4, "tensor_parallel_size: 4"),
        ("command", "sglang@0.5.3", "max_num_batched_tokens", 2048, "--chunked-prefill-size 2048"),
        ("command", "sglang@0.5.3", "kv", "fp8", "--kv-cache-dtype fp8_e4m3"),
        ("command", "tensorrt-llm@1.0", "max_num_batched_tokens", 2048, "--max_num_tokens 2048"),
        ("command", "llama.cpp@b5150", "max_model_len", 4096, "--ctx-size 4096"),
        ("command", "vllm@0.19.0", "speculation.k", 2, "--speculative-config.num_speculative_tokens 2"),
        ("command", "sglang@0.5.3", "speculation.k", 2, "--speculative-num-steps 2"),
        ("command", "plain", "tp", 4, "tp: 4"),
    ],
)
def test_a_setting_is_written_as_its_file_would(kind, engine, option, value, said):
    assert setting(service(kind=kind, engine=engine), option, value) == said


def test_slots_that_divide_a_context_are_counted():
    described = service(kind="command", engine="llama.cpp", max_num_seqs=4)
    assert setting(described, "max_model_len", 4096) == "--ctx-size 16384"
    shared = service(kind="command", engine="llama.cpp", max_num_seqs=4, features={"shared_context": True})
    assert setting(shared, "max_model_len", 4096) == "--ctx-size 4096"


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("vllm@0.19.0", "--enable-prefix-caching"),
        ("sglang@0.5.3", "leave out --disable-radix-cache"),
        ("tensorrt-llm@1.0", "enable_block_reuse: true"),
        ("plain", ""),
    ],
)
def test_how_an_engine_is_told_to_cache_prefixes(engine, said):
    assert switched_on(service(kind="command", engine=engine), "prefix_caching") == said


def test_words_of_one_variable_stand_in_one_place_and_are_told_apart():
    described = service(kind="command", engine="vllm@0.19.0", max_model_len=32_768)
    place = described.options["max_model_len"].place
    flags = tuple(Flag(name, Said(1, place, name)) for name in ("--model", "--max-model-len", "--max-num-seqs"))
    assert setting(replace(described, flags=flags), "max_model_len", 8192) == "--max-model-len 8192"


@pytest.mark.parametrize(
    ("kind", "engine", "said"),
    [
        ("command", "llama.cpp", "2 devices, or fewer bits"),  # it takes all devices: no flag says how many
        ("command", "vllm", "2 devices (--tensor-parallel-size 2), or fewer bits"),
        ("deployment", "llama.cpp", "2 devices (tp: 2), or fewer bits"),
    ],
)
def test_a_remedy_names_a_flag_where_the_engine_has_one(kind, engine, said):
    assert with_flags(service(kind=kind, engine=engine), "2 devices (--tp 2), or fewer bits") == said


def test_the_flag_that_stands_there_is_kept():
    described = service(kind="command", engine="plain", tp=2)
    flag = Flag("--gpus", Said(2, described.options["tp"].place, "--gpus 2"))
    assert setting(replace(described, flags=(flag,)), "tp", 4) == "--gpus 4"


def test_options_in_words_of_the_planner_become_flags():
    described = service(kind="command")
    assert with_flags(described, "2 devices (--tp 2)") == "2 devices (--tensor-parallel-size 2)"
    assert with_flags(described, "nothing --unheard 3 of") == "nothing --unheard 3 of"
