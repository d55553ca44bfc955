"""What experiments share: the model at a size that the machine holds, its predictions on both devices, and the making of records.

Predictions are those of the planner for an engine that does nothing but run the reference transformer: no host beside the steps, and as
many small operations as torch dispatches, which are counted and not fitted (:mod:`~roofplan.measure.reference.counting`); what one of them
takes is timed on a model so small that it does nothing else (:func:`operation_s`).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...errors import DomainError, RoofplanError
from ...models.spec import Attention, LatentAttention, LayerGroup, Mlp, ModelSpec, Moe, Source
from ...planner.parameters import count_parameters
from ..allocation import left_out, out_of_memory
from ..known_devices import Devices
from ..records import Record
from ..samples import Summary, summarise
from ..timing import QUICK, STANDARD, graphed, time_call
from .operations import BYTES, TORCH_TYPES, Launching, launches_of, operation_s, step_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...hardware import HardwareSpec
    from ...planner.costs import Load
    from ...planner.step import StepModel
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


def default_model(machine: Machine, *, quick: bool = False) -> ModelSpec:
    """The model of experiments where none is asked for: Llama-shaped; a GPU's as large as served models are, a CPU's some 0.1 billion."""
    if machine.kind == "cuda":
        from ... import models

        return models.load("llama-3.1-8b")
    return small_model(quick=quick)


def small_model(*, quick: bool) -> ModelSpec:
    """A Llama-shaped model of 0.05 (quick) or 0.1 billion weights."""
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
    _launching: Launching = field(default=Launching(), repr=False)
    _steps: dict[tuple[str, str], tuple[StepModel | None, StepModel | None]] = field(default_factory=dict, repr=False)

    @property
    def quick(self) -> bool:
        """Whether the short limits hold: fewer sizes are then measured."""
        return self.limits.most_s <= QUICK.most_s

    @property
    def torch_dtype(self) -> Any:
        """The type by torch's name."""
        import torch

        return getattr(torch, TORCH_TYPES[self.dtype])

    @property
    def element_bytes(self) -> int:
        """Bytes of a weight, an activation and an element of the cache."""
        return BYTES[self.dtype]

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
            self._launching = Launching(*launches_of(model, self.machine), operation_s(self.machine, self.dtype))
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
        inputs: dict[str, float] = {}
        if predict is not None:
            inputs = asdict(self._launching)
            nominal, reached = (None if s is None else float(predict(s)) for s in self.step_models(weights, kv))
        about = {"model": self.spec.name, "layers": self.spec.num_layers, "dtype": self.dtype}
        record = Record(name, unit, summary, about | (parameters or {}), nominal, reached, inputs=inputs)
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
        try:
            return step_model(self.spec, device, self.dtype, self._launching, weights=weights, kv=kv, nominal=nominal)
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
    memory = machine.free_bytes() * _ROOM_SHARE or float(_MOST_BYTES[quick])
    room = min(memory, _MOST_BYTES[quick]) if machine.kind == "cpu" else memory
    try:
        layers = layers_within(spec, room, BYTES[chosen])
    except DomainError:
        # Tables alone may take longer to read than a CPU's share of time; they are measured where there is memory for them.
        layers_within(spec, memory, BYTES[chosen])
        layers = len(spec.layers)
    if layers < spec.num_layers:
        size = count_parameters(spec).total * BYTES[chosen] / 1e9
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
