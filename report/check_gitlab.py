"""A check as a code quality report of GitLab: https://docs.gitlab.com/ci/testing/code_quality/, the format of the report.

Of issues with the same fingerprint GitLab keeps the first, so that each has one of its own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..checks.fingerprints import fingerprints
from .check_parts import UNCHECKED, advice, repository_path, safe, unchecked_marks

if TYPE_CHECKING:
    from ..checks.diff import CheckDiff
    from ..checks.record import Place
    from ..checks.result import CheckResult

_SEVERITIES = {"error": "critical", "warning": "minor", "note": "info"}


def to_gitlab(result: CheckResult, diff: CheckDiff | None = None) -> str:  # noqa: ARG001  # the report has no place for a diff
    """A list of issues; what could not be checked is one, too."""
    issues = [
        _issue(
            finding.rule,
            " ".join(part for part in (safe(finding.message), safe(advice(finding))) if part),
            _SEVERITIES[finding.severity],
            finding.place,
            mark,
        )
        for finding, mark in zip(result.findings, fingerprints(result.findings), strict=True)
    ]
    issues += [
        _issue(UNCHECKED, safe(problem.message), "blocker", problem.place, mark)
        for problem, mark in zip(result.problems, unchecked_marks(result.problems), strict=True)
    ]
    return json.dumps(issues, indent=2, sort_keys=True) + "\n"


def _issue(rule: str, description: str, severity: str, place: Place, mark: str) -> dict[str, Any]:
    return {
        "type": "issue",
        "check_name": safe(rule),
        "description": description or "-",
        "severity": severity,
        "fingerprint": mark,
        "location": {"path": safe(repository_path(place.file)), "lines": {"begin": max(1, place.line)}},
    }
