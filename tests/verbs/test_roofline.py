"""``roofplan roofline`` through the installed console script: JSON, files, the terminal, exit codes."""

from __future__ import annotations

import csv
import io
import json
import resource
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from console import SCRIPT, answer, run
from pytest import approx

import roofplan

LINE = ("roofline", "llama-3.1-8b", "h100-sxm", "--prompt", "4096", "--output", "512", "--concurrency", "64")


def test_json_has_what_scripts_rely_on() -> None:
    said = answer(*LINE, "--batches", "1,64", "--ceilings", "nvlink")
    assert (said["schema"], said["command"]) == ("roofplan/result/v1", "roofline")
    result = said["result"]
    assert set(result) == {"ceilings", "operators", "steps", "measured"}
    operators = {"name", "phase", "flop", "bytes", "intensity", "time_s", "bound", "share", "hardware", "weights"}
    assert all(operators <= set(row) for row in result["operators"])
    (bf16,) = (row for row in result["ceilings"] if row["name"] == "bf16")
    assert bf16["ridge_flop_per_byte"] == approx(295.34328358208955, rel=1e-15)
    assert bf16["nominal_flop_per_s"] == 989.4e12
    assert bf16["calibrated_ridge_flop_per_byte"] < bf16["ridge_flop_per_byte"]
    (memory,) = (row for row in result["ceilings"] if row["kind"] == "memory")
    assert (memory["nominal_bytes_per_s"], memory["nominal_flop_per_s"]) == (3.35e12, None)
    assert [row["nominal_bytes_per_s"] for row in result["ceilings"] if row["kind"] == "link"] == [450e9]
    for row in result["operators"]:
        if row["flop"]:
            assert row["intensity"] == row["flop"] / row["bytes"]
    assert [(row["phase"], row["batch"], row["on_path"]) for row in result["steps"]] == [
        ("prefill", 0, False),
        ("decode", 64, False),
        ("decode", 1, True),
        ("decode", 64, True),
    ]
    assert said["inputs"]["hardware"] == ["h100-sxm5-80gb"]
    assert {entry["name"] for entry in said["assumptions"]} >= {"memory.bandwidth", "peak.bf16", "gemm.compute_share"}


def test_the_slope_of_a_cache_is_drawn_where_its_rate_is_known() -> None:
    said = answer("roofline", "llama-3.1-8b", "h200", "--ceilings", "l2")
    (cache,) = (row for row in said["result"]["ceilings"] if row["kind"] == "cache")
    assert cache["nominal_bytes_per_s"] == roofplan.hardware.load("h200").units.cache_bandwidth
    (told,) = (entry for entry in said["assumptions"] if entry["name"] == "units.cache_bandwidth")
    assert (told["kind"], told["value"]) == ("measured", cache["nominal_bytes_per_s"])
    assert "L2 cache 9.70 TB/s" in run("roofline", "llama-3.1-8b", "h200", "--ceilings", "l2").stdout
    unknown = run("roofline", "llama-3.1-8b", "rtx-4090", "--ceilings", "l2")
    assert (unknown.returncode, unknown.stderr) == (0, "")
    assert "no bandwidth of the cache of rtx-4090 is known (only its size, 72 MB): no such ceiling" in unknown.stdout


def test_the_library_gives_the_same_answer() -> None:
    made = roofplan.roofline("llama-3.1-8b", "h100-sxm", prompt=4096, output=512, concurrency=64)
    assert json.loads(json.dumps(made.to_dict())) == answer(*LINE)


def test_csv_has_one_point_a_row() -> None:
    rows = list(csv.DictReader(io.StringIO(run(*LINE, "--batches", "1", "--format", "csv").stdout)))
    assert {row["kind"] for row in rows} == {"operator", "step"}
    (o,) = (row for row in rows if (row["name"], row["phase"]) == ("o", "prefill"))
    assert float(o["intensity"]) == approx(2 * 4096**3 / (2 * 3 * 4096**2))  # F1.4 with M = K = N = 4096
    assert [row["batch"] for row in rows if row["kind"] == "step"] == ["0.0", "64.0", "1.0"]


