"""Reports of ``roofplan kv``: a cache, variants of it beside the model as it is, and the schemes of an error budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import show
from ..planner.error_budget import BudgetResult
from ..quantities import show_bytes, show_count, show_flop, show_rate, show_time
from .sections import Report, Section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..planner.cache_variants import CacheRow, Served, VariantTable
    from ..planner.caching import KvResult
    from ..planner.error_budget import Choice, Tried
    from ..planner.ranges import Range
    from .sections import Row


def cache_report(r: KvResult | BudgetResult) -> Report:
    """Arrange whatever ``kv`` answers."""
    if isinstance(r, BudgetResult):
        return _budget_report(r)
    sections = list(_cache(r))
    if r.compared is not None:
        sections += _variants(r.compared, r.context)
    if r.choice is not None:
        sections.append(_schemes(r.choice))
    remarks = [f"warning: {warning.message}" for warning in r.warnings]
    remarks += _remarks(r)
    heading = show(f"KV cache of {r.model.name} in {r.kv_format.name}", 200)
    verdict = "" if r.choice is None else _verdict(r.choice)
    return Report(heading, verdict, r.good, tuple(sections), tuple(remarks))


def _remarks(r: KvResult) -> Iterator[str]:
    if r.compared is not None and r.compared.rows:
        yield "times: of the model as it is. decode: attention of one step of one sequence in all layers; latents are absorbed."
    if r.compared is not None and any(_is_trained(r.compared, row) for row in r.compared.rows):
        yield "decided in training: another model, which must be trained so, or converted and trained on."
    if r.compared is not None and r.compared.served is not None:
        yield "TPOT: steps that decode only, all sequences at this length; the roof in brackets."
    if r.choice is not None:
        yield f"arrays: {show(r.choice.heads.source, 300)}."


def _is_trained(table: VariantTable, row: CacheRow) -> bool:
    return row.variant is not None and row.variant.decided == "training" and not table.is_exact(row)


# ------------------------------------------------------------------------------------------------ the cache


def _cache(r: KvResult) -> Iterator[Section]:
    """Growth, sequence, layer groups, contexts."""
    growth, total = r.whole.bytes_per_token, r.whole.bytes_per_sequence(r.context)
    rows: list[Row] = [("per token", show_bytes(growth), f"{growth:,} B")]
    if r.whole.index_bytes_per_token:
        index = r.whole.index_bytes_per_token
        rows.append(("indexer keys per token", show_bytes(index), f"{index:,} B"))
    if r.whole.fixed_bytes:
        rows.append(("fixed per sequence", show_bytes(r.whole.fixed_bytes), f"{r.whole.fixed_bytes:,} B"))
    rows.append((f"a sequence of {show_count(r.context)} tokens", show_bytes(total), f"{total:,} B"))
    if r.layout.tp > 1:
        rank = r.rank.bytes_per_token
        rows.append((f"per token on each of {r.layout.tp} ranks", show_bytes(rank), f"{rank:,} B"))
        rows.append(("per token on all ranks together", show_bytes(rank * r.layout.tp), f"{rank * r.layout.tp:,} B"))
    yield Section("Cache", ("", "", ""), tuple(rows))
    groups: list[Row] = [
        (
            f"{term.layers} x {term.label}",
            f"{term.elements:,}",
            f"{term.entries(r.context):,}" if term.stored else "shared",
            show_bytes(size),
        )
        for term, size in r.whole.by_term(r.context)
    ]
    if r.whole.state_bytes:
        groups.append(("states of recurrent layers", "", "", show_bytes(r.whole.state_bytes)))
    if groups:
        yield Section("By layer group", ("layers", "elements per entry", "entries", "bytes"), tuple(groups))
    contexts = tuple((f"{context:,}", show_bytes(r.whole.bytes_per_sequence(context))) for context in r.contexts())
    yield Section("By context", ("tokens", "bytes of a sequence"), contexts)


# ------------------------------------------------------------------------------------------------ variants


def _variants(table: VariantTable, context: int) -> Iterator[Section]:
    rows = (table.now, *table.rows)
    if table.rows:
        header = ("", "per token", "a sequence", "times", "decode reads", "decode FLOP", "FLOP/B", "reaches")
        title = f"Variants, for a sequence of {show_count(context)} tokens"
        yield Section(title, header, tuple(_bytes(table, row) for row in rows))
    if table.served is not None:
        title = f"On {_device(table)}, sequences of {show_count(context)} tokens"
        columns = (
            "",
            "at most",
            "times",
            "together",
            "TPOT",
            "times",
            "TPOT of the most",
            "tokens/s of the most",
            "FLOP/B",
        )
        yield Section(show(title, 200), columns, tuple(_on_device(table, row) for row in rows))
    if table.rows:
        yield Section(
            "What is given up", ("", "outputs", "decided in", ""), tuple(_given_up(table, row) for row in table.rows)
        )


def _device(table: VariantTable) -> str:
    assert table.served is not None
    devices = table.served.layout.devices
    return f"{devices} x {table.served.hardware.name}" if devices > 1 else table.served.hardware.name


def _bytes(table: VariantTable, row: CacheRow) -> Row:
    intensity = row.work.intensity
    return (
        show(row.name),
        show_bytes(row.whole.bytes_per_token),
        show_bytes(row.bytes_per_sequence),
        _shown_times(table.changes(row)["bytes_per_sequence"], row),
        show_bytes(row.work.cache_bytes),
        show_flop(row.work.flop),
        "none" if intensity is None else f"{intensity:,.1f}",
        "whole context" if row.reach is None else f"{show_count(row.reach)} tokens",
    )


def _on_device(table: VariantTable, row: CacheRow) -> Row:
    served, changes = row.served, table.changes(row)
    assert served is not None
    rate = served.largest_rate
    return (
        show(row.name),
        show_count(served.max_batch),
        _shown_times(changes["max_batch"], row),
        show_count(served.batch),
        _shown_time(served.tpot_s, served),
        _shown_times(changes["tpot_s"], row),
        _shown_time(served.largest_tpot_s, served),
        "none" if rate is None else show_rate(rate.expected),
        f"{served.intensity:,.1f}",
    )


def _shown_times(times: float | None, row: CacheRow) -> str:
    if row.variant is None:
        return ""
    return "none" if times is None else f"{times:.3g}"


_REASONS = {"does_not_fit": "does not fit", "no_dense_rate": "no rate known"}


def _shown_time(figure: Range | None, served: Served) -> str:
    if figure is None:
        return _REASONS[served.reason]
    return f"{show_time(figure.expected)} ({show_time(figure.bound)})"


def _given_up(table: VariantTable, row: CacheRow) -> Row:
    assert row.variant is not None
    if table.is_exact(row):
        return (show(row.name), "the same", "", "nothing: the model is so already")
    tokens = table.exact_tokens(row)
    outputs = (
        "another model's" if tokens is None else f"the same up to {show_count(tokens)} tokens" if tokens else "changed"
    )
    return (show(row.name), outputs, row.variant.decided, f"{row.variant.title}: {row.variant.why}")


# ------------------------------------------------------------------------------------------------ error budgets


def _budget_report(r: BudgetResult) -> Report:
    choice = r.choice
    limits = ", ".join(map(str, choice.limits))
    remarks = [f"warning: {warning.message}" for warning in r.warnings]
    remarks.append(f"arrays: {show(choice.heads.source, 300)}.")
    heading = show(f"KV cache within {limits}", 200)
    return Report(heading, _verdict(choice), r.good, (_schemes(choice),), tuple(remarks))


def _verdict(choice: Choice) -> str:
    limits, chosen = " and ".join(map(str, choice.limits)), choice.chosen
    if chosen is None:
        return f"No scheme holds {limits} on these arrays."
    size = "" if chosen.bytes_per_sequence is None else f", {show_bytes(chosen.bytes_per_sequence)} a sequence"
    bits = f"{chosen.mean_bits:.4g} bits an element at {show_count(choice.context)} tokens"
    return f"Cheapest that holds {limits}: {chosen.scheme.format.name} ({bits}{size})."


def _schemes(choice: Choice) -> Section:
    header = ("from the cheapest on", "bits", "a sequence", "KL", "score RMS", "key", "value", "cosine", "holds")
    return Section("Schemes", header, tuple(_scheme(one) for one in choice.tried))


def _scheme(one: Tried) -> Row:
    size = "" if one.bytes_per_sequence is None else show_bytes(one.bytes_per_sequence)
    name, bits = one.scheme.format.name, f"{one.mean_bits:.4g}"
    if one.errors is None:
        return (name, bits, size, "", "", "", "", "", _UNTRIED[one.reason])
    errors = one.errors
    return (
        name,
        bits,
        size,
        f"{errors.divergence:.3g}",
        f"{errors.score_rms:.3g}",
        f"{errors.relative_key_error:.3g}",
        f"{errors.relative_value_error:.3g}",
        f"{errors.output_cosine:.5f}",
        "yes" if one.holds else f"no: {', '.join(limit.metric for limit in one.broken)}",
    )


_UNTRIED = {
    "groups_do_not_divide": "groups do not divide the heads",
    "scale_overflows": "a 16-bit scale overflows",
}
