"""A check as text: each finding with the line that it stands on and a caret under what it is about, then a summary.

The lines are those of compilers (``file:line:column: severity: message``), which editors and logs turn into links.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from typing import TYPE_CHECKING

from .check_parts import advice, safe, summary
from .terminal import console, is_colored

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..checks.diff import CheckDiff
    from ..checks.record import Place
    from ..checks.result import CheckResult
    from .terminal import Color

Span = tuple[str, str]  # text and its style

_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
_BEFORE, _UNDER, _AFTER = 60, 60, 40  # characters of a long line that are shown before, under and after the caret
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"?|\'[^\']*\'?|[^\s,\]}]+')


def to_text(result: CheckResult, diff: CheckDiff | None = None) -> str:
    """The whole text without colour."""
    return "".join(f"{''.join(text for text, _ in line)}\n" for line in lines(result, diff))


def print_text(result: CheckResult, color: Color = "auto", diff: CheckDiff | None = None) -> None:
    """Print the text to standard output, in colour where a terminal or an option wants it."""
    if not is_colored(sys.stdout, color):  # the library for colours takes longer to load than a file to check
        sys.stdout.write(to_text(result, diff))
        return
    from rich.text import Text

    out = console(sys.stdout, color)
    for line in lines(result, diff):
        out.print(Text.assemble(*line), soft_wrap=True)


def lines(result: CheckResult, diff: CheckDiff | None = None) -> Iterator[Sequence[Span]]:
    """The lines of the text, each as spans with their styles."""
    for finding in result.findings:
        style = _STYLES[finding.severity]
        what = ((f"{finding.severity}: ", style), (safe(finding.message), ""), (f" [{safe(finding.rule)}]", "dim"))
        yield ((_place(finding.place), "bold"), *what)
        yield from _excerpt(result.line_at(finding.place), finding.place, style)
        fix = advice(finding)
        if fix:
            yield (("    fix: ", "dim"), (safe(fix), ""))
        yield ()
    for problem in result.problems:
        yield ((_place(problem.place), "bold"), ("not checked: ", _STYLES["error"]), (safe(problem.message), ""))
        yield from _excerpt(result.line_at(problem.place), problem.place, _STYLES["error"])
        yield ()
    yield from (((f"warning: {safe(notice.message)}", "yellow"),) for notice in result.warnings)
    if diff is not None:
        from .check_diff import diff_lines

        yield from (((line, ""),) for line in diff_lines(diff, aligned=True))
        yield ()
    style = "green" if not result.failed and not result.problems else "bold red"
    first, *rest = summary(result)
    yield ((first, style),)
    yield from (((sentence, ""),) for sentence in rest)


def _place(place: Place) -> str:
    """``file:line:column: ``; a name that a runner of jobs would take for a command begins with its folder."""
    shown = safe(place)
    return f"./{shown}: " if shown.startswith("::") else f"{shown}: "


def _excerpt(line: str, place: Place, style: str) -> Iterator[Sequence[Span]]:
    """The line of a place, and carets under the word that begins there."""
    if not line.strip() or not place.line:
        return
    column = place.column if 0 < place.column <= len(line) else 0
    before, rest = (line[: column - 1], line[column - 1 :]) if column else ("", line)
    match = _WORD.match(rest) if column else None
    word = rest[: match.end()] if match else rest[: 1 if column else 0]
    shown = (
        _printable(before if len(before) <= _BEFORE else f"…{before[-_BEFORE:]}"),
        _printable(_cut(word, _UNDER)),
        _printable(_cut(rest[len(word) :].rstrip(), _AFTER if column else _BEFORE + _UNDER)),
    )
    number = f"{place.line:>6}"
    yield ((f"{number} | ", "dim"), ("".join(shown), ""))
    if column:
        pad, carets = " " * cells(shown[0]), "^" * max(1, cells(shown[1]))
        yield ((f"{' ' * len(number)} | ", "dim"), (pad, ""), (carets, style))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _printable(text: str) -> str:
    return safe(text.replace("\t", "    "))


def cells(text: str) -> int:
    r"""Columns of a terminal that printable text takes: two for wide letters, none for marks that combine.

    >>> cells("abc"), cells("模型"), cells("e\N{COMBINING ACUTE ACCENT}")
    (3, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )
