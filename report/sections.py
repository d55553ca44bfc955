"""What a report shows of a result: sections of rows, which every text format renders in its own way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import show
from ..quantities import show_bytes, show_count, show_parameters, show_rate, show_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..engines.profile import EngineProfile
    from ..planner.deployment import Deployment, EngineSettings
    from ..planner.logged import LoggedPart
    from ..planner.ranges import Range
    from ..planner.results import Answer, Explanation
    from ..planner.sensitivity import Sensitivity
    from ..planner.sizing import SizeResult
    from ..planner.solve import Solution
    from .listings import Listing

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A titled table; the first column is text, the others are figures. Without a header it is a list of facts."""

    title: str
    header: Row
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A heading, a verdict, sections, and remarks at the end.

    ``plot`` draws lines of text with their styles below the verdict, for a width and for signs in Unicode or in ASCII.
    """

    heading: str
    verdict: str
    good: bool
    sections: tuple[Section, ...]
    remarks: tuple[str, ...]
    plot: Callable[[int, bool], Iterable[Sequence[tuple[str, str]]]] | None = None


REASONS = {
    "weights_exceed_memory": "the weights and activations alone exceed the memory of a device",
    "kv_less_than_one_sequence": "not even one sequence fits beside the weights",
    "kv_less_than_concurrency": "fewer sequences fit than were asked for; the others wait",
    "cache_exceeds_memory": "the cache that was asked for does not fit beside the rest",
    "max_model_len_exceeds_cache": "the engine refuses to start, since one sequence of the longest length that it accepts does not fit",
    "engine_admits_fewer": "the engine runs fewer sequences at a time than were asked for; the others wait",
}


def size_report(r: SizeResult) -> Report:
    """Arrange a sizing: verdict, memory, capacity, speed, and what binds."""
    sections = [_memory(r), _capacity(r)]
    if r.solution is not None:
        sections.insert(0, _solution(r.solution))
    if r.logged:
        sections.insert(0, _logged(r.logged))
    if r.times is not None:
        sections.append(_speed(r))
    if r.sensitivities:
        sections.append(_sensitivities(r.sensitivities))
    sections.append(_limits(r))
    return Report(_heading(r), _verdict(r), r.fits, tuple(sections), _remarks(r))


def _heading(r: SizeResult) -> str:
    return deployment_heading(r.deployment)


def deployment_heading(d: Deployment) -> str:
    """The heading of what is said about one deployment."""
    devices = f"{d.layout.devices} x {d.hardware.name}" if d.layout.devices > 1 else d.hardware.name
    layout = f" ({d.layout})" if d.layout.devices > 1 else ""
    formats = f"weights {d.formats.name}, KV {d.formats.kv.name}"
    rate = "" if d.workload.rate is None else f"{d.workload.rate:g} requests/s, "
    workload = f"{rate}{show_count(d.workload.concurrency)} x ({show_count(d.workload.prompt)} in + {show_count(d.workload.output)} out)"
    return show(
        f"{d.model.name} on {devices}{layout} · {formats} · {workload} tokens · engine {_engine(d.engine)}", 300
    )


def _engine(engine: EngineProfile) -> str:
    """The engine with the version that was asked for."""
    return f"{engine.engine} {engine.version}" if engine.version else engine.name


def _verdict(r: SizeResult) -> str:
    capacity, length = r.capacity, show_count(r.deployment.workload.length)
    if r.fits:
        return f"It fits: room for {show_count(capacity.max_concurrency)} sequences of {length} tokens."
    return f"It does not fit: {_lacking(r)}{REASONS[r.reasons[0]]}."


def _lacking(r: SizeResult) -> str:
    """By how much memory is short, where it is memory that is."""
    plan = r.memory
    short = {
        "weights_exceed_memory": -plan.kv_budget_bytes,
        "cache_exceeds_memory": -plan.spare_bytes,
        "kv_less_than_one_sequence": -plan.free_bytes,
        "kv_less_than_concurrency": -plan.free_bytes,
    }.get(r.reasons[0])
    return "" if short is None else f"{show_bytes(short)} short per device; "


_HOW_THEY_COME = {
    False: "TTFT in steady state: requests come one by one, waiting included; when all begin together: the mean of such a burst;"
    " alone: one request on an idle server.",
    True: "TTFT at this rate: requests come at random, waiting included; when all begin together: the mean of such a burst of those"
    " in flight; alone: one request on an idle server.",
}


def _remarks(r: SizeResult) -> tuple[str, ...]:
    remarks = [f"warning: {warning.message}" for warning in r.warnings]
    if not r.fits:
        remarks += [f"to make it fit: {remedy}" for remedy in r.remedies]
    if r.times is not None:
        remarks.append(_HOW_THEY_COME[bool(r.keeps_up)])
        if r.times.load.waiting:
            load = r.times.load
            remarks.append(
                f"queueing for memory: requests of a replica that wait: {show_count(load.waiting)}, {show_time(load.queue_s)} each."
            )
        remarks.append(
            "roof: the bound at nominal rates. low to high: 80 % of cases. --explain shows the work and where the width comes from."
        )
    return tuple(remarks)


_TOTALS = {
    "memory.visible": "as a program sees it",
    "memory.reported": "as the driver reports it",
    "memory.nameplate": "as advertised",
}


def _memory(r: SizeResult) -> Section:
    plan, d = r.memory, r.deployment
    sequences = f"{show_count(plan.sequences)} x {show_bytes(plan.kv_bytes_per_sequence)}"
    given = d.memory
    total = "as given" if given.total_bytes is not None else _TOTALS[d.hardware.memory.total_key(d.engine.budget.total)]
    rows = (
        (f"total, {total}", show_bytes(plan.total_bytes), ""),
        ("usable", show_bytes(plan.budget_bytes), f"x {plan.utilization:g}"),
        ("weights", show_bytes(plan.weights_bytes), f"{show_parameters(r.model.parameters_total)} parameters"),
        *(() if not plan.adapter_bytes else (("adapters", show_bytes(plan.adapter_bytes), _adapters(d.settings)),)),
        (
            "activations",
            show_bytes(plan.activation_bytes),
            "as given" if given.activation_bytes is not None else f"{show_count(d.step_tokens)} tokens at a time",
        ),
        ("runtime", show_bytes(plan.non_torch_bytes), "as given" if given.runtime_bytes is not None else ""),
        *_graphs(r),
        ("KV cache", show_bytes(plan.kv_budget_bytes), _cache_note(r)),
        ("free at this concurrency", show_bytes(plan.free_bytes), f"after {sequences}"),
    )
    return Section("Memory per device", ("", "", ""), rows)


def _adapters(settings: EngineSettings) -> str:
    return f"{settings.adapters} of rank {settings.adapter_rank}"


def _graphs(r: SizeResult) -> tuple[Row, ...]:
    """Captured graphs, where the engine captures any: inside of its share, or on top of it."""
    budget, size = r.deployment.engine.budget, r.memory.graph_bytes
    if not size:
        return ()
    inside = "graphs" in (*budget.before, *budget.within)
    return (("graphs", show_bytes(size), "" if inside else "beside what is usable"),)


def _cache_note(r: SizeResult) -> str:
    """Growth per token, and what blocks and windows add to a sequence."""
    real, ideal = r.kv.bytes_per_sequence_per_device, r.kv.ideal_bytes_per_sequence_per_device
    note = f"{show_bytes(r.kv.bytes_per_token_per_device)} per token"
    return note if real == ideal else f"{note}; {show_bytes(real)} a sequence, {show_bytes(ideal)} without blocks"


def _logged(parts: tuple[LoggedPart, ...]) -> Section:
    def shown(value: float, unit: str) -> str:
        return show_bytes(value) if unit == "bytes" else f"{value:,.2f}".removesuffix(".00")

    rows = tuple(
        (
            part.name,
            shown(part.logged, part.unit),
            shown(part.predicted, part.unit),
            "" if part.error is None else f"{part.error:+.2%}",
        )
        for part in parts
    )
    return Section("The log and the prediction", ("", "logged", "predicted", "error"), rows)


def _solution(s: Solution) -> Section:
    answer = "none"
    if s.answer is not None:
        answer = f"{s.answer:g}" if not s.unit else f"{show_count(int(s.answer))} {s.unit}"
    layout = f" ({s.layout})" if s.layout and s.answer != 1 else ""
    return Section("Asked for", ("", "", ""), ((s.question, answer + layout, f"limited by {s.binds}"),))


def _capacity(r: SizeResult) -> Section:
    capacity, limit = r.capacity, r.deployment.context_limit
    longest = "unlimited" if capacity.max_context is None else show_count(capacity.max_context)
    by_model = limit is not None and capacity.max_context == limit
    rows = (
        ("KV cache holds", f"{show_count(capacity.kv_tokens)} tokens", "all replicas"),
        (
            "sequences at full length",
            show_count(capacity.max_concurrency),
            f"{show_count(r.deployment.workload.concurrency)} asked for"
            + ("; the engine runs no more" if capacity.binds == "max_num_seqs" else ""),
        ),
        ("longest single sequence", f"{longest} tokens", "the model's limit" if by_model else "by memory"),
    )
    return Section("Capacity", ("", "", ""), rows)


def _speed(r: SizeResult) -> Section:
    assert r.times is not None
    latency, rate = r.times.latency, r.times.throughput
    reading = {True: ", faster than reading (10 tokens/s)", False: ", slower than reading (10 tokens/s)", None: ""}
    rows = (
        _spread(
            "TTFT at this rate" if r.keeps_up else "TTFT in steady state",
            latency.ttft_s,
            show_time,
        ),
        _spread("TTFT when all begin together", latency.ttft_burst_s, show_time),
        _spread("TTFT alone", latency.ttft_alone_s, show_time),
        _spread("TPOT", latency.tpot_s, show_time),
        _spread("ITL without a prefill", latency.itl_s, show_time),
        _spread("end to end", latency.e2e_s, show_time),
        _spread("output tokens/s", rate.output_tokens_per_s, show_rate),
        _spread("total tokens/s", rate.total_tokens_per_s, show_rate),
        _spread(f"tokens/s per user{reading[r.faster_than_reading]}", rate.per_user_tokens_per_s, show_rate),
    )
    return Section("Speed", ("", "expected", "low to high", "roof"), rows)


def _sensitivities(found: tuple[Sensitivity, ...]) -> Section:
    rows = tuple(
        (s.name, f"{s.ttft:+.2f}", "none" if s.tpot is None else f"{s.tpot:+.2f}", f"{s.output_rate:+.2f}")
        for s in found
    )
    return Section("Per cent for one per cent more", ("", "TTFT", "TPOT", "output tokens/s"), rows)


def _spread(name: str, figure: Range | None, printed: Callable[[float], str]) -> Row:
    if figure is None:
        return (name, "none", "a single token has no gap", "")
    return (name, printed(figure.expected), f"{printed(figure.low)} to {printed(figure.high)}", printed(figure.bound))


def _limits(r: SizeResult) -> Section:
    intensity, bound = r.intensity, r.max_batch_compute_bound
    known = intensity.ridge_flop_per_byte
    ridge = "ridge unknown" if known is None else f"ridge {known:.0f} in {intensity.arithmetic}"
    critical = r.work.critical_context
    beyond = f"never beyond {int(critical):,} tokens of context" if critical is not None else ""
    rows: list[Row] = [
        ("prefill", r.prefill_limit or "unknown", f"{intensity.prefill_flop_per_byte:,.0f} FLOP/B, {ridge}"),
        ("decode", r.decode_limit or "unknown", f"{intensity.decode_flop_per_byte:,.1f} FLOP/B, {ridge}"),
        (
            "decode is compute-bound",
            ("never" if known else "unknown") if bound is None else f"from batch {bound:,.0f}",
            beyond,
        ),
    ]
    if r.work.crossover_batch is not None:
        rows.append(
            (
                "KV reads equal the weights",
                f"at batch {r.work.crossover_batch:.1f}",
                "throughput is then half its limit",
            )
        )
    return Section("What binds", ("", "", ""), tuple(rows))


def report_of(answer: Answer, *, explain: bool = False) -> Report:
    """Arrange any result; ``explain`` adds a section for the derivation of each figure."""
    arranged = _arranged(answer)
    derived = tuple(_derivation(line) for line in answer.explain()) if explain else ()
    return replace(arranged, sections=arranged.sections + derived)


# Which module arranges the answer of a verb, by which function; it is loaded only for that verb.
ARRANGERS: dict[str, tuple[str, str]] = {
    "size": ("sections", "size_report"),
    "kv": ("cache", "cache_report"),
    "roofline": ("roofline", "roofline_report"),
    "sweep": ("sweeps", "sweep_report"),
    "compare": ("comparison", "compare_report"),
    "advise": ("advice", "advice_report"),
    "claim": ("claim", "claim_report"),
    "speculate": ("speculation", "speculation_report"),
    "figure": ("presets", "preset_report"),
    "measure": ("measured", "measure_report"),
    "measure compare": ("measured", "compare_runs_report"),
    "accuracy memory": ("accuracy", "memory_report"),
    "accuracy speed": ("accuracy_speed", "speed_report"),
    "accuracy speculation": ("accuracy_speculation", "speculation_accuracy_report"),
}


def _arranged(answer: Answer) -> Report:
    if answer.command in ARRANGERS:
        module, function = ARRANGERS[answer.command]
        arrange: Callable[[Answer], Report] = getattr(import_module(f".{module}", __package__), function)
        return arrange(answer)
    from .listings import Listing

    if isinstance(answer, Listing):
        return Report("", answer.verdict, answer.good, _listed(answer), ())
    raise TypeError(f"no report for {type(answer).__name__}")


def _listed(listing: Listing) -> tuple[Section, ...]:
    cells = tuple(tuple(show(cell, 400) for cell in row) for row in listing.cells)
    return (Section(show(listing.title), listing.header, cells),) if cells else ()


def _derivation(line: Explanation) -> Section:
    rows = [("formula", line.formula), ("numbers", line.numbers)]
    rows += [(f"input: {name}", f"{value}  [{source}]") for name, value, source in line.inputs]
    if line.binds:
        rows.append(("binds", line.binds))
    return Section(f"{line.figure} = {line.value}", ("", ""), tuple((name, show(text, 600)) for name, text in rows))
