"""What a change does, as Markdown for a pull request."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from check_records import HOSTILE, finding, result, service
from markdown_it import MarkdownIt

from roofplan.checks.diff import Change, CheckDiff, ServiceDiff, diff
from roofplan.report.check_diff import diff_lines
from roofplan.report.check_outputs import rendered

PARSER = MarkdownIt("commonmark", {"html": True}).enable("table")
ONE = ServiceDiff(
    "llama",
    "a.yaml",
    "changed",
    settings=(Change("max_model_len", 8192, 32768), Change("kv", None, "fp8")),
    figures=(
        Change("fits", True, True),
        Change("memory.kv_budget_bytes", 40 * 2**30, 20 * 2**30),
        Change("latency.ttft_s", 0.2, 0.5),
        Change("latency.tpot_s", 0.030, 0.033),
        Change("cost.usd_per_hour", None, 3.5),
        Change("bottleneck.decode", "weight_bandwidth", "kv_bandwidth"),
    ),
    appeared=("ttft-limit-missed",),
)


def test_a_service_is_a_table_with_what_changed_above_and_findings_below() -> None:
    assert list(diff_lines(CheckDiff((ONE,)))) == [
        "### What this change does",
        "",
        "#### llama",
        "",
        "Changed: `max_model_len` `8192` → `32768`; `kv` not said → `fp8`.",
        "",
        "|  | before | after | change |  |",
        "|---|---:|---:|---:|---|",
        "| fits | yes | yes | = |  |",
        "| KV cache per device | 40.00 GiB | 20.00 GiB | -50.0% | worse |",
        "| TTFT | 200 ms | 500 ms | x 2.5 | worse |",
        "| TPOT | 30.0 ms | 33.0 ms | +10.0% | worse |",
        "| cost per hour of all copies | - | $3.50 |  |  |",
        "| decode is bound by | weight bandwidth | kv bandwidth |  |  |",
        "",
        "New findings: ttft-limit-missed.",
    ]


def test_aligned_cells_are_the_same_table() -> None:
    plain, aligned = (PARSER.render("\n".join(diff_lines(CheckDiff((ONE,)), aligned=one))) for one in (False, True))
    assert aligned == plain
    rows = [line for line in diff_lines(CheckDiff((ONE,)), aligned=True) if line.startswith("|")]
    assert len({len(row) for row in rows}) == 1


def test_services_that_do_not_change_are_named_in_a_line() -> None:
    same = tuple(ServiceDiff(f"s{number}", "a.yaml", "same") for number in range(12))
    assert (
        list(diff_lines(CheckDiff(same)))[-1]
        == "12 services unchanged: s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 and 2 more."
    )
    assert list(diff_lines(CheckDiff(())))[-1] == "There is no service on either side."


def test_so_many_services_as_there_is_room_for() -> None:
    many = CheckDiff(tuple(replace(ONE, name=f"s{number}") for number in range(1000)))
    lines = diff_lines(many, largest=30_000)
    shown = sum(line.startswith("#### ") for line in lines)
    assert 20 < shown < 100
    assert lines[-1] == f"{1000 - shown} more services left out for want of room."
    text = rendered(result(*(finding(line=line) for line in range(1, 1000))), "markdown", many)
    assert len(text.encode()) < 60_000
    assert "more entries left out" in text
    assert "more services left out" in text


@pytest.mark.parametrize("kind", HOSTILE)
def test_foreign_names_and_values_have_no_effect(kind: str) -> None:
    text = HOSTILE[kind]
    change = Change("model", text, f"x{text}")
    one = ServiceDiff(text, text, "changed", (change, Change(text, 1, 2)), ONE.figures, (text,), (text,), text)
    lines = list(diff_lines(CheckDiff((one, ServiceDiff(text, text, "same")))))
    found = [token for block in PARSER.parse("\n".join(lines)) for token in (block, *(block.children or ()))]
    assert sum(token.type == "tr_open" for token in found) == 1 + len(ONE.figures)
    assert sum(token.type == "heading_open" for token in found) == 2
    for token in found:
        assert token.type not in {"link_open", "image", "html_block", "strong_open", "em_open", "fence", "code_block"}
        assert token.type != "html_inline" or token.content == "<!-- -->"
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("output_format", ["text", "markdown", "json"])
def test_three_formats_show_it(output_format: str) -> None:
    old, new = (service(max_model_len=length) for length in (8192, 16384))
    before, after = result(services=(old,)), result(finding(), services=(new,))
    text = rendered(after, output_format, diff(before, after))  # type: ignore[arg-type]
    if output_format == "json":
        (one,) = json.loads(text)["result"]["diff"]["services"]
        assert one["settings"] == [{"name": "max_model_len", "before": 8192, "after": 16384}]
        assert one["figures"]["capacity.max_context"] == {"before": 8192, "after": 16384, "verdict": "better"}
        assert one["appeared"] == ["does-not-fit"]
    else:
        assert "`max_model_len` `8192` → `16384`" in text
        assert "longest sequence, tokens" in text
