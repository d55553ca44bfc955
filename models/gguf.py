"""Reading the header of a GGUF file (llama.cpp, Ollama): metadata, and the name, shape, type and place of every tensor.

Only the header is read; tensor data is neither read nor mapped. The file is not trusted: every count, length and offset is compared with
what the file can hold before anything is reserved, long texts and arrays are skipped by their length, and what is kept is bounded.

Source of the layout: ggml-org/ggml, docs/gguf.md (versions 2 and 3) and the checks of src/gguf.cpp. A file of the other byte order has
no mark; as in ggml it is recognised by a version whose low 16 bits are zero.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..engines import ggml
from ..errors import SpecError
from .mixes import mix_bytes
from .tensors import open_regular

if TYPE_CHECKING:
    from ..engines.ggml import TensorType
    from .spec import ModelSpec

MAGIC = b"GGUF"
MOST_HEADER_BYTES = 512 * 2**20  # read, not skipped
MOST_KEYS = 65_536
MOST_TENSORS = 2**17  # a hundred times what the largest published model has; they are held in memory
MOST_STRINGS = 2**21  # in all arrays together: each costs a step, whatever its length
MOST_TEXT_BYTES = 2**24  # of keys and texts that are kept, together
LONGEST_TEXT = 65_536
LONGEST_KEY = 65_535
LONGEST_TENSOR_NAME = 63
LONGEST_ARRAY = 65_536  # of numbers that are kept
MOST_ELEMENTS = 2**20  # of all kept arrays together
MOST_DIMENSIONS = 4
DEFAULT_ALIGNMENT = 32
_LARGEST = 2**63 - 1
_CHUNK = 2**18
_VERSIONS = (2, 3)
_STRING, _ARRAY, _BOOL = 8, 9, 7
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_SMALLEST_ENTRY, _SMALLEST_TENSOR = 8 + 1 + 4 + 1, 8 + 1 + 4 + 8 + 4 + 8  # bytes


class Readable(Protocol):
    """What a header is read from: a file, or the beginning of one on a server."""

    def seek(self, offset: int, /) -> int:
        """Go to a place, counted from the start."""

    def read(self, count: int, /) -> bytes:
        """Read up to so many bytes."""


@dataclass(frozen=True, slots=True)
class Array:
    """An array of the metadata: how long it is, and its values where they are numbers and few enough to be kept."""

    count: int
    values: tuple[int | float | bool, ...] | None = None


Value = int | float | bool | str | Array | None  # None: a text that is too long to be kept


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: its sides in ggml's order (the contiguous one first), its type, and its exact size in bytes."""

    name: str
    sides: tuple[int, ...]
    type: TensorType
    parameters: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """The header of one file."""

    name: str
    version: int
    metadata: dict[str, Value]
    tensors: tuple[Tensor, ...]


def read_gguf(path: str | Path) -> ModelSpec:
    """Read a model from a GGUF file: its shape from tensor names and sides, its bytes from the tensor types.

    A file that is one part of several stands for all of them; they are looked for beside it.

    Raises
    ------
    SpecError : for a malformed file, a missing part, or a model that roofplan cannot describe
    """
    from .gguf_layers import spec_of

    return spec_of(read_all(path))


def read_all(path: str | Path) -> Header:
    """Read the header of a file, and those of the other parts of a split model, as one.

    Raises
    ------
    SpecError : for a malformed file or a missing part
    """
    from .gguf_parts import join_parts

    return join_parts(Path(path), read_header)


def read_header(path: str | Path) -> Header:
    """Read the header of one file.

    Raises
    ------
    SpecError : with the place (byte offset) of the first fault
    """
    with open_regular(path) as (stream, size):
        return parse_header(stream, size, str(path))[0]


