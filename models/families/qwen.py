"""Qwen: dense models with biases or query and key norms, and hybrids with linear attention."""

from __future__ import annotations

from ..config import Config, Shape, family
from ..spec import LayerGroup
from ._parts import attention, by_layer_types, experts, gated, gated_delta_net, num_layers, shared_expert


@family("qwen2", "qwen3")
def qwen(c: Config) -> Shape:
    """Qwen 2 (biases on queries, keys and values, implied by the class) and Qwen 3 (norms on queries and keys).

    ``sliding_window`` is ignored unless ``use_sliding_window`` is set, and then bites from layer ``max_window_layers`` on.
    """
    old = c.text("model_type", default="") == "qwen2"
    kind = {"qkv_bias": True} if old else {"qk_norm": True, "qkv_bias": c.flag("attention_bias")}
    full, count = attention(c, **kind), num_layers(c)
    windowed = c.flag("use_sliding_window") and c.optional("sliding_window") is not None
    local = attention(c, kind="sliding", window=c.count("sliding_window"), **kind) if windowed else full
    first = (c.optional("max_window_layers", zero=True) or 0) if windowed else count
    mlp = gated(c)
    return Shape([LayerGroup(count=1, attention=(full if i < first else local,), mlp=(mlp,)) for i in range(count)])


@family("qwen3_next")
def qwen3_next(c: Config) -> Shape:
    """Qwen3-Next: three gated delta nets to one full attention with an output gate; many experts, and a shared one with a gate."""
    full = attention(c, qk_norm=True, output_gate=True)
    mixers = by_layer_types(c, full, gated_delta_net(c), every=c.count("full_attention_interval", default=4))
    moe = experts(c, shared=shared_expert(c.optional("shared_expert_intermediate_size"), gate=True))
    return Shape([LayerGroup(count=1, attention=(mixer,), mlp=(moe,)) for mixer in mixers])
