"""The documentation is executed: every console block prints what the page shows, every Python block runs."""

import importlib
import importlib.metadata
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import yaml

from roofplan import cli, hardware, models
from roofplan.report.figures import DevicePoint, devices_figure

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
generate = importlib.import_module("generate")
catalogue_pages = importlib.import_module("catalogue_pages")

PAGES = sorted(page for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
BLOCKS = [
    (page.name, block["command"], block["output"])
    for page in PAGES
    for block in generate.BLOCK.finditer(page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(
    ("page", "command", "output"), BLOCKS, ids=[f"{page}: {command[:60]}" for page, command, _ in BLOCKS]
)
def test_commands_print_what_the_page_shows(page: str, command: str, output: str) -> None:
    assert generate.printed(command) == output, f"{page} is stale: run make docs"


# Commands in the cells of tables: `roofplan …` with an answer, yes or no. What they print is not on the page.
CELLS = sorted({c for page in PAGES for c in re.findall(r"\| `(roofplan [^`]+)` \|", page.read_text(encoding="utf-8"))})


@pytest.mark.parametrize("command", CELLS)
def test_commands_in_tables_have_an_answer(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(shlex.split(command)[1:]) in {0, 1}
    assert capsys.readouterr().out


# Numbers in bold beside such a command are what it prints: | said | **4.73 ms** … | `roofplan …` |
CHAPTER = (ROOT / "docs" / "from-bytes-to-tokens-per-second.md").read_text(encoding="utf-8")
STATEMENTS = re.findall(r"^\| (.+?) \| (.+?) \| `(roofplan [^`]+)` \|$", CHAPTER, re.MULTILINE)
_NUMBER = r"(\d[\d,]*(?:\.\d+)?)(?:e([-+]\d+))?"
_UNIT = r"(?:ms|s|B|[KMGT]i?B|tokens?(?:/s)?|sequences|FLOP per byte|%)"
QUANTITY = re.compile(rf"{_NUMBER}(?: ?({_UNIT})(?![\w/]))?")


def quantities_in(text: str) -> list[tuple[float, str]]:
    """Numbers of a text with their units; ``times`` and the like are none."""
    return [(float(n.replace(",", "")) * 10 ** int(e or 0), unit) for n, e, unit in QUANTITY.findall(text)]


def is_printed(said: str, text: str) -> bool:
    """Whether a number is in a text, to as many digits as are said, with the same unit."""
    ((value, unit),) = quantities_in(said)
    digits = len(QUANTITY.match(said)[1].partition(".")[2])  # type: ignore[index]
    half = 0.5 * 10.0**-digits * (1 + 1e-9)
    return any(abs(found - value) <= half and (not unit or unit == of) for found, of in quantities_in(text))


@pytest.mark.parametrize(
    ("said", "text", "printed"),
    [
        ("4.73 ms", " 13   10.5 ms   4.73 ms", True),
        ("4.7 ms", "4.73 ms", True),
        ("4.7 ms", "4.76 ms", False),
        ("4.7 ms", "4.7 s or 4.7", False),
        ("2.01 times", '"y": [1.0, 2.0135935]', True),
        ("2.01 times", "2.016", False),
        ("1,638", "the step holds 1,638)", True),
        ("1.393 times", "1.3927779", True),
        ("1.393 times", "2.32 and 2.00", False),
    ],
)
def test_a_number_is_printed_to_its_digits_and_in_its_unit(said: str, text: str, *, printed: bool) -> None:
    assert is_printed(said, text) == printed


@pytest.mark.parametrize(("said", "truth", "command"), STATEMENTS, ids=[said for said, _, _ in STATEMENTS])
def test_commands_in_tables_print_their_numbers(said: str, truth: str, command: str) -> None:
    bold = re.findall(r"\*\*(.+?)\*\*", truth)
    assert bold or not re.search(r"\d", truth), f"{said}: no number in bold, that the command prints"
    text = generate.printed(command)
    for number in bold:
        assert is_printed(number, text), f"{said}: {number} is not printed by {command}"


def test_every_statement_has_its_command() -> None:
    assert len(STATEMENTS) >= 15
    assert {command for _, _, command in STATEMENTS} <= set(CELLS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for code in PYTHON.findall(page.read_text(encoding="utf-8")):
        exec(compile(code, page.name, "exec"), {"__name__": "example"})
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


CATALOGUES = {
    "model-v1": "models/catalogue",
    "hardware-v1": "hardware/catalogue",
    "engine-v1": "engines/catalogue",
    "format-v1": "engines/formats",
}


@pytest.mark.parametrize(("schema", "folder"), CATALOGUES.items())
def test_published_schemas_accept_the_catalogues(schema: str, folder: str) -> None:
    validator = jsonschema.Draft202012Validator(
        json.loads((ROOT / "docs" / "schemas" / f"{schema}.json").read_text(encoding="utf-8"))
    )
    for file in (ROOT / folder).glob("*.yaml"):
        validator.validate(yaml.safe_load(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("schema", CATALOGUES)
def test_published_schemas_refuse_unknown_keys(schema: str) -> None:
    published = json.loads((ROOT / "docs" / "schemas" / f"{schema}.json").read_text(encoding="utf-8"))
    file = next((ROOT / CATALOGUES[schema]).glob("*.yaml"))
    spec = yaml.safe_load(file.read_text(encoding="utf-8")) | {"surprise": 1}
    assert not jsonschema.Draft202012Validator(published).is_valid(spec)


# ------------------------------------------------------------------------------------------------ generated pages


def committed(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_the_reference_lists_every_verb_and_sub_command() -> None:
    """What each prints is compared block by block above."""
    verbs = generate.verbs()
    assert {"size", "kv", "hardware", "hardware show", "model", "model import"} <= set(verbs)
    headings = re.findall(r"^## roofplan ?(.*)$", committed("command-line.md"), re.MULTILINE)
    assert headings == ["", *verbs], "docs/command-line.md is stale: run make docs"


def test_the_accuracy_page_is_what_the_harness_prints() -> None:
    # In a process of its own: every request is simulated, which takes minutes where lines are counted for coverage.
    script = "import sys; sys.path.insert(0, 'docs'); import generate; sys.stdout.write(generate.accuracy())"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == committed("accuracy.md"), "docs/accuracy.md is stale: run make docs"


def test_the_page_of_formulas_is_what_the_docstrings_say() -> None:
    assert generate.formula_pages.page() == committed("formulas.md"), "docs/formulas.md is stale: run make docs"


def test_every_formula_that_is_stated_is_tested() -> None:
    texts = generate.formula_pages.tests()
    for stated in generate.formula_pages.stated():
        assert generate.formula_pages.tests_of(stated, texts), (
            f"no test names a formula of {stated.file}: {stated.name}"
        )


def test_catalogue_pages_are_what_the_catalogues_make(tmp_path: Path) -> None:
    catalogue_pages.write(tmp_path)
    for name in ("devices.md", "models.md"):
        assert (tmp_path / name).read_text(encoding="utf-8") == committed(name), f"docs/{name} is stale: run make docs"
    for name, catalogue in (("devices.md", hardware.CATALOGUE), ("models.md", models.CATALOGUE)):
        listed = re.findall(r"^\| \[([^]]+)\]", committed(name), re.MULTILINE)
        assert sorted(listed) == catalogue.slugs()


def test_models_are_sorted_by_their_cache() -> None:
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20}
    cells = [line.split(" | ")[3].split(" + ")[0] for line in committed("models.md").splitlines() if line[:3] == "| ["]
    sizes = [float(number) * units[unit[0]] if unit else 0 for number, *unit in map(str.split, cells)]
    assert sizes == sorted(sizes)
    assert sizes[-1] > sizes[0] == 0


PINNED = re.search(r"^matplotlib==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_figure_of_devices_is_the_same_every_time(tmp_path: Path) -> None:
    import matplotlib as mpl

    points = catalogue_pages.device_points(map(hardware.load, hardware.CATALOGUE.slugs()))
    devices_figure(tmp_path / "first.svg", points)
    with mpl.rc_context({"font.size": 20, "svg.hashsalt": None, "lines.linewidth": 9}):  # a user's own settings
        devices_figure(tmp_path / "second.svg", reversed(points))
    first = (tmp_path / "first.svg").read_bytes()
    assert first == (tmp_path / "second.svg").read_bytes()
    if importlib.metadata.version("matplotlib") == PINNED[1]:
        figure = ROOT / "docs" / catalogue_pages.DEVICES_FIGURE
        assert first == figure.read_bytes(), "docs/figures/devices.svg is stale: run make docs"


def test_the_figure_draws_every_device_and_says_what_its_axes_are(tmp_path: Path) -> None:
    points = [
        DevicePoint("near", "One", 80 * 10**9, 3.35e12),
        DevicePoint("same-place", "One", 80 * 10**9, 3.35e12),
        DevicePoint("far", "Two", 8 * 10**9, 1e11),
    ]
    devices_figure(tmp_path / "few.svg", points)
    text = (tmp_path / "few.svg").read_text(encoding="utf-8")
    root = ET.fromstring(text)
    svg = "{http://www.w3.org/2000/svg}"
    groups = [group for group in root.iter(f"{svg}g") if group.get("id", "").startswith("PathCollection")]
    assert [len(list(group.iter(f"{svg}use"))) for group in groups] == [2, 1, 1, 1]  # two vendors, and the legend's
    for words in ("(GiB)", "(GB/s)", "One (2)", "Two (1)", "<!-- near -->", "<!-- same-place -->", "<!-- far -->"):
        assert words in text  # matplotlib names each text in a comment
    assert "dc:date" not in text


def test_a_crowd_gets_only_the_labels_there_is_room_for(tmp_path: Path) -> None:
    points = [DevicePoint(f"device-{number}", "One", 80 * 10**9 + number, 3.35e12) for number in range(40)]
    devices_figure(tmp_path / "crowd.svg", points)
    labels = re.findall(r"<!-- device-\d+ -->", (tmp_path / "crowd.svg").read_text(encoding="utf-8"))
    assert 2 <= len(labels) <= 8
