"""Parts that many families share: attention and feed-forward descriptions from the usual keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ..spec import Attention, Convolution, LatentAttention, Mlp, Moe, Projection, Recurrent, SharedExpert, State

if TYPE_CHECKING:
    from ..config import Config


def num_layers(c: Config) -> int:
    """Number of layers."""
    return c.count("num_hidden_layers", "n_layer", "n_layers")


def head_dim(c: Config) -> int:
    """Width of a head: said outright, or hidden_size / num_heads where the family defines it so and the key is absent."""
    said = c.optional("head_dim", "attention_head_dim")
    if said is not None:
        return said
    hidden, heads = c.count("hidden_size", "n_embd", "d_model"), c.count("num_attention_heads", "n_head")
    if hidden % heads:
        raise c.error("head_dim", got="nothing", wanted=f"a head width: {hidden} does not divide into {heads} heads")
    return hidden // heads


def attention(c: Config, **changes: Any) -> Attention:
    """Full attention from the usual keys; ``changes`` override fields."""
    heads = c.count("num_attention_heads", "n_head")
    usual: dict[str, Any] = {
        "kind": "full",
        "num_heads": heads,
        "num_kv_heads": c.count("num_key_value_heads", "num_kv_heads", default=heads),
        "head_dim": changes.get("head_dim") or head_dim(c),
    }
    return Attention(**{**usual, **changes})


def by_layer_types(c: Config, full: Any, local: Any, *, every: int, full_first: bool = False) -> list[Any]:
    """Choose between two mixers layer by layer: by ``layer_types`` where the file lists them, else every ``every``-th layer is full."""
    count = num_layers(c)
    listed = c.items("layer_types", count)
    if listed:
        return [full if str(kind).startswith("full") else local for kind in listed[:count]]
    return [full if (i % every == 0 if full_first else (i + 1) % every == 0) else local for i in range(count)]


def gated(c: Config, *, bias: bool = False, width: int | None = None) -> Mlp:
    """A gated MLP of ``intermediate_size``."""
    return Mlp(kind="gated", intermediate_size=width or c.count("intermediate_size"), bias=bias)


def plain(width: int, *, bias: bool) -> Mlp:
    """An MLP of two matrices."""
    return Mlp(kind="plain", intermediate_size=width, bias=bias)


def shared_expert(width: int | None, *, gate: bool = False) -> SharedExpert | None:
    """An expert that every token uses, where there is one."""
    return SharedExpert(intermediate_size=width, gate=gate) if width else None


def experts(c: Config, **changes: Any) -> Moe:
    """Routed experts from the usual keys; ``changes`` override fields."""
    usual: dict[str, Any] = {
        "kind": "moe",
        "num_experts": c.count("n_routed_experts", "num_local_experts", "num_experts"),
        "experts_per_token": c.count("num_experts_per_tok", "num_experts_per_token", "experts_per_token"),
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


def mamba2(hidden: int, heads: int, width: int, groups: int, state: int, kernel: int, *, bias: bool) -> Recurrent:
    """Mamba-2: one input projection to gate, values, group keys and queries, and time steps; decay, skip and step biases per head."""
    inner, shared = heads * width, 2 * groups * state
    return Recurrent(
        kind="recurrent",
        variant="mamba2",
        projections=(
            Projection(name="in", inputs=hidden, outputs=2 * inner + shared + heads),
            Projection(name="out", inputs=inner, outputs=hidden),
        ),
        state=State(heads=heads, key_dim=width, value_dim=state),
        convolution=Convolution(channels=inner + shared, kernel=kernel, bias=bias),
        vectors=3 * heads + inner,
    )


def gated_delta_net(c: Config) -> Recurrent:
    """Gated delta net: keys and queries per key head, values and gate per value head, two scalars per value head and token."""
    hidden = c.count("hidden_size")
    key_heads, value_heads = c.count("linear_num_key_heads"), c.count("linear_num_value_heads")
    key_dim, value_dim = c.count("linear_key_head_dim"), c.count("linear_value_head_dim")
    keys, values = key_heads * key_dim, value_heads * value_dim
    return Recurrent(
        kind="recurrent",
        variant="gated delta net",
        projections=(
            Projection(name="in", inputs=hidden, outputs=2 * keys + 2 * values + 2 * value_heads),
            Projection(name="out", inputs=values, outputs=hidden),
        ),
        state=State(heads=value_heads, key_dim=key_dim, value_dim=value_dim),
        convolution=Convolution(channels=2 * keys + values, kernel=c.count("linear_conv_kernel_dim")),
        vectors=2 * value_heads + value_dim,
    )


Pattern = Literal["full", "sliding", "chunked"]
