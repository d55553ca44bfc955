"""A check as JUnit XML: valid by the schema, one case for each rule and file, counts that are true."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import xmlschema
from check_records import HOSTILE, finding, hostile_result, problem, result, service

from roofplan.checks.rules import all_rules
from roofplan.report.check_junit import to_junit

SCHEMA = xmlschema.XMLSchema(Path(__file__).parents[1] / "data" / "schemas" / "junit-10.xsd")
RULES = [rule.id for rule in all_rules()]


def valid(text: str) -> ET.Element:
    SCHEMA.validate(text)
    return ET.fromstring(text)


def tree(*findings: Any, **changes: Any) -> ET.Element:
    return valid(to_junit(result(*findings, **changes)))


def true_counts(element: ET.Element) -> None:
    for one in (element, *element.iter("testsuite")):
        assert one.attrib["tests"] == str(len(list(one.iter("testcase"))))
        assert one.attrib["failures"] == str(len(list(one.iter("failure"))))
        assert one.attrib["errors"] == str(len(list(one.iter("error"))))


def test_the_schema_refuses_what_is_no_report() -> None:
    text = to_junit(result(finding()))
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        SCHEMA.validate(text.replace("<testcase ", "<testcases ").replace("</testcase>", "</testcases>"))


def test_each_file_has_a_case_for_each_rule_and_names_come_once() -> None:
    found = tree(finding(), services=(service(), service("b", "b.yaml")), files=2)
    cases = Counter((case.attrib["classname"], case.attrib["name"]) for case in found.iter("testcase"))
    files = ("b.yaml", "deploy/llama.yaml")
    assert set(cases) == {(file, rule) for file in files for rule in RULES} | {("deploy/llama.yaml", "does-not-fit")}
    assert set(cases.values()) == {1}
    true_counts(found)


def test_findings_of_one_rule_and_file_share_a_case() -> None:
    found = tree(finding(), finding(line=4, message="Second."))
    (failure,) = found.iter("failure")
    assert failure.attrib == {"type": "error", "message": "31.2 GiB are short on each device. (and 1 other)"}
    assert failure.text is not None
    assert failure.text.splitlines() == [
        "deploy/llama.yaml:3:46: error: 31.2 GiB are short on each device.",
        "    fix: --max-model-len 16384",
        "deploy/llama.yaml:4:46: error: Second.",
        "    fix: --max-model-len 16384",
    ]


@pytest.mark.parametrize(("fail_on", "failures"), [("never", 0), ("error", 1), ("warning", 2)])
def test_what_does_not_fail_the_run_is_output_of_a_passed_case(fail_on: str, failures: int) -> None:
    found = tree(finding(), finding("missing-shm", "warning"), finding("tp-over-pcie", "note"), fail_on=fail_on)
    assert len(list(found.iter("failure"))) == failures
    assert len(list(found.iter("system-out"))) == 3 - failures
    true_counts(found)


def test_what_could_not_be_checked_is_an_error_of_its_file() -> None:
    found = tree(problems=(problem(), problem("second", line=9)))
    (error,) = found.iter("error")
    assert error.attrib["message"] == "malformed YAML (expected a key) (and 1 other)".replace(
        "malformed", "deploy/broken.yaml:2:1: malformed"
    )
    true_counts(found)


def test_rules_that_are_not_selected_have_no_cases() -> None:
    names = {case.attrib["name"] for case in tree(select=("does-not-fit",)).iter("testcase")}
    assert names <= {"does-not-fit"}


def test_thousands_of_files_keep_the_report_small() -> None:
    services = tuple(service(f"s{number}", f"{number}.yaml") for number in range(120_000 // max(1, len(RULES))))
    text = to_junit(result(finding(file="1.yaml"), services=services))
    assert len(text) < 10_000_000
    assert text.count("<testcase ") == 1


@pytest.mark.parametrize("kind", HOSTILE)
def test_foreign_text_stays_text(kind: str) -> None:
    found = valid(to_junit(hostile_result(HOSTILE[kind])))
    true_counts(found)
    for element in found.iter():
        assert element.tag in {"testsuites", "testsuite", "testcase", "failure", "error", "system-out"}
