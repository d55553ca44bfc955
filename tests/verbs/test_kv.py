"""``roofplan kv`` through the installed console script."""

import pytest
from console import answer, run


@pytest.mark.parametrize(
    ("model", "growth"),
    [
        ("llama-2-7b", 524288),
        ("llama-3.1-8b", 131072),
        ("llama-3-70b", 327680),
        ("deepseek-v3", 70272),
        ("qwen3-32b", 262144),
    ],
)
def test_growth_per_token(model: str, growth: int) -> None:
    assert answer("kv", model)["result"]["kv"]["bytes_per_token"] == growth


@pytest.mark.parametrize("model", ["gemma-3-27b", "qwen3.6-35b-a3b", "deepseek-v3.2", "gemma-4-e2b"])
def test_layer_groups_and_contexts_add_up(model: str) -> None:
    result = answer("kv", model, "--context", "32768")["result"]
    grouped = sum(group["bytes"] for group in result["by_layer_group"])
    assert grouped + result["kv"]["state_bytes_per_sequence"] == result["kv"]["bytes_per_sequence"]
    assert {"context": 32768, "bytes_per_sequence": result["kv"]["bytes_per_sequence"]} in result["by_context"]


def test_sparse_attention_keeps_index_keys_apart() -> None:
    kv = answer("kv", "deepseek-v3.2")["result"]["kv"]
    assert kv["bytes_per_token"] == 70272
    assert kv["index_bytes_per_token"] == 61 * 128 * 2
    assert kv["bytes_per_sequence"] == 8192 * (70272 + 61 * 128 * 2)


def test_text_names_both_units() -> None:
    text = run("kv", "llama-3.1-8b", "--tp", "8").stdout
    assert "128.0 KiB" in text
    assert "131,072 B" in text
    assert "on all ranks together" in text


def test_explain_derives_the_growth() -> None:
    text = run("kv", "llama-3.1-8b", "--explain").stdout
    assert "(32 layers x 2048 elements) x 2 B" in text
    assert run("kv", "llama-3.1-8b", "--format", "markdown").stdout.startswith("## KV cache of llama-3.1-8b")
