"""The page of formulas: how numbers are read, and that no section of the collection is left out that the planner builds on."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
formula_pages = importlib.import_module("formula_pages")

SECTIONS = set(range(1, 19))  # of the collection


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("F7.2", {(7, 2)}),
        ("F17", {(17, 0)}),
        ("F2.6, F2.7 and F17", {(2, 6), (2, 7), (17, 0)}),
        ("F13.1 to F13.3", {(13, 1), (13, 2), (13, 3)}),
        ("BF16, HF8 and F1000", set()),
    ],
)
def test_numbers_of_a_text(text: str, numbers: set[tuple[int, int]]) -> None:
    assert formula_pages.numbers_in(text) == numbers


def listed() -> set[int]:
    return {section for found in formula_pages.stated() for section, _ in found.numbers}


def test_every_section_that_is_built_is_listed() -> None:
    assert listed() == SECTIONS
    shown = {section for section, _ in formula_pages.numbers_in(formula_pages.page())}
    assert shown == listed()
    assert "| F17 |" in formula_pages.page()


def test_what_modules_build_on_is_listed() -> None:
    """A section that the docstring of a module names as its source, one of the functions of the planner states."""
    known = listed()
    for path in sorted((ROOT / "planner").rglob("*.py")):
        named = formula_pages.numbers_in(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
        assert {section for section, _ in named} <= known, path.name
