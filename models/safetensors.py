"""Reading safetensors headers: the name, type, shape and exact bytes of every tensor, of one file or of all shards of an index.

Only headers are read. Every check of the reference parser is made, and more: the header is bounded before it is read, counted before it is
parsed, and may not name a key twice.

Source of the layout: huggingface/safetensors, README.md and safetensors/src/tensor.rs: 8 bytes of length, so many bytes of JSON, then one
buffer which the tensors fill without holes or overlaps.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .. import specfiles
from ..errors import SpecError
from .tensors import open_regular, plain_name

if TYPE_CHECKING:
    from .spec import ModelSpec

INDEX = "model.safetensors.index.json"
MOST_HEADER_BYTES = 100_000_000  # the reference parser's limit
LARGEST_HEADER = 64 * 2**20  # ours
LARGEST_WIDE_HEADER = 16 * 2**20  # with characters beyond ASCII, which take up to four times the memory
MOST_TENSORS = 2**16  # of one file
MOST_TENSORS_IN_ALL = 2**19  # of all shards: twice what the largest published checkpoint has
MOST_COMMAS = 2**20  # twice what so many tensors of four sides need
MOST_SHARDS = 10_000
_LARGEST = 2**63 - 1
_PART = re.compile(r"(.*-)([0-9]{1,5})(-of-)([0-9]{1,5})(\.safetensors)", re.DOTALL)
_ADAPTER = "adapter_model"  # what peft calls the weights of a LoRA, which go beside a model
_MOST_DIGITS = 19
# Bits of an element: safetensors/src/tensor.rs, Dtype.
DTYPE_BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: its shape in PyTorch's order, and its exact size; ``elements`` are those of the stored type."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    bytes: int


def with_checkpoint(spec: ModelSpec, folder: str | Path) -> ModelSpec:
    """Add to a spec what the weight files of a folder, of an index or of a single file really store.

    Raises
    ------
    SpecError : for a malformed header or index, or a missing shard
    """
    from .checkpoint import with_tensors

    return with_tensors(spec, read_tensors(Path(folder)))


def has_weights(folder: Path) -> bool:
    """Whether a folder holds safetensors files, or an index of them."""
    return bool(_indexes(folder) or _single_files(folder))


def read_tensors(path: Path) -> tuple[Tensor, ...]:
    """Read the tensors of a folder (by its index, or of all its files), of an index, or of a file (and the other shards of its index).

    Raises
    ------
    SpecError : for a malformed header or index, or a missing shard
    """
    if path.name.endswith(".index.json"):
        return _of_index(path)
    if path.name.endswith(".safetensors"):
        index = path.with_name(INDEX)
        is_shard = index.is_file() and path.name in _shards(index).values()
        return _of_index(index) if is_shard else _joined(_whole_set([path]), str(path))
    indexes = _indexes(path)
    if indexes:
        return _of_index(indexes[0])
    return _joined(_whole_set(_single_files(path)), str(path))


def _indexes(folder: Path) -> list[Path]:
    found = [file for file in sorted(folder.glob("*.safetensors.index.json")) if not file.name.startswith(_ADAPTER)]
    return [file for file in found if file.name == INDEX] or found


def _single_files(folder: Path) -> list[Path]:
    """The weight files of a folder without an index, adapters left out.

    ``consolidated`` is the same model a second time, in the vendor's own names.
    """
    found = [file for file in sorted(folder.glob("*.safetensors")) if not file.name.startswith(_ADAPTER)]
    return [file for file in found if not file.name.startswith("consolidated")] or found


def _whole_set(files: list[Path]) -> list[Path]:
    """The files with all parts of those that are named as one of several (``model-00001-of-00002``)."""
    whole: dict[Path, None] = {}
    for file in files:
        part = _PART.fullmatch(file.name)
        whole.update(dict.fromkeys(_parts(file, part) if part and file not in whole else [file]))
    return list(whole)


def _parts(file: Path, part: re.Match[str]) -> list[Path]:
    """All parts of the set that one of them names.

    Raises
    ------
    SpecError : with the names of missing parts, or for a number that is not one of the set's
    """
    stem, number, of, total, ending = part.groups()
    count, width = int(total), len(number)
    if not 1 <= int(number) <= count <= MOST_SHARDS:
        got, wanted = file.name, f"a part of 1 to {min(count, MOST_SHARDS)}"
        raise SpecError("safetensors", got=got, wanted=wanted, where=str(file.parent))
    parts = [file.with_name(f"{stem}{at:0{width}}{of}{total}{ending}") for at in range(1, count + 1)]
    missing = [other.name for other in parts if not other.is_file()]
    if file.name in missing:  # a file that is given by name and is not there, or is none
        return [file]
    if missing:
        got = f"no {_some(missing)}"
        raise SpecError("safetensors", got=got, wanted=f"all {count} parts", where=str(file.parent))
    return parts


def _some(names: list[str]) -> str:
    """The first of some names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# ------------------------------------------------------------------------------------------------ one file


