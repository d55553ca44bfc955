"""Every label of the published logs and benchmarks resolves: by the catalogues, or by the table of one-off names."""

import csv
from pathlib import Path

import pytest

from roofplan import hardware, models
from roofplan.errors import UnknownNameError
from roofplan.specfiles import read_document

ROOM = Path(__file__).parents[2] / "accuracy"
NAMES = read_document(ROOM / "names.yaml").data
CATALOGUES = {"models": (models.CATALOGUE, "model"), "devices": (hardware.CATALOGUE, "gpu")}


def labels(column: str) -> set[str]:
    found = set()
    for file in ("memory.csv", "speed.csv"):
        with (ROOM / "data" / file).open(encoding="utf-8", newline="") as stream:
            found |= {row[column] for row in csv.DictReader(stream)}
    return found


@pytest.mark.parametrize("kind", CATALOGUES)
def test_every_label_resolves(kind: str) -> None:
    catalogue, column = CATALOGUES[kind]
    for label in labels(column) - set(NAMES[kind]):
        assert catalogue.find(label).data["name"]


@pytest.mark.parametrize("kind", CATALOGUES)
def test_one_off_names_stand_for_entries_and_say_why(kind: str) -> None:
    catalogue, column = CATALOGUES[kind]
    slugs, known = set(catalogue.slugs()), labels(column)
    for label, entry in NAMES[kind].items():
        assert label in known, f"{label} is in no file"
        assert entry["stands_for"] is None or entry["stands_for"] in slugs
        assert entry["why"]


@pytest.mark.parametrize("kind", CATALOGUES)
def test_no_one_off_name_hides_a_real_one(kind: str) -> None:
    catalogue, _ = CATALOGUES[kind]
    for label in NAMES[kind]:
        with pytest.raises(UnknownNameError):
            catalogue.find(label)
