"""Models that are split over several GGUF files (``name-00001-of-00003.gguf``), as llama.cpp's gguf-split writes them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .gguf import Header

MOST_PARTS = 1_000
_PART = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf", re.DOTALL)


def join_parts(path: Path, read: Callable[[Path], Header]) -> Header:
    """Read a file and, if it is one part of several, all of them: the metadata of the first one, and the tensors of all.

    Raises
    ------
    SpecError : when a part is missing, or the parts do not belong together
    """
    header = read(path)
    count = header.metadata.get("split.count", 1)
    if count == 1 or isinstance(count, bool) or not isinstance(count, int):
        return header
    named = _PART.fullmatch(path.name)
    if named is None or int(named[3]) != count or not 1 < count <= MOST_PARTS:
        wanted = f"a name that ends in -00001-of-{count:05}.gguf, and at most {MOST_PARTS:,} parts"
        raise SpecError("split.count", got=f"{count} in {path.name}", wanted=wanted, where=str(path))
    files = [path.with_name(f"{named[1]}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise SpecError("split model", got=f"no {', '.join(missing[:3])}", wanted=f"all {count} parts", where=str(path))
    parts = [read(file) for file in files]
    tensors = tuple(tensor for part in parts for tensor in part.tensors)
    names = {tensor.name for tensor in tensors}
    promised = parts[0].metadata.get("split.tensors.count", len(tensors))
    if len(names) != len(tensors) or promised != len(tensors):
        got = f"{len(names)} different ones of {len(tensors)}"
        raise SpecError("split.tensors.count", got=got, wanted=f"{promised}, each once", where=str(path))
    return replace(parts[0], tensors=tensors)
