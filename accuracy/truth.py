"""Reading truth files: rows of other people's logs and benchmarks, as typed figures."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import specfiles
from ..errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

GIB = 2**30
_LARGEST_FILE = 64 * 2**20
_CONSISTENT = "consistent(yes/no/incomplete)"
_LARGEST_FIGURE = 1e15
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TruthRow:
    """One row of a truth file: its texts by column, where it stands, and figures read from them."""

    texts: dict[str, str]
    where: str

    def text(self, column: str) -> str:
        """The text of a column, without spaces around it."""
        return self.texts.get(column, "").strip()

    def number(self, column: str) -> float | None:
        """The number of a column; None where it is empty.

        Raises
        ------
        SpecError : for anything but a finite number of ordinary size
        """
        text = self.text(column)
        if not text:
            return None
        value = float(text) if _NUMBER.fullmatch(text) else math.inf
        if abs(value) > _LARGEST_FIGURE:
            raise SpecError(column, got=text, wanted="a plain number, or nothing", where=self.where)
        return value

    def share(self, column: str) -> float | None:
        """The fraction of a column, above zero and at most one; None where it is empty."""
        value = self.number(column)
        if value is not None and not 0 < value <= 1:
            raise SpecError(column, got=self.text(column), wanted="a fraction above 0, at most 1", where=self.where)
        return value

    def count(self, column: str) -> int | None:
        """The whole number of a column, above zero; None where it is empty."""
        value = self.number(column)
        if value is None:
            return None
        if value != int(value) or value < 1:
            raise SpecError(column, got=self.text(column), wanted="a whole number, at least 1", where=self.where)
        return int(value)

    def gib(self, column: str) -> int | None:
        """The bytes of a column in GiB; None where it is empty."""
        value = self.number(column)
        if value is not None and value < 0:
            raise SpecError(column, got=self.text(column), wanted="zero or more GiB", where=self.where)
        return None if value is None else round(value * GIB)

    def noted(self, pattern: re.Pattern[str]) -> float | None:
        """A number that the remarks state, or None."""
        match = pattern.search(self.text("notes"))
        return float(match[1]) if match else None

    def positive(self, column: str) -> float:
        """The number of a column, above zero.

        Raises
        ------
        SpecError : for none, or another
        """
        value = self.number(column)
        if value is None or value <= 0:
            raise SpecError(column, got=self.text(column) or "nothing", wanted="a number above zero", where=self.where)
        return value

    @property
    def name(self) -> str:
        """The row's id."""
        return self.text("id") or self.where

    @property
    def trusted(self) -> str:
        """Whether the row's own figures agree: yes, incomplete or no; a file that does not say is taken at its word."""
        said = self.text(_CONSISTENT).lower() or "yes"
        if said not in {"yes", "incomplete", "no"}:
            raise SpecError(_CONSISTENT, got=said, wanted="yes, incomplete or no", where=self.where)
        return said

    @property
    def labels(self) -> dict[str, str]:
        """The columns by which results are grouped."""
        return {**self.texts, "consistent": self.trusted}


def read_truth(path: str | Path, columns: Iterable[str]) -> list[TruthRow]:
    """Read a truth file (CSV with a header).

    Raises
    ------
    SpecError : for a file that is no CSV, lacks columns, or has a row of another length
    """
    text = specfiles.read_text(path, largest=_LARGEST_FILE)
    name = "<stdin>" if str(path) == "-" else str(path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[TruthRow] = []
    seen: set[str] = set()
    try:
        header = next(reader, [])
        missing = [column for column in columns if column not in header]
        if missing:
            raise SpecError("header", got="none of them", wanted=f"the columns {', '.join(missing)}", where=f"{name}:1")
        for cells in reader:
            where = f"{name}:{reader.line_num}"
            if not cells:
                continue
            if len(cells) != len(header):
                raise SpecError("row", got=f"{len(cells)} cells", wanted=f"{len(header)}, as the header", where=where)
            row = TruthRow(dict(zip(header, cells, strict=True)), where)
            if row.name in seen:
                raise SpecError("id", got=f"{row.name} a second time", wanted="each row once", where=where)
            seen.add(row.name)
            rows.append(row)
    except csv.Error as error:
        raise SpecError("CSV", got=str(error), where=f"{name}:{reader.line_num}") from error
    if not rows:
        raise SpecError("file", got="no rows", wanted="a header and rows", where=name)
    return rows
