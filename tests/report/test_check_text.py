"""A check as text: lines that editors follow, carets under what is meant, colour only where it is wanted."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest
from check_records import MANIFEST, finding, problem, result

from roofplan.report import check_text
from roofplan.report.check_text import print_text, to_text

LINE = MANIFEST.splitlines()[2]


def lines(*findings: object, **changes: object) -> list[str]:
    return to_text(result(*findings, **changes)).splitlines()  # type: ignore[arg-type]


def test_a_finding_is_a_line_of_a_compiler_its_source_a_caret_and_a_fix() -> None:
    column = LINE.index('"--max') + 1
    shown = lines(finding(column=column))
    assert shown[0] == f"deploy/llama.yaml:3:{column}: error: 31.2 GiB are short on each device. [does-not-fit]"
    assert shown[1] == f"     3 | {LINE}"
    assert shown[2] == " " * 6 + " | " + " " * (column - 1) + "^" * len('"--max-model-len"')
    assert shown[3] == "    fix: --max-model-len 16384"
    assert shown[-1] == "1 error in 1 service of 1 file."


def test_the_caret_counts_tabs_and_wide_letters_as_they_are_shown() -> None:
    tabs, wide = finding(line=4, column=4), finding(line=5, column=5)
    lines_of = {("deploy/llama.yaml", 4): "\t- --kv", ("deploy/llama.yaml", 5): '名前: "--tp" 2'}
    shown = to_text(replace(result(tabs), lines=lines_of)).splitlines()
    assert shown[1] == "     4 |     - --kv"
    assert shown[2] == " " * 6 + " |       ^^^^"
    shown = to_text(replace(result(wide), lines=lines_of)).splitlines()
    assert shown[2] == " " * 6 + " | " + " " * 6 + "^" * len('"--tp"')


def test_a_long_line_is_shown_around_its_place() -> None:
    long = {("deploy/llama.yaml", 1): "a" * 499 + "b" * 7 + " " + "c" * 500}
    source, caret = to_text(replace(result(finding(line=1, column=500)), lines=long)).splitlines()[1:3]
    assert len(source) < 200
    assert source.count("…") == 2
    assert source[caret.index("^") : caret.rindex("^") + 1] == "b" * 7


@pytest.mark.parametrize(("line", "column"), [(0, 0), (3, 0), (3, 10_000), (99, 1)])
def test_a_place_without_column_or_line_has_no_caret(line: int, column: int) -> None:
    shown = "\n".join(lines(finding(line=line, column=column)))
    assert "^" not in shown
    assert "31.2 GiB are short" in shown


def test_the_fix_of_the_rule_stands_in_for_one_of_the_finding() -> None:
    from roofplan.checks.rules import all_rules

    rule = next(rule for rule in all_rules() if rule.fix)
    assert f"    fix: {rule.fix}" in lines(finding(rule.id, fix=""))


def test_the_summary_counts_everything_and_hides_nothing() -> None:
    found = [finding(), finding("missing-shm", "warning"), finding("missing-shm", "warning", line=4)]
    changes = {"problems": (problem(),), "skipped": {"ConfigMap": 3, "Service": 12}, "files": 1200, "fixed": 1}
    shown = lines(*found, suppressed={"inline": 2, "baseline": 1}, **changes)
    assert shown[-5:] == [
        "1 error, 2 warnings in 1 service of 1,200 files.",
        "1 part could not be checked.",
        "Taken off: 1 by baseline, 2 by inline.",
        "1 finding of the baseline is no more.",
        "Passed over: 12 Service, 3 ConfigMap.",
    ]
    assert "deploy/broken.yaml:2:1: not checked: malformed YAML (expected a key)" in shown


def test_nothing_found_says_so_and_nothing_to_check_warns() -> None:
    assert lines() == ["No findings in 1 service of 1 file."]
    assert lines(services=())[0] == "warning: no deployment was found, so nothing was checked"


def test_colour_is_for_terminals_and_where_an_option_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    shown = {}
    for color in ("auto", "always", "never"):
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        print_text(result(finding(message="[red]not markup[/red]")), color)  # type: ignore[arg-type]
        shown[color] = sys.stdout.getvalue()  # type: ignore[attr-defined]
    assert shown["auto"] == shown["never"] == to_text(result(finding(message="[red]not markup[/red]")))
    assert "\x1b[1;31m" in shown["always"]
    assert "[red]not markup[/red]" in shown["always"]


def test_without_colour_the_library_for_it_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(check_text, "console", refuse)
    print_text(result(finding()), "never")
