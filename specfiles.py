"""Reading spec files strictly, and finding a catalogue entry by name.

YAML is read as plain data: one document, no anchors, aliases or tags, no duplicate keys, the scalars of YAML 1.2's core schema (so
``4.8e12`` is a number and ``no`` is text), and every key and value remembers its line and column. JSON is read with the same rules.
Nothing is executed, nothing is followed, and every size is bounded before it is read.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
import os
import re
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .errors import RoofplanError, SpecError, UnknownNameError, show

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

T = TypeVar("T")
Key = str | int
Place = tuple[int, int]

LARGEST_FILE_BYTES = 2**20
DEEPEST = 32
MOST_NODES = 100_000
_MOST_DIGITS = 40
SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)

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


# ------------------------------------------------------------------------------------------------ files


def read_bytes(path: str | Path, *, largest: int = LARGEST_FILE_BYTES) -> bytes:
    """Read a regular file of at most ``largest`` bytes; ``-`` is standard input.

    Raises
    ------
    SpecError : for anything but a regular file (a FIFO or device would hang), a missing or unreadable file, or one that is too large
    """
    if str(path) == "-":
        content = sys.stdin.buffer.read(largest + 1)
    else:
        try:
            # Opened without blocking, then checked through the descriptor: the path cannot be exchanged in between.
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a valid path"
            raise SpecError("file", got=reason.lower(), where=str(path)) from error
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SpecError("file", got="a folder, FIFO or device", wanted="a regular file", where=str(path))
            content = stream.read(largest + 1)
    if len(content) > largest:
        raise SpecError(
            "file", got=f"more than {largest:,} bytes", wanted=f"at most {largest:,} bytes", where=str(path)
        )
    return content


def read_text(path: str | Path, *, largest: int = LARGEST_FILE_BYTES) -> str:
    """Read a UTF-8 text file (a leading byte-order mark is dropped)."""
    content = read_bytes(path, largest=largest)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(
            "text", got=f"a byte that is not UTF-8 at offset {error.start}", wanted="UTF-8", where=str(path)
        ) from error


def read_document(path: str | Path) -> Document:
    """Read a YAML or JSON file; standard input (``-``) may hold either."""
    text = read_text(path)
    name = "<stdin>" if str(path) == "-" else str(path)
    is_json = name.endswith(".json") or (name == "<stdin>" and text.lstrip()[:1] == "{")
    return parse_json(text, name) if is_json else parse_yaml(text, name)


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


# ------------------------------------------------------------------------------------------------ validation


@functools.cache
def _adapter(cls: Hashable) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


def json_schema(cls: Hashable) -> dict[str, Any]:
    """Give the JSON Schema of a spec class, for editors."""
    schema: dict[str, Any] = _adapter(cls).json_schema()
    return schema


def validate(cls: type[T], document: Document, data: Any = None) -> T:
    """Turn the data of a document into an instance of a spec class (a frozen dataclass), strictly.

    Raises
    ------
    SpecError : the first fault, with its place, what was found and what is wanted
    """
    from pydantic import ValidationError

    content = document.data if data is None else data
    try:
        # JSON mode is pydantic's strict mode that still makes dataclasses from mappings and tuples from lists.
        made: T = _adapter(cast("Hashable", cls)).validate_json(json.dumps(content, allow_nan=False), strict=True)
    except ValidationError as error:
        raise _spec_error(error.errors(include_url=False), document) from error
    return made


def _spec_error(faults: Iterable[Any], document: Document) -> SpecError:
    fault = min(faults, key=lambda fault: _PRECEDENCE.get(fault["type"], 0))
    path = tuple(_real_path(document.data, fault["loc"]))
    what = ".".join(str(part) for part in path) or "document"
    kind, context = fault["type"], fault.get("ctx", {})
    where = document.where(path)
    if kind in {"unexpected_keyword_argument", "extra_forbidden"}:
        return SpecError(what, got="an unknown key", wanted="a key of the schema", where=where)
    if kind in {"missing_argument", "missing_keyword_only_argument", "missing"}:
        return SpecError(what, got="nothing", wanted="this key", where=where)
    if kind == "value_error":
        return SpecError(f"{what}: {context['error']}", where=where)
    wanted = str(context.get("expected") or context.get("expected_tags") or fault["msg"])
    return SpecError(what, got=_brief(fault["input"]), wanted=wanted, where=where)


# A wrong key explains a missing one, so it is named first.
_PRECEDENCE = {"unexpected_keyword_argument": -1, "extra_forbidden": -1}


def _brief(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return repr(value) if value is not None else "nothing"


def _real_path(data: Any, loc: tuple[Key, ...]) -> Iterator[Key]:
    """Drop the parts that pydantic adds to a path (names of union members): keep what leads through the data."""
    for position, part in enumerate(loc):
        inside = part in data if isinstance(data, dict) else isinstance(data, list) and part in range(len(data))
        if inside:
            data = data[part]
        if inside or position == len(loc) - 1:  # the last part may be the key that is missing
            yield part


# ------------------------------------------------------------------------------------------------ catalogues


class Catalogue:
    """A folder of spec files, one per thing; the file name is the thing's slug.

    The usual case opens one file. Any other name is looked for as quoted text in all files, and only the file that holds it is parsed:
    there is no index that could go stale.

    Parameters
    ----------
    folder : where the files lie (package data)
    noun : what one entry is called in messages
    """

    def __init__(self, folder: Path, noun: str) -> None:
        self.folder = folder
        self.noun = noun

    def slugs(self) -> list[str]:
        """List the slugs of all entries, in order."""
        return sorted(entry.name[: -len(".yaml")] for entry in os.scandir(self.folder) if entry.name.endswith(".yaml"))

    def find(self, name: str) -> Document:
        """Find the entry with this slug, id or alias (upper and lower case are the same).

        Raises
        ------
        UnknownNameError : with the nearest names
        """
        slug = name.strip().lower()
        if SLUG.fullmatch(slug) and (self.folder / f"{slug}.yaml").is_file():
            return self.read(slug)
        hit = self._search(slug)
        if hit is not None:
            return self.read(hit)
        raise UnknownNameError(self.noun, got=name, wanted=f"a {self.noun} of the catalogue", hint=self._nearest(slug))

    def read(self, slug: str) -> Document:
        """Read the entry with this slug."""
        document = read_document(self.folder / f"{slug}.yaml")
        return Document(document.data, f"{slug}.yaml", document.places)

    def names(self) -> dict[str, str]:
        """Map every quoted name of every file to its slug (used for near misses and by tests)."""
        found: dict[str, str] = {}
        for slug in self.slugs():
            found[slug] = slug
            for line in (self.folder / f"{slug}.yaml").read_text(encoding="utf-8").splitlines():
                if line.lstrip().startswith(_NAME_KEYS):
                    found.update((quoted.lower(), slug) for quoted in _QUOTED.findall(line))
        return found

    def _search(self, name: str) -> str | None:
        quoted = f'"{name}"'
        for slug in self.slugs():
            text = (self.folder / f"{slug}.yaml").read_text(encoding="utf-8").lower()
            if quoted in text and any(
                quoted in line for line in text.splitlines() if line.lstrip().startswith(_NAME_KEYS)
            ):
                return slug
        return None

    def _nearest(self, name: str) -> str:
        known = self.names()
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
        near += [slug for slug in self.slugs() if name and slug.startswith(name)][:3]
        distinct = list(dict.fromkeys(known[close] for close in near))
        return f"did you mean {' or '.join(distinct[:3])}?" if distinct else f"{len(self.slugs())} are known"


# Names stand, always in double quotes, on lines that start with one of these keys.
_NAME_KEYS = ("aliases:", "- id:", "- {id:")
_QUOTED = re.compile(r'"([^"]+)"')


def looks_like_path(name: str) -> bool:
    """Whether an argument names a file rather than a catalogue entry."""
    is_file_name = name.endswith((".yaml", ".yml", ".json", ".gguf", ".safetensors"))
    return name == "-" or is_file_name or name.startswith((".", os.sep)) or (os.sep in name and Path(name).exists())


def load(catalogue: Catalogue, name: str, from_document: Callable[[Document], T]) -> T:
    """Load a spec from a path, from standard input (``-``), or from the catalogue by name."""
    if looks_like_path(name):
        return from_document(read_document(name))
    return from_document(catalogue.find(name))
