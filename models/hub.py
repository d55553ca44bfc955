"""Fetching what a plan needs of a model repository: its configuration, and the headers of its weights.

Weights stay where they are: of each file of weights the header is read by range requests, and stored in a sparse file of the size that
the whole file has on the server, so that the readers of headers can compare sizes, and next to no disk is used. This module and
``hub_requests`` are the only ones that use the network, and only when ``fetch`` is called.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import specfiles
from ..errors import DomainError, RoofplanError, SpecError, UnknownNameError
from .gguf import parse_header
from .hub_requests import LONGEST_REQUEST_S, TIMEOUT_S, FetchError, open_repository, over_limit, quiet_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .hub_requests import Repository

SCHEMA = "roofplan/fetch/v1"
RECORD = "roofplan-fetch.json"
CONFIG_BYTES = 2**20
INDEX_BYTES = 2**24
HEADER_BYTES = 2**26  # of one file of weights
ALL_HEADERS_BYTES = 2**28
FIRST_GGUF_BYTES = 2**20
MOST_FILES = 1000

_CONFIG, _QUANTISATION = "config.json", "hf_quant_config.json"
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}/[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
_REVISION = re.compile(r"[!-~]{1,200}")
_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
_BLOCK_BYTES = 512  # the unit of st_blocks (POSIX)
_SLACK_BYTES = 2**20  # what file systems may allocate beyond what was written


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A file: its name, its size on the server, and how many of its bytes were stored (the rest is a hole)."""

    name: str
    size_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was fetched, from where, and at which commit."""

    folder: Path
    id: str
    revision: str | None
    commit: str
    endpoint: str
    files: tuple[FetchedFile, ...]

    @property
    def stored_bytes(self) -> int:
        """What was downloaded and stored."""
        return sum(file.stored_bytes for file in self.files)

    @property
    def size_bytes(self) -> int:
        """What the same files hold on the server."""
        return sum(file.size_bytes for file in self.files)


def fetch(
    repository: str,
    folder: Path | None = None,
    *,
    revision: str | None = None,
    file: str | None = None,
    overwrite: bool = False,
    timeout_s: float = TIMEOUT_S,
    progress: Callable[[str], None] | None = None,
) -> Fetched:
    """Fetch the configuration and the headers of the weights of a repository into a new folder.

    Parameters
    ----------
    repository : ``owner/name``
    folder : where to put it; default: a folder in the current one, called as the repository
    revision : a branch, tag or commit; the commit it stands for at this moment is recorded, and all files are of that commit
    file : a GGUF file of the repository; without it, the safetensors files
    overwrite : replace what an earlier fetch has left; anything else stays untouched
    timeout_s : to connect, and for each read
    progress : told what is fetched next

    Raises
    ------
    UnknownNameError : for a repository, revision or file that is not there
    SpecError : for a malformed index or header
    FetchError : when the hub cannot be reached, refuses, or sends more than is wanted
    """
    if not _ID.fullmatch(repository):
        hint = "as in openai-community/gpt2" if "/" not in repository else "letters, digits, dots, dashes, underscores"
        raise UnknownNameError("repository", got=repository or "nothing", wanted="owner/name", hint=hint)
    if revision is not None and not _REVISION.fullmatch(revision):
        raise UnknownNameError("revision", got=revision or "nothing", wanted="a branch, tag or commit")
    if not 0 < timeout_s <= LONGEST_REQUEST_S:
        raise DomainError("timeout", got=f"{timeout_s:g} s", wanted=f"more than 0 s, at most {LONGEST_REQUEST_S:g} s")
    shown = folder or Path(repository.split("/")[1])
    with _named(shown):
        target = shown.resolve()
        _check_target(target, str(shown), overwrite=overwrite)
    with quiet_library():
        remote = open_repository(repository, revision, timeout_s)
        with _named(shown):
            files = _store(remote, target, file, overwrite=overwrite, progress=progress or (lambda _: None))
    return Fetched(shown, repository, revision, remote.commit, remote.endpoint, files)


@contextlib.contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Name the folder in an error of the file system (those of the network have become ours before)."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid path"
        raise FetchError("folder", got=reason.lower(), where=str(folder)) from error


# ------------------------------------------------------------------------------------------------ the folder


def _check_target(target: Path, shown: str, *, overwrite: bool) -> None:
    """Refuse a folder that is in use; with ``overwrite`` all but one that holds nothing but the files of an earlier fetch."""
    if not os.path.lexists(target):
        return
    if not target.is_dir() or target == Path.cwd():
        raise FetchError("folder", got="an existing file, or the current folder", wanted="a new one", where=shown)
    if not overwrite:
        raise FetchError("folder", got="an existing one", wanted="a new one", where=shown, hint="--force replaces it")
    kept = _not_of_a_fetch(target)
    if kept:
        got, wanted = f"a file that no fetch has left there: {kept[0]}", "a new folder"
        raise FetchError("folder", got=got, wanted=wanted, where=shown, hint="remove it yourself")


def _not_of_a_fetch(folder: Path) -> list[str]:
    """Name what a folder holds beyond the files of the fetch that is recorded in it; weights put in a header's place count too."""
    stored: dict[str, int] = {RECORD: CONFIG_BYTES}
    with contextlib.suppress(RoofplanError, ValueError, LookupError, TypeError):
        record = json.loads(specfiles.read_bytes(folder / RECORD))
        stored |= {str(file["name"]): int(file["stored_bytes"]) for file in record["files"]}
    return sorted(
        entry.name
        for entry in os.scandir(folder)
        if entry.name not in stored
        or not entry.is_file(follow_symlinks=False)
        or _allocated(entry.stat(follow_symlinks=False)) > stored[entry.name] + _SLACK_BYTES
    )


