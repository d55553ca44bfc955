"""Llama and the many that follow its shape."""

from __future__ import annotations

from dataclasses import replace

from ..config import Config, Shape, family
from ..spec import Attention, CrossAttention, LayerGroup, Mlp
from ._parts import attention, by_layer_types, experts, gated, head_dim, num_layers, shared_expert, windowed


@family("llama", "baichuan", "exaone", "granite", "internlm2", "minicpm", "seed_oss")
def llama(c: Config) -> Shape:
    """Llama 1 to 3 and what differs from it in names only: GQA, gated MLP, two norms; biases where the file says so."""
    bias = c.flag("attention_bias")
    mixer = attention(c, qkv_bias=bias, out_bias=c.flag("attention_out_bias", default=bias))
    layer = LayerGroup(count=1, attention=(mixer,), mlp=(gated(c, bias=c.flag("mlp_bias")),))
    return Shape([layer] * num_layers(c))


@family("smollm3", "ernie4_5")
def tied_llama(c: Config) -> Shape:
    """The same with a head that is tied unless the file says otherwise."""
    return replace(llama(c), tied_by_default=True)


@family("orion", "stablelm")
def llama_with_layer_norms(c: Config) -> Shape:
    """The same with layer norms, which have a bias."""
    bias = c.flag("use_qkv_bias")
    layer = LayerGroup(count=1, attention=(attention(c, qkv_bias=bias),), mlp=(gated(c),))
    return Shape([layer] * num_layers(c), norm_bias=True)


@family("mistral", "mixtral", "ministral3")
def mistral(c: Config) -> Shape:
    """Mistral and Mixtral: a window on all layers where one below the context is set (Mistral 7B v0.1), experts where they are listed."""
    full, sparse = attention(c), c.text("model_type", default="") == "mixtral" or c.optional("num_local_experts")
    local = windowed(c, full)
    mixers = by_layer_types(c, full, local, every=1) if c.items("layer_types") else [local] * num_layers(c)
    mlp = experts(c, intermediate_size=c.count("intermediate_size")) if sparse else gated(c)
    return Shape([LayerGroup(count=1, attention=(mixer,), mlp=(mlp,)) for mixer in mixers])


@family("llama4", "llama4_text")
def llama4(c: Config) -> Shape:
    """Llama 4: chunked attention on three of four layers, the fourth full; experts with a shared one of their size every n-th layer."""
    full, local = attention(c), attention(c, kind="chunked", window=c.count("attention_chunk_size"))
    width, step = c.count("intermediate_size"), c.count("interleave_moe_layer_step")
    moe = experts(c, intermediate_size=width, shared=shared_expert(width))
    dense = gated(c, width=c.count("intermediate_size_mlp"))
    mixers = by_layer_types(c, full, local, every=4)
    return Shape(
        [
            LayerGroup(count=1, attention=(mixer,), mlp=(moe if (i + 1) % step == 0 else dense,))
            for i, mixer in enumerate(mixers)
        ]
    )


@family("mllama", "mllama_text_model")
def mllama(c: Config) -> Shape:
    """Llama 3.2 Vision: some layers attend to the image tokens only (with norms on their queries and keys, and two scalar gates)."""
    own, crossing = attention(c), c.layers("cross_attention_layers", num_layers(c))
    cross = CrossAttention(
        kind="cross",
        num_heads=own.num_heads,
        num_kv_heads=own.num_kv_heads,
        head_dim=head_dim(c),
        memory_tokens=_IMAGE_TOKENS,
        qk_norm=True,
    )
    mlp = gated(c)
    layers = [
        LayerGroup(count=1, attention=(cross if i in crossing else own,), mlp=(mlp,)) for i in range(num_layers(c))
    ]
    source = "transformers, modeling_mllama.py: two scalars a layer"
    return Shape(layers, other=[("cross-attention gates", 2 * len(crossing), False, source)])


_IMAGE_TOKENS = (
    4 * 1601
)  # four tiles of (560 / 14)^2 patches and a class token each (max_num_tiles, image_size, patch_size)


@family("nemotron-nas")
def nemotron_nas(c: Config) -> Shape:
    """Llama-Nemotron found by architecture search: each layer has its own group size and width, or lacks a part."""
    layers = []
    for i in range(num_layers(c)):
        block = c.inside("block_configs", i)
        mixer, mlp = block.mapping("attention"), block.mapping("ffn")
        if mixer.get("replace_with_linear") or mlp.get("replace_with_linear"):
            raise c.error("block_configs", got="replace_with_linear", wanted="attention, an MLP, or no_op")
        own = () if mixer.get("no_op") else (_grouped_heads(c, mixer.get("n_heads_in_group")),)
        ffn = () if mlp.get("no_op") else (_scaled_mlp(c, mlp.get("ffn_mult")),)
        layers.append(LayerGroup(count=1, attention=own, mlp=ffn, norms=len(own) + len(ffn)))
    return Shape(layers)


def _grouped_heads(c: Config, group: object) -> Attention:
    if not isinstance(group, int) or group < 1:
        raise c.error("block_configs", got=f"n_heads_in_group {group!r}", wanted="a whole number")
    return attention(c, num_kv_heads=c.count("num_attention_heads") // group)


def _scaled_mlp(c: Config, factor: object) -> Mlp:
    """Width: two thirds of factor x hidden_size x 2, rounded up to a multiple of 256 (the repository's own rule)."""
    if not isinstance(factor, (int, float)) or factor <= 0:
        raise c.error("block_configs", got=f"ffn_mult {factor!r}", wanted="a number")
    width = int(2 * factor * c.count("hidden_size") / 3)
    return gated(c, width=-(-width // 256) * 256)
