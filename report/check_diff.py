"""What a change does, as Markdown for the comment of a pull request: a table for each service that changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..quantities import show_bytes, show_count, show_rate, show_time
from .check_markdown import marked
from .check_parts import counted
from .check_text import cells

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..checks.diff import Change, CheckDiff, ServiceDiff

_LONGEST = 120  # characters of a setting
_PLAIN = re.compile(r"[\w./:@+=-]{1,120}", re.ASCII)
_MOST_NAMES = 10


def _dollars(value: float) -> str:
    return f"${value:,.2f}"


_SHOWN: dict[str, tuple[str, Callable[[Any], str]]] = {
    "fits": ("fits", lambda value: "yes" if value else "no"),
    "memory.weights_bytes": ("weights per device", show_bytes),
    "memory.kv_budget_bytes": ("KV cache per device", show_bytes),
    "memory.free_bytes": ("free per device", show_bytes),
    "capacity.kv_tokens": ("KV cache holds, tokens", show_count),
    "capacity.max_concurrency": ("sequences at full length", show_count),
    "capacity.max_context": ("longest sequence, tokens", show_count),
    "latency.ttft_s": ("TTFT", show_time),
    "latency.tpot_s": ("TPOT", show_time),
    "latency.e2e_s": ("end to end", show_time),
    "throughput.output_tokens_per_s": ("output tokens/s", show_rate),
    "cost.usd_per_hour": ("cost per hour of all copies", _dollars),
    "cost.usd_per_million_output_tokens": ("cost per million output tokens", _dollars),
    "bottleneck.decode": ("decode is bound by", lambda value: str(value).replace("_", " ")),
}


def diff_lines(diff: CheckDiff, *, aligned: bool = False, largest: int | None = None) -> list[str]:
    """Lines of Markdown.

    Parameters
    ----------
    aligned : pad the cells, for a terminal
    largest : bytes after which no further service is shown, but counted; None: all are
    """
    lines = list(_lines(diff, aligned=aligned, largest=largest))
    while lines[-1] == "":
        lines.pop()
    return lines


def _lines(diff: CheckDiff, *, aligned: bool, largest: int | None) -> Iterator[str]:
    yield "### What this change does"
    yield ""
    changed = [one for one in diff.services if one.state != "same" or one.appeared or one.gone]
    size = 0
    for position, one in enumerate(changed):
        lines = list(_service(one, aligned=aligned))
        size += sum(len(line.encode("utf-8")) + 1 for line in lines)
        if largest is not None and size > largest:
            yield f"{counted(len(changed) - position, 'more service')} left out for want of room."
            yield ""
            break
        yield from lines
    same = [one for one in diff.services if one not in changed]
    if same:
        named = ", ".join(marked(one.name) for one in same[:_MOST_NAMES])
        more = f" and {len(same) - _MOST_NAMES} more" if len(same) > _MOST_NAMES else ""
        yield f"{counted(len(same), 'service')} unchanged: {named}{more}."
    elif not changed:
        yield "There is no service on either side."


def _service(one: ServiceDiff, *, aligned: bool) -> Iterator[str]:
    state = "" if one.state in {"changed", "same"} else f" ({one.state})"
    yield f"#### {marked(one.name)}{state}"
    yield ""
    if one.settings:
        yield f"Changed: {'; '.join(_setting(change) for change in one.settings)}."
        yield ""
    if one.figures:
        yield from _table([_row(change) for change in one.figures], aligned=aligned)
        yield ""
    if one.unplanned:
        yield f"No figures: {marked(one.unplanned)}"
        yield ""
    for name, rules in (("New findings", one.appeared), ("Findings that are gone", one.gone)):
        if rules:
            yield f"{name}: {', '.join(marked(rule) for rule in rules)}."
            yield ""


def _setting(change: Change) -> str:
    return f"{_word(change.name)} {_value(change.before)} → {_value(change.after)}"


def _value(value: Any) -> str:
    return "not said" if value is None else _word(str(value))


def _word(text: str) -> str:
    """A word of a file: as code where it is a plain one."""
    return f"`{text}`" if _PLAIN.fullmatch(text) else marked(text, _LONGEST)


def _row(change: Change) -> tuple[str, ...]:
    name, shown = _SHOWN[change.name]
    before, after = ("-" if value is None else shown(value) for value in (change.before, change.after))
    verdict = change.verdict
    return name, before, after, _ratio(change), "" if verdict in {"same", "other"} else verdict


def _ratio(change: Change) -> str:
    """The change in per cent; from twice on as a factor, which is read faster."""
    before, after = change.before, change.after
    if before == after:
        return "="
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (before, after))
    if not numbers or before <= 0 or after < 0:
        return ""
    ratio = after / before
    return f"x {ratio:.3g}" if ratio >= 2 else f"{ratio - 1:+.1%}"


def _table(rows: Sequence[tuple[str, ...]], *, aligned: bool) -> Iterator[str]:
    header = ("", "before", "after", "change", "")
    if not aligned:
        yield f"| {' | '.join(header)} |"
        yield "|---|---:|---:|---:|---|"
        yield from (f"| {' | '.join(row)} |" for row in rows)
        return
    widths = [max(3, *(cells(row[column]) for row in (header, *rows))) for column in range(len(header))]
    yield f"| {' | '.join(map(_padded, header, widths, _RIGHT))} |"
    yield (
        "|"
        + "|".join("-" * (width + 1) + (":" if right else "-") for width, right in zip(widths, _RIGHT, strict=True))
        + "|"
    )
    yield from (f"| {' | '.join(map(_padded, row, widths, _RIGHT))} |" for row in rows)


_RIGHT = (False, True, True, True, False)


def _padded(text: str, width: int, right: bool) -> str:
    room = " " * (width - cells(text))
    return room + text if right else text + room
