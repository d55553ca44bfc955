"""Gemma: four norms a layer, windows on most layers, tied head."""

from __future__ import annotations

from dataclasses import replace

from ..config import Config, Shape, family
from ..spec import LayerGroup
from ._parts import attention, by_layer_types, experts, gated, num_layers, uniform


@family("gemma")
def gemma(c: Config) -> Shape:
    """Gemma 1: a gated MLP, two norms, tied head."""
    return Shape(
        [LayerGroup(count=1, attention=(attention(c),), mlp=(gated(c),))] * num_layers(c), tied_by_default=True
    )


@family("gemma2")
def gemma2(c: Config) -> Shape:
    """Gemma 2: sliding and full layers in turn, the first one sliding; the file does not list them."""
    full = attention(c)
    local = replace(full, kind="sliding", window=c.count("sliding_window"))
    mixers = by_layer_types(c, full, local, every=2)
    return Shape(
        [LayerGroup(count=1, attention=(mixer,), mlp=(gated(c),), norms=4) for mixer in mixers], tied_by_default=True
    )


@family("gemma3", "gemma3_text")
def gemma3(c: Config) -> Shape:
    """Gemma 3: five sliding layers to one full, norms on queries and keys."""
    full = attention(c, qk_norm=True)
    local = replace(full, kind="sliding", window=c.count("sliding_window"))
    mixers = by_layer_types(c, full, local, every=c.count("sliding_window_pattern", default=6))
    layers = [LayerGroup(count=1, attention=(mixer,), mlp=(gated(c),), norms=4) for mixer in mixers]
    return Shape(layers, tied_by_default=True)


@family("gemma4", "gemma4_text")
def gemma4(c: Config) -> Shape:
    """Gemma 4: full layers with heads of their own width, keys and values shared by the last layers, inputs for each layer.

    The last ``num_kv_shared_layers`` read the cache of an earlier layer and have no key and value projections; with
    ``use_double_wide_mlp`` their MLP is twice as wide. The tables of per-layer inputs are looked up, not multiplied.
    """
    local = attention(c, kind="sliding", window=c.count("sliding_window"), qk_norm=True)
    full = attention(
        c,
        head_dim=c.count("global_head_dim"),
        num_kv_heads=c.count("num_global_key_value_heads", default=local.num_kv_heads),
        qk_norm=True,
        projections="k" if c.flag("attention_k_eq_v") else "kv",
    )
    count, shared = num_layers(c), _shared_layers(c)
    width = c.count("intermediate_size")
    layers = []
    per_layer = c.optional("hidden_size_per_layer_input", zero=True) or 0
    for i, mixer in enumerate(by_layer_types(c, full, local, every=6)):
        reads = i >= count - shared
        own = replace(mixer, cache="shared", projections="none") if reads else mixer
        wide = 2 * width if reads and c.flag("use_double_wide_mlp") else width
        dense = gated(c, width=wide)
        if c.flag("enable_moe_block"):
            # The router scales its input by a gain of its own and each expert's output by a learned scalar.
            layers.append(LayerGroup(count=1, attention=(own,), mlp=(dense, experts(c, correction_bias=True)), norms=8))
        else:
            layers.append(LayerGroup(count=1, attention=(own,), mlp=(dense,), norms=5 if per_layer else 4))
    return Shape(layers, tied_by_default=True, other=_per_layer_inputs(c, count, per_layer))


def _shared_layers(c: Config) -> int:
    """How many of the last layers read an earlier layer's cache: at most all but one."""
    shared = c.optional("num_kv_shared_layers", zero=True) or 0
    if shared >= num_layers(c):
        raise c.error("num_kv_shared_layers", got=shared, wanted=f"fewer than the {num_layers(c)} layers")
    return shared


def _per_layer_inputs(c: Config, count: int, size: int) -> list[tuple[str, int, bool, str]]:
    hidden, source = (
        c.count("hidden_size"),
        "transformers, modeling_gemma4.py; the published total is reproduced to the unit",
    )
    rows = c.optional("vocab_size_per_layer_input") or c.count("vocab_size")
    return [
        ("per-layer input tables", rows * count * size, False, source),
        ("per-layer input projections", hidden * count * size + count * 2 * hidden * size, True, source),
        ("per-layer input norm", size, True, source),
        ("layer scalars", count, True, source),
    ]


@family("gemma3n", "gemma3n_text")
def gemma3n(c: Config) -> Shape:
    """Gemma 3n: four residual streams (AltUp), a low-rank side path (LAuReL), inputs for each layer; the last layers share their cache.

    The sharing layers keep their key and value projections, unlike those of Gemma 4.
    """
    full = attention(c, qk_norm=True)
    local = replace(full, kind="sliding", window=c.count("sliding_window"))
    count, shared = num_layers(c), _shared_layers(c)
    mlp = gated(c, width=uniform(c, "intermediate_size"))
    mixers = by_layer_types(c, full, local, every=5)
    layers = [
        LayerGroup(
            count=1,
            attention=(replace(mixer, cache="shared") if i >= count - shared else mixer,),
            mlp=(mlp,),
            norms=_NORMS_3N,
        )
        for i, mixer in enumerate(mixers)
    ]
    return Shape(layers, tied_by_default=True, other=_streams(c, count))


_NORMS_3N = 8  # four around the parts, after the per-layer input, after LAuReL, of AltUp's router, and its output scale


def _streams(c: Config, count: int) -> list[tuple[str, int, bool, str]]:
    hidden, size = c.count("hidden_size"), c.count("hidden_size_per_layer_input")
    streams, rank = c.count("altup_num_inputs"), c.count("laurel_rank")
    rows = c.optional("vocab_size_per_layer_input") or c.count("vocab_size")
    source = "transformers, modeling_gemma3n.py; the published total is reproduced to the unit"
    mixing = streams * hidden + streams * streams + streams * streams * streams
    return [
        ("per-layer input tables", rows * count * size, False, source),
        ("per-layer input projections", hidden * count * size + count * 2 * hidden * size + size, True, source),
        ("low-rank side paths", count * 2 * hidden * rank, True, source),
        ("residual streams", count * mixing + 2 * (streams - 1) * hidden * hidden, True, source),
    ]
