"""Write what the documentation holds of the program: schemas, the reference of the command line, the catalogue pages, outputs.

Run by ``make docs``; tests compare the files with what this prints.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import catalogue_pages
import deployment_schema
import figure_pages
import formula_pages
import rule_pages
import typer
from pydantic import TypeAdapter

from roofplan import engines, hardware
from roofplan.accuracy.results import memory_accuracy
from roofplan.accuracy.speed import SpeedAccuracy, speed_accuracy
from roofplan.cli import build_app
from roofplan.engines import EngineProfile, NumberFormat
from roofplan.engines.spec import Origin
from roofplan.hardware.achieved import Kernels
from roofplan.hardware.spec import HardwareSpec
from roofplan.models.spec import ModelSpec
from roofplan.report.accuracy import memory_page
from roofplan.report.accuracy_figure import scatter_figure
from roofplan.report.accuracy_speed import speed_page
from roofplan.report.measured_page import validation_page
from roofplan.specfiles import json_schema

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SPECS = {
    "hardware-v1": HardwareSpec,
    "model-v1": ModelSpec,
    "engine-v1": EngineProfile,
    "format-v1": NumberFormat,
    "kernels-v1": Kernels,
}

# A command in a Markdown file, and what it prints: ```console / $ roofplan … / output / ```.
BLOCK = re.compile(r"```console\n\$ (?P<command>roofplan [^\n]+)\n(?P<output>.*?)```", re.DOTALL)


def schemas() -> dict[str, Any]:
    """JSON Schemas of the spec files; a layer may write its one mixer or feed-forward part without a list."""
    made = {}
    for name, cls in SPECS.items():
        schema = json_schema(cls)
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"roofplan {name}", **schema}
        if name == "model-v1":
            for key in ("attention", "mlp"):
                field = schema["$defs"]["LayerGroup"]["properties"][key]
                schema["$defs"]["LayerGroup"]["properties"][key] = {"anyOf": [field["items"], field]}
        if name in {"engine-v1", "kernels-v1"}:  # such a file states only what changed against the one that it extends
            _require_nothing(schema["$defs"])
            schema["required"] = ["schema", "name"]
        made[name] = schema
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "roofplan deployment-v1"}
    return made | {"deployment-v1": draft | deployment_schema.deployment_schema()}


def _require_nothing(definitions: dict[str, Any]) -> None:
    for definition in definitions.values():
        definition.pop("required", None)


@functools.cache
def closed_forms() -> SpeedAccuracy:
    """Speed, closed loops by the closed form."""
    return speed_accuracy(leave_one_out=True)


def accuracy() -> str:
    """The page that compares predictions with published logs and benchmarks."""
    return memory_page(memory_accuracy()) + speed_page(closed_forms(), speed_accuracy(simulate=True), origins())


def origins() -> list[tuple[str, str, Origin]]:
    """Every figure of kernels and engines that was fitted: the file, the figure, and where it comes from."""
    found = []
    for catalogue in (hardware.KERNELS, engines.profiles.CATALOGUE):
        for slug in catalogue.slugs():
            said = catalogue.read(slug).data.get("sources", {})
            found += [
                (slug, figure, TypeAdapter(Origin).validate_python(origin))
                for figure, origin in said.items()
                if origin.get("kind") == "fitted" and "fit" in origin
            ]
    return found


def accuracy_figures() -> None:
    """The pictures of the page."""
    for name, title in (("tpot", "Time per output token"), ("ttft", "Time to first token")):
        path = DOCS / "figures" / f"accuracy-{name}.png"
        scatter_figure(path, closed_forms().comparisons, f"{name}_ms", title)


def printed(command: str) -> str:
    """What a command of roofplan prints in a pipe of 100 columns, run from the root of the checkout."""
    script = Path(sys.executable).with_name("roofplan")
    quiet = {name: value for name, value in os.environ.items() if name not in {"FORCE_COLOR", "NO_COLOR"}}
    done = subprocess.run(  # our own command
        [script, *shlex.split(command)[1:]],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**quiet, "COLUMNS": "100", "TERMINAL_WIDTH": "100"},
    )
    return "\n".join(line.rstrip() for line in (done.stdout + done.stderr).splitlines()) + "\n"


def with_output(text: str) -> str:
    """A Markdown text with the output of each of its commands brought up to date."""
    return BLOCK.sub(lambda block: f"```console\n$ {block['command']}\n{printed(block['command'])}```", text)


def verbs() -> list[str]:
    """Every verb of the program, each followed by its sub-commands, in the order of its own help."""
    found: list[str] = []

    def walk(command: Any, path: str) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            found.append(f"{path}{name}")
            walk(inner, f"{path}{name} ")

    walk(typer.main.get_command(build_app()), "")
    return found


def reference() -> str:
    """The reference of the command line: the help of every verb."""
    parts = ["# Command line", "", "Made by `make docs` from the program's own help.", ""]
    for verb in ("", *verbs()):
        command = f"roofplan {verb} --help".replace("  ", " ")
        parts += [f"## {command.removesuffix(' --help')}", "", f"```console\n$ {command}\n```", ""]
    return with_output("\n".join(parts))


def main() -> None:
    """Write everything."""
    (DOCS / "schemas").mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (DOCS / "schemas" / f"{name}.json").write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")
    (DOCS / "command-line.md").write_text(reference(), encoding="utf-8")
    (DOCS / "accuracy.md").write_text(accuracy(), encoding="utf-8")
    accuracy_figures()
    (DOCS / "formulas.md").write_text(formula_pages.page(), encoding="utf-8")
    catalogue_pages.write(DOCS)
    rule_pages.write(DOCS)
    for page in (ROOT / "README.md", *sorted(DOCS.glob("*.md"))):
        text = figure_pages.with_captions(page.read_text(encoding="utf-8"))
        figure_pages.write(DOCS, text)
        page.write_text(with_output(text), encoding="utf-8")
    (DOCS / "measured" / "README.md").write_text(validation_page(DOCS / "measured"), encoding="utf-8")


if __name__ == "__main__":
    main()
