"""DeepSeek: multi-head latent attention, sparse attention with an indexer, compressed entries; many routed experts."""

from __future__ import annotations

from ..config import Config, Shape, family
from ..spec import CompressedAttention, Indexer, LayerGroup
from ._parts import experts, gated, latent, num_layers, shared_expert


@family("deepseek_v3", "deepseek_v32")
def deepseek(c: Config) -> Shape:
    """DeepSeek V3 and V3.2: the first layers dense, then experts with one shared one; V3.2 adds an indexer to each layer."""
    mixer = latent(c, indexer=_indexer(c))
    width = c.count("moe_intermediate_size")
    shared = shared_expert(width * (c.optional("n_shared_experts", zero=True) or 0))
    moe = experts(c, shared=shared, correction_bias=c.text("scoring_func", default="") == "sigmoid")
    dense = c.optional("first_k_dense_replace", zero=True) or 0
    every = c.count("moe_layer_freq", default=1)
    return Shape(
        [
            LayerGroup(count=1, attention=(mixer,), mlp=(moe if i >= dense and i % every == 0 else gated(c),))
            for i in range(num_layers(c))
        ]
    )


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


def _compressed(c: Config, ratio: object) -> CompressedAttention:
    if not isinstance(ratio, int) or ratio < 0:
        raise c.error("compress_ratios", got=repr(ratio), wanted="whole numbers")
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
