"""``roofplan measure hf`` and ``roofplan measure server`` through the console script."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import console
import pytest
import tiny_llama
from measured import cpu_run
from unruly_server import Answer, Request, good, unruly

from roofplan.errors import SpecError
from roofplan.measure import records
from roofplan.measure.results import MeasureResult
from roofplan.verbs import measured_clients

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ("--prompt", "24", "--output", "4", "--requests", "4", "--warm-up", "0", "--concurrency", "1")


def test_server_prints_records_in_json() -> None:
    with unruly(good) as server:
        done = console.run("measure", "server", server.address, *SMALL, "--format", "json", "--samples")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["command"] == "measure"
    records = {record["name"]: record for record in said["result"]["records"]}
    assert records["server.ttft"]["spread"]["count"] == 4
    assert len(records["server.ttft"]["samples"]) == 4
    assert records["server.tpot"]["unit"] == "s"
    assert records["server.tpot"]["predicted"] is None
    assert said["result"]["environment"]["kind"] == "client"


def test_server_takes_every_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Request] = []

    def chat(request: Request) -> Answer:
        asked.append(request)
        return good(request)

    with unruly(chat) as server:
        done = console.run(
            "measure", "server", server.address, "--rate", "40", "--prompt", "20", "--output", "2", "--requests", "5",
            "--warm-up", "1", "--most-time", "5 s", "--timeout", "3", "--seed", "7", "--served-model", "mine", "--api", "chat",
            "--api-key-env", "KEY_OF_THE_TEST", "--quick", "--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--engine", "vllm@0.19",
            "--tp", "2", "--weights", "fp8", "--kv", "fp8", "--max-num-seqs", "64", "--max-num-batched-tokens", "4096",
            "--max-model-len", "8192", "--memory-utilization", "0.8", "--json", str(tmp_path / "run.json"), "--format", "json",
            env={"KEY_OF_THE_TEST": "sk-of-the-test"},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert asked[-1].headers["authorization"] == "Bearer sk-of-the-test"
    assert asked[-1].body["model"] == "mine"
    assert asked[-1].path == "/v1/chat/completions"
    assert not [request for request in asked if request.method == "GET"]
    said = json.loads(done.stdout)
    assert all(record["predicted_datasheet"] for record in said["result"]["records"])
    kept = json.loads((tmp_path / "run.json").read_text())
    assert kept["schema"] == "roofplan/measured/v1"
    assert "sk-of-the-test" not in done.stdout + done.stderr + json.dumps(kept)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("http://127.0.0.1:1",), "no connection"),
        (("localhost:8000",), "URL"),
        (("http://127.0.0.1:1", "--concurrency", "0"), "--concurrency"),
        (("http://127.0.0.1:1", "--rate", "fast"), "--rate"),
        (("http://127.0.0.1:1", "--model", "llama-3.1-8b"), "--hardware"),
        (("http://127.0.0.1:1", "--hardware", "h1000"), "h1000"),
        (("http://127.0.0.1:1", "--api-key-env", "NO_SUCH_VARIABLE_OF_ROOFPLAN"), "--api-key-env"),
    ],
)
def test_server_that_cannot_be_measured(arguments: tuple[str, ...], wanted: str) -> None:
    done = console.run("measure", "server", *arguments)
    assert done.returncode == 2, done.stdout
    assert wanted in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_control_c_keeps_the_loads_that_were_measured(tmp_path: Path) -> None:
    """The second load hangs; an interruption ends the run with 130 and a file that holds the first."""
    kept = tmp_path / "run.json"

    def second_hangs(request: Request) -> Answer:
        return good(request, pause_s=30) if request.number >= 8 else good(request)

    with unruly(second_hangs) as server:
        arguments = [*SMALL[:-1], "1,2", "--json", str(kept)]
        process = subprocess.Popen(
            [str(console.SCRIPT), "measure", "server", server.address, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until = time.monotonic() + 30
        while sum(request.method == "POST" for request in server.asked) < 9 and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    assert out == ""
    said = json.loads(kept.read_text())
    assert said["notes"][-1] == "interrupted"
    assert {record["parameters"]["concurrency"] for record in said["records"]} == {1}


def test_what_cannot_be_kept_does_not_hide_what_ended_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured_clients.keep(cpu_run(), tmp_path / "gone" / "run.json")
    said = capsys.readouterr().err
    assert said.startswith(f"not finished: {len(cpu_run().records)} measurements are lost: ")
    assert "run.json" in said
    assert said.count("\n") == 1
    measured_clients.keep(cpu_run(), tmp_path / "run.json")
    assert "are kept in" in capsys.readouterr().err


def test_a_file_that_appears_meanwhile_is_left_and_the_run_is_kept_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "run.json"
    other.write_text("mine", encoding="utf-8")
    with pytest.raises(SpecError, match="--force"):
        measured_clients.write(MeasureResult(cpu_run()), None, other, force=False, samples=False)
    assert other.read_text(encoding="utf-8") == "mine"
    assert records.load(tmp_path / "roofplan-measured-ceilings-partial.json") == cpu_run()
    assert "are kept in" in capsys.readouterr().err


def test_hf_measures_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    folder = tiny_llama.make(tmp_path / "tiny")
    done = console.run(
        "measure", "hf", str(folder), "--tokens", "12", "--prompt", "4", "--formats", "stored", "--device", "cpu",
        "--hardware", "tr-pro-5975wx", "--format", "json",
        env={"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)["result"]["records"]
    assert {record["name"] for record in records} >= {
        "hf.token",
        "hf.tokens_per_s",
        "hf.weights",
        "hf.cache",
        "hf.cache_saving",
    }
    assert next(r for r in records if r["name"] == "hf.weights")["measured"] == tiny_llama.PARAMETERS * 4
    assert all(line.startswith("measuring ") for line in done.stderr.splitlines())  # no library talks


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("no/such/folder",), "nothing there"),
        ((".", "--formats", "int3"), "--formats"),
        ((".", "--tokens", "1"), "--tokens"),
    ],
)
def test_hf_that_cannot_be_measured(arguments: tuple[str, ...], wanted: str, tmp_path: Path) -> None:
    done = console.run("measure", "hf", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert wanted in done.stderr
    assert len(done.stderr.splitlines()) == 1