def _allocated(status: os.stat_result) -> int:
    blocks: int = getattr(status, "st_blocks", 0)  # Windows does not tell
    return blocks * _BLOCK_BYTES


def _store(
    remote: Repository, target: Path, file: str | None, *, overwrite: bool, progress: Callable[[str], None]
) -> tuple[FetchedFile, ...]:
    """Fetch into a temporary folder that takes its place at the end, or leaves nothing."""
    scratch = target.parent / f".{target.name}.{secrets.token_hex(6)}"
    scratch.mkdir()
    try:
        files = tuple(_write(scratch, *part) for part in _limited(_parts(remote, file, progress)))
        record = {
            "schema": SCHEMA,
            "id": remote.id,
            "revision": remote.revision,
            "commit": remote.commit,
            "endpoint": remote.endpoint,
            "files": [asdict(file) for file in files],
        }
        content = (json.dumps(record, indent=2, sort_keys=True) + "\n").encode()
        _write(scratch, RECORD, content, len(content))
        _put_in_place(scratch, target, overwrite=overwrite)
    except BaseException:  # also Ctrl-C: tidied up, then raised again
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return files


def _write(folder: Path, name: str, content: bytes, size: int) -> FetchedFile:
    """Write a file that begins with ``content`` and goes on with a hole up to ``size``."""
    with (folder / name).open("xb") as stream:
        stream.write(content)
        stream.flush()
        stream.truncate(size)
        os.fsync(stream.fileno())
        if _allocated(os.fstat(stream.fileno())) > len(content) + 64 * _SLACK_BYTES:
            raise FetchError("file system", got="one that fills holes with zeros", wanted="one that has sparse files")
    return FetchedFile(name, size, len(content))


def _put_in_place(scratch: Path, target: Path, *, overwrite: bool) -> None:
    if not overwrite or not target.exists():
        scratch.rename(target)
        return
    aside = scratch.with_name(f"{scratch.name}.old")
    target.rename(aside)
    try:
        scratch.rename(target)
    except BaseException:  # also Ctrl-C: tidied up, then raised again
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


# ------------------------------------------------------------------------------------------------ what is fetched

_Part = tuple[str, bytes, int]  # the name of a file, its beginning, its size


def _limited(parts: Iterable[_Part]) -> Iterator[_Part]:
    total = 0
    for part in parts:
        total += len(part[1])
        if total > ALL_HEADERS_BYTES:
            raise over_limit("the headers together", ALL_HEADERS_BYTES)
        yield part


def _parts(remote: Repository, file: str | None, progress: Callable[[str], None]) -> Iterator[_Part]:
    """Fetch one file after the other: configurations whole, of weights the header."""
    if file is None and _CONFIG not in remote.names:
        raise _no_config(remote)
    weights = [] if file is None else _gguf_files(remote, file)
    for name in (_CONFIG, _QUANTISATION):
        if name in remote.names:
            progress(name)
            yield _whole(remote, name, CONFIG_BYTES)
    if file is None and _INDEX in remote.names:
        progress(_INDEX)
        index = _whole(remote, _INDEX, INDEX_BYTES)
        weights = _shards(index[1], remote.names)
        yield index
    elif file is None and _SINGLE in remote.names:
        weights = [_SINGLE]
    header = _safetensors_header if file is None else _gguf_header
    for number, name in enumerate(weights, 1):
        progress(f"{name} (header {number} of {len(weights)})")
        yield header(remote, name)


def _no_config(remote: Repository) -> UnknownNameError:
    offered = sorted(name for name in remote.names if name.endswith(".gguf"))
    hint = f"--file NAME fetches the header of a GGUF file: {', '.join(offered[:8])}" if offered else ""
    return UnknownNameError("repository", got=f"no {_CONFIG} in {remote.id}", wanted="one", hint=hint)


