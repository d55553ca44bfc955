"""What a comparison with published speeds shows: metrics by kind of row, groups, misses by name; in a terminal, and as docs/accuracy.md."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..accuracy.constants import distinct
from ..accuracy.metrics import grouped, metrics_of
from ..accuracy.speed import label
from ..errors import show
from .accuracy_tables import (
    HEADER,
    NOT_ANSWERED,
    markdown_table,
    metric_cells,
    percent,
    reason_rows,
    unanswered_sections,
)
from .sections import Report, Section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..accuracy.constants import FittedFile
    from ..accuracy.metrics import Comparison, Metric
    from ..accuracy.speed import SpeedAccuracy
    from ..engines.spec import Origin

_HEADER = (*HEADER, "in the 80 % range", "its width")
HOW = {
    "served": "requests in a closed loop of clients, against vLLM, SGLang and TensorRT-LLM",
    "rate": "requests at a rate, against TensorRT-LLM with Triton",
    "stream": "single streams of llama.cpp",
    "single": "one request on an idle server",
    "static": "one batch, computed and decoded together",
    "offline": "as many requests as memory holds, all at hand",
    "closed": "all requests of a closed loop at once",
    "saturated_prefill": "prompts without end",
    "unknown": "rows of series that no rule knows",
}
_LEFT_OUT = "own model, device or engine left out of the fit"
_DEFAULTS = "engine defaults in the place of the known launch settings; client, version and cache format as known"
_ALL = "the figures that a rule leaves out among them, as far as their load is recorded"
_MISS_HEADER = ("row", "metric", "measured", "predicted", "model", "device", "engine")


def speed_report(r: SpeedAccuracy) -> Report:
    """Arrange a comparison: the headline, kinds of rows, groups, misses, what is left out."""
    by_how = grouped(r.comparisons, ("how",))["how"]
    sections = [
        Section("Rows that record the format of their weights", _HEADER, _rows(metrics_of(r.headline))),
        Section("All rows, by how they were run", _HEADER, _grouped_rows(by_how)),
        Section(f"Served rows, {_ALL}", _HEADER, _rows(metrics_of(r.with_left_out))),
        Section("Served rows without any constant that was fitted on such rows", _HEADER, _rows(metrics_of(r.bare))),
        Section(f"Served rows, {_DEFAULTS}", _HEADER, _rows(metrics_of(r.by_defaults))),
        *_left_out(r),
        Section("Served rows, by kind of model", _HEADER, _grouped_rows(_served(r, "kind"))),
        Section("Served rows, by requests in flight", _HEADER, _grouped_rows(_served(r, "concurrency"))),
    ]
    for column, values in grouped(r.comparisons, r.by).items():
        sections.append(Section(f"By {show(column, 40)}", _HEADER, _grouped_rows(values)))
    sections.append(Section("Largest misses", _MISS_HEADER, _misses(r.worst())))
    sections.append(Section("Left out by a written rule", NOT_ANSWERED, _excluded(r)))
    sections += unanswered_sections(r.unanswered)
    sections.append(Section("Fitted constants", ("file", "constants"), _counted(r)))
    remarks = [f"{how}: {meaning}" for how, meaning in HOW.items() if how in by_how]
    remarks.append("--format json lists what is not answered, and why; --rows FILE every comparison.")
    how = "the event simulation" if r.simulate else "the closed form"
    return Report(
        f"Speed against {r.rows} published figures and settings ({show(r.data)}); closed loops by {how}",
        f"{r.coverage:.1%} of the figures that no rule leaves out are answered.",
        True,
        tuple(sections),
        tuple(remarks),
    )


def _left_out(r: SpeedAccuracy) -> list[Section]:
    """Served rows with constants that know nothing of their model, device or engine."""
    if not r.left_out:
        return []
    return [Section(f"Served rows, {_LEFT_OUT}", _HEADER, _grouped_rows(r.left_out_by_kind))]


def _counted(r: SpeedAccuracy) -> tuple[tuple[str, ...], ...]:
    """How many fitted constants the files state."""
    stated = sum(len(one.figures) for one in r.constants)
    totals = (("all files", str(stated)), ("the same name and value counted once", str(distinct(r.constants))))
    return (*((one.file, str(len(one.figures))) for one in r.constants), *totals)


def _names(one: FittedFile) -> str:
    """The names of a file's constants, those of a list as one, with how many there are."""
    plain = (".".join(part for part in name.split(".") if not part.isdecimal()) for name in one.names)
    return ", ".join(f"{name} ({count})" if count > 1 else name for name, count in Counter(plain).items())


def _served(r: SpeedAccuracy, column: str) -> Mapping[str, Mapping[str, Metric]]:
    served = [c for c in r.comparisons if label(c, "how") == "served"]
    groups = grouped(served, (column,))[column]
    return dict(sorted(groups.items(), key=lambda item: (len(item[0]), item[0])))


def _grouped_rows(groups: Mapping[str, Mapping[str, Metric]]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (f"{show(value, 60)}: {name}", *cells) for value, metrics in groups.items() for name, *cells in _rows(metrics)
    )


