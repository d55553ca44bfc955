"""A hub on this machine with one repository: what it has, how it behaves and what it was asked are the test's."""

from __future__ import annotations

import json
import re
import struct
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_aSecretOfTheTests"
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 2,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@dataclass
class File:
    """A file of the hub: its beginning, and a size of which the rest is never held in memory."""

    start: bytes
    size: int

    def cut(self, first: int, last: int) -> bytes:
        return self.start[first : last + 1].ljust(last + 1 - first, b"\0")


def whole(content: bytes | object) -> File:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return File(data, len(data))


# ------------------------------------------------------------------------------------------------ repositories


def tensors() -> dict[str, list[int]]:
    """Names and shapes of a Llama of two layers."""
    hidden, inner, keys, vocabulary = 4096, 14336, 1024, 128256
    shapes = {"model.embed_tokens.weight": [vocabulary, hidden]}
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        shapes |= {
            f"{prefix}input_layernorm.weight": [hidden],
            f"{prefix}self_attn.q_proj.weight": [hidden, hidden],
            f"{prefix}self_attn.k_proj.weight": [keys, hidden],
            f"{prefix}self_attn.v_proj.weight": [keys, hidden],
            f"{prefix}self_attn.o_proj.weight": [hidden, hidden],
            f"{prefix}post_attention_layernorm.weight": [hidden],
            f"{prefix}mlp.gate_proj.weight": [inner, hidden],
            f"{prefix}mlp.up_proj.weight": [inner, hidden],
            f"{prefix}mlp.down_proj.weight": [hidden, inner],
        }
    return shapes | {"model.norm.weight": [hidden], "lm_head.weight": [vocabulary, hidden]}


def safetensors(shapes: dict[str, list[int]]) -> File:
    """A safetensors file with these tensors in BF16."""
    entries, end = {}, 0
    for name, shape in shapes.items():
        begin = end
        end += 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    header = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    return File(struct.pack("<Q", len(header)) + header, 8 + len(header) + end)


def sharded() -> dict[str, File]:
    """A repository with an index and two shards of 2.9 GB together."""
    shapes = tensors()
    halves = {n: list(shapes)[(n - 1) * 11 : n * 11] for n in (1, 2)}
    shards = {f"model-0000{n}-of-00002.safetensors": names for n, names in halves.items()}
    files = {shard: safetensors({name: shapes[name] for name in names}) for shard, names in shards.items()}
    weight_map = {name: shard for shard, names in shards.items() for name in names}
    index = {"metadata": {"total_size": sum(file.size for file in files.values())}, "weight_map": weight_map}
    return {
        "README.md": whole(b"# a model"),
        "config.json": whole(CONFIG),
        "hf_quant_config.json": whole({"quantization": {}}),
        "model.safetensors.index.json": whole(index),
        "pytorch_model.bin": whole(b"never read"),
        **files,
    }


def text(value: str, order: str = "<") -> bytes:
    return struct.pack(f"{order}Q", len(value)) + value.encode()


