"""Predictions computed again from a run's file: the same planner, without the machine, so that a committed run is held against it."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from .. import models
from ..planner.without_cache import generation_s
from .experiments.bench import small_model
from .experiments.operations import Launching, step_model
from .reference.depth import at_depth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..hardware import HardwareSpec
    from ..models.spec import ModelSpec
    from ..planner.step import StepModel
    from .records import Record

# How each quantity follows from a step model and the record's parameters.
PREDICTIONS: dict[str, Callable[[StepModel, dict[str, int]], float]] = {
    "decode.step": lambda steps, own: steps.step_s(own["batch"], own["context"]),
    "prefill.prompt": lambda steps, own: steps.step_s(0, 0, chunk=own["prompt"]),
    "cache.token_with": lambda steps, own: steps.step_s(1, own["position"]),
    "cache.token_without": lambda steps, own: steps.step_s(0, 0, chunk=own["position"]),
    "cache.generation_with": lambda steps, own: generation_s(steps, own["prompt"], own["output"]).with_cache,
    "cache.generation_without": lambda steps, own: generation_s(steps, own["prompt"], own["output"]).without_cache,
}


def predicted_again(record: Record, device: HardwareSpec) -> float:
    """What the planner says now of a record of :data:`PREDICTIONS`, in seconds, on a measured device as its kernels reach.

    Raises
    ------
    KeyError : for a record of another kind
    RoofplanError : for a model that there is not
    """
    predict, own = PREDICTIONS[record.name], record.parameters
    steps = step_model(
        _model(str(own["model"]), int(own["layers"])),
        device,
        str(own["dtype"]),
        Launching(**record.inputs),
        weights="",
        kv="",
        nominal=False,
    )
    return float(predict(steps, own))


def error_of(record: Record, device: HardwareSpec) -> float:
    """Predicted over the measured median, less one, as the planner predicts now; raises as :func:`predicted_again`."""
    return predicted_again(record, device) / record.measured.median - 1


def errors_of(records: Sequence[Record], device: HardwareSpec) -> tuple[float, float]:
    """The median and the largest of the absolute errors of some records; raises as :func:`predicted_again`."""
    errors = [abs(error_of(record, device)) for record in records]
    return statistics.median(errors), max(errors)


def _model(name: str, layers: int) -> ModelSpec:
    """The model by the name of a record: a catalogue's at its depth, or one of the shapes that are measured where none is asked for."""
    for quick in (True, False):
        own = small_model(quick=quick)
        if own.name == name:
            return own
    return at_depth(models.load(name.removesuffix(f"-{layers}-layers")), layers)
