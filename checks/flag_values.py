"""The values of flags, read by their types as the engines read them."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..errors import SpecError
from ..quantities import BYTES, parse
from .record import Flag, Said

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .launcher_spec import FlagSpec

_SUFFIXED = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKmMgGtT])")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SI = re.compile(r"([0-9]+(?:\.[0-9]+)?)(Ki|Mi|Gi|Ti|k|M|G|T)")
_SI_SCALES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_WHOLE = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LONGEST_NUMBER = 40
_LARGEST = 2**63  # bytes
_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")


def human_integer(text: str, what: str = "value") -> int:
    """A whole number as vLLM reads one: small suffixes are powers of ten and may follow decimals, capitals are powers of two.

    >>> human_integer("1k"), human_integer("1K"), human_integer("25.6k")
    (1000, 1024, 25600)

    Raises
    ------
    SpecError : for decimals before a capital suffix, and for what is no number

    Source: vllm-project/vllm at 4ba787ec9, vllm/utils/argparse_utils.py, human_readable_int
    """
    stripped = text.strip()
    match = _SUFFIXED.fullmatch(stripped) if len(stripped) <= _LONGEST_NUMBER else None
    if match is None:
        return whole(stripped, what, "a whole number, which may end in k, K, m, M, g, G, t or T")
    number, suffix = match.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    if "." in number:
        hint = f"{number}{suffix.lower()} is a power of ten"
        raise SpecError(what, got=text, wanted=f"a whole number before {suffix}", hint=hint)
    return int(number) * _BINARY[suffix]


def si_integer(text: str, what: str = "value") -> int:
    """A whole number as SGLang reads one: k, M, G, T are powers of ten and may follow decimals, Ki, Mi, Gi, Ti powers of two.

    >>> si_integer("1k"), si_integer("1Ki"), si_integer("25.6k")
    (1000, 1024, 25600)

    Raises
    ------
    SpecError : for decimals before a binary suffix, and for what is no number

    Source: sgl-project/sglang 0.5.12, python/sglang/srt/utils/common.py, human_readable_int
    """
    stripped = text.strip()
    match = _SI.fullmatch(stripped) if len(stripped) <= _LONGEST_NUMBER else None
    if match is None:
        return whole(stripped, what, "a whole number, which may end in k, M, G, T, Ki, Mi, Gi or Ti")
    number, suffix = match.groups()
    if suffix.endswith("i") and "." in number:
        raise SpecError(
            what, got=text, wanted=f"a whole number before {suffix}", hint=f"{number}{suffix[0]} is a power of ten"
        )
    return int(Decimal(number) * _SI_SCALES[suffix])


def whole(text: str, what: str, wanted: str = "a whole number") -> int:
    """A whole number as Python reads one."""
    stripped = text.strip()
    if len(stripped) > _LONGEST_NUMBER or not _WHOLE.fullmatch(stripped):
        raise SpecError(what, got=text, wanted=wanted)
    return int(stripped)


def number(text: str, what: str) -> float:
    """A finite number."""
    stripped = text.strip()
    read = float(stripped) if len(stripped) <= _LONGEST_NUMBER and _NUMBER.fullmatch(stripped) else float("inf")
    if read in {float("inf"), float("-inf")}:
        raise SpecError(what, got=text, wanted="a number")
    return read


def parsed_json(text: str, what: str) -> Any:
    """The value of a flag that takes JSON.

    Raises
    ------
    SpecError : for malformed JSON
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "not readable"
        raise SpecError(what, got=text, wanted="JSON", hint=reason) from error


def value_of(spec: FlagSpec, texts: Sequence[str], *, off: bool = False, part: str = "", name: str = "") -> Any:
    """Read the value of a flag from the words after it.

    Parameters
    ----------
    spec : of the flag
    texts : the words that belong to it
    off : whether it was written so that it switches off (``--no-…``)
    part : the part of a JSON value that a dotted name gives
    name : as errors call it

    Raises
    ------
    SpecError : for a value that is missing, is no number, or is none of the choices
    """
    what = name or spec.name
    if part:
        if not texts:
            raise SpecError(what, got="nothing", wanted="a value")
        return _loose(texts[0])
    if spec.type in {"switch", "flag"}:
        return not off if not texts else _switched(texts[0], what)
    if spec.type == "list":
        return tuple(texts)
    if not texts:
        if spec.type == "optional":
            return True
        raise SpecError(what, got="nothing", wanted="a value")
    return _typed(spec, texts[0], what)


def _typed(spec: FlagSpec, text: str, what: str) -> Any:
    if text.lower() in {"auto", "none"} and spec.type in {"integer", "tokens", "si_tokens", "number", "bytes"}:
        return text.lower()
    read = _READERS.get(spec.type)
    if read is not None:
        return read(text, what)
    if spec.type == "json":
        return parsed_json(text, what) if text.lstrip()[:1] in {"{", "["} else text
    if spec.choices and text not in spec.choices:
        near = ", ".join(spec.choices[:12]) + (", …" if len(spec.choices) > 12 else "")
        raise SpecError(what, got=text, wanted=f"one of {near}")
    return text


def _bytes(text: str, what: str) -> int:
    if re.fullmatch(r"[0-9]+", text.strip()):
        return whole(text, what)
    return int(parse(text, BYTES, what))


_READERS: dict[str, Callable[[str, str], Any]] = {
    "integer": whole,
    "tokens": human_integer,
    "si_tokens": si_integer,
    "number": number,
    "bytes": _bytes,
}


def _switched(text: str, what: str) -> bool:
    if text.lower() in (*_TRUE, *_FALSE):
        return text.lower() in _TRUE
    raise SpecError(what, got=text, wanted="nothing after it: it is a switch")


def _loose(text: str) -> Any:
    """A part of a JSON value: JSON where it is, a number with a suffix where it has one, else text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return human_integer(text)
    except SpecError:
        return text


def merged_parts(flags: Sequence[tuple[Flag, FlagSpec | None]]) -> list[tuple[Flag, FlagSpec | None]]:
    """Join the dotted parts of one JSON flag to one value, at the place of the first; as vLLM does, they replace a value before them."""
    joined: dict[str, tuple[Flag, FlagSpec, dict[str, Any]]] = {}
    kept: list[tuple[Flag, FlagSpec | None]] = []
    for flag, spec in flags:
        part = flag.name.partition(".")[2]
        if spec is None or not part:
            kept.append((flag, spec))
            continue
        _, _, value = joined.setdefault(spec.name, (flag, spec, {}))
        *above, last = part.removesuffix("+").split(".")
        inner = value
        for key in above:
            inner = inner[key] if isinstance(inner.get(key), dict) else inner.setdefault(key, {})
            if not isinstance(inner, dict):
                break
        else:
            inner[last] = flag.value.value
    kept += [
        (Flag(spec.name, Said(value, flag.value.place, flag.value.text)), spec) for flag, spec, value in joined.values()
    ]
    return kept


def scaled(spec: FlagSpec, value: Any) -> Any:
    """A number in the unit of the option."""
    if spec.scale == 1 or isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return int(min(value * spec.scale, _LARGEST))
