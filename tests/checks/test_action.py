"""The GitHub action: what it may do, and a real run of its steps in a shell as a runner gives it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from own_repository import ROOT, copy_into, environment

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]
SCRIPTS = [step for step in STEPS if "run" in step]
INSTALL, CHECK = SCRIPTS

HOLDS = """\
schema: roofplan/deployment/v1
name: chat
model: llama-3.1-8b
hardware: h100-sxm
engine: vllm@0.19
max_model_len: 16384
concurrency: 16
"""
BROKEN = HOLDS.replace("llama-3.1-8b", "llama-3.1-70b")


def test_what_others_made_is_pinned_by_its_hash_as_in_our_own_workflow() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    for step in STEPS:
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", step["uses"])
            assert step["uses"] in workflow


def test_inputs_reach_the_shell_as_variables_only_and_each_is_used() -> None:
    for step in SCRIPTS:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
    used = re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", yaml.safe_dump(STEPS))
    assert sorted(used) == sorted(ACTION["inputs"])
    for name in CHECK["env"]:
        assert f'"${name}"' in CHECK["run"], name


def test_every_input_is_described_and_optional() -> None:
    for name, said in ACTION["inputs"].items():
        assert said["description"].endswith("."), name
        assert isinstance(said["default"], str), name


# ------------------------------------------------------------------------------------------------ real runs


def bash(step: dict[str, object], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as a runner does."""
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", str(step["run"])]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = environment(PATH=path, **variables)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=env, timeout=300)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of a runner into which the action has installed roofplan."""
    source, temporary = tmp_path_factory.mktemp("action"), tmp_path_factory.mktemp("runner")
    copy_into(source)
    done = bash(INSTALL, temporary, RUNNER_TEMP=str(temporary), GITHUB_ACTION_PATH=str(source))
    assert done.returncode == 0, done.stderr
    return temporary


def checked(runner: Path, folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the check with some inputs; the others have their defaults."""
    said = {name: inputs.get(name.replace("-", "_"), of["default"]) for name, of in ACTION["inputs"].items()}
    variables = {
        variable: said[re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", source)[1]]  # type: ignore[index]
        for variable, source in CHECK["env"].items()
    }
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    return bash(CHECK, folder, RUNNER_TEMP=str(runner), **variables, **github)


def test_what_holds_passes_without_annotations(runner: Path, tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(HOLDS, encoding="utf-8")
    done = checked(runner, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "::error" not in done.stdout


def test_what_breaks_fails_with_an_annotation_and_a_summary(runner: Path, tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "large.yaml").write_text(BROKEN, encoding="utf-8")
    done = checked(runner, tmp_path, paths="deploy\n", sarif="roofplan.sarif", junit="roofplan.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^::error file=deploy/large\.yaml,line=\d+", done.stdout, re.MULTILINE), done.stdout
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert summary.count("does-not-fit") >= 1
    results = json.loads((tmp_path / "roofplan.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
    assert "does-not-fit" in {result["ruleId"] for result in results}
    assert "<testsuite" in (tmp_path / "roofplan.xml").read_text(encoding="utf-8")


def test_defaults_rules_and_severity_are_passed_on(runner: Path, tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text("vllm serve meta-llama/Llama-3.1-70B-Instruct\n", encoding="utf-8")
    assert checked(runner, tmp_path, paths="serve.sh", hardware="h100-sxm").returncode == 1
    assert checked(runner, tmp_path, paths="serve.sh", hardware="h100-sxm", fail_on="never").returncode == 0
    chosen = checked(runner, tmp_path, paths="serve.sh", hardware="h100-sxm", select="unknown-flag")
    assert chosen.returncode == 0, chosen.stdout + chosen.stderr


@pytest.mark.parametrize("name", ["paths", "hardware", "select", "sarif"])
def test_inputs_are_never_read_as_commands(name: str, runner: Path, tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(HOLDS, encoding="utf-8")
    checked(runner, tmp_path, **{name: '$(touch taken) `touch taken` "; touch taken; "'})
    assert not (tmp_path / "taken").exists()
