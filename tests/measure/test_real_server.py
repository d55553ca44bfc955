"""A real server measured as a client: ``transformers serve`` on the loopback interface, with a tiny Llama of random weights."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import console
import pytest
import tiny_llama

from roofplan.errors import MeasureError
from roofplan.measure.server import run_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roofplan.measure.records import Run

pytest.importorskip("fastapi")
pytest.importorskip("transformers.cli.serve")

STARTS_WITHIN_S = 90
OUTPUT = 6


@dataclass(frozen=True)
class Served:
    address: str
    folder: Path
    log: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("served")
    folder = tiny_llama.make(home / "tiny")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("transformers")
    settings = {
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HOME": str(home / "hub"),
        "CUDA_VISIBLE_DEVICES": "",
    }
    log = home / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [program, "serve", folder, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"],
            stdout=out,
            stderr=out,
            env=os.environ | settings,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(address, process, log)
        yield Served(address, folder, log)
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()


def _wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        with suppress(OSError, urllib.error.URLError), urllib.request.urlopen(f"{address}/health", timeout=2):
            return
        time.sleep(0.2)
    pytest.fail(f"no server within {STARTS_WITHIN_S} s: {log.read_text()}")


@pytest.fixture(scope="module")
def run(served: Served) -> Run:
    return run_server(
        served.address,
        concurrency="1,4",
        rate="8",
        prompt=40,
        output=OUTPUT,
        requests=8,
        warm_up=2,
        most_s=20,
        model=served.folder,
        hardware="tr-pro-5975wx",
        options={"max_num_seqs": 1, "weights": "all=fp32", "kv": "fp32", "activations": "fp32"},
    )


def test_every_request_is_answered_in_full_and_counted_by_the_server(run: Run) -> None:
    for record in run.records:
        assert record.parameters["requests"] == 8
        assert record.parameters["failed"] == record.parameters["cut"] == 0
        assert record.parameters["prompt_tokens"] == 40  # one token per word
        assert record.parameters["output_tokens"] == OUTPUT  # the model has no end token
        assert record.parameters["api"] == "completions"


def test_the_figures_of_a_load_agree_with_one_another(run: Run) -> None:
    for clients in (1, 4):
        found = {r.name: r for r in run.records if r.parameters.get("concurrency") == clients}
        ttft, tpot, e2e = (found[f"server.{name}"].parameters["mean"] for name in ("ttft", "tpot", "e2e"))
        assert e2e == pytest.approx(ttft + (OUTPUT - 1) * tpot)
        per_s = found["server.output_tokens_per_s"].measured.median
        assert 0 < per_s <= 1.5 * clients * OUTPUT / e2e
    # It serves one request at a time, so that of four clients three wait.
    alone, both = (
        next(r for r in run.named("server.ttft") if r.parameters.get("concurrency") == clients) for clients in (1, 4)
    )
    assert both.parameters["mean"] > alone.parameters["mean"]


def test_what_the_server_does_not_understand_is_said(run: Run, served: Served) -> None:
    assert any("does not take ignore_eos" in note for note in run.notes)
    log = served.log.read_text()
    assert "Ignoring unsupported fields" in log
    assert "stream_options" in log  # and yet it sends counts


def test_measured_stands_beside_predicted(run: Run) -> None:
    for record in run.records:
        assert record.predicted_datasheet
        assert record.predicted_measured is None
        assert record.ratio == pytest.approx(record.measured.median / record.predicted_datasheet)
    at_rate = next(r for r in run.named("server.requests_per_s") if r.parameters.get("rate") == 8)
    assert at_rate.predicted_datasheet == pytest.approx(8)


def test_chat_counts_the_words_of_its_template(served: Served) -> None:
    run = run_server(served.address, concurrency=1, prompt=30, output=3, requests=3, warm_up=0, most_s=10, api="chat")
    assert run.records[0].parameters["api"] == "chat"
    assert run.records[0].parameters["prompt_tokens"] == 30
    assert run.records[0].parameters["output_tokens"] == 3


def test_a_model_that_it_does_not_serve(served: Served) -> None:
    with pytest.raises(MeasureError, match="Server is pinned") as found:
        run_server(served.address, concurrency=1, prompt=30, output=3, served_model="other/model")
    assert "\n" not in str(found.value)


def test_the_command_line_measures_it(served: Served, tmp_path: Path) -> None:
    kept = tmp_path / "run.json"
    done = console.run(
        "measure", "server", served.address, "--concurrency", "1", "--prompt", "20", "--output", "3", "--requests", "3",
        "--warm-up", "1", "--most-time", "10 s", "--json", str(kept),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "measuring" in done.stderr
    for figure in ("ttft", "tpot", "output.tokens.per.s"):
        assert re.search(figure, done.stdout), done.stdout
    assert kept.exists()
