"""Requests to an OpenAI-compatible server, one at a time: what to ask for, and when each piece of the answer came.

The client is httpx (or httpx2, its successor), imported when it is used. It follows no redirect, takes no proxy or password from the
environment, asks for uncompressed answers, and ends each request after a time, a number of bytes and a number of events.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from ..errors import MeasureError, show
from . import server_events as events
from .server_events import EventReader, ServerFaultError, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

Api = Literal["completions", "chat"]
APIS: tuple[Api, ...] = ("completions", "chat")
CONNECT_S = 5.0
LARGEST_ANSWER = 2**20  # bytes of an answer that is no stream
LARGEST_REFUSAL = 2**14
_ALIKE = 2.0  # how far counts of prompts with as many words may lie apart
_AFTER_DONE_S = 1.0  # for a server to end a stream whose last event has come, so that the connection can be used again
_PATHS: dict[Api, str] = {"completions": "/completions", "chat": "/chat/completions"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a server understands beside the plain request.

    Parameters
    ----------
    ignore_eos : produce as many tokens as asked for, whatever they are (vLLM, SGLang, llama.cpp)
    include_usage : ask for usage counts at the end of the stream
    limit : the name of the limit of output tokens
    greedy : ask for temperature 0
    """

    ignore_eos: bool = True
    include_usage: bool = True
    limit: str = "max_tokens"
    greedy: bool = True