def read_safetensors_header(path: str | Path) -> tuple[Tensor, ...]:
    """Read the header of one file, in the order of the data.

    Raises
    ------
    SpecError : for the first fault
    """
    where = str(path)
    with open_regular(path) as (stream, size):
        length = _header_length(stream.read(8), size, where)
        content = stream.read(length)
        while len(content) < length and (more := stream.read(length - len(content))):
            content += more
    data = _strict_json(content, where)
    data.pop("__metadata__", None)
    tensors = sorted((_tensor(name, entry, where) for name, entry in data.items()), key=lambda pair: pair[0])
    end = 0
    for (begin, stop), tensor in tensors:
        if begin != end:
            fault = "an overlap with the tensor before it" if begin < end else "a hole before it"
            raise SpecError(tensor.name, got=f"data from {begin}: {fault}", wanted=f"data from {end}", where=where)
        end = stop
    if 8 + length + end != size:
        got, wanted = f"a file of {size} bytes", f"{8 + length + end}, the end of the last tensor"
        raise SpecError("safetensors", got=got, wanted=wanted, where=where)
    return tuple(tensor for _, tensor in tensors)


def _header_length(content: bytes, size: int, where: str) -> int:
    length = int.from_bytes(content, "little")
    if len(content) < 8 or length < 2:
        raise SpecError("safetensors", got=f"a file of {size} bytes", wanted="8 bytes and a header", where=where)
    if length > min(MOST_HEADER_BYTES, LARGEST_HEADER):
        wanted = f"at most {LARGEST_HEADER:,} bytes"
        raise SpecError("safetensors header", got=f"a length of {length}", wanted=wanted, where=where)
    if length > size - 8:
        got, wanted = f"a length of {length}", f"at most the {size - 8} bytes that follow"
        raise SpecError("safetensors header", got=got, wanted=wanted, where=where)
    return length


def _tensor(name: str, entry: Any, where: str) -> tuple[tuple[int, int], Tensor]:
    if not isinstance(entry, dict) or not entry.keys() >= {"dtype", "shape", "data_offsets"}:
        raise SpecError(name, got="something else", wanted="dtype, shape and data_offsets", where=where)
    dtype = entry["dtype"]
    bits = DTYPE_BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise SpecError(name, got=f"dtype {dtype!r}", wanted=f"one of {', '.join(DTYPE_BITS)}", where=where)
    shape, offsets = _counts(entry["shape"], f"{name}: shape", where), _counts(entry["data_offsets"], name, where)
    elements = 1
    for side in shape:
        elements *= side
        if elements * bits > _LARGEST:
            raise SpecError(name, got=f"shape {show_shape(shape)}", wanted="fewer than 2^63 bits", where=where)
    if elements * bits % 8:
        raise SpecError(name, got=f"{elements} elements of {bits} bits", wanted="whole bytes", where=where)
    if len(offsets) != 2 or offsets[1] - offsets[0] != elements * bits // 8:
        wanted = f"a begin and an end {elements * bits // 8} bytes later"
        raise SpecError(name, got=f"data_offsets {list(offsets[:3])}", wanted=wanted, where=where)
    return (offsets[0], offsets[1]), Tensor(name, dtype, shape, elements, elements * bits // 8)


def show_shape(shape: tuple[int, ...]) -> str:
    """Write a shape as people do."""
    return " x ".join(map(str, shape[:8])) or "of a scalar"


def _counts(value: Any, what: str, where: str) -> tuple[int, ...]:
    is_list = isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)
    if not is_list:
        raise SpecError(what, got="something else", wanted="a list of whole numbers, zero or more", where=where)
    return tuple(value)


# ------------------------------------------------------------------------------------------------ several files


