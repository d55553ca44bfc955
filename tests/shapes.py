"""The test objects of the formula collection: models M7, M8, M70 and DS, devices HA and HH, built without any catalogue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from roofplan import engines
from roofplan.engines.spec import NumberFormat
from roofplan.hardware.spec import Evidence, HardwareSpec, Memory, Peak
from roofplan.models.spec import Attention, LatentAttention, LayerGroup, Mlp, ModelSpec, Moe, SharedExpert
from roofplan.planner.deployment import Deployment, MemoryOverrides, Workload
from roofplan.planner.formats import Formats, parse_weights
from roofplan.planner.parallel import SINGLE, Layout
from roofplan.planner.step import StepModel

GIB = 2**30


def dense(
    hidden: int, layers: int, heads: int, kv_heads: int, head_dim: int, width: int, vocab: int, **changes: Any
) -> ModelSpec:
    """A Llama-shaped model; ``changes`` go to the model, ``attention_changes`` and ``mlp_kind`` to its parts."""
    attention = Attention(kind="full", num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim)
    attention = replace(attention, **changes.pop("attention_changes", {}))
    mlp = Mlp(kind=changes.pop("mlp_kind", "gated"), intermediate_size=width, bias=changes.pop("mlp_bias", False))
    return ModelSpec(
        schema="roofplan/model/v1",
        name=changes.pop("name", "dense"),
        sources=(),
        hidden_size=hidden,
        vocab_size=vocab,
        layers=(LayerGroup(count=layers, attention=(attention,), mlp=(mlp,)),),
        **changes,
    )


M7 = dense(4096, 32, 32, 32, 128, 11008, 32000, name="m7")
M8 = dense(4096, 32, 32, 8, 128, 14336, 128256, name="m8")
M70 = dense(8192, 80, 64, 8, 128, 28672, 128256, name="m70")
M7_ONE_HEAD = dense(4096, 32, 32, 1, 128, 11008, 32000, name="m7-mqa")

_LATENT = LatentAttention(
    kind="mla",
    num_heads=128,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
)
_DS_MOE = Moe(
    kind="moe",
    num_experts=256,
    experts_per_token=8,
    intermediate_size=2048,
    shared=SharedExpert(intermediate_size=2048),
    correction_bias=True,
)
DS = ModelSpec(
    schema="roofplan/model/v1",
    name="ds",
    sources=(),
    hidden_size=7168,
    vocab_size=129280,
    layers=(
        LayerGroup(count=3, attention=(_LATENT,), mlp=(Mlp(kind="gated", intermediate_size=18432),)),
        LayerGroup(count=58, attention=(_LATENT,), mlp=(_DS_MOE,)),
    ),
)


def device(name: str, flop_per_s: float, bytes_per_s: float, capacity: int = 80 * 10**9) -> HardwareSpec:
    """A device with one 16-bit rate."""
    return HardwareSpec(
        schema="roofplan/hardware/v1",
        name=name,
        memory=Memory(nameplate=capacity, bandwidth=bytes_per_s),
        peak=Peak(bf16=flop_per_s, fp32=flop_per_s),
        evidence=(Evidence(figures=("memory", "peak"), kind="derived", source="formula collection"),),
    )


HA = device("ha", 312e12, 2.0e12)
HH = device("hh", 989.4e12, 3.35e12)

NOTHING_ELSE = MemoryOverrides(activation_bytes=0, runtime_bytes=0)


def formats(weights: str = "bf16", kv: str = "bf16") -> Formats:
    """Formats by name."""
    return Formats(
        weights, parse_weights(weights, engines.load_format), engines.load_format(kv), engines.load_format("bf16")
    )


def number_format(name: str) -> NumberFormat:
    """A number format of the catalogue."""
    return engines.load_format(name)


def deploy(
    model: ModelSpec,
    hardware: HardwareSpec,
    *,
    prompt: int = 1,
    output: int = 1,
    concurrency: int = 1,
    layout: Layout = SINGLE,
    weights: str = "bf16",
    kv: str = "bf16",
    memory: MemoryOverrides = NOTHING_ELSE,
) -> Deployment:
    """A deployment with the plain engine and nothing in memory but weights and cache."""
    return Deployment(
        model,
        hardware,
        formats(weights, kv),
        engines.load("plain"),
        Workload(prompt, output, concurrency),
        layout,
        memory,
    )


def step_model(model: ModelSpec, hardware: HardwareSpec, **options: Any) -> StepModel:
    """The step model at nominal rates."""
    return StepModel.of(deploy(model, hardware, **options))