PLAIN = Dialect(ignore_eos=False, include_usage=False)
DIALECTS = (
    Dialect(),
    Dialect(ignore_eos=False),
    PLAIN,
    Dialect(ignore_eos=False, limit="max_completion_tokens", greedy=False),
)


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and how to ask it.

    Parameters
    ----------
    base : address up to ``/v1``
    model : the name that the server gives its model
    api, dialect : which interface it has, and which options it takes
    timeout_s : of one request
    prompt_tokens : that prompts have by its own count, once that is known
    """

    base: str
    model: str
    api: Api = "completions"
    dialect: Dialect = DIALECTS[0]
    timeout_s: float = 120.0
    prompt_tokens: int | None = None

    @property
    def url(self) -> str:
        """Where completions are asked for."""
        return self.base + _PATHS[self.api]

    def body(self, prompt: str, max_tokens: int, *, stream: bool = True) -> dict[str, Any]:
        """The request of a completion."""
        content = {"prompt": prompt} if self.api == "completions" else {"messages": [_message(prompt)]}
        body: dict[str, Any] = {"model": self.model, **content, self.dialect.limit: max_tokens, "stream": stream}
        if self.dialect.greedy:
            body["temperature"] = 0
        if self.dialect.ignore_eos:
            body["ignore_eos"] = True
        if self.dialect.include_usage and stream:
            body["stream_options"] = {"include_usage": True}
        return body


def _message(prompt: str) -> dict[str, str]:
    return {"role": "user", "content": prompt}


@dataclass(frozen=True, slots=True)
class Reply:
    """What one request gave; times in seconds of one clock.

    Parameters
    ----------
    due_s : when it was to be sent, from which its times count
    sent_s : when it was
    texts_s : when each event with text came
    ended_s : when it ended, in whichever way
    usage : the server's counts, or None without any
    finish : why the completion ended, in the server's words
    failure, detail : what went wrong: a code, and what exactly; empty when nothing did
    cut : the measurement ended before the request did
    max_tokens : that were asked for
    status : of HTTP, where it was refused
    """

    due_s: float
    sent_s: float
    texts_s: tuple[float, ...]
    ended_s: float
    usage: Usage | None = None
    finish: str = ""
    failure: str = ""
    detail: str = ""
    cut: bool = False
    max_tokens: int = 0
    status: int = 200

    @property
    def is_whole(self) -> bool:
        """Whether it came to its end, and nothing was wrong."""
        return not self.failure and not self.cut

    @property
    def output_tokens(self) -> int:
        """By the server's count; else as many as were asked for where it stopped for length; else its events with text."""
        if self.usage is not None:
            return self.usage.output
        return self.max_tokens if self.finish == "length" else len(self.texts_s)

    @property
    def ttft_s(self) -> float:
        """Time to the first token."""
        return self.texts_s[0] - self.due_s

    @property
    def e2e_s(self) -> float:
        """Time to the last token."""
        return self.texts_s[-1] - self.due_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None for a single one."""
        return (self.texts_s[-1] - self.texts_s[0]) / (self.output_tokens - 1) if self.output_tokens > 1 else None

    @property
    def gaps_s(self) -> tuple[float, ...]:
        """Times between events with text."""
        return tuple(later - earlier for earlier, later in zip(self.texts_s, self.texts_s[1:], strict=False))


def client_library() -> Any:
    """The HTTP client.

    Raises
    ------
    MeasureError : when there is none
    """
    try:
        import httpx
    except ImportError:
        try:
            import httpx2 as httpx  # the same client under the name of its successor
        except ImportError as error:
            hint = "pip install 'roofplan[measure]'"
            raise MeasureError("measure server", got="no httpx", wanted="the extra measure", hint=hint) from error
    return httpx


def read_url(url: str) -> str:
    """The base address of an OpenAI-compatible API: with ``/v1`` where only a host was given.

    Raises
    ------
    MeasureError : for what is no address of http or https, or holds a password, a query or a fragment
    """
    wanted = "an address such as http://localhost:8000"
    try:
        parts = urlsplit(url.strip())
        is_sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    if not is_sound or not (url.isascii() and url.strip().isprintable()) or " " in url.strip():
        raise MeasureError("URL", got=url or "nothing", wanted=wanted)
    if "@" in parts.netloc:
        raise MeasureError("URL", got="one with a password", wanted=wanted, hint="--api-key-env names a variable")
    if parts.query or parts.fragment:
        raise MeasureError("URL", got="one with a query", wanted=wanted)
    path = parts.path.rstrip("/")
    for tail in ("/chat/completions", "/completions", "/models"):
        path = path.removesuffix(tail)
    return urlunsplit((parts.scheme, parts.netloc, path or "/v1", "", ""))


def open_client(timeout_s: float, key: str | None, connections: int) -> Any:
    """A client of so many connections at most; to be used in ``async with``."""
    httpx = client_library()
    headers = {"Accept-Encoding": "identity", "User-Agent": "roofplan"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    return httpx.AsyncClient(
        headers=headers,
        timeout=httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s), pool=None),
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        follow_redirects=False,
        trust_env=False,
    )


async def get_json(client: Any, url: str, timeout_s: float, body: dict[str, Any] | None = None) -> Any:
    """An answer that is one JSON value.

    Raises
    ------
    ServerFaultError : for any other
    """
    try:
        async with (
            asyncio.timeout(timeout_s),
            _response(client, "GET" if body is None else "POST", url, body) as response,
        ):
            content = await _start_of(response, LARGEST_ANSWER)
    except TimeoutError as error:
        raise ServerFaultError(events.TIMED_OUT, f"no end within {timeout_s:g} s") from error
    if len(content) > LARGEST_ANSWER:
        raise ServerFaultError(events.FLOOD, f"more than {LARGEST_ANSWER:,} bytes")
    return events.read_json(content)


async def ask(
    client: Any,
    target: Target,
    prompt: str,
    max_tokens: int,
    *,
    due_s: float | None = None,
    until_s: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Reply:
    """Ask for one completion, and note when each piece came; whatever goes wrong stands in the reply.

    Parameters
    ----------
    due_s : when it was to be sent; now, by default
    until_s : when the measurement ends, and the request with it
    """
    sent = clock()
    due = sent if due_s is None else due_s
    texts: list[float] = []
    usage, finish, failure, detail, is_cut, status = None, "", "", "", False, 200
    left = target.timeout_s if until_s is None else min(target.timeout_s, max(0.0, until_s - sent))
    try:
        async with asyncio.timeout(left):
            async with contextlib.aclosing(_events(client, target, prompt, max_tokens)) as stream:
                async for event in stream:
                    if event.has_text:
                        texts.append(clock())
                    usage = event.usage or usage
                    finish = event.finish or finish
            _check_end(texts, usage, finish, max_tokens, prompt, target.prompt_tokens)
    except TimeoutError:
        is_cut = left < target.timeout_s
        failure = "" if is_cut else events.TIMED_OUT
        detail = "" if is_cut else f"no end within {target.timeout_s:g} s"
    except ServerFaultError as fault:
        failure, detail, status = fault.code, show(fault.detail, 200), fault.status
    return Reply(due, sent, tuple(texts), clock(), usage, finish, failure, detail, is_cut, max_tokens, status)


def _check_end(
    texts: list[float], usage: Usage | None, finish: str, max_tokens: int, prompt: str, expected: int | None
) -> None:
    if not texts:
        raise ServerFaultError(events.NO_TEXT, f"the completion ended ({finish or 'without a reason'}) before any")
    if usage is None:
        return
    events.check_usage(usage, texts=len(texts), max_tokens=max_tokens, words=prompt.count(" ") + 1)
    if expected is not None and not expected / _ALIKE <= usage.prompt <= expected * _ALIKE:
        raise ServerFaultError(events.USAGE, f"{usage.prompt} prompt tokens, where prompts alike had {expected}")


async def _events(client: Any, target: Target, prompt: str, max_tokens: int) -> AsyncGenerator[events.Event, None]:
    reader, is_over = EventReader(max_tokens), False
    async with _response(client, "POST", target.url, target.body(prompt, max_tokens)) as response:
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            raise ServerFaultError(events.NO_STREAM, f"an answer of type {kind or 'unknown'}")
        chunks = response.aiter_raw()
        async for chunk in chunks:
            for event in reader.feed(chunk):
                is_over = is_over or event.is_done or bool(event.finish)
                yield event
                if event.is_done:
                    await _drain(chunks)
                    return
        for event in reader.finish():
            is_over = is_over or event.is_done or bool(event.finish)
            yield event
    if not is_over:
        raise ServerFaultError(events.CLOSED, "the stream ended without [DONE] or a reason to finish")


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Wait a moment for the end of a stream that has said its last, so that its connection can serve again; more is not read."""
    with contextlib.suppress(TimeoutError, client_library().HTTPError):
        async with asyncio.timeout(_AFTER_DONE_S):
            async for _ in chunks:
                return


