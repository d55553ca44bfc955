"""Which picture an answer has, if any."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from ..errors import DomainError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..planner.comparing import CompareResult
    from ..planner.results import Answer

Size = tuple[int, int]

_PHONE = 480  # pixels of width of a picture that is read on a phone
_HIGH, _SQUARE = 900, 640
_ROW, _AROUND = 34, 230  # pixels of an alternative, and of what stands around, on a phone


# Which module draws the answer of a verb, by which function; it is loaded only for that verb.
_DRAWERS = {
    "sweep": ("sweep_figure", "sweep_figure"),
    "compare": ("comparison_figure", "compare_figure"),
    "roofline": ("roofline_figure", "roofline_figure"),
    "speculate": ("speculation_figure", "speculation_figure"),
    "figure": ("preset_figure", "preset_figure"),
    "measure": ("measured_figure", "measured_figure"),
}


def figure_of(answer: Answer, *, size: Size | None = None, dark: bool = False) -> Figure | None:
    """Draw an answer; None where there is no picture of its kind.

    Parameters
    ----------
    size : width and height in pixels of 1/100 inch; default: that of the kind of picture, or higher where more stands on it
    dark : on dark paper

    Raises
    ------
    DomainError : for an answer of a kind that is drawn, but without anything to draw
    TooSmallError : for a size without room for what stands on the picture
    """
    from .canvas import TooSmallError

    if answer.command not in _DRAWERS:
        return None
    module, function = _DRAWERS[answer.command]
    draw: Any = getattr(import_module(f".{module}", __package__), function)
    try:
        figure: Figure = draw(answer, dark=dark) if size is None else draw(answer, size=size, dark=dark)
    except TooSmallError as error:
        if size is not None:
            raise
        figure = draw(answer, size=error.least, dark=dark)
    return figure


def pages_of(answer: Answer) -> tuple[Figure, Figure] | None:
    """Two drawings of an answer, one for a wide page and one for a phone; None where it has nothing to draw."""
    from .canvas import TooSmallError

    try:
        wide = figure_of(answer)
        try:
            narrow = figure_of(answer, size=_on_a_phone(answer))
        except TooSmallError as error:
            narrow = figure_of(answer, size=error.least)
    except DomainError:  # nothing fits, or no time is known: the tables say so
        return None
    return None if wide is None or narrow is None else (wide, narrow)


def _on_a_phone(answer: Answer) -> Size:
    if answer.command == "compare":
        return _PHONE, _AROUND + _ROW * (len(cast("CompareResult", answer).alternatives) + 1)
    return _PHONE, _SQUARE if answer.command == "roofline" else _HIGH
