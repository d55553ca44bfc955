"""``roofplan accuracy memory`` through the installed console script, on the committed rows and on bad files."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from console import answer, run

ROWS = Path(__file__).parents[2] / "accuracy" / "data" / "memory.csv"


def test_the_json_has_what_scripts_rely_on() -> None:
    result = answer("accuracy", "memory", "--by", "gpu,engine")["result"]
    metric = result["metrics"]["kv_from_arguments"]
    assert {"rows", "answered", "median_ape", "mean_ape", "bias", "p90_ape", "coverage_80"} <= set(metric)
    assert {"tokens_from_kv", "kv_from_parts", "kv_from_arguments"} <= set(result["metrics"])
    assert set(result["groups"]) == {"consistent", "gpu", "engine"}
    assert result["groups"]["engine"]["vLLM"]["tokens_from_kv"]["answered"] > 90
    assert all(set(row) == {"row", "metric", "reason"} for row in result["unanswered"])
    assert result["worst"]
    assert result["constants"]["activations"]["left_out_error_bytes"] > 0


def test_every_comparison_can_be_written(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    assert run("accuracy", "memory", "--rows", str(out)).returncode == 0
    written = list(csv.DictReader(io.StringIO(out.read_text(encoding="utf-8"))))
    assert {"M018", "M179", "M188"} <= {row["row"] for row in written}
    assert all(row["predicted"] or row["reason"] for row in written)
    again = run("accuracy", "memory", "--rows", str(out))
    assert again.returncode == 2
    assert "--force replaces it" in again.stderr
    assert run("accuracy", "memory", "--rows", str(out), "--force").returncode == 0


def test_any_file_with_the_columns_is_compared(tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(ROWS.read_text(encoding="utf-8"))))
    own = [row for row in rows if row["id"] in {"M018", "M027"}]
    path = tmp_path / "own.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(reversed(rows[0])))  # the order of columns does not matter
        writer.writeheader()
        writer.writerows(own)
    result = answer("accuracy", "memory", "--data", str(path))["result"]
    assert result["rows"] == 2
    assert result["metrics"]["kv_from_arguments"]["answered"] == 2
    assert result["constants"]["activations"] is None


def changed(column: str, value: str) -> str:
    rows = list(csv.reader(io.StringIO(ROWS.read_text(encoding="utf-8"))))[:2]
    rows[1][rows[0].index(column)] = value
    stream = io.StringIO()
    csv.writer(stream).writerows(rows)
    return stream.getvalue()


BAD = {
    "empty": ("", "want the columns"),
    "only a header": (ROWS.read_text(encoding="utf-8").splitlines()[0], "want a header and rows"),
    "no columns": ("a,b\n1,2\n", "want the columns id, engine"),
    "a short row": (changed("id", "M1").rsplit(",", 1)[0], "cells"),
    "not a number": (changed("kv_gib_per_gpu", "many"), "kv_gib_per_gpu: got many, want a plain number"),
    "digits of another script": (changed("kv_gib_per_gpu", "\u0665"), "want a plain number"),
    "a share above one": (changed("gpu_memory_utilization", "1.7"), "want a fraction above 0, at most 1"),
    "less than nothing": (changed("kv_gib_per_gpu", "-5"), "want zero or more GiB"),
    "a word for trust": (changed("consistent(yes/no/incomplete)", "maybe"), "want yes, incomplete or no"),
    "a row twice": (changed("id", "M1") + changed("id", "M1").splitlines()[1] + "\n", "M1 a second time"),
    "NaN": (changed("kv_gib_per_gpu", "nan"), "kv_gib_per_gpu: got nan"),
    "infinite": (changed("total_gpu_gib", "inf"), "total_gpu_gib: got inf"),
    "400 digits": (changed("kv_tokens", "9" * 400), "kv_tokens: got 9"),
    "half a token": (changed("kv_tokens", "1.5"), "kv_tokens: got 1.5, want a whole number"),
    "negative ranks": (changed("tp", "-1"), "tp: got -1, want a whole number"),
    "an open quote": (changed("id", "M1") + '"', "CSV"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    text, said = BAD[name]
    path = tmp_path / "bad.csv"
    path.write_text(text, encoding="utf-8")
    done = run("accuracy", "memory", "--data", str(path))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr
    assert "bad.csv" in done.stderr


def test_hostile_labels_are_only_labels(tmp_path: Path) -> None:
    """A label opens no file and leaves no escape code in a terminal."""
    for column, value in (
        ("model", "/etc/passwd"),
        ("gpu", "./pyproject.toml"),
        ("model", "\x1b[31mred"),
        ("engine", "-"),
    ):
        path = tmp_path / "hostile.csv"
        path.write_text(changed(column, value), encoding="utf-8")
        done = run("accuracy", "memory", "--data", str(path), "--by", "model,gpu")
        assert done.returncode == 0
        assert "\x1b" not in done.stdout


# ------------------------------------------------------------------------------------------------ speed

SERVED = ROWS.with_name("e2e_serving.csv")


def served_rows(path: Path, *changes: dict[str, str]) -> Path:
    """One served row for each change of its cells."""
    rows = csv.DictReader(io.StringIO(SERVED.read_text(encoding="utf-8")))
    row = next(row for row in rows if (row["engine"], row["concurrency"]) == ("vllm", "8"))
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(row))
        writer.writeheader()
        writer.writerows({**row, **change} for change in changes)
    return path


def test_rows_that_nothing_describes_end_no_comparison(tmp_path: Path) -> None:
    changes = (
        {},
        {"engine": "nobody"},
        {"gpu": "./own.yaml"},
        {"model": "/etc/passwd", "isl": "99"},
        {"concurrency": "1000000000"},
    )
    path = served_rows(tmp_path / "own.csv", *changes)
    for options in ((), ("--leave-one-out",), ("--simulate",)):
        result = answer("accuracy", "speed", "--data", str(path), *options)["result"]
        assert result["metrics"]["tpot_ms"]["rows"] == 5
        assert result["metrics"]["tpot_ms"]["answered"] == 1
        assert result["coverage"] == pytest.approx(0.2)
        assert sum(entry["figures"] for entry in result["unanswered_by_reason"]) == len(result["unanswered"]) == 8
        assert {"metrics_by_engine_defaults", "metrics_with_left_out_rows", "fitted_constants"} <= set(result)
    text = run("accuracy", "speed", "--data", str(path)).stdout
    for said in ("Not answered", "engine defaults in the place", "Fitted constants", "median bias"):
        assert said in text


@pytest.mark.parametrize("column", ["model", "gpu", "engine", "origin"])
def test_hostile_labels_of_served_rows_are_only_labels(column: str, tmp_path: Path) -> None:
    path = served_rows(tmp_path / "own.csv", {column: "\x1b[31mred"}, {})
    done = run("accuracy", "speed", "--data", str(path), "--by", column)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "red" in done.stdout
