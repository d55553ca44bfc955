"""Large tables as CSV and JSON, column by column: each number is printed once, and a row is one filling-in of a template.

The text is that of :mod:`csv` and :mod:`json` (keys sorted, indented by two), which take several times as long over so many rows.
"""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_STEP = "  "
_ROWS_AT = 2  # steps by which the rows of a result are indented


@runtime_checkable
class Columnar(Protocol):
    """An answer that keeps its rows as columns; of a range there are four (``step_s.low``)."""

    @property
    def columns(self) -> Mapping[str, Sequence[Any]]:
        """Of each row its values, by name."""
        ...

    @property
    def ranges(self) -> Sequence[str]:
        """Names of the ranges."""
        ...

    def without_rows(self) -> dict[str, Any]:
        """The whole answer as plain data, with no rows in ``result.rows``."""
        ...


class _Texts:
    """The texts of columns; a list that several names share is printed once."""

    def __init__(self, word: Callable[[Any], str]) -> None:
        self._word = word
        self._known: dict[int, tuple[Sequence[Any], list[str]]] = {}

    def of(self, values: Sequence[Any]) -> list[str]:
        """The text of each value: numbers as Python prints them, anything else as the format wants it, each once."""
        known = self._known.get(id(values))
        if known is None:
            kinds = set(map(type, values))
            if kinds <= {float} or kinds <= {int}:
                texts = list(map(repr, values))
            elif kinds <= {float, int, type(None)}:
                none = self._word(None)
                texts = [none if value is None else repr(value) for value in values]
            else:
                words = {value: self._word(value) for value in set(values)}
                texts = [words[value] for value in values]
            known = self._known[id(values)] = (values, texts)
        return known[1]


def csv_lines(answer: Columnar, cell: Callable[[Any], str]) -> str:
    """All columns as CSV under a header; ``cell`` prints what is no number."""
    texts = _Texts(lambda value: _quoted(cell(value)))
    header = ",".join(_quoted(cell(name)) for name in answer.columns)
    rows = map(",".join, zip(*(texts.of(values) for values in answer.columns.values()), strict=True))
    return "\n".join([header, *rows]) + "\n"


def _quoted(text: str) -> str:
    """A cell as the writer of the standard library quotes it (never the only one of its row)."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([text, ""])
    return line.getvalue()[:-2]


def json_text(envelope: Mapping[str, Any], answer: Columnar) -> str:
    """The JSON of an envelope without rows, with the rows of an answer in their place."""
    text = json.dumps(envelope, sort_keys=True, allow_nan=False, indent=len(_STEP)) + "\n"
    # A string holds no line break, so that nothing else looks like this key at this depth.
    before, key, after = text.partition(f'\n{_STEP * _ROWS_AT}"rows": [')
    return f"{before}{key}{_json_rows(answer)}{after}"


def _json_rows(answer: Columnar) -> str:
    columns, texts = answer.columns, _Texts(json.dumps)
    names = sorted({name for name in columns if "." not in name} | set(answer.ranges))
    fields: list[str] = []
    filled: list[list[str]] = []
    for name in names:
        if name in columns:
            place, own = "%s", [texts.of(columns[name])]
        else:
            place, own = _range(name, columns, texts)
        fields.append(f"{_STEP * 4}{json.dumps(name)}: {place}")
        filled += own
    template = f"{_STEP * 3}{{\n" + ",\n".join(fields) + f"\n{_STEP * 3}}}"
    rows = ",\n".join(map(template.__mod__, zip(*filled, strict=True)))
    return f"\n{rows}\n{_STEP * _ROWS_AT}" if rows else ""


def _range(name: str, columns: Mapping[str, Sequence[Any]], texts: _Texts) -> tuple[str, list[list[str]]]:
    """The part of the template of a range, and what fills it; a range that is not known is null."""
    own = {column.rpartition(".")[2]: values for column, values in columns.items() if column.startswith(f"{name}.")}
    parts = [texts.of(own[part]) for part in sorted(own)]
    lines = ",\n".join(f"{_STEP * 5}{json.dumps(part)}: %s" for part in sorted(own))
    place, first = f"{{\n{lines}\n{_STEP * 4}}}", own[min(own)]
    unknown = sum(value is None for value in first)
    if not unknown:
        return place, parts
    if unknown == len(first):
        return "null", []
    found = [
        "null" if value is None else place % values
        for value, values in zip(first, zip(*parts, strict=True), strict=True)
    ]
    return "%s", [found]
