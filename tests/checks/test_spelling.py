"""Settings as files say them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import service

from roofplan.checks.record import Flag, Said
from roofplan.checks.spelling import setting, with_flags


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


def test_the_flag_that_stands_there_is_kept():
    described = service(kind="command", engine="plain", tp=2)
    flag = Flag("--gpus", Said(2, described.options["tp"].place, "--gpus 2"))
    assert setting(replace(described, flags=(flag,)), "tp", 4) == "--gpus 4"


def test_options_in_words_of_the_planner_become_flags():
    described = service(kind="command")
    assert with_flags(described, "2 devices (--tp 2)") == "2 devices (--tensor-parallel-size 2)"
    assert with_flags(described, "nothing --unheard 3 of") == "nothing --unheard 3 of"
