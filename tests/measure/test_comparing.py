"""Two runs are told apart by ranks alone: p-values against tables, and what is called slower."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import cpu_run, run_of, timed
from pytest import approx

from roofplan.errors import MeasureError
from roofplan.measure.comparing import LEVEL, compare, holm, mann_whitney
from roofplan.measure.records import Record
from roofplan.measure.samples import summarise
from roofplan.report.measured import compare_runs_report


def by_counting(first: list[float], second: list[float]) -> float:
    """The two-sided p-value by trying all ways in which the ranks may be dealt out."""
    pooled = sorted(first + second)
    n, m = len(first), len(second)
    ranks = {value: place + 1 for place, value in enumerate(pooled)}
    u = sum(ranks[value] for value in first) - n * (n + 1) / 2
    least = min(u, n * m - u)
    sums = [sum(chosen) - n * (n + 1) / 2 for chosen in itertools.combinations(range(1, n + m + 1), n)]
    return min(1.0, 2 * sum(one <= least for one in sums) / len(sums))


@given(st.lists(st.integers(0, 10_000), min_size=4, max_size=9, unique=True), st.integers(1, 3))
def test_exact_p_values(values: list[int], cut: int) -> None:
    first, second = [float(v) for v in values[:cut]], [float(v) for v in values[cut:]]
    assert mann_whitney(first, second) == approx(by_counting(first, second))


def test_known_p_values() -> None:
    assert mann_whitney([1, 2, 3], [4, 5, 6]) == approx(0.1)  # 2 of 20 orders
    assert mann_whitney(range(10), range(100, 110)) == approx(2 / math.comb(20, 10))
    # U = 23 of 5 x 5: critical value of the published tables at 5 % two-sided is 2 (25 - 23).
    assert mann_whitney([1, 2, 3, 4, 7], [5, 6, 8, 9, 10]) < 0.05
    assert mann_whitney([1, 2, 3, 7, 8], [4, 5, 6, 9, 10]) > 0.05


def test_ties_and_equal_samples() -> None:
    assert mann_whitney([5.0] * 10, [5.0] * 10) == 1.0
    assert mann_whitney([1, 1, 2, 2] * 3, [1, 1, 2, 2] * 3) == 1.0
    assert mann_whitney([1, 1, 1, 2] * 10, [2, 2, 2, 1] * 10) < 1e-4


def test_equal_populations_are_called_different_as_rarely_as_is_said() -> None:
    draw = random.Random(4)
    for n, m in ((8, 12), (40, 60)):
        found = [
            mann_whitney([draw.random() for _ in range(n)], [draw.random() for _ in range(m)]) for _ in range(1500)
        ]
        assert sum(p < 0.05 for p in found) / len(found) == approx(0.05, abs=0.018)


def test_holm() -> None:  # Holm 1979: the smallest times n, the next times n - 1, never falling
    assert holm([0.01, 0.04, 0.03]) == approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]


def _record(times: list[float], unit: str = "s", **parameters: Any) -> Record:
    return Record("x.y", unit, summarise(times), parameters)


def test_medians_that_differ_are_not_enough() -> None:
    """3 % between medians, 20 % of scatter: not told apart."""
    draw = random.Random(2)
    one, two = ([draw.gauss(at, 0.2) for _ in range(12)] for at in (1.0, 1.03))
    found = compare(run_of([_record(one)]), run_of([_record(two)]))
    assert [row.verdict for row in found.rows] == ["same"]
    assert found.good


@pytest.mark.parametrize(
    ("unit", "factor", "verdict"),
    [
        ("s", 1.1, "slower"),
        ("s", 0.9, "faster"),
        ("B/s", 0.9, "slower"),
        ("tokens/s", 1.1, "faster"),
        ("B", 1.1, "higher"),
        ("B", 0.9, "lower"),
    ],
)
def test_words(unit: str, factor: float, verdict: str) -> None:
    times = [1 + 1e-3 * place for place in range(15)]
    found = compare(run_of([_record(times, unit)]), run_of([_record([factor * t for t in times], unit)]))
    (row,) = found.rows
    assert row.verdict == verdict
    assert row.ratio == approx(factor)
    assert row.p_value < LEVEL
    assert found.good is (verdict != "slower")


def test_the_more_figures_the_stricter() -> None:
    times, moved = [1 + 1e-3 * p for p in range(6)], [1.1 + 1e-3 * p for p in range(6)]
    (alone,) = compare(run_of([_record(times)]), run_of([_record(moved)])).rows
    many = [_record(times, size=size) for size in range(20)]
    every = compare(run_of([_record(times), *many]), run_of([_record(moved), *many])).rows
    assert every[0].p_value == approx(21 * alone.p_value)


def test_a_run_equals_itself() -> None:
    found = compare(cpu_run(), cpu_run())
    assert all(row.verdict == "same" for row in found.rows)
    assert found.warnings == ()
    assert "Nothing differs" in compare_runs_report(found).verdict


def test_what_makes_a_comparison_doubtful() -> None:
    one = cpu_run()
    other = replace(
        one,
        environment=replace(one.environment, device="Another", threads=4, versions={"torch": "2.14.0"}),
        records=(*one.records[1:], timed("new.thing", 1.0)),
    )
    found = compare(one, other)
    assert [warning.code for warning in found.warnings] == [
        "other_device",
        "other_versions",
        "other_threads",
        "not_in_both",
    ]
    assert (found.only_first, found.only_second) == (1, 1)


def test_what_came_out_of_a_run_does_not_tell_figures_apart() -> None:
    """Two loads of a server are the same figure, whatever was predicted for them and however many requests were cut off."""
    times = [1 + 1e-3 * place for place in range(15)]
    asked = {"concurrency": 4, "output_tokens": 32}
    one = _record(times, **asked, mean=1.007, cut=0, requests=12, failed=0, predicted_low=0.9, fused_s=0.1)
    two = _record([2 * t for t in times], **asked, mean=2.014, cut=3, requests=9, failed=1, roof=0.5, bound=2.0)
    (row,) = compare(run_of([one]), run_of([two])).rows
    assert (row.verdict, row.parameters) == ("slower", asked)
    with pytest.raises(MeasureError, match="no figure in both"):
        compare(run_of([one]), run_of([_record(times, concurrency=8, output_tokens=32)]))


def test_figures_of_too_few_samples_are_named() -> None:
    """Were all samples of one run below all of the other, the exact test still gives 2 / C(n + m, n); and there are many figures."""
    few, moved = [1.0, 1.1, 1.2], [3.0, 3.1, 3.2]
    found = compare(run_of([_record(few)]), run_of([_record(moved)]))
    assert found.rows[0].verdict == "same"
    (warning,) = found.warnings
    assert warning.code == "few_samples"
    assert "1 of 1 figures have too few samples" in warning.message
    assert "medians of 1 of them differ" in warning.message
    times = [1 + 1e-3 * place for place in range(10)]  # 2 / C(20, 10) = 1.08e-5: enough for 92 figures, not for 93
    for figures, warned in ((92, 0), (93, 1)):
        many = run_of([_record(times, size=size) for size in range(figures)])
        assert len(compare(many, many).warnings) == warned
    hundreds = _record([float(place) for place in range(500)])
    assert compare(run_of([hundreds]), run_of([hundreds])).warnings == ()


def test_a_ratio_that_is_no_number_is_none() -> None:
    for before, after in ((5e-324, 1.0), (0.0, 1.0), (0.0, 0.0)):
        found = compare(run_of([_record([before] * 10)]), run_of([_record([after] * 10)]))
        assert found.rows[0].ratio is None
        assert found.to_dict()["result"]["rows"][0]["ratio"] is None
        assert compare_runs_report(found).sections


def test_nothing_in_common() -> None:
    with pytest.raises(MeasureError, match="no figure in both"):
        compare(run_of([timed("a.b", 1.0)]), run_of([timed("a.c", 1.0)]))
    bare = run_of([timed("a.b", 1.0)])
    without = type(bare).from_dict(bare.to_dict(samples=False))
    with pytest.raises(MeasureError, match="with their samples"):
        compare(bare, without)


def test_the_report() -> None:
    times = [1 + 1e-3 * place for place in range(15)]
    found = compare(
        run_of([_record(times), _record(times, rows=2)]),
        run_of([_record([1.1 * t for t in times]), _record(times, rows=2)]),
    )
    report = compare_runs_report(found)
    assert report.verdict == "1 of 2 figures differ, 1 of them slower."
    assert not report.good
    assert [section.title for section in report.sections] == ["Different (1)", "Not told apart (1)"]
    said = found.to_dict()
    assert said["command"] == "measure compare"
    assert said["result"]["rows"][0]["verdict"] == "slower"
    columns, rows = found.table()
    assert len(rows) == 2
    assert set(columns) == set(rows[0])
