"""``roofplan model fetch`` refused: by names, the hub, what it sends or the network; in one line, with nothing left."""

from __future__ import annotations

import re
import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hub_server import CONFIG, TOKEN, File, Hub, State, gguf, nothing_left, safetensors, text, whole

from roofplan.errors import DomainError, RoofplanError, SpecError, UnknownNameError
from roofplan.models import hub, hub_requests

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
