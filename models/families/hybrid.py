"""Recurrent models and hybrids with attention: Jamba, Granite 4, Falcon-H1, Kimi Linear, LFM2, MiniMax M1, Mamba-2 and RWKV-5 alone."""

from __future__ import annotations

from ..config import MOST_LAYERS, Config, Shape, family
from ..spec import Convolution, LayerGroup, Mlp, Projection, Recurrent, State
from ._parts import (
    attention,
    delta_attention,
    dense_then_sparse,
    experts,
    gated,
    latent,
    layer_types,
    lightning,
    mamba1,
    mamba2,
    num_layers,
    plain,
    shared_expert,
)


@family("jamba")
def jamba(c: Config) -> Shape:
    """Jamba: one attention layer in a period, else Mamba-1 with norms; experts on every second layer."""
    hidden = c.count("hidden_size")
    recurrent = mamba1(
        hidden,
        c.count("mamba_expand") * hidden,
        c.count("mamba_d_state"),
        c.count("mamba_d_conv"),
        c.count("mamba_dt_rank"),
        norms=True,
    )
    own, dense = attention(c), gated(c)
    moe = experts(c, intermediate_size=c.count("intermediate_size"))
    every, offset = c.count("attn_layer_period"), c.optional("attn_layer_offset", zero=True) or 0
    sparse, first = c.count("expert_layer_period"), c.optional("expert_layer_offset", zero=True) or 0
    for key, position, period in (("attn_layer_offset", offset, every), ("expert_layer_offset", first, sparse)):
        if position >= period:
            raise c.error(key, got=position, wanted=f"less than the period, {period}")
    return Shape(
        [
            LayerGroup(
                count=1,
                attention=(own if i % every == offset else recurrent,),
                mlp=(moe if i % sparse == first else dense,),
            )
            for i in range(num_layers(c))
        ]
    )


