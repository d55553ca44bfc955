"""The pytest plugin: ``assert_fits`` and ``deployment`` as fixtures. pytest finds it by itself (entry point ``pytest11``).

``assert_fits(MODEL, HARDWARE, …)`` fails a test where a model does not fit or misses a limit. A test that takes ``deployment`` runs once
for every service in the files that the ini key ``roofplan_deployments``, the option of that name, or the mark of that name gives.

Where no test asks for either, nothing of roofplan is imported but this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from .asserting import Deployed, Unread

NAME = "roofplan_deployments"
_CASE = "_roofplan_case"
_READ = pytest.StashKey[dict[tuple[str, ...], Any]]()  # what was read, by what was asked: each file once a run


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the ini key; both carry the name of the program, so that they collide with none."""
    what = "files, folders or patterns of deployments that the fixture 'deployment' runs over, seen from the root of the project"
    option = "--roofplan-deployments"
    parser.getgroup("roofplan").addoption(option, action="append", default=[], metavar="PATH", dest=NAME, help=what)
    parser.addini(NAME, what, type="args", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    text = f"{NAME}(*paths): deployments that the fixture 'deployment' of this test runs over, in place of those of the ini key"
    config.addinivalue_line("markers", text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes ``deployment`` once for each service in the files."""
    if _CASE not in metafunc.fixturenames:
        return  # no test of ours, or a project's own fixture of the same name
    from .asserting import cases

    config = metafunc.config
    mark = metafunc.definition.get_closest_marker(NAME)
    asked = mark.args if mark is not None else config.getoption(NAME) or config.getini(NAME)
    read = config.stash.setdefault(_READ, {})
    if tuple(asked) not in read:
        read[tuple(asked)] = cases(config.rootpath, tuple(asked))
    found = read[tuple(asked)]
    metafunc.parametrize(_CASE, found, ids=[case.name for case in found])


@pytest.fixture
def deployment(_roofplan_case: Deployed | Unread) -> Deployed:
    """One deployment of the files of roofplan_deployments: .fits, .plan, .findings, and .check(), which fails on findings."""
    return _roofplan_case.opened()


@pytest.fixture(name="assert_fits")
def _assert_fits() -> Callable[..., Any]:
    """Fail where a model does not fit, or misses a limit: assert_fits(MODEL, HARDWARE, concurrency=64, limits={"tpot": "30 ms"})."""
    from .asserting import assert_fits

    return assert_fits
