"""What a text is taken for, and marks of findings that stay when files move within themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofplan.checks.files import has_cue, is_yaml
from roofplan.checks.finding import Finding
from roofplan.checks.fingerprints import fingerprints, relative_file, subject_of
from roofplan.checks.record import Expectation, Flag, Place, Pod, Said, Service


@pytest.mark.parametrize(
    ("name", "text", "yaml"),
    [
        ("a.yaml", "vllm serve x\n", True),
        ("a.json", "", True),
        ("a.sh", "model: x\n", False),
        ("deploy/Makefile", "serve:\n\tvllm serve x\n", False),
        ("<stdin>", "# today\n\nmodel: llama\n", True),
        ("<stdin>", "---\n", True),
        ("<stdin>", '{"a": 1}', True),
        ("<stdin>", '["vllm", "serve"]', True),
        ("<stdin>", "- a\n", True),
        ("<stdin>", "apiVersion: v1\n", True),
        ("<stdin>", "#!/bin/sh\nmodel: x\n", False),
        ("<stdin>", "vllm serve x --port 8000\n", False),
        ("<stdin>", "export A=b:c\n", False),
        ("<stdin>", "", False),
        ("serve", "exec vllm serve x\n", False),
    ],
)
def test_yaml_is_told_by_its_name_or_its_first_line(name: str, text: str, yaml: bool) -> None:
    assert is_yaml(name, text) is yaml


def test_files_of_others_have_no_cue() -> None:
    assert not has_cue("name: build\non: push\n")
    for text in (
        "vllm",
        "VLLM_PORT",
        "lmsysorg/sglang",
        "llama-server",
        "trtllm-serve",
        "kind: InferenceService",
        "roofplan",
    ):
        assert has_cue(text)


def found(line: int = 1, **changes: str) -> Finding:
    said = {"rule": "a", "file": "x.yaml", "service": "chat", "subject": "tp", **changes}
    return Finding(
        said["rule"],
        "error",
        Place(said["file"], line),
        said.get("message", ""),
        said["service"],
        subject=said["subject"],
    )


def test_a_mark_stays_when_lines_and_words_change() -> None:
    assert (
        fingerprints([found(1)]) == fingerprints([found(99, message="other")]) == fingerprints([found(file="./x.yaml")])
    )


@pytest.mark.parametrize("change", [{"rule": "b"}, {"file": "y.yaml"}, {"service": "other"}, {"subject": "pp"}])
def test_a_mark_changes_with_what_the_finding_is(change: dict[str, str]) -> None:
    assert fingerprints([found()]) != fingerprints([found(**change)])


def test_marks_of_one_run_are_all_different() -> None:
    marks = fingerprints([found(1), found(2), found(3, rule="b"), found(4)])
    assert len(set(marks)) == 4
    assert marks[:1] == fingerprints([found(7)])
    assert all(len(mark) == 32 and mark.isalnum() for mark in marks)


def test_files_are_named_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative_file.cache_clear()
    assert relative_file(str(tmp_path / "a" / "b.yaml")) == "a/b.yaml"
    assert relative_file("../b.yaml") == "../b.yaml"
    assert relative_file("<stdin>") == "<stdin>"
    relative_file.cache_clear()


def test_the_subject_is_the_setting_at_the_place() -> None:
    def at(line: int) -> Said[int]:
        return Said(1, Place("a", line, 1))

    service = Service(
        kind="command",
        name="chat",
        place=Place("a", 1, 1),
        engine=Said("vllm", Place("a", 2, 1)),
        options={"tp": at(3), "model": Said("x", Place("a", 1, 1))},
        features={"prefix_caching": at(4)},
        limits={"ttft": at(5)},
        flags=(Flag("--tensor-parallel-size", at(3)), Flag("--no-such", at(6))),
        pod=Pod(gpus=at(7)),
        expectations=(Expectation("claim", Said("45 tok/s", Place("a", 8, 1))),),
    )
    named = [subject_of(service, Place("a", line, 1)) for line in range(1, 10)]
    assert named == ["", "engine", "tp", "prefix_caching", "ttft", "--no-such", "gpus", "claim 45 tok/s", ""]