def _rows(metrics: Mapping[str, Metric]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            *metric_cells(name, metric),
            percent(metric.coverage_80, 0),
            "" if metric.width_80 is None else f"x/÷ {metric.width_80:.2f}",
        )
        for name, metric in metrics.items()
    )


def _misses(comparisons: Iterable[Comparison]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            show(c.row, 40),
            c.metric,
            f"{c.measured:,.4g}",
            f"{c.predicted or 0.0:,.4g}",
            show(label(c, "model"), 60),
            show(label(c, "gpu"), 40),
            show(f"{label(c, 'engine')} {label(c, 'engine_version')}".strip(), 40),
        )
        for c in comparisons
    )


def _excluded(r: SpeedAccuracy) -> tuple[tuple[str, ...], ...]:
    return tuple((str(count), show(reason, 300)) for reason, count in r.excluded)


# ------------------------------------------------------------------------------------------------ docs/accuracy.md


def speed_page(closed: SpeedAccuracy, simulated: SpeedAccuracy, origins: Iterable[tuple[str, str, Origin]]) -> str:
    """The speed part of docs/accuracy.md: every group, by closed form and by simulation, every large miss by name, and what was fitted.

    ``origins`` are the fitted figures: the file, the figure, and where it comes from.
    """
    lines = [
        "## Speed",
        "",
        (
            f"{closed.rows} published settings and figures (`{closed.data}`, with their sources); {closed.coverage:.1%} of the figures"
            " that no rule leaves out are answered. The median bias is the median of the errors with their signs."
        ),
        "",
        *(f"- {how}: {meaning}" for how, meaning in HOW.items()),
        "",
        "### Rows that record the format of their weights",
        "",
        *markdown_table(_HEADER, _rows(metrics_of(closed.headline))),
        "",
        "### By how they were run",
        "",
        *markdown_table(_HEADER, _grouped_rows(grouped(closed.comparisons, ("how",))["how"])),
        "",
        "### Served rows",
        "",
        *(f"![Predicted against measured {name}](figures/accuracy-{name}.png)" for name in ("tpot", "ttft")),
        "",
    ]
    for title, column in (
        ("kind of model", "kind"),
        ("engine", "engine"),
        ("device", "gpu"),
        ("requests in flight", "concurrency"),
        ("format of the weights", "precision"),
    ):
        lines += [f"By {title}, closed form:", "", *markdown_table(_HEADER, _grouped_rows(_served(closed, column))), ""]
    lines += [
        "By engine, event simulation:",
        "",
        *markdown_table(_HEADER, _grouped_rows(_served(simulated, "engine"))),
        "",
        f"All of them, {_ALL}, closed form:",
        "",
        *markdown_table(_HEADER, _rows(metrics_of(closed.with_left_out))),
        "",
        f"All of them, {_ALL}, event simulation:",
        "",
        *markdown_table(_HEADER, _rows(metrics_of(simulated.with_left_out))),
        "",
        "Without any constant that was fitted on served rows (kernels and data sheets alone), closed form:",
        "",
        *markdown_table(_HEADER, _rows(metrics_of(closed.bare))),
        "",
        f"With {_DEFAULTS}; closed form:",
        "",
        *markdown_table(_HEADER, _rows(metrics_of(closed.by_defaults))),
        "",
        "The same by event simulation:",
        "",
        *markdown_table(_HEADER, _rows(metrics_of(simulated.by_defaults))),
        "",
        f"With the row's {_LEFT_OUT} (closed form):",
        "",
        *markdown_table(_HEADER, _grouped_rows(closed.left_out_by_kind)),
        "",
        "### Largest misses of speed",
        "",
        *markdown_table(_MISS_HEADER, _misses(closed.worst(40))),
        "",
        "### Left out by a written rule",
        "",
        "`accuracy/settings/excluded.yaml` and `accuracy/runs.yaml` hold the rules.",
        "",
        *markdown_table(NOT_ANSWERED, _excluded(closed)),
        "",
        *_not_answered(closed),
        "### Fitted constants",
        "",
        (
            "Counted from the YAML files: figures whose source says that they were fitted, widths of ranges among them. The factors of"
            " the closed form (`planner/load.py`) were chosen against the event simulation, not against measurements."
        ),
        "",
        *markdown_table(
            ("file", "constants", "names"),
            tuple(
                (file, count, name)
                for (file, count), name in zip(_counted(closed), (*map(_names, closed.constants), "", ""), strict=True)
            ),
        ),
        "",
        "### What was fitted on what",
        "",
        *markdown_table(
            ("file", "figure", "data", "error", "not fitted on"),
            tuple(
                (file, figure, origin.fit.data, origin.fit.error, origin.fit.not_fitted_on)
                for file, figure, origin in origins
                if origin.fit is not None
            ),
        ),
        "",
    ]
    return "\n".join(lines)


def _not_answered(r: SpeedAccuracy) -> list[str]:
    rows = reason_rows(r.unanswered)
    return ["### Figures that are not answered", "", *markdown_table(NOT_ANSWERED, rows), ""] if rows else []
