"""What every report of accuracy shows: metrics as cells of a table, why rows are not answered, tables of Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..accuracy.metrics import reasons_of
from ..errors import show
from .sections import Section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..accuracy.metrics import Comparison, Metric

# The median bias is the median of the errors with their signs.
HEADER = ("", "answered", "median", "mean", "90 % within", "median bias")
NOT_ANSWERED = ("figures", "why")


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction in per cent, or nothing."""
    return "" if value is None else f"{value:.{digits}%}"


def metric_cells(name: str, metric: Metric, digits: int = 1) -> tuple[str, ...]:
    """The cells below :data:`HEADER`."""
    bias = "" if metric.median_bias is None else f"{metric.median_bias:+.{digits}%}"
    errors = (percent(error, digits) for error in (metric.median_ape, metric.mean_ape, metric.p90_ape))
    return (name, f"{metric.answered} of {metric.rows}", *errors, bias)


def with_worst(metrics: Mapping[str, Metric], digits: int = 1) -> tuple[tuple[str, ...], ...]:
    """Lines of metrics that end with the largest error."""
    return tuple(
        (*metric_cells(name, metric, digits), percent(metric.worst_ape, digits)) for name, metric in metrics.items()
    )


def reason_rows(unanswered: Iterable[Comparison]) -> tuple[tuple[str, ...], ...]:
    """How many figures are not answered, by reason."""
    return tuple((str(count), show(reason, 300)) for reason, count in reasons_of(unanswered))


def unanswered_sections(unanswered: Iterable[Comparison]) -> list[Section]:
    """The section that says so, where there are any."""
    rows = reason_rows(unanswered)
    return [Section("Not answered", NOT_ANSWERED, rows)] if rows else []


def markdown_table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """A table of Markdown, line by line."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [line(header), line("---" for _ in header), *map(line, rows)]
