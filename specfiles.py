"""Reading spec files strictly, and finding a catalogue entry by name.

Files are opened once, checked through the descriptor and bounded in size; their data is validated against a spec class, and a fault is
reported with its line and column.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import re
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .documents import Document, Key, parse_json, parse_yaml
from .errors import SpecError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
LARGEST_FILE_BYTES = 2**20
SLUG = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}", re.ASCII)

# ------------------------------------------------------------------------------------------------ files


def read_bytes(path: str | Path, *, largest: int = LARGEST_FILE_BYTES) -> bytes:
    """Read a regular file of at most ``largest`` bytes; ``-`` is standard input.

    Raises
    ------
    SpecError : for anything but a regular file (a FIFO or device would hang), a missing or unreadable file, or one that is too large
    """
    is_stdin = str(path) == "-"
    if is_stdin and sys.stdin is None:
        raise SpecError("standard input", got="a closed one", wanted="a file")
    try:
        content = sys.stdin.buffer.read(largest + 1) if is_stdin else _read_regular_file(path, largest + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a valid path"
        raise SpecError("file", got=reason.lower(), where=_shown(path)) from error
    if len(content) > largest:
        got, wanted = f"more than {largest:,} bytes", f"at most {largest:,} bytes"
        raise SpecError("file", got=got, wanted=wanted, where=_shown(path))
    return content


def _shown(path: str | Path) -> str:
    return "<stdin>" if str(path) == "-" else str(path)


def _read_regular_file(path: str | Path, size: int) -> bytes:
    # Opened without blocking, then checked through the descriptor: the path cannot be exchanged in between.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SpecError("file", got="a folder, FIFO or device", wanted="a regular file", where=str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            return stream.read(size)
    finally:
        os.close(descriptor)


def is_folder(path: str) -> bool:
    """Whether a path is that of a folder; false where it cannot be asked (too long, not permitted)."""
    mode = _mode(path)
    return mode is not None and stat.S_ISDIR(mode)


def _mode(path: str | Path) -> int | None:
    try:
        return Path(path).stat().st_mode
    except (OSError, ValueError):
        return None


def read_text(path: str | Path, *, largest: int = LARGEST_FILE_BYTES) -> str:
    """Read a UTF-8 text file (a leading byte-order mark is dropped)."""
    content = read_bytes(path, largest=largest)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        got = f"a byte that is not UTF-8 at offset {error.start}"
        raise SpecError("text", got=got, wanted="UTF-8", where=_shown(path)) from error


def read_document(path: str | Path) -> Document:
    """Read a YAML or JSON file; standard input (``-``) may hold either."""
    text = read_text(path)
    name = _shown(path)
    is_json = name.endswith(".json") or (str(path) == "-" and text.lstrip()[:1] == "{")
    return parse_json(text, name) if is_json else parse_yaml(text, name)


def check_free(path: str | Path, *, overwrite: bool = False) -> None:
    """Refuse a file that cannot be written: before anything is computed, and before the first of several is written.

    Raises
    ------
    SpecError : when the file exists and may not be replaced, is a folder, or its own folder is none or may not be written to
    """
    mode = _mode(path)
    if mode is not None and stat.S_ISDIR(mode):
        raise SpecError("file", got="a folder", wanted="the name of a file", where=str(path))
    if mode is not None and not overwrite:
        raise SpecError("file", got="an existing one", wanted="a new one", where=str(path), hint="--force replaces it")
    try:
        folder = Path(path).parent.stat()
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error
    if "\0" in str(path):
        raise _unwritable(path, ValueError())
    if not stat.S_ISDIR(folder.st_mode):
        raise _unwritable(path, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
    if not os.access(Path(path).parent, os.W_OK | os.X_OK):
        raise _unwritable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def check_all_free(paths: Iterable[str | Path | None], *, overwrite: bool = False) -> None:
    """Refuse files of one run that cannot be written, or two of them that are the same; None stands for a file that is not wanted.

    Raises
    ------
    SpecError : as of :func:`check_free`, and for one file for two things
    """
    seen: set[str] = set()
    for path in paths:
        if path is None:
            continue
        check_free(path, overwrite=overwrite)
        name = os.path.realpath(path)
        if name in seen:
            raise SpecError("file", got="one file for two outputs", wanted="a file for each", where=str(path))
        seen.add(name)


def write_text(path: str | Path, text: str, *, overwrite: bool = False) -> None:
    """Write a UTF-8 text file whole or not at all, see :func:`write_all`.

    Raises
    ------
    SpecError : when the file exists and may not be replaced, or cannot be written
    """
    write_bytes(path, text.encode("utf-8"), overwrite=overwrite)


def write_bytes(path: str | Path, content: bytes, *, overwrite: bool = False) -> None:
    """Write a file whole or not at all, see :func:`write_all`.

    Raises
    ------
    SpecError : when the file exists and may not be replaced, or cannot be written
    """
    write_all([(path, content)], overwrite=overwrite)


def write_all(files: Iterable[tuple[str | Path, bytes]], *, overwrite: bool = False) -> None:
    """Write several files, all or none: temporary files beside them take their places when all are written.

    Raises
    ------
    SpecError : when a file exists and may not be replaced, cannot be written, or two of them are the same
    """
    wanted = list(files)
    check_all_free((path for path, _ in wanted), overwrite=overwrite)
    written: list[tuple[Path, Path]] = []
    placed: list[Path] = []  # that were not there before
    try:
        for path, content in wanted:
            try:
                written.append((_scratch(Path(path), content), Path(path)))
            except (OSError, ValueError) as error:
                raise _unwritable(path, error) from error
        for scratch, target in written:
            is_new = _mode(target) is None
            try:
                scratch.replace(target)
            except (OSError, ValueError) as error:
                raise _unwritable(target, error) from error
            placed += [target] if is_new else []
    except BaseException:  # also Ctrl-C: tidied up, then raised again
        for path in (*placed, *(scratch for scratch, _ in written)):
            path.unlink(missing_ok=True)
        raise


def _scratch(target: Path, content: bytes) -> Path:
    """Write a temporary file in the folder of another one."""
    scratch = target.parent / f".roofplan-{os.getpid()}-{os.urandom(4).hex()}"
    # As any new file: with the permissions that the user's mask leaves.
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:  # also Ctrl-C: tidied up, then raised again
        scratch.unlink(missing_ok=True)
        raise
    return scratch


def _unwritable(path: str | Path, error: OSError | ValueError) -> SpecError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a valid path"
    return SpecError("file", got=reason.lower(), where=str(path))


# ------------------------------------------------------------------------------------------------ validation


@functools.cache
def _adapter(cls: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


def json_schema(cls: Any) -> dict[str, Any]:
    """Give the JSON Schema of a spec class, for editors."""
    schema: dict[str, Any] = _adapter(cls).json_schema()
    return schema


def laid_over(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Lay one mapping over another: keys of both that are mappings are joined, others are replaced."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = laid_over(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def validate(cls: type[T], document: Document, data: Any = None) -> T:
    """Turn the data of a document into an instance of a spec class (a frozen dataclass), strictly.

    Raises
    ------
    SpecError : the first fault, with its place, what was found and what is wanted
    """
    from pydantic import ValidationError

    content = document.data if data is None else data
    try:
        # JSON mode is pydantic's strict mode that still makes dataclasses from mappings and tuples from lists.
        made: T = _adapter(cast("Any", cls)).validate_json(json.dumps(content, allow_nan=False), strict=True)
    except ValidationError as error:
        raise _spec_error(error.errors(include_url=False), document) from error
    return made


def _spec_error(faults: Iterable[Any], document: Document) -> SpecError:
    fault = min(faults, key=lambda fault: _PRECEDENCE.get(fault["type"], 0))
    kind, context = fault["type"], fault.get("ctx", {})
    path = _real_path(document.data, fault["loc"], names_absent_key=kind in _ABSENT)
    got = brief(fault["input"])
    if "discriminator" in context:  # the key that tells the members of a union apart
        path.append(context["discriminator"].strip("'"))
        got = repr(context["tag"]) if "tag" in context else "nothing"
    what, where = ".".join(str(part) for part in path) or "document", document.where(tuple(path))
    if kind in _PRECEDENCE:
        return SpecError(what, got="an unknown key", wanted="a key of the schema", where=where)
    if kind in _ABSENT:
        return SpecError(what, got="nothing", wanted="this key", where=where)
    if kind == "value_error":
        return SpecError(f"{what}: {context['error']}", where=where)
    wanted = _WANTED.get(kind) or context.get("expected") or context.get("expected_tags") or fault["msg"]
    return SpecError(what, got=got, wanted=str(wanted), where=where)


_ABSENT = {"missing", "missing_argument", "missing_keyword_only_argument"}
# A wrong key explains a missing one, so it is named first.
_PRECEDENCE = {"unexpected_keyword_argument": -1, "extra_forbidden": -1}
_WANTED = {
    "bool_type": "true or false",
    "dataclass_type": "a mapping",
    "dict_type": "a mapping",
    "model_attributes_type": "a mapping",
    "string_type": "a text",
    "tuple_type": "a list",
    "union_tag_not_found": "this key",
}


def did_you_mean(name: str, known: Iterable[str], most: int = 2) -> str:
    """The hint at the names that are spelled nearly so; empty where none is."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=most)
    return f"did you mean {' or '.join(near)}?" if near else ""


