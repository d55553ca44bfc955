"""Keys that a configuration leaves out, and values that it cannot have: never another shape without a word."""

from typing import Any

import pytest
from shapes import number_format
from traps import GEMMA3, QWEN3, config, layers_of

import roofplan
from roofplan import models
from roofplan.documents import Document
from roofplan.errors import SpecError
from roofplan.models.spec import ModelSpec
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.parameters import count_parameters


def growth(spec: ModelSpec) -> int:
    return cache_layout(spec, number_format("bf16")).bytes_per_token


class TestLeftOut:
    """Keys whose absence once gave a wrong shape: the class's own constant (said in every answer), or an error."""

    @pytest.mark.parametrize("removed", [None, ...])
    @pytest.mark.parametrize(
        ("hf_id", "bytes_per_token"),
        [
            (QWEN3, 262144),
            ("Qwen/Qwen3-30B-A3B", 98304),
            ("openai/gpt-oss-20b", 24576),
            ("MiniMaxAI/MiniMax-M2.5", 253952),
            ("google/gemma-7b", 458752),
        ],
    )
    def test_a_head_is_as_wide_as_the_class_says(self, hf_id: str, bytes_per_token: int, removed: object) -> None:
        spec = config(hf_id, head_dim=removed)
        assert growth(spec) == bytes_per_token
        assert any(text.startswith("head_dim is not in the file") for text in spec.assumed)

    def test_why_it_is_taken_is_said_truly(self) -> None:
        dense, sparse = config(QWEN3, head_dim=...), config("Qwen/Qwen3-30B-A3B", head_dim=...)
        assert "head_dim is not in the file: 128, the default of its class" in dense.assumed
        # Qwen3MoeConfig has no head_dim; transformers would take 2048 / 32.
        assert "head_dim is not in the file: 128, as all published configurations of its class say" in sparse.assumed

    def test_what_was_taken_as_given_is_a_warning(self) -> None:
        spec = config(QWEN3, head_dim=...)
        for answer in (roofplan.size(spec, "h100", tp=2), roofplan.kv(spec)):
            assert [notice.code for notice in answer.warnings] == ["assumed"]
        assert roofplan.kv(config(QWEN3)).warnings == ()

    def test_a_wrapped_gemma_3_leaves_out_nearly_all(self) -> None:
        inner = {"model_type": "gemma3_text", "hidden_size": 3840, "intermediate_size": 15360, "num_hidden_layers": 48}
        inner |= {"num_attention_heads": 16, "num_key_value_heads": 8, "sliding_window": 1024}
        spec = models.from_document(Document({"model_type": "gemma3", "text_config": inner}, "config.json"))
        assert (spec.vocab_size, growth(spec)) == (262208, 65536)  # google/gemma-3-12b-it

    def test_latent_attention_is_not_taken_for_the_usual_one(self) -> None:
        with pytest.raises(SpecError, match="kv_lora_rank: got nothing"):
            config("deepseek-ai/DeepSeek-V3", kv_lora_rank=...)

    def test_dense_layers_and_shared_experts_are_those_of_the_class(self) -> None:
        left_out = config("deepseek-ai/DeepSeek-V3", first_k_dense_replace=..., n_shared_experts=..., scoring_func=...)
        assert count_parameters(left_out).total == 671026419200
        assert len(left_out.assumed) == 3

    def test_mixtral_has_experts(self) -> None:
        spec = config("mistralai/Mixtral-8x7B-v0.1", num_local_experts=...)
        assert spec.layers == config("mistralai/Mixtral-8x7B-v0.1").layers

    def test_shared_layers_of_gemma_3n(self) -> None:
        assert growth(config("google/gemma-3n-E4B-it", num_kv_shared_layers=...)) == 8192

    def test_compress_ratios_are_needed(self) -> None:
        with pytest.raises(SpecError, match="compress_ratios: got nothing"):
            config("deepseek-ai/DeepSeek-V4-Flash", compress_ratios=...)


class TestContradictions:
    """Values that no layer, class or list can have are errors, not another shape."""

    @pytest.mark.parametrize(
        ("hf_id", "changes", "said"),
        [
            (GEMMA3, {"layer_types": ["foo"] * 62}, "layer_types: got 'foo'"),
            (GEMMA3, {"layer_types": ["linear_attention"] * 62}, "layer_types: got 'linear_attention'"),
            (GEMMA3, {"layer_types": ["full_attention"] * 80}, "layer_types: got 80 entries"),
            ("openai/gpt-oss-20b", {"layer_types": [1, 0] * 12}, "layer_types: got 1"),
            (QWEN3, {"layer_types": ["chunked_attention"] * 64}, "layer_types: got 'chunked_attention'"),
            ("google/gemma-4-E2B-it", {"num_kv_shared_layers": 99}, "num_kv_shared_layers: got 99"),
            ("tencent/Hunyuan-A13B-Instruct", {"use_cla": True}, "use_cla: got true"),
            ("deepseek-ai/DeepSeek-V4-Flash", {"compress_ratios": [7] * 43}, "compress_ratios: got 7"),
            ("Qwen/Qwen3-30B-A3B", {"mlp_only_layers": [99]}, "mlp_only_layers: got layer 99"),
            ("ai21labs/AI21-Jamba-Mini-1.5", {"attn_layer_offset": 8}, "attn_layer_offset: got 8"),
            ("Qwen/Qwen3-30B-A3B", {"n_routed_experts": 64}, "num_experts: got 128, and 64 under another"),
        ],
    )
    def test_it_is_named(self, hf_id: str, changes: dict[str, Any], said: str) -> None:
        with pytest.raises(SpecError) as caught:
            config(hf_id, **changes)
        assert said in str(caught.value)

    def test_listed_layers_of_qwen_slide_where_the_window_is_on(self) -> None:
        listed = {"layer_types": ["sliding_attention"] * 60 + ["full_attention"] * 4, "sliding_window": 4096}
        on, off = config(QWEN3, use_sliding_window=True, **listed), config(QWEN3, use_sliding_window=False, **listed)
        assert (layers_of(on, "full"), layers_of(off, "full")) == (4, 64)
