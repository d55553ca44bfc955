"""What a measured machine shows: its rates, every measurement beside what was predicted, and two runs beside each other."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from ..errors import show
from ..quantities import show_bandwidth, show_bytes, show_compute, show_count, show_flop, show_time
from .sections import Report, Section

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..measure.comparing import CompareRuns, Comparison
    from ..measure.gates import Gate
    from ..measure.records import Record
    from ..measure.results import MeasureResult

_CLOSE = 0.15  # measured this near to predicted counts as predicted
_LONGEST = 60
_SHOWN_PARAMETERS = 5
_OF_THE_WHOLE = frozenset({"layers", "model", "dtype", "threads"})  # parameters of a whole experiment
CEILINGS = (
    "launch",
    "stream",
    "gemm",
    "transfer",
    "collective",
)  # that a roof is made of, so that it does not predict them
TITLES = {
    "launch": "Launches",
    "stream": "Streaming through memory and caches",
    "gemm": "Matrix products",
    "attention": "Attention",
    "transfer": "Between host and device",
    "collective": "Exchanges between ranks",
    "decode": "Decode steps",
    "prefill": "Prompts",
    "cache": "With the cache and without",
    "kv_formats": "Formats of the cache",
    "heavy_hitters": "Heavy hitters",
    "prefix": "Reuse of a prefix",
    "batching": "Static and continuous batching",
    "paged": "Paged and contiguous cache",
    "chunked": "Chunked prefill",
    "weight_formats": "Formats of weights",
    "speculation": "Speculative decoding",
    "server": "The server",
    "hf": "Hugging Face",
}


def measure_report(r: MeasureResult) -> Report:
    """Arrange a run: rates and gates, then every measurement by what it belongs to."""
    sections = [_rates(r.gates)] if r.gates else []
    for name, records in itertools.groupby(r.run.records, key=lambda record: record.name.partition(".")[0]):
        sections += _grouped(TITLES.get(name, name.replace("_", " ").capitalize()), list(records))
    return Report(_heading(r), _verdict(r), True, tuple(sections), tuple(_remarks(r)))


def _heading(r: MeasureResult) -> str:
    there = r.run.environment
    torch = there.versions.get("torch")
    parts = [
        f"Measured {show(r.run.command, 40)} on {show(there.device, 80)}",
        f"{there.shown_threads}" if there.kind == "cpu" else show(there.torch_device, 20),
        *([f"torch {show(torch, 30)}"] if torch else []),
        *(["quick"] if r.run.quick else []),
        show(r.run.started[:16].replace("T", " "), 20),
    ]
    return " · ".join(parts)


def _verdict(r: MeasureResult) -> str:
    said = [f"memory {show_bandwidth(gate.measured)}" for gate in r.gates if gate.name == "memory"]
    said += [f"{gate.name} {show_compute(gate.measured)}" for gate in r.gates if gate.name != "memory"]
    tried = [r for r in r.run.records if r.unit == "s" and r.name.partition(".")[0] not in CEILINGS]
    ratios = [record.ratio for record in tried if record.ratio is not None and "arithmetic" not in record.parameters]
    close = sum(abs(ratio - 1) <= _CLOSE for ratio in ratios)
    if ratios:
        said.append(f"{close} of {len(ratios)} times are within {_CLOSE:.0%} of what is predicted")
    return f"{'; '.join(said)}." if said else f"{len(r.run.records)} measurements."


def _rates(gates: Sequence[Gate]) -> Section:
    rows = []
    for gate in gates:
        shown = show_bandwidth if gate.unit == "B/s" else show_compute
        rows.append(
            (
                "memory" if gate.name == "memory" else f"{gate.name} products",
                shown(gate.fitted),
                shown(gate.measured),
                "" if gate.peak is None else shown(gate.peak),
                "" if gate.share is None else f"{gate.share:.0%}",
                "" if gate.holds else "see below",
            )
        )
    return Section("Rates", ("", "fitted", "measured", "data sheet", "of it", ""), tuple(rows))


def _grouped(title: str, records: Sequence[Record]) -> Iterator[Section]:
    """One table for all records that have the same parameters."""
    tables: dict[frozenset[str], list[Record]] = {}
    for record in records:
        tables.setdefault(frozenset(record.parameters), []).append(record)
    for same in tables.values():
        names = ", ".join(dict.fromkeys(map(_name, same)))
        yield _records(title if len(tables) == 1 else f"{title}: {names}", same)


def _records(title: str, records: Sequence[Record]) -> Section:
    varying = _varying(records)
    sheet = any(record.predicted_datasheet is not None for record in records)
    roof = any(record.predicted_measured is not None for record in records)
    rated = any(record.bytes_per_s or record.flop_per_s for record in records)
    header = ("", *varying, "measured", "quartiles")
    header += (("rate",) if rated else ()) + (("by data sheet",) if sheet else ())
    header += (("by measured roof",) if roof else ()) + (("ratio",) if sheet or roof else ())
    rows = []
    for record in records:
        m, unit = record.measured, record.unit
        cells = [_name(record), *(show_parameter(key, record.parameters.get(key)) for key in varying)]
        cells += [show_value(m.median, unit), show_quartiles(record)]
        cells += [show_record_rate(record)] if rated else []
        cells += [_maybe(record.predicted_datasheet, unit)] if sheet else []
        cells += [_maybe(record.predicted_measured, unit)] if roof else []
        cells += ["" if record.ratio is None else f"{record.ratio:.2f}"] if sheet or roof else []
        rows.append(tuple(cells))
    return Section(title, header, tuple(rows))


def show_quartiles(record: Record) -> str:
    """How far the quartiles lie from the median; nothing for a single figure."""
    m = record.measured
    return "" if m.count < 2 or not m.median else f"{m.q1 / m.median - 1:+.1%} {m.q3 / m.median - 1:+.1%}"


def _name(record: Record) -> str:
    return show(record.name.partition(".")[2].replace("_", " ") or record.name, _LONGEST)


def _varying(records: Sequence[Record]) -> tuple[str, ...]:
    """The parameters that tell the records of a section apart: those that are numbers or words, and not the same in all."""
    names: dict[str, set[str]] = {}
    for record in records:
        for key, value in record.parameters.items():
            if isinstance(value, (int, float, str, bool)):
                names.setdefault(key, set()).add(str(value))
    present = {key: sum(key in record.parameters for record in records) for key in names}
    differing = [
        key
        for key, values in names.items()
        if len(values) > 1 or (present[key] < len(records) and key not in _OF_THE_WHOLE)
    ]
    kept = [key for key in differing if key not in {"flop", "inputs", "outputs"}]
    if "rows" in kept and "bytes" in kept:
        kept.remove("bytes")
    if "size" in kept and "bytes" in kept:
        kept.remove("size")
    if "arithmetic" in kept and "dtype" in kept:
        kept.remove("dtype")
    return tuple(kept[:_SHOWN_PARAMETERS])


def show_parameter(key: str, value: Any) -> str:
    """A parameter as people write it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        if key == "bytes" or key.endswith("_bytes"):
            return show_bytes(value)
        if key == "flop":
            return show_flop(value)
        return show_count(value) if isinstance(value, int) else f"{value:.4g}"
    return show(value, 30)


