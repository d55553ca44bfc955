"""Objects of Kubernetes APIs: which documents are one, and what they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .nodes import Node, template

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..documents import Document
    from .record import Said


def is_object(document: Document) -> bool:
    """Whether a document is an object of a Kubernetes API."""
    data = document.data
    return isinstance(data, dict) and isinstance(data.get("apiVersion"), str) and isinstance(data.get("kind"), str)


def objects(top: Node) -> Iterator[Node]:
    """An object, or those that a list holds."""
    if top.get("kind").name().endswith("List") and top.has("items"):
        for one in top.get("items").items():
            yield from objects(one)
    else:
        yield top


def name_of(top: Node, default: str = "") -> str:
    """The name of an object."""
    metadata = top.get("metadata")
    return metadata.get("name").name() or metadata.get("generateName").name() or default


def copies(count: Node, what: str = "replicas") -> Said[int] | None:
    """A number of copies; None for nothing, and for none, which says nothing of those that will be.

    Raises
    ------
    RoofplanError : for what is no number
    """
    fault = template(count)
    if fault is not None:
        raise fault
    said = count.whole(what)
    return said if said is not None and said.value else None
