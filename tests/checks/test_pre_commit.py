"""A real run of the pre-commit hook: a scratch project, this checkout as the hook's repository, installed as pre-commit installs it.

pre-commit makes an environment and installs roofplan into it (``language: python``). What roofplan depends on is lent to that environment
from the one that runs the tests, so that nothing is downloaded.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from own_repository import ROOT, environment, git, repository_in

HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))

HOLDS = """\
schema: roofplan/deployment/v1
model: llama-3.1-8b
hardware: h100-sxm
engine: vllm@0.19
max_model_len: 16384
concurrency: 16
limits:
  fits: true
"""
CONFIG = """\
repos:
  - repo: {repository}
    rev: {revision}
    hooks:
      - id: roofplan-check
        files: ^deploy/
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """This checkout as a repository of its own, and its commit."""
    folder = tmp_path_factory.mktemp("hooks")
    return folder, repository_in(folder)


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of pre-commit, with a place of its own for what it installs."""
    return environment(PRE_COMMIT_HOME=str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def project(tmp_path: Path, repository: tuple[Path, str]) -> Path:
    """A scratch project with the hook of this checkout."""
    config = CONFIG.format(repository=repository[0], revision=repository[1])
    (tmp_path / ".pre-commit-config.yaml").write_text(config, encoding="utf-8")
    (tmp_path / "deploy").mkdir()
    git(tmp_path, "init", "--quiet")
    return tmp_path


def hooked(project: Path, lent: dict[str, str]) -> subprocess.CompletedProcess[str]:
    git(project, "add", "--all")
    command = [sys.executable, "-m", "pre_commit", "run", "--color", "never"]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, env=lent, timeout=300)


def test_the_hook_passes_what_holds_and_fails_what_does_not(project: Path, lent: dict[str, str]) -> None:
    (project / "deploy" / "chat.yaml").write_text(HOLDS, encoding="utf-8")
    (project / "mkdocs.yml").write_text("extra: !ENV [A, b]\n", encoding="utf-8")  # no deployment, and not in deploy/
    passed = hooked(project, lent)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "roofplan check" in passed.stdout
    assert "Passed" in passed.stdout
    broken = HOLDS.replace("llama-3.1-8b", "llama-3.1-70b")
    (project / "deploy" / "large.yaml").write_text(broken, encoding="utf-8")
    failed = hooked(project, lent)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "- hook id: roofplan-check\n- exit code: 1" in failed.stdout
    assert "deploy/large.yaml:" in failed.stdout
    assert "does-not-fit" in failed.stdout
    assert "deploy/chat.yaml:" not in failed.stdout


def test_a_file_that_cannot_be_read_fails_the_commit(project: Path, lent: dict[str, str]) -> None:
    (project / "deploy" / "chat.yaml").write_text("model: [1\n", encoding="utf-8")
    failed = hooked(project, lent)
    assert failed.returncode == 1
    assert "- exit code: 2" in failed.stdout
    assert "deploy/chat.yaml:" in failed.stdout


def test_the_manifest_is_valid_and_says_how_the_hook_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-manifest", str(ROOT / ".pre-commit-hooks.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    (hook,) = HOOKS
    assert hook["id"] == "roofplan-check"
    assert hook["language"] == "python"
    assert hook["require_serial"] is True