@family("mamba", "falcon_mamba")
def mamba(c: Config) -> Shape:
    """Mamba 1 alone, and Falcon-Mamba, whose inner norms have no weights."""
    hidden = c.count("hidden_size", "d_model")
    rank = -(-hidden // 16) if c.data.get("time_step_rank") == "auto" else c.count("time_step_rank")
    inner = c.optional("intermediate_size") or c.count("expand", default=2) * hidden
    mixer = mamba1(hidden, inner, c.count("state_size"), c.count("conv_kernel"), rank, norms=False)
    tied = c.text("model_type", default="") == "mamba"
    return Shape([LayerGroup(count=1, attention=(mixer,), norms=1)] * num_layers(c), tied_by_default=tied)


def _mamba2(c: Config) -> Recurrent:
    return mamba2(
        c.count("hidden_size"),
        c.count("mamba_n_heads"),
        c.count("mamba_d_head"),
        c.count("mamba_n_groups"),
        c.count("mamba_d_state"),
        c.count("mamba_d_conv"),
        bias=c.flag("mamba_conv_bias", default=True),
    )


@family("granitemoehybrid")
def granite4(c: Config) -> Shape:
    """Granite 4: attention where ``layer_types`` says so, else Mamba-2; experts with a shared one, or only the shared one as an MLP."""
    recurrent = _mamba2(c)
    count, width = num_layers(c), c.count("shared_intermediate_size")
    listed = layer_types(c, {"attention", "mamba"}) or _counted(c, "layer_types_counts")
    sparse = c.optional("num_local_experts", zero=True)
    part = (
        experts(c, intermediate_size=c.count("intermediate_size"), shared=shared_expert(width))
        if sparse
        else gated(c, width=width)
    )
    own = attention(c)
    layers = [
        LayerGroup(count=1, attention=(own if kind == "attention" else recurrent,), mlp=(part,))
        for kind in listed[:count]
    ]
    return Shape(layers, tied_by_default=True)


def _counted(c: Config, key: str) -> list[str]:
    """Kinds of layers, where a file gives only how many there are of each."""
    counts = Config(c.document, c.mapping(key), (*c.path, key))
    unknown = set(counts.data) - {"attention", "mamba"}
    if unknown:
        raise c.error(key, got=f"{min(map(str, unknown))!r}", wanted="attention or mamba")
    return [kind for kind in counts.data for _ in range(counts.count(kind, largest=MOST_LAYERS))]


@family("falcon_h1")
def falcon_h1(c: Config) -> Shape:
    """Falcon-H1: every layer has attention and Mamba-2 side by side."""
    recurrent = _mamba2(c)
    layer = LayerGroup(count=1, attention=(attention(c), recurrent), mlp=(gated(c),))
    return Shape([layer] * num_layers(c))


@family("kimi_linear")
def kimi_linear(c: Config) -> Shape:
    """Kimi Linear and K3: delta attention, and latent attention on the (1-based) ``full_attn_layers``; experts, in K3 in a latent width."""
    settings = Config(c.document, c.mapping("linear_attn_config"), (*c.path, "linear_attn_config"))
    count = num_layers(c)
    recurrent = delta_attention(
        c.count("hidden_size"),
        settings.count("num_heads"),
        settings.count("head_dim"),
        settings.count("short_conv_kernel_size"),
        full_rank_gate=settings.flag("use_full_rank_gate"),
    )
    full_layers = settings.layers("full_attn_layers", count, first=1)
    if not full_layers:
        full_layers = set(range(count - settings.count("full_attn_layers_count", largest=count), count))
    own = latent(c, output_gate=c.flag("mla_use_output_gate"))
    mixers = [own if i in full_layers else recurrent for i in range(count)]
    shared = shared_expert(c.count("moe_intermediate_size") * (c.optional("num_shared_experts", zero=True) or 0))
    moe = experts(
        c,
        shared=shared,
        latent_size=c.optional("routed_expert_hidden_size"),
        latent_norm=c.flag("latent_moe_use_norm"),
        correction_bias=True,
    )
    return Shape(dense_then_sparse(c, mixers, gated(c), moe))


@family("lfm2")
def lfm2(c: Config) -> Shape:
    """LFM2 and LFM2.5: short convolutions between gates, and attention where ``layer_types`` or the older ``full_attn_idxs`` says so.

    Source of all defaults: transformers, models/lfm2/configuration_lfm2.py.
    """
    own, convolution = attention(c, num_kv_heads=c.count("num_key_value_heads"), qk_norm=True), _short_convolution(c)
    count, mlp = num_layers(c), Mlp(kind="gated", intermediate_size=_adjusted_width(c))
    listed = layer_types(c, {"full_attention", "conv"})
    full_layers = c.layers("full_attn_idxs", count)
    if not listed and not full_layers:
        raise c.error("layer_types", got="nothing", wanted=f"one for each of {count} layers")
    full = [kind == "full_attention" for kind in listed] or [i in full_layers for i in range(count)]
    tied = c.flag("tie_embedding", "tie_word_embeddings", default=True)
    if tied != c.flag("tie_word_embeddings", "tie_embedding", default=True):
        raise c.error("tie_embedding", got="the opposite of tie_word_embeddings", wanted="the same under both names")
    layers = [LayerGroup(count=1, attention=(own if is_full else convolution,), mlp=(mlp,)) for is_full in full]
    return Shape(layers, tied_by_default=tied)


def _short_convolution(c: Config) -> Recurrent:
    """Two gates and the input of a depthwise convolution from one projection; only the convolution's last inputs are kept."""
    hidden, bias = c.count("hidden_size"), c.flag("conv_bias")
    return Recurrent(
        kind="recurrent",
        variant="short convolution",
        projections=(
            Projection(name="in", inputs=hidden, outputs=3 * hidden),
            Projection(name="out", inputs=hidden, outputs=hidden),
        ),
        convolution=Convolution(channels=hidden, kernel=c.count("conv_L_cache"), bias=bias),
        vectors=4 * hidden if bias else 0,  # the biases of both projections
    )


def _adjusted_width(c: Config) -> int:
    """Width of the MLP: two thirds of what is said, times a factor, rounded up to a multiple, unless that is switched off."""
    width = c.count("block_ff_dim", "intermediate_size")
    if not c.flag("block_auto_adjust_ff_dim", default=True):
        return width
    factor, multiple = c.number("block_ffn_dim_multiplier", default=1.0), c.count("block_multiple_of", default=256)
    return -(-int(factor * (2 * width // 3)) // multiple) * multiple


@family("mamba2")
def pure_mamba2(c: Config) -> Shape:
    """Mamba-2 alone: one recurrent part and one norm a layer."""
    recurrent = mamba2(
        c.count("hidden_size"),
        c.count("num_heads"),
        c.count("head_dim"),
        c.count("n_groups"),
        c.count("state_size"),
        c.count("conv_kernel"),
        bias=c.flag("use_conv_bias", default=True),
    )
    return Shape([LayerGroup(count=1, attention=(recurrent,), norms=1)] * num_layers(c))


@family("minimax_m1")
def minimax_m1(c: Config) -> Shape:
    """MiniMax M1 and Text-01: seven lightning layers to one with softmax attention; experts everywhere."""
    recurrent = lightning(c.count("hidden_size"), c.count("num_attention_heads"), c.count("head_dim"))
    own = attention(c)
    moe = experts(c, intermediate_size=c.count("intermediate_size"))
    kinds = c.items("attn_type_list", num_layers(c))
    return Shape([LayerGroup(count=1, attention=(own if kind == 1 else recurrent,), mlp=(moe,)) for kind in kinds])


@family("rwkv5")
def rwkv5(c: Config) -> Shape:
    """RWKV-5: a matrix per head as state, and the last input of the time mix and of the channel mix (two shift vectors).

    The channel mix is an MLP of two matrices with a square gate of its own.
    """
    hidden, size = c.count("hidden_size"), c.count("head_size", default=64)
    inner = c.count("attention_hidden_size", default=hidden)
    shift = Convolution(channels=2 * hidden, kernel=2)
    mixing = 6 * hidden + 2 * inner + 2 * inner  # six token mixes, decay and bonus per channel, the norm of the heads
    recurrent = Recurrent(
        kind="recurrent",
        variant="rwkv5",
        projections=(
            Projection(name="rkvg", inputs=hidden, outputs=4 * inner),
            Projection(name="out", inputs=inner, outputs=hidden),
            Projection(name="channel_gate", inputs=hidden, outputs=hidden),
        ),
        state=State(heads=inner // size, key_dim=size, value_dim=size),
        convolution=shift,
        vectors=mixing - shift.channels * shift.kernel,  # the mixes stand in for the taps of the shift
    )
    width = c.count("intermediate_size", default=int(hidden * 3.5) // 32 * 32)
    layer = LayerGroup(count=1, attention=(recurrent,), mlp=(plain(width, bias=False),))
    source = "RWKV-5 repository code: a norm before the first layer"
    return Shape(
        [layer] * num_layers(c), norm_bias=True, other=[("norm before the first layer", 2 * hidden, True, source)]
    )
