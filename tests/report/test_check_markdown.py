"""A check as Markdown: read by a parser of it, nothing that people write becomes markup."""

from __future__ import annotations

import re
from typing import Any

import pytest
from check_records import HOSTILE, finding, hostile_result, problem, result
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from roofplan.report.check_markdown import marked, to_markdown

PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
OWN_HTML = {"<br>", "<!-- -->"}


def tokens(text: str) -> list[Any]:
    found = []
    for token in PARSER.parse(text):
        found += [token, *(token.children or ())]
    return found


def plain_text(text: str) -> str:
    return "".join(token.content for token in tokens(text) if token.type in {"text", "text_special"})


def rows(text: str) -> int:
    return sum(token.type == "tr_open" for token in tokens(text))


def test_a_table_of_findings_and_a_list_of_what_was_not_checked() -> None:
    text = to_markdown(result(finding(), finding("missing-shm", "warning", fix="x"), problems=(problem(),)))
    assert text.splitlines() == [
        "### roofplan check: not all could be checked",
        "",
        "1 error, 1 warning in 1 service of 1 file. 1 part could not be checked.",
        "",
        "| | rule | where | what |",
        "|---|---|---|---|",
        "| error | does-not-fit | deploy/llama.yaml:3 | 31.2 GiB are short on each device.<br>fix: --max-model-len 16384 |",
        "| warning | missing-shm | deploy/llama.yaml:3 | 31.2 GiB are short on each device.<br>fix: x |",
        "",
        "Not checked:",
        "",
        "- deploy/broken.yaml:2: malformed YAML (expected a key)",
    ]
    assert rows(text) == 3


@pytest.mark.parametrize(
    ("findings", "verdict"), [((), "passed"), ((finding(),), "failed"), ((finding(severity="note"),), "passed")]
)
def test_the_verdict_stands_first(findings: tuple[Any, ...], verdict: str) -> None:
    assert to_markdown(result(*findings)).splitlines()[0] == f"### roofplan check: {verdict}"


def test_what_does_not_fit_into_a_comment_is_counted() -> None:
    many = [finding(line=line, message="é" * 400) for line in range(1, 301)]
    text = to_markdown(result(*many, problems=(problem(),)))
    assert 59_000 < len(text.encode()) < 60_000
    shown = rows(text) - 1
    left = 300 - shown + ("deploy/broken" not in text)
    assert text.endswith(f"\n{left} more entries left out for want of room.\n")


def without_effect(text: str, expected_rows: int) -> None:
    assert rows(text) == expected_rows
    for token in tokens(text):
        assert token.type not in {"link_open", "image", "code_inline", "strong_open", "em_open", "s_open", "html_block"}
        assert token.type not in {"fence", "code_block", "hr", "blockquote_open"}
        assert token.type != "html_inline" or token.content in OWN_HTML
    # What servers find in the text of a page: addresses, names of people, numbers of issues, formulas.
    assert not re.search(r"://|www\.|@\w|(?<!\\)#\d|(?<!\\)\$", text.partition("\n")[2])


@pytest.mark.parametrize("kind", HOSTILE)
def test_foreign_text_has_no_effect(kind: str) -> None:
    without_effect(to_markdown(hostile_result(HOSTILE[kind])), 4)


@given(st.text(alphabet=st.characters() | st.sampled_from("|`*_[]()<>!$~&#\\@:/\n-"), max_size=60))
def test_any_text_has_no_effect_and_can_be_read(text: str) -> None:
    without_effect(f"| a |\n|---|\n| {marked(text)} |", 2)


def test_text_can_still_be_read() -> None:
    mean = "a|b_c*d [e](f) `g` $h$ ~i~ <j> & #1 {k} ^ !"
    assert plain_text(marked(mean)) == mean
