"""How long the header of a large weight file takes: 1,000 tensors and a vocabulary of 150,000 tokens with its merges.

Targets: a GGUF header at most 0.5 s, and as much for a safetensors header of so many tensors. Run: ``python benchmarks/readers.py``;
exit code 1 when a target is missed. Medians of 5; the files are written to a temporary folder first, so the page cache is warm.
"""

from __future__ import annotations

import json
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from roofplan import models
from roofplan.models.safetensors import read_safetensors_header

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 5
TARGET_SECONDS = 0.5
LAYERS, HIDDEN, TOKENS, MERGES = 111, 4096, 150_000, 280_000  # 9 tensors a layer
BLOCK = {
    "attn_norm": (HIDDEN,),
    "attn_q": (HIDDEN, 4096),
    "attn_k": (HIDDEN, 1024),
    "attn_v": (HIDDEN, 1024),
    "attn_output": (4096, HIDDEN),
    "ffn_norm": (HIDDEN,),
    "ffn_gate": (HIDDEN, 14336),
    "ffn_up": (HIDDEN, 14336),
    "ffn_down": (14336, HIDDEN),
}


def text(value: str) -> bytes:
    """A text as GGUF stores it."""
    return struct.pack("<Q", len(value)) + value.encode()


def texts(key: str, prefix: str, count: int) -> bytes:
    """An array of so many texts of about eight bytes."""
    return text(key) + struct.pack("<IIQ", 9, 8, count) + b"".join(text(f"{prefix}{number}") for number in range(count))


def gguf(path: Path) -> None:
    """Write a GGUF file of a large model in F16; its data is a hole."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (HIDDEN, TOKENS), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= {f"blk.{layer}.{name}.weight": sides for name, sides in BLOCK.items()}
    numbers = {
        "block_count": LAYERS,
        "embedding_length": HIDDEN,
        "attention.head_count": 32,
        "attention.head_count_kv": 8,
    }
    entries = [text("general.architecture") + struct.pack("<I", 8) + text("llama")]
    entries += [text(f"llama.{key}") + struct.pack("<II", 4, value) for key, value in numbers.items()]
    entries += [texts("tokenizer.ggml.tokens", "token", TOKENS), texts("tokenizer.ggml.merges", "a b", MERGES)]
    entries += [text("tokenizer.ggml.token_type") + struct.pack("<IIQ", 9, 5, TOKENS) + bytes(4 * TOKENS)]
    infos, offset = [], 0
    for name, sides in shapes.items():
        infos.append(text(name) + struct.pack(f"<I{len(sides)}QIQ", len(sides), *sides, 1, offset))
        offset += 2 * sides[0] * (sides[1] if len(sides) > 1 else 1)
    content = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(entries)) + b"".join(entries + infos)
    with path.open("wb") as stream:
        stream.write(content)
        stream.truncate(len(content) + 64 + offset)


def safetensors(path: Path) -> None:
    """Write a safetensors file of 1,000 tensors; its data is a hole."""
    entries = {
        f"model.layers.{number}.mlp.up_proj.weight": {
            "dtype": "BF16",
            "shape": [4096, 4096],
            "data_offsets": [number * 2**25, (number + 1) * 2**25],
        }
        for number in range(1000)
    }
    header = json.dumps(entries).encode()
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        stream.truncate(8 + len(header) + 1000 * 2**25)


def seconds(read: Callable[[str], object], path: Path) -> float:
    """Time of one reading."""
    start = time.perf_counter()
    read(str(path))
    return time.perf_counter() - start


def main() -> int:
    """Print the times against their targets."""
    worst = 0.0
    cases: dict[str, tuple[Callable[[Path], None], Callable[[str], object]]] = {
        "model.gguf": (gguf, models.load),
        "model.safetensors": (safetensors, read_safetensors_header),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, (write, read) in cases.items():
            write(Path(folder) / name)
            median = statistics.median(seconds(read, Path(folder) / name) for _ in range(ROUNDS))
            print(f"{name}: {median * 1e3:.0f} ms, target {TARGET_SECONDS * 1e3:.0f}")
            worst = max(worst, median)
    return 1 if worst > TARGET_SECONDS else 0


if __name__ == "__main__":
    sys.exit(main())
