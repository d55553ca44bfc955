"""Typed, checked access to a configuration's keys, and the registry of families."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import QuantityError, SpecError
from ..quantities import COUNT, LARGEST_COUNT, POSITIVE_COUNT, parse

if TYPE_CHECKING:
    from ..documents import Document, Key
    from .spec import LayerGroup

MOST_LAYERS = 10_000  # families describe a model layer by layer; no published one has a thousand


@dataclass(frozen=True, slots=True)
class Config:
    """The keys of one configuration; every reader takes several spellings of a key, first found first. Null is the same as absent."""

    document: Document
    data: dict[str, Any]
    path: tuple[Key, ...] = ()

    def _find(self, keys: tuple[str, ...]) -> tuple[str, Any]:
        return next(((key, self.data[key]) for key in keys if self.data.get(key) is not None), (keys[0], None))

    def error(self, key: str, *, got: object, wanted: str, hint: str = "") -> SpecError:
        """Make an error about a key, with its place."""
        return SpecError(key, got=got, wanted=wanted, hint=hint, where=self.document.where((*self.path, key)))

    def count(self, *keys: str, default: int | None = None, largest: int = LARGEST_COUNT) -> int:
        """Read a whole number greater than zero and at most ``largest``.

        Raises
        ------
        SpecError : when it is missing without a default, or not such a number
        """
        value = self.optional(*keys, largest=largest)
        if value is not None:
            return value
        if default is None:
            raise self.error(keys[0], got="nothing", wanted="a whole number", hint="roofplan does not guess it")
        return default

    def optional(self, *keys: str, zero: bool = False, largest: int = LARGEST_COUNT) -> int | None:
        """Read a whole number greater than zero (or zero too), or None where the key is absent or null."""
        key, value = self._find(keys)
        if value is None:
            return None
        if isinstance(value, str):
            raise self.error(key, got=repr(value), wanted="a whole number")
        try:
            number = int(parse(value, COUNT if zero else POSITIVE_COUNT, key))
        except QuantityError as error:
            wanted = f"a whole number, {'zero or more' if zero else 'greater than zero'}"
            raise self.error(key, got=error.got, wanted=wanted) from error
        if number > largest:
            raise self.error(key, got=number, wanted=f"a whole number, at most {largest:,}")
        return number

    def number(self, *keys: str, default: float) -> float:
        """Read a number greater than zero, whole or not."""
        key, value = self._find(keys)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LARGEST_COUNT:
            raise self.error(key, got=repr(value), wanted="a number greater than zero")
        return value

    def agreed(self, *keys: str) -> int:
        """Read a count that has several names, all of which must say the same.

        Raises
        ------
        SpecError : when it is missing, not such a number, or two names contradict each other
        """
        value = self.count(*keys)
        for other in keys:
            if self.optional(other) not in {None, value}:
                got = f"{self.data[other]}, and {value} under another of its names"
                raise self.error(other, got=got, wanted="the same number under all names")
        return value

    def flag(self, *keys: str, default: bool = False) -> bool:
        """Read a yes/no value."""
        key, value = self._find(keys)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, got=repr(value), wanted="true or false")
        return value

    def text(self, *keys: str, default: str) -> str:
        """Read a text."""
        key, value = self._find(keys)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(key, got=repr(value), wanted="a text")
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        """Read a mapping; empty where it is absent."""
        value = self.data.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.error(key, got=repr(value), wanted="a mapping")
        return value

    def items(self, key: str, length: int | None = None) -> list[Any]:
        """Read a list of plain values; empty where it is absent. ``length`` is the fewest entries that it must have."""
        value = self._list(key)
        if any(isinstance(item, (list, dict)) for item in value):
            raise self.error(key, got="lists or mappings in it", wanted="a list of plain values")
        if self.data.get(key) is not None and length is not None and len(value) < length:
            raise self.error(key, got=f"{len(value)} entries", wanted=f"one for each of {length} layers")
        return value

    def _list(self, key: str) -> list[Any]:
        value = self.data.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error(key, got=repr(value), wanted="a list")
        return value

    def layers(self, key: str, count: int, *, first: int = 0) -> set[int]:
        """Read numbers of layers, the first one of which is ``first``.

        Raises
        ------
        SpecError : for a number that no layer has
        """
        listed = self.items(key)
        for number in listed:
            if isinstance(number, bool) or not isinstance(number, int) or not first <= number < first + count:
                raise self.error(key, got=f"layer {number!r}", wanted=f"layers {first} to {first + count - 1}")
        return {number - first for number in listed}

    def inside(self, key: str, position: int) -> Config:
        """Step into one mapping of a list (a per-layer configuration)."""
        entries = self._list(key)
        if position >= len(entries):
            raise self.error(key, got=f"{len(entries)} entries", wanted=f"one for layer {position}")
        entry = entries[position]
        if not isinstance(entry, dict):
            raise self.error(key, got=repr(entry), wanted="a list of mappings")
        return Config(self.document, entry, (*self.path, key, position))


@dataclass(slots=True)
class Shape:
    """What a family's function says of a model: its layers one by one, and what differs from the usual."""

    layers: list[LayerGroup]
    tied_by_default: bool = False
    learned_positions: int = 0
    norm_bias: bool = False
    head_bias: bool = False
    final_norms: int = 1
    embedding_size: int | None = None
    max_context: int | None = None
    other: list[tuple[str, int, bool, str]] = field(default_factory=list)  # name, count, read per step, source


Builder = Callable[[Config], Shape]
_BUILDERS: dict[str, Builder] = {}
B = TypeVar("B", bound=Builder)


def family(*model_types: str) -> Callable[[B], B]:
    """Register a function as the reader of these ``model_type`` values; a second registration is a fault of ours."""

    def register(builder: B) -> B:
        for name in model_types:
            if name in _BUILDERS:
                raise AssertionError(f"model_type {name} is registered twice")
            _BUILDERS[name] = builder
        return builder

    return register


def builder_of(model_type: str) -> Builder | None:
    """Find the function that reads a model type."""
    _load_families()
    return _BUILDERS.get(model_type)


def families() -> list[str]:
    """List the model types that can be read."""
    _load_families()
    return sorted(_BUILDERS)


def _load_families() -> None:
    if not _BUILDERS:
        for file in sorted((Path(__file__).parent / "families").glob("[a-z]*.py")):
            import_module(f".families.{file.stem}", __package__)
