"""Phi 3 and 4, and Phi-3-small."""

from __future__ import annotations

from ..config import Config, Shape, family
from ..spec import LayerGroup
from ._parts import attention, gated, num_layers, windowed


@family("phi3")
def phi3(c: Config) -> Shape:
    """Phi 3 and 4: the shape of Llama; a window where it is below the context (Phi-3-mini-4k)."""
    mixer = windowed(c, attention(c, qkv_bias=c.flag("attention_bias")))
    return Shape([LayerGroup(count=1, attention=(mixer,), mlp=(gated(c, bias=c.flag("mlp_bias")),))] * num_layers(c))


@family("phi3small")
def phi3_small(c: Config) -> Shape:
    """Phi-3-small: layer norms, biases everywhere, tied head; its block-sparse layers still cache all tokens."""
    mlp = gated(c, width=c.count("ff_intermediate_size"), bias=True)
    layer = LayerGroup(count=1, attention=(attention(c, qkv_bias=True, out_bias=True),), mlp=(mlp,))
    return Shape([layer] * num_layers(c), tied_by_default=True, norm_bias=True)
