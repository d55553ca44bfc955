"""Nemotron-H: Mamba-2, attention, MLP and experts, each a layer of its own."""

from __future__ import annotations

from ..config import Config, Shape, family
from ..spec import LayerGroup, Moe, Recurrent
from ._parts import attention, experts, mamba2, num_layers, plain, shared_expert, state_bits


@family("nemotron_h")
def nemotron_h(c: Config) -> Shape:
    """Nemotron-H and Nemotron 3: ``hybrid_override_pattern`` has a letter a layer (M Mamba-2, * attention, - MLP, E experts).

    MLPs and experts have two matrices (squared ReLU); in the larger models experts work in a latent width.
    """
    pattern = _pattern(c)
    kinds = {
        "M": lambda: LayerGroup(count=1, attention=(_mamba(c),), norms=1),
        "*": lambda: LayerGroup(count=1, attention=(attention(c),), norms=1),
        "-": lambda: LayerGroup(count=1, mlp=(plain(c.count("intermediate_size"), bias=c.flag("mlp_bias")),), norms=1),
        "E": lambda: LayerGroup(count=1, mlp=(_experts(c),), norms=1),
    }
    made = {letter: kinds[letter]() for letter in set(pattern)}
    return Shape([made[letter] for letter in pattern])


_LETTERS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}


def _pattern(c: Config) -> str:
    """One letter a layer, from the pattern or from the list of names that newer files have instead."""
    names = c.items("layers_block_type")
    if names:
        pattern = "".join(_LETTERS.get(str(name), "?") for name in names)
        key, count = "layers_block_type", c.count("num_hidden_layers", default=len(names))
    else:
        pattern, key, count = c.text("hybrid_override_pattern", default=""), "hybrid_override_pattern", num_layers(c)
    if len(pattern) != count or set(pattern) - set("M*-E"):
        raise c.error(key, got=pattern or "nothing", wanted=f"{count} layers of Mamba, attention, MLP or experts")
    return pattern


def _mamba(c: Config) -> Recurrent:
    return mamba2(
        c.count("hidden_size"),
        c.count("mamba_num_heads"),
        c.count("mamba_head_dim"),
        c.count("n_groups"),
        c.count("ssm_state_size"),
        c.count("conv_kernel"),
        bias=c.flag("use_conv_bias", default=True),
        bits=state_bits(c, "mamba_ssm_cache_dtype"),
    )


def _experts(c: Config) -> Moe:
    return experts(
        c,
        gated=False,
        latent_size=c.optional("moe_latent_size"),
        shared=shared_expert(c.optional("moe_shared_expert_intermediate_size")),
        correction_bias=True,
    )


@family("nemotron")
def nemotron(c: Config) -> Shape:
    """Nemotron 4 and Minitron: an MLP of two matrices with a squared ReLU, norms with a bias."""
    bias, mlp_bias = c.flag("attention_bias"), c.flag("mlp_bias")
    mlp = plain(c.count("intermediate_size"), bias=mlp_bias)
    layer = LayerGroup(count=1, attention=(attention(c, qkv_bias=bias, out_bias=bias),), mlp=(mlp,))
    return Shape([layer] * num_layers(c), norm_bias=True)
