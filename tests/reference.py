"""The reference table of models: facts gathered from public sources, each row with its own."""

from __future__ import annotations

import csv
from pathlib import Path

DATA = Path(__file__).parent / "data"


def rows() -> dict[str, dict[str, str]]:
    """Rows of model_reference.csv by Hugging Face id."""
    with (DATA / "model_reference.csv").open(encoding="utf-8", newline="") as stream:
        return {row["hf_id"]: row for row in csv.DictReader(stream)}


def config_path(hf_id: str) -> Path:
    """The configuration file of a model."""
    return DATA / "model_configs" / f"{hf_id.replace('/', '__')}.json"
