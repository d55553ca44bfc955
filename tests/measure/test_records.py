"""Records, runs and their files: what is kept, what is refused, and partial results."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from measured import cpu_run, run_of, steady, timed
from pytest import approx

from roofplan.errors import RoofplanError, SpecError
from roofplan.measure.environment import Environment
from roofplan.measure.records import SCHEMA, Record, Run, load, pooled, save, save_partial
from roofplan.measure.samples import summarise


def test_rates_follow_from_what_was_counted() -> None:
    record = timed("gemm.bf16", 2.0, bytes=10, flop=40)
    assert record.bytes_per_s == approx(5, rel=1e-4)
    assert record.flop_per_s == approx(20, rel=1e-4)
    assert timed("launch.call", 2.0).bytes_per_s is None
    assert Record("memory", "B", steady(4.0), {"bytes": 4}).bytes_per_s is None


def test_the_measured_roof_predicts_before_the_data_sheet() -> None:
    both = Record("x", "s", steady(3.0), {}, 1.0, 2.0)
    assert (both.predicted, both.ratio) == (2.0, approx(1.5, rel=1e-4))
    sheet = Record("x", "s", steady(3.0), {}, 1.0)
    assert (sheet.predicted, sheet.ratio) == (1.0, approx(3, rel=1e-4))
    assert Record("x", "s", steady(3.0)).ratio is None


def test_rounds_become_one_record() -> None:
    """Two moments of a drifting machine: the median lies between them; other parameters, and what one round alone has, stay apart."""
    slow, quick, other = (
        timed("decode.step", 3.0, batch=1),
        timed("decode.step", 1.0, batch=1),
        timed("decode.step", 2.0, batch=2),
    )
    one, two = pooled([[slow, other], [quick]])
    assert one.measured.samples == (*slow.measured.samples, *quick.measured.samples)
    assert 1.0 < one.measured.median < 3.0
    assert one.measured.count == slow.measured.count + quick.measured.count
    assert two == other


def test_what_every_round_counts_alike_is_one_figure() -> None:
    counted = Record("cache.bytes", "B", replace(summarise([5.0]), warnings=()), {"position": 8})
    assert pooled([[counted], [counted], [counted]]) == [counted]


def test_dropped_samples_and_unmet_criteria_of_rounds_are_kept() -> None:
    first = Record("a.b", "s", summarise([1.0, 2.0], dropped=2, unmet="noise"))
    found = pooled([[first], [Record("a.b", "s", summarise([3.0], dropped=1))]])[0].measured
    assert (found.dropped, found.unmet, found.count) == (3, "noise", 3)


def test_a_file_holds_every_sample(tmp_path: Path) -> None:
    path, run = tmp_path / "run.json", cpu_run()
    save(run, path)
    said = json.loads(path.read_text(encoding="utf-8"))
    assert said["schema"] == SCHEMA == "roofplan/measured/v1"
    assert len(said["records"][0]["measured"]["samples"]) == 10
    assert load(path) == run


def test_samples_may_be_left_out() -> None:
    said = cpu_run().to_dict(samples=False)
    assert "samples" not in said["records"][0]["measured"]
    assert Run.from_dict(said).records[0].measured.count == 10


def test_files_are_not_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    save(cpu_run(), path)
    with pytest.raises(SpecError, match="--force"):
        save(cpu_run(), path)
    save(run_of([timed("x.y", 1.0)]), path, overwrite=True)
    assert len(load(path).records) == 1


def test_names_of_a_kind() -> None:
    run = run_of([timed("gemm.bf16", 1.0), timed("gemm.fp8", 1.0), timed("gemms", 1.0)])
    assert [record.name for record in run.named("gemm")] == ["gemm.bf16", "gemm.fp8"]
    assert [record.name for record in run.named("gemm.fp8")] == ["gemm.fp8"]


def test_partial_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = save_partial(cpu_run()), save_partial(cpu_run())
    assert [first.name, second.name] == [
        "roofplan-measured-ceilings-partial.json",
        "roofplan-measured-ceilings-partial-2.json",
    ]
    wanted = tmp_path / "mine.json"
    assert save_partial(cpu_run(), wanted) == wanted
    assert load(wanted) == cpu_run()


def _broken(change: Any) -> str:
    said = cpu_run().to_dict()
    change(said)
    return json.dumps(said)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "JSON"),
        ("[1]", "schema"),
        ("{}", "schema"),
        ('{"schema": "roofplan/measured/v2"}', "got roofplan/measured/v2, want roofplan/measured/v1"),
        ('{"schema": "roofplan/measured/v1"}', "KeyError: 'command'"),
        (_broken(lambda said: said.pop("environment")), "environment"),
        (_broken(lambda said: said.update(records=7)), "TypeError"),
        (_broken(lambda said: said["records"][0].pop("measured")), "measured"),
        (_broken(lambda said: said["records"][0]["measured"].update(median="fast")), "ValueError"),
        (_broken(lambda said: said["records"][0].update(measured=[])), "measured run"),
        ('{"schema": "roofplan/measured/v1", "command": NaN}', "NaN is no number"),
        ("[" * 100_000, "JSON"),
        (_broken(lambda said: None).replace('"cores": 2', '"cores": 1e999'), "1e999 is no number"),
        (_broken(lambda said: None).replace('"cores": 2', f'"cores": {10**400}'), "… is no number"),
    ],
)
def test_files_that_are_no_run(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as refused:
        load(path)
    assert words in str(refused.value)
    assert "run.json" in str(refused.value)


@pytest.mark.parametrize("figure", ["median", "q1", "q3", "relative_mad", "count", "dropped", "sample"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, "nan", "1", True, None, [1.0], 10**400])
def test_figures_that_no_sample_has(figure: str, value: Any) -> None:
    said = cpu_run().to_dict()
    of_first = said["records"][0]["measured"]
    of_first.update({"samples": [value] * 10} if figure == "sample" else {figure: value})
    with pytest.raises(SpecError, match="measured run: got ValueError"):
        Run.from_dict(said)


@pytest.mark.parametrize("value", [None, True, [], {}, 7, "1"])
@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Environment)])
def test_parts_of_an_environment_are_what_they_are_said_to_be(name: str, value: Any) -> None:
    """Refused, or of the kind that it had, so that what is said of two runs can be said of any file."""
    said = cpu_run().to_dict()
    had = type(getattr(Run.from_dict(said).environment, name))
    said["environment"][name] = value
    try:
        read = getattr(Run.from_dict(said).environment, name)
    except SpecError as error:
        refused, read = str(error), None
    else:
        refused = ""
    kept = isinstance(read, had) or (name == "load" and read in {None, 7})
    assert f"environment.{name}" in refused or kept


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(RoofplanError, match="no such file"):
        load(tmp_path / "none.json")
