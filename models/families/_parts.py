"""Parts that many families share: attention and feed-forward descriptions from the usual keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..config import MOST_LAYERS, Config
from ..spec import (
    Attention,
    Convolution,
    LatentAttention,
    LayerGroup,
    Mlp,
    Moe,
    Projection,
    Recurrent,
    SharedExpert,
    State,
)


def num_layers(c: Config) -> int:
    """Number of layers."""
    return c.count("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", largest=MOST_LAYERS)


def head_dim(c: Config) -> int:
    """Width of a head: said outright, or hidden_size / num_heads where the family defines it so and the key is absent."""
    said = c.optional("head_dim", "attention_head_dim", "kv_channels", "d_kv")
    if said is not None:
        return said
    hidden, heads = (
        c.count("hidden_size", "n_embd", "d_model"),
        c.count("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"),
    )
    if hidden % heads:
        raise c.error("head_dim", got="nothing", wanted=f"a head width: {hidden} does not divide into {heads} heads")
    return hidden // heads


def attention(c: Config, **changes: Any) -> Attention:
    """Full attention from the usual keys; ``changes`` override fields."""
    heads = c.count("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads")
    usual: dict[str, Any] = {
        "kind": "full",
        "num_heads": heads,
        "num_kv_heads": c.count("num_key_value_heads", "num_kv_heads", default=heads),
        "head_dim": changes.get("head_dim") or head_dim(c),
    }
    return Attention(**{**usual, **changes})


def windowed(c: Config, mixer: Attention) -> Attention:
    """Give a mixer the window of ``sliding_window``; one that is not below the context never bites and is left out."""
    window, context = c.optional("sliding_window"), c.optional("max_position_embeddings")
    bites = window is not None and (context is None or window < context)
    return replace(mixer, kind="sliding", window=window) if bites else mixer


_FULL = {"full_attention", "attention"}
_LOCAL = {
    "sliding": {"sliding_attention"},
    "chunked": {"chunked_attention"},
    "recurrent": {"linear_attention", "mamba"},
    "full": {"sliding_attention"},  # a window that is switched off
}


def by_layer_types(c: Config, full: Any, local: Any, *, every: int, full_first: bool = False) -> list[Any]:
    """Choose between two mixers layer by layer: by ``layer_types`` where the file lists them, else every ``every``-th layer is full."""
    count = num_layers(c)
    listed = layer_types(c, _FULL | _LOCAL[local.kind])
    if listed:
        return [full if kind in _FULL else local for kind in listed]
    return [full if (i % every == 0 if full_first else (i + 1) % every == 0) else local for i in range(count)]


def layer_types(c: Config, known: set[str]) -> list[str]:
    """Read ``layer_types``: one known kind for each layer, and after them perhaps those of draft layers; empty where it is absent.

    Raises
    ------
    SpecError : for kinds that the family does not have, and for a list of another length
    """
    count, drafts = num_layers(c), c.optional("num_nextn_predict_layers", "mtp_num_hidden_layers", zero=True) or 0
    listed = c.items("layer_types", count)
    for kind in listed:
        if kind not in known:
            raise c.error("layer_types", got=repr(kind), wanted=f"{' or '.join(sorted(known))}")
    if len(listed) > count + drafts:
        raise c.error("layer_types", got=f"{len(listed)} entries", wanted=f"one for each of {count} layers")
    return listed[:count]


def gated(c: Config, *, bias: bool = False, width: int | None = None) -> Mlp:
    """A gated MLP of ``intermediate_size``."""
    return Mlp(kind="gated", intermediate_size=width or c.count("intermediate_size"), bias=bias)


def plain(width: int, *, bias: bool) -> Mlp:
    """An MLP of two matrices."""
    return Mlp(kind="plain", intermediate_size=width, bias=bias)


def dense_then_sparse(c: Config, mixers: list[Any], dense: Mlp, moe: Moe, **layer: Any) -> list[LayerGroup]:
    """Layers of which the first ones are dense, by the spelling that the file has.

    ``mlp_layer_types`` lists them, ``moe_layer_freq`` is a list of ones or a step, ``first_k_dense_replace`` counts the dense ones.
    """
    count = len(mixers)
    kinds, listed = c.items("mlp_layer_types", count), c.data.get("moe_layer_freq")
    first = c.optional("first_k_dense_replace", zero=True) or 0
    if kinds:
        sparse = [kind == "sparse" for kind in kinds]
    elif isinstance(listed, list):
        sparse = [bool(flag) for flag in c.items("moe_layer_freq", count)]
    else:
        step = c.count("moe_layer_freq", default=1)
        sparse = [i >= first and i % step == 0 for i in range(count)]
    return [
        LayerGroup(count=1, attention=(mixer,), mlp=(moe if is_sparse else dense,), **layer)
        for mixer, is_sparse in zip(mixers, sparse, strict=False)
    ]


def uniform(c: Config, key: str) -> int:
    """Read a whole number that the file may give once, or once per layer if all are the same."""
    value = c.data.get(key)
    if isinstance(value, list):
        if not value or len(set(map(str, value))) > 1:
            raise c.error(key, got="different values", wanted="the same for all layers")
        return Config(c.document, {key: value[0]}, c.path).count(key)
    return c.count(key)


def shared_expert(width: int | None, *, gate: bool = False) -> SharedExpert | None:
    """An expert that every token uses, where there is one."""
    return SharedExpert(intermediate_size=width, gate=gate) if width else None


_EXPERTS_PER_TOKEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "moe_k",
    "moe_top_k",
    "top_k_experts",
)


def experts(c: Config, **changes: Any) -> Moe:
    """Routed experts from the usual keys; ``changes`` override fields."""
    usual: dict[str, Any] = {
        "kind": "moe",
        "num_experts": c.agreed("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
        "experts_per_token": changes.get("experts_per_token") or c.agreed(*_EXPERTS_PER_TOKEN),
        "intermediate_size": changes.get("intermediate_size") or c.count("moe_intermediate_size", "intermediate_size"),
    }
    return Moe(**{**usual, **changes})


def latent(c: Config, **changes: Any) -> LatentAttention:
    """Multi-head latent attention; ``q_lora_rank`` null means a plain query projection."""
    usual: dict[str, Any] = {
        "kind": "mla",
        "num_heads": c.count("num_attention_heads"),
        "q_lora_rank": c.optional("q_lora_rank"),
        "kv_lora_rank": c.count("kv_lora_rank"),
        "qk_nope_head_dim": c.count("qk_nope_head_dim"),
        "qk_rope_head_dim": c.count("qk_rope_head_dim"),
        "v_head_dim": c.count("v_head_dim"),
    }
    return LatentAttention(**{**usual, **changes})


_TYPES_OF_STATES = {"float32": 32, "bfloat16": 16, "float16": 16}


def state_bits(c: Config, key: str) -> int | None:
    """Bits of an element of a recurrent state, from the name of a type; None where the configuration names none.

    Raises
    ------
    SpecError : for a type that is not known
    """
    if c.data.get(key) is None:
        return None
    said = c.text(key, default="")
    if said not in _TYPES_OF_STATES:
        raise c.error(key, got=repr(said), wanted=f"one of {', '.join(_TYPES_OF_STATES)}")
    return _TYPES_OF_STATES[said]


def mamba2(
    hidden: int, heads: int, width: int, groups: int, state: int, kernel: int, *, bias: bool, bits: int | None = None
) -> Recurrent:
    """Mamba-2: one input projection to gate, values, group keys and queries, and time steps; decay, skip and step biases per head."""
    inner, shared = heads * width, 2 * groups * state
    return Recurrent(
        kind="recurrent",
        variant="mamba2",
        projections=(
            Projection(name="in", inputs=hidden, outputs=2 * inner + shared + heads),
            Projection(name="out", inputs=inner, outputs=hidden),
        ),
        state=State(heads=heads, key_dim=width, value_dim=state, bits=bits),
        convolution=Convolution(channels=inner + shared, kernel=kernel, bias=bias),
        vectors=3 * heads + inner,
    )


def mamba1(hidden: int, inner: int, state: int, kernel: int, rank: int, *, norms: bool) -> Recurrent:
    """Mamba-1: input and gate, then time step, input and output vectors from the convolved input; a decay per state element.

    ``norms`` are the ones that Jamba puts on those three.
    """
    return Recurrent(
        kind="recurrent",
        variant="mamba1",
        projections=(
            Projection(name="in", inputs=hidden, outputs=2 * inner),
            Projection(name="x", inputs=inner, outputs=rank + 2 * state),
            Projection(name="dt", inputs=rank, outputs=inner),
            Projection(name="out", inputs=inner, outputs=hidden),
        ),
        state=State(heads=inner, key_dim=1, value_dim=state),
        convolution=Convolution(channels=inner, kernel=kernel, bias=True),
        vectors=inner * state + 2 * inner + (rank + 2 * state if norms else 0),
    )


def delta_attention(hidden: int, heads: int, width: int, kernel: int, *, full_rank_gate: bool) -> Recurrent:
    """Kimi delta attention (KDA): queries, keys and values each convolved, a low-rank decay, an output gate (low-rank or full)."""
    inner = heads * width
    gate = (("g", hidden, inner),) if full_rank_gate else (("g_a", hidden, width), ("g_b", width, inner))
    shapes = (("qkv", hidden, 3 * inner), ("f_a", hidden, width), ("f_b", width, inner), ("beta", hidden, heads), *gate)
    return Recurrent(
        kind="recurrent",
        variant="kimi delta attention",
        projections=tuple(
            Projection(name=name, inputs=inputs, outputs=outputs)
            for name, inputs, outputs in (*shapes, ("out", inner, hidden))
        ),
        state=State(heads=heads, key_dim=width, value_dim=width),
        convolution=Convolution(channels=3 * inner, kernel=kernel),
        vectors=heads + inner + width,
    )


def lightning(hidden: int, heads: int, width: int) -> Recurrent:
    """Lightning attention: queries, keys, values and an output gate; a fixed decay; a norm over the full width."""
    inner = heads * width
    return Recurrent(
        kind="recurrent",
        variant="lightning attention",
        projections=(
            Projection(name="qkv", inputs=hidden, outputs=3 * inner),
            Projection(name="gate", inputs=hidden, outputs=inner),
            Projection(name="out", inputs=inner, outputs=hidden),
        ),
        state=State(heads=heads, key_dim=width, value_dim=width),
        vectors=inner,
    )


def gated_delta_net(
    hidden: int,
    key_heads: int,
    key_dim: int,
    value_heads: int,
    value_dim: int,
    kernel: int,
    *,
    bits: int | None = None,
) -> Recurrent:
    """Gated delta net: keys and queries per key head, values and gate per value head, two scalars per value head and token."""
    keys, values = key_heads * key_dim, value_heads * value_dim
    return Recurrent(
        kind="recurrent",
        variant="gated delta net",
        projections=(
            Projection(name="in", inputs=hidden, outputs=2 * keys + 2 * values + 2 * value_heads),
            Projection(name="out", inputs=values, outputs=hidden),
        ),
        state=State(heads=value_heads, key_dim=key_dim, value_dim=value_dim, bits=bits),
        convolution=Convolution(channels=2 * keys + values, kernel=kernel),
        vectors=2 * value_heads + value_dim,
    )
