"""The comparison with published speeds: every figure is answered or left out for a reason, and the metrics are what they are said to be."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest import approx

from roofplan.accuracy import runs, single_stream
from roofplan.accuracy.metrics import Comparison, grouped, metric_of, metrics_of
from roofplan.accuracy.served import case_of, predict
from roofplan.accuracy.serving import DATA, read_rows, read_speed_rows
from roofplan.accuracy.speed import GROUPS, UNSTATED, SpeedAccuracy, label, speed_accuracy
from roofplan.errors import SpecError, UnknownNameError

ROWS = read_rows()
ONLINE = read_speed_rows()


def cells_of(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


SERVED, TABLE = cells_of("e2e_serving.csv"), cells_of("speed.csv")


@pytest.fixture(scope="module")
def answer() -> SpeedAccuracy:
    return speed_accuracy()


# ------------------------------------------------------------------------------------------------ metrics by hand


def made_up(predicted: float | None, width: float = 1.1, measured: float = 100.0, **labels: str) -> Comparison:
    low, high = (None, None) if predicted is None else (predicted / width, predicted * width)
    return Comparison("row", "tpot_ms", measured, predicted, "" if predicted else "no", labels, low, high)


FIVE = [made_up(110.0), made_up(90.0), made_up(100.0, 1.21), made_up(120.0), made_up(None)]


def test_metrics_of_five_rows() -> None:
    """Errors +10, -10, 0 and +20 %, one row without an answer; ranges 100-121, 82-99, 83-121, 109-132: two hold what was measured."""
    metric = metric_of(FIVE)
    assert (metric.rows, metric.answered) == (5, 4)
    assert metric.median_ape == approx(0.10)
    assert metric.mean_ape == approx(0.10)
    assert metric.bias == approx(0.05)
    assert metric.median_bias == approx(0.05)
    assert metric.p90_ape == metric.worst_ape == approx(0.20)
    assert metric.worst_difference == approx(20.0)
    assert metric.coverage_80 == 0.5
    assert metric.width_80 == approx(math.exp((3 * math.log(1.1) + math.log(1.21)) / 4))


def test_the_ends_of_a_range_are_in_it() -> None:
    assert made_up(110.0).inside is True
    assert Comparison("row", "m", 100.0, 90.0, low=100.0, high=120.0).inside is True
    assert Comparison("row", "m", 100.0, 90.0, low=80.0, high=100.0).inside is True
    assert Comparison("row", "m", 100.0, 90.0, low=80.0, high=99.9).inside is False
    assert Comparison("row", "m", 100.0, 90.0).inside is None
    assert metric_of([Comparison("row", "m", 100.0, 90.0)]).coverage_80 is None


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 20, 21, 100])
def test_nine_of_ten_errors_are_at_most_p90(count: int) -> None:
    """The sample quantile that takes the higher of two values."""
    errors = np.random.default_rng(0).permutation(count)
    metric = metric_of([made_up(100.0 + error) for error in errors])
    assert metric.p90_ape == approx(np.quantile(errors, 0.9, method="higher") / 100)


def test_nothing_answered_is_no_error() -> None:
    metric = metric_of([made_up(None)])
    assert (metric.rows, metric.answered, metric.median_ape, metric.coverage_80) == (1, 0, None, None)


def test_groups_hold_every_row_once() -> None:
    rows = [made_up(110.0, gpu="h100"), made_up(90.0, gpu="h200"), made_up(100.0), made_up(100.0, gpu="h100")]
    groups = grouped(rows, ["gpu"])
    assert {value: own["tpot_ms"].rows for value, own in groups["gpu"].items()} == {
        "h100": 2,
        "h200": 1,
        "not stated": 1,
    }
    assert groups["gpu"]["h100"]["tpot_ms"].bias == approx(0.05)
    assert metrics_of(rows)["tpot_ms"].rows == 4


# ------------------------------------------------------------------------------------------------ every figure


def test_every_figure_is_answered_or_left_out_for_a_reason(answer: SpeedAccuracy) -> None:
    """Two figures of each served row, and one of each line of the table."""
    served = [c for c in answer.comparisons if label(c, "how") in {"served", "rate"}]
    others = [c for c in answer.comparisons if label(c, "how") not in {"served", "rate"}]
    left_out = dict(answer.excluded)
    of_served = {reason: n for reason, n in left_out.items() if reason.startswith(("tpot_ms: ", "ttft_ms: "))}
    of_table = {reason: n for reason, n in left_out.items() if reason not in of_served}
    assert len(served) + sum(of_served.values()) == 2 * (len(ROWS) + len(ONLINE))
    assert len(others) + sum(of_table.values()) == len(TABLE) == 3500
    assert all(len(reason) >= 8 for reason in left_out)
    expected: Counter[str] = Counter()
    for row in [*ROWS, *ONLINE]:
        expected["tpot"] += bool(row.excluded_tpot)
        expected["ttft"] += bool(row.excluded_ttft)
    for metric in ("tpot", "ttft"):
        assert sum(n for reason, n in of_served.items() if reason.startswith(metric)) == expected[metric]


def test_rows_are_those_of_both_files(answer: SpeedAccuracy) -> None:
    streams = sum(cells["id"].partition("-")[0] in single_stream.SERIES for cells in TABLE)
    scored = sum(rule.how != "none" for _, rule in runs.read_run_rows(DATA / "speed.csv"))
    assert (len(ROWS), len(ONLINE), streams) == (1557, 56, 914)
    assert answer.rows == 1557 + 56 + 914 + scored
    names = Counter((c.row, c.metric) for c in answer.comparisons)
    assert max(names.values()) == 1


def test_answers_are_finite_and_within_their_ranges(answer: SpeedAccuracy) -> None:
    assert answer.coverage >= 0.98
    assert answer.coverage == 1 - len(answer.unanswered) / len(answer.comparisons)
    for c in answer.comparisons:
        if c.predicted is None:
            assert c.reason, c.row
            continue
        assert not c.reason
        assert c.low is not None
        assert c.high is not None
        assert 0 < c.low < c.predicted < c.high < math.inf
        assert c.high / c.predicted == approx(c.predicted / c.low)
        assert c.measured > 0


def test_measured_figures_are_those_of_the_files(answer: SpeedAccuracy) -> None:
    table = {cells["id"]: cells for cells in TABLE}
    rows = {row.id: row for row in ROWS}
    for c in answer.comparisons:
        if label(c, "how") == "served" and c.row in rows:
            row = rows[c.row]
            assert c.measured == approx((row.tpot_s if c.metric == "tpot_ms" else row.ttft_s) * 1e3)
        elif label(c, "how") not in {"served", "rate"}:
            assert (c.metric, c.measured) == (table[c.row]["metric"], float(table[c.row]["value"]))


def test_kinds_of_rows(answer: SpeedAccuracy) -> None:
    hows = Counter(label(c, "how") for c in answer.comparisons)
    assert set(hows) == {"served", "rate", "stream", "offline", "static", "single", "closed", "saturated_prefill"}
    assert hows["stream"] == 914
    assert hows["rate"] == 2 * 54  # TRTO: the TTFT and TPOT of 54 settings
    kinds = {label(c, "kind") for c in answer.comparisons if label(c, "how") == "served"}
    assert kinds == {"dense", "experts", "latent attention"}
    of = {label(c, "model"): label(c, "kind") for c in answer.comparisons if label(c, "how") == "served"}
    assert of["deepseek-ai/DeepSeek-R1"] == of["moonshotai/Kimi-K2.5"] == "latent attention"
    assert of["MiniMaxAI/MiniMax-M2.5"] == of["Qwen/Qwen3.5-397B-A17B"] == "experts"
    assert of["Qwen/Qwen3-32B"] == of["meta-llama/Llama-3.1-70B"] == "dense"


def test_the_headline_leaves_out_rows_without_a_stated_precision(answer: SpeedAccuracy) -> None:
    unstated = {row.id for row in ROWS if not row.precision}
    assert unstated  # Llama-3.1-8B on TensorRT-LLM, Qwen3-32B on vLLM and SGLang
    assert {c.row for c in answer.comparisons} >= unstated - {r.id for r in ROWS if r.excluded_tpot and r.excluded_ttft}
    assert not unstated & {c.row for c in answer.headline}
    assert {label(c, "precision") for c in answer.comparisons} - {label(c, "precision") for c in answer.headline} == {
        UNSTATED
    }
    rest = [c for c in answer.comparisons if label(c, "precision") == UNSTATED]
    assert len(answer.headline) + len(rest) == len(answer.comparisons)
    figures = answer.figures()
    assert figures["metrics"]["tpot_ms"].rows < figures["metrics_of_all"]["tpot_ms"].rows
    assert figures["groups"]["precision"][UNSTATED]["tpot_ms"].rows + figures["metrics"]["tpot_ms"].rows == (
        figures["metrics_of_all"]["tpot_ms"].rows
    )


def test_closed_loops_are_timed_without_serving_constants_too(answer: SpeedAccuracy) -> None:
    asked = [row for row in [*ROWS, *ONLINE] if row.concurrency is not None and not row.excluded_tpot]
    assert [c.row for c in answer.bare] == [row.id for row in asked]
    assert {c.metric for c in answer.bare} == {"tpot_ms"}
    full = {c.row: c.predicted for c in answer.comparisons if c.metric == "tpot_ms"}
    assert all(
        c.predicted is not None and 0 < c.predicted < 1.1 * full[c.row] for c in answer.bare
    )  # fusing saves a little
    said = answer.figures()["metrics_without_serving_constants"]["tpot_ms"]
    assert said.rows == said.answered == len(asked)


def test_the_json_has_what_people_rely_on(answer: SpeedAccuracy) -> None:
    said = answer.to_dict()
    text = json.dumps(said, allow_nan=False)
    assert json.loads(text)["schema"] == "roofplan/result/v1"
    result = said["result"]
    names = {"rows", "answered", "median_ape", "mean_ape", "bias", "median_bias", "p90_ape", "coverage_80"}
    for metric in result["metrics"].values():
        assert names <= set(metric)
    assert set(result["groups"]) == set(GROUPS)
    assert set(result["groups"]["engine"]) >= {"vllm", "sglang", "trtllm", "llama.cpp"}
    assert result["unanswered"] == [{"row": c.row, "metric": c.metric, "reason": c.reason} for c in answer.unanswered]
    assert {entry["reason"]: entry["figures"] for entry in result["excluded"]} == dict(answer.excluded)
    ratios = [abs(math.log(row["predicted"] / row["measured"])) for row in result["worst"]]
    assert ratios == sorted(ratios, reverse=True)
    assert len(ratios) == 15


def test_every_comparison_can_be_written(answer: SpeedAccuracy) -> None:
    written = list(csv.DictReader(io.StringIO(answer.to_rows())))
    assert len(written) == len(answer.comparisons)
    for line, c in zip(written, answer.comparisons, strict=True):
        assert (line["row"], line["metric"]) == (c.row, c.metric)
        assert float(line["measured"]) == c.measured
        assert bool(line["predicted"]) != bool(line["reason"])


# ------------------------------------------------------------------------------------------------ other data


def written(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def by_id(name: str, **cells: str) -> dict[str, str]:
    return {**next(row for row in TABLE if row["id"] == name), **cells}


def test_own_closed_loops(tmp_path: Path) -> None:
    own = [cells for cells in SERVED if cells["concurrency"] == "32" and cells["engine"] == "vllm"][:6]
    path = written(tmp_path / "own.csv", own)
    rows = read_rows(path)
    done: list[tuple[int, int]] = []
    found = speed_accuracy(path, ["origin"], progress=lambda *counts: done.append(counts))
    assert (found.rows, found.data, found.by) == (len(rows), str(path), ("origin",))
    assert done[0] == (0, len(rows))
    assert set(found.figures()["groups"]) == {*GROUPS, "origin"}
    assert {c.row for c in found.comparisons} == {row.id for row in rows}


def test_simulating_is_simulating_each_row(tmp_path: Path) -> None:
    own = [cells for cells in SERVED if (cells["concurrency"], cells["engine"]) == ("8", "trtllm")][:3]
    path = written(tmp_path / "own.csv", own)
    closed, event = (speed_accuracy(path, simulate=simulate) for simulate in (False, True))
    assert event.inputs()["simulate"] is True
    for row in read_rows(path):
        for found, simulate in ((closed, False), (event, True)):
            direct = predict(case_of(row), simulate=simulate)
            values = {c.metric: c.predicted for c in found.comparisons if c.row == row.id}
            expected = {"tpot_ms": direct.tpot_s * 1e3, "ttft_ms": direct.ttft_s * 1e3}
            assert values == approx({metric: expected[metric] for metric in values}, rel=1e-9)
    assert [c.predicted for c in closed.comparisons] != [c.predicted for c in event.comparisons]


def test_own_lines_of_figures(tmp_path: Path) -> None:
    lines = [by_id("GPTF-0006"), by_id("TRTO-0001"), by_id("TRTO-0002"), by_id("LCXJ-0001"), by_id("SPEC-0001")]
    found = speed_accuracy(written(tmp_path / "own.csv", lines))
    hows = Counter(label(c, "how") for c in found.comparisons)
    assert hows["single"] == hows["stream"] == 1
    assert sum(count for _, count in found.excluded) >= 1


def test_what_a_row_names_wrongly_is_unanswered(tmp_path: Path) -> None:
    found = speed_accuracy(
        written(tmp_path / "own.csv", [by_id("GPTF-0006", model="nobody/knows-it"), by_id("GPTF-0007")])
    )
    assert found.coverage == 0.5
    assert [c.row for c in found.unanswered] == ["GPTF-0006"]
    assert "nobody/knows-it" in found.figures()["unanswered"][0]["reason"]


def test_labels_that_no_row_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="colour"):
        speed_accuracy(written(tmp_path / "own.csv", [by_id("GPTF-0006")]), ["colour"])


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "id,metric\nA-1,tpot_ms\n", "\x00"], ids=repr)
def test_files_that_are_neither_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError):
        speed_accuracy(path)


@pytest.mark.parametrize("value", ["0", "", "-3"])
@pytest.mark.parametrize("name", ["GPTF-0006", "LCXJ-0001"])
def test_figures_that_are_none_are_refused(name: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="value"):
        speed_accuracy(written(tmp_path / "own.csv", [by_id(name, value=value)])).figures()


def test_rows_of_an_unknown_series_do_not_vanish(tmp_path: Path) -> None:
    found = speed_accuracy(written(tmp_path / "own.csv", [by_id("GPTF-0006", id="MINE-0001"), by_id("GPTF-0007")]))
    assert not found.excluded
    assert [c.row for c in found.unanswered] == ["MINE-0001"]
    assert (found.rows, found.coverage) == (2, 0.5)
    assert found.figures()["unanswered_by_reason"] == [{"reason": found.unanswered[0].reason, "figures": 1}]
    assert "no rule knows" in found.unanswered[0].reason


def test_served_lines_of_an_unknown_series_count_once(tmp_path: Path) -> None:
    """TTFT and TPOT of one setting are a served row, whatever the lines are called; a rate beside them is of a series that nobody knows."""
    lines = [cells for cells in TABLE if cells["id"] in {f"TRTO-000{n}" for n in range(1, 6)}]
    assert len({cells["batch_or_concurrency"] for cells in lines}) == 1
    found = speed_accuracy(
        written(tmp_path / "own.csv", [{**cells, "id": cells["id"].replace("TRTO", "MINE")} for cells in lines])
    )
    assert sorted(c.metric for c in found.comparisons if c.predicted is not None) == ["tpot_ms", "ttft_ms"]
    assert len(found.comparisons) == len(lines) == 5


# ------------------------------------------------------------------------------------------------ rows that nothing describes

SERVED_ROW = next(c for c in SERVED if (c["engine"], c["concurrency"], c["origin"]) == ("vllm", "8", "InferenceX dump"))
HOSTILE = ["/etc/passwd", "./own.yaml", "../x.json", "-", "no such name", "\x1b[31mred"]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("column", ["model", "gpu", "engine", "engine_version"])
def test_labels_of_served_rows_open_no_file(column: str, text: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text("schema: roofplan/model/v1\n", encoding="utf-8")
    path = written(tmp_path / "own.csv", [{**SERVED_ROW, column: text}, {**SERVED_ROW, "concurrency": "16"}])
    found = speed_accuracy(path, leave_one_out=True)
    bad = [c for c in found.comparisons if label(c, column) == text]
    assert len(bad) == 2
    assert all(c.predicted is None and "malformed" not in c.reason and ":1:" not in c.reason for c in bad)
    assert found.coverage == 0.5
    left_out = found.figures()["left_out"]["model"]
    assert {metric.rows for metric in left_out.values()} == {2}
    assert {metric.answered for metric in left_out.values()} == {1}


@pytest.mark.parametrize("text", HOSTILE[:5])
@pytest.mark.parametrize("column", ["model", "gpu", "weights_dtype", "kv_dtype"])
@pytest.mark.parametrize("name", ["GPTF-0006", "LCXJ-0001"])
def test_labels_of_other_rows_open_no_file(name: str, column: str, text: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text("schema: roofplan/model/v1\n", encoding="utf-8")
    found = speed_accuracy(written(tmp_path / "own.csv", [by_id(name, **{column: text}), by_id("GPTF-0007")]))
    assert [c.row for c in found.unanswered] == [name]
    assert ":1:" not in found.unanswered[0].reason


def test_a_format_of_the_cache_that_is_none_is_told(tmp_path: Path) -> None:
    found = speed_accuracy(written(tmp_path / "own.csv", [by_id("TRT17-0145", kv_dtype="zz"), by_id("GPTF-0007")]))
    assert [c.reason for c in found.unanswered] == ["kv_dtype: got zz, want a number format, or nothing"]


@pytest.mark.parametrize("engine", ["gpt-fast", "llama.cpp", "nobody"])
def test_leaving_out_leaves_engines_that_nothing_was_fitted_for(engine: str, tmp_path: Path) -> None:
    """Of gpt-fast there is a profile, but no served row that constants were fitted on."""
    strange = {**SERVED_ROW, "engine": engine, "engine_version": "0"}
    path = written(tmp_path / "own.csv", [strange, SERVED_ROW])
    found = speed_accuracy(path, leave_one_out=True)
    rows = [c for c in found.left_out if label(c, "engine") == engine]
    assert len(rows) == 3 * 2  # model, device and engine, each with TTFT and TPOT
    assert all(c.predicted is None and c.reason for c in rows)
    assert sum(c.predicted is not None for c in found.left_out) == 3 * 2


@pytest.mark.parametrize("simulate", [False, True])
@pytest.mark.parametrize("cells", [{"concurrency": "1000000000"}, {"isl": "1000000000000"}, {"osl": "1e14"}], ids=str)
def test_rows_without_measure_are_not_answered(cells: dict[str, str], simulate: bool, tmp_path: Path) -> None:
    found = speed_accuracy(written(tmp_path / "own.csv", [{**SERVED_ROW, **cells}, SERVED_ROW]), simulate=simulate)
    assert len(found.unanswered) == 2
    assert all(f"{next(iter(cells))}: got 1000" in c.reason and "want at most" in c.reason for c in found.unanswered)


def test_a_crowd_is_answered_in_closed_form_and_not_simulated(tmp_path: Path) -> None:
    path = written(tmp_path / "own.csv", [{**SERVED_ROW, "concurrency": "500000"}])
    assert speed_accuracy(path).coverage == 1
    simulated = speed_accuracy(path, simulate=True)
    assert simulated.coverage == 0
    assert "5,000,000 requests" in simulated.unanswered[0].reason


@pytest.mark.parametrize("name", ["GPTF-0006", "TRTB-0003", "TRT17-0145", "LCXJ-0001", "SGLG-0001"])
def test_runs_without_measure_are_not_answered(name: str, tmp_path: Path) -> None:
    found = speed_accuracy(written(tmp_path / "own.csv", [by_id(name, isl="1000000000000")]))
    assert [c.reason for c in found.unanswered] == ["isl: got 1000000000000, want at most 10,000,000 tokens"]


# ------------------------------------------------------------------------------------------------ what else is told


def test_closed_loops_by_the_defaults_of_their_engines(answer: SpeedAccuracy) -> None:
    """What the engine gives by itself stands in the place of the launch: 8192 tokens a step of vLLM on such GPUs, nothing held or polled."""
    of = {(c.row, c.metric): c.predicted for c in answer.by_defaults}
    for row in ROWS[::200]:
        if row.concurrency is None or row.excluded_tpot or row.excluded_ttft:
            continue
        known, case = case_of(row), case_of(row, launched_by_defaults=True)
        assert (case.client, case.row) == (known.client, row)
        assert case.deployment.formats == known.deployment.formats
        assert case.deployment.engine is known.deployment.engine
        assert case.scheduling == case.deployment.scheduling
        if row.engine == "vllm":
            assert case.deployment.max_batched_tokens == 8192
        expected = predict(case)
        assert (of[row.id, "tpot_ms"], of[row.id, "ttft_ms"]) == approx((expected.tpot_s * 1e3, expected.ttft_s * 1e3))
    asked = [row for row in [*ROWS, *ONLINE] if row.concurrency is not None]
    figures = sum((not row.excluded_tpot) + (not row.excluded_ttft) for row in asked)
    assert len(answer.by_defaults) == figures
    assert set(answer.figures()["metrics_by_engine_defaults"]) == {"tpot_ms", "ttft_ms"}


def test_all_closed_loops_stand_beside_those_that_are_scored(answer: SpeedAccuracy) -> None:
    asked = [row for row in [*ROWS, *ONLINE] if row.concurrency is not None]
    assert Counter(c.metric for c in answer.with_left_out) == {"tpot_ms": len(asked), "ttft_ms": len(asked)}
    scored = {(c.row, c.metric): c for c in answer.comparisons if label(c, "how") == "served"}
    every = {(c.row, c.metric): c for c in answer.with_left_out}
    assert scored.items() <= every.items()
    ttft = [c for c in answer.with_left_out if c.metric == "ttft_ms"]
    assert answer.figures()["metrics_with_left_out_rows"]["ttft_ms"] == metric_of(ttft)


def test_rows_that_wait_for_a_place_say_so(answer: SpeedAccuracy) -> None:
    said = {label(c, "queues") for c in answer.comparisons if label(c, "how") == "served"}
    assert said == {"yes", "no"}


def test_models_are_left_out_by_kind_too() -> None:
    rows = [
        replace(made_up(predicted, left_out=name, kind=kind), row=f"{place}")
        for place, (predicted, name, kind) in enumerate(
            [(110.0, "model", "dense"), (130.0, "model", "experts"), (90.0, "device", "dense")]
        )
    ]
    empty: dict[str, Any] = dict.fromkeys(("comparisons", "with_left_out", "bare", "by_defaults", "excluded"), ())
    found = SpeedAccuracy(
        data="x", by=(), simulate=False, left_out=tuple(rows), constants=(), rows=3, **empty
    ).left_out_by_kind
    assert {name: metrics["tpot_ms"].median_ape for name, metrics in found.items()} == approx(
        {"device": 0.1, "model": 0.2, "model, dense": 0.1, "model, experts": 0.3}
    )
