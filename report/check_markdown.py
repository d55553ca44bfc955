"""A check as Markdown: for the comment of a pull request, or the summary of a job. Nothing in it is markup but what stands here.

A comment on GitHub holds 65,536 characters; what does not fit is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..quantities import show_count
from .check_parts import LONGEST, advice, repository_path, safe, summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checks.diff import CheckDiff
    from ..checks.record import Place
    from ..checks.result import CheckResult

_LARGEST = 60_000  # bytes; a comment holds a little more
_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]{}<>|$~&#!^"})
# An empty comment keeps servers from making links: of names (@team), addresses, and numbers of issues (by the escape of # above).
_BREAK = "<!-- -->"


def to_markdown(result: CheckResult, diff: CheckDiff | None = None, *, largest: int = _LARGEST) -> str:
    """Verdict, findings as a table, what could not be checked, and what a change does.

    Parameters
    ----------
    largest : bytes that the text may have; rows that go beyond it are left out and counted
    """
    parts = [
        f"### roofplan check: {_verdict(result)}",
        "",
        " ".join(marked(sentence) for sentence in summary(result)),
        "",
    ]
    change: list[str] = []
    if diff is not None:
        from .check_diff import diff_lines

        change = [*diff_lines(diff, largest=largest // 2), ""]
    room = largest - _size(parts) - _size(change) - 200  # the line about what is left out
    rows, left = _fitting(_findings(result), room)
    if rows:
        parts += ["| | rule | where | what |", "|---|---|---|---|", *rows, ""]
    problems, unsaid = _fitting(_problems(result), room - _size(rows))
    if problems:
        parts += ["Not checked:", "", *problems, ""]
    if left or unsaid:
        more = "1 more entry" if left + unsaid == 1 else f"{show_count(left + unsaid)} more entries"
        parts += [f"{more} left out for want of room.", ""]
    return "\n".join(parts + change).rstrip("\n") + "\n"


def _verdict(result: CheckResult) -> str:
    if result.problems:
        return "not all could be checked"
    return "failed" if result.failed else "passed"


def _size(lines: list[str]) -> int:
    return sum(len(line.encode("utf-8")) + 1 for line in lines)


def _fitting(lines: Iterator[str], room: int) -> tuple[list[str], int]:
    """The first lines that there is room for, and the number of the others."""
    kept: list[str] = []
    left = 0
    for line in lines:
        room -= len(line.encode("utf-8")) + 1
        if room < 0 or left:
            left += 1
        else:
            kept.append(line)
    return kept, left


def _findings(result: CheckResult) -> Iterator[str]:
    for finding in result.findings:
        fix = advice(finding)
        what = marked(finding.message) + (f"<br>fix: {marked(fix)}" if fix else "")
        yield f"| {finding.severity} | {marked(finding.rule)} | {_where(finding.place)} | {what} |"


def _problems(result: CheckResult) -> Iterator[str]:
    for problem in result.problems:
        yield f"- {_where(problem.place)}: {marked(problem.message)}"


def _where(place: Place) -> str:
    file = marked(repository_path(place.file))
    return f"{file}:{place.line}" if place.line else file


def marked(text: str, longest: int = LONGEST) -> str:
    r"""Foreign text as Markdown that shows it and does nothing else: no markup, links, mentions, formulas or HTML.

    >>> print(marked("a|b @team <b>"))
    a\|b @<!-- -->team \<b\>
    """
    shown = safe(text)[:longest].translate(_MARKS)
    return shown.replace("@", f"@{_BREAK}").replace("://", f":{_BREAK}//").replace("www.", f"www{_BREAK}.")
