"""``roofplan model fetch``: the real huggingface_hub against a hub of the test's own, on this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest
from console import SCRIPT, run

from roofplan import models
from roofplan.errors import DomainError, RoofplanError, SpecError, UnknownNameError
from roofplan.models import hub, hub_requests
from roofplan.models.gguf import read_header
from roofplan.models.safetensors import read_tensors

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


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    with serving() as made:
        yield made


@pytest.fixture
def state(server: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[State]:
    """A hub with one repository, in the environment of this process and of those that it starts; the folder is empty."""
    server.state = State()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(hub_requests, "RETRIES", 0)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield server.state
    server.state.release.set()


def names_here() -> list[str]:
    return [entry.name for entry in Path.cwd().iterdir()]


def nothing_left() -> bool:
    return not names_here()


# ------------------------------------------------------------------------------------------------ what is fetched


def test_of_two_shards_the_headers_are_stored_in_files_of_the_true_size(state: State) -> None:
    fetched = hub.fetch("owner/name")
    folder = Path("name")
    names = {"config.json", "hf_quant_config.json", "model.safetensors.index.json"}
    shards = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
    assert {entry.name for entry in folder.iterdir()} == names | shards | {hub.RECORD}
    for name in names:
        assert (folder / name).read_bytes() == state.files[name].start
    for name in shards:
        header, status = state.files[name].start, (folder / name).stat()
        with (folder / name).open("rb") as stream:
            assert stream.read(len(header) + 100) == header + bytes(100)
        assert status.st_size == state.files[name].size > 10**9
        assert status.st_blocks * 512 < 2**20
    assert fetched.size_bytes == sum(state.files[name].size for name in names | shards)
    assert fetched.stored_bytes == sum(len(state.files[name].start) for name in names | shards)


def test_of_weights_no_byte_beyond_the_header_is_asked_for(state: State) -> None:
    hub.fetch("owner/name")
    for name, file in state.files.items():
        asked = [asked for asked in state.asked if asked.path.endswith(f"/{name}")]
        if name.endswith(".safetensors"):
            assert [one.span for one in asked] == ["bytes=0-7", f"bytes=8-{len(file.start) - 1}"]
            assert sum(one.sent for one in asked) == len(file.start)
        else:
            assert len(asked) == (name not in {"README.md", "pytorch_model.bin"})


def test_the_record_pins_the_commit(state: State, server: Hub) -> None:
    hub.fetch("owner/name", revision="main")
    record = json.loads(Path("name", hub.RECORD).read_text())
    files = record.pop("files")
    assert record == {
        "schema": "roofplan/fetch/v1",
        "id": "owner/name",
        "revision": "main",
        "commit": COMMIT,
        "endpoint": server.url,
    }
    shard = state.files["model-00001-of-00002.safetensors"]
    assert files[3] == {
        "name": "model-00001-of-00002.safetensors",
        "size_bytes": shard.size,
        "stored_bytes": len(shard.start),
    }
    assert state.asked[0].path == "/api/models/owner/name/revision/main"
    assert all(f"/resolve/{COMMIT}/" in asked.path for asked in state.asked[1:])


@pytest.mark.usefixtures("state")
def test_what_is_stored_can_be_read() -> None:
    hub.fetch("owner/name", Path("made"))
    assert models.load("./made").hidden_size == 4096
    assert {tensor.name: list(tensor.shape) for tensor in read_tensors(Path("made"))} == tensors()


def test_a_single_file(state: State) -> None:
    state.files = {"config.json": whole(CONFIG), "model.safetensors": safetensors(tensors())}
    fetched = hub.fetch("owner/name")
    assert [file.name for file in fetched.files] == ["config.json", "model.safetensors"]
    assert Path("name/model.safetensors").stat().st_size == state.files["model.safetensors"].size


def test_a_repository_without_safetensors_gives_its_configuration(state: State) -> None:
    state.files = {"config.json": whole(CONFIG), "pytorch_model.bin": whole(b"")}
    assert [file.name for file in hub.fetch("owner/name").files] == ["config.json"]


@pytest.mark.parametrize(("vocabulary", "order"), [(10, "<"), (150_000, "<"), (10, ">")])
def test_the_header_of_a_gguf_file_by_growing_ranges(state: State, vocabulary: int, order: str) -> None:
    header = gguf(vocabulary, order)
    state.files = {"README.md": whole(b""), "q/m.gguf": File(header, 5 * 10**9)}
    fetched = hub.fetch("owner/name", file="q/m.gguf")
    assert [(file.name, file.stored_bytes) for file in fetched.files] == [("m.gguf", len(header))]
    with Path("name/m.gguf").open("rb") as stream:
        assert stream.read(len(header) + 9) == header + bytes(9)
    assert Path("name/m.gguf").stat().st_size == 5 * 10**9
    assert [tensor.name for tensor in read_header("name/m.gguf").tensors] == ["token_embd.weight", "output_norm.weight"]
    mib = 2**20
    spans = [(0, mib), (mib, 2 * mib), (2 * mib, 4 * mib)]
    wanted = [f"bytes={first}-{end - 1}" for first, end in spans if first < len(header)]
    assert [asked.span for asked in state.asked if asked.span] == wanted


def test_a_small_gguf_file_and_the_parts_of_a_split_one(state: State) -> None:
    header = gguf(3)
    state.files = {f"m-0000{n}-of-00002.gguf": File(header, len(header) + 10**5 * n) for n in (1, 2)}
    fetched = hub.fetch("owner/name", file="m-00002-of-00002.gguf")
    assert [(file.name, file.size_bytes - len(header)) for file in fetched.files] == [
        ("m-00001-of-00002.gguf", 100_000),
        ("m-00002-of-00002.gguf", 200_000),
    ]


def test_the_token_goes_to_the_hub_and_to_nobody_else(state: State) -> None:
    with serving() as elsewhere:
        elsewhere.state = State()
        state.elsewhere = f"http://localhost:{elsewhere.server_port}"
        hub.fetch("owner/name")
        assert {asked.token for asked in state.asked} == {f"Bearer {TOKEN}"}
        assert len(elsewhere.state.asked) == 4
        assert {asked.token for asked in elsewhere.state.asked} == {None}
    assert all(asked.path.startswith(("/api/models/owner", "/owner/name/")) for asked in state.asked)
    assert all(asked.agent.startswith("roofplan/") for asked in state.asked)


# ------------------------------------------------------------------------------------------------ the folder


@pytest.mark.usefixtures("state")
def test_only_what_an_earlier_fetch_has_left_is_replaced() -> None:
    hub.fetch("owner/name")
    with pytest.raises(hub.FetchError, match="name: folder: got an existing one, want a new one"):
        hub.fetch("owner/name")
    hub.fetch("owner/name", overwrite=True)
    Path("name/notes.txt").write_text("mine")
    with pytest.raises(hub.FetchError, match=r"no fetch has left there: notes\.txt"):
        hub.fetch("owner/name", overwrite=True)
    assert Path("name/notes.txt").read_text() == "mine"
    assert names_here() == ["name"]


@pytest.mark.usefixtures("state")
def test_weights_put_in_the_place_of_a_header_are_not_replaced() -> None:
    hub.fetch("owner/name")
    Path("name/model-00001-of-00002.safetensors").write_bytes(os.urandom(2 * 2**20))
    with pytest.raises(hub.FetchError, match="model-00001"):
        hub.fetch("owner/name", overwrite=True)


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("folder", [".", "..", "file", "missing/folder", "a\0b", "x" * 300])
def test_folders_that_cannot_be(folder: str) -> None:
    Path("file").write_text("")
    with pytest.raises(hub.FetchError, match="folder: got"):
        hub.fetch("owner/name", Path(folder), overwrite=True)
    assert names_here() == ["file"]


def test_an_interrupt_leaves_nothing(state: State) -> None:
    def interrupt(what: str) -> None:
        if "header 2" in what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hub.fetch("owner/name", progress=interrupt)
    assert nothing_left()
    hub.fetch("owner/name")
    before = Path("name", hub.RECORD).stat().st_mtime_ns
    with pytest.raises(KeyboardInterrupt):
        hub.fetch("owner/name", overwrite=True, progress=interrupt)
    assert names_here() == ["name"]
    assert Path("name", hub.RECORD).stat().st_mtime_ns == before
    assert state.asked


def test_ctrl_c_in_a_terminal_leaves_nothing(state: State) -> None:
    state.stalls = "model-00002-of-00002.safetensors"
    process = subprocess.Popen(
        [str(SCRIPT), "model", "fetch", "owner/name"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert state.stalled.wait(20)
    assert len(names_here()) == 1
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert err in {"", "roofplan: interrupted\n"}  # typer takes it first, and says nothing
    assert nothing_left()


# ------------------------------------------------------------------------------------------------ refusals


def refused(kind: type[RoofplanError] = hub.FetchError, **options: Any) -> str:
    """The one line of the error; nothing is left behind, and no secret told."""
    with pytest.raises(kind) as caught:
        hub.fetch(**{"repository": "owner/name", **options})
    line = str(caught.value)
    assert "\n" not in line
    assert TOKEN not in line
    assert nothing_left()
    return line


@pytest.mark.parametrize(
    "name",
    [
        "",
        "gpt2",
        "a/b/c",
        "../x",
        "a/..",
        "/a",
        "a/",
        "a/.b",
        "a b/c",
        "a/b?c",
        "a/b\n",
        "ä/b",
        "a/b#c",
        "-a/b",
        "a/" + "b" * 97,
    ],
)
def test_ids_that_are_none_are_not_asked_for(state: State, name: str) -> None:
    assert "want owner/name" in refused(UnknownNameError, repository=name)
    assert not state.asked


@pytest.mark.parametrize("revision", ["", "a b", "a\nb", "x" * 201])
def test_revisions_that_are_none_are_not_asked_for(state: State, revision: str) -> None:
    assert "want a branch, tag or commit" in refused(UnknownNameError, revision=revision)
    assert not state.asked


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf")])
def test_a_timeout_is_a_time(state: State, timeout_s: float) -> None:
    assert "timeout: got" in refused(DomainError, timeout_s=timeout_s)
    assert not state.asked


@pytest.mark.usefixtures("state")
def test_a_repository_or_revision_that_is_not_there() -> None:
    assert refused(UnknownNameError, repository="owner/other").startswith("repository: got owner/other, want one that")
    assert refused(UnknownNameError, revision="v9") == "revision: got v9, want a branch, tag or commit of owner/name"
    assert "repository: got owner/a--b" not in refused(RoofplanError, repository="owner/a--b")


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (403, "GatedRepo", "repository: got a gated one: owner/name"),
        (401, "GatedRepo", "repository: got a gated one: owner/name"),
        (403, "", "repository: got a gated one: owner/name"),
        (404, "", "repository: got owner/name"),
        (429, "", "hub: got too many requests"),
        (500, "", "owner/name: got HTTP status 500"),
    ],
)
def test_what_a_hub_refuses(state: State, status: int, code: str, said: str) -> None:
    state.refusal = (status, code)
    assert refused(RoofplanError).startswith(said)


@pytest.mark.parametrize(
    "info", [b"<html>", b"[]", b'{"id": "a/b"}', b"null", b'{"id":"a/b","sha":"../..","siblings":[]}']
)
def test_answers_that_are_not_a_hubs(state: State, info: bytes) -> None:
    state.info = info
    assert re.search(r"got (an answer that is not a hub's|None|\.\./)", refused())


def test_a_repository_without_a_configuration_names_its_gguf_files(state: State) -> None:
    state.files = {"a.gguf": whole(b""), "b.gguf": whole(b"")}
    line = refused(UnknownNameError)
    assert "no config.json in owner/name" in line
    assert "a.gguf, b.gguf" in line


@pytest.mark.parametrize(
    "file", ["c.gguf", "../a.gguf", "/a.gguf", "config.json", "", "m-00001-of-00000.gguf", "m-00001-of-99999.gguf"]
)
def test_a_gguf_file_that_is_not_there(state: State, file: str) -> None:
    state.files = {"a.gguf": whole(b""), "../a.gguf": whole(b""), "config.json": whole(CONFIG)}
    assert refused(UnknownNameError, file=file).startswith("--file: got")


def test_a_server_that_ignores_ranges(state: State) -> None:
    state.ranges = False
    assert "whole files of weights are not downloaded" in refused()
    assert [asked.span for asked in state.asked if asked.path.endswith(".safetensors")] == ["bytes=0-7"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Range": ""},
        {"Content-Range": "bytes 0-7/*"},
        {"Content-Range": "bytes 1-8/100"},
        {"Content-Range": "bytes 0-7/7"},
        {"Content-Range": "bytes 0-8/9"},
        {"Content-Range": "bytes 0-1048575/9999999999999999999"},
        {"Content-Encoding": "gzip"},
    ],
)
def test_a_server_that_answers_another_range(state: State, headers: dict[str, str]) -> None:
    state.files = {"m.gguf": File(gguf(3), 10**9)}
    state.headers = headers
    line = refused(file="m.gguf")
    assert line.startswith(("range of m.gguf: got", "m.gguf: got an answer in gzip", "hub: got no connection"))


@pytest.mark.parametrize("name", ["config.json", "hf_quant_config.json", "model.safetensors.index.json"])
@pytest.mark.parametrize("tells_size", [True, False])
def test_files_over_their_cap(state: State, monkeypatch: pytest.MonkeyPatch, name: str, tells_size: bool) -> None:
    monkeypatch.setattr(hub, "INDEX_BYTES", 2**20)
    state.files[name] = File(b" " * (2**20 + 1), 2**20 + 1 if tells_size else 10**12)
    assert refused() == f"{name}: got more than 1,048,576 bytes, want at most 1,048,576 bytes"


@pytest.mark.parametrize(
    "shard",
    [
        "../model.safetensors",
        "/etc/passwd.safetensors",
        "a/b.safetensors",
        "a\\b.safetensors",
        "C:x.safetensors",
        ".hidden.safetensors",
        "config.json",
        "roofplan-fetch.json",
        "x\x1b[31m.safetensors",
        "a\0.safetensors",
        "x" * 300 + ".safetensors",
        "..",
        "",
        7,
        None,
        ["a.safetensors"],
        "missing.safetensors",
    ],
)
def test_names_that_an_index_may_not_hold(state: State, shard: object) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": shard}}
    state.files["model.safetensors.index.json"] = whole(index)
    if isinstance(shard, str) and shard != "missing.safetensors":
        state.files.setdefault(shard, safetensors({"b": [1]}))
    assert "\x1b" not in refused(SpecError)
    assert not any(asked.span for asked in state.asked)


@pytest.mark.parametrize(
    "index", [b"", b"{", b"[]", b'{"weight_map": []}', b'{"weight_map": {}}', b"[" * 10**6, b"\xff", b'{"a": 1}']
)
def test_malformed_indexes(state: State, index: bytes) -> None:
    state.files["model.safetensors.index.json"] = whole(index)
    assert refused(SpecError).startswith("model.safetensors.index.json: ")


@pytest.mark.parametrize("length", [0, 1, 93, 2**26 + 1, 2**63, 2**64 - 1])
def test_lengths_of_headers_that_cannot_be(state: State, length: int) -> None:
    size = 2**40 if length == 2**26 + 1 else 100
    state.files = {"config.json": whole(CONFIG), "model.safetensors": File(struct.pack("<Q", length), size)}
    assert ("more than 67,108,864 bytes" if size == 2**40 else "header: got a length") in refused(RoofplanError)
    assert [asked.span for asked in state.asked if asked.span] == ["bytes=0-7"]


def test_a_file_too_short_for_a_header(state: State) -> None:
    state.files = {"config.json": whole(CONFIG), "model.safetensors": whole(b"abc")}
    assert "header: got a length" in refused(SpecError)
    state.files = {"config.json": whole(CONFIG), "model.safetensors": whole(b"")}
    assert "HTTP status 416" in refused()


def test_the_headers_have_a_cap_together(monkeypatch: pytest.MonkeyPatch, state: State) -> None:
    monkeypatch.setattr(hub, "ALL_HEADERS_BYTES", 3000)
    assert "the headers together: got more than 3,000 bytes" in refused()
    assert state.asked


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\x03\x04" + bytes(99), "does not begin with GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version: got 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "tensor count"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**64 - 1), "metadata count"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**62), "length of metadata key"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<I", 13), "value type 13"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 9, 1), "an array of arrays"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 8, 2**40), "length of a"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 6, 2**62), "length of a"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("a") + struct.pack("<I", 5), "5 dimensions"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("a") + struct.pack("<I", 2), "sides 0 x 0"),
        (b"GG", "does not begin with GGUF"),
    ],
)
def test_gguf_headers_that_lie(state: State, content: bytes, said: str) -> None:
    state.files = {"m.gguf": File(content, max(len(content), 80) if len(content) > 4 else len(content))}
    assert said in refused(SpecError, file="m.gguf")
    assert len([asked for asked in state.asked if asked.span]) == 1


def test_an_endless_gguf_header_stops_at_the_cap(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "HEADER_BYTES", 2**22)
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + text("a") + struct.pack("<IIQ", 9, 0, 10**9)
    state.files = {"m.gguf": File(head, 10**10)}
    assert "more than 4,194,304 bytes" in refused(file="m.gguf")
    assert sum(asked.sent for asked in state.asked if asked.span) == 2**22


# ------------------------------------------------------------------------------------------------ the network


@pytest.mark.parametrize("path", ["owner/name", "config.json", "model-00001-of-00002.safetensors"])
@pytest.mark.parametrize("in_body", [False, True])
def test_a_silent_server(state: State, path: str, in_body: bool) -> None:
    state.stalls, state.stalls_in_body = path, in_body
    started = time.monotonic()
    assert refused(timeout_s=0.15) == "hub: got no answer within 0.15 s (--timeout sets another limit)"
    assert time.monotonic() - started < 1.5


def test_a_dripping_server(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_requests, "LONGEST_REQUEST_S", 0.15)
    state.drips = "config.json"
    assert "no end within 0.15 s" in refused(timeout_s=0.1)


def test_a_network_fault_is_tried_again(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.utils import _http

    monkeypatch.setattr(hub_requests, "RETRIES", 1)
    monkeypatch.setattr(_http.time, "sleep", lambda _: setattr(state, "stalls", "-"))
    state.stalls = "config.json"
    hub.fetch("owner/name", timeout_s=0.15)
    assert len([asked for asked in state.asked if asked.path.endswith("/config.json")]) == 2


def test_no_server_and_no_address(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert refused().startswith("hub: got no connection")
    for endpoint in ("", "huggingface.co", "ftp://h", "http://", "http://[", "file:///etc"):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        assert refused().startswith("HF_ENDPOINT: got no address")
    assert not state.asked


def test_a_password_in_the_address_is_not_recorded(state: State, server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", server.url.replace("//", "//user:hunter2@"))
    hub.fetch("owner/name")
    assert "hunter2" not in Path("name", hub.RECORD).read_text()
    assert state.asked


def test_offline_mode(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert refused() == "hub: got offline mode (HF_HUB_OFFLINE is set)"
    assert not state.asked


def test_without_the_extra(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert refused() == "fetch: got no huggingface_hub, want it installed (pip install 'roofplan[hub]')"
    assert not state.asked


def test_a_token_that_is_none_is_not_quoted(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}\x01ä")
    assert refused().startswith("HF_TOKEN: got characters")
    assert not state.asked


# ------------------------------------------------------------------------------------------------ the command line


def test_the_command(state: State, server: Hub) -> None:
    done = run("model", "fetch", "owner/name", "--revision", COMMIT, "-o", "made")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"./made: owner/name at commit {COMMIT}\n5 files, ")
    assert json.loads(Path("made", hub.RECORD).read_text())["endpoint"] == server.url
    state.files = {"config.json": whole(b" " * (2**20 + 1))}
    done = run("model", "fetch", "owner/name", "-o", "made", "--force", "--debug=no")
    assert done.returncode == 2
    done = run("model", "fetch", "owner/name", "-o", "made", "--force", "--timeout", "5 s")
    wanted = "roofplan: config.json: got more than 1,048,576 bytes, want at most 1,048,576 bytes\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", wanted)
    assert TOKEN not in "".join(path.read_text() for path in Path("made").glob("*.json"))


def test_progress_is_for_terminals_only(
    state: State, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from roofplan.cli import run as run_here

    assert run_here(["model", "fetch", "owner/name"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run_here(["model", "fetch", "owner/name", "--force"]) == 0
    lines = capsys.readouterr().err.split("\r")
    assert any("model-00002-of-00002.safetensors (header 2 of 2)" in line for line in lines)
    assert lines[-2].strip() == ""
    assert state.asked


def test_nothing_else_imports_the_library() -> None:
    code = """
import sys
from roofplan.cli import run
import roofplan.models.hub
run(["model", "show", "llama-3.1-8b"]), run(["model", "fetch", "--help"])
assert not {"huggingface_hub", "httpx", "httpx2", "requests"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
