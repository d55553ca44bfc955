"""docs/ci.md: its snippets are valid, name what exists, and pin what others made."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import jsonschema
import pytest
import yaml
from console import run
from own_repository import ROOT

from roofplan.checks.settings import load

PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")


def blocks(language: str, text: str = PAGE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


YAML = [yaml.safe_load(block) for block in blocks("yaml") + blocks("yaml", README)]


def steps(data: Any) -> list[dict[str, Any]]:
    """Every step of the workflows in a block."""
    if isinstance(data, list):
        return [step for step in data if isinstance(step, dict)]
    jobs = data.get("jobs", {}) if isinstance(data, dict) else {}
    return [step for job in jobs.values() for step in job["steps"]]


STEPS = [step for data in YAML for step in steps(data)]


def test_the_setup_takes_ten_lines_here_and_in_the_readme() -> None:
    (setup,) = [block for block in blocks("yaml", README) if "jobs:" in block]
    assert len(setup.splitlines()) == 10
    assert setup in PAGE


def test_what_others_made_is_pinned_by_a_hash() -> None:
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    for name in used:
        _, _, commit = name.partition("@")
        assert re.fullmatch("[0-9a-f]{40}|COMMIT", commit), name
        assert commit == "COMMIT" or name in WORKFLOW


def test_inputs_of_the_action_exist() -> None:
    given = [name for step in STEPS if "/roofplan@" in step.get("uses", "") for name in step["with"]]
    assert {"paths", "hardware", "sarif"} <= set(given)
    assert set(given) <= set(ACTION["inputs"])


def test_options_exist() -> None:
    described = run("check", "--help", env={"COLUMNS": "200"}).stdout
    commands = re.findall(r"roofplan check[^\n`]*", PAGE)
    options = {option for command in commands for option in re.findall(r"(?<= )--?[a-z][\w-]*", command)}
    assert {"--diff", "--format", "--init", "--baseline", "-o"} <= options
    for option in options:
        assert re.search(rf"{option}\b", described), option
    formats = set(re.findall(r"--format (\w+)", " ".join(commands)))
    assert formats == {"gitlab", "junit", "markdown"}
    for name in formats:
        assert name in described


def test_the_hook_exists() -> None:
    (hook,) = [hook for data in YAML if "repos" in data for repo in data["repos"] for hook in repo["hooks"]]
    assert hook["id"] in {
        hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    }
    assert re.match(hook["files"], "deploy/chat.yaml")


def test_the_deployment_file_is_valid_and_holds(tmp_path: Any) -> None:
    (text,) = [block for block in blocks("yaml") if block.startswith("schema: roofplan/deployment/v1")]
    schema = yaml.safe_load((ROOT / "docs" / "schemas" / "deployment-v1.json").read_text(encoding="utf-8"))
    jsonschema.validate(yaml.safe_load(text), schema)
    missing = set(schema["properties"]["limits"]["properties"]) - set(yaml.safe_load(text)["limits"])
    assert not missing  # it shows every limit
    (tmp_path / "chat.yaml").write_text(text, encoding="utf-8")
    done = run("check", "chat.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_the_settings_are_read(tmp_path: Any) -> None:
    (ini, settings) = blocks("toml")
    assert tomllib.loads(ini)["tool"]["pytest"]["ini_options"]["roofplan_deployments"]
    (tmp_path / ".roofplan.toml").write_text(settings, encoding="utf-8")
    loaded = load(tmp_path)
    assert loaded.fail_on == "warning"
    assert loaded.ignore == ("kv-heads-replicated",)
    assert loaded.exclude == ("charts/*",)
    assert loaded.defaults["hardware"].value == "h100-sxm"


@pytest.mark.parametrize("rule", sorted(set(re.findall(r"ignore\[([\w-]+)\]", PAGE)) | {"kv-heads-replicated"}))
def test_rules_exist(rule: str) -> None:
    assert run("check", "--explain", rule).returncode == 0
