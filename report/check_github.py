"""A check as annotations of GitHub: at most ten of each kind, the worst first, then a summary; and the summary of a job's step.

GitHub shows ten annotations of a kind per step, and takes 1 MiB of Markdown as the summary of one. How commands are escaped:
actions/runner, src/Runner.Common/ActionCommand.cs (commit 079cdb1d05fe0ec50f8c51de5a4fa51d0eb189b0).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..checks.files import STDIN
from ..errors import show
from .check_parts import UNCHECKED, advice, counted, repository_path, safe, summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checks.diff import CheckDiff
    from ..checks.record import Place
    from ..checks.result import CheckResult

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
_MOST = 10
_LARGEST_SUMMARY = 1024 * 1024  # bytes
SUMMARY_FILE = "GITHUB_STEP_SUMMARY"


def to_github(result: CheckResult, diff: CheckDiff | None = None) -> str:  # noqa: ARG001  # the step summary shows the diff
    """Commands for the runner of a job, one a line, and what the log shows below them."""
    left = dict.fromkeys(_COMMANDS, 0)
    lines: list[str] = []
    for severity, command in sorted(_commands(result), key=lambda one: list(_COMMANDS).index(one[0])):
        if left[severity] < _MOST:
            lines.append(command)
        left[severity] += 1
    more = [counted(number - _MOST, f"more {severity}") for severity, number in left.items() if number > _MOST]
    if more:
        lines.append(f"roofplan: {', '.join(more)} without an annotation: see the summary of this step.")
    lines += [f"roofplan: {sentence}" for sentence in summary(result)]
    return "".join(f"{line}\n" for line in lines)


def _commands(result: CheckResult) -> Iterator[tuple[str, str]]:
    """Severity and command of each problem and finding."""
    for problem in result.problems:
        yield "error", _command("error", problem.place, UNCHECKED, safe(problem.message))
    for finding in result.findings:
        fix = advice(finding)
        message = f"{safe(finding.message)}\nfix: {safe(fix)}" if fix else safe(finding.message)
        yield finding.severity, _command(_COMMANDS[finding.severity], finding.place, finding.rule, message)


def _command(command: str, place: Place, title: str, message: str) -> str:
    properties = {}
    if place.file and place.file != STDIN:
        properties["file"] = safe(repository_path(place.file))
    if place.line:
        properties["line"] = str(place.line)
    if place.column:
        properties["col"] = str(place.column)
    properties["title"] = safe(title)
    shown = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{command} {shown}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def write_step_summary(result: CheckResult, diff: CheckDiff | None = None) -> None:
    """Append the check as Markdown to the file that GitHub names, where it names one, within what it takes.

    That it cannot be written is said, and is no reason to fail.
    """
    path = os.environ.get(SUMMARY_FILE)
    if not path:
        return
    from .check_markdown import to_markdown

    try:
        there = Path(path)
        room = _LARGEST_SUMMARY - (there.stat().st_size if there.exists() else 0)
        content = to_markdown(result, diff, largest=room - 1).encode("utf-8")
        if len(content) < room:
            with there.open("ab") as stream:
                stream.write(content + b"\n")
    except (OSError, ValueError) as error:
        sys.stderr.write(f"roofplan: warning: the step summary cannot be written: {show(error)}\n")
