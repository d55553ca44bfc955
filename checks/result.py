"""The answer of a check: findings, what could not be checked, and how much was looked at."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import ExitCode, RoofplanError
from ..planner.results import Answer, Notice
from .finding import SEVERITIES, Finding, at_least
from .fingerprints import fingerprints
from .record import Place, Service
from .settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be checked: where, and why in one line (printable as it is)."""

    place: Place
    message: str

    @classmethod
    def of(cls, error: Exception, file: str) -> Problem:
        """Take over an error of a reader; the file is where it has no place of its own."""
        if not isinstance(error, RoofplanError):
            kind = type(error).__name__
            return cls(
                Place(file), f"a fault of roofplan's own, please report it: {kind}: {' '.join(str(error).split())}"
            )
        return cls(_place(error.where, file), error.without_place)


def _place(where: str, file: str) -> Place:
    """The place that an error tells as ``file:line:column``."""
    match = re.fullmatch(r"(.*?):([0-9]+)(?::([0-9]+))?", where, re.DOTALL)
    return Place(where or file) if match is None else Place(match[1], int(match[2]), int(match[3] or 0))


@dataclass(frozen=True, slots=True)
class CheckResult(Answer):
    """What a check found.

    Parameters
    ----------
    settings : what was asked
    findings : sorted by severity, file, line and rule
    problems : what could not be checked, in the order of files and lines
    services : what was checked
    skipped : what was passed over, by kind
    files : number of files that were read
    suppressed : findings taken off, by what took them off: ``inline``, ``baseline``
    fixed : findings of the baseline that are no more
    lines : the text of the line that a finding or problem stands on, by file and line
    """

    settings: Settings
    findings: tuple[Finding, ...] = ()
    problems: tuple[Problem, ...] = ()
    services: tuple[Service, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    files: int = 0
    suppressed: Mapping[str, int] = field(default_factory=dict)
    fixed: int = 0
    lines: Mapping[tuple[str, int], str] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "check"

    @property
    def counts(self) -> dict[str, int]:
        """Findings by severity, the worst first."""
        found = Counter(finding.severity for finding in self.findings)
        return {severity: found[severity] for severity in SEVERITIES}

    @property
    def failed(self) -> bool:
        """Whether a finding is as severe as the run fails on."""
        return any(map(self.fails, self.findings))

    def fails(self, finding: Finding) -> bool:
        """Whether a finding is as severe as the run fails on."""
        return finding.severity in at_least(self.settings.fail_on)

    @property
    def exit_code(self) -> ExitCode:
        """2 where something could not be checked, else 1 where it failed, else 0."""
        if self.problems:
            return ExitCode.BAD_INPUT
        return ExitCode.NO if self.failed else ExitCode.YES

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What the user should know."""
        if self.services or self.problems:
            return ()
        return (Notice("no_deployments", "no deployment was found, so nothing was checked"),)

    def findings_of(self, service: Service) -> tuple[Finding, ...]:
        """The findings of a service: all with its name, and those in its file where several have that name."""
        is_only = sum(one.name == service.name for one in self.services) == 1
        return tuple(
            found
            for found in self.findings
            if found.service == service.name and (is_only or found.place.file == service.place.file)
        )

    def line_at(self, place: Place) -> str:
        """The text of a place's line; empty where it is not known."""
        return self.lines.get((place.file, place.line), "")

    def inputs(self) -> dict[str, Any]:
        """What was asked."""
        settings = self.settings
        return {
            "select": settings.select,
            "ignore": settings.ignore,
            "fail_on": settings.fail_on,
            "baseline": settings.baseline,
            "defaults": {name: said.value for name, said in settings.defaults.items()},
        }

    def figures(self) -> dict[str, Any]:
        """What was found."""
        return {
            "findings": [
                _row(finding, mark) for finding, mark in zip(self.findings, fingerprints(self.findings), strict=True)
            ],
            "problems": [{**_at(problem.place), "message": problem.message} for problem in self.problems],
            "services": [
                {**_at(service.place), "name": service.name, "kind": service.kind, "engine": service.engine.value}
                for service in self.services
            ],
            "counts": self.counts,
            "files": self.files,
            "skipped": dict(self.skipped),
            "suppressed": dict(self.suppressed),
            "fixed": self.fixed,
            "passed": self.exit_code is ExitCode.YES,
        }


def _at(place: Place) -> dict[str, Any]:
    return {"file": place.file, "line": place.line, "column": place.column}


def _row(finding: Finding, mark: str) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        **_at(finding.place),
        "message": finding.message,
        "service": finding.service,
        "subject": finding.subject,
        "fix": finding.fix,
        "figures": dict(finding.figures),
        "fingerprint": mark,
    }


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings as they are shown: the most severe first, then by file, line and rule."""
    return tuple(
        sorted(findings, key=lambda found: (SEVERITIES.index(found.severity), found.place, found.rule, found.message))
    )
