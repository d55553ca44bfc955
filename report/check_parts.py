"""What the outputs of a check share: words for counts, and paths as the servers of repositories know them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal

from ..checks.files import STDIN
from ..checks.fingerprints import marks
from ..errors import show
from ..quantities import show_count

if TYPE_CHECKING:
    from ..checks.finding import Finding
    from ..checks.result import CheckResult, Problem

CheckFormat = Literal["text", "json", "github", "sarif", "junit", "gitlab", "markdown"]

UNCHECKED = "could-not-be-checked"  # stands for a rule where a format wants one
LONGEST = 2_000  # characters of a message
# Variables in which CI systems say where the repository lies: https://docs.github.com and https://docs.gitlab.com, default variables.
_CHECKOUTS = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
_MOST_KINDS = 8


def safe(text: object) -> str:
    """Text that no terminal and no runner of jobs obeys: controls are escaped, and so are the marks of commands inside of a line."""
    shown = show(text, LONGEST)
    return shown.replace("##[", "#\\x23[").replace("##vso[", "#\\x23vso[")


def repository_path(file: str) -> str:
    """A file as seen from the repository's root, with slashes: the folder that a CI system names, else the working folder.

    What lies elsewhere keeps its whole path; standard input has no path.
    """
    if file == STDIN:
        return file
    try:
        here = os.path.realpath(os.curdir)
        path = os.path.normpath(Path(here, file))
        inside = PurePath(os.path.relpath(path, _root(here)))
    except (OSError, ValueError):  # the working folder is gone; another drive
        return file
    return (PurePath(path) if inside.parts[:1] == (os.pardir,) else inside).as_posix()


def _root(here: str) -> str:
    for name in _CHECKOUTS:
        given = os.environ.get(name)
        if given:
            root = os.path.realpath(given)
            if os.path.commonpath((root, here)) == root:
                return root
    return here


def advice(finding: Finding) -> str:
    """What to do: of the finding, else of its rule."""
    if finding.fix:
        return finding.fix
    from ..checks.rules import all_rules

    return next((rule.fix for rule in all_rules() if rule.id == finding.rule), "")


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "error"), counted(2_000, "file")
    ('1 error', '2,000 files')
    """
    return f"{show_count(number)} {noun}{'' if number == 1 else 's'}"


def severities(counts: Iterable[tuple[str, int]]) -> str:
    """Numbers of findings by severity, those that there are.

    >>> severities([("error", 1), ("warning", 0), ("note", 2)])
    '1 error, 2 notes'
    """
    return ", ".join(counted(number, name) for name, number in counts if number)


def summary(result: CheckResult) -> list[str]:
    """What was found and what was looked at, in sentences."""
    where = f"{counted(len(result.services), 'service')} of {counted(result.files, 'file')}"
    found = severities(result.counts.items()) or "no findings"
    sentences = [f"{found[0].upper()}{found[1:]} in {where}."]
    if result.problems:
        sentences.append(f"{counted(len(result.problems), 'part')} could not be checked.")
    taken = [f"{show_count(number)} by {safe(how)}" for how, number in sorted(result.suppressed.items()) if number]
    if taken:
        sentences.append(f"Taken off: {', '.join(taken)}.")
    if result.fixed:
        sentences.append(
            f"{counted(result.fixed, 'finding')} of the baseline {'is' if result.fixed == 1 else 'are'} no more."
        )
    if result.skipped:
        sentences.append(f"Passed over: {_kinds(sorted(result.skipped.items(), key=lambda one: (-one[1], one[0])))}.")
    return sentences


def _kinds(kinds: Sequence[tuple[str, int]]) -> str:
    named = [f"{show_count(number)} {safe(kind)}" for kind, number in kinds[:_MOST_KINDS]]
    others = sum(number for _, number in kinds[_MOST_KINDS:])
    return ", ".join([*named, *([f"{show_count(others)} other"] if others else [])])


def unchecked_marks(problems: Sequence[Problem]) -> list[str]:
    """A mark for each problem, all different: of its file and its message, and not of its line."""
    return marks((UNCHECKED, repository_path(problem.place.file), problem.message) for problem in problems)
