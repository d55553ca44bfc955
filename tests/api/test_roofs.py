"""The call ``roofplan.roofline``: lists, limits, measured points, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import roofplan
from roofplan import hardware
from roofplan.api.roofs import read_measured
from roofplan.errors import DomainError, QuantityError, RoofplanError, SpecError, UnknownNameError

MODEL, DEVICE = "llama-3.1-8b", "h100-sxm"


def test_lists_may_be_texts_or_iterables() -> None:
    by_text = roofplan.roofline(MODEL, DEVICE, batches="8, 1,64", ceilings="nvlink,PCIe", phases="decode")
    by_items = roofplan.roofline(MODEL, DEVICE, batches=[64, "1", 8], ceilings=("link", "host"), phases=["decode"])
    assert by_text.to_dict() == by_items.to_dict()
    assert by_text.batches == (1, 8, 64)


def test_devices_and_formats_are_overlaid_in_their_order() -> None:
    made = roofplan.roofline(MODEL, "h100-sxm", "a100-80gb", formats=["bf16", "int4"])
    assert [(one.deployment.hardware.name, one.deployment.formats.name) for one in made.series] == [
        ("h100-sxm5-80gb", "bf16"),
        ("h100-sxm5-80gb", "int4"),
        ("a100-sxm4-80gb", "bf16"),
        ("a100-sxm4-80gb", "int4"),
    ]
    assert {one.deployment.model for one in made.series} == {made.series[0].deployment.model}


def test_specs_and_paths_are_taken_as_well_as_names(tmp_path: Path) -> None:
    spec = replace(hardware.load(DEVICE), name="mine")
    assert roofplan.roofline(MODEL, spec).series[0].deployment.hardware.name == "mine"
    copy = tmp_path / "device.yaml"
    copy.write_text((hardware.CATALOGUE.folder / "h100-sxm5-80gb.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    assert roofplan.roofline(MODEL, copy).series[0].roof == roofplan.roofline(MODEL, DEVICE).series[0].roof


def test_all_arithmetic_types_or_some_are_drawn() -> None:
    all_types = roofplan.roofline(MODEL, DEVICE, arithmetic="all")
    assert [c.name for c in all_types.drawn(all_types.series[0])] == ["fp32", "tf32", "fp16", "bf16", "fp8", "int8"]
    some = roofplan.roofline(MODEL, DEVICE, arithmetic="fp8,bf16")
    assert [c.name for c in some.drawn(some.series[0])] == ["bf16", "fp8"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batches": ""}, "--batches: got an empty entry"),
        ({"batches": []}, "--batches: got an empty list"),
        ({"batches": "1,,2"}, "--batches: got an empty entry"),
        ({"batches": "1,1"}, "--batches: got 1 twice"),
        ({"batches": range(1, 40)}, "--batches: got 39 of them"),
        ({"batches": "9999999"}, "--batches: got 9,999,999, want at most 1,048,576"),
        ({"phases": "both"}, "--phase: got both, want some of prefill, decode"),
        ({"ceilings": "l3"}, "--ceilings: got l3, want some of cache, l2, link, nvlink, host, pcie"),
        ({"arithmetic": "bf17"}, "--arithmetic: got bf17"),
        ({"arithmetic": "fp4"}, "--arithmetic: got fp4, want a type that h100-sxm5-80gb has: fp32, tf32"),
        ({"formats": "fp8", "weights": "bf16"}, "--weights: got both weights and formats"),
        ({"formats": ["bf16"] * 7}, "roofline: got 1 devices x 7 weight formats, want at most 6 together"),
    ],
)
def test_options_outside_their_domain_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DomainError) as raised:
        roofplan.roofline(MODEL, DEVICE, **options)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("batch", ["0", "-1", "1.5", "nan", "eight", "128k"])
def test_batches_are_whole_numbers_above_zero(batch: str) -> None:
    with pytest.raises(QuantityError, match="--batches"):
        roofplan.roofline(MODEL, DEVICE, batches=batch)


def test_devices_must_be_there_differ_and_have_rates() -> None:
    with pytest.raises(DomainError, match="HARDWARE: got nothing"):
        roofplan.roofline(MODEL)
    with pytest.raises(DomainError, match="HARDWARE: got h100-sxm twice"):
        roofplan.roofline(MODEL, DEVICE, DEVICE)
    with pytest.raises(DomainError, match="HARDWARE: got -, want a name or path: standard input is already read"):
        roofplan.roofline("-", "-")
    with pytest.raises(DomainError, match="no dense rate"):
        roofplan.roofline(MODEL, "desktop-ddr5-6000")
    with pytest.raises(UnknownNameError, match="option"):
        roofplan.roofline(MODEL, DEVICE, promt=3)  # type: ignore[call-arg]


# ------------------------------------------------------------------------------------------------ measured points


def written(folder: Path, text: str) -> Path:
    """A file of measured points."""
    path = folder / "measured.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_measured_points_are_read_by_their_columns(tmp_path: Path) -> None:
    path = written(tmp_path, 'note,flop_per_s, name ,intensity\nx,1.5e12,gemm,62.5\n\ny,3E14,"a, b",1000\nz,1e9,,0.5\n')
    points = read_measured(path)
    assert [(p.name, p.intensity, p.flop_per_s) for p in points] == [
        ("gemm", 62.5, 1.5e12),
        ("a, b", 1000.0, 3e14),
        ("measured", 0.5, 1e9),
    ]
    made = roofplan.roofline(MODEL, DEVICE, measured=path)
    assert made.measured == points
    assert made.to_dict()["result"]["measured"][0]["attainable_flop_per_s"] == 62.5 * 3.35e12


def test_what_is_written_can_be_measured_against(tmp_path: Path) -> None:
    from roofplan.report.roofline_files import data_file

    made = roofplan.roofline(MODEL, DEVICE, phases="decode")
    (tmp_path / "points.csv").write_bytes(data_file(made, "points.csv"))
    with pytest.raises(RoofplanError):  # operators without FLOP have no place
        read_measured(tmp_path / "points.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "measured points: got none"),
        ("name,intensity,flop_per_s\n", "measured points: got none, want 1 to 500 rows under a header"),
        ("name,intensity\na,1\n", "column flop_per_s: got none, want a header with name, intensity, flop_per_s"),
        ("name,name,intensity,flop_per_s\na,b,1,1\n", "column name: got two of them"),
        ("name,intensity,flop_per_s\na,1\n", "row: got 2 cells, want 3 or more, as in the header"),
        ("name,intensity,flop_per_s\na,0,1\n", "intensity: got 0, want a number above zero"),
        ("name,intensity,flop_per_s\na,1,-2\n", "flop_per_s: got"),
        ("name,intensity,flop_per_s\na,nan,2\n", "intensity: got"),
        ("name,intensity,flop_per_s\na,inf,2\n", "intensity: got"),
        ("name,intensity,flop_per_s\na,1,\n", "flop_per_s: got"),
        ('name,intensity,flop_per_s\n"a,1,2\n', "CSV: "),
        ("name,intensity,flop_per_s\n" + "a,1,1\n" * 501, "measured points: got 501 rows"),
    ],
)
def test_faults_in_measured_points_are_told_with_their_place(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises((SpecError, QuantityError)) as raised:
        read_measured(path)
    assert message in str(raised.value)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such file"):
        read_measured(tmp_path / "nothing.csv")
    with pytest.raises(SpecError):
        read_measured(tmp_path)
