"""``roofplan sweep`` through the installed console script: rows, marks, formats, pictures, exit codes, and what is refused."""

import csv
import io
import json
from pathlib import Path

import pytest
from console import answer, run
from pytest import approx

import roofplan
from roofplan import cli
from roofplan.quantities import show_rate, show_time

SWEEP = ("sweep", "llama-3.1-8b", "h100-sxm")
CURVE = (*SWEEP, "--over", "batch=1..256:x2", "--context", "4096", "--tpot", "25 ms")
RANGES = {"step_s", "tpot_s", "output_tokens_per_s", "output_tokens_per_s_per_device", "per_user_tokens_per_s", "usd_per_million_output_tokens"}  # fmt: skip
FACTS = {"batch", "context", "fits", "reason", "devices", "weights_bytes", "kv_bytes", "memory_bytes", "kv_budget_bytes", "free_bytes"}  # fmt: skip
MARKS = {"knee", "knee_reason", "compute_bound_batch", "compute_bound_batch_reason", "crossover_batch", "crossover_batch_reason", "within_memory", "within_tpot", "cheapest", "cheapest_reason", "context"}  # fmt: skip


def test_json_has_rows_and_marks() -> None:
    said = answer(*CURVE)
    assert (said["schema"], said["command"]) == ("roofplan/result/v1", "sweep")
    result = said["result"]
    assert [row["batch"] for row in result["rows"]] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    for row in result["rows"]:
        assert set(row) == FACTS | RANGES
        assert all(set(row[name]) == {"bound", "low", "expected", "high"} for name in RANGES)
        assert all(
            row[name]["bound"] <= row[name]["low"] <= row[name]["expected"] <= row[name]["high"]
            for name in ("step_s", "tpot_s")
        )
    (curve,) = result["marks"]["curves"]
    assert set(curve) == MARKS
    assert curve["crossover_batch"] == approx(29.915054321289062, rel=1e-12)  # F7.2
    assert curve["within_tpot"]["batch"] <= curve["within_memory"]["batch"]
    assert said["inputs"]["over"] == {"batch": [1, 2, 4, 8, 16, 32, 64, 128, 256]}
    assert (said["inputs"]["context"], said["inputs"]["tpot_s"], said["inputs"]["mode"]) == (4096, 0.025, "decode")


def nulls_without_reason(value: object) -> list[str]:
    """Keys of what is null although no code beside it says why: under its own name or the first word of it, or for the whole object."""
    if isinstance(value, list):
        return [name for item in value for name in nulls_without_reason(item)]
    if not isinstance(value, dict):
        return []
    found = [name for item in value.values() for name in nulls_without_reason(item)]
    for name, item in value.items():
        if item is None and not name.endswith("reason"):
            codes = (f"{name}_reason", f"{name.partition('_')[0]}_reason", "reason")
            found += [] if any(value.get(code) for code in codes) else [name]
    return found


@pytest.mark.parametrize(
    "words",
    [
        CURVE,
        CURVE[:-2],
        (*SWEEP, "--over", "batch=1,2"),
        (*SWEEP, "--over", "batch=1,2", "--tpot", "1 us"),
        ("sweep", "llama-3.1-8b", "mi50-16gb", "--over", "batch=1,2", "--context", "1000"),
        ("sweep", "codestral-mamba-7b", "h100-sxm", "--over", "batch=1,2", "--context", "1000"),
        ("sweep", "llama-3.1-70b", "h100-sxm", "--over", "batch=1,2", "--tpot", "20 ms"),
    ],
)
def test_marks_have_one_shape_and_say_why_there_is_none(words: tuple[str, ...]) -> None:
    done = run(*words, "--format", "json")
    marks = json.loads(done.stdout)["result"]["marks"]
    for curve in marks["curves"]:
        assert set(curve) - {"context"} == MARKS - {"context"}
        assert set(curve["within_memory"]) == set(curve["within_tpot"]) == {"batch", "binds", "reason"}
    assert nulls_without_reason(marks["curves"]) == []


