"""The committed runs of one machine, held against today's planner: nothing is timed here."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
import yaml

from roofplan import hardware
from roofplan.hardware.lint import lint_device
from roofplan.measure.again import predicted_again
from roofplan.measure.overlay import overlay
from roofplan.measure.records import Record, load
from roofplan.report.measured_page import validation_page

FOLDER = Path(__file__).parents[2] / "docs" / "measured"
DEVICE = hardware.load(str(FOLDER / "machine.yaml"))
DECODE = sorted(FOLDER.glob("decode-*.json"))


def errors(path: Path, name: str) -> list[float]:
    return [error(record) for record in load(path).named(name)]


def error(record: Record) -> float:
    """Of what the planner says now, whatever it said when the run was made."""
    return abs(predicted_again(record, DEVICE) / record.measured.median - 1)


def test_decode_steps_of_three_shapes_are_predicted() -> None:
    """Issue G: batches 1 to 32 of shapes that were not calibrated with, within 15 %, the median within 8 %."""
    assert len(DECODE) == 3
    for path in DECODE:
        assert {record.parameters["batch"] for record in load(path).named("decode.step")} == {1, 2, 4, 8, 16, 32}
    found = [one for path in DECODE for one in errors(path, "decode.step")]
    assert len(found) == 36
    assert max(found) <= 0.15
    assert statistics.median(found) <= 0.08


@pytest.mark.parametrize("name", ["cache.token_with", "cache.token_without"])
def test_a_token_with_the_cache_and_without_is_predicted(name: str) -> None:
    found = errors(FOLDER / "cache.json", name)
    assert len(found) == 5
    assert max(found) <= 0.20


def test_what_the_cache_saves_is_predicted() -> None:
    """How many times as long a token takes without a cache: both times may be off alike, their ratio within 20 % too."""
    run = load(FOLDER / "cache.json")
    for one, other in zip(run.named("cache.token_with"), run.named("cache.token_without"), strict=True):
        assert one.parameters["position"] == other.parameters["position"]
        predicted = predicted_again(other, DEVICE) / predicted_again(one, DEVICE)
        assert predicted == pytest.approx(other.measured.median / one.measured.median, rel=0.20)


def test_shapes_are_not_those_of_the_ceilings() -> None:
    calibrated = {
        (record.parameters["heads"], record.parameters["kv_heads"], record.parameters["width"])
        for record in load(FOLDER / "ceilings.json").named("attention")
    }
    for path in DECODE:
        model = load(path).records[0].parameters["model"]
        assert str(model).startswith(path.stem.removeprefix("decode-"))
    assert calibrated == {(8 * group, 8, 128) for group in (1, 4, 8)}


def test_every_sample_is_kept() -> None:
    for path in FOLDER.glob("*.json"):
        for record in load(path).records:
            assert len(record.measured.samples) == record.measured.count


def test_the_machine_is_what_its_ceilings_say() -> None:
    """The committed overlay follows from the committed samples, and is a device as good as any of the catalogue."""
    stored = yaml.safe_load((FOLDER / "machine.yaml").read_text(encoding="utf-8"))
    made = overlay(load(FOLDER / "ceilings.json"), None)
    assert stored["memory"] == made["memory"]
    assert stored["peak"] == made["peak"]
    assert stored["achieved"]["kernels"]["gemm"] == made["achieved"]["kernels"]["gemm"]
    assert stored["achieved"]["kernels"]["decode_attention"] == made["achieved"]["kernels"]["decode_attention"]
    assert list(lint_device(DEVICE)) == []


def test_the_page_is_up_to_date() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert page == validation_page(FOLDER), "docs/measured/README.md is stale: run python docs/generate.py"
