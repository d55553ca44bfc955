"""The hub of the tests of ``roofplan model fetch``, and the environment that leads to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hub_server import TOKEN, Hub, State, serving

from roofplan.models import hub_requests

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.register_assert_rewrite("gguf_models")


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    with serving() as made:
        yield made


@pytest.fixture
def state(server: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[State]:
    """A hub with one repository, in the environment of this process and of those that it starts; the folder is empty."""
    server.state = State()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(hub_requests, "RETRIES", 0)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield server.state
    server.state.release.set()