@pytest.mark.parametrize(
    ("traffic", "among"), [(("--context", "2048"), "any batch within the limits"), ((), "the points")]
)
@pytest.mark.parametrize("tpot", [None, "25 ms", "8 ms"])
def test_the_cheapest_token_is_told_with_what_it_is_chosen_from(
    traffic: tuple[str, ...], among: str, tpot: str | None
) -> None:
    """The headline speaks of the points, and of the limit; the mark of any batch where only decoding is swept, else of the points."""
    words = ("sweep", "mixtral-8x7b", "h100-sxm", "--over", "batch=1..64:x2", "--devices", "4", *traffic)
    words += () if tpot is None else ("--tpot", tpot)
    headline, said = run(*words).stdout.splitlines()[1], answer(*words)["result"]
    within = "" if tpot is None else f" within {show_time(float(tpot.split()[0]) / 1e3)} a token"
    assert f"of these points{within} the cheapest token is that of batch" in headline
    [line] = [line for line in run(*words).stdout.splitlines() if line.startswith(" cheapest token")]
    assert line.startswith(f" cheapest token of {among} ")
    [curve], row = said["marks"]["curves"], said["marks"]["cheapest"]
    assert curve["cheapest"]["of"] == ("any_batch" if traffic else "points")
    cost = row["usd_per_million_output_tokens"]["expected"]
    assert f"batch {row['batch']}: {show_rate(cost)} USD" in headline
    if traffic:  # all batches, of which the points are some
        assert curve["cheapest"]["usd_per_million_output_tokens"] <= cost
        assert curve["cheapest"]["batch"] == curve["within_tpot" if tpot else "within_memory"]["batch"]
    else:
        assert (curve["cheapest"]["batch"], curve["cheapest"]["usd_per_million_output_tokens"]) == (row["batch"], cost)


def test_a_limit_that_no_point_keeps_is_told() -> None:
    said = run(*SWEEP, "--over", "batch=1,2", "--tpot", "1 us").stdout.splitlines()[1]
    assert said == "Every point fits; none within 1.00 us a token."


def test_served_requests_have_times_to_first_token() -> None:
    rows = answer(*SWEEP, "--over", "batch=1,64", "--prompt", "4096", "--output", "512")["result"]["rows"]
    assert all(set(row) == FACTS | RANGES | {"ttft_s", "e2e_s", "prompt", "output"} for row in rows)
    sized = answer("size", "llama-3.1-8b", "h100-sxm", "--prompt", "4096", "--output", "512", "--concurrency", "64")
    assert rows[1]["ttft_s"] == sized["result"]["latency"]["ttft_s"]
    assert rows[1]["tpot_s"] == sized["result"]["latency"]["tpot_s"]


def test_the_library_gives_the_same_answer() -> None:
    result = roofplan.sweep("llama-3.1-8b", "h100-sxm", over="batch=1..256:x2", context=4096, tpot="25 ms")
    assert json.loads(json.dumps(result.to_dict())) == answer(*CURVE)


def test_two_axes_of_formats_and_ranks() -> None:
    said = answer("sweep", "llama-3-70b", "h100-sxm", "--over", "tp=1,2,4", "--over", "weights=bf16,int8,head=int8")[
        "result"
    ]
    places = [(row["devices"], row["tp"], row["weights"]) for row in said["rows"]]
    assert places == [(tp, tp, weights) for tp in (1, 2, 4) for weights in ("bf16", "int8,head=int8")]
    assert said["rows"][0]["reason"] == "weights_exceed_memory"
    assert said["rows"][0]["tpot_s"] is None
    assert [(curve["tp"], curve["weights"]) for curve in said["marks"]["curves"]] == [place[1:] for place in places]


def test_the_price_can_be_given() -> None:
    one, two = (
        answer(*SWEEP, "--over", "batch=8", "--context", "512", "--usd-per-hour", price)["result"]
        for price in ("1", "2")
    )
    cost = [found["rows"][0]["usd_per_million_output_tokens"]["expected"] for found in (one, two)]
    assert cost[1] == approx(2 * cost[0], rel=1e-12)
    rate = one["rows"][0]["output_tokens_per_s"]["expected"]
    assert cost[0] == approx(1e6 / 3600 / rate, rel=1e-12)  # F13.8


def test_csv_is_one_row_a_point_in_base_units() -> None:
    rows = list(csv.DictReader(io.StringIO(run(*CURVE, "--format", "csv").stdout)))
    said = answer(*CURVE)["result"]["rows"]
    assert len(rows) == len(said) == 9
    for line, row in zip(rows, said, strict=True):
        assert int(line["batch"]) == row["batch"]
        assert float(line["tpot_s.expected"]) == row["tpot_s"]["expected"]
        assert line["fits"] == str(row["fits"]).lower()
        assert line["reason"] == (row["reason"] or "")


def test_text_says_what_fits_and_where_the_marks_are() -> None:
    done = run(*CURVE)
    assert (done.returncode, done.stderr) == (0, "")
    for fragment in ("7 of 9 points fit", "knee", "KV reads equal the weights", "at batch 29.9", "largest batch in memory", "cheapest token", "no: cache"):  # fmt: skip
        assert fragment in done.stdout
    several = run(*SWEEP, "--over", "batch=1,8", "--over", "context=512,8192", "--format", "markdown").stdout
    assert "### Marks by batch" in several
    assert "8,192" in several


def test_many_points_are_shown_in_part_and_counted() -> None:
    text = run(*SWEEP, "--over", "batch=1..1000", "--context", "512").stdout
    assert "40 of 1,000 points" in text
    assert len(text.splitlines()) < 70
    assert (
        len(run(*SWEEP, "--over", "batch=1..1000", "--context", "512", "--format", "csv").stdout.splitlines()) == 1001
    )


