"""Reports as JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..errors import show
from ..planner.results import plain
from .columns import Columnar, csv_lines, json_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..planner.results import Answer
    from .sections import Report, Section


_PLOT_WIDTH = 100  # letters


def to_json(answer: Answer, *, explain: bool = False) -> str:
    """The envelope that scripts rely on: keys sorted, base units, no rounding, no NaN."""
    envelope = answer.without_rows() if isinstance(answer, Columnar) else answer.to_dict()
    if explain:
        envelope["explanations"] = plain(answer.explain())
    if isinstance(answer, Columnar):
        return json_text(envelope, answer)
    return json.dumps(envelope, sort_keys=True, allow_nan=False, indent=2) + "\n"


@runtime_checkable
class Tabular(Protocol):
    """An answer that is a table: the names of its columns, and one mapping a row, in base units."""

    def table(self) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
        """Columns and rows."""
        ...


def to_csv(answer: Answer, *, explain: bool = False) -> str:
    """A table as it is; of any other answer one line a figure.

    Figures are named as in the JSON (``latency.tpot_s.expected``) and in base units; explained ones have their formula and numbers.
    """
    if isinstance(answer, Columnar):
        return csv_lines(answer, _cell)
    return _table_lines(answer) if isinstance(answer, Tabular) else _figure_lines(answer, explain=explain)


def _table_lines(answer: Tabular) -> str:
    columns, rows = answer.table()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(column) for column in columns])
    # Numbers go as they are: the writer prints them as _cell would, and tables have many.
    writer.writerows(
        [value if type(value) in _NUMBERS else _cell(value) for value in map(row.get, columns)] for row in rows
    )
    return text.getvalue()


_NUMBERS = (int, float)


def _figure_lines(answer: Answer, *, explain: bool) -> str:
    derived = {line.figure: (line.formula, line.numbers) for line in answer.explain()} if explain else {}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["figure", "value", *(("formula", "numbers") if explain else ())])
    for name, value in _flat(answer.to_dict()["result"], ""):
        line = derived.get(name) or derived.get(name.rpartition(".")[0]) or ("", "")
        writer.writerow([_cell(cell) for cell in (name, value, *(line if explain else ()))])
    return text.getvalue()


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key in sorted(value):
            yield from _flat(value[key], f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _flat(item, f"{name}.{position}")
    else:
        yield name, value


def _cell(value: Any) -> str:
    """A cell that no spreadsheet takes for a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return ""
    if isinstance(value, (int, float)):
        return repr(value)
    text = "; ".join(map(_entry, value)) if isinstance(value, (list, tuple)) else show(value, 1000)
    return f"'{text}" if text[:1] in "=+-@\t" and text else text


def _entry(value: Any) -> str:
    """An entry of a list that shares a cell."""
    return show(value, 1000) if isinstance(value, str) else _cell(value)


def to_markdown(report: Report) -> str:
    """The report as Markdown tables."""
    lines = [f"## {_escaped(report.heading)}", ""] if report.heading else []
    if report.verdict:
        lines += [f"**{_escaped(report.verdict)}**", ""]
    if report.plot is not None:
        drawn = ["".join(text for text, _ in line).rstrip() for line in report.plot(_PLOT_WIDTH, True)]
        lines += ["```text", *(show(line, 1000).replace("`", "'") for line in drawn), "```", ""]
    for section in report.sections:
        lines += [*section_lines(section), ""]
    lines += [f"- {_escaped(remark)}" for remark in report.remarks]
    return "\n".join(lines).rstrip() + "\n"


def section_lines(section: Section) -> list[str]:
    """One section as a Markdown table under a heading."""
    columns = len(section.header)
    rule = "|" + "|".join(["---"] + ["---:"] * (columns - 1)) + "|"
    rows = [f"| {' | '.join(_escaped(cell) for cell in row)} |" for row in section.rows]
    return [f"### {_escaped(section.title)}", "", f"| {' | '.join(map(_escaped, section.header))} |", rule, *rows]


def _escaped(text: str) -> str:
    safe = show(text, 1000)
    for character in "\\`*_[]<>|":
        safe = safe.replace(character, f"\\{character}")
    return safe
