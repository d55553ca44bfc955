"""Every output of ``roofplan check`` through the command line, over files whose names and contents mean harm."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import xmlschema
from check_records import HOSTILE
from code_quality import CODE_QUALITY
from console import run

from roofplan.report.check_outputs import FORMATS

SCHEMAS = Path(__file__).parents[1] / "data" / "schemas"
SARIF = jsonschema.Draft4Validator(json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text()))
JUNIT = xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")
FILES = {kind: text for kind, text in HOSTILE.items() if not set("\0/") & set(text) and len(text) < 200}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of deployments that do not fit: of each, file, name and model are called as people call them who mean harm."""
    root = tmp_path_factory.mktemp("project")
    for number, (kind, text) in enumerate(HOSTILE.items()):
        quoted = json.dumps(text)  # as text in YAML, too
        head = f"schema: roofplan/deployment/v1\nname: {quoted}\nhardware: h100-sxm\n"
        name = os.fsencode(root) + b"/" + FILES.get(kind, str(number)).encode("utf-8", "surrogateescape") + b".yaml"
        with open(name, "w") as stream:
            stream.write(f"{head}model: llama-3.1-405b\n")
        (root / f"unknown-{number}.yaml").write_text(f"{head}model: {quoted}\n")
        (root / f"broken-{number}.yaml").write_text(f"{head}model: llama-3.1-8b\n{quoted}: 1\n")
        (root / f"kind-{number}.yaml").write_text(f"apiVersion: v1\nkind: {quoted}\nmetadata: {{name: {quoted}}}\n")
    return root


@pytest.mark.parametrize("output_format", FORMATS)
def test_every_format_holds_its_form(output_format: str, project: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    env = {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_WORKSPACE": str(project)}
    done = run("check", ".", "--format", output_format, cwd=project, env=env)
    assert done.returncode == 2  # the broken ones
    assert "Traceback" not in done.stderr
    text = done.stdout
    assert all(line.isprintable() for line in text.split("\n"))
    assert "internal error" not in text + done.stderr
    assert "fault of roofplan" not in text
    if output_format == "sarif":
        SARIF.validate(json.loads(text))
    elif output_format == "junit":
        JUNIT.validate(ET.fromstring(text))
    elif output_format == "gitlab":
        issues = json.loads(text)
        jsonschema.validate(issues, CODE_QUALITY)
        assert len({issue["fingerprint"] for issue in issues}) == len(issues)
    elif output_format == "json":
        found = json.loads(text)["result"]
        # Half of a surrogate pair is no YAML: all its files are problems.
        assert len([one for one in found["findings"] if one["rule"] == "does-not-fit"]) == len(HOSTILE) - 1
        assert len(found["problems"]) >= len(HOSTILE)
    else:
        commands = [line for line in text.split("\n") if line.lstrip().startswith("::")]
        assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in commands)
        assert bool(commands) is (output_format == "github")
    assert summary.exists() is (output_format == "github")


@pytest.mark.parametrize("output_format", FORMATS)
def test_a_file_gets_the_same_text(output_format: str, project: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.txt"
    name = "unknown-0.yaml"
    shown = run("check", name, "--format", output_format, cwd=project)
    run("check", name, "--format", output_format, "-o", str(out), cwd=project)
    assert out.read_text() == shown.stdout
    assert run("check", name, "-o", str(out), cwd=project).returncode == 2


def test_a_change_is_shown_as_a_table(tmp_path: Path) -> None:
    for folder, length in (("old", 8192), ("new", 32768)):
        (tmp_path / folder).mkdir()
        text = f"schema: roofplan/deployment/v1\nmodel: llama-3.1-8b\nhardware: h100-sxm\nmax_model_len: {length}\n"
        (tmp_path / folder / "chat.yaml").write_text(text)
    done = run("check", "new", "--diff", "old", "--format", "markdown", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Changed: `max_model_len` `8192` → `32768`." in done.stdout
    assert "| longest sequence, tokens | 8,192 | 32,768 | x 4 | better |" in done.stdout
