"""Strict YAML and JSON: plain data, in which every part remembers its line and column.

YAML is read as one document without anchors, aliases, tags or duplicate keys, with the scalars of YAML 1.2's core schema (so ``4.8e12``
is a number and ``no`` is text). JSON is read with the same rules. Nothing is executed, and depth, size and digits are bounded.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import RoofplanError, SpecError, show

if TYPE_CHECKING:
    from collections.abc import Iterator

Key = str | int
Place = tuple[int, int]

DEEPEST = 32
MOST_NODES = 100_000
_MOST_DIGITS = 40

_NULL = {"", "~", "null", "Null", "NULL"}
_TRUE = {"true", "True", "TRUE"}
_FALSE = {"false", "False", "FALSE"}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Document:
    """The data of one file, and where each part of it stands."""

    data: Any
    name: str
    places: dict[tuple[Key, ...], Place] = field(default_factory=dict)

    def where(self, path: tuple[Key, ...] = ()) -> str:
        """Give ``file:line:column`` of a value, or of the nearest thing around it that has a place."""
        for length in range(len(path), -1, -1):
            place = self.places.get(path[:length])
            if place is not None:
                return f"{self.name}:{place[0]}:{place[1]}"
        return self.name


# ------------------------------------------------------------------------------------------------ YAML


def parse_yaml(text: str, name: str) -> Document:
    """Read one YAML document as plain data.

    Raises
    ------
    SpecError : with line and column, for YAML that is malformed or uses what this module refuses
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Builder(name).build(yaml.parse(text, Loader=loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else name
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "malformed"
        raise SpecError("YAML", got=problem, wanted="well-formed YAML", where=where) from error


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not been read yet."""

    value: dict[str, Any] | list[Any]
    path: tuple[Key, ...]
    key: str | None = None


class _Builder:
    """Turns the events of a YAML parser into data: without recursion, so that depth is a count and not a crash."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.places: dict[tuple[Key, ...], Place] = {}
        self.open: list[_Open] = []
        self.root: Any = None
        self.documents = 0
        self.nodes = 0
        self._path: tuple[Key, ...] = ()

    def build(self, events: Iterator[Any]) -> Document:
        import yaml

        for event in events:
            place = (event.start_mark.line + 1, event.start_mark.column + 1)
            if isinstance(event, yaml.DocumentStartEvent):
                self.documents += 1
                if self.documents > 1:
                    raise self._refuse(place, "a second document", "one document")
            elif isinstance(event, yaml.AliasEvent):
                raise self._refuse(place, f"an alias (*{event.anchor})", "the value itself: aliases are not followed")
            elif isinstance(event, (yaml.ScalarEvent, yaml.SequenceStartEvent, yaml.MappingStartEvent)):
                self._start(event, place)
            elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
                self.open.pop()
        return Document(self.root, self.name, self.places)

    def _start(self, event: Any, place: Place) -> None:
        import yaml

        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise self._refuse(place, f"more than {MOST_NODES:,} values", "a smaller file")
        if event.anchor is not None:
            raise self._refuse(place, f"an anchor (&{event.anchor})", "no anchors: write the value where it is used")
        if event.tag is not None and event.tag != "!":
            raise self._refuse(place, f"a tag ({event.tag})", "plain data without tags")
        if isinstance(event, yaml.ScalarEvent):
            value = event.value if event.style else self._plain(event.value, place)
            self._add(value, place, is_text=isinstance(value, str))
            return
        if len(self.open) >= DEEPEST:
            raise self._refuse(place, f"more than {DEEPEST} levels", "a flatter file")
        container: dict[str, Any] | list[Any] = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        self._add(container, place, is_text=False)
        self.open.append(_Open(container, self._path))

    def _add(self, value: Any, place: Place, *, is_text: bool) -> None:
        """Put a value where it belongs: at the root, in a list, or as the key or value of a mapping."""
        top = self.open[-1] if self.open else None
        if top is None:
            self.root, self._path = value, ()
        elif isinstance(top.value, list):
            self._path = (*top.path, len(top.value))
            top.value.append(value)
        elif top.key is None:
            if not is_text:
                raise self._refuse(place, "a key that is not text", "a text as key (quote it)")
            if value in top.value:
                raise self._refuse(place, f"the key {value!r} a second time", "each key once")
            top.key, self._path = value, (*top.path, value)
        else:
            self._path = (*top.path, top.key)
            top.value[top.key] = value
            top.key = None
        self.places[self._path] = place

    def _plain(self, text: str, place: Place) -> Any:
        """Resolve a plain scalar by YAML 1.2's core schema (https://yaml.org/spec/1.2.2/, section 10.3.2)."""
        if text in _NULL:
            return None
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        if _INTEGER.fullmatch(text):
            if len(text) > _MOST_DIGITS:
                raise self._refuse(place, f"an integer of {len(text)} digits", f"at most {_MOST_DIGITS} digits")
            return int(text, 0) if text[:2] in {"0x", "0o"} else int(text)
        if _FLOAT.fullmatch(text):
            number = float(text)
            if number in {float("inf"), float("-inf")}:
                raise self._refuse(place, show(text), "a finite number")
            return number
        if _NOT_FINITE.fullmatch(text):
            raise self._refuse(place, text, "a finite number")
        return text

    def _refuse(self, place: Place, got: str, wanted: str) -> SpecError:
        return SpecError("YAML", got=got, wanted=wanted, where=f"{self.name}:{place[0]}:{place[1]}")


# ------------------------------------------------------------------------------------------------ JSON


def parse_json(text: str, name: str) -> Document:
    """Read JSON: no duplicate keys, no NaN or Infinity, no numbers beyond a double's range.

    The places of its values are found by reading it once more as YAML, of which JSON is a part, when an error needs them.
    """
    strict = _StrictJson(name)
    try:
        data = json.loads(
            text,
            object_pairs_hook=strict.pairs,
            parse_constant=strict.constant,
            parse_int=strict.integer,
            parse_float=strict.number,
        )
    except json.JSONDecodeError as error:
        where = f"{name}:{error.lineno}:{error.colno}"
        raise SpecError("JSON", got=error.msg, wanted="well-formed JSON", where=where) from error
    except RecursionError as error:
        raise strict.refuse("too many levels", "a flatter file") from error
    return Document(data, name, _LazyPlaces(text))


@dataclass(frozen=True, slots=True)
class _StrictJson:
    """What the standard reader lets through and this one does not."""

    name: str

    def refuse(self, got: str, wanted: str) -> SpecError:
        return SpecError("JSON", got=got, wanted=wanted, where=self.name)

    def pairs(self, items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            keys = [key for key, _ in items]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise self.refuse(f"the key {twice!r} a second time", "each key once")
        return found

    def constant(self, text: str) -> Any:
        raise self.refuse(text, "a finite number")

    def integer(self, text: str) -> int:
        if len(text) > _MOST_DIGITS:
            raise self.refuse(f"an integer of {len(text)} digits", f"at most {_MOST_DIGITS} digits")
        return int(text)

    def number(self, text: str) -> float:
        value = float(text)
        if value in {float("inf"), float("-inf")}:
            raise self.refuse(text, "a number within the range of a double")
        return value


class _LazyPlaces(dict[tuple[Key, ...], Place]):
    """The places of a JSON text, worked out when the first one is asked for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text: str | None = text

    def get(self, path: tuple[Key, ...], default: Any = None) -> Any:
        if self._text is not None:
            text, self._text = self._text, None
            # JSON that YAML reads differently has no places: the error then names the file alone.
            with contextlib.suppress(RoofplanError):
                self.update(parse_yaml(text.replace("\t", " "), "").places)
        return super().get(path, default)
