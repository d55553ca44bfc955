"""Files are written whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from roofplan import specfiles
from roofplan.errors import SpecError


def test_bytes_and_text_are_written_as_they_are(tmp_path: Path) -> None:
    specfiles.write_bytes(tmp_path / "a", b"\x00\r\n\xff")
    assert (tmp_path / "a").read_bytes() == b"\x00\r\n\xff"
    specfiles.write_text(tmp_path / "b", "é\n")
    assert (tmp_path / "b").read_bytes() == "é\n".encode()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "b"]


def test_an_existing_file_is_kept_unless_it_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(SpecError, match="--force replaces it"):
        specfiles.write_text(path, "new")
    with pytest.raises(SpecError, match="--force replaces it"):
        specfiles.check_free(path)
    assert path.read_text() == "old"
    specfiles.write_text(path, "new", overwrite=True)
    assert path.read_text() == "new"
    specfiles.check_free(path, overwrite=True)


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("there_before", [False, True])
def test_a_fault_while_writing_leaves_what_was_there(
    fault: BaseException, there_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    if there_before:
        path.write_text("old")

    def fail(_: int) -> None:
        raise fault

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(SpecError if isinstance(fault, OSError) else KeyboardInterrupt):
        specfiles.write_bytes(path, b"new" * 1000, overwrite=True)
    assert [file.read_text() for file in tmp_path.iterdir()] == (["old"] if there_before else [])


@pytest.mark.parametrize("where", ["nowhere/a", ".", "a\0b", "x" * 300])
def test_places_that_cannot_be_written_are_told_in_one_line(where: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        specfiles.write_bytes(tmp_path / where, b"x", overwrite=True)
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        specfiles.write_bytes(tmp_path / "a", b"x")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
