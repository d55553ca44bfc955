"""Reading a claim such as ``500 tok/s``: a number, its unit, and what it is said of. A number without a unit claims nothing.

Left out: units of other times than a second (``tok/min``), and numbers with prefixes (``1.2k tok/s``), which people read in two ways.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from ..errors import QuantityError, show
from ..quantities import NUMBER, POSITIVE_COUNT, TIME, parse, show_count, show_rate, show_time

Kind = Literal["rate", "user_rate", "device_rate", "token_time", "first_token", "sequences", "gain"]

_WANTED = "a number with its unit: 500 tok/s (of all users), 40 tok/s/user, 900 tok/s/gpu, 20 ms/token, 300 ms TTFT, 360 sequences or 2.4x"
_LONGEST = 80  # characters of a claim

_TEXT = re.compile(r"(?:(ttft|tpot|itl)\b[ :=]*)?(\d[\d.,_]*(?:e[+-]?\d+)?) ?(.*)", re.IGNORECASE | re.ASCII)
_TIME = re.compile(r"([a-zµμ]+)(.*)", re.ASCII)
_RATE = re.compile(r"(?:(?:tok|toks|token|tokens|t)(?:/s|/sec|/second| per second| a second)|tps)(.*)")
_OF_ALL = ("", "total", "in total", "aggregate", "overall", "of all users", "for all users", "throughput")
_OF_A_USER = (
    "/user",
    "per user",
    "a user",
    "each",
    "per sequence",
    "/sequence",
    "per request",
    "/request",
    "per stream",
)
_OF_A_DEVICE = ("/gpu", "per gpu", "a gpu", "/device", "per device", "a device")
_TOKEN = ("/token", "/tok", "per token", "a token", "per output token", "tpot", "itl", "between tokens")
_FIRST = ("ttft", "to first token", "to the first token", "until the first token")
_SEQUENCES = ("sequences", "sequence", "users", "user", "requests", "request", "conversations", "streams")
_GAIN = ("x", "fold", "-fold", "times", "x faster", "times faster", "x speedup", "x as fast", "times as fast")

_TIMES: dict[str, Kind] = {**dict.fromkeys(_TOKEN, "token_time"), **dict.fromkeys(_FIRST, "first_token")}
_SCOPES: dict[str, Kind] = {
    **dict.fromkeys(_OF_ALL, "rate"),
    **dict.fromkeys(_OF_A_USER, "user_rate"),
    **dict.fromkeys(_OF_A_DEVICE, "device_rate"),
}
_SHOWN = {
    "rate": " tokens/s",
    "user_rate": " tokens/s/user",
    "device_rate": " tokens/s/device",
    "token_time": "/token",
    "first_token": " TTFT",
    "sequences": " sequences",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """What is claimed, in base units: tokens per second, seconds, sequences, or a ratio.

    Parameters
    ----------
    text : as it was said
    kind : a rate of all users together, of each user or of each device, the time of a token or to the first one, sequences at a time, or
        a gain over the same without some means
    """

    text: str
    kind: Kind
    value: float

    @property
    def is_time(self) -> bool:
        """Whether less is more."""
        return self.kind in {"token_time", "first_token"}

    @property
    def speed(self) -> float:
        """The claim as something of which more is more: a time is turned over."""
        return 1 / self.value if self.is_time else self.value

    def show(self, speed: float) -> str:
        """Print a speed in the claim's own unit."""
        if self.is_time:
            return f"{show_time(1 / speed)}{_SHOWN[self.kind]}" if speed else "no end"
        if self.kind == "gain":
            return f"{speed:.3g}-fold"
        return f"{(show_count if self.kind == 'sequences' else show_rate)(speed)}{_SHOWN[self.kind]}"


def parse_claim(text: object) -> Claim:
    """Read a claim.

    Raises
    ------
    QuantityError : for what has no number or no unit, or a unit that is not of a claim; with a hint

    >>> parse_claim("500 tok/s"), parse_claim("20 ms/token").speed
    (Claim(text='500 tok/s', kind='rate', value=500.0), 50.0)
    """
    if not isinstance(text, str):
        raise QuantityError("CLAIM", got=f"a value of type {type(text).__name__}", wanted=_WANTED)
    words = " ".join(text.split(" ")).strip(" ")
    if len(words) > _LONGEST:
        raise QuantityError("CLAIM", got=f"a text of {len(words):,} characters", wanted=_WANTED)
    found = _TEXT.fullmatch(re.sub(" +", " ", words))
    if found is None:
        hint = "no sign: the value must be positive" if words[:1] in {"-", "+"} else "the number first, then its unit"
        raise QuantityError("CLAIM", got=repr(text), wanted=_WANTED, hint=hint)
    said, number, unit = found.groups()
    try:
        kind, value = _read(number, unit, (said or "").lower())
    except _UnknownUnitError as error:
        raise QuantityError("CLAIM", got=repr(text), wanted=_WANTED, hint=str(error)) from error
    return Claim(show(words), kind, value)


class _UnknownUnitError(Exception):
    """A unit that no claim has; its text is the hint."""


def _read(number: str, unit: str, said: str) -> tuple[Kind, float]:
    """Kind and value; ``said`` is what stood before the number."""
    lower = unit.lower()
    rate = _RATE.fullmatch(lower)
    if not said and rate is not None and (kind := _SCOPES.get(rate.group(1).strip(" "))) is not None:
        return kind, _positive(number)
    if not said and lower.removeprefix("concurrent ") in _SEQUENCES:
        return "sequences", float(parse(number, POSITIVE_COUNT, "CLAIM"))
    if not said and lower in _GAIN:
        return "gain", _positive(number)
    time = _TIME.fullmatch(unit)
    if time is not None and time.group(1) in TIME.units:
        of_what = said or time.group(2).strip(" ").lower()
        if of_what in _TIMES and not (said and time.group(2)):
            return _TIMES[of_what], float(parse(f"{number} {time.group(1)}", replace(TIME, zero=False), "CLAIM"))
        if not time.group(2):
            raise _UnknownUnitError(f"a time of what? {number} {unit}/token or {number} {unit} TTFT")
    raise _UnknownUnitError(_hint(number, lower, said))


def _positive(number: str) -> float:
    return float(parse(number, replace(NUMBER, zero=False), "CLAIM"))


def _hint(number: str, unit: str, said: str) -> str:
    if said:
        return f"a time after {said.upper()}: {said.upper()} {number} ms"
    if not unit:
        return f"add the unit: {number} tok/s, {number} ms/token or {number} sequences"
    if unit[0] in "kmg" and _RATE.match(unit[1:].lstrip(" ")):
        return "no prefix: write the number in full"
    if unit.startswith(("tok", "t/")):
        return f"tokens per second? {number} tok/s"
    return ""
