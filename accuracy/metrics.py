"""How far predictions are from what was measured: the figures that every accuracy report has."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prediction beside one measurement; without a prediction, ``reason`` says why there is none.

    ``labels`` are the columns of the row, by which comparisons are grouped; ``low`` and ``high`` are the ends of the 80 % range.
    """

    row: str
    metric: str
    measured: float
    predicted: float | None
    reason: str = ""
    labels: Mapping[str, str] | None = None
    low: float | None = None
    high: float | None = None

    @property
    def inside(self) -> bool | None:
        """Whether what was measured lies in the range; None without one."""
        return None if self.low is None or self.high is None else self.low <= self.measured <= self.high

    @property
    def error(self) -> float | None:
        """Relative error with its sign, None without a prediction."""
        return None if self.predicted is None else self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True)
class Metric:
    """Errors of one metric: counts, and fractions of what was measured; None where nothing was answered.

    ``bias`` is the mean and ``median_bias`` the median of the errors with their signs. ``worst_difference`` is in the metric's own unit;
    ``coverage_80`` is the share of rows within the 80 % range and ``width_80`` the geometric mean of its x/÷, for metrics that have one.
    """

    rows: int
    answered: int
    median_ape: float | None
    mean_ape: float | None
    bias: float | None
    p90_ape: float | None
    worst_ape: float | None
    worst_difference: float | None
    median_bias: float | None = None
    coverage_80: float | None = None
    width_80: float | None = None


def metric_of(comparisons: Sequence[Comparison]) -> Metric:
    """Summarise comparisons of one metric."""
    errors = [error for comparison in comparisons if (error := comparison.error) is not None]
    if not errors:
        return Metric(len(comparisons), 0, None, None, None, None, None, None)
    absolute = sorted(abs(error) for error in errors)
    differences = [abs(c.predicted - c.measured) for c in comparisons if c.predicted is not None]
    return Metric(
        rows=len(comparisons),
        answered=len(errors),
        median_ape=statistics.median(absolute),
        mean_ape=statistics.fmean(absolute),
        bias=statistics.fmean(errors),
        p90_ape=absolute[min(len(absolute) - 1, int(0.9 * len(absolute)))],
        worst_ape=absolute[-1],
        worst_difference=max(differences),
        median_bias=statistics.median(errors),
        **_coverage(comparisons),
    )


def reasons_of(unanswered: Iterable[Comparison]) -> list[tuple[str, int]]:
    """Why comparisons have no prediction, and how many of them for each reason, the most frequent first."""
    counted = Counter(c.reason for c in unanswered)
    return sorted(counted.items(), key=lambda item: (-item[1], item[0]))


def _coverage(comparisons: Sequence[Comparison]) -> dict[str, float]:
    inside = [c.inside for c in comparisons if c.inside is not None]
    if not inside:
        return {}
    widths = [math.log(c.high / c.low) / 2 for c in comparisons if c.low and c.high]
    return {"coverage_80": sum(inside) / len(inside), "width_80": math.exp(statistics.fmean(widths))}


def metrics_of(comparisons: Iterable[Comparison]) -> dict[str, Metric]:
    """Summarise comparisons by metric, in the order in which metrics first come."""
    by_metric: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        by_metric.setdefault(comparison.metric, []).append(comparison)
    return {name: metric_of(own) for name, own in by_metric.items()}


def grouped(comparisons: Sequence[Comparison], columns: Iterable[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Summarise comparisons by the values of columns: ``{column: {value: {metric: Metric}}}``."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for column in columns:
        by_value: dict[str, list[Comparison]] = {}
        for comparison in comparisons:
            value = (comparison.labels or {}).get(column, "") or "not stated"
            by_value.setdefault(value, []).append(comparison)
        groups[column] = {value: metrics_of(own) for value, own in sorted(by_value.items())}
    return groups
