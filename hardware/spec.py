"""What roofplan knows of one device: capacity, bandwidth, dense peaks, links, power, price, and what was really reached.

The classes are plain frozen dataclasses (the planner works on them); the annotations let the file edge validate YAML against them.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..engines.spec import Band, Kind
from ..errors import SpecError
from ..quantities import Bandwidth, Bytes, Capacity, Compute, Hertz, Number, PositiveCount, Watts
from .achieved import Topology

SCHEMA = "roofplan/hardware/v1"
_CONFIG: dict[str, Any] = {"extra": "forbid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Device memory.

    ``nameplate`` is the advertised size, ``reported`` what the driver's tools show, and ``visible`` the somewhat smaller size that a
    program is told (what CUDA reports), which serving engines plan with. ``bandwidth`` is the nominal rate in bytes per second.
    """

    nameplate: Capacity
    bandwidth: Bandwidth
    reported: Capacity | None = None
    visible: Capacity | None = None
    bus_bits: PositiveCount | None = None
    data_rate: Hertz | None = None  # transfers per second and line
    technology: str = ""
    shared_with_host: bool = False
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    @property
    def total_bytes(self) -> int:
        """The size that the driver's tools show, else the nameplate."""
        return self.reported if self.reported is not None else self.nameplate

    def total_key(self, wanted: str = "reported") -> str:
        """The key of the figure that is the total: ``visible`` where that is wanted and known, else reported, else the nameplate."""
        known = {"visible": self.visible, "reported": self.reported}
        for key in ("visible", "reported") if wanted == "visible" else ("reported",):
            if known[key] is not None:
                return f"memory.{key}"
        return "memory.nameplate"

    def total(self, wanted: str = "reported") -> int:
        """The size that :meth:`total_key` names."""
        size: int = getattr(self, self.total_key(wanted).removeprefix("memory."))
        return size


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Dense peak rates in FLOP/s by arithmetic type, with 32-bit accumulation; absent where the device has no such unit."""

    fp32: Compute | None = None
    tf32: Compute | None = None
    fp16: Compute | None = None
    bf16: Compute | None = None
    fp8: Compute | None = None
    int8: Compute | None = None
    fp4: Compute | None = None
    int4: Compute | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def rate(self, arithmetic: str) -> float | None:
        """Give the peak of one arithmetic type, or None."""
        rate: float | None = getattr(self, arithmetic, None)
        return rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The parts of a chip from which a peak follows: units x rate of its family x clock."""

    family: str = ""  # of families.yaml: the rates of one unit
    count: PositiveCount | None = None
    clock: Hertz | None = None
    cache: Bytes | None = None
    cache_bandwidth: Bandwidth | None = None  # of the last cache before memory, all units together
    capped: bool = False  # the peak is limited by licence or power, so that it does not follow from the units
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A way between devices: bytes per second in one direction, per device, and how the devices are joined."""

    name: str
    per_direction: Bandwidth
    topology: Topology
    domain: PositiveCount = 1  # how many devices it joins
    between_pair: Bandwidth | None = None  # of a mesh: what one pair of devices can use
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def among(self, devices: int) -> float:
        """Bytes per second of one device in one direction when so many exchange: in a mesh only the links between them count."""
        if self.between_pair is None:
            return self.per_direction
        return min(self.per_direction, self.between_pair * (devices - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Achieved:
    """The shares of the nominal rates that kernels reach: reading memory, and large matrix products; None where nobody measured.

    ``kernels`` changes what the kernels of the device's family reach (see ``hardware/kernels``), or names another family to extend.
    """

    bandwidth: Band | None = None
    compute: Band | None = None
    kernels: dict[str, Any] | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


NOT_MEASURED = Achieved()


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A price as somebody asked it on a day; it rots, so it carries both."""

    usd_per_hour: Number
    provider: str
    as_of: str
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Where figures come from: the keys it covers (``memory.bandwidth``, ``peak`` for all peaks), their kind and source."""

    figures: tuple[str, ...]
    kind: Kind
    source: str
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareSpec:
    """One device, as the planner sees it: what a driver shows as one.

    All figures (memory, bandwidth, peaks, units, links, power, price) and ``node_size`` count devices. ``devices_per_package`` only tells
    that so many of them share a package (2 on MI250X, each with half of what its data sheet prints); nothing is multiplied by it.
    """

    schema: Literal["roofplan/hardware/v1"]
    name: str
    memory: Memory
    peak: Peak
    evidence: tuple[Evidence, ...]
    title: str = ""
    vendor: str = ""
    architecture: str = ""
    form: str = ""
    aliases: tuple[str, ...] = ()
    units: Units = Units()
    links: tuple[Link, ...] = ()
    power: Watts | None = None
    price: Price | None = None
    devices_per_package: PositiveCount = 1
    node_size: PositiveCount = 1
    achieved: Achieved = NOT_MEASURED
    confidence: Literal["verified-2", "derived", "single-source", "low"] = "single-source"
    notes: str = ""
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    @property
    def has_rates(self) -> bool:
        """Whether any dense rate is known; without one, times of compute cannot be given."""
        return any(self.peak.rate(arithmetic) is not None for arithmetic in ARITHMETIC_TYPES)

    def arithmetic(self, wanted: tuple[str, ...]) -> str:
        """Choose the first arithmetic type of a list that the device has; the last one where no rate of it is known at all.

        Raises
        ------
        SpecError : when rates are known, but none of them
        """
        if not self.has_rates:
            return wanted[-1]
        for name in wanted:
            if self.peak.rate(name) is not None:
                return name
        raise SpecError(f"{self.name}.peak", got="no dense rate", wanted=f"one of {', '.join(wanted)}")

    def ridge(self, arithmetic: str) -> float | None:
        """Ridge point F/W in FLOP per byte (Williams, Waterman, Patterson 2009); None without such a rate."""
        rate = self.peak.rate(arithmetic)
        return None if rate is None else rate / self.memory.bandwidth

    def link(self, devices: int) -> Link | None:
        """The fastest link that joins so many devices, or None where none is known."""
        fitting = [link for link in self.links if link.domain >= devices]
        return max(fitting, key=lambda link: link.among(devices), default=None)

    def evidence_of(self, figure: str) -> Evidence | None:
        """Find the evidence of a figure, by its own key or by that of the group it stands in."""
        for evidence in self.evidence:
            if any(figure == key or figure.startswith(f"{key}.") for key in evidence.figures):
                return evidence
        return None


ARITHMETIC_TYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4", "int4")