def show_value(value: float, unit: str) -> str:
    """A measured value with its unit."""
    if unit == "s":
        return show_time(value)
    if unit == "B":
        return show_bytes(value)
    if unit == "B/s":
        return show_bandwidth(value)
    if unit == "FLOP/s":
        return show_compute(value)
    return f"{value:.4g}" if unit in {"", "1"} else f"{value:.4g} {show(unit, 20)}"


def show_record_rate(record: Record) -> str:
    """The rate of a time whose bytes or operations were counted: of operations where there are many to a byte."""
    moved, flop = record.bytes_per_s, record.flop_per_s
    if flop is not None and (moved is None or record.name.startswith("gemm")):
        return show_compute(flop)
    return "" if moved is None else show_bandwidth(moved)


def _maybe(value: float | None, unit: str) -> str:
    return "" if value is None else show_value(value, unit)


def _remarks(r: MeasureResult) -> Iterator[str]:
    yield from (f"warning: {warning.message}" for warning in r.warnings)
    if any(record.predicted is not None for record in r.run.records):
        yield "ratio: measured over predicted, by the measured roof where there is one; 1 is as predicted, more is slower."
    if r.datasheet:
        yield f"data sheet: {show(r.datasheet, 60)} of the catalogue."
    elif r.gates:
        yield "the catalogue has no data sheet of this device: the measured roof stands alone."
    if r.saved:
        yield f"the measured machine: {show(r.saved, 200)}, which every verb takes as HARDWARE."
    elif r.device is not None:
        yield "--save machine.yaml writes the measured machine, which every verb takes as HARDWARE."


# ------------------------------------------------------------------------------------------------ two runs


def compare_runs_report(r: CompareRuns) -> Report:
    """Arrange two runs: what differs first, then how many do not."""
    different = [row for row in r.rows if row.verdict != "same"]
    sections = [_compared(f"Different ({len(different)})", different)] if different else []
    same = [row for row in r.rows if row.verdict == "same"]
    if same:
        sections.append(_compared(f"Not told apart ({len(same)})", same))
    slower = sum(row.verdict == "slower" for row in different)
    verdict = (
        f"{len(different)} of {len(r.rows)} figures differ, {slower} of them slower."
        if different
        else f"Nothing differs: a rank test tells none of {len(r.rows)} figures apart."
    )
    first, second = (show(run.started[:16].replace("T", " ") or run.command, 30) for run in (r.first, r.second))
    remarks = [f"warning: {warning.message}" for warning in r.warnings]
    remarks.append(
        "p: two-sided rank test of Mann and Whitney, corrected for the number of figures; different from 0.001 down."
    )
    return Report(f"Two runs: {first} and {second}", verdict, r.good, tuple(sections), tuple(remarks))


def _compared(title: str, rows: Iterable[Comparison]) -> Section:
    cells = tuple(
        (
            show(row.name, _LONGEST),
            show(", ".join(f"{key} {show_parameter(key, value)}" for key, value in _short(row.parameters)), 80),
            show_value(row.before, row.unit),
            show_value(row.after, row.unit),
            "" if row.ratio is None else f"{row.ratio:.3f}",
            f"{row.p_value:.1e}",
            row.verdict if row.verdict != "same" else "",
        )
        for row in sorted(rows, key=lambda row: -abs(math.log(row.ratio)) if row.ratio else 0.0)
    )
    return Section(title, ("", "", "first", "second", "second / first", "p", ""), cells)


def _short(parameters: dict[str, Any]) -> list[tuple[str, Any]]:
    """The parameters of a row in few words: not what follows from the others."""
    left_out = {"flop", "dtype", "threads", "size", "inputs", "outputs", "cold"}
    return [(key, value) for key, value in parameters.items() if key not in left_out][:_SHOWN_PARAMETERS]
