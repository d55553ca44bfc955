"""Tiny models of every kind of layer that the reference transformer has."""

from __future__ import annotations

from dataclasses import replace

from roofplan.models.spec import (
    Attention,
    Convolution,
    CrossAttention,
    Indexer,
    LatentAttention,
    LayerGroup,
    Mlp,
    ModelSpec,
    Moe,
    Projection,
    Recurrent,
    SharedExpert,
    State,
)


def tiny(name: str, *groups: LayerGroup, **changes) -> ModelSpec:
    return ModelSpec(
        schema="roofplan/model/v1",
        name=name,
        sources=(),
        layers=groups,
        **({"hidden_size": 64, "vocab_size": 96} | changes),
    )


def heads(kind: str = "full", **changes) -> Attention:
    return Attention(kind=kind, **({"num_heads": 4, "num_kv_heads": 2, "head_dim": 16} | changes))


GATED = Mlp(kind="gated", intermediate_size=96)
PLAIN = Mlp(kind="plain", intermediate_size=96, bias=True)
MOE = Moe(
    kind="moe",
    num_experts=8,
    experts_per_token=2,
    intermediate_size=32,
    router_bias=True,
    correction_bias=True,
    shared=SharedExpert(intermediate_size=32, gate=True),
)
MLA = LatentAttention(
    kind="mla",
    num_heads=4,
    q_lora_rank=24,
    kv_lora_rank=16,
    qk_nope_head_dim=16,
    qk_rope_head_dim=8,
    v_head_dim=12,
)
STATE = Recurrent(
    kind="recurrent",
    variant="gated-delta-net",
    projections=(
        Projection(name="qkvz", inputs=64, outputs=96),
        Projection(name="ba", inputs=64, outputs=8),
        Projection(name="out", inputs=32, outputs=64),
    ),
    state=State(heads=2, key_dim=8, value_dim=16),
    convolution=Convolution(channels=64, kernel=4),
    vectors=12,
)

DENSE = tiny("dense", LayerGroup(count=2, attention=(heads(),), mlp=(GATED,)))
LATENT = tiny("latent", LayerGroup(count=2, attention=(MLA,), mlp=(GATED,)), tied_embeddings=True)
MIXTURE = tiny("mixture", LayerGroup(count=2, attention=(heads(),), mlp=(MOE,)))

SHAPES = (
    DENSE,
    LATENT,
    MIXTURE,
    tiny(
        "biased",
        LayerGroup(count=2, attention=(heads(qkv_bias=True, out_bias=True, qk_norm=True),), mlp=(PLAIN,)),
        tied_embeddings=True,
        norm_bias=True,
        head_bias=True,
        learned_positions=32,
    ),
    tiny("gates", LayerGroup(count=2, attention=(heads(output_gate=True, qk_norm="full"),), mlp=(GATED,), norms=4)),
    tiny(
        "window",
        LayerGroup(count=1, attention=(heads("sliding", window=5),), mlp=(GATED,)),
        LayerGroup(count=1, attention=(heads("full", sinks=True),), mlp=(GATED,), norms=1),
    ),
    tiny("sinks", LayerGroup(count=2, attention=(heads("sliding", window=5, first_tokens=2),), mlp=(GATED,))),
    tiny("chunks", LayerGroup(count=2, attention=(heads("chunked", window=4),), mlp=(GATED,))),
    tiny(
        "shared",
        LayerGroup(count=1, attention=(heads(projections="k"),), mlp=(GATED,)),
        LayerGroup(count=1, attention=(heads(cache="shared", projections="none"),), mlp=(GATED,)),
    ),
    tiny(
        "cross",
        LayerGroup(
            count=2,
            attention=(
                heads(),
                CrossAttention(
                    kind="cross",
                    num_heads=4,
                    num_kv_heads=2,
                    head_dim=16,
                    memory_tokens=7,
                    source_size=48,
                    qk_norm=True,
                ),
            ),
            mlp=(GATED,),
            norms=3,
        ),
    ),
    tiny(
        "narrow-experts",
        LayerGroup(
            count=2,
            attention=(replace(MLA, q_lora_rank=None, output_gate=True),),
            mlp=(replace(MOE, latent_size=32, latent_norm=True, shared=None, router_bias=False),),
        ),
    ),
    tiny(
        "convolution",
        LayerGroup(
            count=2,
            attention=(
                Recurrent(
                    kind="recurrent",
                    variant="short-convolution",
                    projections=(
                        Projection(name="in", inputs=64, outputs=192),
                        Projection(name="out", inputs=64, outputs=64),
                    ),
                    convolution=Convolution(channels=64, kernel=3, bias=True),
                ),
            ),
            mlp=(GATED,),
        ),
    ),
    tiny(
        "indexed",
        LayerGroup(count=2, attention=(heads(indexer=Indexer(num_heads=16, head_dim=8, top_k=4)),), mlp=(GATED,)),
    ),
    tiny(
        "indexed-latent",
        LayerGroup(
            count=1, attention=(replace(MLA, indexer=Indexer(num_heads=16, head_dim=8, top_k=4)),), mlp=(GATED,)
        ),
        LayerGroup(
            count=1,
            attention=(replace(MLA, indexer=Indexer(num_heads=16, head_dim=8, top_k=4, shared=True)),),
            mlp=(GATED,),
        ),
    ),
    tiny(
        "states",
        LayerGroup(count=2, attention=(STATE,), mlp=(GATED,)),
        LayerGroup(count=1, attention=(heads(num_kv_heads=4, v_head_dim=8),), norms=1),
        LayerGroup(count=1, mlp=(MOE,), norms=0),
    ),
)
