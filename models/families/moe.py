"""Mixtures of experts from several houses that share the usual attention."""

from __future__ import annotations

from dataclasses import replace

from ..config import Config, Shape, family
from ..spec import Indexer, LayerGroup
from ._parts import attention, by_layer_types, dense_then_sparse, experts, gated, num_layers, shared_expert, uniform


@family("dbrx")
def dbrx(c: Config) -> Shape:
    """DBRX: sizes nested in ``attn_config`` and ``ffn_config``."""
    inner = {**c.mapping("attn_config"), **c.mapping("ffn_config")}
    nested = Config(c.document, {**c.data, **inner}, c.path)
    mixer = attention(
        nested, num_kv_heads=nested.count("kv_n_heads"), head_dim=c.count("d_model") // c.count("n_heads")
    )
    moe = experts(nested, intermediate_size=nested.count("ffn_hidden_size"))
    return Shape([LayerGroup(count=1, attention=(mixer,), mlp=(moe,))] * num_layers(c))


@family("ernie4_5_moe")
def ernie(c: Config) -> Shape:
    """ERNIE 4.5: dense layers, then experts with shared ones of their width; a correction bias in the router."""
    width, first = c.count("moe_intermediate_size"), c.optional("moe_layer_start_index", zero=True) or 0
    shared = shared_expert(width * (c.optional("moe_num_shared_experts", zero=True) or 0))
    moe = experts(c, shared=shared, correction_bias=True)
    mixer = attention(c, qkv_bias=c.flag("use_bias"))
    layers = [
        LayerGroup(count=1, attention=(mixer,), mlp=(gated(c) if i < first else moe,)) for i in range(num_layers(c))
    ]
    return Shape(layers, tied_by_default=True)


@family("grok-1")
def grok(c: Config) -> Shape:
    """Grok-1: gated experts, four norms a layer, tied head."""
    moe = experts(c, intermediate_size=c.count("intermediate_size"))
    layer = LayerGroup(count=1, attention=(attention(c),), mlp=(moe,), norms=4)
    return Shape([layer] * num_layers(c), tied_by_default=True)


@family("hunyuan_v1_moe")
def hunyuan(c: Config) -> Shape:
    """Hunyuan A13B: sizes given once per layer, norms on queries and keys, shared experts, tied head."""
    if c.flag("use_cla"):
        raise c.error("use_cla", got="true", wanted="false: attention that shares caches across layers is not read")
    width = uniform(c, "moe_intermediate_size")
    shared = shared_expert(width * uniform(c, "num_shared_expert"))
    moe = experts(c, intermediate_size=width, experts_per_token=uniform(c, "moe_topk"), shared=shared)
    mixer = attention(c, qk_norm=c.flag("use_qk_norm"), qkv_bias=c.flag("attention_bias"))
    return Shape([LayerGroup(count=1, attention=(mixer,), mlp=(moe,))] * num_layers(c), tied_by_default=True)


@family("hy_v3")
def hy3(c: Config) -> Shape:
    """Hunyuan 3: the first layers dense, norms on queries and keys, a shared expert, a correction bias in the router."""
    shared = shared_expert(c.count("moe_intermediate_size") * (c.optional("num_shared_experts", zero=True) or 0))
    mixer = attention(c, qk_norm=c.flag("qk_norm"))
    moe = experts(c, shared=shared, correction_bias=True)
    return Shape(dense_then_sparse(c, [mixer] * num_layers(c), gated(c), moe))


@family("mimo_v2_flash")
def mimo_v2(c: Config) -> Shape:
    """MiMo V2: sliding layers with heads and sinks of their own; keys and values of different widths."""
    full = attention(c, v_head_dim=c.count("v_head_dim"), sinks=c.flag("add_full_attention_sink_bias"))
    local = replace(
        full,
        kind="sliding",
        window=c.count("sliding_window"),
        num_heads=c.count("swa_num_attention_heads"),
        num_kv_heads=c.count("swa_num_key_value_heads"),
        head_dim=c.count("swa_head_dim"),
        v_head_dim=c.count("swa_v_head_dim"),
        sinks=c.flag("add_swa_attention_sink_bias"),
    )
    mixers = [local if flag else full for flag in c.items("hybrid_layer_pattern", num_layers(c))]
    moe = experts(c, correction_bias=c.text("scoring_func", default="") == "sigmoid")
    return Shape(dense_then_sparse(c, mixers, gated(c), moe))


