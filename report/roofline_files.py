"""Files of points beside a picture, and the size of a picture."""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from .. import specfiles
from ..errors import DomainError, show
from .canvas import DEFAULT_SIZE, LARGEST, SMALLEST

if TYPE_CHECKING:
    from ..planner.results import Answer

DATA_KINDS = ("csv", "json")
_SIZE = re.compile(r"([0-9]{1,5}) ?[xX×] ?([0-9]{1,5})", re.ASCII)


def parse_size(text: str) -> tuple[int, int]:
    """Read the size of a picture in pixels.

    Raises
    ------
    DomainError : for anything but two numbers within the limits

    >>> parse_size("1200x800")
    (1200, 800)
    """
    match = _SIZE.fullmatch(text.strip())
    size = (int(match[1]), int(match[2])) if match else (0, 0)
    if not all(least <= pixels <= most for pixels, least, most in zip(size, SMALLEST, LARGEST, strict=True)):
        wanted = f"WIDTHxHEIGHT in pixels, {SMALLEST[0]}x{SMALLEST[1]} to {LARGEST[0]}x{LARGEST[1]}"
        raise DomainError("--size", got=text or "an empty text", wanted=wanted)
    return size


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


def check_data(path: str | Path | None, *, overwrite: bool) -> None:
    """Refuse a file of points that cannot be written before anything is computed.

    Raises
    ------
    DomainError : for a type of file that is not known
    SpecError : for a file that exists and may not be replaced
    """
    if path is not None:
        data_kind(path)
        specfiles.check_free(path, overwrite=overwrite)


def write_data(answer: Answer, path: str | Path, *, overwrite: bool = False) -> None:
    """Write the points as CSV, or the whole answer as JSON.

    Raises
    ------
    DomainError : for another type of file
    SpecError : when the file exists and may not be replaced, or cannot be written
    """
    from .textfiles import to_csv, to_json

    text = to_csv(answer) if data_kind(path) == "csv" else to_json(answer)
    specfiles.write_text(path, text, overwrite=overwrite)


__all__ = ["DEFAULT_SIZE", "check_data", "data_kind", "parse_size", "write_data"]
