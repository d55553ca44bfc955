"""Strict YAML and JSON: plain data, in which every part remembers its line and column.

YAML is read as one document without anchors, aliases, merge keys, tags or duplicate keys, with the scalars of YAML 1.2's core schema (so
``4.8e12`` is a number and ``no`` is text). Manifests that others write may hold several documents, aliases and merge keys. JSON goes
through the same builder, and so has the same rules. Nothing is executed, and depth, size and digits are bounded.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import SpecError

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
# YAML 1.2.2, section 5.1: what is not printable; the long list is made only for texts that need it.
_CONTROL = re.compile("[^\t\n\r\x20-\x7e]")
_NOT_YAML = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]|-?[0-9][0-9.eE+-]*|-?[A-Za-z]+')


@dataclass(frozen=True, slots=True)
class Document:
    """The data of one file, and where each part of it stands."""

    data: Any
    name: str
    places: dict[tuple[Key, ...], Place] = field(default_factory=dict)

    def where(self, path: tuple[Key, ...] = ()) -> str:
        """Give ``file:line:column`` of a value, or of the nearest thing around it that has a place."""
        place = self.place(path)
        return self.name if place is None else f"{self.name}:{place[0]}:{place[1]}"

    def place(self, path: tuple[Key, ...] = ()) -> Place | None:
        """Line and column of a value, or of the nearest thing around it that has a place; None where nothing has one."""
        around = (path[:length] for length in range(len(path), -1, -1))
        return next((self.places[one] for one in around if one in self.places), None)


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not been read yet."""

    value: dict[str, Any] | list[Any]
    path: tuple[Key, ...]
    key: str | None = None


class _Builder:
    """Turns values and brackets, as they are read, into data: without recursion, so that depth is a count and not a crash."""

    def __init__(self, language: str, name: str) -> None:
        self.language = language
        self.name = name
        self.root: Any = None
        self.places: dict[tuple[Key, ...], Place] = {}
        self._open: list[_Open] = []
        self._nodes = 0

    def document(self) -> Document:
        """Give what has been built."""
        return Document(self.root, self.name, self.places)

    def refuse(self, place: Place, got: str, wanted: str) -> SpecError:
        """Make an error about what stands at a place."""
        return SpecError(self.language, got=got, wanted=wanted, where=f"{self.name}:{place[0]}:{place[1]}")

    @property
    def wants_key(self) -> bool:
        """Whether the next value is a key."""
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].key is None

    def merge_key(self, place: Place) -> str:
        """What stands for a key that merges other mappings."""
        raise self.refuse(place, "a merge key (<<)", "the keys themselves: nothing is merged")

    def begin(self, container: dict[str, Any] | list[Any], place: Place) -> None:
        """Open a mapping or a list."""
        if len(self._open) >= DEEPEST:
            raise self.refuse(place, f"more than {DEEPEST} levels", "a flatter file")
        self._open.append(_Open(container, self.add(container, place)))

    def end(self) -> None:
        """Close the innermost mapping or list."""
        self._open.pop()

    def add(self, value: Any, place: Place) -> tuple[Key, ...]:
        """Put a value where it belongs, at the root, in a list, or as the key or value of a mapping, and give its path."""
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise self.refuse(place, f"more than {MOST_NODES:,} values", "a smaller file")
        path: tuple[Key, ...] = ()
        top = self._open[-1] if self._open else None
        if top is None:
            self.root = value
        elif isinstance(top.value, list):
            path = (*top.path, len(top.value))
            top.value.append(value)
        elif top.key is None:
            path = (*top.path, self._new_key(top, value, place))
        else:
            path = (*top.path, top.key)
            top.value[top.key], top.key = value, None
        self.places[path] = place
        return path

    def _new_key(self, top: _Open, value: Any, place: Place) -> str:
        if not isinstance(value, str):
            raise self.refuse(place, "a key that is not text", "a text as key (quote it)")
        if value in top.value:
            raise self.refuse(place, f"the key {value!r} a second time", "each key once")
        top.key = value
        return value

    def number(self, text: str, place: Place) -> int | float:
        """Read a number that has the form of one."""
        if _INTEGER.fullmatch(text):
            if len(text) > _MOST_DIGITS:
                raise self.refuse(place, f"an integer of {len(text):,} digits", f"at most {_MOST_DIGITS} digits")
            return int(text, 0) if text[:2] in {"0x", "0o"} else int(text)
        number = float(text)
        if number in {float("inf"), float("-inf")}:
            raise self.refuse(place, text, "a number within the range of a double")
        return number