def parse_header(stream: Readable, size: int, name: str) -> tuple[Header, int]:
    """Read the header from a stream of a file of ``size`` bytes, of which no more is read than needed; give its length too.

    Raises
    ------
    SpecError : with the place (byte offset) of the first fault
    """
    source = _Source(stream, size, name)
    version = _read_version(source)
    tensor_count = source.count(MOST_TENSORS, _SMALLEST_TENSOR, "tensor count")
    key_count = source.count(MOST_KEYS, _SMALLEST_ENTRY, "metadata count")
    metadata = _read_metadata(source, key_count)
    tensors = _read_tensors(source, tensor_count, _alignment(source, metadata))
    return Header(name, version, metadata, tensors), source.position


class _Source:
    """A file that is read front to back through one buffer, with its byte order and what is left of the budgets."""

    def __init__(self, stream: Readable, size: int, name: str) -> None:
        self.size = size
        self.name = name
        self.order = "<"
        self.position = 0
        self.strings = MOST_STRINGS
        self.text_bytes = MOST_TEXT_BYTES
        self.elements = MOST_ELEMENTS
        self._stream = stream
        self._buffer = b""
        self._start = 0
        self._budget = MOST_HEADER_BYTES

    def error(self, what: str, *, got: object, wanted: str, hint: str = "") -> SpecError:
        """Make an error with the place where reading stands."""
        return SpecError(what, got=got, wanted=wanted, hint=hint, where=f"{self.name}: byte {self.position}")

    @property
    def left(self) -> int:
        """Bytes of the file that have not been passed."""
        return self.size - self.position

    def skip(self, count: int, what: str) -> None:
        """Pass over bytes without reading them."""
        if count > self.left:
            raise self.error(what, got=f"{count} bytes", wanted=f"at most the {self.left} that are left of the file")
        self.position += count

    def take(self, count: int, what: str) -> bytes:
        """Read so many bytes."""
        at = self.position - self._start
        if at + count > len(self._buffer):
            self._fill(count, what)
            at = 0
        self.position += count
        return self._buffer[at : at + count]

    def _fill(self, count: int, what: str) -> None:
        """Let the buffer begin where reading stands and hold at least so many bytes."""
        if count > self.left:
            raise self.error(what, got=f"{count} bytes", wanted=f"at most the {self.left} that are left of the file")
        self._stream.seek(self.position)
        wanted = min(max(count, _CHUNK), self.left)
        self._budget -= wanted
        if self._budget < 0:
            raise self.error("header", got=f"more than {MOST_HEADER_BYTES:,} bytes", wanted="a smaller one")
        parts = []
        while wanted > 0 and (part := self._stream.read(wanted)):
            parts.append(part)
            wanted -= len(part)
        self._buffer, self._start = b"".join(parts), self.position
        if len(self._buffer) < count:  # the file shrank
            raise self.error(what, got="the end of the file", wanted=f"{count} bytes")

    def number(self, code: str, what: str) -> int | float:
        """Read one number of a ``struct`` format code."""
        size = struct.calcsize(f"<{code}")
        value: int | float = struct.unpack(self.order + code, self.take(size, what))[0]
        return value

    def integer(self, code: str, what: str) -> int:
        """Read one whole number."""
        return int(self.number(code, what))

    def count(self, most: int, smallest: int, what: str) -> int:
        """Read the number of entries of at least ``smallest`` bytes each: no more than what the file can still hold."""
        count = self.integer("Q", what)
        if count > most:
            got = f"{count - 2**64}" if count > _LARGEST else count
            raise self.error(what, got=got, wanted=f"a count, at most {most:,}")
        if count * smallest > self.left:
            raise self.error(what, got=count, wanted=f"at most {self.left // smallest}: {self.left} bytes are left")
        return count

    def text(self, longest: int, what: str) -> str:
        """Read a text of at most so many bytes."""
        length = self.integer("Q", f"length of {what}")
        if length > longest:
            raise self.error(f"length of {what}", got=length, wanted=f"at most {longest:,} bytes")
        return self._decoded(length, what)

    def kept_text(self, what: str) -> str | None:
        """Read a text, or pass over it and give None where it is longer than what is kept."""
        length = self.integer("Q", f"length of {what}")
        if length > min(LONGEST_TEXT, self.text_bytes):
            self.skip(length, what)
            return None
        return self._decoded(length, what)

    def _decoded(self, length: int, what: str) -> str:
        self.text_bytes -= length
        if self.text_bytes < 0:
            raise self.error("metadata", got=f"more than {MOST_TEXT_BYTES:,} bytes of text", wanted="less")
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError as error:
            raise self.error(what, got="bytes that are not UTF-8", wanted="UTF-8") from error

    def skip_texts(self, count: int, what: str) -> None:
        """Pass over so many texts: their lengths are read, a buffer at a time, and nothing else."""
        self.strings -= count
        if self.strings < 0:
            raise self.error(what, got=f"more than {MOST_STRINGS:,} texts in arrays", wanted="fewer")
        length_at = struct.Struct(f"{self.order}Q").unpack_from
        while count:
            self._fill(8, what)
            buffer, at, last = self._buffer, 0, len(self._buffer) - 8
            while count and at <= last:
                at += 8 + length_at(buffer, at)[0]
                count -= 1
            if at > self.left:
                raise self.error(
                    what, got="a text that ends beyond the file", wanted=f"at most the {self.left} bytes left"
                )
            self.position += at


