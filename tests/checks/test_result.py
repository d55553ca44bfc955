"""The answer of a check: its exit code, its order, and where problems stand."""

from __future__ import annotations

from typing import Any

import pytest

from roofplan.checks.finding import Finding
from roofplan.checks.record import Place
from roofplan.checks.result import CheckResult, Problem, in_order
from roofplan.checks.run import check_text
from roofplan.checks.settings import Settings
from roofplan.errors import DomainError, SpecError

HEAD = "schema: roofplan/deployment/v1\nmodel: llama-3.1-8b\n"
GOOD = HEAD + "hardware: h100-sxm\n"
MISSED = GOOD + "limits:\n  ttft: 1 ms\n"
PLACE = Place("a.yaml", 3, 5)


def result_of(*severities: Any, fail_on: Any = "error", problems: int = 0) -> CheckResult:
    findings = tuple(Finding("a", severity, PLACE, "m") for severity in severities)
    return CheckResult(Settings(fail_on=fail_on), findings, (Problem(PLACE, "p"),) * problems)


@pytest.mark.parametrize(
    ("severities", "fail_on", "problems", "code"),
    [
        ((), "warning", 0, 0),
        (("note",), "warning", 0, 0),
        (("warning",), "error", 0, 0),
        (("warning",), "warning", 0, 1),
        (("error",), "error", 0, 1),
        (("error",), "warning", 0, 1),
        (("error",), "never", 0, 0),
        (("error",), "never", 1, 2),
        (("error",), "error", 1, 2),
        ((), "error", 1, 2),
    ],
)
def test_exit_codes(severities: tuple[str, ...], fail_on: str, problems: int, code: int) -> None:
    assert result_of(*severities, fail_on=fail_on, problems=problems).exit_code == code


def test_findings_are_sorted_by_severity_file_and_line() -> None:
    def at(severity: Any, file: str, line: int) -> Finding:
        return Finding("a", severity, Place(file, line), "m")

    wanted = [at("error", "a", 9), at("error", "b", 2), at("warning", "a", 1), at("note", "a", 1), at("note", "a", 10)]
    assert list(in_order(reversed(wanted))) == wanted


def test_the_answer_as_plain_data() -> None:
    answer = check_text(MISSED, "a.yaml", Settings()).to_dict()
    assert (answer["schema"], answer["command"]) == ("roofplan/result/v1", "check")
    found = answer["result"]
    (finding,) = found["findings"]
    assert (finding["rule"], finding["severity"], finding["file"], finding["line"], finding["column"]) == (
        "ttft-limit-missed", "error", "a.yaml", 5, 9,
    )  # fmt: skip
    assert finding["subject"] == "ttft"
    assert len(finding["fingerprint"]) == 32
    assert found["counts"] == {"error": 1, "warning": 0, "note": 0}
    assert (found["files"], found["passed"], found["problems"]) == (1, False, [])
    assert found["services"] == [
        {"file": "a.yaml", "line": 1, "column": 1, "name": "a", "kind": "deployment", "engine": "plain"}
    ]


def test_lines_of_findings_and_problems_are_kept() -> None:
    result = check_text(MISSED + "---\n" + GOOD + "nonsense: 1\n", "a.yaml", Settings())
    assert result.line_at(result.findings[0].place) == "  ttft: 1 ms"
    assert result.line_at(result.problems[0].place) == "nonsense: 1"
    assert result.line_at(Place("other.yaml", 1)) == ""


@pytest.mark.parametrize(
    ("error", "place"),
    [
        (SpecError("x", where="a.yaml:12:7"), Place("a.yaml", 12, 7)),
        (SpecError("x", where="a.yaml:12"), Place("a.yaml", 12)),
        (SpecError("x", where="c:/a b.yaml:12:7"), Place("c:/a b.yaml", 12, 7)),
        (SpecError("x", where="a:b"), Place("a:b")),
        (SpecError("x", where="other.yaml"), Place("other.yaml")),
        (SpecError("x"), Place("f.yaml")),
        (ValueError("x"), Place("f.yaml")),
    ],
)
def test_errors_keep_their_places(error: Exception, place: Place) -> None:
    assert Problem.of(error, "f.yaml").place == place


def test_an_error_is_not_changed_by_being_told() -> None:
    error = DomainError("x", got=1, where="a.yaml:1:2")
    assert Problem.of(error, "f").message == "x: got 1"
    assert str(error) == "a.yaml:1:2: x: got 1"
