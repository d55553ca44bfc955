"""A server of completions on this machine, of which every test chooses how it misbehaves."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from roofplan.measure.server import run_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from roofplan.measure.records import Run

MODEL = "tiny"
LISTED = {"object": "list", "data": [{"id": MODEL, "object": "model"}]}


@dataclass
class Request:
    """What was asked: path, body, and which one it is."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    number: int

    @property
    def words(self) -> int:
        text = self.body.get("prompt") or self.body["messages"][0]["content"]
        return len(text.split())

    @property
    def tokens(self) -> int:
        return int(self.body.get("max_tokens") or self.body["max_completion_tokens"])


@dataclass
class Answer:
    """Status, headers, and the pieces of a body, as raw bytes in chunks."""

    pieces: AsyncIterator[bytes]
    status: str = "200 OK"
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream"})
    chunked: bool = True
    is_cut: bool = False  # the connection is torn after the last piece


def event(text: str | None = None, *, finish: str | None = None, usage: Any = None, chat: bool = False) -> bytes:
    said: dict[str, Any] = {"choices": []}
    if text is not None or finish is not None:
        content = {"delta": {"content": text or ""}} if chat else {"text": text or ""}
        said["choices"] = [{"index": 0, **content, "finish_reason": finish}]
    if usage is not None:
        said["usage"] = usage
    return b"data: " + json.dumps(said).encode() + b"\n\n"


def counts(prompt: Any, output: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": output}


async def pieces_of(*parts: bytes, pause_s: float = 0.0) -> AsyncIterator[bytes]:
    for part in parts:
        if pause_s:
            await asyncio.sleep(pause_s)
        yield part


def good(request: Request, *, usage: bool = True, pause_s: float = 0.0, tokens: int | None = None) -> Answer:
    """What a server should say: one token per event, then the counts, then the end."""
    chat = "messages" in request.body
    count = request.tokens if tokens is None else tokens
    parts = [event(f" t{place}", chat=chat) for place in range(count)]
    parts.append(event(finish="length", chat=chat))
    if usage:
        parts.append(event(usage=counts(request.words, count)))
    return Answer(pieces_of(*parts, b"data: [DONE]\n\n", pause_s=pause_s))


def plain(said: Any, status: str = "200 OK", **headers: str) -> Answer:
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    return Answer(pieces_of(body), status, {"Content-Type": "application/json", **headers})


Behaviour = "Callable[[Request], Answer]"


class Unruly:
    """The server: every request is answered by its behaviour, and kept."""

    def __init__(self, behave: Callable[[Request], Answer], models: Callable[[Request], Answer] | None) -> None:
        self.behave = behave
        self.models = models or (lambda _: plain(LISTED))
        self.asked: list[Request] = []
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._one(reader, writer):
                pass
        with suppress(Exception):
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        size = int(headers.get("content-length", 0))
        body = json.loads(await reader.readexactly(size)) if size else {}
        request = Request(method, path, headers, body, sum(1 for one in self.asked if one.method == "POST"))
        self.asked.append(request)
        answer = (self.models if method == "GET" else self.behave)(request)
        lines = [f"HTTP/1.1 {answer.status}", *(f"{name}: {value}" for name, value in answer.headers.items())]
        lines.append("Transfer-Encoding: chunked" if answer.chunked else "Connection: close")
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        async for piece in answer.pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if answer.chunked else piece)
            await writer.drain()
        if answer.is_cut:
            writer.transport.abort()
            return False
        writer.write(b"0\r\n\r\n" if answer.chunked else b"")
        await writer.drain()
        return answer.chunked


@contextmanager
def unruly(behave: Callable[[Request], Answer], models: Callable[[Request], Answer] | None = None) -> Iterator[Unruly]:
    """Run it in a thread of its own, at a free port of the loopback interface."""
    server = Unruly(behave, models)
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    sockets: list[Any] = []

    def run() -> None:
        asyncio.set_event_loop(loop)
        listening = loop.run_until_complete(asyncio.start_server(server.serve, "127.0.0.1", 0))
        sockets.append(listening)
        server.address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        ready.set()
        loop.run_forever()
        listening.close()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(5)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)


# ------------------------------------------------------------------------------------------------ short measurements of it

SMALL: dict[str, Any] = {"prompt": 24, "output": 4, "requests": 6, "warm_up": 0, "concurrency": 2, "timeout_s": 10}


def measured(behave: Callable[[Request], Answer], **options: Any) -> Run:
    with unruly(behave) as server:
        return run_server(server.address, **SMALL | options)


def after_probing(behave: Callable[[Request], Answer]) -> Callable[[Request], Answer]:
    """Well at first, while the server is asked what it understands; badly afterwards."""
    return lambda request: (
        behave(request) if request.tokens == SMALL["output"] and request.number > 3 else good(request)
    )
