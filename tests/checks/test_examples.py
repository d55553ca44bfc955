"""The deployments of examples/: each gives the findings that were written down for it, in every output, and so does the whole folder."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import xmlschema
import yaml
from code_quality import CODE_QUALITY
from console import run

from roofplan.checks import settings
from roofplan.checks.run import check_paths
from roofplan.report.check_outputs import FORMATS, rendered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roofplan.checks.result import CheckResult

FOLDER = Path(__file__).parents[2] / "examples" / "deployments"
SCHEMAS = Path(__file__).parents[1] / "data" / "schemas"
EXPECTED: dict[str, list[dict[str, Any]]] = yaml.safe_load((FOLDER / "expected.yaml").read_text())
FILES = sorted(EXPECTED)
# Flags and settings that a script beside them names, without a model.
PARTS_OF_OTHERS = {"scripts/with-wrong-config.yaml", "scripts/trtllm-settings.yaml"}
DEPLOYMENTS = [name for name in FILES if name not in PARTS_OF_OTHERS]
BROKEN = [name for name in DEPLOYMENTS if re.search(r"^# Broken", (FOLDER / name).read_text(), re.MULTILINE)]
SARIF = jsonschema.Draft4Validator(json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text()))
JUNIT = xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")


@pytest.fixture(autouse=True)
def in_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def checked(name: str) -> CheckResult:
    return check_paths([name], settings.load())


def wanted(name: str) -> Counter[tuple[str, int, str]]:
    return Counter((one.get("file", name), one["line"], one["rule"]) for one in EXPECTED[name])


def found(result: CheckResult) -> Counter[tuple[str, int, str]]:
    return Counter((finding.place.file, finding.place.line, finding.rule) for finding in result.findings)


def test_every_file_has_its_findings_written_down() -> None:
    there = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert there - {"README.md", "expected.yaml", ".roofplan.toml"} == set(EXPECTED)


def test_there_are_enough_of_every_kind() -> None:
    services = [service for name in FILES for service in checked(name).services]
    assert len(DEPLOYMENTS) >= 30
    assert len(BROKEN) >= 15
    kinds = {service.kind for service in services}
    assert kinds >= {"deployment", "command", "compose", "kubernetes", "kserve", "ray", "production-stack"}
    engines = {str(service.engine.value).partition("@")[0] for service in services}
    assert engines >= {"vllm", "sglang", "llama.cpp", "tensorrt-llm"}


@pytest.mark.parametrize("name", FILES)
def test_findings_are_those_that_were_written_down(name: str) -> None:
    result = checked(name)
    assert not result.problems
    assert found(result) == wanted(name)
    assert bool(result.services) == (name not in PARTS_OF_OTHERS)


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_so_in_one_way(name: str) -> None:
    assert len(EXPECTED[name]) == 1


@pytest.mark.parametrize("name", sorted(set(DEPLOYMENTS) - set(BROKEN)))
def test_what_is_not_broken_has_notes_at_most(name: str) -> None:
    assert {finding.severity for finding in checked(name).findings} <= {"note"}


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("name", FILES)
def test_every_output_has_the_findings_and_is_valid(name: str, output_format: str) -> None:
    result = checked(name)
    text = rendered(result, output_format)
    assert text == rendered(result, output_format)
    assert text.endswith("\n")
    assert all(line.isprintable() for line in text.split("\n"))
    shown = Counter(FINDINGS_OF[output_format](text))
    assert shown == Counter(rule for _, _, rule in wanted(name).elements())


def _of_text(text: str) -> Iterator[str]:
    yield from re.findall(r"^\S+:\d+:\d+: (?:error|warning|note): .* \[([a-z0-9-]+)\]$", text, re.MULTILINE)


def _of_json(text: str) -> Iterator[str]:
    content = json.loads(text)
    assert content["schema"] == "roofplan/result/v1"
    assert content["command"] == "check"
    for finding in content["result"]["findings"]:
        assert {"rule", "severity", "file", "line", "column", "message"} <= finding.keys()
        yield finding["rule"]


def _of_github(text: str) -> Iterator[str]:
    yield from re.findall(r"^::(?:error|warning|notice) [^\n]*title=([a-z0-9-]+)", text, re.MULTILINE)


def _of_sarif(text: str) -> Iterator[str]:
    content = json.loads(text)
    SARIF.validate(content)
    for result in content["runs"][0]["results"]:
        assert result["partialFingerprints"]
        yield result["ruleId"]


def _of_junit(text: str) -> Iterator[str]:
    JUNIT.validate(text)
    for case in ET.fromstring(text).iter("testcase"):
        yield from (case.attrib["name"].split()[0] for _ in case.iter("failure"))
        yield from (case.attrib["name"].split()[0] for _ in case.iter("system-out"))


def _of_gitlab(text: str) -> Iterator[str]:
    issues = json.loads(text)
    jsonschema.validate(issues, CODE_QUALITY)
    yield from (issue["check_name"] for issue in issues)


def _of_markdown(text: str) -> Iterator[str]:
    yield from re.findall(r"^\| (?:error|warning|note) \| ([a-z0-9-]+) \|", text, re.MULTILINE)


FINDINGS_OF = {
    "text": _of_text,
    "json": _of_json,
    "github": _of_github,
    "sarif": _of_sarif,
    "junit": _of_junit,
    "gitlab": _of_gitlab,
    "markdown": _of_markdown,
}


@pytest.mark.parametrize("output_format", ["json", "text"])
def test_the_whole_folder_through_the_command(output_format: str) -> None:
    done = run("check", ".", "--format", output_format, cwd=FOLDER)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    if output_format == "json":
        rows = json.loads(done.stdout)["result"]["findings"]
        shown = Counter((Path(row["file"]).as_posix(), row["line"], row["rule"]) for row in rows)
        assert shown == sum((wanted(name) for name in DEPLOYMENTS), Counter())
    else:
        assert Counter(_of_text(done.stdout)) == Counter(one["rule"] for name in DEPLOYMENTS for one in EXPECTED[name])


def test_what_is_clean_passes_and_what_is_not_fails() -> None:
    assert run("check", "kubernetes/chat-8b.yaml", cwd=FOLDER).returncode == 0
    assert run("check", "kubernetes/three-ranks.yaml", cwd=FOLDER).returncode == 1
    assert run("check", "kubernetes/three-ranks.yaml", "--exit-zero", cwd=FOLDER).returncode == 0
    assert run("check", "compose/small-shared-memory.yaml", cwd=FOLDER).returncode == 0  # a warning
    assert run("check", "compose/small-shared-memory.yaml", "--fail-on", "warning", cwd=FOLDER).returncode == 1