def test_without_a_file_the_plot_and_tables_are_printed() -> None:
    done = run(*LINE, env={"COLUMNS": "100"})
    assert (done.returncode, done.stderr) == (0, "")
    for fragment in (
        "★",
        "☆",
        "1 P │",
        "100 T │",
        "⠤",
        "nominal roof",
        "Ceilings",
        "Whole steps",
        "Operators of decode",
    ):
        assert fragment in done.stdout, fragment
    assert "295.3 FLOP/B" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if "│" in line) <= 100


def test_a_stream_without_unicode_gets_ascii() -> None:
    done = run(*LINE, env={"PYTHONIOENCODING": "ascii", "COLUMNS": "90"})
    assert done.returncode == 0
    plot = [line for line in done.stdout.splitlines() if line[8:9] == "|"]
    assert len(plot) >= 14
    assert any("@" in line for line in plot)


def test_colour_follows_the_rules() -> None:
    assert "\x1b[" not in run(*LINE).stdout
    assert "\x1b[" in run(*LINE, "--color", "always").stdout


def test_markdown_holds_the_plot_as_a_block() -> None:
    text = run(*LINE, "--format", "markdown").stdout
    assert text.count("```") == 2
    assert "### Ceilings" in text


def test_explain_shows_ridge_and_operators() -> None:
    lines = answer(*LINE, "--explain")["explanations"]
    (ridge,) = (line for line in lines if line["figure"].startswith("ridge of bf16"))
    assert ridge["value"].startswith("295.3 FLOP/B; as reached ")
    assert ridge["numbers"].startswith("989 TFLOP/s / 3.35 TB/s; ")
    assert "F1.1" in ridge["formula"]
    assert any(line["figure"].startswith("attention in decode") and line["binds"] == "kv_bandwidth" for line in lines)
    assert "F1.2" in run(*LINE, "--explain").stdout