# ------------------------------------------------------------------------------------------------ metadata


def _read_version(source: _Source) -> int:
    """Read the magic and the version, and set the byte order."""
    if source.size < 24 or source.take(4, "magic") != MAGIC:
        raise SpecError(
            "GGUF", got="a file that does not begin with GGUF and a header", wanted="one", where=source.name
        )
    version = source.integer("I", "version")
    if version & 0xFFFF == 0:
        source.order = ">"
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in _VERSIONS:
        raise source.error("GGUF version", got=version, wanted=f"one of {', '.join(map(str, _VERSIONS))}")
    return version


def _read_metadata(source: _Source, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for _ in range(count):
        key = source.text(LONGEST_KEY, "metadata key")
        if not key:
            raise source.error("metadata key", got="an empty one", wanted="a name")
        if key in metadata:
            raise source.error(key, got="the key a second time", wanted="each key once")
        metadata[key] = _read_value(source, source.integer("I", key), key)
    return metadata


def _read_value(source: _Source, kind: int, key: str) -> Value:
    if kind == _STRING:
        return source.kept_text(key)
    if kind == _ARRAY:
        return _read_array(source, key)
    if kind not in _NUMBERS:
        raise source.error(key, got=f"value type {kind}", wanted="one of 0 to 12")
    return (
        _as_bool(source, source.number(_NUMBERS[kind], key), key)
        if kind == _BOOL
        else source.number(_NUMBERS[kind], key)
    )


def _as_bool(source: _Source, value: float, key: str) -> bool:
    if value not in {0, 1}:
        raise source.error(key, got=f"the byte {value} for a yes/no value", wanted="0 or 1")
    return bool(value)


def _read_array(source: _Source, key: str) -> Array:
    kind = source.integer("I", key)
    if kind != _STRING and kind not in _NUMBERS:
        nested = "an array of arrays" if kind == _ARRAY else f"an array of value type {kind}"
        raise source.error(key, got=nested, wanted="an array of texts or numbers")
    size = 8 if kind == _STRING else struct.calcsize(f"<{_NUMBERS[kind]}")
    count = source.count(_LARGEST, size, f"length of {key}")
    if kind == _STRING:
        source.skip_texts(count, key)
        return Array(count)
    if count > min(LONGEST_ARRAY, source.elements):
        source.skip(count * size, key)
        return Array(count)
    source.elements -= count
    numbers = struct.unpack(f"{source.order}{count}{_NUMBERS[kind]}", source.take(count * size, key))
    return Array(count, tuple(_as_bool(source, n, key) for n in numbers) if kind == _BOOL else numbers)


def _alignment(source: _Source, metadata: dict[str, Value]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**32 or value & (value - 1):
        shown = "an array" if isinstance(value, Array) else repr(value)
        raise source.error("general.alignment", got=shown, wanted="a power of two")
    return value


# ------------------------------------------------------------------------------------------------ tensors


def _read_tensors(source: _Source, count: int, alignment: int) -> tuple[Tensor, ...]:
    """Read the tensor infos; their data must follow one another in this order, each at the next aligned offset, and end in the file."""
    tensors, names, expected = [], set[str](), 0
    for _ in range(count):
        tensor, offset = _read_tensor(source)
        if tensor.name in names:
            raise source.error(tensor.name, got="the tensor a second time", wanted="each tensor once")
        names.add(tensor.name)
        _check_offset(source, tensor.name, offset, expected, alignment)
        tensors.append(tensor)
        end = offset + tensor.bytes
        expected = _aligned(end, alignment)
    if tensors:
        wanted = _aligned(source.position, alignment) + end
        if wanted > source.size:
            got, want = f"a file of {source.size} bytes: it is truncated", f"{wanted} bytes, the end of the tensor data"
            raise SpecError("GGUF", got=got, wanted=want, where=source.name)
    return tuple(tensors)


def _read_tensor(source: _Source) -> tuple[Tensor, int]:
    name = source.text(LONGEST_TENSOR_NAME, "tensor name")
    if not name:
        raise source.error("tensor name", got="an empty one", wanted="a name")
    dimensions = source.integer("I", name)
    if not 1 <= dimensions <= MOST_DIMENSIONS:
        raise source.error(name, got=f"{dimensions} dimensions", wanted=f"1 to {MOST_DIMENSIONS}")
    sides = struct.unpack(f"{source.order}{dimensions}Q", source.take(8 * dimensions, name))
    kind = _tensor_type(source, name, source.integer("I", name))
    parameters = _elements(source, name, sides)
    if sides[0] % kind.elements:
        raise source.error(
            name, got=f"rows of {sides[0]}", wanted=f"a multiple of {kind.elements}, the block of {kind.name}"
        )
    size = parameters // kind.elements * kind.bytes
    if size > source.size:
        got, wanted = (
            f"{size} bytes of data",
            f"at most the {source.size} of the file: it is truncated, or the sides are wrong",
        )
        raise source.error(name, got=got, wanted=wanted)
    return Tensor(name, sides, kind, parameters, size), source.integer("Q", name)


def _elements(source: _Source, name: str, sides: tuple[int, ...]) -> int:
    """The product of the sides, none of which may be zero, and which must fit 63 bits."""
    product = 1
    for side in sides:
        product *= side
        if not 0 < product <= _LARGEST:
            shown = " x ".join(map(str, sides))
            raise source.error(name, got=f"sides {shown}", wanted="sides greater than zero, with a product below 2^63")
    return product


def _tensor_type(source: _Source, name: str, number: int) -> TensorType:
    known = ggml.types_by_id().get(number)
    if known is None:
        wanted = (
            "a type that ggml still has" if number in ggml.removed_ids() else "a known one (this file may be newer)"
        )
        raise source.error(name, got=f"tensor type {number}", wanted=wanted)
    return known


def _check_offset(source: _Source, name: str, offset: int, expected: int, alignment: int) -> None:
    if offset % alignment:
        raise source.error(name, got=f"offset {offset}", wanted=f"a multiple of the alignment, {alignment}")
    if offset != expected:
        fault = "it overlaps the tensor before it" if offset < expected else "there is a gap before it"
        raise source.error(name, got=f"offset {offset}", wanted=str(expected), hint=fault)


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


__all__ = ["Array", "Header", "Tensor", "mix_bytes", "parse_header", "read_all", "read_gguf", "read_header"]
