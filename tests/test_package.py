"""The package itself: what it holds, what importing it loads, and that lists agree with folders."""

import doctest
import importlib
import json
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import roofplan

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NOT_SHIPPED = {"tests", "docs", "benchmarks", "examples", "build", "dist", "out"}


def folders_with_code() -> set[str]:
    """Folders of the checkout that hold Python modules of the package."""
    found = {"roofplan"}
    for init in ROOT.rglob("__init__.py"):
        parts = init.parent.relative_to(ROOT).parts
        if parts and not parts[0].startswith(".") and parts[0] not in NOT_SHIPPED:
            found.add(".".join(("roofplan", *parts)))
    return found


def test_the_package_list_equals_the_folders() -> None:
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == folders_with_code()


def test_every_module_stands_in_a_listed_package() -> None:
    for file in ROOT.rglob("*.py"):
        parts = file.relative_to(ROOT).parts[:-1]
        if parts and (parts[0].startswith(".") or parts[0] in NOT_SHIPPED):
            continue
        assert ".".join(("roofplan", *parts)) in PROJECT["tool"]["setuptools"]["packages"], file


def test_every_catalogue_is_shipped() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]
    for folder in ("engines/catalogue", "engines/formats", "hardware/catalogue", "models/catalogue"):
        room, name = folder.split("/")
        assert f"{name}/*.yaml" in patterns[f"roofplan.{room}"]
        assert list((ROOT / folder).glob("*.yaml"))


def test_importing_roofplan_loads_no_other_module_of_ours() -> None:
    code = "import sys, json, roofplan; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert [name for name in loaded if name.startswith("roofplan")] == ["roofplan"]
    assert not {"numpy", "pydantic", "yaml", "typer", "rich", "matplotlib", "torch"} & set(loaded)


def test_the_public_names_are_there_and_no_others() -> None:
    assert set(dir(roofplan)) >= set(roofplan.__all__)
    for name in roofplan.__all__:
        assert getattr(roofplan, name) is not None
    with pytest.raises(AttributeError):
        _ = roofplan.nothing_of_this_name


def test_public_names_are_not_called_like_rooms() -> None:
    rooms = {name.split(".")[1] for name in folders_with_code() if "." in name}
    assert not rooms & set(roofplan.__all__)


@pytest.mark.parametrize(
    "name",
    sorted(
        module.name
        for module in pkgutil.walk_packages(roofplan.__path__, "roofplan.")
        if not set(module.name.split(".")) & NOT_SHIPPED and not module.name.endswith("__main__")
    ),
)
def test_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_the_schemas_for_editors_are_current() -> None:
    for name, schema in _schemas().items():
        published = json.loads((ROOT / "docs" / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
        assert published == schema, f"docs/schemas/{name}.json is stale: run make docs"


def _schemas() -> dict[str, object]:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module("generate").schemas()
    finally:
        sys.path.remove(str(ROOT / "docs"))
