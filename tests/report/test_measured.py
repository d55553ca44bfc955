"""What is said and drawn of a measured machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from measured import GPU, cpu_run, run_of, steady, timed

from roofplan.errors import DomainError
from roofplan.measure.gates import gates_of
from roofplan.measure.overlay import overlay
from roofplan.measure.records import Record, Run
from roofplan.measure.results import MeasureResult
from roofplan.measure.samples import summarise
from roofplan.report.answer_files import write_answer
from roofplan.report.measured import measure_report, show_parameter, show_quartiles, show_value
from roofplan.report.measured_figure import measured_figure
from roofplan.report.textfiles import to_csv, to_json, to_markdown


def result_of(run: Run, **changes: Any) -> MeasureResult:
    made = overlay(run)
    return replace(MeasureResult(run, gates_of(run, None, made), made), **changes)


def predicted_run() -> Run:
    steps = [
        Record("decode.step", "s", steady(0.011), {"batch": batch, "context": 128, "layers": 4}, 0.008, 0.010)
        for batch in (1, 8)
    ]
    return replace(cpu_run(), records=(*cpu_run().records, *steps))


def test_the_report_of_ceilings() -> None:
    report = measure_report(result_of(cpu_run()))
    assert report.heading.startswith("Measured ceilings on Test Processor 9000 · 2 threads · torch 2.13.0 · quick")
    assert "memory 30.0 GB/s" in report.verdict
    assert [section.title for section in report.sections] == [
        "Rates",
        "Launches",
        "Streaming through memory and caches",
        "Matrix products",
    ]
    streams = report.sections[2]
    assert streams.header == ("", "bytes", "measured", "quartiles", "rate")
    assert streams.rows[1][:2] == ("read", "256.0 MiB")
    assert streams.rows[1][4] == "30.0 GB/s"
    assert any("--save machine.yaml" in remark for remark in report.remarks)


def test_predictions_and_ratios() -> None:
    report = measure_report(result_of(predicted_run()))
    section = report.sections[-1]
    assert section.title == "Decode steps"
    assert section.header == ("", "batch", "measured", "quartiles", "by data sheet", "by measured roof", "ratio")
    assert section.rows[0] == ("step", "1", "11.0 ms", "-0.0% +0.0%", "8.00 ms", "10.0 ms", "1.10")
    assert "2 of 2 times are within 15% of what is predicted" in report.verdict
    assert any(remark.startswith("ratio: measured over predicted") for remark in report.remarks)


def test_quartiles_beside_the_median() -> None:
    found = Record("x.y", "s", summarise([0.9, 0.95, 1.0, 1.1, 1.3]))  # quartiles 0.95 and 1.1
    assert show_quartiles(found) == "-5.0% +10.0%"
    assert show_quartiles(Record("x.y", "B", summarise([4.0]))) == ""


def test_json_as_the_design_says() -> None:
    said = json.loads(to_json(result_of(predicted_run())))
    assert (said["schema"], said["command"]) == ("roofplan/result/v1", "measure")
    (record,) = [r for r in said["result"]["records"] if r["parameters"].get("batch") == 8]
    assert {"name", "measured", "predicted", "unit", "spread"} <= set(record)
    assert (record["name"], record["unit"], record["predicted"]) == ("decode.step", "s", 0.010)
    assert "samples" not in record
    with_samples = json.loads(to_json(result_of(predicted_run(), samples=True)))
    assert len(with_samples["result"]["records"][0]["samples"]) == 10


def test_other_formats() -> None:
    found = result_of(predicted_run())
    lines = to_csv(found).splitlines()
    assert lines[0] == "name,parameters,unit,measured,q1,q3,count,predicted_datasheet,predicted_measured,ratio"
    assert len(lines) == 1 + len(found.run.records)
    assert "### Matrix products" in to_markdown(measure_report(found))


def test_warnings_are_told() -> None:
    doubtful = Record(
        "x.y", "s", summarise([1.0] * 10, dropped=2, unmet="noise 0.5% (got 3.0% in 2 s, not settled)"), {}
    )
    run = replace(cpu_run(), records=(*cpu_run().records, doubtful), notes=("gemm.fp16: left out",))
    run = replace(run, environment=replace(run.environment, notes=("other work runs",)))
    codes = {warning.code: warning.message for warning in result_of(run).warnings}
    assert set(codes) == {"environment", "left_out", "not_steady", "throttled"}
    assert "noise 0.5%" in codes["not_steady"]
    assert "2 samples were dropped" in codes["throttled"]


def test_a_run_without_rates_has_no_picture() -> None:
    with pytest.raises(DomainError, match="without ceilings"):
        measured_figure(MeasureResult(run_of([timed("server.ttft", 0.1)])))


@pytest.mark.parametrize("dark", [False, True])
def test_the_picture_shows_roofs_and_work(dark: bool) -> None:
    figure = measured_figure(result_of(cpu_run()), dark=dark)
    roofline, streams = figure.axes
    points = [line for line in roofline.lines if line.get_linestyle() == "None"]
    assert sum(len(line.get_xdata()) for line in points) == len(cpu_run().named("gemm"))
    labels = [text.get_text() for text in roofline.texts]
    assert any(label.startswith("bf16 ") for label in labels)
    sizes = {float(x) for line in streams.lines for x in line.get_xdata() if float(x) > 1}
    assert 2.0**28 in sizes
    # Every point lies within the axes.
    for axes in (roofline, streams):
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        for line in axes.lines:
            if line.get_linestyle() == "None":
                assert all(left <= x <= right for x in line.get_xdata())
                assert all(low <= y <= high for y in line.get_ydata())


def test_the_roof_of_a_data_sheet_is_dashed() -> None:
    run = replace(cpu_run(), environment=replace(cpu_run().environment, device=GPU.name, kind="cuda"))
    gates = tuple(replace(gate, peak=2 * gate.measured) for gate in gates_of(run, None))
    figure = measured_figure(MeasureResult(run, gates))
    plain = measured_figure(result_of(cpu_run()))
    assert len(figure.axes[0].lines) == len(plain.axes[0].lines) + 2


def test_files(tmp_path: Path) -> None:
    found = result_of(cpu_run())
    for name in ("roof.svg", "roof.png", "page.html"):
        write_answer(found, tmp_path / name)
        again = tmp_path / f"again-{name}"
        write_answer(found, again)
        assert again.read_bytes() == (tmp_path / name).read_bytes()
    assert "<svg" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.0123, "s", "12.3 ms"),
        (2**30, "B", "1.000 GiB"),
        (3.35e12, "B/s", "3.35 TB/s"),
        (989e12, "FLOP/s", "989 TFLOP/s"),
        (0.01234, "1", "0.01234"),
        (812.5, "tokens/s", "812.5 tokens/s"),
    ],
)
def test_values_with_units(value: float, unit: str, said: str) -> None:
    assert show_value(value, unit) == said


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("bytes", 2**20, "1.000 MiB"),
        ("peak_bytes", 1024, "1.000 KiB"),
        ("rows", 8192, "8,192"),
        ("cold", True, "yes"),
        ("rate", 0.5, "0.5"),
        ("model", "a\x1b[31m", "a\\x1b[31m"),
        ("model", None, ""),
    ],
)
def test_parameters(key: str, value: Any, said: str) -> None:
    assert show_parameter(key, value) == said
