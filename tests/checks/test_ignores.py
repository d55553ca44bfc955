"""Comments that accept findings: where they hold, and that those without effect are said."""

from __future__ import annotations

import pytest

from roofplan.checks.ignores import read_ignores
from roofplan.checks.result import CheckResult
from roofplan.checks.run import check_text
from roofplan.checks.settings import Settings

HEAD = "schema: roofplan/deployment/v1\nmodel: llama-3.1-8b\nhardware: h100-sxm\nlimits:\n"
SCRIPT = "# roofplan: ignore[unknown-flag] ours\nvllm serve meta-llama/Llama-3.1-8B-Instruct \\\n  --max-model-len 4096 \\\n  --no-such 1\n"


def checked(text: str, name: str = "a.yaml", **settings: object) -> CheckResult:
    return check_text(text, name, Settings(**settings))  # type: ignore[arg-type]


def rules(result: CheckResult) -> list[tuple[str, int]]:
    return [(finding.rule, finding.place.line) for finding in result.findings]


def test_without_a_comment_the_limit_is_missed() -> None:
    assert rules(checked(HEAD + "  ttft: 1 ms\n")) == [("ttft-limit-missed", 5)]


@pytest.mark.parametrize(
    "text",
    [
        "  ttft: 1 ms  # roofplan: ignore[ttft-limit-missed] known\n",
        "  ttft: 1 ms  #roofplan:ignore[ ttft-limit-missed , tpot-limit-missed]\n  tpot: 1 us\n",
        "  # roofplan: ignore[ttft-limit-missed]\n  ttft: 1 ms\n",
        "  # Roofplan: Ignore[TTFT-limit-missed] why\n\n  # another word\n  ttft: 1 ms\n",
    ],
)
def test_a_comment_accepts_a_finding_of_its_line_or_of_the_next(text: str) -> None:
    result = checked(HEAD + text, ignore=("tpot-limit-missed",))
    assert rules(result) == []
    assert result.suppressed["inline"] == 1
    assert result.exit_code == 0


@pytest.mark.parametrize(
    "text",
    [
        "  # roofplan: ignore[ttft-limit-missed]\n  fits: true\n  ttft: 1 ms\n",
        "  fits: true  # roofplan: ignore[ttft-limit-missed]\n  ttft: 1 ms\n",
    ],
)
def test_it_holds_for_no_other_line_and_says_that_it_has_no_effect(text: str) -> None:
    found = rules(checked(HEAD + text))
    assert ("ttft-limit-missed", 7 if text.startswith("  #") else 6) in found
    assert ("unused-ignore", 5) in found


def test_a_comment_accepts_nothing_of_another_rule() -> None:
    text = HEAD + "  ttft: 1 ms  # roofplan: ignore[tpot-limit-missed]\n"
    assert rules(checked(text)) == [("ttft-limit-missed", 5), ("unused-ignore", 5)]


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("ignore[ttft-limit-mised]", "there is no rule 'ttft-limit-mised'; did you mean ttft-limit-missed?"),
        ("ignore[]", "the comment names no rule, so it accepts nothing: write ignore[RULE]"),
        ("ignore all", "the comment names no rule, so it accepts nothing: write ignore[RULE]"),
    ],
)
def test_an_unknown_rule_is_a_note(comment: str, said: str) -> None:
    result = checked(HEAD + f"  fits: true  # roofplan: {comment}\n")
    assert [(finding.rule, finding.severity, finding.message) for finding in result.findings] == [
        ("unknown-ignore", "note", said)
    ]
    assert result.findings[0].place.column == 15
    assert result.exit_code == 0


def test_a_rule_that_does_not_run_is_not_unused() -> None:
    text = HEAD + "  fits: true  # roofplan: ignore[ttft-limit-missed]\n"
    assert rules(checked(text, ignore=("ttft-limit-missed",))) == []
    assert rules(checked(text, select=("does-not-fit",))) == []
    assert rules(checked(text, ignore=("unused-ignore",))) == []


def test_what_could_not_be_checked_says_nothing_of_comments() -> None:
    text = "schema: roofplan/deployment/v1\nmodel: llama-3.1-8b\nhardware: h100-sxm\nprompt: x  # roofplan: ignore[ttft-limit-missed]\n"
    assert rules(checked(text, select=("unused-ignore",))) == []


def test_above_a_command_it_holds_for_all_of_its_lines() -> None:
    ignores = read_ignores(SCRIPT, "a.sh")
    assert [(ignore.rule, ignore.first, ignore.last) for ignore in ignores] == [("unknown-flag", 2, 4)]


def test_above_a_block_of_text_it_holds_for_all_of_it() -> None:
    text = "args:\n  # roofplan: ignore[unknown-flag]\n  - |\n    vllm serve x\n      --no-such\n\n  - other\n"
    assert [(ignore.first, ignore.last) for ignore in read_ignores(text, "a.yaml")] == [(3, 6)]


@pytest.mark.parametrize(
    "text", ["# roofplan: ignore[missing-shm]", "# roofplan: ignore[missing-shm]\n\n\n", "# roofplan: ignore[a\n"]
)
def test_a_comment_at_the_end_of_a_file_is_no_fault(text: str) -> None:
    assert len(read_ignores(text, "a.yaml")) == 1


def test_lines_end_as_on_other_systems() -> None:
    assert [ignore.last for ignore in read_ignores(SCRIPT.replace("\n", "\r\n"), "a.sh")] == [4]


def test_long_lines_take_no_time() -> None:
    assert read_ignores("# roofplan:" + " " * 1_000_000 + "ignore[x]\n" + "#" * 1_000_000, "a.yaml") == []
