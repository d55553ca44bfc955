"""``roofplan model fetch`` against a hub of the test's own, with the real huggingface_hub: what is fetched, and where to."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from console import SCRIPT, run
from hub_server import (
    COMMIT,
    CONFIG,
    TOKEN,
    File,
    Hub,
    State,
    gguf,
    names_here,
    nothing_left,
    safetensors,
    serving,
    tensors,
    whole,
)

from roofplan import models
from roofplan.models import hub
from roofplan.models.gguf import read_header
from roofplan.models.safetensors import read_tensors

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
        [str(SCRIPT), "model", "fetch", "owner/name"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job ignores the signal, and so would this one.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # no threads in the child
    )
    assert state.stalled.wait(20)
    assert len(names_here()) == 1
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert err in {"", "roofplan: interrupted\n"}  # typer takes it first, and says nothing
    assert nothing_left()


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
