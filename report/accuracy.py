"""What a comparison with published logs shows: metrics, groups, misses by name; in a terminal, and as docs/accuracy.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..accuracy.memory import METRICS
from ..accuracy.metrics import grouped, metrics_of
from ..accuracy.names import remark_on
from ..errors import show
from ..quantities import show_bytes
from .sections import Report, Section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..accuracy.activations import ActivationFit
    from ..accuracy.metrics import Comparison, Metric
    from ..accuracy.results import MemoryAccuracy

_HEADER = ("metric", "answered", "median", "mean", "90 % within", "bias", "worst")


def memory_report(r: MemoryAccuracy) -> Report:
    """Arrange a comparison: rows that agree with themselves, incomplete ones, groups, misses, the fit of the constants."""
    sections = [Section("Rows whose own figures agree", _HEADER, _rows(metrics_of(r.scored)))]
    incomplete = [c for c in r.comparisons if (c.labels or {}).get("consistent") == "incomplete"]
    if incomplete:
        sections.append(Section("Rows of which something is missing", _HEADER, _rows(metrics_of(incomplete))))
    for column, values in grouped(r.comparisons, r.by).items():
        rows = [(f"{value}: {name}", *cells) for value, own in values.items() for name, *cells in _rows(own)]
        sections.append(Section(f"By {column}", _HEADER, tuple(rows)))
    sections.append(Section("Largest misses", ("row", "metric", "error", "model", "device"), _misses(r.worst())))
    if r.fit is not None:
        sections.append(Section("Activation constants of vLLM, fitted again", ("", "", ""), _fit(r.fit)))
    coverage = "" if r.coverage is None else f"{r.coverage:.1%} of the rows that name model and device are answered."
    remarks = [f"{name}: {meaning}" for name, meaning in METRICS.items()]
    remarks.append("--format json lists the rows that are not answered, and why; --rows FILE every comparison.")
    return Report(
        f"Memory against {r.rows} start-up logs ({show(r.data)})", coverage, True, tuple(sections), tuple(remarks)
    )


def _rows(metrics: Mapping[str, Metric]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            name,
            f"{metric.answered} of {metric.rows}",
            _percent(metric.median_ape),
            _percent(metric.mean_ape),
            _percent(metric.p90_ape),
            "" if metric.bias is None else f"{metric.bias:+.2%}",
            _percent(metric.worst_ape),
        )
        for name, metric in metrics.items()
    )


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"


def _misses(comparisons: Iterable[Comparison]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (show(c.row, 40), c.metric, f"{c.error or 0.0:+.1%}", show(_label(c, "model"), 60), show(_label(c, "gpu"), 40))
        for c in comparisons
    )


def _label(c: Comparison, column: str) -> str:
    return (c.labels or {}).get(column, "")


def _fit(fit: ActivationFit) -> tuple[tuple[str, ...], ...]:
    return (
        ("bytes of a logit", f"{fit.logit_bytes:.2f}", f"the profile has {fit.profile_logit_bytes:g}"),
        (
            "workspaces",
            show_bytes(round(fit.constant_bytes)),
            f"the profile has {show_bytes(fit.profile_constant_bytes)}",
        ),
        ("mean error in the sample", show_bytes(round(fit.error_bytes)), f"{fit.rows} rows of {fit.models} models"),
        ("with each model left out", show_bytes(round(fit.left_out_error_bytes)), "fitted on the other models"),
        ("of the profile's constants", show_bytes(round(fit.profile_error_bytes)), ""),
    )


# ------------------------------------------------------------------------------------------------ docs/accuracy.md

# What other tools claim of themselves: (tool, claim, source).
CLAIMS = (
    ("llm-d-planner", "weights 0.89 % mean error over 53 of 57 runs", "llm-d-incubation/llm-d-planner, PR 205"),
    (
        "llm-d-planner",
        "cache 6.6 % mean absolute error on the same logs with its fixed constants",
        "llm-d-incubation/llm-d-planner d3121e0, accuracy results",
    ),
    ("gguf-parser-go", "deviates by about 100 MiB", "gpustack/gguf-parser-go v0.22, README"),
    (
        "ollama",
        "mean error of a load estimate up to 1,757 MiB by architecture, worst 2,203 MiB",
        "ollama/ollama issue 18198",
    ),
    (
        "llm-d-benchmark",
        "a flat activation guess: 3.38 GiB of cache too little for one model",
        "llm-d/llm-d-benchmark PR 732",
    ),
    ("LM Studio", "cache 40 to 67 % too high on hybrid models", "lmstudio-ai/lmstudio-bug-tracker issue 1862"),
)


def memory_page(r: MemoryAccuracy) -> str:
    """The memory part of docs/accuracy.md: metrics, claims of others beside them, every miss and every unanswered row by name."""
    metrics = metrics_of(r.scored)
    incomplete = [c for c in r.comparisons if (c.labels or {}).get("consistent") == "incomplete"]
    coverage = "" if r.coverage is None else f" {r.coverage:.1%} of the rows that name model and device are answered."
    lines = [
        "# Accuracy",
        "",
        (
            "Generated by `python docs/generate.py` from `roofplan accuracy memory` and `roofplan accuracy speed`; a test compares"
            " this page with what the commands find."
        ),
        "",
        "## Memory",
        "",
        (
            f"{r.rows} start-up logs that other people published (`{r.data}`, with their sources).{coverage} A log prints the"
            " size of the device it runs on; where it does, that size stands for the device."
        ),
        "",
        *(f"- `{name}`: {meaning}" for name, meaning in METRICS.items()),
        "",
        "### Rows whose own figures agree",
        "",
        *markdown_table(_HEADER, _rows(metrics)),
        "",
        "### Rows of which something is missing",
        "",
        *markdown_table(_HEADER, _rows(metrics_of(incomplete))),
        "",
        "### What other tools say of themselves",
        "",
        *markdown_table(("tool", "claim", "source"), CLAIMS),
        "",
        *_fit_lines(r.fit),
        "### Misses above 1 %",
        "",
        *markdown_table(
            ("row", "metric", "error", "model", "device", "its own figures say"),
            tuple((*cells, remark_on(cells[0])) for cells in _misses(_above(r, 0.01))),
        ),
        "",
        "### Not answered",
        "",
        *markdown_table(("row", "metric", "why"), tuple((c.row, c.metric, c.reason) for c in r.unanswered)),
        "",
    ]
    return "\n".join(lines)


def _above(r: MemoryAccuracy, limit: float) -> list[Comparison]:
    large = [c for c in r.comparisons if c.error is not None and abs(c.error) > limit]
    return r.worst(large, len(large))


def _fit_lines(fit: ActivationFit | None) -> list[str]:
    if fit is None:
        return []
    title = "### The activation constants of vLLM 0.17 and later, fitted again"
    return [title, "", *markdown_table(("", "value", ""), _fit(fit)), ""]


def markdown_table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """A table of Markdown, line by line."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [line(header), line("---" for _ in header), *map(line, rows)]
