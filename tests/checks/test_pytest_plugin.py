"""The pytest plugin in scratch projects, run as pytest runs there: what passes, what fails, and what it costs when unused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HOLDS = """\
schema: roofplan/deployment/v1
name: chat
model: llama-3.1-8b
hardware: h100-sxm
engine: vllm@0.19
max_model_len: 16384
prompt: 2048
output: 256
concurrency: 16
limits:
  fits: true
  tpot: "60 ms"
"""


def pytest_in(folder: Path, *arguments: str, **files: str) -> subprocess.CompletedProcess[str]:
    """Run pytest of its own in a folder with some files (``a__b`` for ``a/b``, endings after two more)."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--strict-config",
        "--strict-markers",
        "-q",
        *arguments,
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=quiet, timeout=120)


def outcome(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    last = done.stdout.strip().splitlines()[-1]
    return {kind: int(number) for number, kind in re.findall(r"(\d+) (passed|failed|error)", last)}


# ------------------------------------------------------------------------------------------------ assert_fits


FITS = """
def test_it_fits(assert_fits):
    plan = assert_fits("llama-3.1-8b", "h100-sxm", engine="vllm@0.19", max_model_len=16384, concurrency=16)
    assert plan.capacity.max_concurrency >= 16

def test_it_holds_its_limits(assert_fits):
    assert_fits("llama-3.1-8b", "h100-sxm", concurrency=16, limits={"tpot": "60 ms", "concurrency": 16})
"""


def test_what_fits_passes(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, test_it_dot_py=FITS)
    assert outcome(done) == {"passed": 2}, done.stdout


def test_what_does_not_fit_fails_with_what_is_missing(tmp_path: Path) -> None:
    code = 'def test_it_fits(assert_fits):\n    assert_fits("llama-3.1-70b", "h100-sxm")\n'
    done = pytest_in(tmp_path, test_it_dot_py=code)
    assert (done.returncode, outcome(done)) == (1, {"failed": 1}), done.stdout
    assert "AssertionError: llama-3.1-70b does not fit on h100-sxm: weights_exceed_memory" in done.stdout
    assert "to make it fit: 2 devices (--tp 2)" in done.stdout
    assert "weights take 131.4 GiB" in done.stdout  # 70.55 billion parameters of two bytes
    assert "asserting.py" not in done.stdout  # the traceback ends at the test


def test_a_limit_that_is_missed_fails(tmp_path: Path) -> None:
    code = 'def test_it(assert_fits):\n    assert_fits("llama-3.1-8b", "h100-sxm", concurrency=16, limits={"tpot": "1 ms"})\n'
    done = pytest_in(tmp_path, test_it_dot_py=code)
    assert outcome(done) == {"failed": 1}, done.stdout
    assert "[tpot-limit-missed]" in done.stdout


def test_a_name_that_does_not_exist_fails_with_its_message(tmp_path: Path) -> None:
    code = 'def test_it(assert_fits):\n    assert_fits("llama-3.1-9b", "h100-sxm")\n'
    done = pytest_in(tmp_path, test_it_dot_py=code)
    assert outcome(done) == {"failed": 1}, done.stdout
    assert "llama-3.1-8b" in done.stdout  # the closest name


# ------------------------------------------------------------------------------------------------ deployment


EACH = """
def test_it_holds(deployment):
    deployment.check()

def test_it_fits(deployment):
    assert deployment.fits
    deployment.assert_fits()
    assert deployment.plan.times.latency.tpot_s.expected < 0.06
"""
INI = "[pytest]\nroofplan_deployments = deploy\n"


def test_each_deployment_is_a_case(tmp_path: Path) -> None:
    second = HOLDS.replace("name: chat", "name: batch")
    done = pytest_in(
        tmp_path, "-vv", pytest_dot_ini=INI, deploy__a_dot_yaml=HOLDS, deploy__b_dot_yaml=second, test_it_dot_py=EACH
    )
    assert outcome(done) == {"passed": 4}, done.stdout
    assert "test_it_holds[deploy/a.yaml:chat]" in done.stdout
    assert "test_it_holds[deploy/b.yaml:batch]" in done.stdout


def test_a_finding_fails_its_own_case_only(tmp_path: Path) -> None:
    missed = HOLDS.replace("name: chat", "name: slow").replace("60 ms", "1 ms")
    done = pytest_in(
        tmp_path, pytest_dot_ini=INI, deploy__a_dot_yaml=HOLDS, deploy__b_dot_yaml=missed, test_it_dot_py=EACH
    )
    assert (done.returncode, outcome(done)) == (1, {"failed": 1, "passed": 3}), done.stdout
    assert re.search(r"deploy/b\.yaml:12:\d+: error: .* \[tpot-limit-missed\]", done.stdout), done.stdout


def test_patterns_the_option_and_the_mark_choose_the_files(tmp_path: Path) -> None:
    files = {"deploy__a_dot_yaml": HOLDS, "deploy__deep__b_dot_yaml": HOLDS, "test_it_dot_py": EACH}
    assert outcome(pytest_in(tmp_path, "--roofplan-deployments", "deploy/**/*.yaml", **files)) == {"passed": 4}
    assert outcome(pytest_in(tmp_path, "--roofplan-deployments", "deploy/a.yaml")) == {"passed": 2}
    marked = f'import pytest\npytestmark = pytest.mark.roofplan_deployments("deploy/a.yaml")\n{EACH}'
    assert outcome(pytest_in(tmp_path, "--roofplan-deployments", "deploy", test_it_dot_py=marked)) == {"passed": 2}


@pytest.mark.parametrize(
    ("ini", "said"),
    [
        ("", "set the ini key roofplan_deployments"),
        ("roofplan_deployments = nowhere.yaml", "nowhere.yaml: no such file or folder"),
        ("roofplan_deployments = empty.yaml", "no deployment in empty.yaml"),
        ("roofplan_deployments = broken.yaml", "broken.yaml:"),
    ],
)
def test_files_that_say_nothing_fail_and_say_why(ini: str, said: str, tmp_path: Path) -> None:
    files = {"empty_dot_yaml": "kind: ConfigMap\n", "broken_dot_yaml": "a: [1\n", "test_it_dot_py": EACH}
    done = pytest_in(tmp_path, pytest_dot_ini=f"[pytest]\n{ini}\n", **files)
    assert done.returncode == 1
    assert outcome(done) in ({"error": 2}, {"failed": 2}), done.stdout
    assert said in done.stdout


def test_a_projects_own_fixture_of_that_name_is_left_alone(tmp_path: Path) -> None:
    code = "import pytest\n@pytest.fixture\ndef deployment():\n    return 42\ndef test_it(deployment):\n    assert deployment == 42\n"
    assert outcome(pytest_in(tmp_path, test_it_dot_py=code)) == {"passed": 1}


def test_settings_that_cannot_be_read_fail_with_their_place(tmp_path: Path) -> None:
    files = {"_dot_roofplan_dot_toml": "[check]\nsurprise = 1\n", "deploy__a_dot_yaml": HOLDS, "test_it_dot_py": EACH}
    done = pytest_in(tmp_path, pytest_dot_ini=INI, **files)
    assert done.returncode == 1
    assert ".roofplan.toml:2" in done.stdout, done.stdout


def test_what_a_project_accepts_is_no_finding(tmp_path: Path) -> None:
    missed = HOLDS.replace('"60 ms"', '"1 ms"  # roofplan: ignore[tpot-limit-missed] a target, not yet a promise')
    done = pytest_in(tmp_path, "-k", "holds", pytest_dot_ini=INI, deploy__a_dot_yaml=missed, test_it_dot_py=EACH)
    assert outcome(done) == {"passed": 1}, done.stdout


# ------------------------------------------------------------------------------------------------ unused


def test_it_imports_nothing_where_it_is_not_used(tmp_path: Path) -> None:
    code = """
import json, sys
def test_it():
    json.dump(sorted(sys.modules), open("modules.json", "w"))
"""
    done = pytest_in(tmp_path, test_it_dot_py=code)
    assert outcome(done) == {"passed": 1}, done.stdout
    modules = json.loads((tmp_path / "modules.json").read_text(encoding="utf-8"))
    ours = [name for name in modules if name.split(".")[0] == "roofplan"]
    assert ours == ["roofplan", "roofplan.checks", "roofplan.checks.pytest_plugin"]
    assert not {"numpy", "pydantic", "yaml", "typer", "rich", "matplotlib", "torch"} & set(modules)


def test_its_option_key_and_mark_are_shown(tmp_path: Path) -> None:
    shown = pytest_in(tmp_path, "--help").stdout
    assert "--roofplan-deployments=PATH" in shown
    assert "roofplan_deployments (args)" in shown
    assert "@pytest.mark.roofplan_deployments(*paths)" in pytest_in(tmp_path, "--markers").stdout
    fixtures = pytest_in(tmp_path, "--fixtures").stdout
    assert re.search(r"^assert_fits\b", fixtures, re.MULTILINE)
    assert re.search(r"^deployment\b", fixtures, re.MULTILINE)
