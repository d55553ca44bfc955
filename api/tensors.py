"""Reading queries, keys and values of attention heads from a file: NumPy's ``.npz`` or JSON, never anything that is executed."""

from __future__ import annotations

import io
import json
import math
import zipfile
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeVar

from .. import specfiles
from ..errors import DomainError, SpecError
from ..planner.kv_schemes import Heads

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

T = TypeVar("T")
LARGEST_FILE_BYTES = 2**28  # of a file, and of all of its arrays
_MOST_HEADS = 4096
_ARRAYS = ("queries", "keys", "values")
_WANTED = "queries, keys and values: arrays of tokens x channels, or of heads x tokens x channels"


def read_heads(path: str | PathLike[str]) -> Heads:
    """Read attention heads: arrays ``queries``, ``keys`` and ``values`` of tokens x channels, or with heads (and layers) before these.

    Query heads may be a multiple of the key and value heads, which neighbours then share (GQA). Every query attends to all keys.

    Raises
    ------
    SpecError : for a file that cannot be read, is too large, or is no such file; pickled objects are never loaded
    DomainError : for arrays that do not fit one another, or that hold what is no number
    """
    name = fspath(path)
    if not isinstance(name, str) or not name.lower().endswith((".npz", ".json")):
        raise SpecError("--tensors", got=name, wanted="a file .npz or .json")
    content = specfiles.read_bytes(name, largest=LARGEST_FILE_BYTES)
    arrays = _from_npz(content, name) if name.lower().endswith(".npz") else _from_json(content, name)
    return Heads(tuple(_heads(arrays, name)), f"{name}: {', '.join(f'{key} {arrays[key].shape}' for key in _ARRAYS)}")


def _refused(name: str, got: str, wanted: str = _WANTED) -> SpecError:
    return SpecError("--tensors", got=got, wanted=wanted, where=name)


def _from_npz(content: bytes, name: str) -> dict[str, np.ndarray]:
    sizes = _guarded(_sizes, content, name)
    if missing := [key for key in _ARRAYS if f"{key}.npy" not in sizes]:
        raise _refused(name, f"no array {missing[0]}")
    if sum(sizes[f"{key}.npy"] for key in _ARRAYS) > LARGEST_FILE_BYTES:
        raise _refused(name, "larger arrays", f"at most {LARGEST_FILE_BYTES:,} bytes")
    return _guarded(_plain_arrays, content, name)


def _sizes(content: bytes) -> dict[str, int]:
    """Bytes of the members of an archive once they are unpacked; none is read beyond what it declares."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {info.filename: info.file_size for info in archive.infolist()}


def _plain_arrays(content: bytes) -> dict[str, np.ndarray]:
    import numpy as np

    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return {key: stored[key] for key in _ARRAYS}


def _guarded(read: Callable[[bytes], T], content: bytes, name: str) -> T:
    """Read an archive; whatever numpy and zipfile raise of a broken one, or of pickled objects, becomes our error."""
    try:
        return read(content)
    except Exception as error:
        got = "pickled objects" if "allow_pickle" in str(error) else "no archive of plain arrays"
        raise _refused(name, got, "arrays of numbers as numpy.savez writes them") from error


def _from_json(content: bytes, name: str) -> dict[str, np.ndarray]:
    import numpy as np

    def refuse(constant: str) -> None:
        raise _refused(name, constant, "finite numbers")

    try:
        data: Any = json.loads(content.decode("utf-8-sig"), parse_constant=refuse)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise _refused(name, "no JSON", "a mapping of queries, keys and values") from error
    if not isinstance(data, dict):
        raise _refused(name, "no mapping", "a mapping of queries, keys and values")
    arrays = {}
    for key in _ARRAYS:
        if key not in data:
            raise _refused(name, f"no array {key}")
        try:
            arrays[key] = np.asarray(data[key])
        except (ValueError, OverflowError, RecursionError) as error:  # rows of unequal lengths
            raise _refused(name, f"{key} with rows of unequal lengths") from error
    return arrays


def _heads(arrays: dict[str, np.ndarray], name: str) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """One triple for each query head."""
    import numpy as np

    flat = {}
    for key, array in arrays.items():
        if array.dtype.kind not in "iuf":
            raise DomainError("--tensors", got=f"{key} of type {array.dtype}", wanted="numbers").at(name)
        if array.ndim < 2 or not array.size:
            raise DomainError("--tensors", got=f"{key} of shape {array.shape}", wanted=_WANTED).at(name)
        flat[key] = array.reshape(-1, *array.shape[-2:]).astype(np.float64)
        if not np.isfinite(flat[key]).all():
            raise DomainError("--tensors", got=f"{key} that are not finite", wanted="finite numbers").at(name)
    queries, keys, values = (flat[key] for key in _ARRAYS)
    if len(keys) != len(values) or len(queries) % len(keys) or len(queries) > _MOST_HEADS:
        got = f"{len(queries)} heads of queries, {len(keys)} of keys and {len(values)} of values"
        wanted = f"as many of keys as of values, and of queries a multiple, at most {_MOST_HEADS}"
        raise DomainError("--tensors", got=got, wanted=wanted).at(name)
    if keys.shape[1] != values.shape[1] or keys.shape[2] != queries.shape[2]:
        got = f"keys of {keys.shape[1:]}, values of {values.shape[1:]} and queries of {queries.shape[1:]}"
        raise DomainError("--tensors", got=got, wanted="as many values as keys, and queries as wide as keys").at(name)
    shared = math.floor(len(queries) / len(keys))
    return [(queries[head], keys[head // shared], values[head // shared]) for head in range(len(queries))]
