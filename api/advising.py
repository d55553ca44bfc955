"""Advice by names and options: which formats and devices the levers of a deployment may take."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from .. import hardware, specfiles
from ..errors import DomainError
from ..planner.advice import Advice
from ..planner.advice import advise as advise_deployment
from ..planner.levers.situation import Choices, Neighbour
from ..planner.memory import plan_memory
from ..quantities import FRACTION, parse
from .building import deployment, sixteen_bits
from .narrowing import GGUF_WEIGHTS, if_narrower, narrower_kv

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike
    from typing import Unpack

    from ..hardware.spec import HardwareSpec
    from ..models.spec import ModelSpec
    from ..planner.deployment import Deployment
    from ..planner.formats import Formats
    from ..planner.levers.outcomes import Goal
    from .options import Options

# Formats that engines serve, the arithmetic that the device must have (None: 16 bits do), and activations where they are asked for.
_WEIGHTS: tuple[tuple[str, str | None, str | None], ...] = (
    ("fp8", "fp8", None),
    ("int8", "int8", "int8"),
    ("int8", None, None),
    ("int4-g128", None, None),
    ("nvfp4", "fp4", None),
)
_SHARE = replace(FRACTION, zero=True)
_NEAREST, _CHEAPEST = 6, 2


def advise(
    model: str | PathLike[str] | ModelSpec,
    device: str | PathLike[str] | HardwareSpec,
    *,
    goal: str = "throughput",
    prefix_hit: float | str = 0.5,
    acceptance: float | str = 0.7,
    **options: Unpack[Options],
) -> Advice:
    """Evaluate the levers of a deployment and rank them by their gain for a goal.

    Parameters
    ----------
    goal : ttft, tpot, throughput, capacity or cost
    prefix_hit : share of every prompt that a prefix cache would hold already (assumed)
    acceptance : probability that a draft of a trained draft layer is kept (assumed)
    options : as of :func:`roofplan.size`

    Raises
    ------
    RoofplanError : for anything that does not exist, does not divide or lies outside its domain

    >>> advise("llama-3.1-8b", "h100-sxm", goal="tpot", concurrency=1).best.id
    'weights.int4-g128'
    """
    share, kept = _share(prefix_hit, "--prefix-hit"), _share(acceptance, "--acceptance")
    built = deployment(model, device, **options)
    choices = Choices(
        weights=tuple(_weights(built, options)),
        kv=tuple(narrower_kv(built)),
        devices=tuple(_devices(built)),
        kernels=None if built.kernels is None else hardware.kernels_of(built.hardware),
        prefix_hit=share,
        acceptance=kept,
        sixteen_bits=sixteen_bits(built.formats),
    )
    return advise_deployment(built, choices, cast("Goal", goal))


def _share(value: float | str, what: str) -> float:
    """A share from zero to below one."""
    share = float(parse(value, _SHARE, what))
    if share == 1:
        raise DomainError(what, got=value, wanted="a share below 1: not everything is cached or kept")
    return share


def _weights(d: Deployment, options: Options) -> Iterator[Formats]:
    """Formats with fewer bits than the weights have, which the device multiplies."""
    for name, arithmetic, activations in GGUF_WEIGHTS if d.streams is not None else _WEIGHTS:
        has_rate = arithmetic is None or d.hardware.peak.rate(arithmetic) is not None
        if not has_rate or (activations == "int8" and d.hardware.peak.rate("fp8") is not None):
            continue  # 8-bit activations are served in fp8 where the device has it
        changes: Options = {"weights": name} if activations is None else {"weights": name, "activations": activations}
        formats = if_narrower(d, {**options, **changes})
        if formats is not None:
            yield formats


def _devices(d: Deployment) -> Iterator[Neighbour]:
    """Devices with a price on which the weights fit: the nearest in memory, bandwidth and arithmetic, and the cheapest per bandwidth."""
    own, need = d.hardware, plan_memory(d).weights_bytes
    fitting = [other for other in priced() if other.name != own.name and other.memory.total_bytes > need]
    fitting.sort(key=lambda other: _distance(own, other))
    chosen, rest = fitting[:_NEAREST], fitting[_NEAREST:]
    rest.sort(key=lambda other: other.price.usd_per_hour / other.memory.bandwidth if other.price else math.inf)
    for other in (*chosen, *rest[:_CHEAPEST]):
        yield Neighbour(other, hardware.kernels_of(other, d.layout.devices))


def priced() -> list[HardwareSpec]:
    """Devices of the catalogue with a price and a 16-bit rate.

    The price is searched in the text, since parsing every file takes longer; a test proves that both agree.
    """
    folder = hardware.CATALOGUE.folder
    named = (slug for slug in hardware.CATALOGUE.slugs() if "\nprice:" in specfiles.read_text(folder / f"{slug}.yaml"))
    return [spec for slug in named if _sixteen_bit(spec := hardware.load(slug))]


def _sixteen_bit(device: HardwareSpec) -> float:
    return device.peak.rate("bf16") or device.peak.rate("fp16") or 0.0


def _distance(one: HardwareSpec, other: HardwareSpec) -> float:
    """Distance in the logarithms of memory, bandwidth and 16-bit arithmetic."""
    figures = [
        (device.memory.total_bytes, device.memory.bandwidth, _sixteen_bit(device) or math.inf)
        for device in (one, other)
    ]
    return sum(math.log(a / b) ** 2 for a, b in zip(*figures, strict=True) if math.inf not in {a, b})
