"""Files of points beside a picture."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from ..errors import DomainError, show

if TYPE_CHECKING:
    from pathlib import Path

    from ..planner.results import Answer

DATA_KINDS = ("csv", "json")


def data_kind(path: str | Path) -> str:
    """The kind of a file of points, by its name.

    Raises
    ------
    DomainError : for another kind
    """
    kind = PurePath(path).suffix.lower().removeprefix(".")
    if kind not in DATA_KINDS:
        got = f".{kind}" if kind else "a name without one"
        raise DomainError(f"type of {show(path)}", got=got, wanted=f"one of .{', .'.join(DATA_KINDS)}")
    return kind


def data_file(answer: Answer, path: str | Path) -> bytes:
    """The points as CSV, or the whole answer as JSON, by the name of the file.

    Raises
    ------
    DomainError : for another type of file
    """
    from .textfiles import to_csv, to_json

    text = to_csv(answer) if data_kind(path) == "csv" else to_json(answer)
    return text.encode("utf-8")
