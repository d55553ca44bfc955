"""GLM: ChatGLM's own key names, dense attention with experts, and latent attention with an indexer that layers share."""

from __future__ import annotations

from dataclasses import replace

from ..config import Config, Shape, family
from ..spec import Indexer, LayerGroup, Moe
from ._parts import attention, dense_then_sparse, experts, gated, latent, num_layers, shared_expert


@family("chatglm")
def chatglm(c: Config) -> Shape:
    """ChatGLM 3 and GLM-4-9B: ``multi_query_group_num`` KV heads, biases on queries, keys and values."""
    grouped = c.flag("multi_query_attention")
    kv_heads = c.count("multi_query_group_num") if grouped else c.count("num_attention_heads")
    mixer = attention(c, num_kv_heads=kv_heads, qkv_bias=c.flag("add_qkv_bias") or c.flag("add_bias_linear"))
    mlp = gated(c, width=c.count("ffn_hidden_size"), bias=c.flag("add_bias_linear"))
    return Shape([LayerGroup(count=1, attention=(mixer,), mlp=(mlp,))] * num_layers(c))


@family("glm", "glm4")
def glm(c: Config) -> Shape:
    """GLM-4-9B and 32B as transformers has them: the shape of Llama with biases; from 0414 on a norm after each part too."""
    norms = 4 if c.text("model_type", default="") == "glm4" else 2
    mixer = attention(c, qkv_bias=c.flag("attention_bias"))
    return Shape([LayerGroup(count=1, attention=(mixer,), mlp=(gated(c),), norms=norms)] * num_layers(c))


@family("glm4_moe")
def glm4_moe(c: Config) -> Shape:
    """GLM 4.5 and 4.6: biases on queries, keys and values, norms on queries and keys in the larger ones, experts after dense layers."""
    mixer = attention(c, qk_norm=c.flag("use_qk_norm"), qkv_bias=c.flag("attention_bias"))
    return Shape(dense_then_sparse(c, [mixer] * num_layers(c), gated(c), _experts(c)))


@family("glm4_moe_lite", "glm_moe_dsa")
def glm5(c: Config) -> Shape:
    """GLM 4.7 Flash and GLM 5: latent attention; GLM 5 adds an indexer, which from 5.2 on only the "full" layers own."""
    mixer = latent(c)
    mixers = [mixer] * num_layers(c)
    top_k = c.optional("index_topk")
    if top_k is not None:
        own = Indexer(num_heads=c.count("index_n_heads"), head_dim=c.count("index_head_dim"), top_k=top_k)
        owners = c.items("indexer_types", len(mixers)) or ["full"] * len(mixers)
        mixers = [replace(mixer, indexer=replace(own, shared=kind == "shared")) for kind in owners[: len(mixers)]]
    return Shape(dense_then_sparse(c, mixers, gated(c), _experts(c)))


def _experts(c: Config) -> Moe:
    width = c.count("moe_intermediate_size") * (c.optional("n_shared_experts", zero=True) or 0)
    return experts(c, shared=shared_expert(width), correction_bias=True)