def _of_index(path: Path) -> tuple[Tensor, ...]:
    """The tensors of all shards that an index names; each tensor must be in one of them."""
    named = _shards(path)
    files = sorted(set(named.values()))
    missing = [name for name in files if not path.with_name(name).is_file()]
    if missing:
        got = f"no {_some(missing)}"
        raise SpecError("weight_map", got=got, wanted=f"all {len(files)} shards beside the index", where=str(path))
    tensors = _joined([path.with_name(name) for name in files], str(path))
    absent = named.keys() - {tensor.name for tensor in tensors}
    if absent:
        raise SpecError(
            "weight_map", got=f"{min(absent)}, which no shard has", wanted="tensors of the shards", where=str(path)
        )
    return tensors


def _joined(files: list[Path], where: str) -> tuple[Tensor, ...]:
    tensors: dict[str, Tensor] = {}
    for file in files:
        for tensor in read_safetensors_header(file):
            if tensor.name in tensors:
                raise SpecError(tensor.name, got="the tensor in two files", wanted="each tensor once", where=where)
            tensors[tensor.name] = tensor
        if len(tensors) > MOST_TENSORS_IN_ALL:
            raise SpecError(
                "safetensors", got="too many tensors", wanted=f"at most {MOST_TENSORS_IN_ALL:,}", where=where
            )
    return tuple(tensors.values())


def _shards(index: Path) -> dict[str, str]:
    """Map tensors to the files that an index names; the names are not trusted to stay in the folder."""
    data = _strict_json(specfiles.read_bytes(index, largest=LARGEST_HEADER), str(index))
    named = data.get("weight_map")
    if not isinstance(named, dict) or not named:
        raise SpecError("weight_map", got="nothing", wanted="a mapping of tensors to files", where=str(index))
    for name in set(map(str, named.values())):
        if not plain_name(name) or not name.endswith(".safetensors"):
            raise SpecError("weight_map", got=name, wanted="the plain name of a .safetensors file", where=str(index))
    if len(set(map(str, named.values()))) > MOST_SHARDS:
        raise SpecError("weight_map", got="too many files", wanted=f"at most {MOST_SHARDS:,}", where=str(index))
    return {name: str(file) for name, file in named.items()}


# ------------------------------------------------------------------------------------------------ JSON


def _strict_json(content: bytes, where: str) -> dict[str, Any]:
    """Read a JSON object: no key twice, whole numbers only, and no more of anything than weight files need.

    What opens or separates values is counted before anything is built, so that memory is bounded by the file's own size.
    """
    if content[:1] != b"{":
        raise SpecError("JSON", got="something else", wanted="an object that begins with {", where=where)
    for sign, most in ((b"{", MOST_TENSORS + 2), (b"[", 2 * MOST_TENSORS), (b",", MOST_COMMAS)):
        if content.count(sign) > most:
            raise SpecError(
                "JSON", got=f"more than {most:,} times {sign.decode()}", wanted="fewer tensors", where=where
            )
    if len(content) > LARGEST_WIDE_HEADER and not content.isascii():
        raise SpecError(
            "JSON", got=f"{len(content)} bytes that are not all ASCII", wanted="a smaller header", where=where
        )
    try:
        text = content.decode()
        data: dict[str, Any] = json.loads(
            text, object_pairs_hook=_each_once, parse_int=_whole, parse_float=_refuse, parse_constant=_refuse
        )
        "".join(data).encode()  # half of a surrogate pair is no text
    except SpecError as error:
        raise error.at(where) from None
    except UnicodeError as error:
        raise SpecError("JSON", got="bytes that are not UTF-8", wanted="UTF-8", where=where) from error
    except json.JSONDecodeError as error:
        raise SpecError("malformed JSON", hint=f"{error.msg} at byte {error.pos}", where=where) from error
    except RecursionError as error:
        raise SpecError("JSON", got="values nested too deeply", wanted="at most 3 levels", where=where) from error
    return data


def _refuse(text: str) -> NoReturn:
    raise SpecError("JSON", got=f"the number {text}", wanted="whole numbers")


def _whole(text: str) -> int:
    return int(text) if len(text) <= _MOST_DIGITS else _refuse(text)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = _first_repeated([key for key, _ in pairs])
        raise SpecError("JSON", got=f"the key {twice!r} a second time", wanted="each key once")
    return made


def _first_repeated(keys: list[str]) -> str:
    return next(key for key, count in Counter(keys).items() if count > 1)