# ------------------------------------------------------------------------------------------------ YAML


def parse_yaml(text: str, name: str) -> Document:
    """Read one YAML document as plain data.

    Raises
    ------
    SpecError : with line and column, for YAML that is malformed or uses what this module refuses
    """
    builder = _Builder("YAML", name)
    for event in _events(text, builder):
        _take(event, builder)
    return builder.document()


def _events(text: str, builder: _Builder) -> Iterator[Any]:
    """The events of a YAML parser; text that is no YAML is refused with its place."""
    import yaml

    strange = _CONTROL.search(text) if text.isascii() else re.search(_NOT_YAML, text)
    if strange is not None:
        place = _place(text, strange.start())
        raise builder.refuse(place, f"the character {strange.group()!a}", "printable text (escape it)")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yield from yaml.parse(text, Loader=loader)
    except (
        yaml.YAMLError,
        ValueError,
        OverflowError,
    ) as error:  # the last two: escapes that are no character, in the reader without libyaml
        mark = getattr(error, "problem_mark", None)
        where = f"{builder.name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else builder.name
        raise SpecError("malformed YAML", hint=getattr(error, "problem", None) or str(error), where=where) from error


def _place(text: str, offset: int) -> Place:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _take(event: Any, builder: _Builder) -> None:
    """Hand one event of a YAML parser to the builder."""
    import yaml

    place = _start(event)
    if isinstance(event, yaml.DocumentStartEvent) and builder.places:
        raise builder.refuse(place, "a second document", "one document")
    if isinstance(event, yaml.AliasEvent):
        raise builder.refuse(place, f"an alias (*{event.anchor})", "the value itself: aliases are not followed")
    if getattr(event, "anchor", None) is not None:
        raise builder.refuse(place, f"an anchor (&{event.anchor})", "no anchors: write the value where it is used")
    _put_event(event, place, builder)


def _start(event: Any) -> Place:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _put_event(event: Any, place: Place, builder: _Builder) -> None:
    """Hand a value or a bracket to the builder; other events are none."""
    import yaml

    if isinstance(event, yaml.CollectionEndEvent):
        builder.end()
    if not isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)):
        return
    if event.tag is not None:
        raise builder.refuse(place, f"a tag ({event.tag})", "plain data without tags")
    if isinstance(event, yaml.ScalarEvent):
        builder.add(event.value if event.style else _plain(event.value, place, builder), place)
    else:
        builder.begin([] if isinstance(event, yaml.SequenceStartEvent) else {}, place)


def _plain(text: str, place: Place, builder: _Builder) -> Any:
    """Resolve a plain scalar by YAML 1.2's core schema (https://yaml.org/spec/1.2.2/, section 10.3.2)."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text):
        return builder.number(text, place)
    if _NOT_FINITE.fullmatch(text):
        raise builder.refuse(place, text, "a finite number")
    if text == "<<" and builder.wants_key:
        return builder.merge_key(place)
    return text


# ------------------------------------------------------------------------------------------------ manifests

_MERGE = "\0<<"  # no key of a file: such a character is refused


class _Merging(_Builder):
    """Builds documents in which mappings take over keys of others (<<), as compose files do."""

    def __init__(self, language: str, name: str, nodes: int = 0) -> None:
        super().__init__(language, name)
        self._nodes = nodes

    @property
    def nodes(self) -> int:
        """How many values there are so far: those of the documents before count too."""
        return self._nodes

    def merge_key(self, place: Place) -> str:
        top = self._open[-1].value
        if _MERGE in top:
            raise self.refuse(place, "the key '<<' a second time", "one list of what is merged")
        return _MERGE

    def end(self) -> None:
        closed = self._open[-1]
        super().end()
        if not isinstance(closed.value, dict) or _MERGE not in closed.value:
            return
        path = (*closed.path, _MERGE)
        merged = closed.value.pop(_MERGE)
        for source, inner in (
            [(one, (*path, at)) for at, one in enumerate(merged)] if isinstance(merged, list) else [(merged, path)]
        ):
            if not isinstance(source, dict):
                raise self.refuse(
                    self.places[path], "something else than a mapping to merge", "a mapping, or a list of them"
                )
            for key, value in source.items():
                if key not in closed.value:
                    closed.value[key] = value
                    self._move(value, (*inner, key), (*closed.path, key))

    def _move(self, value: Any, old: tuple[Key, ...], new: tuple[Key, ...]) -> None:
        """Give a value that was merged its places where it is now; depth is bounded."""
        self.places[new] = self.places[old]
        for key, inner in (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        ):
            self._move(inner, (*old, key), (*new, key))


class _Anchors:
    """Events of values that have a name, to be repeated where an alias stands: within the builder's bounds, so that none explodes."""

    def __init__(self) -> None:
        self._known: dict[str, list[Any]] = {}
        self._recording: list[tuple[str, list[Any], int]] = []  # name, events, level that is open

    def take(self, event: Any, builder: _Merging) -> None:
        """Hand one event to a builder, and keep it where it is part of a named value."""
        import yaml

        if isinstance(event, yaml.AliasEvent):
            self._repeat(event, _start(event), builder)
            step = 0
        else:
            step = isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            _put_event(event, _start(event), builder)
        named = getattr(event, "anchor", None) if not isinstance(event, yaml.AliasEvent) else None
        self._recording = [(name, events, level + step) for name, events, level in self._recording]
        if named is not None:
            self._known.pop(named, None)
            self._recording.append((named, [], step))
        for name, events, level in self._recording:
            events.append(event)
            if level == 0:
                self._known[name] = events
        self._recording = [one for one in self._recording if one[2] > 0]

    def _repeat(self, alias: Any, place: Place, builder: _Merging) -> None:
        import yaml

        events = self._known.get(alias.anchor)
        if events is None:
            wanted = "the name of a value before it, and not of one around it"
            raise builder.refuse(_start(alias), f"an alias (*{alias.anchor})", wanted)
        for at, event in enumerate(events):
            if isinstance(event, yaml.AliasEvent):
                self._repeat(event, _start(event), builder)
            else:
                _put_event(event, place if at == 0 else _start(event), builder)