# ------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize(("name", "begin"), [("r.png", b"\x89PNG"), ("r.svg", b"<?xml"), ("r.PDF", b"%PDF")])
def test_pictures_are_drawn_by_the_name_of_the_file_and_always_alike(name: str, begin: bytes, tmp_path: Path) -> None:
    path, again = tmp_path / name, tmp_path / f"again-{name}"
    done = run(*LINE, "-o", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("llama-3.1-8b on h100-sxm5-80gb")
    assert "│" not in done.stdout
    assert path.read_bytes().startswith(begin)
    run(*LINE, "-o", str(again), env={"PYTHONHASHSEED": "7", "LANG": "C"})
    assert again.read_bytes() == path.read_bytes()


def test_a_page_holds_the_picture_and_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    done = run(*LINE, "-o", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!")
    assert "<svg" in text
    assert "295.3 FLOP/B" in text


def test_a_picture_has_the_size_that_was_asked_for_and_may_be_dark(tmp_path: Path) -> None:
    from PIL import Image

    path = tmp_path / "r.png"
    assert run(*LINE, "-o", str(path), "--size", "640x480", "--dark").returncode == 0
    picture = Image.open(path)
    assert picture.size == (640, 480)
    assert picture.convert("RGB").getpixel((1, 1)) == (0x14, 0x17, 0x1C)


def test_names_in_pictures_are_drawn_as_they_are(tmp_path: Path) -> None:
    spec = tmp_path / "d.yaml"
    spec.write_text(
        'schema: roofplan/hardware/v1\nname: "$x^2$ <b>"\nmemory: {nameplate: 80 GB, bandwidth: 2 TB/s}\npeak: {bf16: 312 TFLOP/s}\n'
        "evidence: [{figures: [memory, peak], kind: datasheet, source: test}]\n"
    )
    path = tmp_path / "r.svg"
    done = run("roofline", "gpt2", str(spec), "-o", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert ET.parse(path).getroot().tag.endswith("svg")
    assert "<!-- Roofline of gpt2 on $x^2$ &lt;b&gt; -->" in path.read_text(encoding="utf-8")


def test_points_are_written_as_csv_or_json(tmp_path: Path) -> None:
    table, envelope = tmp_path / "p.csv", tmp_path / "p.json"
    assert run(*LINE, "--data", str(table)).returncode == 0
    assert table.read_text(encoding="utf-8") == run(*LINE, "--format", "csv").stdout
    assert run(*LINE, "--data", str(envelope)).returncode == 0
    assert json.loads(envelope.read_text(encoding="utf-8")) == answer(*LINE)


def test_measured_points_are_told_and_doubted(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("name,intensity,flop_per_s\n$gemm$,100,2e14\nimpossible,1,5e12\n", encoding="utf-8")
    done = run(*LINE, "--measured", str(path))
    assert "$gemm$" in done.stdout
    assert "60%" in done.stdout  # 2e14 of 100 x 3.35e12
    assert "impossible: 5.00 TFLOP/s are above the roof, 3.35 TFLOP/s at 1 FLOP/B" in done.stdout
    said = answer(*LINE, "--measured", str(path))
    assert [row["name"] for row in said["result"]["measured"]] == ["$gemm$", "impossible"]
    assert [notice["code"] for notice in said["warnings"]] == ["measured_above_roof"]


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        (("-o", "{tmp}/r.gif"), "got .gif, want one of .png, .svg, .pdf, .html"),
        (("-o", "{tmp}/r"), "got a name without one"),
        (("-o", "{tmp}/there.png"), "got an existing one, want a new one (--force replaces it)"),
        (("-o", "{tmp}/new.png", "--data", "{tmp}/there.csv"), "got an existing one"),
        (("--data", "{tmp}/d.xlsx"), "got .xlsx, want one of .csv, .json"),
        (("-o", "{tmp}/nowhere/r.png"), "no such file or directory"),
        (("--dark",), "--dark: got no picture"),
        (("--size", "640x480"), "--size: got no picture"),
        (
            ("-o", "{tmp}/new.png", "--size", "1x1"),
            "--size: got 1x1, want WIDTHxHEIGHT in pixels, 480x360 to 8000x8000",
        ),
        (("--batches", "1,0"), "--batches: got "),
        (("--phase", "training"), "--phase: got training"),
        (("--ceilings", "dram"), "--ceilings: got dram"),
        (("--measured", "{tmp}/none.csv"), "no such file"),
        (("--weights", "bf16", "--weights", "bf15"), "bf15"),
        (("--prompt", "8k"), "--prompt"),
    ],
)
def test_wrong_input_is_one_line_exit_2_and_no_file(options: tuple[str, ...], fragment: str, tmp_path: Path) -> None:
    for name in ("there.png", "there.csv"):
        (tmp_path / name).write_text("old")
    done = run(*LINE, *(option.replace("{tmp}", str(tmp_path)) for option in options))
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert fragment in done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["there.csv", "there.png"]
    assert {file.read_text() for file in tmp_path.iterdir()} == {"old"}


def test_force_replaces_files(tmp_path: Path) -> None:
    for name in ("there.png", "there.csv"):
        (tmp_path / name).write_text("old")
    line = (*LINE, "-o", str(tmp_path / "there.png"), "--data", str(tmp_path / "there.csv"), "--force")
    assert run(*line).returncode == 0
    assert (tmp_path / "there.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "there.csv").read_text(encoding="utf-8").startswith("kind,hardware")


def test_help_begins_with_examples() -> None:
    text = run("roofline", "--help", env={"COLUMNS": "120"}).stdout
    assert "HARDWARE..." in text
    assert text.index("Examples") < text.index("--out")


def test_a_picture_takes_at_most_twice_the_import_of_pyplot(tmp_path: Path) -> None:
    """Of processor time, the least of a few runs each; ours are mostly modules of matplotlib too."""

    def seconds(*words: str) -> float:
        spent = []
        for _ in range(4):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(words, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(spent)

    ours = seconds(str(SCRIPT), *LINE, "-o", str(tmp_path / "x.png"), "--force")
    assert ours < 2.0 * seconds(sys.executable, "-c", "import matplotlib.pyplot")
