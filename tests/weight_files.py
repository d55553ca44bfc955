"""Writers of small GGUF and safetensors files, good ones and broken ones; tensor data is a hole of the right size."""

from __future__ import annotations

import json
import struct
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roofplan.engines import ggml
from roofplan.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
Sides = tuple[int, ...]


# ------------------------------------------------------------------------------------------------ GGUF, part by part


def text(value: str | bytes, order: str = "<") -> bytes:
    """A length and so many bytes."""
    content = value.encode() if isinstance(value, str) else value
    return struct.pack(f"{order}Q", len(content)) + content


def value_of(value: Any, order: str = "<") -> bytes:
    """A value with its type in front: chosen by what it is in Python."""
    match value:
        case bool():
            return struct.pack(f"{order}IB", BOOL, value)
        case int():
            return struct.pack(f"{order}IQ", U64, value) if value >= 2**32 else struct.pack(f"{order}II", U32, value)
        case float():
            return struct.pack(f"{order}If", F32, value)
        case str() | bytes():
            return struct.pack(f"{order}I", STRING) + text(value, order)
        case [] | [str(), *_]:
            return struct.pack(f"{order}IIQ", ARRAY, STRING, len(value)) + b"".join(text(item, order) for item in value)
        case [bool(), *_]:
            return struct.pack(f"{order}IIQ{len(value)}B", ARRAY, BOOL, len(value), *value)
        case _:
            return struct.pack(f"{order}IIQ{len(value)}i", ARRAY, I32, len(value), *value)


def entry(key: str, value: Any, order: str = "<") -> bytes:
    """A key and its value."""
    return text(key, order) + value_of(value, order)


def info(name: str, sides: Sides, type_id: int, offset: int, order: str = "<") -> bytes:
    """A tensor info."""
    return text(name, order) + struct.pack(f"{order}I{len(sides)}QIQ", len(sides), *sides, type_id, offset)


def start(tensors: int, keys: int, version: int = 3, order: str = "<") -> bytes:
    """Magic, version and counts."""
    return b"GGUF" + struct.pack(f"{order}IQQ", version, tensors, keys)


