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


# ------------------------------------------------------------------------------------------------ several files


@pytest.mark.parametrize("where", ["nowhere/b", "file/b", "folder", "b" * 300, "a\0b", "a", "./folder/../a"])
def test_of_several_files_all_are_written_or_none(where: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    files = [(tmp_path / "a", b"1"), (tmp_path / where, b"2")]
    with pytest.raises(SpecError) as raised:
        specfiles.write_all(files, overwrite=True)
    assert "\n" not in str(raised.value)
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["file", "folder"]
    if "b" * 300 not in where:  # of a name that is too long only its file system knows
        with pytest.raises(SpecError):
            specfiles.check_all_free([path for path, _ in files], overwrite=True)
    specfiles.write_all([(tmp_path / "a", b"1"), (tmp_path / "b", b"2")])
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes()) == (b"1", b"2")


@pytest.mark.parametrize("there_before", [False, True])
def test_a_place_that_is_lost_at_the_last_moment(
    there_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are written, and the second cannot take its place any more: a first one that is new goes again, and no scratch is left."""
    if there_before:
        (tmp_path / "a").write_text("old")
    replace = Path.replace

    def fail(scratch: Path, target: Path) -> Path:
        if target.name == "b":
            raise PermissionError(13, "Permission denied")
        return replace(scratch, target)

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(SpecError, match="permission denied"):
        specfiles.write_all([(tmp_path / "a", b"new"), (tmp_path / "b", b"new")], overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == (["a"] if there_before else [])
