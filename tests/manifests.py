"""Reading manifests in tests: through the readers that a file would be read by."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from roofplan.checks.readers import all_readers
from roofplan.checks.record import Place, Reading, Service
from roofplan.checks.sources import Source
from roofplan.errors import RoofplanError

FILE = "m.yaml"


def readings(text: str, file: str = FILE) -> list[tuple[str, Reading]]:
    """What is read of each document, by the module of the reader that recognised it; none of those that nobody recognises."""
    source = Source(file, dedent(text), file.endswith((".yaml", ".yml", ".json")))
    parsed = source.parsed if source.is_yaml else None
    documents = [None] if parsed is None or isinstance(parsed, RoofplanError) else list(parsed)
    found = []
    for document in documents:
        reader = next((one for one in all_readers() if one.recognises(source, document)), None)
        if reader is not None:
            found.append((type(reader).__module__.rpartition(".")[2], reader.read(source, document)))
    return found


def reading(text: str, by: str, file: str = FILE) -> Reading:
    """What the only document of a text gives, which one reader must recognise."""
    ((module, found),) = readings(text, file)
    assert module == by
    return found


def service(text: str, by: str, file: str = FILE) -> Service:
    """The only service of a text, in which nothing is wrong."""
    found = reading(text, by, file)
    assert not found.problems, [str(problem) for problem in found.problems]
    (one,) = found.services
    return one


def problem(text: str, by: str, file: str = FILE) -> str:
    """The only problem of a text, and no service beside it."""
    found = reading(text, by, file)
    assert not found.services
    (one,) = found.problems
    return str(one)


def said(one: Service) -> dict[str, Any]:
    """The options of a service, without their places."""
    return {name: value.value for name, value in one.options.items()}


def line_of(text: str, part: str) -> int:
    """The line of a text in which something stands for the first time."""
    return dedent(text)[: dedent(text).index(part)].count("\n") + 1


def at(text: str, part: str, file: str = FILE) -> Place:
    """The place of something in a text."""
    text = dedent(text)
    start = text.index(part)
    return Place(file, text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
