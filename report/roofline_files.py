"""The files of a roofline: a picture and its points, written whole or not at all."""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from .. import specfiles
from ..errors import DomainError, show
from .canvas import LARGEST, SMALLEST, kind_of, rendered

if TYPE_CHECKING:
    from ..planner.roofline_answer import RooflineResult

DATA_KINDS = ("csv", "json")
DEFAULT_SIZE = (1200, 800)
_SIZE = re.compile(r"([0-9]{1,5}) ?[xX×] ?([0-9]{1,5})", re.ASCII)


def check_files(
    picture: str | Path | None, data: str | Path | None, size: str | None, *, dark: bool, overwrite: bool
) -> tuple[int, int]:
    """Refuse what cannot be written before anything is computed; returns the size of the picture.

    Raises
    ------
    DomainError : for a type of file that is not known, a size outside the limits, or settings of a picture without one
    SpecError : for a file that exists and may not be replaced
    """
    if picture is None and (size is not None or dark):
        raise DomainError("--size" if size is not None else "--dark", got="no picture", wanted="--out FILE beside it")
    if picture is not None:
        kind_of(picture)
    if data is not None:
        data_kind(data)
    for path in (picture, data):
        if path is not None:
            specfiles.check_free(path, overwrite=overwrite)
    return DEFAULT_SIZE if size is None else parse_size(size)


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
        raise DomainError("--size", got=text, wanted=wanted)
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


def write_picture(
    result: RooflineResult,
    path: str | Path,
    *,
    size: tuple[int, int] = DEFAULT_SIZE,
    dark: bool = False,
    overwrite: bool = False,
) -> None:
    """Draw a roofline into a PNG, SVG or PDF file; the same result gives the same bytes.

    Raises
    ------
    DomainError : for another type of file
    SpecError : when the file exists and may not be replaced, or cannot be written
    """
    from .roofline_figure import roofline_figure

    kind = kind_of(path)
    specfiles.write_bytes(path, rendered(roofline_figure(result, size=size, dark=dark), kind), overwrite=overwrite)


def write_data(result: RooflineResult, path: str | Path, *, overwrite: bool = False) -> None:
    """Write the points as CSV, or the whole answer as JSON.

    Raises
    ------
    DomainError : for another type of file
    SpecError : when the file exists and may not be replaced, or cannot be written
    """
    from .textfiles import to_csv, to_json

    text = to_csv(result) if data_kind(path) == "csv" else to_json(result)
    specfiles.write_text(path, text, overwrite=overwrite)
