"""One model on kernels that are launched layer by layer (llama.cpp): the constants of device classes, and the formulas.

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
were fitted on and their errors: accuracy/fit/llama_cpp.yaml, from ``python -m roofplan.accuracy.fit.single_stream``; four copies of the
inputs are llama.cpp's own default (GGML_SCHED_MAX_COPIES).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .. import specfiles
from ..engines.profile import parse_version
from ..engines.spec import Fit
from ..quantities import Count, Fraction, Number, PositiveCount, Seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..hardware.spec import HardwareSpec
    from ..planner.costs import Amount

_CONFIG: dict[str, Any] = {"extra": "forbid"}
WIDTHS = (16, 8, 4)
_JOIN = 4  # exponent with which two limits are joined: the slower one counts, both where they are near


def _check_widths(what: str, shares: Mapping[str, float]) -> None:
    if sorted(shares) != sorted(map(str, WIDTHS)):
        raise ValueError(f"got {what} for {', '.join(shares)} bits, want it for {', '.join(map(str, WIDTHS))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Constants of a micro-batch of prompt tokens.

    Parameters
    ----------
    arithmetic : the device's rate that F is
    compute : mu, the share of it, by bits of the weights
    flop_per_clock : k_f, most FLOP of one unit and clock, by bits of the weights; no limit for widths that are left out
    expert_compute : mu_e, the part of R that products of routed experts reach
    per_layer : t_p, seconds of a layer beside those of a single token
    dequantised : narrow weights are expanded to 16 bits in memory before they are multiplied
    attention_per_byte : FLOP of attention per byte that could be read meanwhile, or null
    attention_compute : instead, the share of R that attention reaches
    layers_ahead : layers that the host launches ahead of a device
    copies : micro-batches that are on the way at once
    """

    arithmetic: Literal["fp16", "fp32", "int8"]
    compute: dict[str, Fraction]
    flop_per_clock: dict[str, Number] = field(default_factory=dict)
    expert_compute: Fraction = 1.0
    per_layer: Seconds = 0.0
    dequantised: bool = False
    attention_per_byte: Number | None = None
    attention_compute: Fraction | None = None
    layers_ahead: Number = 27
    copies: PositiveCount = 4
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        """Refuse attention that is limited twice, or not at all, and shares that leave out a width."""
        _check_widths("compute", self.compute)
        if (self.attention_per_byte is None) == (self.attention_compute is None):
            raise ValueError("got both or none of attention_per_byte and attention_compute, want one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Constants of one class of devices.

    Parameters
    ----------
    since : the first build that they hold for
    vendors, forms, memory, architectures : texts, one of which the device's own text contains; empty: any
    units_at_least : least units of such a device (an Apple chip of two dies has 48 or more)
    per_layer, per_expert_layer, per_device : t_L, t_e and t_d
    bandwidth : eta, by bits of the weights
    bytes_per_clock : k, of one unit, or null where no limit beside the bandwidth was seen
    cache_bandwidth : c, the rate of reading the cache, in that of reading weights
    cache_reads : whether keys and values are read once for each of their heads, or again for each head of the queries
    """

    name: str
    since: str = ""
    vendors: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    units_at_least: Count = 0
    per_layer: Seconds
    per_expert_layer: Seconds = 0.0
    per_device: Seconds = 0.0
    bandwidth: dict[str, Fraction]
    bytes_per_clock: Number | None = None
    cache_bandwidth: Fraction
    cache_reads: Literal["kv_heads", "query_heads"] = "kv_heads"
    prompt: Prompt
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        """Refuse shares that leave out a width."""
        _check_widths("bandwidth", self.bandwidth)

    def fits(self, device: HardwareSpec, build: str) -> bool:
        """Whether the constants are those of a device in a build."""
        texts = (
            (device.vendor, self.vendors),
            (device.form, self.forms),
            (device.memory.technology, self.memory),
            (device.architecture, self.architectures),
        )
        known = all(not wanted or any(part in text for part in wanted) for text, wanted in texts)
        return known and (device.units.count or 0) >= self.units_at_least and _number(build) >= _number(self.since)


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The file of constants.

    ``half_accumulation`` : families of chips whose 16-bit products are twice as fast when they accumulate in 16 bits; a fact of the device
    """

    schema: Literal["roofplan/streams/v1"]
    fit: Fit
    half_accumulation: tuple[str, ...]
    streams: tuple[Stream, ...]
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def of(self, device: HardwareSpec, build: str) -> Stream | None:
        """The first class that a device belongs to."""
        return next((stream for stream in self.streams if stream.fits(device, build)), None)


@functools.cache
def published() -> Streams:
    """The constants that were fitted."""
    path = Path(str(files("roofplan.accuracy"))) / "fit" / "llama_cpp.yaml"
    return specfiles.validate(Streams, specfiles.read_document(path))


def _number(build: str) -> int:
    return (parse_version(build) or (0,))[0]


# ------------------------------------------------------------------------------------------------ the formulas


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
