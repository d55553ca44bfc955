"""Which picture an answer has, if any."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..errors import DomainError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..planner.comparing import CompareResult
    from ..planner.presets.drawing import PresetResult
    from ..planner.results import Answer
    from ..planner.roofline_answer import RooflineResult
    from ..planner.speculation import SpeculationResult
    from ..planner.sweeping import SweepResult

Size = tuple[int, int]

_PHONE = 480  # pixels of width of a picture that is read on a phone
_HIGH, _SQUARE = 900, 640
_ROW, _AROUND = 34, 230  # pixels of an alternative, and of what stands around, on a phone


def figure_of(answer: Answer, *, size: Size | None = None, dark: bool = False) -> Figure | None:
    """Draw an answer; None where there is no picture of its kind.

    Parameters
    ----------
    size : width and height in pixels of 1/100 inch; default: that of the kind of picture
    dark : on dark paper

    Raises
    ------
    DomainError : for an answer of a kind that is drawn, but without anything to draw
    """
    match answer.command:
        case "sweep":
            from .sweep_figure import sweep_figure

            return sweep_figure(cast("SweepResult", answer), size=size, dark=dark)
        case "compare":
            from .comparison_figure import compare_figure

            return compare_figure(cast("CompareResult", answer), size=size, dark=dark)
        case "roofline":
            from .roofline_figure import roofline_figure
            from .roofline_files import DEFAULT_SIZE

            return roofline_figure(cast("RooflineResult", answer), size=size or DEFAULT_SIZE, dark=dark)
        case "speculate":
            from .speculation_figure import DEFAULT_SIZE, speculation_figure

            return speculation_figure(cast("SpeculationResult", answer), size=size or DEFAULT_SIZE, dark=dark)
        case "figure":
            from .preset_figure import preset_figure

            return preset_figure(cast("PresetResult", answer), size=size, dark=dark)
    return None


def pages_of(answer: Answer) -> tuple[Figure, Figure] | None:
    """Two drawings of an answer, one for a wide page and one for a phone; None where it has nothing to draw."""
    try:
        wide = figure_of(answer)
        narrow = figure_of(answer, size=_on_a_phone(answer))
    except DomainError:  # nothing fits, or no time is known: the tables say so
        return None
    return None if wide is None or narrow is None else (wide, narrow)


def _on_a_phone(answer: Answer) -> Size:
    if answer.command == "compare":
        return _PHONE, _AROUND + _ROW * (len(cast("CompareResult", answer).alternatives) + 1)
    return _PHONE, _SQUARE if answer.command == "roofline" else _HIGH
