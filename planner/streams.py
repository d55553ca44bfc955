"""One model on kernels that are launched layer by layer (llama.cpp): the formulas.

A token for each of B sequences takes

    t = L t_L + L_e t_e + (G - 1) t_d + (W + C / c) b + (B - 1) f / R
    b = ((1 / (eta BW))^4 + (1 / (k u))^4)^(1/4)        R likewise from mu F and k_f u

with L layers of t_L seconds of launches, t_e more for each of L_e layers with routed experts; W bytes of weights that the B tokens touch
(the input table is not read), C bytes of cache, read at c times the rate of weights; f FLOP of one row. ``b`` is seconds per byte: a share
eta of the memory's bandwidth, or k bytes per clock of each of the device's units (Little's law: bytes in flight over latency), whichever is
slower; u = units x clock. G devices that share the layers add no speed: one works at a time, and each border costs t_d.

A prompt is computed in m micro-batches, each of

    L (t_L + t_p) + L_e t_e + (W + 2 W_16) b + (f_dense + f_experts / mu_e) / R + attention

W_16, the weights in 16 bits, only where narrow ones are expanded in memory first (written, and read again). Attention without flash
attention moves its scores, so many FLOP per byte of memory traffic; with it, it is a share of R. With G devices micro-batches follow each
other through the stages: time x max((m + G - 1) / (m G), 1 / min(copies, layers ahead / (L / G))): no more of them are on the way than
copies are kept of the inputs, or than the host can launch ahead.

F of GeForce cards is that of products that accumulate in 16 bits, as llama.cpp's do: twice the rate with 32 bits. Constants, with what they
were fitted on and their errors: engines/streams, from ``python -m roofplan.accuracy.fit.single_stream``; four copies of the
inputs are llama.cpp's own default (GGML_SCHED_MAX_COPIES).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..engines.streams import WIDTHS
from ..errors import DomainError
from ..models.spec import Moe
from .costs import Experts, Load
from .formats import main_class
from .operators import build_operators
from .parallel import SINGLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..engines.streams import Stream
    from .costs import Amount, Bottleneck, Operator
    from .deployment import Deployment

_JOIN = 4  # exponent with which two limits are joined: the slower one counts, both where they are near
_SIXTEEN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is to be done, on which device: numbers, or numpy arrays over rows of a benchmark.

    ``weight_bytes`` and ``flop`` are those of all micro-batches; ``flop`` leaves out experts and attention. ``unit_hz`` is units x clock,
    infinite where unknown; ``rate`` the device's F in FLOP/s.
    """

    layers: Amount
    expert_layers: Amount
    devices: Amount
    sequences: Amount
    tokens: Amount
    micro_batches: Amount
    weight_bytes: Amount
    narrow: Amount
    cache_bytes: Amount
    flop: Amount
    expert_flop: Amount
    attention_flop: Amount
    bandwidth: Amount
    unit_hz: Amount
    rate: Amount


def constants(stream: Stream, bits: int) -> dict[str, float]:
    """The constants of a class for weights of so many bits, by the names that the formulas use; what has no limit is infinite."""
    prompt, width = stream.prompt, str(width_of(bits))
    return {
        "per_layer": stream.per_layer,
        "per_expert_layer": stream.per_expert_layer,
        "per_device": stream.per_device,
        "bandwidth": stream.bandwidth[width],
        "bytes_per_clock": stream.bytes_per_clock or math.inf,
        "cache_bandwidth": stream.cache_bandwidth,
        "compute": prompt.compute[width],
        "flop_per_clock": prompt.flop_per_clock.get(width, math.inf),
        "expert_compute": prompt.expert_compute,
        "prompt_per_layer": prompt.per_layer,
        "dequantised": float(prompt.dequantised),
        "attention_per_byte": prompt.attention_per_byte or math.inf,
        "attention_compute": prompt.attention_compute or math.inf,
        "layers_ahead": prompt.layers_ahead,
        "copies": prompt.copies,
    }


def width_of(bits: int) -> int:
    """The width of 16, 8 and 4 bits that weights count as: types of 5 and 6 bits as 4.

    >>> [width_of(bits) for bits in (16, 9, 5, 2)]
    [16, 8, 4, 4]
    """
    return next((width for width in WIDTHS if width <= bits), WIDTHS[-1])


