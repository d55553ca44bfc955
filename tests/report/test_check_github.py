"""A check as annotations: read back as the runner of a job reads them, at most ten of each kind, and the summary of a step."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from check_records import HOSTILE, finding, hostile_result, problem, result

from roofplan.report.check_github import to_github, write_step_summary

MIB = 1024 * 1024


class Command(NamedTuple):
    kind: str
    properties: dict[str, str]
    message: str


def unescaped(text: str, marks: dict[str, str]) -> str:
    for escape, mark in marks.items():
        text = text.replace(escape, mark)
    return text


DATA = {"%0D": "\r", "%0A": "\n", "%25": "%"}  # in the order of the runner: the per cent sign last
PROPERTY = {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ",", "%25": "%"}


def read(line: str) -> Command | None:
    """A line of a log as actions/runner reads it: src/Runner.Common/ActionCommand.cs, TryParseV2."""
    line = line.lstrip()
    end = line.find("::", 2)
    if not line.startswith("::") or end < 0:
        return None
    kind, _, rest = line[2:end].partition(" ")
    pairs = (part.split("=", 1) for part in rest.strip().split(",") if "=" in part)
    return Command(kind, {name: unescaped(value, PROPERTY) for name, value in pairs}, unescaped(line[end + 2 :], DATA))


def commands(text: str) -> list[Command]:
    return [command for line in text.split("\n") if (command := read(line)) is not None]


def test_a_finding_is_an_annotation_at_its_place() -> None:
    (command,) = commands(to_github(result(finding())))
    assert command.kind == "error"
    assert command.properties == {"file": "deploy/llama.yaml", "line": "3", "col": "46", "title": "does-not-fit"}
    assert command.message == "31.2 GiB are short on each device.\nfix: --max-model-len 16384"


def test_kinds_are_those_of_the_severities_and_the_worst_stand_first() -> None:
    found = [finding("a", "note"), finding("b", "warning"), finding("c", "error")]
    shown = commands(to_github(result(*found, problems=(problem(),))))
    assert [command.kind for command in shown] == ["error", "error", "warning", "notice"]
    assert shown[0].properties["title"] == "could-not-be-checked"


def test_at_most_ten_of_each_kind_then_a_summary() -> None:
    found = [finding(severity=kind, line=line) for kind in ("error", "warning", "note") for line in range(1, 15)]
    text = to_github(result(*found[:39], files=14))
    shown = commands(text)
    assert {kind: sum(one.kind == kind for one in shown) for kind in ("error", "warning", "notice")} == dict.fromkeys(
        ("error", "warning", "notice"), 10
    )
    assert (
        "roofplan: 4 more errors, 4 more warnings, 1 more note without an annotation: see the summary of this step.\n"
        in text
    )
    assert text.endswith("roofplan: 14 errors, 14 warnings, 11 notes in 1 service of 14 files.\n")


def test_what_stands_on_standard_input_has_no_file() -> None:
    (command,) = commands(to_github(result(finding(file="<stdin>", line=0, column=0))))
    assert command.properties == {"title": "does-not-fit"}


def test_files_are_named_from_the_root_of_the_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    named = {
        name: commands(to_github(result(finding(file=name))))[0].properties["file"]
        for name in ("a.yaml", "../b.yaml", "/etc/c.yaml")
    }
    assert named == {"a.yaml": "sub/a.yaml", "../b.yaml": "b.yaml", "/etc/c.yaml": "/etc/c.yaml"}
    monkeypatch.setenv("GITHUB_WORKSPACE", "/somewhere/else")
    assert commands(to_github(result(finding(file="./a.yaml"))))[0].properties["file"] == "a.yaml"


@pytest.mark.parametrize("kind", HOSTILE)
def test_foreign_text_gives_no_commands_and_no_properties_of_its_own(kind: str) -> None:
    text = to_github(hostile_result(HOSTILE[kind]))
    shown = commands(text)
    assert [command.kind for command in shown] == ["error", "error", "warning", "notice"]
    for command in shown:
        assert set(command.properties) <= {"file", "line", "col", "title"}
        assert command.properties["line"] in {"2", "3"}
    assert "##[" not in text
    assert "##vso[" not in text
    assert len(text.splitlines()) == 4 + 4


def test_texts_come_back_as_they_were() -> None:
    mean = "50 % of it: a,b::c %0A %25"
    command = commands(to_github(result(finding(mean, message=mean, file=mean, fix=""))))[0]
    assert (command.message, command.properties["file"], command.properties["title"]) == (mean, mean, mean)


# ------------------------------------------------------------------------------------------------ the step summary


def test_the_summary_of_the_step_is_appended_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    write_step_summary(result(finding()))
    before, heading = file.read_text().splitlines()[:2]
    assert (before, heading) == ("before", "### roofplan check: failed")


def test_the_summary_keeps_within_what_github_takes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    many = result(*(finding(line=line, message="é" * 900) for line in range(1, 1500)))
    write_step_summary(many)
    first = file.stat().st_size
    assert MIB - 5_000 < first < MIB
    assert "left out for want of room" in file.read_text().splitlines()[-2]
    write_step_summary(many)
    assert file.stat().st_size < MIB


@pytest.mark.parametrize("path", ["", "/nowhere/at/all/summary.md", "/dev/null/x", "a\0b"])
def test_a_summary_that_cannot_be_written_is_no_reason_to_fail(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.environ", {"GITHUB_STEP_SUMMARY": path})
    write_step_summary(result(finding()))
    said = capsys.readouterr()
    assert said.out == ""
    assert bool(said.err) is bool(path)
    assert said.err.count("\n") <= 1
