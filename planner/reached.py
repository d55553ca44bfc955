"""The times that a deployment's kernels and engine really reach, whichever way its engine launches them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .step import StepModel

if TYPE_CHECKING:
    from .deployment import Deployment
    from .streams import StreamModel


def reached_model(d: Deployment) -> StepModel | StreamModel:
    """The step model of a deployment as reached: of engines that launch layer by layer with the constants of their classes of devices.

    Without kernels, and for classes of devices that such an engine was never measured on, the kernels of the family or the nominal rates
    stand in.
    """
    if d.streams is not None:
        from .streams import StreamModel

        stream = d.streams.of(d.hardware, d.build)
        if stream is not None and d.hardware.peak.rate(stream.prompt.arithmetic) is not None:
            return StreamModel.of(d, stream, d.streams.half_accumulation)
    return StepModel.of(d) if d.kernels is None else StepModel.reached(d)