def _slower(one: Amount, other: Amount) -> Amount:
    """Two limits in seconds joined: about the larger one."""
    return (one**_JOIN + other**_JOIN) ** (1 / _JOIN)


def _greater(one: Amount, other: Amount) -> Amount:
    """The larger of two numbers, or of each pair of two arrays."""
    return (one + other + abs(one - other)) / 2


def byte_s(work: Work, c: Mapping[str, Amount]) -> Amount:
    """Seconds per byte of weights, b."""
    return _slower(1 / (c["bandwidth"] * work.bandwidth), 1 / (c["bytes_per_clock"] * work.unit_hz))


def flop_s(work: Work, c: Mapping[str, Amount]) -> Amount:
    """Seconds per FLOP of products with many rows, 1/R."""
    return _slower(1 / (c["compute"] * work.rate), 1 / (c["flop_per_clock"] * work.unit_hz))


def decode_s(work: Work, c: Mapping[str, Amount]) -> Amount:
    """Seconds of one token for each of the sequences."""
    launches = work.layers * c["per_layer"] + work.expert_layers * c["per_expert_layer"]
    borders = (work.devices - 1) * c["per_device"]
    read = (work.weight_bytes + work.cache_bytes / c["cache_bandwidth"]) * byte_s(work, c)
    rows = (1 - 1 / work.sequences) * (work.flop + work.expert_flop / c["expert_compute"]) * flop_s(work, c)
    return launches + borders + read + rows


def prompt_s(work: Work, c: Mapping[str, Amount]) -> Amount:
    """Seconds until all prompt tokens are computed."""
    of_byte, of_flop = byte_s(work, c), flop_s(work, c)
    launches = work.layers * (c["per_layer"] + c["prompt_per_layer"]) + work.expert_layers * c["per_expert_layer"]
    expanded = c["dequantised"] * work.narrow * 2 * work.micro_batches * work.flop / work.tokens
    moved = (work.weight_bytes + expanded) * of_byte
    products = (work.flop + work.expert_flop / c["expert_compute"]) * of_flop
    attention = work.attention_flop * (of_byte / c["attention_per_byte"] + of_flop / c["attention_compute"])
    stages = (work.micro_batches + work.devices - 1) / (work.micro_batches * work.devices)
    depth = _greater(1, c["layers_ahead"] * work.devices / work.layers)
    # No more micro-batches are on the way than there are copies.
    on_the_way = c["copies"] + depth - _greater(c["copies"], depth)
    return (work.micro_batches * launches + moved + products + attention) * _greater(stages, 1 / on_the_way)


def work_of(
    d: Deployment,
    stream: Stream,
    loads: Sequence[Load],
    half_accumulation: Sequence[str],
    *,
    devices: int,
    sequences: float,
    tokens: float,
    batches: int = 1,
    repeats: int = 1,
    operators: tuple[Operator, ...] = (),
) -> Work:
    """Sum the operators' FLOP and bytes over the loads; ``repeats`` prompts have them, in ``batches`` micro-batches.

    ``half_accumulation`` are the families of chips whose 16-bit products are twice as fast when they accumulate in 16 bits.
    """
    flop = dict.fromkeys(("linear", "experts", "attention"), 0.0)
    weights = cache = 0.0
    for operator in operators or build_operators(d):
        if operator.part in {"elementwise", "link"}:
            continue
        kind = "experts" if isinstance(operator, Experts) else "attention" if "attention" in operator.part else "linear"
        for load in loads:
            cost = operator.cost(load)
            flop[kind] += cost[0]
            weights, cache = weights + cost[1], cache + cost[2]
    if stream.cache_reads == "query_heads":  # two FLOP for each element that a head of the queries meets
        cache = flop["attention"] / 2 * d.formats.kv.bytes_per_element
    units, rate = d.hardware.units, d.hardware.peak.rate(stream.prompt.arithmetic)
    doubled = stream.prompt.arithmetic == "fp16" and units.family in half_accumulation
    return Work(
        layers=d.model.num_layers,
        expert_layers=sum(layer.count for layer in d.model.layers if any(isinstance(part, Moe) for part in layer.mlp)),
        devices=devices,
        sequences=sequences,
        tokens=tokens,
        micro_batches=batches,
        weight_bytes=weights / len(loads) * batches,
        narrow=float(d.formats.weights[main_class(d.model)].bits < _SIXTEEN),
        cache_bytes=cache,
        flop=flop["linear"] * repeats,
        expert_flop=flop["experts"] * repeats,
        attention_flop=flop["attention"] * repeats,
        bandwidth=d.hardware.memory.bandwidth,
        unit_hz=units.count * units.clock if units.count and units.clock else math.inf,
        rate=(rate or math.nan) * (2 if doubled else 1),
    )


