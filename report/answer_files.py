"""Files of answers, written whole or not at all: a picture, or a page for a browser."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from .. import specfiles
from ..errors import DomainError, show
from .canvas import KINDS, kind_of, parse_size, rendered

if TYPE_CHECKING:
    from ..planner.results import Answer

PAGE = "html"


def is_page(path: str | Path) -> bool:
    """Whether a file is to be a page for a browser, by its name.

    >>> is_page("report.HTML"), is_page("report.svg")
    (True, False)
    """
    return PurePath(path).suffix.lower() == f".{PAGE}"


def check_answer_file(
    path: str | Path | None,
    size: str | None = None,
    *,
    dark: bool = False,
    overwrite: bool,
    drawn: bool = True,
    beside: str | Path | None = None,
) -> tuple[int, int] | None:
    """Refuse what cannot be written before anything is computed; returns the size that was asked for, if any.

    Parameters
    ----------
    size, dark : settings of a picture, which a page does not take: it fits every width, and is dark where its reader is
    drawn : whether there are pictures of this kind of answer
    beside : another file of the same run

    Raises
    ------
    DomainError : for a type of file that there is not, a size outside the limits, or settings of a picture without one
    SpecError : for a file that exists and may not be replaced, a folder that there is not, or one file for two things
    """
    page = path is not None and is_page(path)
    if (path is None or page) and (size is not None or dark):
        got = "a page, which fits every width" if page else "no picture"
        raise DomainError(
            "--size" if size is not None else "--dark", got=got, wanted="--out FILE of a picture beside it"
        )
    if path is not None and not page:
        _check_kind(path, drawn=drawn)
    specfiles.check_all_free((path, beside), overwrite=overwrite)
    return None if size is None else parse_size(size)


def _check_kind(path: str | Path, *, drawn: bool) -> None:
    suffix = PurePath(path).suffix.lower()
    if not drawn or suffix.removeprefix(".") not in KINDS:
        kinds = (*KINDS, PAGE) if drawn else (PAGE,)
        wanted = f".{kinds[0]}" if len(kinds) == 1 else f"one of .{', .'.join(kinds)}"
        raise DomainError(f"type of {show(path)}", got=show(suffix) or "a name without one", wanted=wanted)


def write_answer(
    answer: Answer,
    path: str | Path,
    *,
    size: tuple[int, int] | None = None,
    dark: bool = False,
    overwrite: bool = False,
) -> None:
    """Write an answer as a page, or as the picture that it has, by the name of the file; the same answer gives the same bytes.

    Raises
    ------
    DomainError : for another type of file, or an answer without anything to draw
    SpecError : when the file exists and may not be replaced, or cannot be written
    """
    specfiles.write_all([(path, answer_file(answer, path, size=size, dark=dark))], overwrite=overwrite)


def answer_file(answer: Answer, path: str | Path, *, size: tuple[int, int] | None = None, dark: bool = False) -> bytes:
    """What :func:`write_answer` writes.

    Raises
    ------
    DomainError : for another type of file, or an answer without anything to draw
    """
    if is_page(path):
        from .html import to_html

        return to_html(answer).encode("utf-8")
    from .drawn import figure_of

    kind = kind_of(path)
    figure = figure_of(answer, size=size, dark=dark)
    if figure is None:
        raise DomainError(f"type of {show(path)}", got=f".{kind}", wanted=f".{PAGE}: this answer has no picture")
    return rendered(figure, kind)
