"""Findings that a comment accepts: ``# roofplan: ignore[rule, other-rule] reason``.

The comment holds for its own line. On a line of its own it holds for the next line, and where that line goes on (a backslash at its end in
a script, ``|`` or ``>`` before a block of text in YAML) for all of what it begins, since no comment can stand inside.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .finding import Finding
from .record import Place
from .rules import closest_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

UNKNOWN = "unknown-ignore"
UNUSED = "unused-ignore"
_COMMENT = re.compile(r"(?:^|(?<=\s))#\s*roofplan:\s*ignore\b(?:\s*\[([^\]\n]*)\])?", re.IGNORECASE)
_BLOCK = re.compile(r"[:\-]\s+[|>][-+0-9]{0,2}\s*(?:#.*)?$")
_LONGEST_LINE = 10_000  # a comment stands near the beginning of any line that a person reads


@dataclass(frozen=True, slots=True)
class Ignore:
    """One rule of one comment: where it stands, and the lines it holds for."""

    rule: str
    place: Place
    first: int
    last: int


def read_ignores(text: str, file: str) -> list[Ignore]:
    """The comments of a text; a comment without a rule has an empty one.

    >>> [(ignore.rule, ignore.first) for ignore in read_ignores("tp: 3  # roofplan: ignore[missing-shm] later", "a.yaml")]
    [('missing-shm', 1)]
    """
    if "roofplan" not in text.lower():
        return []
    lines = [line.removesuffix("\r") for line in text.split("\n")]  # as readers count them
    return [ignore for at, line in enumerate(lines) for ignore in _of_line(lines, at, line[:_LONGEST_LINE], file)]


def _of_line(lines: Sequence[str], at: int, line: str, file: str) -> Iterable[Ignore]:
    match = _COMMENT.search(line)
    if match is None:
        return
    first, last = (at, at) if line[: match.start()].strip() else _what_follows(lines, at)
    place = Place(file, at + 1, match.start() + 1)
    for rule in (match.group(1) or "").split(","):
        yield Ignore(rule.strip().lower(), place, first + 1, last + 1)


def _what_follows(lines: Sequence[str], at: int) -> tuple[int, int]:
    """The first and the last line of what follows a comment that stands alone."""
    first = at + 1
    while first < len(lines) and (not lines[first].strip() or lines[first].lstrip().startswith("#")):
        first += 1
    last = first
    while last < len(lines) and lines[last].endswith("\\"):
        last += 1
    if last == first and first < len(lines) and _BLOCK.search(lines[first]):
        depth = _indent(lines[first])
        while last + 1 < len(lines) and (not lines[last + 1].strip() or _indent(lines[last + 1]) > depth):
            last += 1
    return first, min(last, len(lines))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def take_off(
    findings: Iterable[Finding],
    ignores: Iterable[Ignore],
    known: Callable[[str], bool],
    ran: Callable[[str, str], bool],
) -> tuple[list[Finding], int]:
    """Take off what comments accept; comments that name no rule, an unknown one, or one that found nothing there, are notes.

    Parameters
    ----------
    findings : of the files that the comments stand in
    known : whether there is such a rule
    ran : whether a rule was applied to all of a file, so that a comment without effect is known to have none

    Returns the findings that are left, with the notes, and how many were taken off.
    """
    left = list(findings)
    before = len(left)
    notes: list[Finding] = []
    by_file: dict[str, list[Ignore]] = defaultdict(list)
    for ignore in ignores:
        by_file[ignore.place.file].append(ignore)
    for file, of_file in by_file.items():
        here = [finding for finding in left if finding.place.file == file]
        accepted: set[int] = set()
        for ignore in of_file:
            met = {
                id(finding)
                for finding in here
                if finding.rule == ignore.rule and ignore.first <= finding.place.line <= ignore.last
            }
            accepted |= met
            note = _note(ignore, known)
            if not met and ran(note.rule, file) and (note.rule == UNKNOWN or ran(ignore.rule, file)):
                notes.append(note)
        left = [finding for finding in left if id(finding) not in accepted]
    return left + notes, before - len(left)


def _note(ignore: Ignore, known: Callable[[str], bool]) -> Finding:
    if not ignore.rule:
        message = "the comment names no rule, so it accepts nothing: write ignore[RULE]"
        return Finding(UNKNOWN, "note", ignore.place, message)
    if not known(ignore.rule):
        near = closest_rule(ignore.rule)
        message = f"there is no rule {ignore.rule!r}" + (f"; did you mean {near}?" if near else "")
        return Finding(UNKNOWN, "note", ignore.place, message, subject=ignore.rule)
    lines = f"line {ignore.first}" if ignore.first == ignore.last else f"lines {ignore.first} to {ignore.last}"
    message = f"{ignore.rule} finds nothing on {lines}: the comment can go"
    return Finding(UNUSED, "note", ignore.place, message, subject=ignore.rule)
