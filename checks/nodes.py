"""A value of a manifest with its place, and the ways in which manifests write texts, whole numbers and sizes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..errors import RoofplanError, SpecError
from ..specfiles import brief
from .record import Place, Said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..documents import Document, Key

_TEMPLATE = re.compile(r"\{\{[-~]?\s*[^{}\"']{1,200}?[-~]?\}\}|\{%.{1,200}?%\}", re.DOTALL)
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:([eE][+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i))?", re.ASCII)
_SUFFIXES = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
_SUFFIXES |= {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)}
_SUFFIXES |= {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
LARGEST = 2**53


@dataclass(frozen=True, slots=True)
class Node:
    """One value of a document.

    Parameters
    ----------
    document : that holds it
    path : keys that lead to it
    value : plain data
    """

    document: Document
    path: tuple[Key, ...]
    value: Any

    @property
    def place(self) -> Place:
        """Where it stands."""
        return Place(self.document.name, *(self.document.place(self.path) or ()))

    def get(self, *keys: Key) -> Node:
        """What stands under some keys; None as value where there is nothing, or no mapping or list on the way."""
        value = self.value
        for key in keys:
            if isinstance(value, dict):
                value = value.get(key)
            elif isinstance(value, list) and isinstance(key, int) and -1 < key < len(value):
                value = value[key]
            else:
                value = None
        return Node(self.document, (*self.path, *keys), value)

    def __bool__(self) -> bool:
        """Whether there is anything (an empty mapping or list is nothing, zero and false are something)."""
        return self.value is not None and self.value not in ({}, [], "")

    def has(self, key: str) -> bool:
        """Whether a mapping has a key, even one without a value."""
        return isinstance(self.value, dict) and key in self.value

    def entries(self) -> Iterator[tuple[str, Node]]:
        """The keys of a mapping and what stands under them; of anything else nothing."""
        if isinstance(self.value, dict):
            for key in self.value:
                yield key, self.get(key)

    def items(self) -> Iterator[Node]:
        """The items of a list; of anything else nothing."""
        if isinstance(self.value, list):
            for index in range(len(self.value)):
                yield self.get(index)

    def said(self, value: Any = None, text: str = "") -> Said[Any]:
        """The value, or what was made of it, with its place."""
        return Said(self.value if value is None else value, self.place, text)

    def text(self) -> Said[str] | None:
        """A scalar as text, as the programs that read manifests take it; None for nothing, mappings and lists."""
        written = plain_text(self.value)
        return None if written is None else Said(written, self.place)

    def name(self, default: str = "") -> str:
        """A text; the default where there is none."""
        return self.value if isinstance(self.value, str) and self.value else default

    def refuse(self, what: str, wanted: str, hint: str = "") -> SpecError:
        """Make an error about this value."""
        return SpecError(what, got=brief(self.value), wanted=wanted, hint=hint, where=str(self.place))

    def whole(self, what: str) -> Said[int] | None:
        """A whole number, also as text (``"8"``); None for nothing.

        Raises
        ------
        SpecError : for anything else
        """
        if self.value is None or self.value == "":
            return None
        written = plain_text(self.value) or ""
        if not (written.isascii() and written.isdigit() and len(written) <= 16 and int(written) <= LARGEST):
            raise self.refuse(what, "a whole number")
        return Said(int(written), self.place, written)

    def quantity(self, what: str) -> Said[int] | None:
        """A quantity as Kubernetes writes it (``16Gi``, ``2G``, ``500m``), rounded up to a whole number; None for nothing.

        Raises
        ------
        SpecError : for anything else

        Source: kubernetes/apimachinery, pkg/api/resource/quantity.go.
        """
        if self.value is None or self.value == "":
            return None
        written = plain_text(self.value) or ""
        match = _QUANTITY.fullmatch(written) if len(written) < 40 else None
        if match is None:
            raise self.refuse(what, "a quantity such as 16Gi")
        scale = Decimal(f"1{match[2]}") if match[2] else _SUFFIXES.get(match[3], Decimal(1))
        number = Decimal(match[1]) * scale
        if number > 2**63 - 1:
            raise self.refuse(what, "a quantity within 64 bits")
        return Said(int(number.to_integral_value(rounding="ROUND_CEILING")), self.place, written)


def plain_text(value: Any) -> str | None:
    """A scalar as YAML would write it; None for nothing, mappings and lists."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < LARGEST else repr(value)
    return None


def root(document: Document) -> Node:
    """The whole of a document."""
    return Node(document, (), document.data)


def template(node: Node) -> RoofplanError | None:
    """The error about a text that a template engine has not filled in yet (``{{ .Values.model }}``); None for any other."""
    if not isinstance(node.value, str) or ("{{" not in node.value and "{%" not in node.value):
        return None
    match = _TEMPLATE.search(node.value)
    return None if match is None else not_rendered(match[0], str(node.place))


def template_in(text: str) -> re.Match[str] | None:
    """The first mark of a template in a text."""
    return _TEMPLATE.search(text)


def not_rendered(mark: str, where: str) -> SpecError:
    """The error about a template."""
    hint = "render it first: helm template, kustomize build, or what fills it in"
    return SpecError("template", got=mark, wanted="a rendered manifest", hint=hint, where=where)
