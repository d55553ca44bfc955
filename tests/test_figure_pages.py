"""The chapter with pictures: each is drawn by the program, its caption is what the data says, and none is left over."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
from pathlib import Path

import pytest

from roofplan.api.presets import PRESETS

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
figure_pages = importlib.import_module("figure_pages")

CHAPTER = ROOT / "docs" / "from-bytes-to-tokens-per-second.md"
TEXT = CHAPTER.read_text(encoding="utf-8")
PAGES = sorted((ROOT / "docs").glob("*.md"))
PINNED = re.search(r"^matplotlib==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_chapter_shows_every_preset() -> None:
    assert set(figure_pages.names_in(TEXT)) == {*PRESETS, "roofline"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_captions_are_what_the_data_says(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert figure_pages.with_captions(text) == text, f"{page.name} is stale: run make docs"


@pytest.mark.parametrize("name", sorted(set(figure_pages.names_in(TEXT))))
def test_pictures_are_what_the_program_draws(name: str) -> None:
    if PINNED is None or importlib.metadata.version("matplotlib") != PINNED[1]:
        pytest.skip("another version of matplotlib than the pictures were drawn with")
    stored = (ROOT / "docs" / "figures" / f"{name}.svg").read_bytes()
    assert figure_pages.drawn(name)[0] == stored, f"docs/figures/{name}.svg is stale: run make docs"


def test_a_caption_is_written_anew_and_other_pictures_are_left_alone() -> None:
    stale = "![stale](figures/paged-waste.svg)\n\n*stale*\n\n![Memory](figures/devices.svg)\n\n*ours*\n"
    renewed = figure_pages.with_captions(stale)
    assert "*Blocks of 16 tokens waste less than 4% from a mean of 180 tokens on.*" in renewed
    assert "![Memory](figures/devices.svg)\n\n*ours*\n" in renewed
    assert "stale" not in renewed


def test_the_questions_of_the_issue_are_answered() -> None:
    table = TEXT.split("## Statements that are looser than they sound")[1]
    for said in ("flat until batch 150", "256-fold", "serve 200", "k = 4"):
        assert said in table
    commands = re.findall(r"\| `(roofplan [^`]+)` \|", table)
    assert len(commands) == len(re.findall(r"^\| .* \|$", table, re.MULTILINE)) - 1  # the header
