"""Configurations beyond the collection, with the totals of the published checkpoints.

Keys and totals were written down from memory and not looked up again for this file, but for those of LFM2; the reader's totals equal them
to the unit.
"""

from __future__ import annotations

from typing import Any

# Keys of LFM2: LiquidAI/LFM2-700M config.json (refs/pr/8), FastFlowLM/LFM2-1.2B-NPU2, Thorge-AI/lfm2-web-runtime-weights (350M) and
# LiquidAI/LFM2-2.6B-Transcript-ONNX; totals: parameters_raw of llmfit (safetensors metadata), for 1.2B also the header of its GGUF.
_LFM2 = {"model_type": "lfm2", "num_key_value_heads": 8, "vocab_size": 65536, "conv_L_cache": 3, "conv_bias": False}
_LFM2 |= {"block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256}
_LFM2_ATTENTION = [2, 5, 8, 10, 12, 14]


def _kinds(count: int, full: list[int]) -> list[str]:
    return ["full_attention" if i in full else "conv" for i in range(count)]


PUBLISHED: dict[str, tuple[int, dict[str, Any]]] = {
    "microsoft/phi-2": (
        2_779_683_840,
        {"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32}
        | {"num_attention_heads": 32, "vocab_size": 51200, "tie_word_embeddings": False},
    ),
    "THUDM/glm-4-9b-chat-hf": (
        9_399_951_360,
        {"model_type": "glm", "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40}
        | {"num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 151552}
        | {"attention_bias": True, "tie_word_embeddings": False},
    ),
    "THUDM/GLM-4-9B-0414": (
        9_400_279_040,
        {"model_type": "glm4", "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40}
        | {"num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 151552}
        | {"attention_bias": True, "tie_word_embeddings": False},
    ),
    "allenai/OLMo-7B-hf": (
        6_888_095_744,
        {"model_type": "olmo", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32}
        | {"num_attention_heads": 32, "vocab_size": 50304, "tie_word_embeddings": False},
    ),
    "allenai/OLMoE-1B-7B-0924": (
        6_919_161_856,
        {"model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16}
        | {"num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 64, "num_experts_per_tok": 8}
        | {"vocab_size": 50304, "tie_word_embeddings": False},
    ),
    "bigscience/bloom-7b1": (
        7_069_016_064,
        {"model_type": "bloom", "n_embed": 4096, "hidden_size": 4096, "n_layer": 30, "num_attention_heads": 32}
        | {"vocab_size": 250880},
    ),
    "mosaicml/mpt-7b": (
        6_649_286_656,
        {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "expansion_ratio": 4, "no_bias": True}
        | {"vocab_size": 50432, "attn_config": {"alibi": True}, "max_seq_len": 2048},
    ),
    "EleutherAI/gpt-neo-1.3B": (
        1_315_575_808,
        {"model_type": "gpt_neo", "hidden_size": 2048, "num_layers": 24, "num_heads": 16, "intermediate_size": None}
        | {"attention_types": [[["global", "local"], 12]], "window_size": 256, "vocab_size": 50257}
        | {"max_position_embeddings": 2048},
    ),
    "state-spaces/mamba-130m-hf": (
        129_135_360,
        {"model_type": "mamba", "hidden_size": 768, "intermediate_size": 1536, "num_hidden_layers": 24}
        | {"state_size": 16, "conv_kernel": 4, "time_step_rank": 48, "vocab_size": 50280},
    ),
    "tiiuae/falcon-mamba-7b": (
        7_272_665_088,
        {"model_type": "falcon_mamba", "hidden_size": 4096, "intermediate_size": 8192, "num_hidden_layers": 64}
        | {"state_size": 16, "conv_kernel": 4, "time_step_rank": 256, "vocab_size": 65024}
        | {"tie_word_embeddings": False},
    ),
    "ibm-granite/granite-3.0-1b-a400m-base": (
        1_334_628_352,
        {"model_type": "granitemoe", "hidden_size": 1024, "intermediate_size": 512, "num_hidden_layers": 24}
        | {"num_attention_heads": 16, "num_key_value_heads": 8, "num_local_experts": 32, "num_experts_per_tok": 8}
        | {"vocab_size": 49155, "tie_word_embeddings": True},
    ),
    "nvidia/Minitron-4B-Base": (
        4_190_509_056,  # 2 x 256000 x 3072 + 32 x (2 x 3072^2 + 2 x 3072 x 1024 + 2 x 3072 x 9216 + 4 x 3072) + 2 x 3072
        {"model_type": "nemotron", "hidden_size": 3072, "intermediate_size": 9216, "num_hidden_layers": 32}
        | {"num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 256000},
    ),
    "LiquidAI/LFM2-1.2B": (
        1_170_340_608,
        {**_LFM2, "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "block_ff_dim": 12288}
        | {"full_attn_idxs": _LFM2_ATTENTION, "max_position_embeddings": 128000},
    ),
    "LiquidAI/LFM2-700M": (
        742_489_344,
        {**_LFM2, "hidden_size": 1536, "num_hidden_layers": 16, "num_attention_heads": 24, "block_ff_dim": 10240}
        | {"full_attn_idxs": _LFM2_ATTENTION},
    ),
    "LiquidAI/LFM2-350M": (
        354_483_968,
        {**_LFM2, "hidden_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16, "block_ff_dim": 6656}
        | {"intermediate_size": 6656, "layer_types": _kinds(16, _LFM2_ATTENTION)},
    ),
    "LiquidAI/LFM2-2.6B": (
        2_569_272_320,
        {**_LFM2, "hidden_size": 2048, "num_hidden_layers": 30, "num_attention_heads": 32, "block_ff_dim": 10752}
        | {"block_auto_adjust_ff_dim": False, "layer_types": _kinds(30, [2, 5, 9, 13, 17, 21, 24, 27])},
    ),
}
