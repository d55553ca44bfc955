"""Numbers with units: one strict parser and one printer, used by files, options and the library.

Inside roofplan everything is in base units: bytes, bytes per second, FLOP per second, seconds, hertz, watts; bytes and counts are
integers. GB is 10^9 bytes and GiB is 2^30 bytes, and every figure that is printed names its unit.
"""

from __future__ import annotations

import decimal
import numbers
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, get_args

from .errors import QuantityError, show

if TYPE_CHECKING:
    from collections.abc import Callable

DECIMAL_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
BINARY_PREFIXES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_SMALL_PREFIXES = {
    "n": decimal.Decimal("1e-9"),
    "u": decimal.Decimal("1e-6"),
    "\N{MICRO SIGN}": decimal.Decimal("1e-6"),
    "\N{GREEK SMALL LETTER MU}": decimal.Decimal("1e-6"),
    "m": decimal.Decimal("1e-3"),
}

LARGEST_COUNT = 2**53  # beyond it a float no longer holds every integer
LARGEST_BYTES = 2**63 - 1
LARGEST_SEQUENCE = 2**24  # tokens: beyond any model, and few enough to walk through a prompt chunk by chunk
_LARGEST_NUMBER = decimal.Decimal("1e30")
_SMALLEST_NUMBER = decimal.Decimal("1e-30")  # what is smaller, but not zero, would end in a division by zero
_ROUNDED_FROM_BYTES = 10**6
_LONGEST_TEXT = 48
_EXACT = decimal.Context(prec=100)  # the texts that are accepted need fewer digits; the caller's own context may round

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
    article: str = "a "

    @property
    def wanted(self) -> str:
        """What an error says that it wants."""
        return f"{self.article}{self.name} such as {self.examples}"


