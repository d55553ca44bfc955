"""What experiments share: the model at a size that the machine holds, its predictions on both devices, and the making of records.

Predictions are those of the planner for an engine that does nothing but run the reference transformer: no host beside the steps, and as
many small operations as torch dispatches, which are counted and not fitted (:mod:`~roofplan.measure.reference.counting`); what one of them
takes is timed on a model so small that it does nothing else (:func:`operation_s`).
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...errors import RoofplanError
from ...models.spec import Attention, LatentAttention, LayerGroup, Mlp, ModelSpec, Moe, Source
from ...planner.costs import Elementwise, Load
from ...planner.parameters import count_parameters
from ...planner.step import StepModel
from ..allocation import left_out, out_of_memory
from ..known_devices import Devices
from ..records import Record
from ..samples import Summary, summarise
from ..timing import QUICK, STANDARD, graphed, time_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...hardware import HardwareSpec
    from ..machine import Machine
    from ..reference.caches import Cache
    from ..reference.model import Reference
    from ..timing import Clock, Limits

    Predict = Callable[[StepModel], float]

CACHES = (
    4  # a working set of so many last caches is read from memory; a smaller one is timed with the caches overwritten
)
_ROOM_SHARE = 0.4  # of the free memory that weights may take
_MOST_BYTES = {
    True: 2**29,
    False: 2**31,
}  # of weights on a CPU, quick or not: a step over more takes longer than it tells
_TORCH_TYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
_PROMPTS = (16, 32)  # tokens of the passes from whose difference the traffic of one token is counted


def default_model(machine: Machine, *, quick: bool = False) -> ModelSpec:
    """The model of experiments where none is asked for: Llama-shaped; a GPU's as large as served models are, a CPU's some 0.1 billion."""
    if machine.kind == "cuda":
        from ... import models

        return models.load("llama-3.1-8b")
    attention = Attention(kind="full", num_heads=16, num_kv_heads=4, head_dim=64)
    group = LayerGroup(
        count=4 if quick else 8, attention=(attention,), mlp=(Mlp(kind="gated", intermediate_size=2816),)
    )
    return ModelSpec(
        schema="roofplan/model/v1",
        name="measured-54m" if quick else "measured-107m",
        sources=(Source(kind="user", source="the shape that roofplan measures where none is asked for"),),
        hidden_size=1024,
        vocab_size=8192 if quick else 16384,
        tied_embeddings=True,
        layers=(group,),
    )


def default_dtype(machine: Machine) -> str:
    """The type of weights, activations and cache: 16 bits on a GPU, 32 on a CPU."""
    return {"cuda": "bf16", "mps": "fp16"}.get(machine.kind, "fp32")


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


@dataclass(slots=True)
class Bench:
    """One experiment on one machine.

    Parameters
    ----------
    machine, limits, devices : see :func:`roofplan.measure.running.measure`
    spec : of the model, at the depth that is built
    dtype : fp32, bf16 or fp16
    say : gets what was left out or made smaller
    records : gets each record as it is made
    clock : for tests
    """

    machine: Machine
    spec: ModelSpec
    limits: Limits = STANDARD
    devices: Devices = field(default_factory=Devices)
    dtype: str = "fp32"
    say: Callable[[str], None] = left_out
    records: list[Record] = field(default_factory=list)
    clock: Clock | None = None
    _launches: tuple[float, float] = field(default=(1.0, 0.0), repr=False)
    _steps: dict[tuple[str, str], tuple[StepModel | None, StepModel | None]] = field(default_factory=dict, repr=False)

    @property
    def quick(self) -> bool:
        """Whether the short limits hold: fewer sizes are then measured."""
        return self.limits.most_s <= QUICK.most_s

    @property
    def torch_dtype(self) -> Any:
        """The type by torch's name."""
        import torch

        return getattr(torch, _TORCH_TYPES[self.dtype])

    @property
    def element_bytes(self) -> int:
        """Bytes of a weight, an activation and an element of the cache."""
        return _BYTES[self.dtype]

    # -------------------------------------------------------------------------------------------- the model

    def model(self, **options: Any) -> Reference:
        """The reference transformer of the spec, and, once, the count of what it launches.

        Parameters
        ----------
        options : of :class:`~roofplan.measure.reference.model.Reference`
        """
        from ..reference.model import Reference

        packed = self.machine.kind == "cpu"
        model = Reference(self.spec, self.torch_dtype, self.machine.torch_device, **({"packed": packed} | options))
        if not self._steps:
            self._launches = _launches_of(model, self.machine)
        return model

    def decode(self, model: Reference, batch: int, context: int, **cache: Any) -> tuple[Callable[[], Any], Cache]:
        """A step that decodes one token for each of some sequences, of so many tokens with the new one; and its cache.

        The cache is filled with random numbers: a step reads whatever is in it, and a prompt for it would take its time.
        """
        held = filled(model.cache(batch, context, **cache))
        new = model.tokens(batch, 1)

        def step() -> Any:
            held.length = context - 1
            return model(new, held)

        return self.launched(step), held

    def launched(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """A call as a graph where the machine has graphs and the model does not choose experts on the host."""
        chooses = any(isinstance(part, Moe) for group in self.spec.layers for part in group.mlp)
        return call if chooses else graphed(call, self.machine)

    def of(self, spec: ModelSpec, dtype: str | None = None) -> Bench:
        """The same bench for another model or another type; records go to the same list."""
        return replace(self, spec=spec, dtype=dtype or self.dtype, _steps={})

    @contextmanager
    def within_memory(self, what: str) -> Iterator[None]:
        """Leave a size out, and say so, when there is no memory for it."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            self.machine.empty_cache()
            self.say(f"{what}: no memory for it; left out")

    # -------------------------------------------------------------------------------------------- records

    def time(self, call: Callable[[], Any], moved_bytes: float = 0) -> Summary:
        """Time a call; caches are overwritten before each sample where what it reads would fit into them."""
        cold = 0 < moved_bytes < CACHES * self.machine.cache_bytes
        return time_call(call, machine=self.machine, limits=self.limits, cold=cold, clock=self.clock)

    def add(
        self,
        name: str,
        unit: str,
        measured: Summary | float,
        parameters: dict[str, Any] | None = None,
        *,
        predict: Predict | None = None,
        predicted: float | None = None,
        pair: tuple[float | None, float | None] | None = None,
        weights: str = "",
        kv: str = "",
    ) -> Record:
        """Make a record.

        Parameters
        ----------
        measured : samples, or one figure that has no scatter (bytes)
        predict : evaluates a step model: by the data sheet at nominal rates, by the measured device with its kernels
        predicted : a figure that depends on no device
        pair : predictions by the data sheet and by the measured device, as they are
        weights, kv : formats of the prediction where they are not the model's type
        """
        summary = measured if isinstance(measured, Summary) else one_figure(measured)
        nominal, reached = pair or (predicted, predicted)
        if predict is not None:
            nominal, reached = (None if s is None else float(predict(s)) for s in self.step_models(weights, kv))
        about = {"model": self.spec.name, "layers": self.spec.num_layers, "dtype": self.dtype}
        record = Record(name, unit, summary, about | (parameters or {}), nominal, reached)
        self.records.append(record)
        return record

    def amounts(self, load: Load, weights: str = "", kv: str = "") -> dict[str, float]:
        """Bytes and FLOP of a step as the planner counts them, weights and cache; the tests hold them against tensors."""
        for model in self.step_models(weights, kv):
            if model is not None:
                flop, read, cached = model.totals(load)
                return {"bytes": float(read + cached), "flop": float(flop)}
        return {}

    # -------------------------------------------------------------------------------------------- predictions

    def step_models(self, weights: str = "", kv: str = "") -> tuple[StepModel | None, StepModel | None]:
        """The step models of the data sheet (nominal rates) and of the measured device (its kernels); None where there is no device."""
        found = self._steps.get((weights, kv))
        if found is None:
            found = (
                self._step(self.devices.datasheet, weights, kv, nominal=True),
                self._step(self.devices.measured, weights, kv, nominal=False),
            )
            self._steps[weights, kv] = found
        return found

    def _step(self, device: HardwareSpec | None, weights: str, kv: str, *, nominal: bool) -> StepModel | None:
        if device is None:
            return None
        from ... import engines
        from ...api.building import deployment

        operations, passes = self._launches
        plain = engines.load("plain")
        timing = replace(
            plain.timing,
            host_per_step=0.0,
            host_per_sequence=0.0,
            prompt_floor=0.0,
            expert_prompt_floor=0.0,
            small_kernels=operations,
            layer_passes=passes,
        )
        try:
            built = deployment(
                self.spec,
                device,
                weights=f"all={self.dtype},{weights}" if weights else f"all={self.dtype}",
                kv=kv or self.dtype,
                activations=self.dtype,
                engine=replace(plain, timing=timing),
            )
            if nominal or built.kernels is None:
                return StepModel.of(built)
            # The planner counts in floors of the device's small kernels; an operation of this transformer takes longer on a host.
            floor = built.kernels.elementwise.floor
            longer = operation_s(self.machine, self.dtype) / floor if floor else 1.0
            timing = replace(timing, small_kernels=operations * longer)
            return StepModel.reached(replace(built, engine=replace(built.engine, timing=timing)))
        except RoofplanError as error:
            self.say(f"no prediction for {self.spec.name} on {device.name}: {error}")
            return None


def bench(
    machine: Machine,
    model: ModelSpec | None = None,
    limits: Limits = STANDARD,
    *,
    devices: Devices | None = None,
    dtype: str | None = None,
    say: Callable[[str], None] = left_out,
    into: list[Record] | None = None,
    clock: Clock | None = None,
) -> Bench:
    """Prepare an experiment: the model asked for at the depth that fits the machine, which is said where it is not the whole.

    Raises
    ------
    DomainError : for a model of which not even one layer of each kind fits, or that has layers which are not built
    """
    from ..reference.depth import at_depth, layers_within
    from ..reference.model import check_built

    quick = limits.most_s <= QUICK.most_s
    spec = model or default_model(machine, quick=quick)
    chosen = dtype or default_dtype(machine)
    check_built(spec)
    room = machine.free_bytes() * _ROOM_SHARE
    if machine.kind == "cpu":
        room = min(room, _MOST_BYTES[quick]) if room else _MOST_BYTES[quick]
    layers = layers_within(spec, room, _BYTES[chosen])
    if layers < spec.num_layers:
        size = count_parameters(spec).total * _BYTES[chosen] / 1e9
        say(
            f"{spec.name}: {layers} of its {spec.num_layers} layers, since {size:.1f} GB of weights exceed {room / 1e9:.1f} GB"
        )
        spec = at_depth(spec, layers)
    records = [] if into is None else into
    return Bench(machine, spec, limits, devices or Devices(), chosen, say, records, clock)


def forgets(spec: ModelSpec, *, latents: bool = True) -> bool:
    """Whether layers keep anything but keys and values of all tokens: windows, latents and index keys (where asked), states, a memory."""
    mixers = [mixer for group in spec.layers for mixer in group.attention]
    if not latents:
        return any(not isinstance(mixer, (Attention, LatentAttention)) for mixer in mixers)
    return any(not isinstance(mixer, Attention) or mixer.window is not None or mixer.indexer for mixer in mixers)


def operator_s(steps: StepModel, name: str, load: Load) -> float:
    """Seconds of the operators of a name in a step."""
    return sum(cost.time_s for cost in steps.costs(load) if cost.name == name)


def copied_s(steps: StepModel, moved_bytes: float) -> float:
    """Seconds of copying so many bytes (read and written ones added up), at the rate of a step model's small operations."""
    rate = next(
        time.s_per_byte for operator, time in zip(steps.operators, steps.times, strict=True) if operator.name == "norm"
    )
    return moved_bytes * rate


def one_figure(value: float) -> Summary:
    """A figure that is counted and not timed: one sample, without a doubt about their number."""
    return replace(summarise([value]), warnings=())


def filled(cache: Cache) -> Cache:
    """The cache with random numbers in it, as many as it holds."""
    for layer in cache.layers:
        for own in layer:
            parts = own, getattr(own, "main", None), getattr(own, "index", None)
            for tensor in (getattr(part, name, None) for part in parts for name in ("keys", "values", "entries")):
                if tensor is not None:
                    tensor.uniform_(-1, 1)
    return cache


def _launches_of(model: Reference, machine: Machine) -> tuple[float, float]:
    """Small operations of a step for each that the planner counts, and passes over a token's vector beyond those that it counts.

    On a CPU, and wherever operations are launched one by one, a view costs the host as much as a small operation.
    """
    from ... import engines
    from ...planner.deployment import Deployment, Workload
    from ...planner.formats import Formats, parse_weights
    from ...planner.operators import build_operators
    from ..reference.counting import count_launches

    cache = model.cache(1, _PROMPTS[0])
    cache.length = _PROMPTS[0] - 1
    token = model.tokens(1, 1)
    step = count_launches(lambda: model(token, cache))
    moved = []
    for count in _PROMPTS:
        tokens, held = model.tokens(1, count), model.cache(1, count)
        moved.append(count_launches(lambda t=tokens, h=held: model(t, h)).small_bytes)  # type: ignore[misc]
    of_token = (moved[1] - moved[0]) / (_PROMPTS[1] - _PROMPTS[0])
    format_ = engines.load_format(next(name for name, size in _BYTES.items() if size == model.dtype.itemsize))
    formats = Formats(format_.name, parse_weights(f"all={format_.name}", engines.load_format), format_, format_)
    operators = build_operators(Deployment(model.spec, _any_device(), formats, engines.load("plain"), Workload(1, 1)))
    small = [operator for operator in operators if isinstance(operator, Elementwise)]
    launched = step.small + (0 if machine.kind == "cuda" else step.views)
    counted = sum(operator.bytes_per_token for operator in small)
    vectors = model.spec.num_layers * model.spec.hidden_size * model.dtype.itemsize
    return launched / sum(operator.launches for operator in small), max(0.0, (of_token - counted) / vectors)


@functools.cache
def operation_s(machine: Machine, dtype: str) -> float:
    """Seconds of one operation that torch dispatches for the reference transformer, Python's part of it included: that of a tiny one.

    A model of a few thousand weights does nothing but launch. On a device with graphs it is what a kernel of a graph takes.
    """
    import torch

    from ..reference.counting import count_launches
    from ..reference.model import Reference

    built = Reference(_TINY, getattr(torch, _TORCH_TYPES[dtype]), machine.torch_device, packed=machine.kind == "cpu")
    cache, token = built.cache(1, _PROMPTS[0]), built.tokens(1, 1)

    def step() -> Any:
        cache.length = _PROMPTS[0] - 1
        return built(token, cache)

    found = count_launches(step)
    launched = found.products + found.small + (0 if machine.kind == "cuda" else found.views)
    return time_call(graphed(step, machine), machine=machine, limits=QUICK).median / launched


def _any_device() -> HardwareSpec:
    """A device for operators, which are counted and not timed."""
    from ...hardware.spec import Evidence, HardwareSpec, Memory, Peak

    return HardwareSpec(
        schema="roofplan/hardware/v1",
        name="any",
        memory=Memory(nameplate=2**40, bandwidth=1.0),
        peak=Peak(fp32=1.0),
        evidence=(Evidence(figures=("memory", "peak"), kind="derived", source="units"),),
    )
