"""Settings of a folder, options over them, and what is wrong with them at its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofplan.checks.record import Place, Said
from roofplan.checks.settings import COMMAND_LINE, Settings, folder_of, load
from roofplan.errors import RoofplanError

FULL = """\
[check]
select = ["does-not-fit", "missing-shm"]
ignore = ["missing-shm"]
fail-on = "warning"
exclude = ["charts/*"]
baseline = "known.json"
hardware = "h100-sxm"
concurrency = 64
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    inner = tmp_path / "repository" / "deploy"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    return inner


@pytest.mark.usefixtures("folder")
def test_nothing_said_means_all_rules_and_errors_count() -> None:
    assert load() == Settings()
    assert load().selects("does-not-fit")


def test_the_nearest_file_upwards_counts(folder: Path) -> None:
    (folder.parent / ".roofplan.toml").write_text(FULL)
    settings = load()
    assert (settings.select, settings.ignore) == (("does-not-fit", "missing-shm"), ("missing-shm",))
    assert (settings.selects("does-not-fit"), settings.selects("missing-shm"), settings.selects("tp-over-pcie")) == (
        True,
        False,
        False,
    )
    assert (settings.fail_on, settings.exclude, settings.baseline) == ("warning", ("charts/*",), "../known.json")
    assert settings.defaults == {
        "hardware": Said("h100-sxm", Place("../.roofplan.toml", 7)),
        "concurrency": Said(64, Place("../.roofplan.toml", 8)),
    }
    (folder / ".roofplan.toml").write_text("")
    assert load() == Settings()


def test_settings_lie_with_what_is_checked(folder: Path) -> None:
    """A file named from elsewhere is checked as its own project says; without any settings there, as the working folder's say."""
    other, own = folder / "deploy" / "a", folder / "deploy"
    other.mkdir(parents=True)
    (own / ".roofplan.toml").write_text('[check]\nfail-on = "never"\n')
    (other / "x.yaml").write_text("")
    assert load(folder_of(["deploy/a/x.yaml"])).fail_on == load(folder_of(["deploy"])).fail_on == "never"
    assert load(folder_of(["deploy", "deploy/a"])).fail_on == "never"
    assert (
        load(folder_of(["deploy", "-"]))
        == load(folder_of([]))
        == load(folder_of(["deploy", "elsewhere.yaml"]))
        == Settings()
    )
    outside = folder.parent / "outside"
    outside.mkdir()
    (folder / ".roofplan.toml").write_text('[check]\nfail-on = "warning"\n')
    assert load(folder_of([outside])).fail_on == "warning"
    (outside / ".roofplan.toml").write_text("")
    assert load(folder_of([outside])) == Settings()


def test_pyproject_counts_where_it_speaks_of_checks(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (folder.parent / "pyproject.toml").write_text('[tool.roofplan.check]\nfail-on = "never"\n')
    assert load().fail_on == "never"
    (folder / "pyproject.toml").write_text("[tool.roofplan]\n")
    assert load().fail_on == "never"
    (folder.parent / ".roofplan.toml").write_text('[check]\nfail-on = "warning"\n')
    assert load().fail_on == "warning"


def test_options_are_over_the_file(folder: Path) -> None:
    (folder / ".roofplan.toml").write_text(FULL)
    settings = load(
        select=["does-not-fit,tp-over-pcie", "missing-shm"], fail_on="error", hardware="l40s", prompt="4096", model=None
    )
    assert settings.select == ("does-not-fit", "tp-over-pcie", "missing-shm")
    assert (settings.ignore, settings.fail_on) == (("missing-shm",), "error")
    assert settings.defaults["hardware"] == Said("l40s", Place(COMMAND_LINE))
    assert settings.defaults["prompt"].value == 4096
    assert settings.defaults["concurrency"].value == 64


def test_paths_are_seen_from_the_file(folder: Path) -> None:
    (folder.parent / ".roofplan.toml").write_text(
        '[check]\nmodel = "./config.json"\nengine = "vllm@0.19"\nbaseline = "/b.json"\n'
    )
    settings = load()
    assert settings.defaults["model"].value == "../config.json"
    assert settings.defaults["engine"].value == "vllm@0.19"
    assert settings.baseline == "/b.json"
    assert load(model="./x.json").defaults["model"].value == "./x.json"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[check\n", ".roofplan.toml:1:7: malformed TOML"),
        ("[checks]\n", ".roofplan.toml:1: checks: got an unknown table or key, want [check]"),
        ("\nselect = []\n", ".roofplan.toml:2: select: got an unknown table or key, want [check]"),
        ("check = 1\n", "check: got no table"),
        ("[check]\n\nselct = []\n", ".roofplan.toml:3: selct: got an unknown key"),
        ("[check]\nselct = []\n", "(did you mean select?)"),
        (
            '[check]\nselect = [\n  "missing-shm",\n  "does-not-fitt",\n]\n',
            ".roofplan.toml:4: select: got does-not-fitt, want a rule (did you mean does-not-fit?)",
        ),
        ('[check]\nignore = ["x y"]\n', "(roofplan check --list-rules shows them)"),
        ('[check]\nselect = "missing-shm"\n', ".roofplan.toml:2: select: got 'missing-shm', want a list of texts"),
        ("[check]\nexclude = [1]\n", "exclude: got [1], want a list of texts"),
        ('[check]\nfail-on = "note"\n', ".roofplan.toml:2: fail-on: got 'note', want one of warning, error, never"),
        ("[check]\nfail_on = true\n", ".roofplan.toml:2: fail_on: got True"),
        ("[check]\nhardware = 1\n", "hardware: got 1, want a text"),
        ('[check]\nprompt = "8k"\n', ".roofplan.toml:2: prompt: got '8k'"),
        ("[check]\nconcurrency = 0\n", "concurrency: got 0"),
        ("[check]\nbaseline = []\n", "baseline: got [], want a text"),
        ("[check]\nfail-on = 'never'\nfail-on = 'error'\n", "malformed TOML"),
    ],
)
def test_what_is_wrong_is_said_at_its_line(folder: Path, text: str, said: str) -> None:
    (folder / ".roofplan.toml").write_text(text)
    with pytest.raises(RoofplanError) as caught:
        load()
    assert said in str(caught.value)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"select": ["nothing"]}, "--select: got nothing, want a rule"),
        ({"ignore": ["missing-shm,"]}, "--ignore: got nothing, want a rule"),
        ({"prompt": "8k"}, "--prompt: got '8k'"),
        ({"concurrency": "-1"}, "--concurrency: got '-1'"),
        ({"hardware": ""}, "--hardware: got '', want a text"),
        ({"baseline": ""}, "--baseline: got '', want a text"),
        ({"model": "-"}, "--model: got '-', want a name or a path"),
    ],
)
def test_options_are_named_as_on_the_command_line(options: dict[str, object], said: str) -> None:
    with pytest.raises(RoofplanError) as caught:
        load(**options)
    assert str(caught.value).startswith(said)


def test_an_unreadable_file_of_settings_is_refused(folder: Path) -> None:
    (folder / ".roofplan.toml").mkdir()
    with pytest.raises(RoofplanError, match="want a regular file"):
        load()
