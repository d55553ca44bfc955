"""roofplan's own deployment files: ``schema: roofplan/deployment/v1``, with what they promise."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...api.deployments import described, is_deployment
from ...api.limits import read_expectations, read_limits
from ...api.options import Options
from ...errors import RoofplanError
from ...quantities import COUNT, NUMBER, parse, parse_count
from ..nodes import root
from ..record import Expectation, Reading, Said, Service

if TYPE_CHECKING:
    from ...documents import Document, Key
    from ..sources import Source

ORDER = 10
_NAMED = ("model", "hardware")


class _Deployment:
    """Reads one deployment a document."""

    def recognises(self, source: Source, document: Document | None) -> bool:  # noqa: ARG002  # the document says it all
        """Whether a document says that it is one."""
        return document is not None and is_deployment(document)

    def read(self, source: Source, document: Document | None) -> Reading:  # noqa: ARG002  # as every reader is called
        """Read it whole, or say the first thing that is wrong with it."""
        assert document is not None
        try:
            return Reading((_service(document),))
        except RoofplanError as error:
            return Reading(problems=(error,))


def _service(document: Document) -> Service:
    data = described(document)
    said = functools.partial(_said, document)
    options = {
        name: said(_as_number(name, value), (name,))
        for name, value in data.items()
        if name in _NAMED or (name in Options.__annotations__ and name != "engine")
    }
    limits = {name: said(value, ("limits", name)) for name, value in read_limits(document).items()}
    top = root(document)
    return Service(
        kind="deployment",
        name=data.get("name") or Path(document.name).stem,
        place=top.place,
        engine=said(data["engine"], ("engine",)) if "engine" in data else Said("plain", top.place),
        options=options,
        limits=limits,
        expectations=tuple(
            Expectation(kind, top.get(*path).said(value), wanted)
            for kind, value, wanted, path in read_expectations(document)
        ),
        usd_per_hour=_number(document, data, "usd_per_hour"),
        shared_prefix_tokens=_tokens(document, data, "shared_prefix_tokens"),
    )


def _said(document: Document, value: Any, path: tuple[Key, ...]) -> Said[Any]:
    """A value with its place, and with how it is written there where that is something else."""
    node = root(document).get(*path)
    return node.said(value, "" if str(node.value) == str(value) else str(node.value))


def _as_number(name: str, value: Any) -> Any:
    """A count that is written as text as the number that it is; what is wrong with it is said where it is used."""
    if isinstance(value, str) and "Whole" in str(Options.__annotations__.get(name, "")):
        try:
            return parse_count(value, name)
        except RoofplanError:
            return value
    return value


def _number(document: Document, data: dict[str, Any], name: str) -> Said[float] | None:
    if name not in data:
        return None
    try:
        return _said(document, float(parse(data[name], NUMBER, name)), (name,))
    except RoofplanError as error:
        raise error.at(document.where((name,))) from error


def _tokens(document: Document, data: dict[str, Any], name: str) -> Said[int] | None:
    if name not in data:
        return None
    try:
        return _said(document, int(parse(data[name], COUNT, name)), (name,))
    except RoofplanError as error:
        raise error.at(document.where((name,))) from error


READER = _Deployment()
