"""GGUF files of models that cannot be: metadata and tensors that contradict each other are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gguf_models import BLOCK, HIDDEN, KEYS, TENSORS, VOCAB, read
from weight_files import Sides, mlp, model_keys, model_tensors, norms

from roofplan.errors import SpecError


def without(*names: str) -> dict[str, Any]:
    return {key: value for key, value in KEYS.items() if key not in names}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (without("general.architecture"), "general.architecture: got nothing, want a text"),
        (without("llama.block_count"), "llama.block_count: got nothing, want a whole number from 1 to 10,000"),
        (KEYS | {"llama.block_count": 10**9}, "llama.block_count: got 1000000000"),
        (KEYS | {"llama.block_count": 0}, "llama.block_count: got 0"),
        (KEYS | {"llama.block_count": 3}, "llama.block_count: got 3, want more, since there is a tensor blk.3."),
        (KEYS | {"llama.block_count": 5}, "llama.block_count: got no tensors for block 4"),
        (KEYS | {"llama.block_count": "4"}, "llama.block_count: got a text, want a whole number"),
        (KEYS | {"llama.block_count": 4.0}, "llama.block_count: got 4.0, want a whole number"),
        (KEYS | {"llama.block_count": True}, "llama.block_count: got True, want a whole number"),
        (KEYS | {"llama.block_count": [4, 5]}, "llama.block_count: got 2 different values, want one"),
        (
            without("llama.attention.head_count"),
            "llama.attention.head_count: got attention tensors in block 0, but 0 heads",
        ),
        (KEYS | {"llama.attention.head_count": [4, 4]}, "llama.attention.head_count: got 2 entries"),
        (KEYS | {"llama.attention.head_count": 2**60}, "llama.attention.head_count: got 1152921504606846976"),
        (KEYS | {"llama.attention.head_count": 8}, "attn_q.weight: got 256 rows, want 512"),
        (KEYS | {"llama.attention.head_count_kv": 3}, "attn_k.weight: got 128 features, want a multiple of 3"),
        (
            KEYS | {"llama.attention.key_length": 32, "llama.attention.head_count": 6},
            "attn_q.weight: got 256 rows, want 192, by the metadata",
        ),
        (KEYS | {"llama.attention.key_length": 32}, "attn_k.weight: got 128 rows, want 64, by the metadata"),
        (KEYS | {"llama.context_length": 2**64 - 1}, "llama.context_length: got 18446744073709551615"),
        (KEYS | {"llama.nextn_predict_layers": 4}, "llama.nextn_predict_layers: got 4, want fewer than the 4 blocks"),
        (
            KEYS | {"llama.attention.sliding_window": 8, "llama.attention.sliding_window_pattern": [True]},
            "sliding_window_pattern: got 1 entries, want 4, one a layer",
        ),
    ],
)
def test_contradictory_metadata(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, keys, TENSORS)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "model.gguf"))


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"time_mix_w1.weight": (HIDDEN, 8)}, "a layer with a time mix (RWKV)"),
        ({"shortconv.conv.weight": (3, HIDDEN)}, "a layer with a short convolution (LFM2)"),
        (BLOCK | {"attn_q.weight": (HIDDEN,)}, "blk.0.attn_q.weight: got a vector, want a matrix"),
        (BLOCK | {"attn_output.weight": (512, HIDDEN)}, "blk.0.attn_output.weight: got rows of 512, want 256"),
        (
            {**mlp(HIDDEN, 512), **norms(HIDDEN), "ffn_down.weight": (300 * 256, HIDDEN)},
            "blk.0.ffn_up.weight: got 512 rows",
        ),
        ({"attn_kv_a_mqa.weight": (HIDDEN, 8), **norms(HIDDEN)}, "blk.0.attn_q.weight: got nothing, want a matrix"),
        (
            mlp(HIDDEN, 256, "_exps", copies=4) | {"ffn_gate_inp.weight": (HIDDEN, 8)},
            "want 8 experts, as the router has",
        ),
        ({"ssm_beta.weight": (HIDDEN, 4)}, "llama.ssm.time_step_rank: got nothing"),
        (
            {
                "attn_kv_a_mqa.weight": (HIDDEN, 64 + 48),
                "attn_q.weight": (HIDDEN, 4 * 48),
                "attn_kv_b.weight": (64, 256),
            },
            "blk.0.attn_q.weight: got 192 rows for 4 heads, want heads wider than a rotary key",
        ),
        (
            norms(HIDDEN) | mlp(HIDDEN, 256, "_exps", copies=1) | {"ffn_gate_inp.weight": (HIDDEN, 1)},
            "got 2 experts per token of 1",
        ),
    ],
)
def test_contradictory_tensors(tmp_path: Path, block: dict[str, Sides], said: str) -> None:
    keys = model_keys("llama", HIDDEN, 1, 4, 2, expert_used_count=2) | {"llama.attention.kv_lora_rank": 64}
    with pytest.raises(SpecError) as caught:
        read(tmp_path, keys, model_tensors(HIDDEN, VOCAB, [block], "F16"))
    assert said in str(caught.value)


def test_compressed_attention_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"compress_ratios: got compressed attention, want .*describe the model in a spec"
    ):
        read(tmp_path, KEYS | {"llama.attention.compress_ratios": [0, 4, 128, 4]}, TENSORS)


@pytest.mark.parametrize("tensors", [[], [("v.blk.0.attn_q.weight", (256, 256), "F16")], TENSORS[1:]])
def test_files_that_are_no_language_model(tmp_path: Path, tensors: list[tuple[str, Sides, str]]) -> None:
    with pytest.raises(SpecError, match="want a language model"):
        read(tmp_path, KEYS, tensors)
