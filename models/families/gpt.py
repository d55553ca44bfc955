"""GPT-2, Falcon, gpt-oss: early decoders with two-matrix MLPs, and OpenAI's open mixture of experts."""

from __future__ import annotations

from dataclasses import replace

from ..config import Config, Shape, family
from ..spec import LayerGroup
from ._parts import attention, by_layer_types, experts, num_layers, plain, windowed


@family("gpt2")
def gpt2(c: Config) -> Shape:
    """GPT-2: MHA, biases everywhere, learned positions, tied head."""
    hidden = c.count("hidden_size", "n_embd")
    mlp = plain(c.count("n_inner", default=4 * hidden), bias=True)
    layer = LayerGroup(count=1, attention=(attention(c, qkv_bias=True, out_bias=True),), mlp=(mlp,))
    positions = c.count("n_positions", "n_ctx")
    return Shape([layer] * num_layers(c), tied_by_default=True, learned_positions=positions, norm_bias=True)


@family("gpt_bigcode")
def gpt_bigcode(c: Config) -> Shape:
    """GPTBigCode (SantaCoder, StarCoder 1): GPT-2 with a single KV head."""
    kv_heads = 1 if c.flag("multi_query", default=True) else c.count("n_head")
    mixer = attention(c, num_kv_heads=kv_heads, qkv_bias=True, out_bias=True)
    mlp = plain(c.count("n_inner", default=4 * c.count("n_embd")), bias=True)
    layer = LayerGroup(count=1, attention=(mixer,), mlp=(mlp,))
    return Shape(
        [layer] * num_layers(c), tied_by_default=True, learned_positions=c.count("n_positions"), norm_bias=True
    )


@family("gpt_neox")
def gpt_neox(c: Config) -> Shape:
    """GPT-NeoX and Pythia: attention and MLP in parallel, each with its own norm; biases everywhere."""
    bias = c.flag("attention_bias", default=True)
    layer = LayerGroup(
        count=1,
        attention=(attention(c, qkv_bias=bias, out_bias=bias),),
        mlp=(plain(c.count("intermediate_size"), bias=True),),
    )
    return Shape([layer] * num_layers(c), norm_bias=True)


@family("gptj", "phi-msft", "phi")
def gptj(c: Config) -> Shape:
    """GPT-J, and Phi 1.5 and 2: attention and MLP share one norm; the head has a bias. Phi has biases in attention too."""
    bias = c.text("model_type", default="") != "gptj"
    mlp = plain(c.optional("n_inner", "intermediate_size") or 4 * c.count("n_embd", "hidden_size"), bias=True)
    layer = LayerGroup(count=1, attention=(attention(c, qkv_bias=bias, out_bias=bias),), mlp=(mlp,), norms=1)
    return Shape([layer] * num_layers(c), norm_bias=True, head_bias=True)


@family("gpt_neo")
def gpt_neo(c: Config) -> Shape:
    """GPT-Neo: full and sliding layers in turn (``attention_types``: patterns and how often each repeats), a bias on the output only."""
    full = attention(c, out_bias=True)
    local = attention(c, kind="sliding", window=c.count("window_size"), out_bias=True)
    mlp = plain(c.count("intermediate_size", default=4 * c.count("hidden_size")), bias=True)
    kinds = [kind for pattern, times in _attention_types(c) for kind in pattern * times]
    layers = [LayerGroup(count=1, attention=(full if kind == "global" else local,), mlp=(mlp,)) for kind in kinds]
    positions = c.count("max_position_embeddings")
    return Shape(layers, tied_by_default=True, learned_positions=positions, norm_bias=True)


def _attention_types(c: Config) -> list[tuple[list[str], int]]:
    """Read ``[[["global", "local"], 12]]``, which must describe each layer once."""
    listed, count = c.data.get("attention_types"), num_layers(c)
    match listed:
        case [*entries] if all(
            isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list) and isinstance(entry[1], int)
            for entry in entries
        ):
            if sum(len(pattern) * times for pattern, times in entries) == count:
                return [(list(map(str, pattern)), times) for pattern, times in entries]
    raise c.error("attention_types", got=repr(listed), wanted=f"patterns with their repeats, for {count} layers")


@family("bloom")
def bloom(c: Config) -> Shape:
    """BLOOM: MHA with ALiBi, biases everywhere, a norm behind the input table, tied head."""
    mlp = plain(4 * c.count("hidden_size", "n_embed"), bias=True)
    layer = LayerGroup(count=1, attention=(attention(c, qkv_bias=True, out_bias=True),), mlp=(mlp,))
    return Shape([layer] * num_layers(c), tied_by_default=True, norm_bias=True, final_norms=2)