BYTES = Dimension(
    "bytes",
    _with_prefixes({"B": 1}, binary=True),
    "80 GB or 74.5 GiB",
    whole=True,
    zero=True,
    largest=decimal.Decimal(LARGEST_BYTES),
    article="",
)
CAPACITY = replace(BYTES, zero=False)
BANDWIDTH = Dimension("bandwidth", _with_prefixes({"B/s": 1}, binary=True), "3.35 TB/s or 900 GB/s")
COMPUTE = Dimension(
    "arithmetic rate",
    _with_prefixes({"FLOP/s": 1, "OP/s": 1}, binary=False),
    "989.4 TFLOP/s",
    article="an ",
)
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
ARRIVALS = Dimension(
    "rate of requests",
    {"": decimal.Decimal(1), "/s": decimal.Decimal(1), "req/s": decimal.Decimal(1)},
    "6.5 or 6.5/s",
    bare=True,
)
NUMBER = Dimension("number", {"": decimal.Decimal(1)}, "3.99", zero=True, bare=True)
COUNT = Dimension(
    "count", {"": decimal.Decimal(1)}, "8192", whole=True, zero=True, largest=decimal.Decimal(LARGEST_COUNT), bare=True
)
POSITIVE_COUNT = Dimension(
    "count", {"": decimal.Decimal(1)}, "8192", whole=True, largest=decimal.Decimal(LARGEST_COUNT), bare=True
)
TOKENS = Dimension(
    "number of tokens",
    {"": decimal.Decimal(1)},
    "8192",
    whole=True,
    largest=decimal.Decimal(LARGEST_SEQUENCE),
    bare=True,
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
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        value = int(value)  # numpy's integers too
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise QuantityError(what, got=_kind(value), wanted=dimension.wanted)
    if isinstance(value, str):
        number = _parse_text(value, dimension, what)
    elif not dimension.bare:
        hint = "a number without unit says nothing: add one"
        raise QuantityError(what, got=_short(value), wanted=dimension.wanted, hint=hint)
    else:
        number = _exact(value, dimension, what)
    return _checked(number, value, dimension, what)


def _parse_text(value: str, dimension: Dimension, what: str) -> decimal.Decimal:
    text = value.strip(" ")
    if len(text) > _LONGEST_TEXT:
        raise QuantityError(what, got=f"a text of {len(value):,} characters", wanted=dimension.wanted)
    match = _NUMBER.match(text)
    if match is None:
        raise QuantityError(what, got=repr(value), wanted=dimension.wanted, hint=_hint_for_no_number(text))
    number, unit = match.group(), text[match.end() :].lstrip(" ")
    scale = dimension.units.get(unit)
    if scale is None:
        hint = _hint_for_unit(number, unit, dimension)
        raise QuantityError(what, got=repr(value), wanted=dimension.wanted, hint=hint)
    return _EXACT.multiply(decimal.Decimal(number), scale)


def _exact(value: float, dimension: Dimension, what: str) -> decimal.Decimal:
    if isinstance(value, int) and abs(value) > 10**30:
        raise QuantityError(what, got=_short(value), wanted=dimension.wanted)
    return decimal.Decimal(repr(float(value)) if isinstance(value, float) else value)


def _checked(number: decimal.Decimal, value: object, dimension: Dimension, what: str) -> int | float:
    def refused(wanted: str, hint: str = "") -> QuantityError:
        got = repr(value) if isinstance(value, str) else _short(value)
        return QuantityError(what, got=got, wanted=f"{dimension.wanted}{wanted}", hint=hint)

    if not number.is_finite():
        raise refused("")
    if number < 0 or (number == 0 and not dimension.zero):
        raise refused(", zero or more" if dimension.zero else ", greater than zero")
    if number > dimension.largest:
        raise refused(f", at most {dimension.largest:g}")
    if dimension.whole:
        whole = number.to_integral_value()
        # Logs print 79.18 GiB: of so large a size the part of a byte is rounding and no mistake.
        rounded = "B" in dimension.units and number >= _ROUNDED_FROM_BYTES
        if number != whole and not rounded:
            raise refused(": a whole number", f"{whole:f} B is the nearest" if "B" in dimension.units else "")
        return int(whole)
    if 0 < number < _SMALLEST_NUMBER:
        raise refused(f", at least {_SMALLEST_NUMBER:g}")
    return float(number)


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
    if not unit:
        return "add the unit"
    if not (unit[0].isalpha() or unit[0] == "%"):
        return "plain decimal digits, then the unit" if not dimension.bare else "plain decimal digits only"
    if dimension.bare:
        readings = _readings(number, unit.partition(" ")[0], dimension) if dimension.whole else []
        return f"{' or '.join(readings)}?" if readings else "no unit here"
    near = [known for known in dimension.units if _spelling(known) == _spelling(unit)]
    binary = [_with_binary_prefix(known) for known in near]
    near += [known for known in binary if known in dimension.units and known not in near]
    meant = f"did you mean {' or '.join(f'{number} {known}' for known in near)}?" if near else ""
    if _BITS.fullmatch(unit) and any("B" in known for known in dimension.units):
        return f"bits? 8 bits are 1 B{'; ' if meant else ''}{meant}"
    return meant


_BITS = re.compile(r"(?:[kKMGTPE]i?)?(?:b|bits?)(?:/s|ps)?", re.ASCII)


def _spelling(unit: str) -> str:
    """Reduce a unit to what its spellings have in common: ``TFLOPS``, ``tflop`` and ``TFLOP/s``; ``GBps`` and ``Gbit/s``."""
    return re.sub(r"(?:/s|(?<=b)ps|s)+$", "", unit.lower().replace("bit", "b"))


def _with_binary_prefix(unit: str) -> str:
    return f"{unit[0].upper()}i{unit[1:]}"


def _readings(number: str, prefix: str, dimension: Dimension) -> list[str]:
    """The whole numbers that a count with a prefix may mean: ``128k`` is 128000 or 131072, ``128Ki`` only the latter."""
    sizes = [
        size
        for known, size in (DECIMAL_PREFIXES | BINARY_PREFIXES).items()
        if known and known.lower() in {prefix.lower(), f"{prefix.lower()}i"}
    ]
    amounts = [_EXACT.multiply(decimal.Decimal(number), decimal.Decimal(size)) for size in sizes]
    return [f"{int(amount)}" for amount in amounts if amount == int(amount) and amount <= dimension.largest]


def _kind(value: object) -> str:
    names = {bool: "a yes/no value", dict: "a mapping", list: "a list", type(None): "nothing"}
    return names.get(type(value), f"a value of type {type(value).__name__}")


def _short(value: object) -> str:
    if isinstance(value, int) and abs(value) >= 10**30:
        return "an integer of more than 30 digits"
    return show(repr(value), 40)


def parse_bytes(value: object, what: str = "memory", *, zero: bool = True) -> int:
    """Read a size in bytes, as text with a unit or as a whole number.

    ``80 GB`` is 80,000,000,000 and ``80 GiB`` is 85,899,345,920.
    """
    dimension = BYTES if zero else CAPACITY
    return int(parse(value, replace(dimension, bare=isinstance(value, numbers.Integral)), what))


def parse_count(value: object, what: str = "count") -> int:
    """Read a whole number greater than zero: ``8192``; ``128k`` is refused, since it is 128000 or 131072."""
    return int(parse(value, POSITIVE_COUNT, what))


def parse_tokens(value: object, what: str = "tokens") -> int:
    """Read the length of a sequence in tokens, greater than zero and at most ``LARGEST_SEQUENCE``."""
    return int(parse(value, TOKENS, what))


def parse_arrivals(value: object, what: str = "rate") -> float:
    """Read requests per second, as a number or as text such as ``6.5/s``."""
    return float(parse(value, ARRIVALS, what))


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


def dimension_of(annotation: Any) -> Dimension | None:
    """The dimension of a field's annotation (``Bytes``, ``Watts | None``), or None where it is no quantity."""
    for part in (annotation, *get_args(annotation)):
        for mark in getattr(part, "__metadata__", ()):
            if isinstance(mark, Unit):
                return mark.dimension
    return None


Bytes = Annotated[int, Unit(BYTES)]
Capacity = Annotated[int, Unit(CAPACITY)]
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
    size, unit = next((step for step in steps if abs(value) >= step[0]), steps[-1])
    if size == 1 and value == int(value):
        digits = 1  # 656 B has no decimals
    return f"{_significant(value / size, digits)} {unit}"


def _significant(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    decimals = max(0, digits - len(str(int(abs(value)))))
    return f"{value:,.{decimals}f}" if abs(value) >= 1 else f"{value:.{digits}g}"


def show_quantity(value: float, dimension: Dimension) -> str:
    """Print a quantity as a spec would write it, exactly, in the unit that needs the fewest digits; the larger one of two.

    >>> show_quantity(85520809984, BYTES), show_quantity(80e9, BYTES), show_quantity(3.35e12, BANDWIDTH)
    ('81559 MiB', '80 GB', '3.35 TB/s')
    """
    if dimension.bare:
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    number = decimal.Decimal(repr(value))
    written = [
        (len(amount), -scale, order, f"{amount} {unit}")
        for order, (unit, scale) in enumerate(dimension.units.items())
        if number >= scale or scale == 1
        for amount in (f"{_EXACT.divide(number, scale).normalize():f}",)
    ]
    return min(written)[3]


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
