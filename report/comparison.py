"""A comparison as sections: what was asked differently, then the figures that differ, one column an alternative."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..errors import show
from ..quantities import (
    show_bandwidth,
    show_bytes,
    show_compute,
    show_count,
    show_flop,
    show_parameters,
    show_rate,
    show_time,
)
from .sections import REASONS, Report, Section

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..planner.comparing import CompareResult, Row
    from ..planner.deployment import Deployment

_LONGEST_LABEL = 40
LONGEST_HEADING = 4000  # letters: all alternatives, and what they have in common
TITLES = {
    "inputs": "Asked for",
    "fits": "Fits",
    "reasons": "Fits",
    "throughput": "Throughput",
    "latency": "Latency",
    "cost": "Cost",
    "capacity": "Capacity",
    "memory": "Memory per device",
    "bottleneck": "What binds",
    "faster_than_reading": "What binds",
    "model": "Model",
    "kv": "KV cache",
    "intensity": "Intensity",
    "work": "Work",
}
_SHOWN: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("bytes_per_s", show_bandwidth),
    ("flop_per_s", show_compute),
    ("tokens_per_s_per_device", show_rate),
    ("_per_s", show_rate),
    ("_flop", show_flop),
    ("flop_per_byte", show_rate),
    ("_bytes", show_bytes),
    ("bytes_per_token", show_bytes),
    ("bytes_per_sequence", show_bytes),
    ("bytes_per_token_per_device", show_bytes),
    ("bytes_per_sequence_per_device", show_bytes),
    ("weights_bytes_read_per_step", show_bytes),
    ("_s", show_time),
)


def compare_report(r: CompareResult) -> Report:
    """Arrange a comparison: differences, group by group."""
    groups: dict[str, list[Row]] = {}
    for row in r.rows:
        groups.setdefault(TITLES[row.figure.partition(".")[0]], []).append(row)
    sections = [_section(title, rows, r) for title, rows in groups.items()]
    return Report(heading(r), _verdict(r), r.any_fits, tuple(sections), tuple(_remarks(r)))


def heading(r: CompareResult) -> str:
    """What is compared, and what all have in common."""
    first = r.alternatives[0].result.deployment
    every = [one.result.deployment for one in r.alternatives]
    common = [
        text
        for text, is_common in (
            (first.model.name, all(d.model.name == first.model.name for d in every)),
            (first.hardware.name, all(d.hardware.name == first.hardware.name for d in every)),
            (_workload(first), all(d.workload == first.workload for d in every)),
        )
        if is_common
    ]
    against = " against ".join(show(label, 80) for label in r.labels)
    return show(" · ".join([against, *common]), LONGEST_HEADING)


def _workload(d: Deployment) -> str:
    asked = d.workload
    return f"{show_count(asked.concurrency)} x ({show_count(asked.prompt)} in + {show_count(asked.output)} out) tokens"


def _section(title: str, rows: list[Row], r: CompareResult) -> Section:
    """One group; the column of the best alternative only where some figure has one."""
    labels, rated = [show(label, _LONGEST_LABEL) for label in r.labels], any(row.best is not None for row in rows)
    cells = []
    for row in rows:
        shown = [cell_of(row.figure, value) for value in row.values]
        best = ("" if row.best is None else labels[row.best],) if rated else ()
        cells.append((_words(row.figure.partition(".")[2] or row.figure), *map(_with_ratio, shown, row.ratios), *best))
    return Section(title, ("", *labels, *(("best",) if rated else ())), tuple(cells))


def _words(name: str) -> str:
    """A figure's name as people read it, without its unit."""
    for unit in ("_bytes", "_s", "_flop"):
        if name.endswith(unit) and not name.endswith("_per_s"):
            name = name.removesuffix(unit)
    text = re.sub(r"_per_s(?=_|$)", "/s", name).replace(".", " ").replace("_", " ")
    for word in ("ttft", "tpot", "itl", "kv", "usd", "flop", "tp", "pp", "dp", "ep"):
        text = " ".join(word.upper() if part == word else part for part in text.split(" "))
    return text


def _with_ratio(shown: str, ratio: float | None) -> str:
    """A value, and by which factor it differs from the first one's."""
    return shown if ratio is None or abs(ratio - 1) < 0.005 else f"{shown} ({ratio:.2f}x)"


def cell_of(figure: str, value: Any) -> str:
    """One value as people read it; of a range what is expected."""
    if isinstance(value, dict):
        value = value["expected"]
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return "; ".join(REASONS.get(item, str(item)) for item in value)
        case int() | float():
            return _number(figure, value)
    return show(value, 80)


def _number(figure: str, value: float) -> str:
    name = figure.rpartition(".")[2]
    if name.startswith("parameters"):
        return show_parameters(int(value))
    if name.startswith("usd"):
        return f"{show_rate(value)} USD"
    printed = next((printer for ending, printer in _SHOWN if name.endswith(ending)), None)
    if printed is not None:
        return f"-{printed(-value)}" if value < 0 else printed(value)
    return show_count(value) if isinstance(value, int) or value >= 100 else f"{value:.3g}"


def _verdict(r: CompareResult) -> str:
    fitting = [one.label for one in r.alternatives if one.result.fits]
    if not fitting:
        return "None of them fits."
    fits = "All fit" if len(fitting) == len(r.alternatives) else f"Fitting: {', '.join(fitting)}"
    best = {row.figure: row.best for row in r.rows if row.best is not None}
    said = [
        f"{words}: {r.labels[best[figure]]}"
        for figure, words in (
            ("throughput.output_tokens_per_s", "most tokens per second"),
            ("latency.tpot_s", "shortest TPOT"),
            ("cost.usd_per_million_output_tokens", "cheapest token"),
        )
        if figure in best
    ]
    return show("; ".join([fits, *said]), 400) + "."


def _remarks(r: CompareResult) -> Iterator[str]:
    for warning in r.warnings:
        yield f"warning: {warning.message}"
    yield "What differs by more than 1 %: expected values, and the factor to the first column; best: among those that fit."
    yield "Ranges and roofs: --format json, or roofplan size."
    yield f"{len(r.same)} figures differ by less: --format json has them."
    unpriced = [one.label for one in r.alternatives if one.usd_per_hour is None]
    if unpriced:
        yield f"no cost of {', '.join(unpriced)}: the price is not known; --usd-per-hour gives it."
