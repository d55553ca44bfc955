"""Encoder-decoder models: the decoder's layers are described, the encoder is a stored part that runs once per request."""

from __future__ import annotations

from ..config import Config, Shape, family
from ..spec import Attention, CrossAttention, LayerGroup, Mlp
from ._parts import plain


@family("t5")
def t5(c: Config) -> Shape:
    """T5 and Flan-T5: a relative position bias in the first layer of each stack; a gated MLP and an untied head from 1.1 on."""
    hidden, heads, width = c.count("d_model"), c.count("num_heads"), c.count("d_kv")
    encoders = c.count("num_layers")
    decoders = c.count("num_decoder_layers", default=encoders)
    gated = c.text("feed_forward_proj", default="relu").startswith("gated")
    mlp = Mlp(kind="gated" if gated else "plain", intermediate_size=c.count("d_ff"))
    own = Attention(kind="full", num_heads=heads, num_kv_heads=heads, head_dim=width)
    cross = CrossAttention(
        kind="cross",
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=width,
        memory_tokens=c.count("n_positions", default=512),
    )
    encoder_layer = 4 * hidden * heads * width + (3 if gated else 2) * hidden * c.count("d_ff") + 2 * hidden
    buckets = c.count("relative_attention_num_buckets", default=32) * heads
    return Shape(
        [LayerGroup(count=decoders, attention=(own, cross), mlp=(mlp,), norms=3)],
        tied_by_default=True,
        other=[
            ("encoder", encoders * encoder_layer + hidden + buckets, False, _T5),
            ("relative position bias of the decoder", buckets, True, _T5),
        ],
    )


_T5 = "transformers, modeling_t5.py"


@family("whisper")
def whisper(c: Config) -> Shape:
    """Whisper: two convolutions and an encoder over 1,500 frames, learned positions, biases everywhere but on keys."""
    hidden, heads = c.count("d_model"), c.count("decoder_attention_heads")
    decoders, encoders = c.count("decoder_layers"), c.count("encoder_layers")
    frames, positions = c.count("max_source_positions"), c.count("max_target_positions")
    own = Attention(kind="full", num_heads=heads, num_kv_heads=heads, head_dim=hidden // heads)
    cross = CrossAttention(
        kind="cross", num_heads=heads, num_kv_heads=heads, head_dim=hidden // heads, memory_tokens=frames
    )
    mlp = plain(c.count("decoder_ffn_dim"), bias=True)
    biases = 3 * hidden  # of queries, values and output
    width = c.count("encoder_ffn_dim")
    encoder_layer = 4 * hidden * hidden + biases + 2 * hidden * width + width + hidden + 4 * hidden
    convolutions = 3 * hidden * (c.count("num_mel_bins") + hidden) + 2 * hidden
    return Shape(
        [LayerGroup(count=decoders, attention=(own, cross), mlp=(mlp,), norms=3)],
        tied_by_default=True,
        norm_bias=True,
        max_context=positions,
        other=[
            ("encoder", encoders * encoder_layer + convolutions + frames * hidden + 2 * hidden, False, _WHISPER),
            ("positions of the decoder", positions * hidden, False, _WHISPER),
            ("attention biases of the decoder", decoders * 2 * biases, True, _WHISPER),
        ],
    )


_WHISPER = "transformers, modeling_whisper.py"
