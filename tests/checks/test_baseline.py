"""Findings that are known: written, read, matched without lines, and refused where the file is something else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from roofplan.checks.baseline import SCHEMA, read_baseline, write_baseline
from roofplan.checks.finding import Finding
from roofplan.checks.record import Place
from roofplan.checks.run import check_paths, made_known
from roofplan.checks.settings import Settings
from roofplan.errors import SpecError

TEXT = "schema: roofplan/deployment/v1\nname: chat\nmodel: llama-3.1-8b\nhardware: h100-sxm\nlimits:\n  ttft: 1 ms\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(TEXT)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_what_is_known_is_taken_off_wherever_it_stands() -> None:
    settings = Settings(baseline="known.json")
    result = made_known(check_paths(["a.yaml"], settings, use_baseline=False))
    assert (result.findings, result.suppressed["baseline"], result.exit_code) == ((), 1, 0)
    entry = {"rule": "ttft-limit-missed", "file": "a.yaml", "service": "chat", "subject": "ttft"}
    assert json.loads(Path("known.json").read_text()) == {"schema": SCHEMA, "findings": [entry]}
    Path("a.yaml").write_text("# another line\n" + TEXT.replace("1 ms", "2 ms"))
    moved = check_paths(["./a.yaml"], settings)
    assert (moved.findings, moved.fixed) == ((), 0)


@pytest.mark.usefixtures("folder")
def test_what_is_new_is_left_and_what_is_gone_is_counted() -> None:
    settings = Settings(baseline="known.json")
    made_known(check_paths(["a.yaml"], settings, use_baseline=False))
    Path("a.yaml").write_text(TEXT.replace("ttft: 1 ms", "tpot: 1 us"))
    result = check_paths(["a.yaml"], settings)
    assert [finding.rule for finding in result.findings] == ["tpot-limit-missed"]
    assert (result.fixed, result.suppressed["baseline"], result.exit_code) == (1, 0, 1)


def finding(line: int, rule: str = "unknown-flag") -> Finding:
    return Finding(rule, "error", Place("a.sh", line), "", "chat", subject="--x")


@pytest.mark.usefixtures("folder")
def test_each_is_known_as_often_as_it_was_found() -> None:
    assert write_baseline("known.json", [finding(1), finding(2), finding(3, "missing-shm")]) == 3
    known = read_baseline("known.json")
    assert sorted(known.items()) == [
        (("missing-shm", "a.sh", "chat", "--x"), 1),
        (("unknown-flag", "a.sh", "chat", "--x"), 2),
    ]


@pytest.mark.usefixtures("folder")
def test_names_that_are_no_unicode_are_known_too() -> None:
    name = os.fsdecode(b"\xff.yaml")
    Path(name).write_text(TEXT.replace("name: chat\n", ""))
    settings = Settings(baseline="known.json")
    made_known(check_paths(["."], settings, use_baseline=False))
    assert check_paths(["."], settings).findings == ()


@pytest.mark.usefixtures("folder")
def test_the_same_findings_give_the_same_file() -> None:
    write_baseline("one.json", [finding(1), finding(2, "missing-shm")])
    write_baseline("two.json", [finding(9, "missing-shm"), finding(7)])
    assert Path("one.json").read_bytes() == Path("two.json").read_bytes()


@pytest.mark.usefixtures("folder")
def test_an_older_baseline_is_replaced_and_another_file_is_not() -> None:
    write_baseline("known.json", [finding(1)])
    write_baseline("known.json", [])
    assert read_baseline("known.json").total() == 0
    with pytest.raises(SpecError, match=r"--force replaces it|malformed JSON"):
        write_baseline("a.yaml", [])
    assert Path("a.yaml").read_text() == TEXT
    write_baseline("a.yaml", [], force=True)
    assert read_baseline("a.yaml").total() == 0


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "b.json:1:2: malformed JSON"),
        ("[]", f"b.json:1:1: baseline: got another file, want schema: {SCHEMA}"),
        ('{"schema": "roofplan/baseline/v2", "findings": []}', "got another file"),
        (f'{{"schema": "{SCHEMA}"}}', "got another file"),
        (f'{{"schema": "{SCHEMA}", "findings": [1]}}', "b.json:1:49: findings.0: got something else"),
        (f'{{"schema": "{SCHEMA}", "findings": [{{"file": "a"}}]}}', "findings.0: got something else"),
        (f'{{"schema": "{SCHEMA}", "findings": [{{"rule": 1}}]}}', "findings.0: got something else"),
        (f'{{"schema": "{SCHEMA}", "findings": [{{"rule": "a", "count": 0}}]}}', "findings.0.count: got 0"),
        (f'{{"schema": "{SCHEMA}", "findings": [{{"rule": "a", "count": true}}]}}', "findings.0.count: got True"),
    ],
)
def test_what_is_no_baseline_is_refused(text: str, said: str) -> None:
    Path("b.json").write_text(text)
    with pytest.raises(SpecError) as caught:
        check_paths(["a.yaml"], Settings(baseline="b.json"))
    assert said in str(caught.value)


@pytest.mark.usefixtures("folder")
def test_a_baseline_that_is_not_there_is_refused() -> None:
    with pytest.raises(SpecError, match=r"none\.json: file: got no such file"):
        check_paths(["a.yaml"], Settings(baseline="none.json"))
