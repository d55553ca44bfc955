"""The comparison with other tools: its own parts, without the other tools."""

import importlib.util
import json
import math
import sys
from pathlib import Path

import pytest

import roofplan
from roofplan.accuracy.serving import read_rows
from roofplan.planner.parameters import count_parameters

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"


@pytest.fixture(scope="module")
def peers():
    """The modules by name; they find one another as they do when compare.py is run."""
    names = ("simple", "aiconfigurator_worker", "compare")
    modules = {}
    for name in names:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        modules[name] = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(modules[name])
    yield modules
    for name in names:
        del sys.modules[name]


@pytest.fixture(scope="module")
def rows():
    return [row for row in read_rows() if not (row.excluded_tpot and row.excluded_ttft)]


def test_blog_rule_is_what_it_says(peers):
    d = roofplan.deployment("llama-3.1-70b", "h100-sxm", devices=8, prompt=1000, output=100, concurrency=16)
    ttft, tpot = peers["simple"].blog_rule(d)
    parameters = count_parameters(d.model).total
    assert ttft == pytest.approx(2 * parameters * 1000 / (0.5 * 989.4e12 * 8), rel=1e-3)
    assert tpot == pytest.approx(2 * parameters / (0.85 * 3.35e12 * 8), rel=1e-3)


def test_overlapped_is_a_bound_of_one_step(peers):
    d = roofplan.deployment("llama-3.1-8b", "h100-sxm", prompt=1024, output=256, concurrency=8)
    ttft, tpot = peers["simple"].overlapped(d)
    weights = 2 * (count_parameters(d.model).total - d.model.vocab_size * d.model.hidden_size)
    assert tpot == pytest.approx((weights + 8 * (1024 + 128) * 131072) / 3.35e12, rel=1e-3)
    assert 2 * 6.9e9 * 1024 / 989.4e12 < ttft < 2 * 8.1e9 * 1024 / 989.4e12


def test_every_row_can_be_asked(peers, rows):
    worker, compare = peers["aiconfigurator_worker"], peers["compare"]
    for row in rows:
        plain, told = (worker.questions(compare.question(row, tool)) for tool in compare.PEERS)
        for asked in (*plain, *told):
            assert asked["moe_tp_size"] * asked["moe_ep_size"] == asked["tp_size"] * asked["attention_dp_size"]
            assert asked["batch_size"] >= 1
        assert "kvcache_quant_mode" not in plain[0]
        assert told[0]["kvcache_quant_mode"] in {"bfloat16", "fp8"}
        assert told[0]["isl"] <= plain[0]["isl"]


def test_reason_names_no_path_of_the_machine(peers):
    reason = peers["aiconfigurator_worker"]._reason
    assert (
        reason(ValueError("no table at /tmp/c/gemm.parquet\nfor fp8")) == "ValueError: no table at gemm.parquet for fp8"
    )
    assert reason(RuntimeError("OOM: the model")) == "does not fit, by its estimate of memory"


def worker_of(folder, text):
    """A stand-in for the other tool's Python: a script that is run instead."""
    script = folder / "python"
    script.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
    script.chmod(0o755)
    return str(script)


ANSWERS_ONE = """
import json, sys
row = json.loads(sys.stdin.readline())
print(json.dumps({"id": row["id"], "tpot_ms": 1.5, "ttft_ms": 20.0, "note": ""}), flush=True)
"""


def test_rows_that_a_worker_does_not_reach_have_a_reason(peers, rows, tmp_path):
    compare = peers["compare"]
    found = compare.ask_peer(worker_of(tmp_path, ANSWERS_ONE + "sys.exit(9)"), rows[:2])
    first, second = (found[compare.PEERS[0]][row.id] for row in rows[:2])
    assert first == compare.Prediction(1.5, 20.0)
    assert second == compare.Prediction(None, None, "the process ended with code 9")


def test_a_worker_that_hangs_is_left(peers, rows, tmp_path, monkeypatch):
    compare = peers["compare"]
    monkeypatch.setattr(compare, "PEER_SECONDS", 2)
    found = compare.ask_peer(worker_of(tmp_path, ANSWERS_ONE + "import time; time.sleep(60)"), rows[:2])
    assert [found[compare.PEERS[0]][row.id].note for row in rows[:2]] == ["", "not reached within 2 s"]


def test_a_worker_without_the_tool_stops_the_run(peers, rows, tmp_path):
    with pytest.raises(SystemExit, match="ended with code 2"):
        peers["compare"].ask_peer(worker_of(tmp_path, "import sys; sys.exit(2)"), rows[:1])


def test_stored_answers_come_back(peers, rows, tmp_path):
    compare, few = peers["compare"], rows[:3]
    said = [
        compare.Prediction(7.25, 81.5),
        compare.Prediction(None, None, "no, thanks"),
        compare.Prediction(1e-3, 1234.0),
    ]
    found = {tool: dict(zip((row.id for row in few), said, strict=True)) for tool in compare.TOOLS}
    compare.store(few, found, tmp_path / "results.csv")
    assert compare.stored(tmp_path / "results.csv") == {tool: found[tool] for tool in compare.PEERS}


def test_table_keeps_common_rows_apart(peers, rows):
    compare = peers["compare"]
    few = [row for row in rows if not row.excluded_tpot][:4]
    exact = {row.id: compare.Prediction(row.tpot_s * 1e3, row.ttft_s * 1e3) for row in few}
    half = {row.id: compare.Prediction(row.tpot_s * 500, row.ttft_s * 1e3) for row in few[1:]}
    found = dict.fromkeys(compare.TOOLS, exact) | {compare.PEERS[0]: {few[0].id: compare.NOT_ASKED, **half}}
    lines = {(line[0], line[1]): line[2:] for line in compare.table_of(few, found, "tpot_ms")}
    assert lines["all", compare.PEERS[0]] == ["3 of 4", "3", "50.0%", "50.0%", "-50.0%", "50.0%", "50.0%"]
    assert lines["all", "roofplan"] == ["4 of 4", "3", "0.0%", "0.0%", "+0.0%", "0.0%", "0.0%"]


def test_ours_answer_in_milliseconds(peers, rows):
    compare, row = peers["compare"], rows[0]
    for tool in compare.OURS:
        said = compare.ask_ours(tool, row)
        assert 0 < said.tpot_ms < 1000
        assert 0 < said.ttft_ms < 1e5
        assert math.isfinite(said.ttft_ms)
    assert json.dumps(compare.question(row, compare.PEERS[1]))
