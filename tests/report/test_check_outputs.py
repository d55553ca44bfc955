"""Every output of a check: whatever text people write, it comes out as text, the same each time, and never as an error of ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import xmlschema
from check_records import HOSTILE, finding, hostile_result, problem, result, service
from code_quality import CODE_QUALITY
from hypothesis import given, settings
from hypothesis import strategies as st

from roofplan.checks.diff import diff
from roofplan.report.check_outputs import FORMATS, print_check, rendered

SCHEMAS = Path(__file__).parents[1] / "data" / "schemas"
SARIF = jsonschema.Draft4Validator(json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text()))
JUNIT = xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")
ANY_TEXT = st.text(
    alphabet=st.characters(exclude_categories=()) | st.sampled_from("\x1b\x9b\u202e\n\r:%|<>$[]#`@&\"'"), max_size=80
)


def check_form(output_format: str, text: str) -> None:
    """What the readers of each format need of any text."""
    text.encode("utf-8")
    assert text.endswith("\n")
    assert all(line.isprintable() for line in text.split("\n"))
    if output_format in {"json", "sarif", "gitlab"}:
        content = json.loads(text)
        if output_format == "sarif":
            SARIF.validate(content)
        elif output_format == "gitlab":
            jsonschema.validate(content, CODE_QUALITY)
        else:
            assert content["schema"] == "roofplan/result/v1"
    elif output_format == "junit":
        JUNIT.validate(ET.fromstring(text))
    else:
        lines = [line.lstrip() for line in text.split("\n")]
        commands = [line for line in lines if line.startswith("::")]
        assert len(commands) == (4 if output_format == "github" else 0)
        assert "##[" not in text
        assert "##vso[" not in text


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_names_come_out_as_text(kind: str, output_format: Any) -> None:
    checked = hostile_result(HOSTILE[kind])
    other = result(services=(service(HOSTILE[kind], HOSTILE[kind], kv="fp8"),))
    for text in (rendered(checked, output_format), rendered(checked, output_format, diff(other, checked))):
        check_form(output_format, text)


@pytest.mark.parametrize("output_format", FORMATS)
@given(text=ANY_TEXT)
@settings(max_examples=60)
def test_any_text_comes_out_as_text(output_format: Any, text: str) -> None:
    check_form(output_format, rendered(hostile_result(text), output_format))


@pytest.mark.parametrize("output_format", FORMATS)
def test_the_same_result_has_the_same_text_in_any_terminal(output_format: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = result(finding(), finding("missing-shm", "warning"), problems=(problem(),))
    first = rendered(checked, output_format)
    for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.setenv(name, "1")
    assert rendered(checked, output_format) == first


@pytest.mark.parametrize("output_format", FORMATS)
def test_an_empty_check_has_every_form(output_format: Any) -> None:
    text = rendered(result(services=(), files=0), output_format)
    if output_format not in {"github", "text"}:
        check_form(output_format, text)
    assert text


@pytest.mark.parametrize("output_format", FORMATS)
def test_what_is_printed_is_what_is_written(
    output_format: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    checked = result(finding())
    print_check(checked, output_format)
    said = capsys.readouterr()
    assert (said.out, said.err) == (rendered(checked, output_format), "")


def test_only_annotations_write_the_summary_of_a_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    for output_format in FORMATS:
        if output_format != "github":
            print_check(result(finding()), output_format)
    assert not file.exists()
    print_check(result(finding()), "github", diff=diff(result(), result(services=(service(kv="fp8"),))))
    assert "### What this change does" in file.read_text()


def test_a_module_of_one_format_loads_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {f"roofplan.report.check_{name}" for name in FORMATS} - {"roofplan.report.check_gitlab"}
    for name in others | {"roofplan.report.check_gitlab"}:
        monkeypatch.delitem(sys.modules, name, raising=False)
    rendered(result(finding()), "gitlab")
    assert not others & set(sys.modules)
