"""Runs that were no servers under load: every series of the table is run as a rule says, and each kind of run by its own formula."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest import approx

import roofplan
from roofplan import engines, specfiles
from roofplan.accuracy import runs
from roofplan.accuracy.metrics import Comparison
from roofplan.accuracy.serving import DATA, read_speed_rows
from roofplan.accuracy.single_stream import SERIES
from roofplan.accuracy.truth import TruthRow, read_truth
from roofplan.documents import Document
from roofplan.errors import SpecError
from roofplan.planner.evidence import evidence_of
from roofplan.planner.load import Server, Traffic, closed_loop, saturated
from roofplan.planner.step import StepModel
from roofplan.planner.times import places_of

FILE = DATA / "speed.csv"
ROWS = read_truth(FILE, runs.COLUMNS)
BY_NAME = {row.name: row for row in ROWS}
RUNS = [(row, rule) for row, rule in runs.read_run_rows(FILE) if rule.how != "none"]

with FILE.open(encoding="utf-8", newline="") as _stream:
    CELLS = list(csv.DictReader(_stream))


def series(name: str) -> str:
    return name.partition("-")[0]


# ------------------------------------------------------------------------------------------------ every row once


def test_every_row_is_a_stream_or_has_a_rule() -> None:
    for row in ROWS:
        assert (series(row.name) in SERIES) != (runs.rule_of(row) is not None), row.name


def test_rows_are_counted_as_the_file_has_them() -> None:
    counted = Counter(series(cells["id"]) for cells in CELLS)
    ruled = Counter(series(row.name) for row, _ in runs.read_run_rows(FILE))
    assert ruled == {name: count for name, count in counted.items() if name not in SERIES}
    not_scored = Counter(series(row.name) for row, rule in runs.read_run_rows(FILE) if rule.how == "none")
    # Of VBLG the six figures of closed loops, of VBLD the three with lengths of a data set.
    assert not_scored == {"AICS": 1770, "TRTO": 270, "SPEC": 132, "VGST": 3, "VBLG": 6, "VBLD": 3}
    assert len(RUNS) == sum(ruled.values()) - sum(not_scored.values()) == 402


def test_what_is_said_to_be_scored_elsewhere_is() -> None:
    elsewhere = [row for row, rule in runs.read_run_rows(FILE) if "scored with the served rows" in rule.why]
    scored = Counter(series(row.id) for row in read_speed_rows(FILE) for _ in ("ttft_ms", "tpot_ms"))
    assert Counter(series(row.name) for row in elsewhere) == scored


def test_every_rule_is_used_and_says_why() -> None:
    used = {id(rule) for _, rule in runs.read_run_rows(FILE)}
    for rule in runs.rules().runs:
        assert id(rule) in used, rule
        if rule.how == "none":
            assert len(rule.why) >= 8
            assert not rule.engine
        else:
            assert len(rule.source) >= 8
            assert not rule.why
            assert engines.load(rule.engine).name.startswith(rule.engine.partition("@")[0])


def test_the_first_rule_that_fits_holds() -> None:
    assert runs.rule_of(BY_NAME["TRTB-0019"]).how == "single"
    assert runs.rule_of(BY_NAME["TRTB-0003"]).how == "static"
    assert runs.rule_of(BY_NAME["VBLD-0013"]).how == "none"  # ShareGPT
    assert runs.rule_of(BY_NAME["VBLG-0035"]).how == "closed"
    assert runs.rule_of(BY_NAME["VBLG-0001"]).how == "single"
    assert runs.rule_of(BY_NAME["SGLG-0001"]).how == "saturated_prefill"
    assert runs.rule_of(TruthRow({"id": "LCXJ-1"}, "here:2")) is None


@pytest.mark.parametrize("column", ["series", "engines", "gpus", "concurrency", "metrics", "lengths"])
def test_a_rule_fits_by_every_column_that_it_names(column: str) -> None:
    cells = {"id": "ABC-1", "engine": "e", "gpu": "g", "batch_or_concurrency": "8", "metric": "m", "isl": "5"}
    row = TruthRow(cells, "here:2")
    all_of = {
        "series": ("ABC",),
        "engines": ("e",),
        "gpus": ("g",),
        "concurrency": ("8",),
        "metrics": ("m",),
        "lengths": ("5",),
    }
    assert runs.RunRule(how="single", **all_of).fits(row)
    assert runs.RunRule(how="single", **{column: all_of[column]}).fits(row)
    assert not runs.RunRule(how="single", **{**all_of, column: ("other",)}).fits(row)


def test_every_run_is_answered() -> None:
    unanswered = {c.row: c.reason for c in (runs.compare_run(row, rule) for row, rule in RUNS) if c.predicted is None}
    assert not unanswered


# ------------------------------------------------------------------------------------------------ each kind by its formula


def compared(name: str) -> Comparison:
    row = BY_NAME[name]
    rule = runs.rule_of(row)
    assert rule is not None
    return runs.compare_run(row, rule)


def deployed(model: str, gpu: str, engine: str, **options: Any) -> tuple[Any, StepModel]:
    d = roofplan.deployment(model, gpu, engine=engine, **options)
    return d, StepModel.reached(d)


def test_one_request_decodes_step_by_step() -> None:  # 5 + 200 tokens: the mean context is 105
    d, model = deployed("llama-3.1-8b", "a100-sxm4-80gb", "gpt-fast", activations="bf16", prompt=5, output=200)
    found = compared("GPTF-0006")
    assert (found.measured, found.metric) == (93.89, "decode_tok_s_per_user")
    assert found.predicted == approx(1 / model.step_s(1, 105), rel=1e-12)
    width = evidence_of(d).width
    assert (found.low, found.high) == approx((found.predicted / width, found.predicted * width))


@pytest.mark.parametrize(("name", "context"), [("VBLG-0001", 64), ("VBLG-0003", 32768 + 64)])
def test_times_per_token_by_context(name: str, context: int) -> None:
    _, model = deployed("llama-3.1-8b", "h100-sxm", "vllm@0.19")
    assert compared(name).predicted == approx(model.step_s(1, context) * 1e3, rel=1e-12)


def test_prompts_of_one_request() -> None:
    d, model = deployed("nemotron-3-super-120b-a12b", "dgx-spark-gb10", "vllm@0.22", weights="nvfp4", prompt=7234)
    cut = [
        model.step_s(0, 0, chunk=size, past=past)
        for size, past in ((2048, 0), (2048, 2048), (2048, 4096), (1090, 6144))
    ]
    host = d.scheduling.request_overhead
    rate, ttft = compared("VBLG-0027"), compared("VBLG-0026")
    assert rate.predicted == approx(7234 / sum(cut), rel=1e-9)  # steps of 2048 tokens on this device
    assert ttft.predicted == approx((sum(cut) + host) * 1e3, rel=1e-9)


def test_a_static_batch() -> None:  # B G / (prompts together + (G - 1) steps at the mean context)
    _, model = deployed(
        "gpt-j-6b", "a100-sxm4-80gb", "tensorrt-llm@0.8", weights="fp16", kv="fp16", prompt=128, output=128
    )
    prompts = model.step_s(0, 0, chunk=64 * 128, pieces=64)
    whole = prompts + 127 * model.step_s(64, 128 + 64)
    assert compared("TRTB-0003").predicted == approx(64 * 128 / whole, rel=1e-9)
    vllm = {name: compared(name).predicted for name in ("VBLD-0003", "VBLD-0004")}
    assert vllm["VBLD-0003"] * vllm["VBLD-0004"] == approx(8 * 1000, rel=1e-9)  # two figures of one run


def server(d: Any, model: StepModel) -> Server:
    alone = replace(d.engine.scheduling, request_overhead=0.0)
    return Server(model=model, scheduling=alone, budget=d.max_batched_tokens, places=places_of(d), stages=d.layout.pp)


def test_offline_throughput_is_that_of_the_best_batch() -> None:
    name = next(cells["id"] for cells in CELLS if cells["id"].startswith("TRT10") and cells["model"] == "Llama-3.1-8B")
    row = BY_NAME[name]
    prompt, output, tp = (int(row.text(column)) for column in ("isl", "osl", "tp"))
    options = {"weights": row.text("weights_dtype"), "kv": row.text("kv_dtype"), "tp": tp}
    d, model = deployed("llama-3.1-8b", _device(row), "tensorrt-llm@1.0", prompt=prompt, output=output, **options)
    best = saturated(server(d, model), Traffic(prompt, output, 1))
    assert compared(name).predicted == approx(best.requests_per_s * output, rel=1e-9)


def _device(row: TruthRow) -> str:
    return {"H100-SXM": "h100-sxm", "H200": "h200", "B200": "b200"}.get(row.text("gpu"), row.text("gpu"))


def test_attention_in_parallel_over_the_data_counts_every_replica() -> None:
    row = BY_NAME["TRT12-0006"]
    assert "layout DEP8" in row.text("notes")
    d, model = deployed(
        "deepseek-r1-0528",
        "h200",
        "tensorrt-llm@1.1",
        weights="fp8",
        kv="fp8",
        tp=1,
        dp=8,
        ep=8,
        prompt=1024,
        output=1024,
    )
    best = saturated(server(d, model), Traffic(1024, 1024, 1))
    assert compared("TRT12-0006").predicted == approx(8 * best.requests_per_s * 1024, rel=1e-9)


def test_all_requests_at_once_without_graphs() -> None:
    d, model = deployed(
        "gpt-oss-20b", "arc-pro-b60", "vllm@0.9", weights="mxfp4", kv="bf16", eager=True, prompt=1024, output=1024
    )
    state = closed_loop(server(d, model), Traffic(1024, 1024, 75, waves=1))
    found = {
        metric: compared(name).predicted
        for metric, name in zip(("ttft", "tpot", "rate"), ("VBLG-0035", "VBLG-0036", "VBLG-0037"), strict=True)
    }
    assert found["ttft"] == approx(state.ttft_s * 1e3, rel=1e-9)
    assert found["tpot"] == approx(state.tpot_s * 1e3, rel=1e-9)
    assert found["rate"] == approx(75 * 1024 / (state.ttft_s + 1023 * state.tpot_s), rel=1e-9)


def test_prompts_without_end_fill_the_steps() -> None:  # 4065 tokens: two of them in 8192
    _, model = deployed("llama-3.1-8b", "h100-sxm", "sglang@0.3", prompt=4065, output=4)
    assert compared("SGLG-0001").predicted == approx(2 * 4065 / model.step_s(0, 0, chunk=2 * 4065, pieces=2), rel=1e-9)


def test_lengths_that_are_not_recorded_are_taken_as_the_rule_says() -> None:
    _, model = deployed("llama-3.1-8b", "h100-sxm", "sglang@0.4", prompt=256, output=256)
    assert compared("SGLG-0004").predicted == approx(1 / model.step_s(1, 256 + 128), rel=1e-9)


# ------------------------------------------------------------------------------------------------ what is not answered


def changed(name: str, **cells: str) -> Comparison:
    row = TruthRow({**BY_NAME[name].texts, **cells}, "here:2")
    rule = runs.rule_of(row)
    assert rule is not None
    return runs.compare_run(row, rule)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"model": "nobody/knows-it"}, "nobody/knows-it"),
        ({"gpu": "X1"}, "X1"),
        ({"weights_dtype": "fp3"}, "fp3"),
        ({"tp": "3"}, "divisor of the 32 heads"),
        ({"tp": "many"}, "here:2: tp: got many"),
        ({"isl": "short"}, "here:2: isl: got short"),
        ({"metric": "goodput"}, "goodput of a single run is not predicted"),
    ],
    ids=str,
)
def test_what_cannot_be_predicted_says_why(cells: dict[str, str], reason: str) -> None:
    found = changed("GPTF-0006", **cells)
    assert (found.predicted, found.low, found.high) == (None, None, None)
    assert reason in found.reason


# ------------------------------------------------------------------------------------------------ malformed rules

GOOD = {"series": ["ABC"], "how": "single", "engine": "plain", "source": "a test of rules"}


def test_rules_are_read_strictly() -> None:
    made = specfiles.validate(runs.RunRules, Document({"schema": "roofplan/runs/v1", "runs": [GOOD]}, "runs.yaml"))
    assert made.runs == (runs.RunRule(series=("ABC",), how="single", engine="plain", source="a test of rules"),)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"runs": [GOOD]},
        {"schema": "roofplan/runs/v2", "runs": [GOOD]},
        {"schema": "roofplan/runs/v1"},
        {"schema": "roofplan/runs/v1", "runs": GOOD},
        {"schema": "roofplan/runs/v1", "runs": [GOOD], "more": 1},
        {"schema": "roofplan/runs/v1", "runs": [{**GOOD, "how": "fast"}]},
        {"schema": "roofplan/runs/v1", "runs": [{"series": ["ABC"]}]},
        {"schema": "roofplan/runs/v1", "runs": [{**GOOD, "gpu": ["H100"]}]},
        {"schema": "roofplan/runs/v1", "runs": [{**GOOD, "series": "ABC"}]},
        {"schema": "roofplan/runs/v1", "runs": [{**GOOD, "eager": "yes"}]},
        {"schema": "roofplan/runs/v1", "runs": [{**GOOD, "lengths_taken": {"prompt": 5}}]},
        {"schema": "roofplan/runs/v1", "runs": [{**GOOD, "lengths_taken": {"prompt": "5k", "output": 5}}]},
    ],
    ids=str,
)
def test_malformed_rules_are_refused(data: Any) -> None:
    with pytest.raises(SpecError):
        specfiles.validate(runs.RunRules, Document(data, "runs.yaml"))


def test_a_malformed_file_names_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.yaml"
    path.write_text("schema: roofplan/runs/v1\nruns:\n  - {series: [A], how: fast}\n", encoding="utf-8")
    monkeypatch.setattr(runs, "_RULES", path)
    with pytest.raises(SpecError, match=r"runs\.yaml:3:\d+: runs\.0\.how: got 'fast'"):
        runs.rules.__wrapped__()
