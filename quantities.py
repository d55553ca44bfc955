"""Numbers with units: one strict parser and one printer, used by files, options and the library.

Inside roofplan everything is in base units: bytes, bytes per second, FLOP per second, seconds, hertz, watts; bytes and counts are
integers. GB is 10^9 bytes and GiB is 2^30 bytes, and every figure that is printed names its unit.
"""

from __future__ import annotations

import decimal
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from .errors import QuantityError, show

if TYPE_CHECKING:
    from collections.abc import Callable

DECIMAL_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
BINARY_PREFIXES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_SMALL_PREFIXES = {
    "n": decimal.Decimal("1e-9"),
    "u": decimal.Decimal("1e-6"),
    "µ": decimal.Decimal("1e-6"),
    "m": decimal.Decimal("1e-3"),
}

LARGEST_COUNT = 2**53  # beyond it a float no longer holds every integer
LARGEST_BYTES = 2**63 - 1
_LARGEST_NUMBER = decimal.Decimal("1e30")
_LONGEST_TEXT = 48

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)


def _with_prefixes(units: dict[str, int], *, binary: bool) -> dict[str, decimal.Decimal]:
    prefixes = DECIMAL_PREFIXES | (BINARY_PREFIXES if binary else {})
    return {
        prefix + unit: decimal.Decimal(size * scale)
        for unit, scale in units.items()
        for prefix, size in prefixes.items()
    }


@dataclass(frozen=True, slots=True)
class Dimension:
    """A kind of quantity: the spellings of its units, each in base units, and its range."""

    name: str
    units: dict[str, decimal.Decimal] = field(compare=False)
    examples: str
    whole: bool = False
    zero: bool = False
    largest: decimal.Decimal = _LARGEST_NUMBER
    bare: bool = False  # whether a number without unit is accepted


BYTES = Dimension(
    "bytes",
    _with_prefixes({"B": 1}, binary=True),
    "80 GB or 74.5 GiB",
    whole=True,
    zero=True,
    largest=decimal.Decimal(LARGEST_BYTES),
)
BANDWIDTH = Dimension("bandwidth", _with_prefixes({"B/s": 1}, binary=True), "3.35 TB/s or 900 GB/s")
COMPUTE = Dimension("arithmetic rate", _with_prefixes({"FLOP/s": 1, "OP/s": 1}, binary=False), "989.4 TFLOP/s")
TIME = Dimension(
    "time",
    {"s": decimal.Decimal(1), **{prefix + "s": size for prefix, size in _SMALL_PREFIXES.items()}},
    "20 ms or 1.5 s",
    zero=True,
)
FREQUENCY = Dimension("frequency", _with_prefixes({"Hz": 1}, binary=False), "1830 MHz")
POWER = Dimension("power", _with_prefixes({"W": 1}, binary=False), "700 W")
FRACTION = Dimension(
    "fraction",
    {"": decimal.Decimal(1), "%": decimal.Decimal("0.01")},
    "0.9 or 90 %",
    largest=decimal.Decimal(1),
    bare=True,
)
NUMBER = Dimension("number", {"": decimal.Decimal(1)}, "3.99", zero=True, bare=True)
COUNT = Dimension(
    "count", {"": decimal.Decimal(1)}, "8192", whole=True, zero=True, largest=decimal.Decimal(LARGEST_COUNT), bare=True
)
POSITIVE_COUNT = Dimension(
    "count", {"": decimal.Decimal(1)}, "8192", whole=True, largest=decimal.Decimal(LARGEST_COUNT), bare=True
)


def parse(value: object, dimension: Dimension, what: str = "value") -> int | float:
    """Read a quantity in its base unit.

    Text must be a plain decimal number, an optional space and a unit with an SI or IEC prefix. Numbers of Python (from a YAML or JSON
    file) are taken where the dimension has no unit. Refused: booleans, NaN, infinity, negatives, zero where it has no meaning, digits of
    other scripts, underscores, thousand separators, ambiguous prefixes (``128k``, ``80 gb``) and whatever exceeds the dimension's range.

    Returns an ``int`` for whole dimensions (bytes, counts), else a ``float``.

    Raises
    ------
    QuantityError : with the text, the spellings accepted, and where possible both readings of an ambiguous one
    """
    wanted = f"a {dimension.name} such as {dimension.examples}"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise QuantityError(what, got=_kind(value), wanted=wanted)
    if isinstance(value, str):
        number = _parse_text(value, dimension, what, wanted)
    elif not dimension.bare:
        raise QuantityError(what, got=_short(value), wanted=wanted, hint="a number without unit says nothing: add one")
    else:
        number = _exact(value, what, wanted)
    return _checked(number, value, dimension, what, wanted)


