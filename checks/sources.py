"""A file as readers get it: its name, its text, and the documents in it where it is YAML or JSON."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..documents import Document, parse_manifests
from ..errors import RoofplanError

if TYPE_CHECKING:
    from .record import Reading


@dataclass(frozen=True)
class Source:
    """One file to check.

    Parameters
    ----------
    file : its name as it is shown
    text : what is in it
    is_yaml : whether its name or its first lines say that it holds YAML or JSON
    """

    file: str
    text: str
    is_yaml: bool

    @functools.cached_property
    def parsed(self) -> tuple[Document, ...] | RoofplanError:
        """The documents in it, or what is wrong with them."""
        try:
            return tuple(parse_manifests(self.text, self.file))
        except RoofplanError as error:
            return error


class Reader(Protocol):
    """What each module of :mod:`roofplan.checks.readers` offers; the first one that recognises a document reads it."""

    def recognises(self, source: Source, document: Document | None) -> bool:
        """Whether this reader reads a document (None: the whole text, which is no YAML)."""

    def read(self, source: Source, document: Document | None) -> Reading:
        """Read it; what is wrong with a part is a problem of the reading, and the rest is read."""
