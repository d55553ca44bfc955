"""The page of formulas: every public function of the planner that states one, with its code and its tests.

Part of :mod:`generate`; read from docstrings (``(formula F7.2)``) and from the numbers that tests name, nothing is run.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent

_PAGE = """\
# Formulas

Made by `make docs` from the docstrings of `planner/`: each function that states a formula, with the tests that name its number. The
docstring has the symbols, units, domain, source and what is left out. Numbers follow the collection that the project was built from: 1
roofline, 2 parameters and FLOP, 3 cache, 4 weights, 5 other memory, 6 step time, 7 batching, 8 static batching, 9 prefix cache, 10 chunked
prefill, 11 speculation, 12 several devices, 13 load, 14 quantisation error, 15 attention traffic, 16 claims, 17 without a cache, 18
uncertainty.

"""

_TAG = re.compile(r"\(formulas? ([^)]*?)[;)]")
_NUMBER = re.compile(r"\bF(\d{1,2})(?:\.(\d{1,2}))?\b")  # F17 is a section of one formula
_RANGE = re.compile(r"F(\d{1,2})\.(\d{1,2}) to F\1\.(\d{1,2})")

Number = tuple[int, int]  # section, and formula in it: 0 for a section that is not numbered further


@dataclass(frozen=True, slots=True)
class Stated:
    """A function or class that states formulas."""

    name: str
    file: str
    line: int
    summary: str
    numbers: tuple[Number, ...]


@cache  # every formula asks every test file
def numbers_in(text: str) -> frozenset[Number]:
    """Numbers that a text names, with those between the ends of a range."""
    found = {(int(section), int(number or 0)) for section, number in _NUMBER.findall(text)}
    for section, first, last in _RANGE.findall(text):
        found |= {(int(section), number) for number in range(int(first), int(last) + 1)}
    return frozenset(found)


def stated() -> Iterator[Stated]:
    """Every public function, method and class of the planner whose docstring has a formula."""
    for path in sorted((ROOT / "planner").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node, name in _definitions(tree):
            doc = ast.get_docstring(node) or ""
            numbers = {number for tag in _TAG.findall(doc) for number in numbers_in(tag)}
            if numbers and not name.rpartition(".")[2].startswith("_"):
                summary = re.sub(r"\s*\(formulas? [^)]*\)", "", " ".join(doc.split("\n\n")[0].split()))
                file = path.relative_to(ROOT).as_posix()
                yield Stated(name, file, node.lineno, summary, tuple(sorted(numbers)))


def _definitions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.ClassDef, str]]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node, node.name
        if isinstance(node, ast.ClassDef):
            yield from ((item, f"{node.name}.{item.name}") for item in node.body if isinstance(item, ast.FunctionDef))


def tests() -> dict[str, str]:
    """The texts of all test files."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
    }


def tests_of(found: Stated, texts: dict[str, str]) -> list[str]:
    """Test files that name one of the formulas; of those the ones that call the function, where any does."""
    naming = [file for file, text in texts.items() if not numbers_in(text).isdisjoint(found.numbers)]
    name = re.compile(rf"\b{re.escape(found.name.rpartition('.')[2])}\b")
    calling = [file for file in naming if name.search(texts[file])]
    return calling or naming


def page() -> str:
    """The page as Markdown, in the order of the formulas; code is linked without line numbers, which would make every edit a change."""
    texts = tests()
    lines = ["| formula | function | what it gives | tests |", "|---|---|---|---|"]
    for found in sorted(stated(), key=lambda item: (item.numbers[0], item.file, item.line)):
        named = ", ".join(f"F{section}.{number}" if number else f"F{section}" for section, number in found.numbers)
        files = tests_of(found, texts)
        links = ", ".join(f"[{Path(file).stem.removeprefix('test_')}](../{file})" for file in files)
        summary = found.summary.replace("|", "\\|")
        lines.append(f"| {named} | [`{found.name}`](../{found.file}) | {summary} | {links} |")
    return _PAGE + "\n".join(lines) + "\n"
