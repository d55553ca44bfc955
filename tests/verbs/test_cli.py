"""The command line itself: help, version, completion, exit codes, what is imported."""

import subprocess
import sys

import pytest
from console import SCRIPT, run

import roofplan
from roofplan import cli, hardware, models
from roofplan.errors import ExitCode


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("verb", [(), ("size",), ("kv",)])
def test_help_has_two_spellings(verb: tuple[str, ...], flag: str) -> None:
    done = run(*verb, flag)
    assert done.returncode == 0
    assert "roofplan" in done.stdout
    assert done.stderr == ""


def test_help_shows_examples() -> None:
    for verb in ("size", "kv"):
        assert f"roofplan {verb} llama-3.1-8b" in run(verb, "--help").stdout


def test_no_arguments_show_help() -> None:
    done = run()
    assert done.returncode == 0
    assert "size" in done.stdout


def test_version() -> None:
    assert run("--version").stdout == f"roofplan {roofplan.__version__}\n"


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "roofplan", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("roofplan ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_exist_for_each_shell(shell: str) -> None:
    done = run(env={"_ROOFPLAN_COMPLETE": f"source_{shell}"})
    assert "_ROOFPLAN_COMPLETE" in done.stdout


@pytest.mark.parametrize(
    ("words", "offered"), [("roofplan size llama-3.1", "llama-3.1-8b"), ("roofplan size gpt2 h100", "h100-sxm5-80gb")]
)
def test_names_are_completed(words: str, offered: str) -> None:
    env = {"_ROOFPLAN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    assert offered in run(env=env).stdout.split()


_LOADED = "import sys; sys.argv = {argv!r}\nfrom roofplan import cli\ncli.run({argv!r}[1:])\nprint(' '.join(sys.modules), file=sys.stderr)"


def loaded_by(*arguments: str, env: dict[str, str] | None = None) -> set[str]:
    code = _LOADED.format(argv=["roofplan", *arguments])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    return set(done.stderr.splitlines()[-1].split())


def test_help_imports_neither_pydantic_nor_the_planner() -> None:
    loaded = loaded_by("--help")
    assert not {"pydantic", "yaml", "numpy", "matplotlib", "roofplan.planner", "roofplan.api"} & loaded


def test_completion_imports_neither_pydantic_nor_the_planner() -> None:
    code = (
        "import sys\nfrom roofplan.verbs.options import complete_hardware, complete_model\n"
        "assert 'gpt2' in complete_model('gpt') and complete_hardware('h1')\nprint(' '.join(sys.modules))"
    )
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not {"pydantic", "yaml", "numpy", "roofplan.planner", "roofplan.api"} & loaded


def test_a_sizing_query_imports_nothing_heavy() -> None:
    loaded = loaded_by("size", "llama-3.1-8b", "h100", "--format", "json")
    assert not {"numpy", "matplotlib", "torch", "rich"} & loaded


def test_a_fault_of_ours_is_told_apart(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a \x1b[31mfault")

    monkeypatch.setattr("roofplan.api.size", broken)
    assert cli.run(["size", "gpt2", "h100"]) == ExitCode.INTERNAL
    said = capsys.readouterr().err
    assert (
        said
        == "roofplan: internal error: ZeroDivisionError: a \\x1b[31mfault; run with --debug first and report what it shows\n"
    )


def test_an_interrupt_has_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("roofplan.api.size", interrupted)
    assert cli.run(["size", "gpt2", "h100"]) == ExitCode.INTERRUPTED


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--debug", "size", "nothing-like-it", "h100"]) == ExitCode.BAD_INPUT
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_leaves_causes_no_noise() -> None:
    done = subprocess.run(f"{SCRIPT} size gpt2 h100 | head -1", shell=True, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_the_catalogues_are_found_from_any_folder(tmp_path) -> None:
    assert run("kv", "gpt2", cwd=tmp_path).returncode == 0
    assert models.CATALOGUE.folder.is_dir()
    assert hardware.CATALOGUE.folder.is_dir()
