"""A check as SARIF: valid by the schema, within what GitHub takes, with identities that last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest
from check_records import HOSTILE, finding, hostile_result, problem, result

import roofplan
from roofplan.checks.rules import all_rules
from roofplan.report.check_sarif import to_sarif

SCHEMA = json.loads((Path(__file__).parents[1] / "data" / "schemas" / "sarif-2.1.0-rtm.5.json").read_text())
VALIDATOR = jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def run_of(*findings: Any, **changes: Any) -> dict[str, Any]:
    return valid(to_sarif(result(*findings, **changes)))


def valid(text: str) -> dict[str, Any]:
    log = json.loads(text)
    assert [error.message for error in VALIDATOR.iter_errors(log)] == []
    (run,) = log["runs"]
    return dict(run)


def test_the_schema_refuses_what_is_no_sarif() -> None:
    log = json.loads(to_sarif(result(finding())))
    log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] = 0
    assert list(VALIDATOR.iter_errors(log))


def test_an_empty_run_is_valid_and_lists_every_rule_with_help() -> None:
    run = run_of()
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("roofplan", roofplan.__version__)
    assert run["results"] == []
    assert [rule["id"] for rule in driver["rules"]] == [rule.id for rule in all_rules()]
    for rule in driver["rules"]:
        assert rule["help"]["text"]
        assert f"roofplan check --explain {rule['id']}" in rule["help"]["markdown"]
        assert rule["name"].isalnum()
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 0, "toolExecutionNotifications": []}]


def test_a_result_has_its_rule_place_message_and_figures() -> None:
    run = run_of(finding(figures={"short_bytes": 33.5e9}), finding("unused-ignore", "note"))
    first, second = run["results"]
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[one["ruleIndex"]]["id"] == one["ruleId"] for one in (first, second))
    assert (first["ruleId"], first["level"]) == ("does-not-fit", "error")
    assert first["message"]["text"] == "31.2 GiB are short on each device. Fix: --max-model-len 16384"
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "deploy/llama.yaml"},
        "region": {"startLine": 3, "startColumn": 46},
    }
    assert first["properties"] == {"figures": {"short_bytes": 33.5e9}}
    assert run["columnKind"] == "unicodeCodePoints"


def test_what_could_not_be_checked_is_a_notification_and_no_success() -> None:
    (invocation,) = run_of(problems=(problem(),))["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["exitCode"] == 2
    (told,) = invocation["toolExecutionNotifications"]
    assert told["message"]["text"] == "malformed YAML (expected a key)"
    assert told["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "deploy/broken.yaml"


def test_identities_last_when_lines_and_figures_move_and_differ_otherwise() -> None:
    def marks(*findings: Any) -> list[str]:
        return [one["partialFingerprints"]["roofplan/v1"] for one in run_of(*findings)["results"]]

    subject = {"subject": "max_model_len"}
    assert marks(finding(**subject)) == marks(finding(line=99, column=1, message="Now 40 GiB are short.", **subject))
    others = [finding(), finding(**subject), finding(file="b.yaml"), finding(service="other"), finding("missing-shm")]
    assert len({mark for other in others for mark in marks(other)}) == len(others)
    assert len(set(marks(finding(), finding(line=9), finding(line=12)))) == 3


def test_the_fingerprint_that_github_computes_itself_is_left_to_it() -> None:
    assert set(run_of(finding())["results"][0]["partialFingerprints"]) == {"roofplan/v1"}


def test_addresses_are_relative_and_encoded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))

    def uri(file: str) -> str:
        place = run_of(finding(file=file))["results"][0]["locations"][0]["physicalLocation"]
        return str(place["artifactLocation"]["uri"])

    assert uri("./a b.yaml") == "sub/a%20b.yaml"
    assert uri("http://x") == "sub/http%3A/x"
    assert uri("../c#?.yaml") == "c%23%3F.yaml"
    assert uri("<stdin>") == "%3Cstdin%3E"
    assert uri("/etc/x y.yaml") == "file:///etc/x%20y.yaml"
    assert unquote(uri("模型.yaml")) == "sub/模型.yaml"


def test_no_more_results_than_github_takes_and_the_worst_of_them() -> None:
    many = [finding("note-of-a-kind", "note", line=line) for line in range(1, 25_002)]
    run = run_of(*many, finding())
    assert len(run["results"]) == 25_000
    assert run["results"][0]["level"] == "error"
    assert run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"] == "2 more findings left out"


@pytest.mark.parametrize("kind", HOSTILE)
def test_foreign_text_stays_text(kind: str) -> None:
    run = valid(to_sarif(hostile_result(HOSTILE[kind])))
    assert len(run["results"]) == 3
    for one in run["results"]:
        assert "](" not in one["message"]["text"]
        assert one["message"]["text"].isprintable()
