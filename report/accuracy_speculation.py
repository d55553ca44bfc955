"""What a comparison with published speed-ups of speculation shows: metrics by how rows are predicted, fitted costs, rows by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..accuracy.metrics import grouped, metrics_of
from ..accuracy.speculation import TARGET
from ..errors import show
from .accuracy_tables import HEADER, unanswered_sections, with_worst
from .sections import Report, Section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..accuracy.metrics import Comparison, Metric
    from ..accuracy.speculation import SpeculationAccuracy
    from ..accuracy.unpredicted_speculation import Implied

_HEADER = (*HEADER, "worst")
HOW = {
    "formula": "tokens of a round / (k c + 1), with a draft's cost as published, or one for all rows of a draft model",
    "steps": "step models of target and drafter at the published tokens of a round, as roofplan speculate times them",
    "acceptance": "tokens of a round at one k from those at a smaller one, by one alpha",
}


def speculation_accuracy_report(r: SpeculationAccuracy) -> Report:
    """Arrange a comparison: metrics, the rows of each kind, fitted and implied costs, what is not answered."""
    by_how = grouped(r.scored, ("how",))["how"]
    answered = {how: own for how, own in by_how.items() if how in HOW}
    sections = [
        Section("Rows to which nothing was fitted", _HEADER, _grouped(answered)),
        Section("Speed-ups, by drafter", _HEADER, _grouped(grouped(_speedups(r.scored), ("drafter",))["drafter"])),
        Section("Speed-ups of EAGLE heads and look-ups", _HEADER, _drafted(r)),
    ]
    for column, values in grouped(r.comparisons, r.by).items():
        sections.append(Section(f"By {column}", _HEADER, _grouped(values)))
    sections += filter(None, (_fitted(r), _listed(r), _implied(r)))
    sections += unanswered_sections(r.unanswered)
    remarks = [f"{how}: {meaning}" for how, meaning in HOW.items() if how in answered]
    if r.above_expected:
        names = ", ".join(show(name, 40) for name in r.above_expected)
        remarks.append(f"above the tokens of a round, so that no cost explains them: {names}")
    remarks.append("--format json lists what is not answered, and why; --rows FILE every comparison.")
    return Report(
        f"Speculation against {r.rows} published figures ({show(r.data)})",
        _verdict(r),
        True,
        tuple(sections),
        tuple(remarks),
    )


def _verdict(r: SpeculationAccuracy) -> str:
    whole, every = (metrics_of(rows).get("speedup") for rows in (r.drafted_complete, r.drafted))
    if every is None or every.median_ape is None:
        return ""
    said = f"{every.median_ape:.1%} in the median of all {every.answered} rows, some inputs of most of which were not published"
    if whole is not None and whole.median_ape is not None:
        kept = "kept" if whole.median_ape <= TARGET else "missed"
        rows = f"{whole.answered} row{'s' if whole.answered > 1 else ''} with complete inputs"
        said = f"{whole.median_ape:.1%} off in the median of the {rows} (at most {TARGET:.0%}: {kept}), {said}"
    return f"Speed-ups of EAGLE heads and look-ups: {said}."


def _drafted(r: SpeculationAccuracy) -> tuple[tuple[str, ...], ...]:
    of = {"every input published": r.drafted_complete, "all, lengths or trees of most taken": r.drafted}
    metrics = {name: metrics_of(rows).get("speedup") for name, rows in of.items()}
    return with_worst({name: metric for name, metric in metrics.items() if metric is not None})


def _speedups(comparisons: Iterable[Comparison]) -> list[Comparison]:
    return [c for c in comparisons if c.metric == "speedup"]


def _grouped(groups: Mapping[str, Mapping[str, Metric]]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (f"{show(value, 40)}: {name}", *cells)
        for value, metrics in groups.items()
        for name, *cells in with_worst(metrics)
    )


def _fitted(r: SpeculationAccuracy) -> Section | None:
    rows = tuple(
        (show(each.drafter, 40), f"{each.draft_cost:.4f}", f"{each.used} of {each.rows}", f"{each.worst_ape:.1%}")
        for each in r.fitted
    )
    header = ("draft model", "cost of a draft, in steps", "rows that any cost explains", "largest error of all")
    return Section("One cost for all rows of a draft model", header, rows) if rows else None


def _listed(r: SpeculationAccuracy) -> Section | None:
    rows = tuple(
        (
            show(c.row, 40),
            show((c.labels or {}).get("drafter", ""), 30),
            show((c.labels or {}).get("k", ""), 10),
            f"{c.measured:.3f}",
            f"{c.predicted:.3f}",
            f"{c.error:+.1%}",
            show((c.labels or {}).get("notes", ""), 60),
        )
        for c in r.comparisons
        if c.metric == "speedup" and c.predicted is not None and c.error is not None
    )
    header = ("row", "drafter", "k", "measured", "predicted", "error", "")
    return Section("Speed-ups, row by row", header, rows) if rows else None


def _implied(r: SpeculationAccuracy) -> Section | None:
    """Costs that rows imply which are not predicted."""
    predicted = {c.row for c in r.comparisons if c.predicted is not None}
    rows = tuple(_implied_row(each) for each in r.implied if each.row not in predicted)
    header = ("row", "method", "tokens of a round", "speed-up", "a round, in steps", "a draft, in steps")
    return Section("Costs that the other rows imply", header, rows) if rows else None


def _implied_row(each: Implied) -> tuple[str, ...]:
    return (
        show(each.row, 40),
        show(each.drafter, 40),
        f"{each.tokens_per_round:.2f}",
        f"{each.speedup:.2f}",
        f"{each.round_cost:.3f}",
        "" if each.draft_cost is None else f"{each.draft_cost:.3f}",
    )