def _parse_text(value: str, dimension: Dimension, what: str, wanted: str) -> decimal.Decimal:
    text = value.strip(" ")
    if len(text) > _LONGEST_TEXT:
        raise QuantityError(what, got=f"a text of {len(value)} characters", wanted=wanted)
    match = _NUMBER.match(text)
    if match is None:
        raise QuantityError(what, got=repr(value), wanted=wanted, hint=_hint_for_no_number(text))
    unit = text[match.end() :].lstrip(" ")
    scale = dimension.units.get(unit)
    if scale is None and not (dimension.bare and unit == ""):
        raise QuantityError(what, got=repr(value), wanted=wanted, hint=_hint_for_unit(match.group(), unit, dimension))
    return decimal.Decimal(match.group()) * (scale or 1)


def _exact(value: float, what: str, wanted: str) -> decimal.Decimal:
    if isinstance(value, int) and abs(value) > 10**30:
        raise QuantityError(what, got=_short(value), wanted=wanted)
    return decimal.Decimal(repr(value))


def _checked(number: decimal.Decimal, value: object, dimension: Dimension, what: str, wanted: str) -> int | float:
    got = repr(value) if isinstance(value, str) else _short(value)
    if not number.is_finite():
        raise QuantityError(what, got=got, wanted=wanted)
    if number < 0 or (number == 0 and not dimension.zero):
        raise QuantityError(
            what, got=got, wanted=f"{wanted}, {'zero or more' if dimension.zero else 'greater than zero'}"
        )
    if number > dimension.largest:
        raise QuantityError(what, got=got, wanted=f"{wanted}, at most {dimension.largest:g}")
    if not dimension.whole:
        return float(number)
    if number != number.to_integral_value():
        raise QuantityError(what, got=got, wanted=f"{wanted}: a whole number")
    return int(number)


def _hint_for_no_number(text: str) -> str:
    if text.startswith(("-", "+")):
        return "no sign: the value must be positive"
    if text.startswith("."):
        return f"write 0{text}" if text[1:2].isdigit() and text[1:2].isascii() else ""
    return "plain decimal digits first"


def _hint_for_unit(number: str, unit: str, dimension: Dimension) -> str:
    """Offer the readings of an ambiguous or misspelt unit."""
    if unit.startswith(("_", ",")):
        return "no thousands separators"
    if dimension.bare:
        binary = {prefix[0].lower(): size for prefix, size in BINARY_PREFIXES.items()}.get(unit.lower())
        if binary is not None:
            amount = decimal.Decimal(number)
            size = {prefix.lower(): size for prefix, size in DECIMAL_PREFIXES.items()}[unit.lower()]
            return f"{amount * size:f} or {amount * binary:f}?"
        return "no unit here" if unit else ""
    if not unit:
        return "add the unit"
    near = [known for known in dimension.units if known.lower() == unit.lower()]
    if dimension.name in {"bytes", "bandwidth"}:
        if unit.lower().replace("it", "").rstrip("/s").endswith("b") and "b" in unit and not near:
            return "bits? Give bytes: 8 bits are 1 B"
        near += [known.replace("B", "iB") for known in near if len(known.split("/")[0]) == 2]
    return f"did you mean {' or '.join(f'{number} {name}' for name in near)}?" if near else ""


def _kind(value: object) -> str:
    names = {bool: "a yes/no value", dict: "a mapping", list: "a list", type(None): "nothing"}
    return names.get(type(value), f"a {type(value).__name__}")


