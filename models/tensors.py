"""What the readers of weight files share: opening them safely, and adding up what is stored by class of tensor."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, BinaryIO, Literal

from ..engines.spec import TensorClass
from ..errors import SpecError
from .spec import Stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

StoredKind = TensorClass | Literal["mtp", "vision", "buffer", "duplicate"]
_ORDER: tuple[StoredKind, ...] = (
    *("attention", "mlp", "experts", "router", "norm", "embedding", "head", "other"),
    *("mtp", "vision", "buffer", "duplicate"),
)


@contextlib.contextmanager
def open_regular(path: str | Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a regular file for reading, and give it with its size in bytes.

    It is opened without blocking and then checked through the descriptor (a FIFO would hang, a device never end).

    Raises
    ------
    SpecError : for anything but a readable regular file
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a valid path"
        raise SpecError("file", got=reason.lower(), where=str(path)) from error
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SpecError("file", got="a folder, FIFO or device", wanted="a regular file", where=str(path))
        try:
            yield stream, status.st_size
        except OSError as error:
            raise SpecError("file", got=(error.strerror or "an error").lower(), where=str(path)) from error


def stored_by_class(tensors: Iterable[tuple[StoredKind, int, int, str]]) -> tuple[Stored, ...]:
    """Add up (kind, parameters, bytes, type) of single tensors; the types of a class are named most bytes first."""
    parameters, types = Counter[StoredKind](), defaultdict[StoredKind, Counter[str]](Counter)
    for kind, count, size, name in tensors:
        parameters[kind] += count
        types[kind][name] += size
    return tuple(
        Stored(
            kind=kind,
            parameters=parameters[kind],
            bytes=types[kind].total(),
            types=", ".join(name for name, _ in types[kind].most_common()),
        )
        for kind in _ORDER
        if kind in types
    )


def slug_of(name: str) -> str:
    """Make a name of the catalogue's form from a title or file name.

    >>> slug_of("Meta Llama 3.1 8B Instruct")
    'meta-llama-3.1-8b-instruct'
    """
    return re.sub(r"[^a-z0-9._-]+", "-", name.rsplit("/", 1)[-1].lower()).strip("-._")[:64] or "model"


def plain_name(name: str) -> bool:
    """Whether a file name from a file is only a name: nothing that leads to another folder."""
    return bool(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._ +-]{0,254}", name)) and ".." not in name
