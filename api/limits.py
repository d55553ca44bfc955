"""What a deployment file promises: its ``limits`` and ``expect``, which ``roofplan check`` holds against the plan.

limits:
  fits: true
  headroom: 4 GiB                       # memory of a device that stays free, at least
  context: 32768                        # longest sequence, at least
  concurrency: 64                       # sequences of the workload's length that are in memory, at least
  ttft: 500 ms                          # and tpot, e2e: at most
  output_tokens_per_s: 2000             # of the whole deployment, at least; and requests_per_s
  usd_per_million_output_tokens: 2.5    # at most
  joules_per_output_token: 1.2          # at most
expect:
  - {claim: 45 tok/s, verdict: plausible}
  - bottleneck: kv_bandwidth
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import QuantityError, SpecError
from ..quantities import BYTES, NUMBER, POSITIVE_COUNT, TIME, TOKENS, parse
from ..specfiles import brief, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..documents import Document, Key
    from ..quantities import Dimension

_TIME = replace(TIME, zero=False)
_RATE = replace(NUMBER, zero=False)
LIMITS: Mapping[str, Dimension | None] = {  # None: true or false
    "fits": None,
    "headroom": BYTES,
    "context": TOKENS,
    "concurrency": POSITIVE_COUNT,
    "ttft": _TIME,
    "tpot": _TIME,
    "e2e": _TIME,
    "output_tokens_per_s": _RATE,
    "requests_per_s": _RATE,
    "usd_per_million_output_tokens": _RATE,
    "joules_per_output_token": _RATE,
}
_KINDS = {"claim": {"claim", "verdict"}, "bottleneck": {"bottleneck"}}
# Written out, since the planner's modules take longer to load than a file to read; a test compares them.
VERDICTS = ("plausible", "needs_help", "slower_than_it_should_be", "impossible")  # of roofplan claim
BOTTLENECKS = ("compute", "weight_bandwidth", "kv_bandwidth", "interconnect", "overhead", "capacity")


def read_limits(document: Document) -> dict[str, int | float | bool]:
    """The limits of a document in base units (bytes, seconds, tokens), by their names; empty where it has none.

    Raises
    ------
    SpecError : with file, line and column, for unknown names and values that are none
    """
    said = document.data.get("limits", {})
    if not isinstance(said, dict):
        raise SpecError(
            "limits", got=brief(said), wanted="a mapping such as {ttft: 500 ms}", where=document.where(("limits",))
        )
    return {name: _limit(document, name, value) for name, value in said.items()}


def _limit(document: Document, name: str, value: Any) -> int | float | bool:
    where = document.where(("limits", name))
    if name not in LIMITS:
        hint = did_you_mean(name.replace("-", "_"), LIMITS)
        wanted = f"one of {', '.join(LIMITS)}"
        raise SpecError(f"limits.{name}", got="an unknown limit", wanted=wanted, hint=hint, where=where)
    dimension = LIMITS[name]
    if dimension is None:
        if not isinstance(value, bool):
            raise SpecError(f"limits.{name}", got=repr(value), wanted="true or false", where=where)
        return value
    try:
        return parse(value, dimension, f"limits.{name}")
    except QuantityError as error:
        raise error.at(where) from error


def read_expectations(document: Document) -> list[tuple[str, str, str, tuple[Key, ...]]]:
    """What a document expects: ``claim`` or ``bottleneck``, its value, the verdict wanted of a claim, and the path of the value.

    Raises
    ------
    SpecError : with file, line and column, for what is no expectation
    """
    said = document.data.get("expect", [])
    if not isinstance(said, list):
        wanted = "a list such as [{bottleneck: kv_bandwidth}]"
        raise SpecError("expect", got=brief(said), wanted=wanted, where=document.where(("expect",)))
    return [_expectation(document, at, one) for at, one in enumerate(said)]


def _expectation(document: Document, at: int, one: Any) -> tuple[str, str, str, tuple[Key, ...]]:
    what, path = f"expect.{at}", ("expect", at)
    wanted = "{claim: 45 tok/s, verdict: plausible} or {bottleneck: kv_bandwidth}"
    if not isinstance(one, dict):
        raise SpecError(what, got=brief(one), wanted=wanted, where=document.where(path))
    kind = next((kind for kind in _KINDS if kind in one), "")
    if not kind:
        raise SpecError(what, got=" and ".join(one) or "nothing", wanted=wanted, where=document.where(path))
    for key, value in one.items():
        if key not in _KINDS[kind]:
            where = document.where((*path, key))
            raise SpecError(f"{what}.{key}", got="an unknown key", wanted=wanted, where=where)
        if not isinstance(value, str):
            raise SpecError(f"{what}.{key}", got=brief(value), wanted="a text", where=document.where((*path, key)))
    if kind == "bottleneck":
        _one_of(document, (*path, kind), one[kind], BOTTLENECKS)
        return kind, one[kind], "", (*path, kind)
    verdict = one.get("verdict", VERDICTS[0])
    _one_of(document, (*path, "verdict"), verdict, VERDICTS)
    return kind, one[kind], verdict, (*path, kind)


def _one_of(document: Document, path: tuple[Key, ...], value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        hint = did_you_mean(value, known, most=1)
        what = ".".join(map(str, path))
        raise SpecError(
            what, got=repr(value), wanted=f"one of {', '.join(known)}", hint=hint, where=document.where(path)
        )
