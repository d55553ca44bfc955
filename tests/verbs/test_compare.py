"""``roofplan compare`` through the installed console script: rows that differ, files, formats, pictures, exit codes."""

import csv
import io
import json
from pathlib import Path

import pytest
from console import answer, run
from pytest import approx

import roofplan
from roofplan import cli

DEVICES = ("compare", "--model", "llama-3.1-8b", "h100-sxm", "h200", "mi300x")
WORKLOAD = ("--prompt", "4096", "--output", "512", "--concurrency", "64")
FILE = "schema: roofplan/deployment/v1\nmodel: llama-3.1-8b\nhardware: {}\nprompt: 4096\noutput: 512\nconcurrency: 64\n"


def rows_of(said: dict[str, object]) -> dict[str, dict[str, object]]:
    return {row["figure"]: row for row in said["result"]["rows"]}


def test_json_has_the_rows_that_differ_and_what_is_the_same() -> None:
    said = answer(*DEVICES, *WORKLOAD)
    assert (said["schema"], said["command"]) == ("roofplan/result/v1", "compare")
    assert set(said["result"]) == {"alternatives", "rows", "same", "marks"}
    labels = ["h100-sxm5-80gb", "h200-sxm-141gb", "mi300x"]
    assert [one["label"] for one in said["result"]["alternatives"]] == labels
    for row in said["result"]["rows"]:
        assert set(row) == {"figure", "asked", "values", "ratios", "best"}
        assert list(row["values"]) == labels
    rows = rows_of(said)
    assert rows["inputs.hardware"]["values"] == {name: name for name in labels}
    assert "model.weights_bytes" not in rows
    assert {"figure": "model.weights_bytes", "value": 16060522496} in said["result"]["same"]
    ratio = rows["work.decode_whole_step_s"]["ratios"]["h200-sxm-141gb"]
    assert ratio == approx(3.35 / 4.8, rel=0.01)  # decode is bound by the bandwidth of the datasheets
    for label, device in zip(labels, ("h100-sxm", "h200", "mi300x"), strict=True):
        sized = roofplan.size("llama-3.1-8b", device, prompt=4096, output=512, concurrency=64)
        assert rows["latency.tpot_s"]["values"][label]["expected"] == sized.times.latency.tpot_s.expected


def test_the_library_gives_the_same_answer() -> None:
    result = roofplan.compare("h100-sxm", "h200", "mi300x", model="llama-3.1-8b")
    assert json.loads(json.dumps(result.to_dict())) == answer(*DEVICES)


def test_formats_and_settings_are_combined() -> None:
    said = answer("compare", "llama-3-70b", "h100-sxm", "--devices", "4", "--weights", "bf16,fp8", "--kv", "bf16,fp8")
    labels = [one["label"] for one in said["result"]["alternatives"]]
    assert labels == ["bf16 · kv bf16", "bf16 · kv fp8", "fp8 · kv bf16", "fp8 · kv fp8"]
    rows = rows_of(said)
    assert rows["kv.bytes_per_token"]["values"]["fp8 · kv fp8"] == 327680 // 2
    assert list(rows)[:3] == ["inputs.weights", "inputs.kv", "inputs.activations"]


def test_deployment_files_are_compared(tmp_path: Path) -> None:
    (tmp_path / "today.yaml").write_text(FILE.format("h100-sxm"))
    (tmp_path / "planned.yaml").write_text(FILE.format("h200") + "name: next year\nkv: fp8\nusd_per_hour: 2.0\n")
    said = answer("compare", str(tmp_path / "today.yaml"), str(tmp_path / "planned.yaml"))
    assert [one["label"] for one in said["result"]["alternatives"]] == ["today", "next year"]
    assert rows_of(said)["inputs.kv"]["values"] == {"today": "bf16", "next year": "fp8"}
    assert said["inputs"]["alternatives"]["next year"]["usd_per_device_hour"] == 2.0
    both = answer("compare", str(tmp_path / "today.yaml"), "llama-3.1-8b", "h200", *WORKLOAD)
    assert [one["label"] for one in both["result"]["alternatives"]] == ["llama-3.1-8b", "today"]
    twice = answer("compare", str(tmp_path / "today.yaml"), str(tmp_path / "today.yaml"))
    assert [one["label"] for one in twice["result"]["alternatives"]] == ["today", "today (2)"]
    assert twice["result"]["rows"] == []


def test_text_shows_differences_with_factors() -> None:
    done = run(*DEVICES, *WORKLOAD)
    assert (done.returncode, done.stderr) == (0, "")
    for fragment in (
        "All fit",
        "shortest TPOT: h200-sxm-141gb",
        "Throughput",
        "Latency",
        "Memory per device",
        "x)",
        "best",
    ):
        assert fragment in done.stdout
    assert "weights" not in done.stdout  # the same on all
    assert "figures differ by less" in done.stdout


def test_markdown_and_csv() -> None:
    assert run(*DEVICES, "--format", "markdown").stdout.startswith(
        "## h100-sxm5-80gb against h200-sxm-141gb against mi300x"
    )
    rows = list(csv.DictReader(io.StringIO(run(*DEVICES, "--format", "csv").stdout)))
    by_name = {row["figure"]: row for row in rows}
    said = rows_of(answer(*DEVICES))
    assert float(by_name["latency.tpot_s.expected"]["mi300x"]) == said["latency.tpot_s"]["values"]["mi300x"]["expected"]
    assert by_name["latency.tpot_s.expected"]["best"] == said["latency.tpot_s"]["best"]


def test_nothing_that_fits_exits_1() -> None:
    done = run("compare", "llama-3-70b", "rtx-4090", "rtx-3090")
    assert done.returncode == 1
    assert "None of them fits" in done.stdout
    some = run("compare", "llama-3-70b", "llama-3.1-8b", "rtx-4090")
    assert some.returncode == 0
    assert "Fitting: llama-3.1-8b" in some.stdout


def test_a_picture_is_the_same_each_time(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.svg" for number in range(2)]
    for file in files:
        assert run(*DEVICES, *WORKLOAD, "-o", str(file)).returncode == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    done = run(*DEVICES, "-o", str(files[0]))
    assert done.returncode == 2
    assert "--force replaces it" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compare",), "compare: got nothing, want 2 to 16"),
        (("compare", "gpt2", "h200"), "got one deployment, want 2 to 16"),
        (("compare", "gpt2", "h200", "h200"), "got h200-sxm-141gb twice"),
        (("compare", "gpt2", "h200", "\x1b[31mx"), "got \\x1b[31mx, want a model, a device"),
        (("compare", "gpt2", "h200", "--kv", "fp8,fp8"), "--kv: got fp8,fp8"),
        (("compare", "nothing.yaml", "gpt2", "h200"), "nothing.yaml: file: got no such file"),
        (("compare", "--model", "gpt3x", "h200", "h100-sxm"), "got gpt3x"),
        (("compare", "gpt2", "h200", "h100-sxm", "-o", "x.gif"), "got .gif"),
        (("compare", "gpt2", "h200", "h100-sxm", "--size", "800x600"), "--size: got no picture"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.run([*words])
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert said in err
    assert err.startswith("roofplan: ")
    assert err[:-1].isprintable()


def test_options_do_not_change_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(FILE.format("h200"))
    code = cli.run(["compare", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"), "--prompt", "5"])
    assert code == 2
    assert "--prompt: got an option beside deployment files" in capsys.readouterr().err
