"""What engines refuse or turn away, as files of all kinds say it: one fault in each, and what mends it."""

from __future__ import annotations

import pytest

from roofplan.checks import settings
from roofplan.checks.finding import Finding
from roofplan.checks.run import check_text


def found(text: str, rule: str, hardware: str = "h100-sxm5-80gb", name: str = "serve.sh") -> Finding | None:
    result = check_text(text, name, settings.load(hardware=hardware, select=(rule,)))
    assert not result.problems
    assert len(result.findings) <= 1
    return next(iter(result.findings), None)


# ------------------------------------------------------------------------------------------------ blocks of experts


@pytest.mark.parametrize(
    ("command", "ranks"),
    [
        ("vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 -tp 8", 8),  # 1,536 / 8 = 192
        ("vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 -tp 4", 0),  # 384
        ("vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 -tp 2 -dp 4", 8),  # all ranks divide each expert
        ("vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 -tp 2 -dp 4 --enable-expert-parallel", 0),
        ("vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507 -tp 8", 0),  # 16 bits
        ("vllm serve deepseek-ai/DeepSeek-V3.1 -tp 16 --nnodes 2", 0),  # 2,048 / 16 = 128
        ("python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3.1 --tp 32 --nnodes 4", 32),
        ("python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3.1 --tp 32 --ep-size 32 --nnodes 4", 0),
        ("trtllm-serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 --tp_size 8", 0),  # of other engines nothing is known
    ],
)
def test_ranks_may_not_cut_through_blocks(command: str, ranks: int) -> None:
    finding = found(f"{command}\n", "blocks-do-not-divide", "b200")
    assert (0 if finding is None else finding.figures["ranks"]) == ranks


def test_a_smaller_number_or_whole_experts_are_proposed() -> None:
    text = "vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 -tp 8\n"
    finding = found(text, "blocks-do-not-divide", "b200")
    assert finding is not None
    assert "4 ranks would do" in finding.message
    assert finding.fix == "--enable-expert-parallel"
    assert found(text.replace("-tp 8", f"-tp 8 {finding.fix}"), "blocks-do-not-divide", "b200") is None
    assert found(text.replace("-tp 8", "-tp 4"), "blocks-do-not-divide", "b200") is None


# ------------------------------------------------------------------------------------------------ longest sequences


def test_an_engine_that_starts_with_too_small_a_cache_turns_requests_away() -> None:
    text = (
        "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --mem-fraction-static 0.75 --context-length 40960\n"
    )
    finding = found(text, "kv-less-than-one-sequence", "rtx-4090")
    assert finding is not None
    assert (finding.severity, "turned away" in finding.message) == ("warning", True)
    assert found(text.replace("--context-length 40960", finding.fix), "kv-less-than-one-sequence", "rtx-4090") is None
    assert found(text.replace("--context-length 40960", ""), "kv-less-than-one-sequence", "rtx-4090") is None


@pytest.mark.parametrize("slots", ["", " -np 2"])
def test_llama_cpp_allocates_the_whole_context_at_its_start(slots: str) -> None:
    text = f"llama-server -hf bartowski/Qwen2.5-32B-Instruct-GGUF:Q4_K_M -ngl 99 -c 32768{slots}\n"
    finding = found(text, "kv-less-than-one-sequence", "rtx-3090")
    assert finding is not None
    assert finding.severity == "error"
    assert found(text.replace("-c 32768", finding.fix), "kv-less-than-one-sequence", "rtx-3090") is None


# ------------------------------------------------------------------------------------------------ formats


@pytest.mark.parametrize(
    ("model", "hardware", "refused"),
    [
        ("Qwen/Qwen2.5-14B-Instruct-AWQ", "v100-sxm2-32gb", "awq"),
        ("Qwen/Qwen2.5-14B-Instruct-AWQ", "t4", ""),
        ("Qwen/Qwen2.5-14B-Instruct-GPTQ-Int4", "v100-sxm2-32gb", ""),
        ("nvidia/Llama-3.3-70B-Instruct-FP8", "a100-sxm4-80gb", "modelopt"),
        ("nvidia/Llama-3.3-70B-Instruct-FP8", "l40s", ""),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "a100-sxm4-80gb", ""),  # kernels for weights alone
    ],
)
def test_the_method_of_a_checkpoint_is_told_from_its_name(model: str, hardware: str, refused: str) -> None:
    finding = found(f"vllm serve {model} --dtype half\n", "quantisation-unsupported-on-device", hardware)
    is_error = finding is not None and finding.severity == "error"
    assert is_error == bool(refused)
    assert not is_error or f"no kernels for {refused} on" in str(finding and finding.message)


# ------------------------------------------------------------------------------------------------ words of messages


@pytest.mark.parametrize(
    ("command", "fix"),
    [
        ("python -m sglang.launch_server --model-path Qwen/Qwen3-8B --max-model-len 4096", "--context-length"),
        ("vllm serve Qwen/Qwen3-8B --mem-fraction-static 0.8", "--gpu-memory-utilization"),
        ("llama-server -hf ggml-org/gpt-oss-20b-GGUF --tensor-parallel-size 2", ""),  # it has no such thing
        ("vllm serve Qwen/Qwen3-8B --no-such-thing 1", ""),
    ],
)
def test_a_flag_of_another_engine_is_translated(command: str, fix: str) -> None:
    finding = found(f"{command}\n", "unknown-flag")
    assert finding is not None
    assert finding.fix == fix


def test_an_error_of_the_planner_names_the_flag_of_the_file() -> None:
    finding = found("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 90\n", "cannot-be-planned")
    assert finding is not None
    assert finding.message.startswith("--gpu-memory-utilization: got 90")


def test_the_default_share_of_memory_is_noted_and_a_stated_one_warned_of() -> None:
    text = "vllm serve meta-llama/Llama-3.1-8B-Instruct --dtype half -tp 4 --max-model-len 8192\n"
    default = found(text, "utilisation-risky", "t4")
    stated = found(text.replace("-tp", "--gpu-memory-utilization 0.95 -tp"), "utilisation-risky", "t4")
    assert (default and default.severity, stated and stated.severity) == ("note", "warning")


def test_ranks_of_several_pods_are_counted_in_each() -> None:
    text = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: r1}
spec:
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        containers:
          - name: main
            image: lmsysorg/sglang:v0.4.9
            command: [python3, -m, sglang.launch_server, --model-path, deepseek-ai/DeepSeek-R1, --tp, "32", --node-rank, $(LWS_WORKER_INDEX)]
            resources: {limits: {nvidia.com/gpu: 8}}
"""
    finding = found(text, "gpu-limit-mismatch", name="lws.yaml")
    assert finding is not None
    assert "tp 32 needs 16 devices in each of 2 pods, which gets 8" in finding.message


def test_devices_are_proposed_without_a_flag_where_the_engine_takes_all() -> None:
    text = "llama-server -hf bartowski/Qwen2.5-32B-Instruct-GGUF:Q8_0 -ngl 99 -c 8192\n"
    finding = found(text, "does-not-fit", "rtx-3090")
    assert finding is not None
    assert finding.fix.startswith("2 devices, or ")