def gguf(vocabulary: int, order: str = "<") -> bytes:
    """A GGUF header with a list of texts, a list of numbers, a number and two tensors."""
    tokens = b"".join(text(f"token {number}", order) for number in range(vocabulary))
    values = [
        text("general.architecture", order) + struct.pack(f"{order}I", 8) + text("llama", order),
        text("tokens", order) + struct.pack(f"{order}IIQ", 9, 8, vocabulary) + tokens,
        text("scores", order) + struct.pack(f"{order}IIQ", 9, 6, vocabulary) + bytes(4 * vocabulary),
        text("block_count", order) + struct.pack(f"{order}II", 4, 2),
    ]
    infos = [
        text("token_embd.weight", order) + struct.pack(f"{order}I2QIQ", 2, 4096, vocabulary, 12, 0),
        text("output_norm.weight", order) + struct.pack(f"{order}IQIQ", 1, 4096, 0, 4096 * vocabulary * 144 // 256),
    ]
    head = b"GGUF" + struct.pack(f"{order}IQQ", 3, len(infos), len(values))
    return head + b"".join(values) + b"".join(infos)


# ------------------------------------------------------------------------------------------------ the hub


@dataclass
class Asked:
    method: str
    path: str
    span: str | None
    token: str | None
    agent: str
    sent: int = 0


@dataclass
class State:
    """What the hub has, how it behaves, and what it was asked."""

    files: dict[str, File] = field(default_factory=sharded)
    id: str = "owner/name"
    revisions: tuple[str, ...] = ("main", COMMIT)
    ranges: bool = True
    refusal: tuple[int, str] | None = None
    info: bytes | None = None
    stalls: str = "-"  # the end of a path at which it falls silent
    stalls_in_body: bool = False
    drips: str = "-"  # the end of a path whose content comes byte by byte
    release: threading.Event = field(default_factory=threading.Event)
    stalled: threading.Event = field(default_factory=threading.Event)
    headers: dict[str, str] = field(default_factory=dict)
    elsewhere: str = ""  # another host that has the files of weights
    asked: list[Asked] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        state = self.server.state
        path, headers = unquote(urlsplit(self.path).path), self.headers
        agent = headers["User-Agent"] or ""
        self.asked = Asked(self.command, path, headers["Range"], headers["Authorization"], agent)
        state.asked.append(self.asked)
        with suppress(ConnectionError):
            self.route(state, path)

    def route(self, state: State, path: str) -> None:
        if path.endswith(state.stalls) and not state.stalls_in_body:
            self.stall(state)
        info = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if state.refusal:
            self.answer(state.refusal[0], b"<html>no", {"X-Error-Code": state.refusal[1]})
        elif info and info[1] == state.id and (info[2] or "main") in state.revisions:
            siblings = [{"rfilename": name} for name in state.files]
            self.answer(
                200, state.info or json.dumps({"id": state.id, "sha": COMMIT, "siblings": siblings}).encode(), {}
            )
        elif info:
            is_known = info[1] == state.id
            self.answer(
                404 if is_known else 401, b"{}", {"X-Error-Code": f"{'Revision' if is_known else 'Repo'}NotFound"}
            )
        elif file and file[1] == state.id and file[2] == COMMIT and file[3] in state.files:
            self.file(state, file[3])
        else:
            self.answer(404, b"Entry not found", {"X-Error-Code": "EntryNotFound"})

    def file(self, state: State, name: str) -> None:
        file, span = state.files[name], re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or "")
        common = {"X-Repo-Commit": COMMIT, "ETag": '"etag"', "Accept-Ranges": "bytes"}
        if state.elsewhere and name.endswith(".safetensors"):
            self.answer(302, b"", {**common, "Location": f"{state.elsewhere}{self.path}"})
        elif span and state.ranges:
            first, last = int(span[1]), min(int(span[2]), file.size - 1)
            if first >= file.size:
                self.answer(416, b"", {"Content-Range": f"bytes */{file.size}"})
                return
            self.answer(
                206,
                file.cut(first, last),
                {**common, "Content-Range": f"bytes {first}-{last}/{file.size}", **state.headers},
            )
        else:
            self.answer(200, file.start, {**common, **state.headers, "Content-Length": str(file.size)})

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        state = self.server.state
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.asked.path.endswith(state.stalls) and state.stalls_in_body:
            self.wfile.write(body[: len(body) // 2])
            self.stall(state)
        for at in range(len(body) if self.asked.path.endswith(state.drips) else 0):
            self.wfile.write(body[at : at + 1])
            time.sleep(0.02)
        self.wfile.write(body)
        self.asked.sent = len(body)

    def stall(self, state: State) -> None:
        state.stalled.set()
        state.release.wait(20)


class Hub(ThreadingHTTPServer):
    daemon_threads = True
    state: State

    def handle_error(self, *_: object) -> None:
        pass  # clients that have gone

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving() -> Iterator[Hub]:
    with Hub(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


# ------------------------------------------------------------------------------------------------ the folder


def names_here() -> list[str]:
    return [entry.name for entry in Path.cwd().iterdir()]


def nothing_left() -> bool:
    return not names_here()
