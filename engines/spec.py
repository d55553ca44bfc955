"""How numbers are stored, and where figures come from: plain data that the planner works on."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..quantities import Count, Fraction, Number, PositiveCount

_CONFIG: dict[str, Any] = {"extra": "forbid"}


TensorClass = Literal["attention", "mlp", "experts", "router", "norm", "embedding", "head", "other"]
# "default" is a setting that an engine's own documentation or code gives.
Kind = Literal["datasheet", "default", "derived", "measured", "fitted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a fitted constant was fitted on, how well it fits, and what it was not fitted on."""

    data: str
    error: str
    not_fitted_on: str
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a figure comes from; a fitted one says how it was fitted."""

    kind: Kind
    source: str
    fit: Fit | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        if (self.kind == "fitted") != (self.fit is not None):
            raise ValueError(
                f"got kind {self.kind} {'with' if self.fit else 'without'} a fit, want a fit where, and only where, it is fitted"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A share of a nominal rate with the spread of what was seen: low, expected, high."""

    low: Fraction
    expected: Fraction
    high: Fraction
    kind: Kind
    source: str
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        if not self.low <= self.expected <= self.high:
            raise ValueError(f"got {self.low} / {self.expected} / {self.high}, want low <= expected <= high")


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFormat:
    """A way to store numbers.

    Bits per element are ``bits + (scale_bits + zero_bits) / group``; without a group the scales are so few that they are not counted. With
    ``sixteen_bit_share`` s the elements have ``(1 - s) bits + 16 s``.

    Parameters
    ----------
    aliases : other names that engines and checkpoints print
    bits : bits of one element
    group : elements that share a scale (128 x 128 blocks: 16384), or null
    scale_bits, zero_bits : bits of a group's scale and zero point
    sixteen_bit_share : share of the elements that stay in 16 bits (columns of outliers)
    covers : what ``--weights NAME`` means: all tensors, or the matrices of the layers only (embeddings, head, router and norms stay 16-bit)
    arithmetic : the arithmetic types that can multiply it natively, best first; the first that the device has is used
    activations : the format of the activations it is served with by default (weight-only formats compute in 16 bits)
    recent : as a cache format, the entries of a sequence that are kept in 16 bits: the last ones
    """

    schema: Literal["roofplan/format/v1"]
    name: str
    aliases: tuple[str, ...] = ()
    bits: PositiveCount
    group: PositiveCount | None = None
    scale_bits: Count = 0
    zero_bits: Count = 0
    sixteen_bit_share: Number = 0
    covers: Literal["all", "linear"] = "linear"
    arithmetic: tuple[str, ...]
    activations: str
    source: str
    recent: Count = 0
    notes: str = ""
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    @property
    def bits_per_element(self) -> float:
        """Mean bits of one element, scales and zero points included."""
        scales = (self.scale_bits + self.zero_bits) / self.group if self.group else 0.0
        return self.bits + self.sixteen_bit_share * (16 - self.bits) + scales

    @property
    def bytes_per_element(self) -> float:
        """Mean bytes of one element."""
        return self.bits_per_element / 8

    def bytes_of(self, elements: int) -> int:
        """Bytes of so many elements, whole groups: the last group may be part filled but stores its scale."""
        scales = -(-elements // self.group) * (self.scale_bits + self.zero_bits) if self.group else 0
        wider = math.ceil(elements * self.sixteen_bit_share) * (16 - self.bits)
        return -(-(elements * self.bits + scales + wider) // 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFormat:
    """What a checkpoint really holds of one tensor class: so many bytes for so many elements, in a mixture of types.

    ``name`` lists the types. Used like a NumberFormat: any number of elements takes its share of the bytes.
    """

    name: str
    elements: int
    stored_bytes: int
    arithmetic: tuple[str, ...]
    activations: str
    source: str

    @property
    def bits(self) -> int:
        """Bits of one element, rounded up: they decide which operand of a product is the wider one."""
        return max(1, -(-self.stored_bytes * 8 // max(1, self.elements)))

    @property
    def bits_per_element(self) -> float:
        """Mean bits of one element."""
        return 8 * self.bytes_per_element

    @property
    def bytes_per_element(self) -> float:
        """Mean bytes of one element."""
        return self.stored_bytes / max(1, self.elements)

    def bytes_of(self, elements: int) -> int:
        """Bytes of so many elements: exact for all of them."""
        return -(-self.stored_bytes * elements // max(1, self.elements))


StorageFormat = NumberFormat | StoredFormat
