"""Records of generations by transformers, beside what the planner predicts for the same model, tokens and formats.

The data sheet predicts at nominal rates; a measured device with its kernels, and with as many launches as torch really dispatches in a
step, which are counted once per format (:mod:`~roofplan.measure.reference.counting`): transformers launches operation by operation.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import RoofplanError
from .experiments.operations import PROMPTS, any_device, beside_the_planners
from .huggingface_model import FORMATS
from .records import Record
from .samples import Summary, summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ..hardware.spec import HardwareSpec
    from ..models.spec import ModelSpec
    from ..planner.deployment import Deployment
    from ..planner.step import StepModel
    from .huggingface import Generation
    from .huggingface_model import LoadedModel
    from .known_devices import Devices

Built = TypeVar("Built")
_BUCKETS, _BUCKET = 8, 10  # of positions: so many at most, of so many tokens at least


@dataclass(frozen=True, slots=True)
class Predictions:
    """What is predicted for a folder: the planner's reading of it, on the devices that are known."""

    folder: Path
    spec: ModelSpec
    devices: Devices
    prompt: int
    tokens: int

    def deployment(self, model: LoadedModel, device: HardwareSpec, launches: tuple[float, float]) -> Deployment:
        """One sequence on a device, by an engine that does nothing but launch what was counted."""
        from .. import engines
        from ..api.building import deployment

        planned, dtype = FORMATS[model.format].planned, model.dtype
        weights = f"all={dtype},{planned}" if planned else f"all={dtype}"
        plain = engines.load("plain")
        timing = replace(
            plain.timing,
            host_per_step=0.0,
            host_per_sequence=0.0,
            prompt_floor=0.0,
            expert_prompt_floor=0.0,
            small_kernels=launches[0],
            layer_passes=launches[1],
        )
        return deployment(
            self.spec,
            device,
            prompt=self.prompt,
            output=self.tokens,
            weights=None if model.is_quantised else weights,
            kv=dtype,
            activations=dtype,
            engine=replace(plain, timing=timing),
        )

    def steps(self, model: LoadedModel) -> tuple[StepModel | None, StepModel | None]:
        """Step models by the data sheet and by the measured device; None where there is no device, or it has no rates."""
        from ..planner.step import StepModel

        sheet, measured = self.devices.datasheet, self.devices.measured
        nominal = reached = None
        if sheet is not None and sheet.has_rates:
            nominal = _or_none(lambda: StepModel.of(self.deployment(model, sheet, (1.0, 0.0))))
        if measured is not None and measured.has_rates:
            counted = launches_of(model, self.spec)
            reached = _or_none(lambda: StepModel.reached(self.deployment(model, measured, counted)))
        return nominal, reached

    def bytes_of(self, model: LoadedModel, context: int) -> tuple[int, int] | None:
        """Bytes of all weights and of the cache of one sequence of so many tokens, as the planner counts them; None where it cannot."""
        from ..planner.kv_cache import cache_layout
        from ..planner.parameters import stored_bytes

        device = self.devices.measured or self.devices.datasheet or any_device()
        built = _or_none(lambda: self.deployment(model, device, (1.0, 0.0)))
        if built is None:
            return None
        cache = cache_layout(built.model, built.formats.kv)
        return stored_bytes(built.model, built.formats), cache.bytes_per_sequence(context)


def _or_none(build: Callable[[], Built]) -> Built | None:
    try:
        return build()
    except RoofplanError:  # a format that the planner does not know, a device without the arithmetic that is needed
        return None


def launches_of(model: LoadedModel, spec: ModelSpec) -> tuple[float, float]:
    """Small operations of a step for each that the planner counts, and passes over a token's vector beyond those that it counts.

    On a CPU a view costs the host as much as a small operation.
    """
    import torch

    from .reference.counting import count_launches

    moved = []
    with torch.inference_mode():
        for count in PROMPTS:
            ids = model.prompt(count)
            moved.append(count_launches(lambda ids=ids: model.step(ids, None, use_cache=True)).small_bytes)  # type: ignore[misc]  # mypy: defaults bind the loop
        _, cache = model.step(model.prompt(PROMPTS[0]), None, use_cache=True)
        step = count_launches(lambda: model.step(model.prompt(1), cache, use_cache=True))
    is_host = str(model.module.device) == "cpu"
    launched = step.small + (step.views if is_host else 0)
    return beside_the_planners(spec, model.dtype, launched, (moved[0], moved[1]))