def _short(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return f"an integer of {int(value.bit_length() * 0.30103) + 1} digits"
    return show(repr(value), 40)


def parse_bytes(value: object, what: str = "memory") -> int:
    """Read a size in bytes: ``80 GB`` is 80,000,000,000 and ``80 GiB`` is 85,899,345,920."""
    return int(parse(value, BYTES, what))


def parse_count(value: object, what: str = "count") -> int:
    """Read a whole number greater than zero: ``8192``; ``128k`` is refused, since it is 128000 or 131072."""
    return int(parse(value, POSITIVE_COUNT, what))


def parse_fraction(value: object, what: str = "fraction") -> float:
    """Read a fraction in (0, 1]: ``0.9`` or ``90 %``."""
    return float(parse(value, FRACTION, what))


@dataclass(frozen=True, slots=True)
class Unit:
    """Mark a field of a spec as a quantity: files write ``80 GB``, the field holds the base unit.

    The pydantic core is imported only when a schema is built, so that the spec classes stay free of it.
    """

    dimension: Dimension

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Validate with :func:`parse`."""
        from pydantic_core import core_schema

        def validate(value: object) -> int | float:
            try:
                return parse(value, self.dimension, "")
            except QuantityError as error:
                raise ValueError(str(error).removeprefix(": ")) from error

        return core_schema.no_info_plain_validator_function(validate)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        """Describe the field to an editor."""
        described: dict[str, Any] = {"description": f"{self.dimension.name}, such as {self.dimension.examples}"}
        if not self.dimension.bare:
            return described | {"type": "string", "pattern": r"^\d+(\.\d+)?([eE][+-]?\d+)? ?\D+$"}
        lowest = "minimum" if self.dimension.zero else "exclusiveMinimum"
        return described | {"type": "integer" if self.dimension.whole else "number", lowest: 0}


Bytes = Annotated[int, Unit(BYTES)]
Bandwidth = Annotated[float, Unit(BANDWIDTH)]
Compute = Annotated[float, Unit(COMPUTE)]
Seconds = Annotated[float, Unit(TIME)]
Hertz = Annotated[float, Unit(FREQUENCY)]
Watts = Annotated[float, Unit(POWER)]
Fraction = Annotated[float, Unit(FRACTION)]
Number = Annotated[float, Unit(NUMBER)]
Count = Annotated[int, Unit(COUNT)]
PositiveCount = Annotated[int, Unit(POSITIVE_COUNT)]


def _scaled(value: float, steps: tuple[tuple[float, str], ...], digits: int) -> str:
    for size, unit in steps:
        if abs(value) >= size:
            return f"{_significant(value / size, digits)} {unit}"
    size, unit = steps[-1]
    return f"{_significant(value / size, digits)} {unit}"


def _significant(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    decimals = max(0, digits - len(str(int(abs(value)))))
    return f"{value:,.{decimals}f}" if abs(value) >= 1 else f"{value:.{digits}g}"


def show_bytes(value: float, digits: int = 4) -> str:
    """Print a size in binary units, as the drivers' tools do: ``14.96 GiB``."""
    return _scaled(value, ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")), digits)


def show_bandwidth(value: float) -> str:
    """Print a bandwidth in decimal units: ``3.35 TB/s``."""
    return _scaled(value, ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1, "B/s")), 3)


def show_compute(value: float) -> str:
    """Print an arithmetic rate: ``989 TFLOP/s``."""
    return _scaled(value, ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1, "FLOP/s")), 3)


def show_flop(value: float) -> str:
    """Print a number of operations: ``27.6 TFLOP``."""
    return _scaled(value, ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1, "FLOP")), 3)


def show_time(value: float) -> str:
    """Print a time with three digits: ``14.7 ms``."""
    return (
        _scaled(value, ((60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "us")), 3)
        if value < 6000
        else f"{_significant(value / 3600, 3)} h"
    )


def show_count(value: float) -> str:
    """Print a count in full: ``131,072``."""
    return f"{value:,.0f}"


def show_parameters(value: int) -> str:
    """Print a number of parameters as people say it: ``8.03 billion``."""
    return _scaled(value, ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1, "")), 4).strip()


def show_rate(value: float) -> str:
    """Print a rate with three significant digits: ``1,230``."""
    return f"{value:,.0f}" if value >= 1000 else _significant(value, 3)
