"""The small operations of the reference transformer: how many there are, what they move, and what one of them takes.

The planner takes an engine's word for how many small kernels a layer has; torch's eager operations are more, and each costs the host its
time. Both are counted here, and one figure is timed: an operation of a model so small that it does nothing else.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...models.spec import Attention, LayerGroup, Mlp, ModelSpec, Source
from ...planner.costs import Elementwise
from ..timing import QUICK, graphed, time_call

if TYPE_CHECKING:
    from ...hardware import HardwareSpec
    from ...planner.step import StepModel
    from ..machine import Machine
    from ..reference.model import Reference

TORCH_TYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
PROMPTS = (16, 32)  # tokens of the passes from whose difference the traffic of one token is counted
_TINY = ModelSpec(
    schema="roofplan/model/v1",
    name="tiny",
    sources=(Source(kind="user", source="the smallest shape, whose steps are all launches"),),
    hidden_size=64,
    vocab_size=64,
    tied_embeddings=True,
    layers=(
        LayerGroup(
            count=8,
            attention=(Attention(kind="full", num_heads=2, num_kv_heads=1, head_dim=32),),
            mlp=(Mlp(kind="gated", intermediate_size=128),),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Launching:
    """What the reference transformer launches.

    Parameters
    ----------
    operations : small operations of a step for each that the planner counts
    layer_passes : passes over a token's vector beyond those that the planner counts
    operation_s : seconds of one operation; 0 where it is that of the device's small kernels
    """

    operations: float = 1.0
    layer_passes: float = 0.0
    operation_s: float = 0.0


def step_model(
    spec: ModelSpec, device: HardwareSpec, dtype: str, launching: Launching, *, weights: str, kv: str, nominal: bool
) -> StepModel:
    """The step model of an engine that does nothing but run the reference transformer.

    Parameters
    ----------
    spec : at the depth that is built
    dtype : fp32, bf16 or fp16
    weights, kv : formats where they are not that type
    nominal : whether at nominal rates, else as the device's kernels reach

    Raises
    ------
    RoofplanError : for what the planner refuses
    """
    from ... import engines
    from ...api.building import deployment
    from ...planner.step import StepModel

    plain = engines.load("plain")
    timing = replace(
        plain.timing,
        host_per_step=0.0,
        host_per_sequence=0.0,
        prompt_floor=0.0,
        expert_prompt_floor=0.0,
        small_kernels=launching.operations,
        layer_passes=launching.layer_passes,
    )
    built = deployment(
        spec,
        device,
        weights=f"all={dtype},{weights}" if weights else f"all={dtype}",
        kv=kv or dtype,
        activations=dtype,
        engine=replace(plain, timing=timing),
    )
    if nominal or built.kernels is None:
        return StepModel.of(built)
    # The planner counts in floors of the device's small kernels; an operation of this transformer takes longer on a host.
    floor = built.kernels.elementwise.floor
    longer = launching.operation_s / floor if floor and launching.operation_s else 1.0
    timing = replace(timing, small_kernels=launching.operations * longer)
    return StepModel.reached(replace(built, engine=replace(built.engine, timing=timing)))


def launches_of(model: Reference, machine: Machine) -> tuple[float, float]:
    """Small operations of a step for each that the planner counts, and passes over a token's vector beyond those that it counts.

    On a CPU, and wherever operations are launched one by one, a view costs the host as much as a small operation.
    """
    from ..reference.counting import count_launches

    cache = model.cache(1, PROMPTS[0])
    cache.length = PROMPTS[0] - 1
    token = model.tokens(1, 1)
    step = count_launches(lambda: model(token, cache))
    moved = []
    for count in PROMPTS:
        tokens, held = model.tokens(1, count), model.cache(1, count)
        moved.append(count_launches(lambda t=tokens, h=held: model(t, h)).small_bytes)  # type: ignore[misc]  # mypy: defaults bind the loop
    dtype = next(name for name, size in BYTES.items() if size == model.dtype.itemsize)
    return beside_the_planners(
        model.spec, dtype, step.small + (0 if machine.kind == "cuda" else step.views), (moved[0], moved[1])
    )


def beside_the_planners(spec: ModelSpec, dtype: str, launched: int, moved: tuple[int, int]) -> tuple[float, float]:
    """Small operations of a step for each that the planner counts, and passes over a token's vector beyond those that it counts.

    Parameters
    ----------
    spec : what was run
    dtype : fp32, bf16 or fp16
    launched : small operations of a step
    moved : bytes that small operations of prompts of :data:`PROMPTS` tokens read and write
    """
    from ... import engines
    from ...planner.deployment import Deployment, Workload
    from ...planner.formats import Formats, parse_weights
    from ...planner.operators import build_operators

    of_token = (moved[1] - moved[0]) / (PROMPTS[1] - PROMPTS[0])
    format_ = engines.load_format(dtype)
    formats = Formats(format_.name, parse_weights(f"all={format_.name}", engines.load_format), format_, format_)
    operators = build_operators(Deployment(spec, any_device(), formats, engines.load("plain"), Workload(1, 1)))
    small = [operator for operator in operators if isinstance(operator, Elementwise)]
    counted = sum(operator.bytes_per_token for operator in small)
    vectors = spec.num_layers * spec.hidden_size * BYTES[dtype]
    return launched / sum(operator.launches for operator in small), max(0.0, (of_token - counted) / vectors)


@functools.cache
def operation_s(machine: Machine, dtype: str) -> float:
    """Seconds of one operation that torch dispatches for the reference transformer, Python's part of it included: that of a tiny one.

    A model of a few thousand weights does nothing but launch. On a device with graphs it is what a kernel of a graph takes.
    """
    import torch

    from ..reference.counting import count_launches
    from ..reference.model import Reference

    built = Reference(_TINY, getattr(torch, TORCH_TYPES[dtype]), machine.torch_device, packed=machine.kind == "cpu")
    cache, token = built.cache(1, PROMPTS[0]), built.tokens(1, 1)

    def step() -> Any:
        cache.length = PROMPTS[0] - 1
        return built(token, cache)

    found = count_launches(step)
    launched = found.products + found.small + (0 if machine.kind == "cuda" else found.views)
    return time_call(graphed(step, machine), machine=machine, limits=QUICK).median / launched


def any_device() -> HardwareSpec:
    """A device for counts that depend on none."""
    from ...hardware.spec import Evidence, HardwareSpec, Memory, Peak

    return HardwareSpec(
        schema="roofplan/hardware/v1",
        name="any",
        memory=Memory(nameplate=2**40, bandwidth=1.0),
        peak=Peak(fp32=1.0),
        evidence=(Evidence(figures=("memory", "peak"), kind="derived", source="units"),),
    )