def parse_manifests(text: str, name: str) -> list[Document]:
    """Read the YAML documents of a manifest, which may repeat values by anchors and aliases and merge mappings (``<<``).

    What is repeated counts as often as it stands, so that a file that grows without bounds is refused. Places are those where a value is
    written; of an alias, where the alias stands. Documents that hold nothing are left out. A file that is called ``*.json`` is one document
    of JSON. All else is as strict as :func:`parse_yaml`.

    Raises
    ------
    SpecError : with line and column, for YAML that is malformed or uses what this module refuses
    """
    import yaml

    if name.endswith(".json"):
        return [parse_json(text, name)]
    documents: list[Document] = []
    builder, anchors = _Merging("YAML", name), _Anchors()
    for event in _events(text, builder):
        if isinstance(event, yaml.DocumentStartEvent):
            builder, anchors = _Merging("YAML", name, builder.nodes), _Anchors()
        anchors.take(event, builder)
        if isinstance(event, yaml.DocumentEndEvent) and builder.root is not None:
            documents.append(builder.document())
    return documents


# ------------------------------------------------------------------------------------------------ JSON


def parse_json(text: str, name: str) -> Document:
    """Read JSON: no duplicate keys, no NaN or Infinity, no numbers beyond a double's range, no more depth or values than YAML.

    Raises
    ------
    SpecError : with line and column, for JSON that is malformed or uses what this module refuses
    """
    try:
        # The standard reader says what is malformed; numbers stay text, since it would take any.
        json.loads(text, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        where = f"{name}:{error.lineno}:{error.colno}"
        raise SpecError("malformed JSON", hint=error.msg, where=where) from error
    except RecursionError:
        pass  # the builder refuses the depth, and says where
    builder = _Builder("JSON", name)
    line, start, seen = 1, 0, 0
    for token in _JSON_TOKEN.finditer(text):
        newlines = text.count("\n", seen, token.start())
        if newlines:
            line, start = line + newlines, text.rfind("\n", seen, token.start()) + 1
        seen = token.start()
        _put(token.group(), (line, seen - start + 1), builder)
    return builder.document()


_JSON_WORDS = {"null": None, "true": True, "false": False}


def _put(token: str, place: Place, builder: _Builder) -> None:
    """Hand one token of well-formed JSON to the builder."""
    match token[0]:
        case "{":
            builder.begin({}, place)
        case "[":
            builder.begin([], place)
        case "}" | "]":
            builder.end()
        case '"':
            value = json.loads(token) if "\\" in token else token[1:-1]
            if not value.isascii() and _SURROGATE.search(value):
                raise builder.refuse(place, "half of a surrogate pair", "Unicode text")
            builder.add(value, place)
        case _ if token in _JSON_WORDS:
            builder.add(_JSON_WORDS[token], place)
        case _ if token[-1].isalpha():
            raise builder.refuse(place, token, "a finite number")
        case _:
            builder.add(builder.number(token, place), place)
