"""Cohere, EXAONE 4, OLMo: one norm for parallel branches, norms after each part, windows in a pattern that the file may not list."""

from __future__ import annotations

from dataclasses import replace

from ..config import Config, Shape, family
from ..spec import LayerGroup
from ._parts import attention, by_layer_types, gated, num_layers


@family("cohere")
def cohere(c: Config) -> Shape:
    """Command R: attention and MLP in parallel behind one norm, tied head; the largest has norms on queries and keys."""
    mixer = attention(c, qk_norm="full" if c.flag("use_qk_norm") else False, qkv_bias=c.flag("attention_bias"))
    return Shape(
        [LayerGroup(count=1, attention=(mixer,), mlp=(gated(c),), norms=1)] * num_layers(c), tied_by_default=True
    )


@family("cohere2")
def cohere2(c: Config) -> Shape:
    """Command R7B and A: three sliding layers to one full."""
    full = attention(c)
    local = replace(full, kind="sliding", window=c.count("sliding_window"))
    mixers = by_layer_types(c, full, local, every=c.count("sliding_window_pattern", default=4))
    return Shape(
        [LayerGroup(count=1, attention=(mixer,), mlp=(gated(c),), norms=1) for mixer in mixers], tied_by_default=True
    )


@family("exaone4")
def exaone4(c: Config) -> Shape:
    """EXAONE 4: three sliding layers to one full ("LLLG"), norms on queries and keys, norms after each part."""
    full = attention(c, qk_norm=True)
    window = c.optional("sliding_window")
    local = replace(full, kind="sliding", window=window) if window else full
    mixers = by_layer_types(c, full, local, every=4)
    return Shape([LayerGroup(count=1, attention=(mixer,), mlp=(gated(c),)) for mixer in mixers])


@family("olmo")
def olmo_1(c: Config) -> Shape:
    """The first OLMo: the shape of Llama with norms that have no weights."""
    layer = LayerGroup(count=1, attention=(attention(c, qkv_bias=c.flag("attention_bias")),), mlp=(gated(c),), norms=0)
    return Shape([layer] * num_layers(c), final_norms=0)


@family("olmo2", "olmo3")
def olmo(c: Config) -> Shape:
    """OLMo 2 and 3: norms on queries and keys over the full width, norms after each part; OLMo 3 has three sliding layers to one full."""
    full = attention(c, qk_norm="full", qkv_bias=c.flag("attention_bias"))
    window = c.optional("sliding_window")
    local = replace(full, kind="sliding", window=window) if window else full
    mixers = by_layer_types(c, full, local, every=4)
    return Shape([LayerGroup(count=1, attention=(mixer,), mlp=(gated(c),)) for mixer in mixers])
