"""The file of flags that a command line may name (``--config serve.yaml``), read beside the file that names it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from .. import specfiles
from ..errors import RoofplanError, SpecError
from .nodes import root

if TYPE_CHECKING:
    from .record import Said


def settings_of(said: Said[Any], flag: str) -> dict[str, Said[Any]]:
    """The settings of a file of flags, by their names there.

    Only relative paths are read: what an absolute one would name is another machine's, or a container's.

    Raises
    ------
    SpecError : for a path that is not relative, a file that cannot be read or is malformed, and one that is no mapping
    """
    path, where = str(said.value), str(said.place)
    if path == "-" or PurePosixPath(path).is_absolute() or Path(path).is_absolute() or not path.strip():
        wanted = f"a relative path: {flag} is read beside the file that names it"
        hint = "check that file of flags by giving it a relative path, or write its flags here"
        raise SpecError(flag, got=path or "nothing", wanted=wanted, hint=hint, where=where)
    beside = Path(said.place.file).parent / path
    try:
        document = specfiles.read_document(beside if str(beside) != "-" else f"./{beside}")
    except RoofplanError as error:
        if not error.where.startswith(f"{beside}:"):  # not a fault inside the file: it is the path that is wrong
            got = f"{path} ({error.got or error.what})"
            raise SpecError(flag, got=got, wanted="a file that can be read", where=where) from error
        raise
    if document.data is None:
        return {}
    if not isinstance(document.data, dict):
        raise SpecError(flag, got="no mapping", wanted="flags by their names", where=document.where())
    return {key: value.said() for key, value in root(document).entries()}