def test_nothing_that_fits_exits_1() -> None:
    done = run("sweep", "llama-3-70b", "rtx-4090", "--over", "batch=1,2")
    assert done.returncode == 1
    assert "Nothing fits" in done.stdout


def test_explain_derives_the_marks() -> None:
    text = run(*CURVE, "--explain").stdout
    for fragment in ("F7.2", "F7.3", "F7.5", "F7.6", "F13.8", "W / (L c)"):
        assert fragment in text


@pytest.mark.parametrize(("kind", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_picture_is_the_same_each_time(tmp_path: Path, kind: str, magic: bytes) -> None:
    files = [tmp_path / f"{number}.{kind}" for number in range(2)]
    for file in files:
        assert run(*CURVE, "-o", str(file)).returncode == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes().startswith(magic)
    assert {file.name for file in tmp_path.iterdir()} == {file.name for file in files}


def test_an_existing_picture_is_kept_unless_forced(tmp_path: Path) -> None:
    file = tmp_path / "curve.svg"
    file.write_text("mine")
    done = run(*CURVE, "-o", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert "--force replaces it" in done.stderr
    assert file.read_text() == "mine"
    assert run(*CURVE, "-o", str(file), "--force", "--dark", "--size", "800x600").returncode == 0
    assert file.read_text() != "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--over: got no axis, want one or two, each AXIS=VALUES"),
        (("--over", "batch"), "--over: got batch, want AXIS=VALUES"),
        (("--over", "batch="), "--over batch: got no values"),
        (("--over", "batch=9..1"), "want a range that ascends"),
        (("--over", "batch=1,1"), "got 1 twice"),
        (("--over", "users=1"), "did you mean batch?"),
        (("--over", "batch=\x1b[31m1"), "got '\\x1b[31m1'"),
        (("--over", "batch=1", "--over", "batch=2"), "got batch twice"),
        (("--over", "batch=1", "--over", "tp=1", "--over", "kv=bf16"), "got 3 axes"),
        (("--over", "batch=1", "--concurrency", "2"), "--over batch: got --concurrency too"),
        (("--over", "context=100", "--prompt", "50"), "got a context and the prompt"),
        (("--over", "context=8k"), "(8000 or 8192?)"),
        (("--over", "batch=1..20000"), "20,000 points, want 1 to 10,000 (--context TOKENS sweeps decode alone"),
        (("--over", "batch=1..2000", "--over", "context=2..2000"), "3,998,000 points, want 1 to 1,000,000"),
        (("--over", "tp=3"), "--tp: got 3"),
        (("--over", "hardware=h200"), "got a device and an axis of devices"),
        (("--over", "batch=1", "--tpot", "25"), "add the unit"),
        (("--over", "batch=1", "--usd-per-hour", "-1"), "--usd-per-hour"),
        (("--over", "batch=1", "-o", "x.bmp"), "got .bmp, want one of .png"),
        (("--over", "batch=1", "-o", "x"), "a name without one"),
        (("--over", "batch=1", "-o", "/nowhere/x.png"), "/nowhere/x.png: file: got no such file or directory"),
        (("--over", "batch=1", "--dark"), "--dark: got no picture"),
        (("--over", "batch=1", "--size", "10x10", "-o", "x.png"), "--size: got 10x10"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_line(
    words: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code = cli.run([*SWEEP, *words])
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert said in err
    assert err.startswith("roofplan: ")
    assert err[:-1].isprintable()
    assert not list(tmp_path.iterdir())


def test_a_picture_of_nothing_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "x.png"
    assert cli.run(["sweep", "llama-3-70b", "rtx-4090", "--over", "batch=1", "-o", str(file)]) == 2
    assert "no time per token" in capsys.readouterr().err
    assert not file.exists()


def test_progress_is_told_to_people_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert cli.run([*SWEEP, "--over", "batch=1..50000", "--context", "512", "--format", "csv"]) == 0
    assert "50,000 of 50,000 points" in capsys.readouterr().err
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    assert cli.run([*SWEEP, "--over", "batch=1,2", "--format", "csv"]) == 0
    assert capsys.readouterr().err == ""


def test_help_shows_examples_that_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(run("sweep", "--help", env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"}).stdout.split())
    assert text.index("Examples:") < text.index("Exit code:")
    assert "--over batch=1..256:x2" in text
    assert (
        cli.run(
            [
                "sweep",
                "llama-3.1-8b",
                "--over",
                "hardware=h100-sxm,h200,mi300x",
                "--context",
                "4096",
                "--concurrency",
                "16",
            ]
        )
        == 0
    )
    assert "mi300x" in capsys.readouterr().out
