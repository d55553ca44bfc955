"""Engines that launch a model layer by layer, one sequence at a time (llama.cpp): the constants of classes of devices, as plain data.

The formulas that they belong to are those of :mod:`roofplan.planner.streams`. Constants stand in ``engines/streams``, with what they were
fitted on and their errors (``python -m roofplan.accuracy.fit.single_stream``).
"""

import functools
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .. import specfiles
from ..quantities import Count, Fraction, Number, PositiveCount, Seconds
from .profile import parse_version
from .spec import Fit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..hardware.spec import HardwareSpec

_FOLDER = Path(str(files("roofplan.engines") / "streams"))
_CONFIG: dict[str, Any] = {"extra": "forbid"}
WIDTHS = (16, 8, 4)


def _check_widths(what: str, shares: "Mapping[str, float]") -> None:
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
class StreamSpread:
    """80 % of measured times lie within x/÷ these: on devices that were measured, and on others of the class (by leaving each out)."""

    measured: Number
    new_device: Number
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def of(self, known: bool) -> float:
        """The width for a device that was measured, or one that was not."""
        return self.measured if known else self.new_device


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
    measured_on : devices that the constants were fitted on
    spread, prompt_spread : the scatter of times per token, and of prompts
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
    measured_on: tuple[str, ...]
    spread: StreamSpread
    prompt_spread: StreamSpread
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        """Refuse shares that leave out a width."""
        _check_widths("bandwidth", self.bandwidth)

    def fits(self, device: "HardwareSpec", build: str) -> bool:
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

    def of(self, device: "HardwareSpec", build: str) -> Stream | None:
        """The first class that a device belongs to."""
        return next((stream for stream in self.streams if stream.fits(device, build)), None)


@functools.cache
def published(engine: str = "llama.cpp") -> Streams | None:
    """The constants that were fitted for an engine; None for engines that launch whole steps as graphs."""
    path = _FOLDER / f"{engine}.yaml"
    return specfiles.validate(Streams, specfiles.read_document(path)) if path.is_file() else None


def _number(build: str) -> int:
    return (parse_version(build) or (0,))[0]