@family("minimax_m2")
def minimax_m2(c: Config) -> Shape:
    """MiniMax M2: full attention everywhere, norms on queries and keys over the full width, a correction bias in the router."""
    mixer = attention(c, qk_norm="full" if c.flag("use_qk_norm") else False)
    moe = experts(c, intermediate_size=c.count("intermediate_size"), correction_bias=c.flag("use_routing_bias"))
    return Shape([LayerGroup(count=1, attention=(mixer,), mlp=(moe,))] * num_layers(c))


@family("phimoe")
def phimoe(c: Config) -> Shape:
    """Phi-3.5 MoE: layer norms, biases in attention and in the head."""
    bias = c.flag("attention_bias")
    moe = experts(c, intermediate_size=c.count("intermediate_size"))
    layer = LayerGroup(count=1, attention=(attention(c, qkv_bias=bias, out_bias=bias),), mlp=(moe,))
    return Shape([layer] * num_layers(c), norm_bias=True, head_bias=c.flag("lm_head_bias"))


@family("step3p7")
def step3(c: Config) -> Shape:
    """Step 3.7: full and sliding layers as listed, the first layers dense, a shared expert, a correction bias in the router."""
    full = attention(c)
    local = replace(full, kind="sliding", window=c.count("sliding_window"))
    shared = shared_expert(c.optional("share_expert_dim"))
    moe = experts(c, shared=shared, correction_bias=c.flag("use_moe_router_bias"))
    return Shape(dense_then_sparse(c, by_layer_types(c, full, local, every=4), gated(c), moe))


@family("minimax_m3", "minimax_m3_vl")
def minimax_m3(c: Config) -> Shape:
    """MiniMax M3: dense and full layers first; the others pick blocks of the cache by index heads and have experts with a shared one."""
    full = attention(c, qk_norm=c.flag("use_qk_norm"))
    settings = Config(c.document, c.mapping("sparse_attention_config"), (*c.path, "sparse_attention_config"))
    indexer = Indexer(
        num_heads=settings.count("sparse_num_index_heads"),
        head_dim=settings.count("sparse_index_dim"),
        top_k=settings.count("sparse_topk_blocks") * settings.count("sparse_block_size"),
    )
    sparse = replace(full, indexer=indexer)
    moe = experts(
        c,
        intermediate_size=c.count("moe_intermediate_size", "intermediate_size"),
        shared=shared_expert(c.optional("shared_intermediate_size")),
        correction_bias=c.flag("use_routing_bias"),
    )
    mixers = [sparse if flag else full for flag in settings.items("sparse_attention_freq", num_layers(c))]
    return Shape(dense_then_sparse(c, mixers, gated(c, width=c.count("dense_intermediate_size")), moe))


@family("olmoe")
def olmoe(c: Config) -> Shape:
    """OLMoE: norms on queries and keys over the full width, experts in every layer."""
    moe = experts(c, intermediate_size=c.count("intermediate_size"))
    layer = LayerGroup(count=1, attention=(attention(c, qk_norm="full"),), mlp=(moe,))
    return Shape([layer] * num_layers(c))


@family("granitemoe")
def granite_moe(c: Config) -> Shape:
    """Granite 3 with experts in every layer."""
    moe = experts(c, intermediate_size=c.count("intermediate_size"))
    layer = LayerGroup(count=1, attention=(attention(c, qkv_bias=c.flag("attention_bias")),), mlp=(moe,))
    return Shape([layer] * num_layers(c))


@family("dots1")
def dots1(c: Config) -> Shape:
    """dots.llm1: norms on queries and keys, the first layers dense, then experts with shared ones and a correction bias in the router."""
    shared = shared_expert(c.count("moe_intermediate_size") * (c.optional("n_shared_experts", zero=True) or 0))
    mixer = attention(c, qk_norm=True, qkv_bias=c.flag("attention_bias"))
    moe = experts(c, shared=shared, correction_bias=True)
    return Shape(dense_then_sparse(c, [mixer] * num_layers(c), gated(c), moe))
