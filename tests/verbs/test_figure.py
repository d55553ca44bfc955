"""``roofplan figure`` and pages of other verbs through the installed console script: what is printed, written and refused."""

import csv
import io
import json
from pathlib import Path

import pytest
from console import answer, run
from pytest import approx

from roofplan.api.presets import PRESETS

DRAFTS = ("speculation", "--acceptance", "0.8", "--k", "4")


# ------------------------------------------------------------------------------------------------ figures


def test_alone_it_lists_every_figure_with_its_options() -> None:
    done = run("figure")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(name in done.stdout for name in PRESETS)
    said = answer("figure")
    assert [row["name"] for row in said["result"]["rows"]] == list(PRESETS)
    assert "--model llama-2-7b" in said["result"]["rows"][2]["options"]


def test_without_a_file_the_points_are_printed() -> None:
    done = run("figure", *DRAFTS)
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "4 drafts give 3.362 tokens a round and 2.401 times the speed; the best number is 6, with 2.47" in done.stdout
    )
    assert run("figure", *DRAFTS, "--explain").stdout != done.stdout


def test_json_and_csv_have_every_point_in_base_units() -> None:  # F11.5
    said = answer("figure", *DRAFTS)
    assert (said["schema"], said["command"]) == ("roofplan/result/v1", "figure")
    assert said["inputs"]["acceptance"] == "0.8"
    panel = said["result"]["panels"][0]
    (line,) = panel["curves"]
    assert line["x"][:5] == [0, 1, 2, 3, 4]
    assert line["y"][4] == approx(2.4011428571428572, rel=1e-12)
    assert panel["marks"][0] == {
        "text": "best number of drafts",
        "x": 6,
        "y": approx(2.46964),
        "curve": "acceptance 0.8",
    }
    rows = list(csv.DictReader(io.StringIO(run("figure", *DRAFTS, "--format", "csv").stdout)))
    drawn = sum(len(curve["x"]) for panel in said["result"]["panels"] for curve in panel["curves"])
    marks = sum(len(panel["marks"]) for panel in said["result"]["panels"])
    assert len(rows) == drawn + marks
    assert {row["kind"] for row in rows} == {"line", "mark"}
    assert float(rows[4]["y"]) == approx(2.4011428571428572, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("html", b"<!DOCTYPE html>")]
)
def test_files_by_their_names_the_same_bytes_each_time(tmp_path: Path, kind: str, begin: bytes) -> None:
    first, second = tmp_path / f"first.{kind}", tmp_path / f"second.{kind.upper()}"
    for file in (first, second):
        done = run("figure", *DRAFTS, "-o", str(file))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("Speculation: llama-3.1-8b on h100-sxm5-80gb")
        assert "speed-up while" not in done.stdout  # the points stand in the file
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(begin)
    assert sorted(path.name for path in tmp_path.iterdir()) == [first.name, second.name]


def test_size_and_paper_of_a_picture(tmp_path: Path) -> None:
    from PIL import Image

    light, dark = tmp_path / "light.png", tmp_path / "dark.png"
    assert run("figure", "paged-waste", "-o", str(light), "--size", "640x480").returncode == 0
    assert run("figure", "paged-waste", "-o", str(dark), "--size", "640x480", "--dark").returncode == 0
    assert Image.open(light).size == Image.open(dark).size == (640, 480)
    assert (Image.open(light).getpixel((0, 0)), Image.open(dark).getpixel((0, 0))) == ((255, 255, 255), (20, 23, 28))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("batch-curv",), "figure: got batch-curv, want one of cache-growth"),
        (("batch-curv",), "did you mean batch-curve"),
        (("-o", "x.png"), "NAME: got nothing, want one of cache-growth"),
        (("--context", "512"), "NAME: got nothing"),
        (("batch-curve", "--k", "4"), "--k: got 4, want no such option for batch-curve"),
        (("batch-curve", "-o", "x.bmp"), "got .bmp, want one of .png, .svg, .pdf, .html"),
        (("batch-curve", "-o", "x"), "got a name without one"),
        (("batch-curve", "-o", "/nowhere/x.png"), "/nowhere/x.png: file: got no such file or directory"),
        (("batch-curve", "--size", "640x480"), "--size: got no picture"),
        (("batch-curve", "--dark"), "--dark: got no picture"),
        (("batch-curve", "-o", "x.html", "--dark"), "--dark: got a page"),
        (("batch-curve", "-o", "x.png", "--size", "10x10"), "--size: got 10x10"),
        (("batch-curve", "--context", "1,1"), "--context: got 1 twice"),
        (("batch-curve", "--model", "nothing-like-it"), "nothing-like-it"),
        (("moe-coverage", "--model", "llama-2-7b"), "routed experts"),
    ],
)
def test_what_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = run("figure", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_several_models_by_commas_or_one_after_the_other() -> None:
    both = answer("figure", "cache-growth", "--model", "llama-3.1-8b,gemma-3-27b")["result"]
    assert answer("figure", "cache-growth", "--model", "llama-3.1-8b", "--model", "gemma-3-27b")["result"] == both
    assert [curve["name"] for curve in both["panels"][0]["curves"]] == ["llama-3.1-8b", "gemma-3-27b"]


# ------------------------------------------------------------------------------------------------ pages of other verbs

PAGES = {
    "size": ("size", "llama-3.1-8b", "h100-sxm", "--concurrency", "64"),
    "sweep": ("sweep", "llama-3.1-8b", "h100-sxm", "--over", "batch=1,8,64", "--context", "4096"),
    "compare": ("compare", "llama-3.1-8b", "h100-sxm", "h200"),
}


@pytest.mark.parametrize("verb", PAGES)
def test_a_page_beside_the_answer(tmp_path: Path, verb: str) -> None:
    file = tmp_path / "report.html"
    done = run(*PAGES[verb], "-o", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run(*PAGES[verb]).stdout
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert text.endswith("</html>\n")
    assert f"roofplan {verb}" in text
    assert text.count("<details>") >= 5


@pytest.mark.parametrize("verb", PAGES)
def test_an_existing_file_is_kept_unless_told_otherwise(tmp_path: Path, verb: str) -> None:
    file = tmp_path / "report.html"
    file.write_text("mine")
    done = run(*PAGES[verb], "-o", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert "got an existing one, want a new one (--force replaces it)" in done.stderr
    assert file.read_text() == "mine"
    assert run(*PAGES[verb], "-o", str(file), "--force").returncode == 0
    assert file.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-o", "x.png"), "type of x.png: got .png, want .html"),
        (("-o", "x"), "want .html"),
        (("-o", "/nowhere/x.html"), "/nowhere/x.html: file: got no such file or directory"),
        (("-o", "folder"), "want .html"),
    ],
)
def test_files_that_a_sizing_cannot_be_written_to(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = run(*PAGES["size"], *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_page_of_what_does_not_fit_is_written_and_the_answer_is_no(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    done = run("size", "llama-3-70b", "a100-80gb", "-o", str(file), "--format", "json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["result"]["fits"] is False
    assert "It does not fit" in file.read_text(encoding="utf-8")


def test_a_wrong_input_leaves_no_page(tmp_path: Path) -> None:
    done = run("size", "llama-3.1-8b", "h100-sxm", "--prompt", "none", "-o", str(tmp_path / "report.html"))
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []
