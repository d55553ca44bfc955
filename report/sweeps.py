"""A sweep as sections: its points, at most some of them, and the marks of its curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import show
from ..planner.sweep_marks import among
from ..quantities import show_bytes, show_count, show_rate, show_time
from .sections import REASONS, Report, Section

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..planner.sweep_marks import CurveMarks
    from ..planner.sweeping import SweepResult
    from .sections import Row

MOST_ROWS = 40  # that people read; JSON and CSV have all
MOST_CURVES = 20
_LAYOUT = {"devices", "tp", "pp", "dp"}
SHORT_REASONS = {
    "weights_exceed_memory": "weights",
    "kv_less_than_one_sequence": "no sequence",
    "kv_less_than_concurrency": "cache",
    "cache_exceeds_memory": "given cache",
    "max_model_len_exceeds_cache": "longest sequence",
    "engine_admits_fewer": "engine's limit",
}


def sweep_report(r: SweepResult) -> Report:
    """Arrange a sweep: how much of it fits, the points, the marks."""
    sections = [_points(r)]
    if r.curves:
        sections.append(_curve(r.curves[0]) if len(r.curves) == 1 else _several(r, r.curves))
    return Report(heading(r), _verdict(r), r.any_fits, tuple(sections), tuple(_remarks(r)))


def heading(r: SweepResult) -> str:
    """What is swept, and what stays as it is."""
    d, swept = r.variants[0].deployment, {axis.name for axis in r.axes}
    parts = [d.model.name]
    if "hardware" not in swept:
        devices = d.layout.devices
        parts[0] += (
            f" on {devices} x {d.hardware.name}" if devices > 1 and not swept & _LAYOUT else f" on {d.hardware.name}"
        )
    formats = [("weights", f"weights {d.formats.name}"), ("kv", f"KV {d.formats.kv.name}")]
    parts += [", ".join(text for name, text in formats if name not in swept)] if not {"weights", "kv"} <= swept else []
    batch = "" if "batch" in swept else f"{show_count(r.traffic.batch)} x "
    if r.mode == "decode":
        length = "" if r.traffic.context is None else f" at {show_count(r.traffic.context)} tokens"
        parts.append(f"{batch}decode{length}, no prompts")
    else:
        sizes = ("prompt", r.traffic.prompt, "in"), ("output", r.traffic.output, "out")
        kept = " + ".join(f"{show_count(size)} {word}" for name, size, word in sizes if name not in swept)
        parts.append(f"{batch}({kept}) tokens" if kept else f"{batch}requests")
    parts.append(f"engine {d.engine.name}")
    return show(f"{' · '.join(parts)} · over {' and '.join(axis.name for axis in r.axes)}", 300)


def _verdict(r: SweepResult) -> str:
    fitting = sum(r.columns["fits"])
    if not fitting:
        return f"Nothing fits: {REASONS[r.columns['reason'][0]]}."
    every = "Every point fits" if fitting == r.count else f"{show_count(fitting)} of {show_count(r.count)} points fit"
    if r.cheapest is None:
        slow = r.limit_s is not None and any(time is not None for time in r.columns["tpot_s.expected"])
        return f"{every}; none within {show_time(r.limit_s or 0)} a token." if slow and _priced(r) else f"{every}."
    row = r.rows([r.cheapest])[0]
    where = ", ".join(f"{axis.name} {value_of(row, axis.name)}" for axis in r.axes)
    cost = row["usd_per_million_output_tokens"]["expected"]
    limit = "" if r.limit_s is None else f" within {show_time(r.limit_s)} a token"
    return f"{every}; of these points{limit} the cheapest token is that of {where}: {show_cost(cost)} per million output tokens."


def _priced(r: SweepResult) -> bool:
    return any(variant.usd_per_hour is not None for variant in r.variants)


def show_cost(usd: float) -> str:
    """Dollars with three significant digits."""
    return f"{show_rate(usd)} USD"


def value_of(row: dict[str, Any], name: str) -> str:
    """The value of an axis as people read it."""
    value = row[name]
    return show_count(value) if isinstance(value, int) else show(value, 60)


def _points(r: SweepResult) -> Section:
    numbers = _shown(r.count)
    columns: list[tuple[str, Callable[[dict[str, Any]], str]]] = [(axis.name, _value(axis.name)) for axis in r.axes]
    if r.mode == "serving":
        columns.append(("TTFT", lambda row: _expected(row["ttft_s"], show_time)))
    columns += [
        ("TPOT", lambda row: _expected(row["tpot_s"], show_time)),
        ("low to high", lambda row: _width(row["tpot_s"])),
        ("roof", lambda row: _part(row["tpot_s"], "bound", show_time)),
        ("tokens/s", lambda row: _expected(row["output_tokens_per_s"], show_rate)),
    ]
    if max(r.columns["devices"]) > 1:
        columns.append(("per device", lambda row: _expected(row["output_tokens_per_s_per_device"], show_rate)))
    columns += [
        ("per user", lambda row: _expected(row["per_user_tokens_per_s"], show_rate)),
        ("memory", lambda row: show_bytes(row["memory_bytes"])),
    ]
    if any(cost is not None for cost in r.columns["usd_per_million_output_tokens.expected"]):
        columns.append(("USD/M", lambda row: _expected(row["usd_per_million_output_tokens"], show_rate)))
    columns.append(("fits", lambda row: "yes" if row["fits"] else f"no: {SHORT_REASONS[row['reason']]}"))
    rows = tuple(tuple(cell(row) for _, cell in columns) for row in r.rows(numbers))
    return Section("Points", tuple(name for name, _ in columns), rows)


def _value(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: value_of(row, name)


def _shown(count: int) -> list[int]:
    """Numbers of the rows that are shown: all, or some at even distances, the first and the last among them."""
    if count <= MOST_ROWS:
        return list(range(count))
    return [place * (count - 1) // (MOST_ROWS - 1) for place in range(MOST_ROWS)]


def _expected(figure: dict[str, float] | None, printed: Callable[[float], str]) -> str:
    return _part(figure, "expected", printed)


def _part(figure: dict[str, float] | None, part: str, printed: Callable[[float], str]) -> str:
    return "" if figure is None else printed(figure[part])


def _width(figure: dict[str, float] | None) -> str:
    """A range, with the unit once where it is the same."""
    if figure is None:
        return ""
    low, high = (show_time(figure[part]) for part in ("low", "high"))
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


def mark_names(curve: CurveMarks) -> Iterable[tuple[str, str, str]]:
    """Marks of one curve: name, where, and a remark."""
    knee = curve.knee
    if knee is not None:
        yield "knee", f"batch {show_count(knee.batch)}", f"limited by {_LIMITS[knee.binds]}"
    bound = curve.compute_bound_batch
    never = {"no_dense_rate": "unknown", None: ""}.get(curve.compute_bound_batch_reason, "never")
    yield "decode is compute-bound", never or f"from batch {bound:,.0f}", "weights and cache in one roof"
    if curve.crossover_batch is not None:
        yield (
            "KV reads equal the weights",
            f"at batch {curve.crossover_batch:,.1f}",
            "throughput is then half its limit",
        )
    binds = REASONS.get(curve.memory_binds, "")
    yield "largest batch in memory", f"batch {show_count(curve.within_memory)}", f"one more: {binds}" if binds else ""
    if curve.within_tpot is not None:
        within = f"batch {show_count(curve.within_tpot)}" if curve.within_tpot else "none"
        yield "largest batch within the TPOT", within, "by the expected time"
    if curve.cheapest is not None:
        cost = curve.cheapest.usd_per_million_output_tokens
        price = "no price is known" if cost is None else f"{show_cost(cost)} per million output tokens"
        yield (
            f"cheapest token {among(curve.cheapest)}",
            f"batch {show_count(curve.cheapest.batch)}",
            f"{price}, TPOT {show_time(curve.cheapest.tpot_s)}",
        )


CHEAPEST = {
    "decode": "any batch",
    "serving": "of the points",
}  # by the traffic: what its cheapest batches are chosen from
_LIMITS = {
    "memory": "memory",
    "latency": "the TPOT that was asked for",
    "gain": "gain: one more sequence adds less than half its share",
}


def _curve(curve: CurveMarks) -> Section:
    return Section("Marks", ("", "", ""), tuple(mark_names(curve)))


def _several(r: SweepResult, curves: tuple[CurveMarks, ...]) -> Section:
    """One row a curve."""
    axes = [axis.name for axis in r.axes if axis.name != "batch"]
    header = [*axes, "knee", "compute-bound", "KV = weights", "in memory"]
    header += ["within TPOT"] if r.limit_s is not None else []
    priced = any(curve.cheapest and curve.cheapest.usd_per_million_output_tokens is not None for curve in curves)
    header += [f"cheapest, {CHEAPEST[r.mode]}", "USD/M"] if priced else []
    rows: list[Row] = []
    for curve in curves[:MOST_CURVES]:
        bound, crossover = curve.compute_bound_batch, curve.crossover_batch
        row = [value_of(dict(curve.at), name) for name in axes]
        row += [
            "" if curve.knee is None else show_count(curve.knee.batch),
            "never" if bound is None else f"{bound:,.0f}",
            "never" if crossover is None else f"{crossover:,.1f}",
            show_count(curve.within_memory),
        ]
        row += ["" if curve.within_tpot is None else show_count(curve.within_tpot)] if r.limit_s is not None else []
        if priced:
            cost = curve.cheapest.usd_per_million_output_tokens if curve.cheapest else None
            row += [show_count(curve.cheapest.batch) if curve.cheapest else "", "" if cost is None else show_rate(cost)]
        rows.append(tuple(row))
    return Section("Marks by batch", tuple(header), tuple(rows))


def _remarks(r: SweepResult) -> Iterable[str]:
    for warning in r.warnings:
        yield f"warning: {warning.message}"
    if r.count > MOST_ROWS:
        yield f"{MOST_ROWS} of {show_count(r.count)} points, at even distances; --format csv or json has all."
    if r.curves is None:
        yield "no marks: there are more than 200 curves."
    elif len(r.curves) > MOST_CURVES:
        yield f"marks of the first {MOST_CURVES} of {len(r.curves)} curves; --format json has all."
    if r.mode == "decode":
        yield "TPOT is the time of a decode step: nobody sends prompts. With --prompt and --output, and no context, they come in between."
    else:
        yield "TTFT and TPOT as roofplan size gives them: prompts of others come in between, and those who find no memory wait."
    yield "expected; low to high: 80 % of cases; roof: the bound at nominal rates. Memory is that of one device."
    if all(variant.usd_per_hour is None for variant in r.variants):
        yield "no cost: the price of the device is not known; --usd-per-hour gives it."