def padded(size: int, alignment: int = 32) -> int:
    """The next aligned offset."""
    return -(-size // alignment) * alignment


def size_of(sides: Sides, type_name: str) -> int:
    """Bytes of a tensor."""
    elements = 1
    for side in sides:
        elements *= side
    kind = ggml.types_by_name()[type_name]
    return elements // kind.elements * kind.bytes


def gguf(
    metadata: dict[str, Any],
    tensors: list[tuple[str, Sides, str]],
    *,
    version: int = 3,
    order: str = "<",
    alignment: int = 32,
) -> tuple[bytes, int]:
    """The header of a file, and the size of the whole file."""
    infos, offset = [], 0
    for name, sides, type_name in tensors:
        infos.append(info(name, sides, ggml.types_by_name()[type_name].id, offset, order))
        offset = padded(offset + size_of(sides, type_name), alignment)
    entries = [entry(key, value, order) for key, value in metadata.items()]
    header = start(len(tensors), len(entries), version, order) + b"".join(entries) + b"".join(infos)
    return header, padded(len(header), alignment) + offset


def write(path: Path, content: bytes, size: int | None = None) -> Path:
    """Write a file, as long as it is said to be; the rest is a hole."""
    with path.open("wb") as stream:
        stream.write(content)
        if size is not None:
            stream.truncate(size)
    return path


def write_gguf(path: Path, metadata: dict[str, Any], tensors: list[tuple[str, Sides, str]], **options: Any) -> Path:
    """Write a whole good file."""
    return write(path, *gguf(metadata, tensors, **options))


# ------------------------------------------------------------------------------------------------ GGUF models


def model_keys(architecture: str, hidden: int, layers: int, heads: Any, kv_heads: Any, **others: Any) -> dict[str, Any]:
    """Metadata of a model; the keys of ``others`` are written with a dot for two underscores."""
    keys = {
        "block_count": layers,
        "embedding_length": hidden,
        "context_length": 8192,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        **{key.replace("__", "."): value for key, value in others.items()},
    }
    prefixed = {f"{architecture}.{key}": value for key, value in keys.items() if value is not None}
    return {"general.architecture": architecture, "general.name": f"A {architecture}", **prefixed}


def attention(hidden: int, queries: int, keys: int, values: int | None = None) -> dict[str, Sides]:
    """Projections of usual attention."""
    values = keys if values is None else values
    heads_out = queries if values == keys else queries * values // keys
    return {
        "attn_q.weight": (hidden, queries),
        "attn_k.weight": (hidden, keys),
        "attn_v.weight": (hidden, values),
        "attn_output.weight": (heads_out, hidden),
    }


def mlp(hidden: int, width: int, suffix: str = "", *, gated: bool = True, copies: int = 0) -> dict[str, Sides]:
    """An MLP, or stacked experts."""
    depth = (copies,) if copies else ()
    gate = {f"ffn_gate{suffix}.weight": (hidden, width, *depth)} if gated else {}
    return {
        **gate,
        f"ffn_up{suffix}.weight": (hidden, width, *depth),
        f"ffn_down{suffix}.weight": (width, hidden, *depth),
    }


def norms(hidden: int, *names: str) -> dict[str, Sides]:
    """Gain vectors."""
    return {f"{name}.weight": (hidden,) for name in names or ("attn_norm", "ffn_norm")}


def model_tensors(
    hidden: int, vocab: int, blocks: list[dict[str, Sides]], type_name: str = "Q4_K", *, tied: bool = False
) -> list[tuple[str, Sides, str]]:
    """All tensors of a model: vectors and routers in 32 bits, the rest in one type."""
    shapes: dict[str, Sides] = {"token_embd.weight": (hidden, vocab)}
    for number, block in enumerate(blocks):
        shapes |= {f"blk.{number}.{name}": sides for name, sides in block.items()}
    shapes |= {"output_norm.weight": (hidden,)} | ({} if tied else {"output.weight": (hidden, vocab)})
    small = ("ffn_gate_inp.", "ssm_conv1d.", ".bias")
    return [
        (name, sides, "F32" if len(sides) == 1 or any(part in name for part in small) else type_name)
        for name, sides in shapes.items()
    ]


# ------------------------------------------------------------------------------------------------ safetensors


def safetensors(entries: dict[str, Any] | str | bytes, size: int = 0) -> bytes:
    """A file of a header (a mapping, or its text) and ``size`` bytes of data."""
    content = (
        entries
        if isinstance(entries, bytes)
        else (entries if isinstance(entries, str) else json.dumps(entries)).encode()
    )
    return struct.pack("<Q", len(content)) + content + bytes(size)


BITS = {
    "F32": 32,
    "I32": 32,
    "BF16": 16,
    "F16": 16,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "BOOL": 8,
    "F4": 4,
    "I64": 64,
}


def laid_out(tensors: dict[str, tuple[str, Sides]]) -> tuple[dict[str, Any], int]:
    """Header entries of tensors that follow one another, and the size of their data."""
    entries, offset = {}, 0
    for name, (dtype, shape) in tensors.items():
        elements = 1
        for side in shape:
            elements *= side
        end = offset + elements * BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    return entries, offset


def write_safetensors(path: Path, tensors: dict[str, tuple[str, Sides]]) -> Path:
    """Write a whole good file."""
    entries, size = laid_out(tensors)
    content = safetensors(entries)
    return write(path, content, len(content) + size)


# ------------------------------------------------------------------------------------------------ what a refusal costs


def cost_of_refusing(read: Callable[[Path], object], path: Path) -> tuple[str, float, float]:
    """What a file is refused with, the peak of memory in MiB, and seconds on a machine that counts to five million in a tenth of one.

    A ratio of processor times within one run, so that a slow or busy machine does not decide.
    """
    spent = min(_processor_s(lambda: _refusal(read, path)) for _ in range(3))
    yardstick = min(_processor_s(_count) for _ in range(3))
    tracemalloc.start()
    said = _refusal(read, path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return said, peak / 2**20, spent / yardstick * 0.1


def _processor_s(action: Callable[[], object]) -> float:
    begin = time.process_time()
    action()
    return time.process_time() - begin


def _count() -> None:
    for _ in range(5_000_000):
        pass


def _refusal(read: Callable[[Path], object], path: Path) -> str:
    with pytest.raises(SpecError) as caught:
        read(path)
    return str(caught.value)
