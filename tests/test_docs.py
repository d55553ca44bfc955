"""The documentation is executed: every console block prints what the page shows, every Python block runs."""

import importlib
import json
import re
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
generate = importlib.import_module("generate")

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
