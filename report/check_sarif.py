"""A check as SARIF 2.1.0: https://docs.oasis-open.org/sarif/sarif/v2.1.0/, as the code scanning of GitHub takes it.

GitHub takes 25,000 results of a run and shows 5,000; the worst stand first. A result's identity is under ``roofplan/v1`` and not under
``primaryLocationLineHash``: that one GitHub's uploader computes from the source, and warns of any other value (github/codeql-action,
issue 4052).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .. import __version__
from ..checks.fingerprints import fingerprints
from ..checks.rules import all_rules
from .check_parts import LONGEST, UNCHECKED, advice, counted, repository_path, safe

if TYPE_CHECKING:
    from ..checks.diff import CheckDiff
    from ..checks.finding import Finding, Rule
    from ..checks.record import Place
    from ..checks.result import CheckResult

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_MOST_RESULTS = 25_000
_SEVERITIES = {"error": "error", "warning": "warning", "note": "recommendation"}
_TAGS = ["llm-inference", "capacity"]


def to_sarif(result: CheckResult, diff: CheckDiff | None = None) -> str:  # noqa: ARG001  # the format has no place for a diff
    """One run: the rules with their help, the results, and what could not be checked as notifications."""
    rules = [_rule(rule) for rule in all_rules()]
    index = {rule["id"]: position for position, rule in enumerate(rules)}
    for finding in result.findings:  # of the engine itself: an ignore that is not used, say
        if finding.rule not in index:
            index[finding.rule] = len(rules)
            rules.append(_named(finding))
    shown = result.findings[:_MOST_RESULTS]
    marks = fingerprints(result.findings)[:_MOST_RESULTS]
    run = {
        "tool": {
            "driver": {
                "name": "roofplan",
                "version": __version__,
                "rules": rules,
                "notifications": [{"id": UNCHECKED, "shortDescription": {"text": "Something could not be checked"}}],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(result, len(result.findings) - len(shown))],
        "results": [_result(finding, index[finding.rule], mark) for finding, mark in zip(shown, marks, strict=True)],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, sort_keys=True, indent=2) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.id.split("-")),
        "shortDescription": {"text": _text(rule.title)},
        "fullDescription": {"text": _text(rule.why)},
        "help": {"text": _text(f"{rule.why} {rule.fix}"), "markdown": _help(rule)},
        "defaultConfiguration": {"level": rule.severity},
        "properties": {"problem.severity": _SEVERITIES[rule.severity], "tags": _TAGS},
    }


def _help(rule: Rule) -> str:
    return f"**{rule.title}.** {rule.why}\n\n**What to do.** {rule.fix}\n\n`roofplan check --explain {rule.id}` says the same."


def _named(finding: Finding) -> dict[str, Any]:
    """A rule of which only a finding is known."""
    words = _text(finding.rule.replace("-", " "))
    return {
        "id": finding.rule,
        "shortDescription": {"text": words},
        "defaultConfiguration": {"level": finding.severity},
    }


def _result(finding: Finding, rule: int, mark: str) -> dict[str, Any]:
    fix = advice(finding)
    told = {
        "ruleId": finding.rule,
        "ruleIndex": rule,
        "level": finding.severity,
        "message": {"text": _text(f"{finding.message} Fix: {fix}" if fix else finding.message)},
        "locations": [_location(finding.place, finding.service)],
        "partialFingerprints": {"roofplan/v1": mark},
    }
    if finding.figures:
        told["properties"] = {"figures": dict(finding.figures)}
    return told


def _location(place: Place, service: str = "") -> dict[str, Any]:
    path = repository_path(place.file)
    # A name that begins like a scheme (``a:b.yaml``) stays a path; one outside of the repository is a file of the machine.
    quoted = quote(path.encode("utf-8", "surrogateescape"), safe="/~")
    uri = f"file://{quoted}" if path.startswith("/") else quoted
    region = {"startLine": max(1, place.line), **({"startColumn": place.column} if place.column else {})}
    found: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}
    if service:
        found["logicalLocations"] = [{"name": _text(service), "kind": "resource"}]
    return found


def _invocation(result: CheckResult, left_out: int) -> dict[str, Any]:
    told = [
        {
            "level": "error",
            "descriptor": {"id": UNCHECKED, "index": 0},
            "message": {"text": _text(problem.message)},
            "locations": [_location(problem.place)],
        }
        for problem in result.problems
    ]
    if left_out:
        told.append({"level": "warning", "message": {"text": f"{counted(left_out, 'more finding')} left out"}})
    return {
        "executionSuccessful": not result.problems,
        "exitCode": int(result.exit_code),
        "toolExecutionNotifications": told,
    }


def _text(text: str) -> str:
    """A message in which nothing is a link: ``[text](address)`` would be one (SARIF 2.1.0, section 3.11.6)."""
    return safe(text)[:LONGEST].replace("](", "] (") or "-"