def _whole(remote: Repository, name: str, largest: int) -> _Part:
    content = remote.whole(name, largest)
    return name, content, len(content)


def _shards(content: bytes, known: frozenset[str]) -> list[str]:
    """List the files that an index names: plain names of files that the repository has."""
    try:
        index = json.loads(content.decode())
        named = index["weight_map"].values()
        shards = sorted({name for name in named if isinstance(name, str)})
        is_sound = shards and all(isinstance(name, str) for name in named)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise SpecError("index", got="no weight_map", wanted="names of tensors and files", where=_INDEX) from error
    if not is_sound or len(shards) > MOST_FILES:
        wanted = f"1 to {MOST_FILES:,} names of files"
        raise SpecError("weight_map", got=f"{len(shards):,} names of files", wanted=wanted, where=_INDEX)
    for name in shards:
        if not _is_plain(name) or not name.endswith(".safetensors"):
            raise SpecError("weight_map", got=name, wanted="the plain name of a .safetensors file", where=_INDEX)
        if name not in known:
            raise SpecError("weight_map", got=name, wanted="a file that the repository has", where=_INDEX)
    return shards


def _is_plain(name: str) -> bool:
    """Whether a name can be that of a file in a folder, and nothing else, on any system."""
    is_short = 0 < len(name) <= 200
    return is_short and name.isprintable() and name[0] not in ".-" and not set(name) & set('/\\:*?"<>|')


def _gguf_files(remote: Repository, file: str) -> list[str]:
    """Give the GGUF file of this name, or all parts of a split one."""
    split = _SPLIT.fullmatch(file)
    count = int(split[3]) if split else 1
    if not 0 < count <= MOST_FILES:
        raise UnknownNameError("--file", got=file, wanted=f"at most {MOST_FILES:,} parts")
    names = [f"{split[1]}-{number:05}-of-{split[3]}.gguf" for number in range(1, count + 1)] if split else [file]
    for name in names:
        is_sound = all(_is_plain(part) for part in name.split("/")) and name.endswith(".gguf")
        if not is_sound or name not in remote.names:
            offered = sorted(known for known in remote.names if known.endswith(".gguf"))
            wanted = f"a GGUF file of {remote.id}"
            raise UnknownNameError("--file", got=name or "nothing", wanted=wanted, hint=", ".join(offered[:8]))
    return names


# ------------------------------------------------------------------------------------------------ headers


def _safetensors_header(remote: Repository, name: str) -> _Part:
    """Read 8 bytes that hold the length N of the header, then N bytes."""
    prefix, size = remote.part(name, 0, 8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or not 2 <= length <= size - 8:
        got, wanted = f"a length of {length:,} bytes", f"2 to {max(2, size - 8):,} bytes"
        raise SpecError("header", got=got, wanted=wanted, where=name)
    if length > HEADER_BYTES:
        raise over_limit(f"header of {name}", HEADER_BYTES)
    header, same_size = remote.part(name, 8, length)
    if same_size != size:
        raise FetchError("file", got="another size than before", wanted=f"{size:,} bytes", where=name)
    return name, prefix + header, size


def _gguf_header(remote: Repository, path: str) -> _Part:
    """Read a GGUF file from its start until its header is complete."""
    name = path.rsplit("/", 1)[-1]
    beginning = _Beginning(remote, path)
    _, length = parse_header(beginning, beginning.size, name)
    return name, beginning.content[:length], beginning.size


class _Beginning:
    """The beginning of a remote file as a stream: fetched as far as it is read, twice as far each time."""

    def __init__(self, remote: Repository, path: str) -> None:
        self._remote, self._path, self._at = remote, path, 0
        self.content, self.size = remote.part(path, 0, FIRST_GGUF_BYTES)

    def seek(self, offset: int, /) -> int:
        """Go to a place, counted from the start."""
        self._at = offset
        return offset

    def read(self, count: int, /) -> bytes:
        """Read up to so many bytes."""
        end = min(self._at + count, self.size)
        while len(self.content) < end:
            self._fetch_more()
        start, self._at = self._at, end
        return self.content[start:end]

    def _fetch_more(self) -> None:
        have = len(self.content)
        if have >= HEADER_BYTES:
            raise over_limit(f"header of {self._path.rsplit('/', 1)[-1]}", HEADER_BYTES)
        more, size = self._remote.part(self._path, have, min(have, HEADER_BYTES - have))
        if size != self.size:
            wanted = f"{self.size:,} bytes"
            raise FetchError("file", got="another size than before", wanted=wanted, where=self._path)
        self.content += more