@dataclass(frozen=True, slots=True)
class StreamModel:
    """The time of a step on an engine that launches layer by layer, in the place of a :class:`~roofplan.planner.step.StepModel`.

    Prompts are computed in micro-batches, and not in the same launches as tokens that are generated. Devices that share the layers add no
    speed to generation.
    """

    deployment: Deployment
    stream: Stream
    half_accumulation: tuple[str, ...]
    operators: tuple[Operator, ...]
    constants: Mapping[str, float]

    @classmethod
    def of(cls, d: Deployment, stream: Stream, half_accumulation: tuple[str, ...]) -> StreamModel:
        """Build the model of a deployment on a class of devices."""
        bits = d.formats.weights[main_class(d.model)].bits
        whole = replace(
            d, layout=SINGLE
        )  # devices share the layers: each token passes all of them, one after the other
        return cls(d, stream, half_accumulation, build_operators(whole), constants(stream, bits))

    def step_s(
        self,
        decoders: Amount,
        context: Amount,
        *,
        verify: Amount = 1,
        chunk: Amount = 0,
        past: Amount = 0,
        pieces: Amount = 1,
        grouping: str = "operators",
    ) -> Amount:
        """Time of one step in seconds; the arguments are those of :meth:`StepModel.step_s`.

        Raises
        ------
        DomainError : for another grouping than that of operators
        """
        if grouping != "operators":
            raise DomainError("grouping", got=grouping, wanted="operators: layers are launched one by one")
        arguments = (decoders, context, verify, chunk, past, pieces)
        if all(isinstance(argument, (int, float)) for argument in arguments):
            return self._step_s(*arguments)
        import numpy as np

        return np.vectorize(self._step_s, otypes=[float])(*arguments)

    def _step_s(
        self, decoders: float, context: float, verify: float, chunk: float, past: float, pieces: float
    ) -> float:
        total = 0.0
        if decoders:
            total += float(decode_s(self._work([Load(decoders, context, verify)], decoders * verify), self.constants))
        if chunk:
            total += pieces * float(prompt_s(self._prompt(chunk / pieces, past), self.constants))
        return total

    def _prompt(self, tokens: float, past: float) -> Work:
        size = self.deployment.step_tokens
        starts = range(0, math.ceil(tokens), size)
        loads = [Load(0, 0, chunk=min(size, tokens - start), past=past + start) for start in starts]
        return self._work(loads, tokens, len(loads))

    def _work(self, loads: Sequence[Load], tokens: float, batches: int = 1) -> Work:
        return work_of(
            self.deployment,
            self.stream,
            loads,
            self.half_accumulation,
            devices=self.deployment.layout.devices,
            sequences=max(1.0, tokens) if batches == 1 else 1.0,
            tokens=tokens,
            batches=batches,
            operators=self.operators,
        )

    def bottleneck(self, load: Load) -> Bottleneck:
        """What most of the step's time is spent on."""
        c, of_prompt = self.constants, load.has_chunk
        work = self._prompt(load.chunk, load.past) if of_prompt else self._work([load], load.tokens)
        of_byte, rows = byte_s(work, c), 1.0 if of_prompt else 1 - 1 / work.sequences
        spent: dict[Bottleneck, float] = {
            "overhead": work.micro_batches * work.layers * (c["per_layer"] + of_prompt * c["prompt_per_layer"]),
            "weight_bandwidth": work.weight_bytes * of_byte,
            "kv_bandwidth": 0.0 if of_prompt else work.cache_bytes / c["cache_bandwidth"] * of_byte,
            "compute": rows * (work.flop + work.expert_flop / c["expert_compute"]) * flop_s(work, c),
        }
        return max(spent, key=lambda bound: spent[bound])