@contextlib.asynccontextmanager
async def _response(client: Any, method: str, url: str, body: dict[str, Any] | None) -> AsyncIterator[Any]:
    """Open a response of status 200; what the client and the server do wrong becomes a fault of the server."""
    httpx = client_library()
    try:
        async with client.stream(method, url, json=body) as response:
            if response.status_code != 200:
                raise _refusal(response, await _start_of(response, LARGEST_REFUSAL))
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding != "identity":
                raise ServerFaultError(events.NO_STREAM, f"an answer in {encoding}")
            yield response
    except httpx.ConnectTimeout as error:
        raise ServerFaultError(events.NO_CONNECTION, f"none within {CONNECT_S:g} s") from error
    except (httpx.ConnectError, httpx.PoolTimeout) as error:
        raise ServerFaultError(events.NO_CONNECTION, str(error)) from error
    except httpx.TimeoutException as error:
        raise ServerFaultError(events.TIMED_OUT, "no byte came") from error
    except (httpx.ReadError, httpx.WriteError, httpx.CloseError) as error:
        raise ServerFaultError(events.CLOSED, str(error) or type(error).__name__) from error
    except httpx.RemoteProtocolError as error:
        is_end = "closed" in str(error) or "disconnected" in str(error)
        raise ServerFaultError(events.CLOSED if is_end else events.PROTOCOL, str(error)) from error
    except httpx.HTTPError as error:
        raise ServerFaultError(events.PROTOCOL, str(error) or type(error).__name__) from error


async def _start_of(response: Any, most: int) -> bytes:
    """The body of an answer, up to so many bytes and a chunk."""
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > most:
            break
    return bytes(content)


def _refusal(response: Any, content: bytes) -> ServerFaultError:
    status = int(response.status_code)
    if 300 <= status < 400:
        where = response.headers.get("Location", "nowhere")
        return ServerFaultError(events.REDIRECTED, f"status {status}, to {where}", status)
    try:
        words = events.error_text(events.read_json(content))
    except ServerFaultError:
        words = content[:200].decode("utf-8", "replace")
    return ServerFaultError(events.REFUSED, f"status {status}: {words}", status)
