"""Qwen: dense models with biases or query and key norms, and hybrids with linear attention."""

from __future__ import annotations

from dataclasses import replace

from ..config import Config, Shape, family
from ..spec import LayerGroup
from ._parts import attention, by_layer_types, experts, gated, gated_delta_net, num_layers, shared_expert, state_bits

_OLD = {"qwen2", "qwen2_vl", "qwen2_5_vl", "qwen2_moe", "mimo"}


def _kind(c: Config) -> dict[str, bool]:
    """Biases on queries, keys and values (Qwen 2, implied by the class), or norms on queries and keys (Qwen 3)."""
    if c.text("model_type", default="") in _OLD:
        return {"qkv_bias": True}
    return {"qk_norm": True, "qkv_bias": c.flag("attention_bias")}


@family("qwen2", "qwen2_vl", "qwen2_5_vl", "mimo", "qwen3", "qwen3_vl_text")
def qwen(c: Config) -> Shape:
    """Dense Qwen 2 and 3, and MiMo.

    ``sliding_window`` is ignored unless ``use_sliding_window`` is set, and then bites from layer ``max_window_layers`` on.
    """
    full, count, mlp = attention(c, **_kind(c)), num_layers(c), gated(c)
    windowed = c.flag("use_sliding_window") and c.optional("sliding_window") is not None
    local = replace(full, kind="sliding", window=c.count("sliding_window")) if windowed else full
    if c.items("layer_types"):
        mixers = by_layer_types(c, full, local, every=1)
    else:
        first = c.optional("max_window_layers", zero=True) or 0
        mixers = [full if i < first else local for i in range(count)]
    return Shape([LayerGroup(count=1, attention=(mixer,), mlp=(mlp,)) for mixer in mixers])


@family("qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text")
def qwen_moe(c: Config) -> Shape:
    """Qwen with experts on every ``decoder_sparse_step``-th layer but those of ``mlp_only_layers``; Qwen 2 adds a gated shared expert."""
    width = c.optional("shared_expert_intermediate_size") if _kind(c).get("qk_norm") is None else None
    moe = experts(c, shared=shared_expert(width, gate=True))
    step, dense = c.count("decoder_sparse_step", default=1), c.layers("mlp_only_layers", num_layers(c))
    mixer = attention(c, **_kind(c))
    sparse = [i not in dense and (i + 1) % step == 0 for i in range(num_layers(c))]
    return Shape([LayerGroup(count=1, attention=(mixer,), mlp=(moe if is_moe else gated(c),)) for is_moe in sparse])


@family("qwen")
def qwen1(c: Config) -> Shape:
    """Qwen 1: biases on queries, keys and values; ``intermediate_size`` is twice the width of the MLP."""
    mlp = gated(c, width=c.count("intermediate_size") // 2)
    return Shape([LayerGroup(count=1, attention=(attention(c, qkv_bias=True),), mlp=(mlp,))] * num_layers(c))


@family("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
def qwen_hybrid(c: Config) -> Shape:
    """Qwen3-Next and 3.5: three gated delta nets to one full attention with an output gate; experts with a gated shared one, or an MLP."""
    full = attention(c, qk_norm=True, output_gate=True)
    recurrent = gated_delta_net(
        c.count("hidden_size"),
        c.count("linear_num_key_heads"),
        c.count("linear_key_head_dim"),
        c.count("linear_num_value_heads"),
        c.count("linear_value_head_dim"),
        c.count("linear_conv_kernel_dim"),
        bits=state_bits(c, "mamba_ssm_dtype"),
    )
    mixers = by_layer_types(c, full, recurrent, every=c.count("full_attention_interval", default=4))
    sparse = c.optional("num_experts") is not None
    part = (
        experts(c, shared=shared_expert(c.optional("shared_expert_intermediate_size"), gate=True))
        if sparse
        else gated(c)
    )
    return Shape([LayerGroup(count=1, attention=(mixer,), mlp=(part,)) for mixer in mixers])
