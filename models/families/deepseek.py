"""DeepSeek: multi-head latent attention, sparse attention with an indexer, compressed entries; many routed experts."""

from __future__ import annotations

from ..config import Config, Shape, family
from ..spec import CompressedAttention, Indexer, LayerGroup
from ._parts import attention, dense_then_sparse, experts, gated, latent, num_layers, shared_expert


@family("deepseek", "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "mistral4")
def deepseek(c: Config) -> Shape:
    """DeepSeek V1 to V3.2, Kimi K2 and Mistral Small 4: the first layers dense, then experts with shared ones.

    V1 has the usual attention, the others latent attention; V3.2 adds an indexer to each layer. Routers that score with a sigmoid have a
    correction bias.
    """
    first = c.text("model_type", default="") == "deepseek"
    mixer = attention(c) if first else latent(c, indexer=_indexer(c))
    width = c.count("moe_intermediate_size")
    shared = shared_expert(width * (c.optional("n_shared_experts", zero=True) or 0))
    moe = experts(c, shared=shared, correction_bias=c.text("scoring_func", default="") == "sigmoid")
    return Shape(dense_then_sparse(c, [mixer] * num_layers(c), gated(c), moe))


def _indexer(c: Config) -> Indexer | None:
    top_k = c.optional("index_topk")
    if top_k is None:
        return None
    return Indexer(num_heads=c.count("index_n_heads"), head_dim=c.count("index_head_dim"), top_k=top_k)


@family("deepseek_v4")
def deepseek_v4(c: Config) -> Shape:
    """DeepSeek V4: one vector as key and value, kept for the last tokens and once per 4 or 128 older ones; hyper-connections.

    Layers that keep one entry per 4 tokens have an overlapping compressor and an indexer.
    """
    count, ratios = num_layers(c), c.items("compress_ratios", num_layers(c))
    if not ratios:
        raise c.error("compress_ratios", got="nothing", wanted=f"one for each of {count} layers")
    moe = experts(
        c,
        shared=shared_expert(c.count("moe_intermediate_size") * c.count("n_shared_experts")),
        correction_bias=True,
    )
    layers = [LayerGroup(count=1, attention=(_compressed(c, ratio),), mlp=(moe,)) for ratio in ratios[:count]]
    streams, hidden = c.count("hc_mult"), c.count("hidden_size")
    mixes = streams * (2 + streams)
    source = "tensor shapes of the published checkpoints (hc_attn_*, hc_ffn_*, hc_head_*)"
    return Shape(
        layers,
        other=[
            ("hyper-connections", count * 2 * (mixes * streams * hidden + mixes + 3), True, source),
            ("hyper-connection of the head", streams * streams * hidden + streams + 1, True, source),
        ],
    )


def _compressed(c: Config, ratio: int) -> CompressedAttention:
    if isinstance(ratio, bool) or ratio not in _RATIOS:
        raise c.error("compress_ratios", got=repr(ratio), wanted=f"one of {', '.join(map(str, _RATIOS))}")
    fine = ratio == _FINE_RATIO
    return CompressedAttention(
        kind="compressed",
        num_heads=c.count("num_attention_heads"),
        head_dim=c.count("head_dim"),
        window=c.count("sliding_window"),
        q_lora_rank=c.count("q_lora_rank"),
        output_groups=c.count("o_groups"),
        output_rank=c.count("o_lora_rank"),
        ratio=ratio,
        overlap=fine,
        indexer=_indexer(c) if fine else None,
    )


_FINE_RATIO = 4
_RATIOS = (0, _FINE_RATIO, 128)
