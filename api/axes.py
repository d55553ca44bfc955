"""The axes of a sweep as text: ``batch=1..256:x2``, ``context=1024,8192``, ``weights=bf16,fp8``.

    AXIS=VALUES     VALUES = one or more, separated by commas
    first..last         every whole number
    first..last:8       every eighth
    first..last:x2      each twice the one before, rounded to whole numbers

Numbers are read as those of the options are. Of weight formats, ``class=name`` pairs belong to the value before them.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from ..errors import DomainError, UnknownNameError
from ..planner.sweeping import MOST_POINTS, Axis
from ..quantities import NUMBER, parse, parse_count, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Value = int | str

TOKENS = ("context", "prompt", "output")
COUNTS = ("batch", "devices", "tp", "pp", "dp")
NAMES = ("weights", "kv", "hardware")
AXES = (*COUNTS[:1], *TOKENS, *COUNTS[1:], *NAMES)
MOST_AXES = 2
LEAST_CONTEXT = 2
LEAST_FACTOR = 1.001
_MOST_VALUES = max(MOST_POINTS.values())
_EXAMPLE = "AXIS=VALUES, such as batch=1..256:x2"


def read_axes(over: str | Iterable[str] | Mapping[str, str | int | Iterable[Value]]) -> tuple[Axis, ...]:
    """Read one or two axes: texts as on the command line, or a mapping of names to values.

    Raises
    ------
    DomainError : without an axis or a value, for a range that is empty, a value or an axis that is named twice, or more than two axes
    UnknownNameError : for an axis that there is not
    QuantityError : for what is no number
    """
    if isinstance(over, str):
        over = [over]
    named = list(_named(over))
    if not 1 <= len(named) <= MOST_AXES:
        got = "no axis" if not named else f"{len(named)} axes"
        raise DomainError("--over", got=got, wanted=f"one or two, each {_EXAMPLE}")
    axes = [_axis(name, values) for name, values in named]
    if len({axis.name for axis in axes}) < len(axes):
        raise DomainError("--over", got=f"{axes[0].name} twice", wanted="two different axes, or all values in one")
    return tuple(axes)


def _named(
    over: Iterable[str] | Mapping[str, str | int | Iterable[Value]],
) -> Iterator[tuple[str, str | int | Iterable[Value]]]:
    from collections.abc import Mapping

    if isinstance(over, Mapping):
        yield from over.items()
        return
    for text in over:
        name, separator, values = text.partition("=")
        if not separator:
            raise DomainError("--over", got=text or "nothing", wanted=_EXAMPLE)
        yield name.strip(), values


def _axis(name: str, values: str | int | Iterable[Value]) -> Axis:
    if name not in AXES:
        near = [_OTHER_WORDS[name]] if name in _OTHER_WORDS else difflib.get_close_matches(name, AXES, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else ""
        raise UnknownNameError("--over", got=name or "an empty name", wanted=f"one of {', '.join(AXES)}", hint=hint)
    what = f"--over {name}"
    if isinstance(values, int):
        values = [values]
    split = split_formats if name == "weights" else _split
    items = split(values) if isinstance(values, str) else list(values)
    if not items:
        raise DomainError(what, got="no values", wanted="at least one")
    if name in NAMES:
        found: Sequence[Value] = [_name(item, what) for item in items]
    else:
        found = [number for item in items for number in _numbers(name, item, what)]
    twice = _first_twice(found)
    if twice is not None:
        raise DomainError(what, got=f"{twice} twice", wanted="each value once")
    return Axis(name, tuple(found))


_OTHER_WORDS = {
    "concurrency": "batch",
    "users": "batch",
    "tokens": "context",
    "length": "context",
    "gpus": "devices",
    "device": "hardware",
    "gpu": "hardware",
    "format": "weights",
    "quantization": "weights",
}


def _first_twice(values: Iterable[Value]) -> Value | None:
    seen: set[Value] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def _split(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text.strip() else []


def split_formats(text: str) -> list[str]:
    """Cut a list of weight formats at its commas: pairs of class and name belong to the value before them, ``all=`` begins one.

    >>> split_formats("bf16,int8,head=int8,all=fp8,experts=mxfp4")
    ['bf16', 'int8,head=int8', 'all=fp8,experts=mxfp4']
    """
    values: list[str] = []
    for item in _split(text):
        covered, pair, _ = item.partition("=")
        if pair and covered.strip() != "all" and values:
            values[-1] += f",{item}"
        else:
            values.append(item)
    return values


def _name(item: object, what: str) -> str:
    if not isinstance(item, str) or not item.strip():
        raise DomainError(what, got=item if item != "" else "an empty name", wanted="a name")
    return item.strip()


def _numbers(name: str, item: object, what: str) -> list[int]:
    """One number, or those of a range."""
    read = parse_tokens if name in TOKENS else parse_count
    if not isinstance(item, str) or ".." not in item:
        return [_checked(name, read(item, what), what)]
    span, _, stride = item.partition(":")
    first, last = (_checked(name, read(end.strip(), what), what) for end in span.split("..", 1))
    if last < first:
        raise DomainError(what, got=item, wanted="a range that ascends, such as 1..256")
    values = _multiplied(first, last, stride, what) if stride[:1] == "x" else _stepped(first, last, stride, what, read)
    if len(values) > _MOST_VALUES:
        raise DomainError(what, got=f"{len(values):,} values", wanted=f"at most {_MOST_VALUES:,}")
    return list(values)


def _checked(name: str, number: int, what: str) -> int:
    if name == "context" and number < LEAST_CONTEXT:
        raise DomainError(what, got=number, wanted=f"at least {LEAST_CONTEXT} tokens: one before, and the new one")
    return number


def _stepped(first: int, last: int, stride: str, what: str, read: Callable[[object, str], int]) -> Sequence[int]:
    return range(first, last + 1, read(stride, what) if stride else 1)


def _multiplied(first: int, last: int, stride: str, what: str) -> Sequence[int]:
    """Geometric steps: each value the factor times the exact one before, rounded, at least one more."""
    factor = parse(stride[1:], NUMBER, what)
    if factor < LEAST_FACTOR:
        raise DomainError(what, got=stride, wanted=f"a factor of at least {LEAST_FACTOR}, such as x2")
    values, exact = [first], float(first)
    while (exact := exact * factor) < last + 0.5:
        if (value := max(round(exact), values[-1] + 1)) <= last:
            values.append(value)
    return values
