"""A check as JUnit XML: a suite a file, in it one case a rule, so that each rule's history in a file can be followed.

Names are those of rules and files, each once, since GitLab keeps the first of equal names. There is no clock in it.
Schema: junit-10.xsd of jenkinsci/xunit-plugin; limits: https://docs.gitlab.com/ci/testing/unit_test_reports/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from ..checks.rules import all_rules
from .check_parts import UNCHECKED, advice, counted, repository_path, safe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..checks.diff import CheckDiff
    from ..checks.finding import Finding
    from ..checks.result import CheckResult, Problem

_MOST_CASES = 100_000  # about 10 MB; GitLab takes 30
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>'


def to_junit(result: CheckResult, diff: CheckDiff | None = None) -> str:  # noqa: ARG001  # the format has no place for a diff
    """Suites of the files with deployments in them: what fails the run fails a case, other findings are output of a passed one."""
    findings: dict[str, dict[str, list[Finding]]] = {}
    problems: dict[str, list[Problem]] = {}
    for finding in result.findings:
        findings.setdefault(finding.place.file, {}).setdefault(finding.rule, []).append(finding)
    for problem in result.problems:
        problems.setdefault(problem.place.file, []).append(problem)
    files = sorted({*findings, *problems, *(service.place.file for service in result.services)})
    rules = [rule.id for rule in all_rules() if result.settings.selects(rule.id)]
    if len(rules) * len(files) > _MOST_CASES:
        rules = []  # only what was found
    suites = [_Suite(file, rules, findings.get(file, {}), problems.get(file, []), result.fails) for file in files]
    total = (sum(suite.tests for suite in suites), sum(suite.failures for suite in suites), sum(map(_errors, suites)))
    lines = [_HEAD, f'<testsuites name="roofplan check"{_counts(*total)}>']
    for suite in suites:
        lines += suite.lines()
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _counts(tests: int, failures: int, errors: int) -> str:
    return f' tests="{tests}" failures="{failures}" errors="{errors}"'


class _Suite:
    """The cases of one file."""

    def __init__(
        self,
        file: str,
        rules: Sequence[str],
        findings: dict[str, list[Finding]],
        problems: list[Problem],
        fails: Callable[[Finding], bool],
    ) -> None:
        self.name = safe(repository_path(file))
        self.cases = sorted({*rules, *findings})
        self.findings = findings
        self.problems = problems
        self.fails = fails

    @property
    def tests(self) -> int:
        return len(self.cases) + bool(self.problems)

    @property
    def failures(self) -> int:
        return sum(any(map(self.fails, one)) for one in self.findings.values())

    def lines(self) -> Iterator[str]:
        yield f"  <testsuite name={quoteattr(self.name)}{_counts(self.tests, self.failures, _errors(self))}>"
        if self.problems:
            texts = [f"{safe(problem.place)}: {safe(problem.message)}" for problem in self.problems]
            yield from self._case(UNCHECKED, _bad("error", "error", _first(texts), texts))
        for rule in self.cases:
            found = self.findings.get(rule, [])
            texts = [_told(one) for one in found]
            if any(map(self.fails, found)):
                messages = [safe(one.message) for one in found]
                yield from self._case(rule, _bad("failure", found[0].severity, _first(messages), texts))
            else:
                yield from self._case(rule, f"<system-out>{_body(texts)}</system-out>" if texts else "")
        yield "  </testsuite>"

    def _case(self, name: str, content: str) -> Iterator[str]:
        opening = f"    <testcase classname={quoteattr(self.name)} name={quoteattr(safe(name))}"
        if content:
            yield f"{opening}>"
            yield f"      {content}"
            yield "    </testcase>"
        else:
            yield f"{opening}/>"


def _errors(suite: _Suite) -> int:
    return int(bool(suite.problems))


def _told(finding: Finding) -> str:
    fix = advice(finding)
    told = f"{safe(finding.place)}: {finding.severity}: {safe(finding.message)}"
    return f"{told}\n    fix: {safe(fix)}" if fix else told


def _first(messages: Sequence[str]) -> str:
    return messages[0] if len(messages) == 1 else f"{messages[0]} (and {counted(len(messages) - 1, 'other')})"


def _bad(tag: str, kind: str, message: str, texts: Sequence[str]) -> str:
    return f"<{tag} type={quoteattr(kind)} message={quoteattr(message)}>{_body(texts)}</{tag}>"


def _body(texts: Sequence[str]) -> str:
    return escape("\n".join(texts))
