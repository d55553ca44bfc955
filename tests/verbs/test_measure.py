"""``roofplan measure`` through the installed console script: real measurements of a tiny model, files, formats, exit codes, wrong input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from console import SCRIPT, run
from measured import cpu_run, run_of, steady

from roofplan.measure import records
from roofplan.measure.overlay import overlay, to_yaml
from roofplan.measure.records import Record

TINY = """
schema: roofplan/model/v1
name: tiny
sources: [{kind: user, source: a test}]
hidden_size: 64
vocab_size: 256
tied_embeddings: true
layers:
  - count: 2
    attention: [{kind: full, num_heads: 4, num_kv_heads: 2, head_dim: 16}]
    mlp: [{kind: gated, intermediate_size: 96}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, a measured machine, and runs to compare."""
    made = tmp_path_factory.mktemp("measure")
    (made / "tiny.yaml").write_text(TINY, encoding="utf-8")
    (made / "machine.yaml").write_text(to_yaml(overlay(cpu_run())), encoding="utf-8")
    records.save(cpu_run(), made / "a.json")
    slower = [replace(r, measured=steady(1.5 * r.measured.median)) for r in cpu_run().records]
    records.save(run_of(slower), made / "b.json")
    return made


@pytest.fixture(scope="module")
def decoded(folder: Path) -> subprocess.CompletedProcess[str]:
    """One real run, whose outputs several tests look at."""
    own = ("--model", "tiny.yaml", "--hardware", "machine.yaml", "--device", "cpu", "--quick")
    files = ("--json", "run.json", "-o", "page.html")
    return run("measure", "decode", *own, *files, "--format", "json", "--samples", cwd=folder)


def test_a_real_run(decoded: subprocess.CompletedProcess[str]) -> None:
    assert decoded.returncode == 0, decoded.stderr
    said = json.loads(decoded.stdout)
    assert (said["schema"], said["command"]) == ("roofplan/result/v1", "measure")
    assert said["inputs"] == {"what": "decode", "quick": True, "device": "cpu"}
    names = {record["name"] for record in said["result"]["records"]}
    assert names == {"decode.step", "prefill.prompt"}
    for record in said["result"]["records"]:
        assert record["unit"] == "s"
        assert record["measured"] > 0
        assert record["predicted"] is not None
        assert record["predicted_datasheet"] is None
        assert record["spread"]["count"] == len(record["samples"])
    assert said["result"]["environment"]["versions"]["torch"]


def test_progress_goes_to_standard_error(decoded: subprocess.CompletedProcess[str]) -> None:
    assert [line.split(" (")[0] for line in decoded.stderr.splitlines()] == ["measuring decode", "measuring prefill"]


def test_the_run_is_kept_whole(decoded: subprocess.CompletedProcess[str], folder: Path) -> None:
    kept = records.load(folder / "run.json")
    said = json.loads(decoded.stdout)["result"]["records"]
    assert [record.measured.median for record in kept.records] == [record["measured"] for record in said]
    assert kept.environment.kind == "cpu"
    assert kept.quick


def test_the_page(decoded: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert decoded.returncode == 0
    text = (folder / "page.html").read_text(encoding="utf-8")
    assert "Decode steps" in text
    assert "<svg" not in text  # no ceilings, no roof


def test_ctrl_c_keeps_what_there_is(folder: Path, tmp_path: Path) -> None:
    """Interrupted in its second experiment: the records of the first are in a file, and the exit code is 130."""
    own = ["--model", str(folder / "tiny.yaml"), "--hardware", str(folder / "machine.yaml"), "--device", "cpu"]
    process = subprocess.Popen(
        [str(SCRIPT), "measure", "decode", *own, "--quick"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("measuring prefill"):
            process.send_signal(signal.SIGINT)
            break
    out, rest = process.communicate(timeout=60)
    assert process.returncode == 130, rest
    assert out == ""
    assert "measurements are kept in roofplan-measured-decode-partial.json" in rest
    kept = records.load(tmp_path / "roofplan-measured-decode-partial.json")
    assert {record.name for record in kept.records} >= {"decode.step"}
    assert "interrupted" in kept.notes


# ------------------------------------------------------------------------------------------------ the measured machine


@pytest.mark.parametrize(
    "words",
    [
        ("hardware", "lint", "machine.yaml"),
        ("hardware", "show", "machine.yaml"),
        ("size", "llama-3.2-1b", "machine.yaml"),
        ("roofline", "llama-3.2-1b", "machine.yaml"),
        ("sweep", "llama-3.2-1b", "machine.yaml", "--over", "batch=1,8"),
        ("advise", "llama-3.2-1b", "machine.yaml"),
        ("speculate", "llama-3.2-1b", "machine.yaml", "--draft-cost", "0.1", "--acceptance", "0.8"),
        ("claim", "1 tok/s", "llama-3.2-1b", "machine.yaml"),
        ("compare", "--model", "llama-3.2-1b", "machine.yaml", "h100-sxm"),
    ],
)
def test_every_verb_takes_it_as_hardware(folder: Path, words: tuple[str, ...]) -> None:
    done = run(*words, cwd=folder)
    assert done.returncode in {0, 1}, done.stderr
    assert done.stderr == ""
    assert "measured" in done.stdout or words[0] == "hardware"


# ------------------------------------------------------------------------------------------------ comparing


def test_comparing_a_run_with_itself(folder: Path) -> None:
    done = run("measure", "compare", "a.json", "a.json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Nothing differs" in done.stdout


def test_comparing_a_slower_run(folder: Path) -> None:
    done = run("measure", "compare", "a.json", "b.json", "-o", "compared.html", cwd=folder)
    assert done.returncode == 1
    assert f"{len(cpu_run().records)} of {len(cpu_run().records)} figures differ" in done.stdout
    assert "slower" in (folder / "compared.html").read_text(encoding="utf-8")
    said = json.loads(run("measure", "compare", "b.json", "a.json", "--format", "json", cwd=folder).stdout)
    assert {row["verdict"] for row in said["result"]["rows"]} == {"faster"}


def test_samples_that_scatter_are_not_told_apart(folder: Path) -> None:
    """Medians 5 % apart, within a scatter of 20 %."""
    for name, by in (("c.json", 1.0), ("d.json", 1.05)):
        times = [by * (1 + 0.04 * place) for place in range(10)]
        measured = replace(steady(1.0), samples=tuple(times), median=sorted(times)[5])
        records.save(run_of([Record("x.y", "s", measured)]), folder / name)
    assert run("measure", "compare", "c.json", "d.json", cwd=folder).returncode == 0


# ------------------------------------------------------------------------------------------------ help and wrong input


def test_help_names_every_command() -> None:
    said = run("measure", "--help").stdout
    for name in ("ceilings", "decode", "cache", "batching", "quantization", "speculation", "collectives", "all"):
        assert f" {name} " in said
    for name in ("compare", "hf", "server"):
        assert f" {name} " in said


@pytest.mark.parametrize("name", ["ceilings", "decode", "all", "compare", "hf", "server"])
def test_help_begins_with_examples(name: str) -> None:
    said = run("measure", name, "--help").stdout
    assert f"roofplan measure {'--quick' if name == 'all' else name}" in " ".join(said.split())
    assert "130 interrupted" in said or name == "compare"


def _wrong(*words: str, says: str, **options: Any) -> None:
    done = run("measure", *words, **options)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert says in line
    assert "Traceback" not in line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("decode", "--device", "cuda"), "--device: got cuda, want a device that torch has: cpu"),
        (("decode", "--device", "tpu"), "--device: got tpu, want cpu, cuda, cuda:1"),
        (("decode", "--device", "cpu", "--model", "no-such-model"), "no-such-model"),
        (("decode", "--device", "cpu", "--hardware", "no-such-device"), "no-such-device"),
        (("--device", "tpu"), "--device: got tpu"),  # all may be left out
        (("--quick", "--device", "tpu"), "--device: got tpu"),
        (("everything",), "No such command"),
        (("decode", "--json", "run.txt"), "a name that ends in .json"),
        (("decode", "--save", "machine.txt"), "a name that ends in .yaml"),
        (("decode", "-o", "page.txt"), ".txt"),
        (("decode", "--json", "no/such/folder/run.json"), "folder"),
        (("decode", "--size", "9x9"), "--size"),
        (("compare", "none.json", "none.json"), "none.json"),
        (("hf", "no-such-folder"), "no-such-folder"),
        (("server", "not a url"), "not a url"),
        (("server", "http://127.0.0.1:9", "--model", "llama-3.1-8b"), "--hardware"),
        (("server", "http://127.0.0.1:9", "--api", "telepathy"), "--api"),
    ],
)
def test_wrong_input(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    _wrong(*words, says=says, cwd=tmp_path)


def test_existing_files_are_not_replaced(folder: Path) -> None:
    _wrong("decode", "--json", "a.json", says="--force", cwd=folder)
    _wrong("decode", "--save", "machine.yaml", says="--force", cwd=folder)


def test_no_torch_names_the_extra(tmp_path: Path) -> None:
    code = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    (tmp_path / "torch.py").write_text(code, encoding="utf-8")
    _wrong("ceilings", says="pip install 'roofplan[measure]'", env={"PYTHONPATH": str(tmp_path)})


def test_files_that_are_no_runs(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"schema": "roofplan/measured/v9"}', encoding="utf-8")
    _wrong("compare", "x.json", "x.json", says="roofplan/measured/v9", cwd=tmp_path)


def test_saving_without_ceilings(folder: Path) -> None:
    own = ("--model", "tiny.yaml", "--hardware", "machine.yaml", "--device", "cpu", "--quick")
    _wrong("decode", *own, "--save", "new.yaml", says="--save: got decode with a measured machine", cwd=folder)
    _wrong("collectives", "--save", "new.yaml", says="--save: got collectives", cwd=folder)
    assert not (folder / "new.yaml").exists()


def test_nothing_heavy_is_loaded_for_help() -> None:
    script = (
        "import sys\nfrom roofplan.cli import run\nrun(['measure', '--help'])\n"
        "assert not {'torch', 'numpy', 'httpx', 'transformers', 'matplotlib', 'pynvml'} & set(sys.modules)"
    )
    python = SCRIPT.with_name("python")
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