@family("mpt")
def mpt(c: Config) -> Shape:
    """MPT: no biases, tied head; ALiBi, or a learned position table."""
    settings = Config(c.document, c.mapping("attn_config"), (*c.path, "attn_config"))
    bias = not c.flag("no_bias", default=True)
    mixer = attention(c, num_kv_heads=settings.optional("kv_n_heads") or c.count("n_heads"))
    mlp = plain(c.count("expansion_ratio", default=4) * c.count("d_model"), bias=bias)
    layer = LayerGroup(count=1, attention=(replace(mixer, qkv_bias=bias, out_bias=bias),), mlp=(mlp,))
    learned = c.flag("learned_pos_emb", default=True) and not (settings.flag("alibi") or settings.flag("rope"))
    positions = c.count("max_seq_len") if learned else 0
    return Shape([layer] * num_layers(c), tied_by_default=True, norm_bias=bias, learned_positions=positions)


@family("opt")
def opt(c: Config) -> Shape:
    """OPT: biases everywhere, learned positions with two spare rows.

    OPT 350M normalises after each part, and so has no final norm; its table is narrower than its layers, with a projection on either side.
    """
    hidden, width = c.count("hidden_size"), c.count("word_embed_proj_dim", default=c.count("hidden_size"))
    bias = c.flag("enable_bias", default=True)
    layer = LayerGroup(
        count=1, attention=(attention(c, qkv_bias=bias, out_bias=bias),), mlp=(plain(c.count("ffn_dim"), bias=bias),)
    )
    before = c.flag("do_layer_norm_before", default=True)
    projections = 2 * width * hidden if width != hidden else 0
    source = "transformers, modeling_opt.py: project_in and project_out"
    return Shape(
        [layer] * num_layers(c),
        tied_by_default=True,
        learned_positions=c.count("max_position_embeddings") + 2,
        norm_bias=True,
        final_norms=1 if before else 0,
        embedding_size=width if width != hidden else None,
        other=[("embedding projections", projections, True, source)],
    )


@family("starcoder2")
def starcoder2(c: Config) -> Shape:
    """StarCoder 2: a window on all layers, biases everywhere, an MLP of two matrices."""
    bias = c.flag("use_bias", default=True)
    mixer = windowed(c, attention(c, qkv_bias=bias, out_bias=bias))
    layer = LayerGroup(count=1, attention=(mixer,), mlp=(plain(c.count("intermediate_size"), bias=bias),))
    return Shape([layer] * num_layers(c), tied_by_default=True, norm_bias=True)


@family("falcon")
def falcon(c: Config) -> Shape:
    """Falcon: attention and MLP in parallel; one KV head (7B) or groups (40B, 180B, with a norm for each branch)."""
    new = c.flag("new_decoder_architecture")
    heads = c.count("num_attention_heads", "n_head")
    kv_heads = (
        c.count("num_kv_heads", "n_head_kv", default=heads)
        if new
        else 1
        if c.flag("multi_query", default=True)
        else heads
    )
    bias = c.flag("bias")
    mixer = attention(c, num_kv_heads=kv_heads, qkv_bias=bias, out_bias=bias)
    mlp = plain(c.count("ffn_hidden_size", default=4 * c.count("hidden_size")), bias=bias)
    norms = 1 if c.flag("parallel_attn", default=True) and not new else 2
    layer = LayerGroup(count=1, attention=(mixer,), mlp=(mlp,), norms=norms)
    return Shape([layer] * num_layers(c), tied_by_default=True, norm_bias=True)


@family("gpt_oss")
def gpt_oss(c: Config) -> Shape:
    """gpt-oss: sliding and full layers in turn, the first one sliding; sinks, biases everywhere, experts in four bits."""
    bias = {"qkv_bias": c.flag("attention_bias", default=True), "out_bias": c.flag("attention_bias", default=True)}
    full = attention(c, sinks=True, **bias)
    local = attention(c, kind="sliding", window=c.count("sliding_window"), sinks=True, **bias)
    moe = experts(c, intermediate_size=c.count("intermediate_size"), router_bias=True, expert_bias=True)
    mixers = by_layer_types(c, full, local, every=2)
    return Shape([LayerGroup(count=1, attention=(mixer,), mlp=(moe,)) for mixer in mixers])
