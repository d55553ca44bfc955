"""What flags mean together: repositories of converted models, groups that share limits, replicas that divide experts."""

from __future__ import annotations

import shlex

import pytest

from roofplan.checks.launching import read_command
from roofplan.checks.record import Place, Pod, Said, Service

PLACE = Place("serve.sh", 1, 1)


def served(text: str) -> Service:
    words = [Said(word, PLACE, word) for word in shlex.split(text)]
    reading = read_command(
        words, environment={}, image=None, kind="command", name="", place=PLACE, pod=Pod(), replaces_entrypoint=True
    )
    assert not reading.problems
    (service,) = reading.services
    return service


def option(text: str, name: str) -> object:
    said = served(text).options.get(name)
    return None if said is None else said.value


@pytest.mark.parametrize(
    ("repository", "model"),
    [
        ("bartowski/Qwen2.5-32B-Instruct-GGUF:Q8_0", "qwen/qwen2.5-32b-instruct"),
        ("bartowski/Meta-Llama-3.1-70B-Instruct-GGUF", "meta-llama/meta-llama-3.1-70b-instruct"),
        ("bartowski/Qwen_Qwen3-32B-GGUF:Q4_K_M", "qwen/qwen3-32b"),
        ("unsloth/gemma-3-27b-it-GGUF", "google/gemma-3-27b-it"),
        ("ggml-org/gpt-oss-20b-GGUF", "ggml-org/gpt-oss-20b-GGUF"),  # in the catalogue itself
        ("me/Qwen2.5-32B-Instruct-finetuned-GGUF", "me/Qwen2.5-32B-Instruct-finetuned-GGUF"),  # no whole name
        ("bartowski/Qwen2.5-32B-Instruct", "bartowski/Qwen2.5-32B-Instruct"),
    ],
)
def test_a_repository_of_converted_weights_names_what_it_converts(repository: str, model: str) -> None:
    assert option(f"llama-server -hf {repository}", "model") == model


@pytest.mark.parametrize(
    ("flags", "stays"),
    [
        ("-ngl 40", True),
        ("--n-gpu-layers 0", True),
        ("--n-cpu-moe 10", True),
        ("--cpu-moe", True),
        ("-ot exps=CPU", True),
        ("-ngl 80", False),  # every layer
        ("-ngl 999", False),
        ("-ngl all", False),
        ("-ngl auto", False),
        ("--n-cpu-moe 0", False),
        ("", False),
    ],
)
def test_layers_that_no_device_takes_stay_on_the_host(flags: str, stays: bool) -> None:
    text = f"llama-server -hf bartowski/Llama-3.3-70B-Instruct-GGUF:Q4_K_M {flags}"
    assert ("partly_on_host" in served(text).features) == stays


@pytest.mark.parametrize(
    ("flags", "stages"), [("-ts 1,1", 2), ("--tensor-split 3,1,0", 2), ("-ts 1", None), ("", None)]
)
def test_shares_of_devices_are_stages_of_layers(flags: str, stages: int | None) -> None:
    assert option(f"llama-server -m a.gguf {flags}", "pp") == stages


def test_all_devices_of_a_container_take_layers() -> None:
    words = [Said(word, PLACE, word) for word in ("llama-server", "-m", "a.gguf")]
    pod = Pod(gpus=Said(4, PLACE))
    reading = read_command(
        words, environment={}, image=None, kind="kubernetes", name="", place=PLACE, pod=pod, replaces_entrypoint=True
    )
    (service,) = reading.services
    assert service.options["pp"].value == 4


@pytest.mark.parametrize(
    ("repository", "weights"),
    [
        ("ggml-org/gpt-oss-120b-GGUF", None),  # published in four bits, and converted as it is
        ("bartowski/Qwen2.5-32B-Instruct-GGUF", "q4_k_m"),
        ("bartowski/Qwen2.5-32B-Instruct-GGUF:Q8_0", "q8_0"),
    ],
)
def test_the_file_type_of_a_repository_is_told_or_the_usual_one(repository: str, weights: str | None) -> None:
    assert option(f"llama-server -hf {repository}", "weights") == weights


def test_groups_of_attention_share_the_limits_of_all() -> None:
    flags = "--tp 8 --dp 8 --max-running-requests 512 --chunked-prefill-size 32768"
    text = f"python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 {flags}"
    grouped = f"{text} --enable-dp-attention"
    assert (option(grouped, "max_num_seqs"), option(grouped, "max_num_batched_tokens")) == (64, 4096)
    assert (option(text, "max_num_seqs"), option(text, "max_num_batched_tokens")) == (512, 32_768)


@pytest.mark.parametrize(
    ("flags", "ep", "divided"),
    [
        ("-dp 8", 8, 8),  # each rank holds an eighth of every expert
        ("-dp 4 -tp 2", 8, 8),
        ("-dp 8 --enable-expert-parallel", 8, None),  # each rank holds whole experts
        ("-tp 8", None, None),
    ],
)
def test_replicas_of_a_mixture_divide_its_experts(flags: str, ep: int | None, divided: int | None) -> None:
    service = served(f"vllm serve deepseek-ai/DeepSeek-V3.1 {flags}")
    assert option(f"vllm serve deepseek-ai/DeepSeek-V3.1 {flags}", "ep") == ep
    said = service.features.get("divided_experts")
    assert (None if said is None else said.value) == divided


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve meta-llama/Llama-3.1-8B-Instruct -dp 8",  # no experts
        "vllm serve mistralai/Mixtral-8x7B-Instruct-v0.1 -dp 8 -tp 2",  # more ranks than experts
        "vllm serve /models/unknown -dp 8",
        "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3.1 --tp 8 --dp 2",  # whole copies
    ],
)
def test_other_replicas_are_whole_copies(text: str) -> None:
    assert option(text, "ep") is None


@pytest.mark.parametrize(
    "flags",
    [
        "-ts 3,1",
        "--tensor-split 0.6,0.4",
        "-l 15043+1",
        "--lora-scaled a.gguf 0.5",
        "--lora-scaled a.gguf:0.5 --control-vector-scaled c.gguf 1",
    ],
)
def test_values_of_several_numbers_are_read(flags: str) -> None:
    assert option(f"llama-server -m a.gguf {flags} -c 4096", "max_model_len") == 4096
