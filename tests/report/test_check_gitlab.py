"""A check as a code quality report of GitLab."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from check_records import HOSTILE, finding, hostile_result, problem, result
from code_quality import CODE_QUALITY

from roofplan.report.check_gitlab import to_gitlab


def valid(text: str) -> list[dict[str, Any]]:
    issues = json.loads(text)
    jsonschema.validate(issues, CODE_QUALITY)
    marks = [issue["fingerprint"] for issue in issues]
    assert len(set(marks)) == len(marks)
    return list(issues)


def issues_of(*findings: Any, **changes: Any) -> list[dict[str, Any]]:
    return valid(to_gitlab(result(*findings, **changes)))


def test_findings_and_problems_are_issues() -> None:
    first, second, third = issues_of(finding(), finding("missing-shm", "warning"), problems=(problem(line=0),))
    assert first["check_name"] == "does-not-fit"
    assert first["description"] == "31.2 GiB are short on each device. --max-model-len 16384"
    assert first["location"] == {"path": "deploy/llama.yaml", "lines": {"begin": 3}}
    assert [one["severity"] for one in (first, second, third)] == ["critical", "minor", "blocker"]
    assert third["location"] == {"path": "deploy/broken.yaml", "lines": {"begin": 1}}


def test_nothing_found_is_an_empty_list() -> None:
    assert to_gitlab(result()) == "[]\n"


def test_equal_findings_and_equal_problems_keep_apart() -> None:
    assert len(issues_of(*[finding()] * 3, problems=(problem(), problem(line=7)))) == 5


def test_marks_do_not_move_with_lines() -> None:
    (before,), (after,) = issues_of(finding()), issues_of(finding(line=20))
    assert before["fingerprint"] == after["fingerprint"]


def test_files_are_named_from_the_root_of_the_project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path))
    assert issues_of(finding(file="./a.yaml"))[0]["location"]["path"] == "sub/a.yaml"


@pytest.mark.parametrize("kind", HOSTILE)
def test_foreign_text_stays_text(kind: str) -> None:
    for issue in valid(to_gitlab(hostile_result(HOSTILE[kind]))):
        assert issue["description"].isprintable()
        assert issue["location"]["path"].isprintable()
