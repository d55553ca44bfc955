"""The roofline in a terminal: points and roofs stand where their values say, and everything is in the key."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from roofs import CASES, one, two, with_operators

from roofplan.planner.roofline_answer import MeasuredPoint, RooflineResult
from roofplan.report.roofline_lines import limits_of
from roofplan.report.roofline_terminal import plot_lines
from roofplan.report.sections import report_of

MARGIN = 9  # letters before the plot


def drawn(r: RooflineResult, width: int = 100, *, unicode: bool = True) -> list[str]:
    """The lines without their styles."""
    return ["".join(text for text, _ in line) for line in plot_lines(r, width, unicode)]


def body(lines: list[str]) -> list[str]:
    """The rows of the plot, without margins."""
    return [line[MARGIN:] for line in lines if line[MARGIN - 1 : MARGIN] in {"│", "|"}]


def place_of(rows: list[str], r: RooflineResult, x: float, y: float) -> tuple[int, int]:
    """Column and row of a value, computed here: the edges of the plot are those of the axes."""
    across, up = limits_of(r)
    width, height = len(rows[0]), len(rows)
    column = math.log(x / across[0]) / math.log(across[1] / across[0]) * (2 * width - 1)
    row = math.log(up[1] / y) / math.log(up[1] / up[0]) * (4 * height - 1)
    return round(column) // 2, round(row) // 4


@pytest.mark.parametrize("width", [60, 100, 140])
def test_every_operator_stands_at_its_place_and_is_in_the_key(width: int) -> None:
    lines = drawn(one(), width)
    rows = body(lines)
    signs: dict[str, str] = {}
    for line in lines[len(rows) + 3 :]:
        for sign, names in re.findall(r"(?:^.{14}|   )(\S) ([^★☆∗]*?)(?=   \S |$)", line):
            for name in names.split(", "):
                signs.setdefault(name.strip(), "")
                signs[name.strip()] += sign
    for point in one().series[0].operators:
        if point.has_place:
            column, row = place_of(rows, one(), point.intensity, point.flop_per_s)
            there = rows[row][column]
            assert not there.isspace(), point
            if there.isalpha() and there.isascii():
                known = signs.get(point.name, "") + signs.get(f"{point.name} ({point.phase})", "")
                assert there in known, (there, point, known)


def test_the_stars_and_the_path_stand_where_the_steps_are() -> None:
    rows = body(drawn(one()))
    for step in (*one().series[0].steps, *one().series[0].path):
        column, row = place_of(rows, one(), step.intensity, step.flop_per_s)
        expected = "☆" if step.phase == "prefill" else "★" if step.batch == 64 else "∗"
        assert rows[row][column] == expected


def test_the_roof_is_where_the_device_has_it() -> None:
    """Every column of the nominal roof, min(F, I W), holds a dot at its height, or a sign over it."""
    rows = body(drawn(one(), 120))
    across, _ = limits_of(one())
    steps = len(rows[0])
    for column in range(1, steps - 1):
        intensity = across[0] * (across[1] / across[0]) ** ((2 * column + 0.5) / (2 * steps - 1))
        _, row = place_of(rows, one(), intensity, min(989.4e12, 3.35e12 * intensity))
        near = "".join(rows[r][column] for r in (row - 1, row, row + 1) if 0 <= r < len(rows))
        assert near.strip(), column
        above = "".join(rows[r][column] for r in range(row - 1))
        assert not above.strip(), column


def test_ticks_stand_at_the_decades() -> None:
    lines = drawn(one())
    rows = body(lines)
    ticks = {line[: MARGIN - 1].strip(): number for number, line in enumerate(lines[1 : len(rows) + 1])}
    for text, value in (("1 P", 1e15), ("100 T", 1e14), ("10 T", 1e13), ("1 T", 1e12)):
        assert ticks[text] == place_of(rows, one(), 1, value)[1]
    foot = lines[len(rows) + 1][MARGIN:]
    below = lines[len(rows) + 2]
    for text, value in (("1", 1.0), ("10", 10.0), ("100", 100.0)):
        column = place_of(rows, one(), value, 1e12)[0]
        assert foot[column] == "┴"
        assert text in below[MARGIN + column - 3 : MARGIN + column + 4]


def test_the_key_says_the_roofs() -> None:
    text = "\n".join(drawn(one()))
    assert "3.35 TB/s, bf16 989 TFLOP/s (ridge 295)" in text
    assert "as reached" in text


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("case", CASES)
def test_no_row_of_the_plot_is_wider_than_asked(case: str, width: int) -> None:
    lines = drawn(CASES[case](), width)
    rows = body(lines)
    assert {len(row) for row in rows} == {width - MARGIN}
    assert all(len(line) <= width for line in lines[: len(rows) + 3])


def test_ascii_is_ascii() -> None:
    measured = replace(two(), measured=(MeasuredPoint("mine", 300, 3e12),))
    lines = drawn(measured, unicode=False)
    assert all(line.isascii() for line in lines)
    assert any("x mine" in line for line in lines)
    assert "x" in "".join(body(lines))


def test_more_operators_than_letters_are_all_listed() -> None:
    made = with_operators(70)
    text = "\n".join(drawn(made, 140))
    for point in made.series[0].operators:
        assert point.name in text


def test_series_are_listed_apart() -> None:
    lines = [line.strip() for line in drawn(two())]
    assert lines.index("h100-sxm5-80gb") < lines.index("a100-sxm4-80gb")


def test_names_are_harmless() -> None:
    series = one().series[0]
    d = series.deployment
    evil = replace(
        d, hardware=replace(d.hardware, name="a\x1b[31m\nb", memory=replace(d.hardware.memory, technology="\x07[red]"))
    )
    made = replace(
        two(),
        series=(replace(series, deployment=evil), two().series[1]),
        measured=(MeasuredPoint("\x1b]0;x", 1, 1e12),),
    )
    assert all(line.isprintable() for line in drawn(made))


def test_the_report_carries_the_plot() -> None:
    report = report_of(one())
    assert report.plot is not None
    assert ["".join(text for text, _ in line) for line in report.plot(100, True)] == drawn(one())
    assert report.verdict.startswith("prefill: compute at 1,5")
    assert "decode: reading the cache at 21.3 FLOP/B (ridge 295 in bf16)" in report.verdict
