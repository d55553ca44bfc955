"""Which files are checked: those that are named, and those of folders that may describe a deployment."""

from __future__ import annotations

import fnmatch
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import specfiles
from ..errors import SpecError
from .launcher_spec import cues

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

STDIN = "<stdin>"
_YAML = (".yaml", ".yml", ".json")
_SCRIPTS = (".sh", ".bash", ".zsh", ".mk")
_SCRIPT_NAMES = {"Makefile", "makefile", "GNUmakefile", "Procfile", "justfile", "Justfile"}
_HERE = os.path.join(os.curdir, "")  # noqa: PTH118  # a path would drop the end
_NOT_ENTERED = {"node_modules", "__pycache__", "venv", "site-packages"}
# What a file that describes a deployment says somewhere, beside the programs and images of engines.
_CUES = re.compile(
    r"roofplan|vllm|sglang|llama|trtllm|tensorrt|inferenceservice|llmconfig|llm_config|modelspec|engine_kwargs",
    re.IGNORECASE,
)
_KEY_FIRST = re.compile(r"""(?:---|[{\[]|- |["']?[A-Za-z_][\w./-]*["']?\s*:(?:\s|$))""", re.ASCII)


@dataclass(frozen=True, slots=True)
class Found:
    """A file to check: its path, whether a folder's walk found it, and what is wrong where it could not even be looked for."""

    path: str
    walked: bool = False
    error: SpecError | None = None

    @property
    def shown(self) -> str:
        """Its name as it is shown."""
        return STDIN if self.path == "-" else self.path


def find(paths: Iterable[str | os.PathLike[str]], exclude: Sequence[str] = ()) -> Iterator[Found]:
    """Files that are named, and the files of folders, each once.

    Links to folders are not followed inside a folder, hidden folders and those of packages are not entered.
    """
    seen: set[str] = set()
    for path in [os.fspath(path) for path in paths]:
        found = _walk(path, path, exclude) if path != "-" and specfiles.is_folder(path) else [Found(path)]
        for one in found:
            try:
                same = one.path if one.path == "-" else os.path.realpath(one.path)
            except (OSError, ValueError):
                same = one.path
            if one.error is not None or same not in seen:
                seen.add(same)
                yield one


def _walk(root: str, folder: str, exclude: Sequence[str]) -> Iterator[Found]:
    waiting = [folder]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError as error:
            reason = (error.strerror or "unreadable").lower()
            shown = folder.removeprefix(_HERE)
            yield Found(shown, walked=True, error=SpecError("folder", got=reason, where=shown))
            continue
        inner = []
        for entry in entries:
            if _is_excluded(os.path.relpath(entry.path, root), entry.name, exclude):
                continue
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in _NOT_ENTERED:
                    inner.append(entry.path)
            elif _is_candidate(entry.name) and not specfiles.is_folder(entry.path):
                yield Found(entry.path.removeprefix(_HERE), walked=True)
        waiting += reversed(inner)


def _is_excluded(path: str, name: str, exclude: Sequence[str]) -> bool:
    path = path.replace(os.sep, "/")
    return any(
        fnmatch.fnmatchcase(path, pattern.rstrip("/")) or fnmatch.fnmatchcase(name, pattern.rstrip("/"))
        for pattern in exclude
    )


def _is_candidate(name: str) -> bool:
    return name.endswith((*_YAML, *_SCRIPTS)) or name in _SCRIPT_NAMES


def is_yaml(name: str, text: str) -> bool:
    r"""Whether a file holds YAML or JSON: by the end of its name, else by its first line that says something.

    >>> is_yaml("<stdin>", "# today\nmodel: llama-3.1-8b\n"), is_yaml("<stdin>", "#!/bin/sh\nvllm serve x\n")
    (True, False)
    """
    if name.endswith(_YAML):
        return True
    if name.endswith(_SCRIPTS) or os.path.basename(name) in _SCRIPT_NAMES or text.startswith("#!"):  # noqa: PTH119  # no path
        return False
    lines = (line.strip() for line in text[:100_000].split("\n"))
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return _KEY_FIRST.match(first) is not None


def has_cue(text: str) -> bool:
    """Whether a text names anything that is checked: a file of a folder that does not is somebody else's."""
    return _CUES.search(text) is not None or cues().search(text) is not None