def records_of(
    name: str, model: LoadedModel, generations: Sequence[Generation], predictions: Predictions
) -> Iterator[Record]:
    """Records of generations with and without a cache, in one format."""
    steps = predictions.steps(model)
    common = {"format": name, "dtype": model.dtype, "prompt": predictions.prompt}
    planned = predictions.bytes_of(model, predictions.prompt)
    yield _bytes("weights", model.weights_bytes, common, planned and planned[0])
    for done in generations:
        own = common | {"use_cache": done.use_cache, "tokens": len(done.seconds)}
        times = [_times(step, done) for step in steps]
        if done.use_cache:
            passes = summarise([*done.passes, done.seconds[0]])
            yield Record("hf.prompt", "s", passes, own, *[t[0] if t else None for t in times])
        for first, last in _buckets(len(done.seconds)):
            about = own | {"from_context": done.prompt + first, "to_context": done.prompt + last - 1}
            means = [sum(t[first:last]) / (last - first) if t else None for t in times]
            yield Record("hf.token", "s", summarise(done.seconds[first:last]), about, *means)
        count = len(done.seconds)
        rates = [count / sum(t) if t else None for t in times]
        yield Record("hf.tokens_per_s", "tokens/s", _single(count / sum(done.seconds)), own, *rates)
        length = done.prompt + count - 1 if done.use_cache else 0  # the last token has not passed
        planned = predictions.bytes_of(model, max(1, length))
        if done.use_cache:
            yield _bytes("cache", done.cache_bytes, own | {"context": length}, planned and planned[1])
        if done.peak_bytes:
            held = planned and planned[0] + (planned[1] if done.use_cache else 0)
            yield _bytes("peak", done.peak_bytes, own, held)
    yield from _saving(generations, steps, common)


def _times(step: StepModel | None, done: Generation) -> list[float] | None:
    """The predicted seconds of each token, as :func:`~roofplan.planner.without_cache.generation_s` adds them up."""
    if step is None:
        return None
    import numpy as np

    lengths = done.prompt + np.arange(len(done.seconds), dtype=float)
    passes = step.step_s(0, 0, chunk=lengths)
    if done.use_cache:
        passes[1:] = step.step_s(1, lengths[1:])
    return [float(seconds) for seconds in passes]


def _saving(
    generations: Sequence[Generation], steps: Sequence[StepModel | None], common: dict[str, Any]
) -> Iterator[Record]:
    """How many times as long it takes without a cache, over the tokens that both have."""
    by_cache = {done.use_cache: done for done in generations}
    if len(by_cache) != 2:
        return
    count = min(len(done.seconds) for done in generations)
    cut = {use: replace(done, seconds=done.seconds[:count]) for use, done in by_cache.items()}
    measured = sum(cut[False].seconds) / sum(cut[True].seconds)
    ratios = []
    for step in steps:
        without, with_cache = _times(step, cut[False]), _times(step, cut[True])
        ratios.append(sum(without) / sum(with_cache) if without and with_cache else None)
    yield Record("hf.cache_saving", "1", _single(measured), common | {"tokens": count}, *ratios)


def _buckets(count: int) -> list[tuple[int, int]]:
    """Positions after the first, in parts of about the same size."""
    parts = max(1, min(_BUCKETS, (count - 1) // _BUCKET))
    ends = [1 + round((count - 1) * part / parts) for part in range(parts + 1)]
    return list(itertools.pairwise(ends))


def _single(value: float) -> Summary:
    """One figure: it has no scatter, and needs none to be told."""
    return Summary(value, value, value, 0.0, 1, (value,))


def _bytes(name: str, counted: float, about: dict[str, Any], planned: int | None) -> Record:
    predicted = None if planned is None else float(planned)
    return Record(f"hf.{name}", "B", _single(float(counted)), dict(about), predicted, predicted)
