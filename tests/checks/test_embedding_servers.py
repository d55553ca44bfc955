"""Servers of embeddings and scores beside those that generate: no plan is made of them, and they are counted."""

from __future__ import annotations

import pytest

from roofplan.checks import settings
from roofplan.checks.run import check_text


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve BAAI/bge-m3 --runner pooling",
        "vllm serve BAAI/bge-reranker-v2-m3 --task score",
        "vllm serve Alibaba-NLP/gte-Qwen2-7B-instruct --task=embed --hf-overrides '{\"is_causal\": false}'",
        "vllm serve Qwen/Qwen3-8B --convert embed",
        "llama-server -m bge-m3.gguf --embeddings --pooling cls",
        "llama-server -m reranker.gguf --reranking",
        "python -m sglang.launch_server --model-path Alibaba-NLP/gte-Qwen2-1.5B-instruct --is-embedding",
    ],
)
def test_what_generates_nothing_is_passed_over(command: str) -> None:
    result = check_text(f"{command}\n", "serve.sh", settings.load(hardware="l4"))
    assert (result.findings, result.problems, result.exit_code) == ((), (), 0)
    assert dict(result.skipped) == {"embedding server": 1}


@pytest.mark.parametrize("flag", ["--runner generate", "--runner auto", "--task generate", "--convert none", ""])
def test_what_generates_is_checked(flag: str) -> None:
    command = f"vllm serve meta-llama/Llama-3.1-70B-Instruct {flag}\n"
    result = check_text(command, "serve.sh", settings.load(hardware="l4"))
    assert {finding.rule for finding in result.findings} == {"does-not-fit"}
