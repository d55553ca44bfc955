"""How wide a range must be: by what stands behind a prediction.

An 80 % range is x/÷ a width. Its logarithm is the root of the sum of the squares of what each unknown adds: the scatter that is left where
model, engine and device are all among those that the constants were fitted on, a model that is not, experts that are not, a device or a
family of devices that nobody measured, an engine version that is newer than known. Times to first token scatter more, or less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..models.spec import LatentAttention, Moe
from .kernel_times import measured_exchange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..engines.streams import Stream
    from .deployment import Deployment


@dataclass(frozen=True, slots=True)
class Evidence:
    """The widths of the 80 % ranges of a deployment: what scatters where all is known, then what each unknown adds: (why, x/÷).

    ``first_token`` stands for the first of them where times to first token are told.
    """

    parts: tuple[tuple[str, float], ...]
    first_token: float

    @property
    def width(self) -> float:
        """Width of times per token and of rates."""
        return _together(width for _, width in self.parts)

    @property
    def first_token_width(self) -> float:
        """Width of times to first token."""
        return _together([self.first_token, *(width for _, width in self.parts[1:])])


def _together(widths: Iterable[float]) -> float:
    return math.exp(math.sqrt(sum(math.log(width) ** 2 for width in widths)))


def evidence_of(d: Deployment) -> Evidence:
    """What stands behind the times of a deployment, as its kernels and its engine profile say what they were fitted on."""
    stream = d.streams.of(d.hardware, d.build) if d.streams is not None else None
    if stream is not None:
        return _of_stream(stream, d.hardware.name)
    spread = d.kernels.spread if d.kernels is not None else None
    if spread is None:
        return Evidence((), 1.0)
    return Evidence(tuple(_parts(d)), d.engine.timing.first_token_spread)


def _of_stream(stream: Stream, device: str) -> Evidence:
    known = device in stream.measured_on
    why = (
        "scatter between models and builds"
        if known
        else f"{device} is not among the devices of its class that were measured"
    )
    return Evidence(((why, stream.spread.of(known)),), stream.prompt_spread.of(known))


def _parts(d: Deployment) -> Iterator[tuple[str, float]]:
    assert d.kernels is not None
    spread, fitted = d.kernels.spread, d.engine.timing.fitted_on
    if d.hardware.achieved.kernels is not None and d.hardware.achieved.kernels.get("measured_on") == [d.hardware.name]:
        yield f"measured on this {d.hardware.name}", spread.measured
    else:
        yield "scatter between versions and runs of one setting", d.engine.timing.spread
        if not d.kernels.families:
            yield f"no kernels of the family of {d.hardware.name} were measured", spread.unmeasured_family
        elif d.hardware.name not in d.kernels.measured_on:
            yield f"{d.hardware.name} is not among the devices of its family that were measured", spread.new_device
    tp, cp = d.layout.tp, d.layout.cp
    if cp > 1 or (tp > 1 and measured_exchange(d, d.kernels, "all_reduce", tp) is None):
        yield f"exchanges among {tp * cp} x {d.hardware.name} were not measured", spread.usual_exchange
    if not fitted:
        yield f"{d.engine.engine} was not compared with served requests", spread.new_engine
    elif d.engine.is_newer_than_compared:
        newest = f"{d.engine.engine} {d.engine.newest_compared}"
        yield (
            f"{d.engine.version or d.engine.name} is newer than {newest}, the last that was compared",
            spread.new_engine,
        )
    if d.model.name not in fitted:
        if _is_uneven(d):
            yield f"{d.model.name}: experts or latent attention that were not compared", spread.new_experts
        else:
            yield f"{d.model.name} was not compared", spread.new_model


def _is_uneven(d: Deployment) -> bool:
    return any(
        isinstance(part, Moe | LatentAttention) for group in d.model.layers for part in (*group.mlp, *group.attention)
    )
