"""What the catalogues hold, as answers: lists, single entries, findings of lint, and differences between two entries."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..planner.kv_cache import cache_layout
from ..planner.parameters import count_parameters
from ..planner.results import Answer
from ..quantities import (
    dimension_of,
    show_bandwidth,
    show_bytes,
    show_compute,
    show_count,
    show_parameters,
    show_quantity,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..engines.profile import EngineProfile
    from ..engines.spec import NumberFormat
    from ..hardware.spec import HardwareSpec
    from ..models.spec import ModelSpec
    from ..quantities import Dimension
    from ..specfiles import Finding


@dataclass(frozen=True, slots=True)
class Listing(Answer):
    """Rows of one kind: as data in base units (``rows``), and as a table for people (``header``, ``cells``)."""

    verb: str
    title: str
    header: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    rows: tuple[dict[str, Any], ...]
    good: bool = True
    verdict: str = ""

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return self.verb

    def figures(self) -> dict[str, Any]:
        """The rows."""
        return {"rows": self.rows}

    def table(self) -> tuple[tuple[str, ...], tuple[dict[str, Any], ...]]:
        """The rows under their keys, in the order in which they first come; without rows, under what people read."""
        return tuple(dict.fromkeys(key for row in self.rows for key in row)) or self.header, self.rows


def list_devices(devices: Iterable[HardwareSpec]) -> Listing:
    """One row a device: memory, bandwidth, 16-bit peak, ridge, price."""
    cells, rows = [], []
    for d in devices:
        arithmetic = next((name for name in ("bf16", "fp16", "fp32") if d.peak.rate(name)), "")
        peak = d.peak.rate(arithmetic) if arithmetic else None
        ridge = d.ridge(arithmetic) if arithmetic else None
        price = d.price.usd_per_hour if d.price else None
        rows.append(
            {
                "name": d.name,
                "title": d.title,
                "memory_bytes": d.memory.total_bytes,
                "bandwidth_bytes_per_s": d.memory.bandwidth,
                "peak_flop_per_s": peak,
                "peak_arithmetic": arithmetic or None,
                "ridge_flop_per_byte": ridge,
                "price_usd_per_hour": price,
                "confidence": d.confidence,
            }
        )
        cells.append(
            (
                d.name,
                show_bytes(d.memory.total_bytes),
                show_bandwidth(d.memory.bandwidth),
                f"{show_compute(peak)} {arithmetic}" if peak else "unknown",
                f"{ridge:.0f}" if ridge else "",
                f"{price:g} ({d.price.as_of})" if d.price else "",
            )
        )
    header = ("device", "memory", "bandwidth", "dense peak", "ridge FLOP/B", "USD per hour")
    return Listing("hardware list", _counted(len(rows), "device"), header, tuple(cells), tuple(rows))


def list_models(models: Iterable[ModelSpec], kv_format: NumberFormat) -> Listing:
    """One row a model: parameters, cache growth per token in 16 bits, context, published weight format."""
    cells, rows = [], []
    for m in models:
        counted, cache = count_parameters(m), cache_layout(m, kv_format)
        rows.append(
            {
                "name": m.name,
                "ids": [known.id for known in m.ids],
                "parameters_total": counted.total,
                "parameters_active": counted.active,
                "kv_bytes_per_token": cache.bytes_per_token,
                "index_bytes_per_token": cache.index_bytes_per_token,
                "fixed_bytes_per_sequence": cache.fixed_bytes,
                "max_context": m.max_context,
                "weights": m.weights,
                "source_kind": m.sources[0].kind if m.sources else None,
            }
        )
        active = show_parameters(counted.active) if counted.active < counted.total else ""
        context = show_count(m.max_context) if m.max_context else "unknown"
        cells.append(
            (m.name, show_parameters(counted.total), active, show_bytes(cache.bytes_per_token), context, m.weights)
        )
    header = ("model", "parameters", "active", "KV per token", "context", "weights")
    return Listing("model list", _counted(len(rows), "model"), header, tuple(cells), tuple(rows))


def list_findings(verb: str, noun: str, checked: int, findings: list[Finding]) -> Listing:
    """One row a finding of lint."""
    cells = tuple((finding.where, finding.rule, finding.message) for finding in findings)
    rows = tuple(dataclasses.asdict(finding) for finding in findings)
    verdict = (
        f"{_counted(len(findings), 'finding')} in {_counted(checked, noun.removesuffix('s'))}"
        if findings
        else f"{_counted(checked, noun.removesuffix('s'))} checked: nothing found"
    )
    return Listing(verb, "Findings", ("entry", "rule", "what"), cells, rows, not findings, verdict)


def list_profiles(profiles: Iterable[EngineProfile]) -> Listing:
    """One row a profile: share of memory, what it pays, how the cache is cut, and the default limits of a step."""
    cells, rows = [], []
    for p in profiles:
        share = p.budget.share[0].share if p.budget.reserve is None else None
        paging, usual = p.paging, p.batching[0]
        rows.append(
            {
                "name": p.name,
                "extends": p.extends or None,
                "checked_to": p.checked_to or None,
                "memory_utilization": share,
                "before": list(p.budget.before),
                "within": list(p.budget.within),
                "block_size": paging.block if paging else None,
                "layers": paging.layers if paging else None,
                "max_batched_tokens": usual.max_batched_tokens,
                "max_num_seqs": usual.max_num_seqs,
            }
        )
        paid = ", ".join((*(f"{part} before" for part in p.budget.before), *p.budget.within))
        cut = f"blocks of {paging.block}, {paging.layers}" if paging else "every byte"
        cells.append(
            (p.name, "by formula" if share is None else f"{share:g}", paid, cut, f"{usual.max_batched_tokens:,}")
        )
    header = ("engine", "share", "pays", "cache", "tokens of a step")
    return Listing("engine list", _counted(len(rows), "profile"), header, tuple(cells), tuple(rows))


def show_entry(verb: str, spec: HardwareSpec | ModelSpec | EngineProfile) -> Listing:
    """One row a figure of an entry, by its key; what has its default is left out."""
    figures = list(flatten(spec))
    cells = tuple((key, printed) for key, _, printed in figures)
    rows = tuple({"key": key, "value": value} for key, value, _ in figures)
    return Listing(verb, spec.title or spec.name, ("key", "value"), cells, rows)


def list_differences(
    verb: str, first: ModelSpec | EngineProfile, second: ModelSpec | EngineProfile, same: str
) -> Listing:
    """One row a key in which two entries differ, names and sources left out; ``same`` is the verdict where none does."""
    left, right = (
        {key: (value, printed) for key, value, printed in flatten(spec, defaults=True)} for spec in (first, second)
    )
    keys = [key for key in dict.fromkeys((*left, *right)) if not key.startswith(_NOT_COMPARED)]
    differing = [
        (key, left.get(key, (None, "")), right.get(key, (None, ""))) for key in keys if left.get(key) != right.get(key)
    ]
    names = (first.name, second.name) if first.name != second.name else (f"{first.name} (1)", f"{second.name} (2)")
    rows = tuple({"key": key, names[0]: a[0], names[1]: b[0]} for key, a, b in differing)
    cells = tuple((key, a[1], b[1]) for key, a, b in differing)
    verdict = _counted(len(differing), "difference") if differing else same
    header = ("key", *names)
    return Listing(verb, f"{first.name} and {second.name}", header, cells, rows, not differing, verdict)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_NOT_COMPARED = ("schema", "name", "title", "ids", "aliases", "sources", "notes", "extends", "checked_to", "version")


def flatten(
    item: Any, path: str = "", dimension: Dimension | None = None, *, defaults: bool = False
) -> Iterator[tuple[str, Any, str]]:
    """Keys, values and printed values of a spec, in depth, without what has its default unless asked; quantities have their unit."""
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        hints = typing.get_type_hints(type(item), include_extras=True)
        for field in dataclasses.fields(item):
            value = getattr(item, field.name)
            if defaults or field.default is dataclasses.MISSING or value != field.default:
                key = f"{path}.{field.name}" if path else field.name
                yield from flatten(value, key, dimension_of(hints[field.name]), defaults=defaults)
    elif isinstance(item, tuple) and any(dataclasses.is_dataclass(entry) for entry in item):
        for position, entry in enumerate(item):
            yield from flatten(entry, f"{path}.{position}", defaults=defaults)
    elif isinstance(item, dict):
        for key, entry in item.items():
            yield from flatten(entry, f"{path}.{key}", defaults=defaults)
    else:
        yield path, list(item) if isinstance(item, tuple) else item, _printed(item, dimension)


_LONGEST_EXACT = 9  # letters: sizes that were written in GiB and are no round number of bytes are printed rounded


def _printed(item: Any, dimension: Dimension | None) -> str:
    """One value as text."""
    if isinstance(item, tuple):
        return ", ".join(map(str, item))
    if isinstance(item, bool):
        return str(item).lower()
    if dimension is None or not isinstance(item, (int, float)):
        return str(item)
    exact = show_quantity(item, dimension)
    return show_bytes(item) if "GiB" in dimension.units and len(exact) > _LONGEST_EXACT else exact
