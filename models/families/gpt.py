"""GPT-2, Falcon, gpt-oss: early decoders with two-matrix MLPs, and OpenAI's open mixture of experts."""

from __future__ import annotations

from ..config import Config, Shape, family
from ..spec import LayerGroup
from ._parts import attention, by_layer_types, experts, num_layers, plain


@family("gpt2")
def gpt2(c: Config) -> Shape:
    """GPT-2: MHA, biases everywhere, learned positions, tied head."""
    hidden = c.count("hidden_size", "n_embd")
    mlp = plain(c.count("n_inner", default=4 * hidden), bias=True)
    layer = LayerGroup(count=1, attention=(attention(c, qkv_bias=True, out_bias=True),), mlp=(mlp,))
    positions = c.count("n_positions", "n_ctx")
    return Shape([layer] * num_layers(c), tied_by_default=True, learned_positions=positions, norm_bias=True)


@family("falcon")
def falcon(c: Config) -> Shape:
    """Falcon: attention and MLP in parallel; one KV head (7B) or groups (40B, 180B, with a norm for each branch)."""
    new = c.flag("new_decoder_architecture")
    heads = c.count("num_attention_heads", "n_head")
    kv_heads = (
        c.count("num_kv_heads", "n_head_kv", default=heads)
        if new
        else 1
        if c.flag("multi_query", default=True)
        else heads
    )
    bias = c.flag("bias")
    mixer = attention(c, num_kv_heads=kv_heads, qkv_bias=bias, out_bias=bias)
    mlp = plain(c.count("ffn_hidden_size", default=4 * c.count("hidden_size")), bias=bias)
    norms = 1 if c.flag("parallel_attn", default=True) and not new else 2
    layer = LayerGroup(count=1, attention=(mixer,), mlp=(mlp,), norms=norms)
    return Shape([layer] * num_layers(c), tied_by_default=True, norm_bias=True)


@family("gpt_oss")
def gpt_oss(c: Config) -> Shape:
    """gpt-oss: sliding and full layers in turn, the first one sliding; sinks, biases everywhere, experts in four bits."""
    bias = {"qkv_bias": c.flag("attention_bias", default=True), "out_bias": c.flag("attention_bias", default=True)}
    full = attention(c, sinks=True, **bias)
    local = attention(c, kind="sliding", window=c.count("sliding_window"), sinks=True, **bias)
    moe = experts(c, intermediate_size=c.count("intermediate_size"), router_bias=True, expert_bias=True)
    mixers = by_layer_types(c, full, local, every=2)
    return Shape([LayerGroup(count=1, attention=(mixer,), mlp=(moe,)) for mixer in mixers])
