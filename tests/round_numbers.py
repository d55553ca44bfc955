"""Kernels and engine timing of round numbers: so that tests of times depend on no constant that is fitted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shapes import deploy

from roofplan.engines.spec import Origin
from roofplan.engines.timing import Scheduling, Timing
from roofplan.hardware.achieved import Exchange, Kernel, Kernels, LayerFloors, Spread, UsualExchange
from roofplan.hardware.spec import HardwareSpec, Link

if TYPE_CHECKING:
    from roofplan.models.spec import ModelSpec
    from roofplan.planner.deployment import Deployment

US, KIB = 1e-6, 1024

FREE = Kernel(floor=0.0)  # at nominal rates, launched in no time
NOTHING = LayerFloors(routing=0.0, latent=0.0, gated_delta=0.0, sparse_index=0.0)
SPREAD = Spread(
    measured=1.05,
    new_model=1.2,
    new_experts=1.3,
    new_device=1.15,
    unmeasured_family=1.4,
    usual_exchange=1.2,
    new_engine=1.25,
)
USUAL = tuple(
    UsualExchange(operation="all_reduce", kernel=name, ranks=ranks, floor=floor * US, bandwidth=share)
    for name, ranks, floor, share in (("slow", 2, 10, 0.5), ("slow", 8, 20, 0.625), ("quick", 2, 4, 0.75))
)

KERNELS = Kernels(
    schema="roofplan/kernels/v1",
    name="round",
    families=("round",),
    measured_on=("hh",),
    gemm=(
        Kernel(arithmetic=("bf16", "fp16"), floor=4 * US, bandwidth=0.8, compute=0.75, overlap=4.0),
        Kernel(arithmetic=("fp8",), floor=7 * US, bandwidth=0.8, compute=0.5, overlap=2.0),
    ),
    decode_attention=(
        Kernel(bits=16, floor=11 * US, bandwidth=0.9, compute=0.5),
        Kernel(bits=8, floor=13 * US, bandwidth=0.75, compute=0.5),
    ),
    prefill_attention=Kernel(floor=12 * US, compute=0.6, ramp_tokens=1000),
    experts=(
        Kernel(arithmetic=("bf16",), bits=4, floor=40 * US, bandwidth=0.6, compute=0.25, overlap=1.0),
        Kernel(arithmetic=("bf16",), floor=28 * US, bandwidth=0.9, compute=0.5, overlap=1.0),
        Kernel(arithmetic=("fp8",), floor=34 * US, bandwidth=0.9, compute=0.2, overlap=1.0),
    ),
    elementwise=Kernel(floor=2 * US, bandwidth=0.7),
    state=Kernel(floor=8 * US, bandwidth=0.7),
    floors=LayerFloors(routing=6 * US, latent=3 * US, gated_delta=22 * US, sparse_index=52 * US),
    collective=USUAL,
    spread=SPREAD,
    sources={"gemm": Origin(kind="derived", source="round numbers")},
)
# Everything at nominal rates and launched in no time: what a test adds is all that there is.
IDEAL = replace(
    KERNELS,
    gemm=(FREE,),
    decode_attention=(FREE,),
    prefill_attention=FREE,
    experts=(FREE,),
    elementwise=FREE,
    state=FREE,
    floors=NOTHING,
    collective=(UsualExchange(operation="all_reduce", kernel="nccl", ranks=2, floor=0.0, bandwidth=1.0),),
)

TIMING = Timing(
    spread=1.1,
    first_token_spread=1.5,
    host_per_step=0.0,
    host_per_sequence=0.0,
    small_kernels=1.0,
    exchange_kernels=("quick", "slow"),
)
MIXED = Scheduling(admission="mixed")


def table(kernel: str, ranks: int, points: dict[int, float], operation: Any = "all_reduce") -> Exchange:
    """Measured times of an exchange: microseconds by bytes."""
    return Exchange(
        operation=operation, kernel=kernel, ranks=ranks, bytes=tuple(points), us=tuple(map(float, points.values()))
    )


def linked(device: HardwareSpec, per_direction: float = 450e9, domain: int = 8) -> HardwareSpec:
    """A device with a switch to its like."""
    link = Link(name="switch", per_direction=per_direction, topology="switch", domain=domain)
    return replace(device, links=(link,))


def reach(
    model: ModelSpec,
    hardware: HardwareSpec,
    *,
    kernels: Kernels = KERNELS,
    timing: Timing = TIMING,
    scheduling: Scheduling = MIXED,
    **options: Any,
) -> Deployment:
    """A deployment with these kernels, and an engine of this timing."""
    d = deploy(model, hardware, **options)
    return replace(d, kernels=kernels, engine=replace(d.engine, timing=timing, scheduling=scheduling))
