"""Large tables as text: the same letters as the writers of the standard library, and a few times as fast."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import time

import pytest

import roofplan
from roofplan.report.textfiles import _cell, to_csv, to_json

SWEEPS = {
    "decode": {"over": ["batch=1,64,2000", "context=1024,8192"], "device": "h100-sxm"},
    "served": {"over": ["batch=1,64,2000", "prompt=100,5000"], "device": "h100-sxm", "tpot": "20 ms"},
    "devices": {
        "over": ["hardware=h100-sxm,mi50-16gb,b200-sxm-180gb", "context=1000,200000"]
    },  # of one no price is known
    "formats": {"over": ["weights=bf16,int8,head=int8"], "device": "h100-sxm", "context": 1000},  # a comma in a cell
    "ranks": {"over": "tp=1,2,4", "device": "t4", "context": 1000},
    "without rates": {"over": "batch=1,2", "device": "raspberry-pi-5-16gb", "context": 1000},
}


def swept(name: str) -> roofplan.planner.sweeping.SweepResult:
    asked = dict(SWEEPS[name])
    return roofplan.sweep("llama-3.1-8b", asked.pop("device", None), **asked)


@pytest.mark.parametrize("name", SWEEPS)
def test_json_is_that_of_the_standard_library(name: str) -> None:
    found = swept(name)
    wanted = json.dumps(found.to_dict(), sort_keys=True, indent=2, allow_nan=False) + "\n"
    assert to_json(found) == wanted
    assert json.loads(to_json(found, explain=True))["explanations"]


@pytest.mark.parametrize("name", SWEEPS)
def test_csv_is_that_of_the_standard_library(name: str) -> None:
    found = swept(name)
    columns, rows = found.table()
    wanted = io.StringIO()
    writer = csv.writer(wanted, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([[_cell(row[column]) for column in columns] for row in rows])
    assert to_csv(found) == wanted.getvalue()


def test_foreign_text_is_quoted_and_no_formula() -> None:
    found = swept("formats")
    names = ['=1+1, "x"', "a\nb"]
    odd = dataclasses.replace(found, columns={**found.columns, "weights": names})
    rows = list(csv.DictReader(io.StringIO(to_csv(odd))))
    assert [row["weights"] for row in rows] == ['\'=1+1, "x"', "a\\x0ab"]
    assert [row["weights"] for row in json.loads(to_json(odd))["result"]["rows"]] == names


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_a_fault_of_ours(value: float) -> None:
    found = swept("decode")
    columns = {**found.columns, "step_s.low": [value, *found.columns["step_s.low"][1:]]}
    with pytest.raises(ArithmeticError):
        to_json(dataclasses.replace(found, columns=columns))


def test_many_points_take_little_longer_than_few() -> None:
    """10,000 points in each form against the sweep itself, whose arrays take some 20 ms: no row is walked through cell by cell."""
    found = roofplan.sweep("llama-3.1-8b", "h100-sxm", over=["batch=1..1000", "context=1000..10000:1000"])
    columns, rows = found.table()

    def seconds(work) -> float:
        times = []
        for _ in range(3):
            begin = time.process_time()
            work()
            times.append(time.process_time() - begin)
        return min(times)

    by_hand = seconds(lambda: [[repr(row[column]) for column in columns] for row in rows])
    for write in (to_csv, to_json):
        assert seconds(lambda write=write: write(found)) < 2 * by_hand