def brief(value: object) -> str:
    """A value of a document as an error tells it: its kind where it has parts."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return repr(value) if value is not None else "nothing"


def _real_path(data: Any, loc: tuple[Key, ...], *, names_absent_key: bool) -> list[Key]:
    """Drop the parts that pydantic adds to a path (names of union members): keep what leads through the data."""
    path: list[Key] = []
    for part in loc:
        inside = part in data if isinstance(data, dict) else isinstance(data, list) and part in range(len(data))
        if inside:
            data = data[part]
            path.append(part)
    if names_absent_key:
        path.append(loc[-1])
    return path


@dataclass(frozen=True, slots=True)
class Finding:
    """What a lint rule found: the rule, the entry it is about, and what is wrong."""

    rule: str
    where: str
    message: str


# ------------------------------------------------------------------------------------------------ catalogues


_SPELLING = str.maketrans(" _", "--")


def spelled(name: str) -> str:
    """Reduce a name to what its spellings have in common: lower case, with dashes for spaces and underscores.

    >>> spelled("NVIDIA H100 80GB HBM3")
    'nvidia-h100-80gb-hbm3'
    """
    return name.strip().lower().translate(_SPELLING)


class Catalogue:
    """A folder of spec files, one per thing; the file name is the thing's slug.

    The usual case opens one file. Any other name is looked for as quoted text in all files, and only the file that holds it is parsed:
    there is no index that could go stale.

    Parameters
    ----------
    folder : where the files lie (package data)
    noun : what one entry is called in messages
    listing : the command that lists all entries, or empty
    """

    def __init__(self, folder: Path, noun: str, listing: str = "") -> None:
        self.folder = folder
        self.noun = noun
        self.listing = listing

    def slugs(self) -> list[str]:
        """List the slugs of all entries, in order."""
        return sorted(entry.name[: -len(".yaml")] for entry in os.scandir(self.folder) if entry.name.endswith(".yaml"))

    def find(self, name: str) -> Document:
        """Find the entry with this slug, id or alias (in any case, with spaces, underscores or dashes).

        Raises
        ------
        UnknownNameError : with the nearest names
        """
        slug = spelled(name)
        if SLUG.fullmatch(slug) and (self.folder / f"{slug}.yaml").is_file():
            return self.read(slug)
        hit = self._search(slug)
        if hit is not None:
            return self.read(hit)
        raise UnknownNameError(
            self.noun,
            got=name or "an empty name",
            wanted=f"one of the {len(self.slugs())} in the catalogue",
            hint=self._nearest(slug),
        )

    def read(self, slug: str) -> Document:
        """Read the entry with this slug."""
        document = read_document(self.folder / f"{slug}.yaml")
        return Document(document.data, f"{slug}.yaml", document.places)

    def names(self) -> dict[str, str]:
        """Map every quoted name of every file to its slug (used for near misses and by tests)."""
        found: dict[str, str] = {}
        for slug in self.slugs():
            found[slug] = slug
            text = (self.folder / f"{slug}.yaml").read_text(encoding="utf-8")
            found.update((name, slug) for name in _names_in(text))
        return found

    def matching(self, text: str) -> list[str]:
        """List the slugs of the entries of which some name holds a text, in any case; all for an empty one."""
        wanted = spelled(text)
        return sorted({slug for name, slug in self.names().items() if wanted in name}) if wanted else self.slugs()

    def _search(self, name: str) -> str | None:
        for slug in self.slugs():
            text = (self.folder / f"{slug}.yaml").read_text(encoding="utf-8")
            if f'"{name}"' in spelled(text) and name in _names_in(text):
                return slug
        return None

    def _nearest(self, name: str) -> str:
        import difflib

        known = self.names()
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
        near += [slug for slug in self.slugs() if name and slug.startswith(name)][:3]
        distinct = list(dict.fromkeys(known[close] for close in near))
        if distinct:
            return f"did you mean {' or '.join(distinct[:3])}?"
        return f"{self.listing} shows them" if self.listing else f"known: {', '.join(self.slugs())}"


# Names stand, always in double quotes, in one line of aliases and as the first key of an entry of ids.
_ALIASES = re.compile(r"^aliases:(.*)$", re.MULTILINE)
_ID = re.compile(r'^ *- \{?id: "([^"]+)"', re.MULTILINE)
_QUOTED = re.compile(r'"([^"]+)"')


def _names_in(text: str) -> list[str]:
    """All names in the text of a catalogue file, without parsing it."""
    aliases = [name for line in _ALIASES.findall(text) for name in _QUOTED.findall(line)]
    return [spelled(name) for name in aliases + _ID.findall(text)]


def looks_like_path(name: str) -> bool:
    """Whether an argument names a file rather than a catalogue entry."""
    is_file_name = name.endswith((".yaml", ".yml", ".json", ".gguf", ".safetensors"))
    return name == "-" or is_file_name or name.startswith((".", os.sep)) or (os.sep in name and _mode(name) is not None)


def load(catalogue: Catalogue, name: str, from_document: Callable[[Document], T]) -> T:
    """Load a spec from a path, from standard input (``-``), or from the catalogue by name."""
    if looks_like_path(name):
        return from_document(read_document(name))
    return from_document(catalogue.find(name))
