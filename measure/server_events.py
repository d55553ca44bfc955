"""What a server's stream says, read with care: lines of bounded length, events of text, usage counts that hold together.

A stream is one of server-sent events (WHATWG HTML, section 9.2.6): lines, of which ``data:`` lines make an event and an empty one ends it.
Each event of a completion is one JSON object, and ``[DONE]`` the last one; some servers leave that out. Nothing here waits or connects.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_LINE = 2**20  # bytes
LARGEST_COUNT = 10**9  # tokens that a usage count may name
_BYTES_PER_TOKEN = 2**14  # of one event, with room: usual ones have 200 to 500
_BYTES_BESIDE = 2**20
_EVENTS_PER_TOKEN = 4
_EVENTS_BESIDE = 256
_WORDS_PER_TOKEN = 4  # more than any tokeniser joins
_ENDS = re.compile(rb"\r\n|\n|\r")
DONE = "[DONE]"

# Why a request failed; the codes stand in results.
NO_CONNECTION = "no connection"
TIMED_OUT = "timed out"
REFUSED = "refused"
REDIRECTED = "redirected"
NO_STREAM = "no stream of events"
CLOSED = "closed mid-stream"
NO_JSON = "invalid JSON"
LONG_LINE = "endless line"
FLOOD = "flood"
ERROR_EVENT = "error event"
NO_TEXT = "no text"
USAGE = "contradictory usage"
PROTOCOL = "broken HTTP"


class ServerFaultError(Exception):
    """What a server did wrong in one request: a code, what exactly in words that may be foreign, and the status of HTTP if it tells."""

    def __init__(self, code: str, detail: str = "", status: int = 200) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail
        self.status = status

    def __str__(self) -> str:
        """Code and detail."""
        return f"{self.code}: {self.detail}" if self.detail else self.code


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request as the server counts them."""

    prompt: int
    output: int


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a completion: whether it carries text, why the completion ended, and the usage, where they are said."""

    has_text: bool
    finish: str
    usage: Usage | None
    is_done: bool = False


class EventReader:
    """Turn the bytes of a stream into events, up to bounds that follow from the tokens that were asked for."""

    def __init__(self, max_tokens: int) -> None:
        self._most_bytes = _BYTES_BESIDE + _BYTES_PER_TOKEN * max_tokens
        self._most_events = _EVENTS_BESIDE + _EVENTS_PER_TOKEN * max_tokens
        self._bytes = 0
        self._events = 0
        self._pending = bytearray()
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Read more bytes, and give the events that they complete.

        Raises
        ------
        ServerFaultError : for more than the bounds, a line without end, or an event that is no JSON object
        """
        self._bytes += len(chunk)
        if self._bytes > self._most_bytes:
            raise ServerFaultError(FLOOD, f"more than {self._most_bytes:,} bytes")
        self._pending += chunk
        lines = self._whole_lines() if b"\n" in chunk or b"\r" in chunk else []
        if len(self._pending) > LONGEST_LINE:
            raise ServerFaultError(LONG_LINE, f"more than {LONGEST_LINE:,} bytes")
        for line in lines:
            yield from self._line(line)

    def finish(self) -> Iterator[Event]:
        """Read what stands at the end without an empty line, as some servers leave it."""
        line, self._pending = bytes(self._pending).rstrip(b"\r"), bytearray()
        yield from self._line(line)
        yield from self._line(b"")

    def _whole_lines(self) -> list[bytes]:
        """Take the lines that have ended from what is pending."""
        text = bytes(self._pending)
        held = text.endswith(b"\r")  # the other half of this line's end may follow
        *lines, rest = _ENDS.split(text[:-1] if held else text)
        self._pending = bytearray(rest + b"\r" if held else rest)
        return lines

    def _line(self, line: bytes) -> Iterator[Event]:
        if len(line) > LONGEST_LINE:
            raise ServerFaultError(LONG_LINE, f"more than {LONGEST_LINE:,} bytes")
        if line:
            name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            return
        data, self._data = b"\n".join(self._data), []
        if not data:
            return
        self._events += 1
        if self._events > self._most_events:
            raise ServerFaultError(FLOOD, f"more than {self._most_events:,} events")
        yield read_event(data)


def read_json(text: bytes) -> Any:
    """Read JSON of any origin.

    Raises
    ------
    ServerFaultError : for what is none, nests without end, or holds NaN or numbers of thousands of digits
    """
    try:
        return json.loads(text.decode("utf-8"), parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise ServerFaultError(NO_JSON, text[:80].decode("utf-8", "replace")) from error


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def read_event(data: bytes) -> Event:
    """Read one event of a stream of completions or of chat.

    Raises
    ------
    ServerFaultError : for one that is no JSON object, that tells of an error, or whose usage cannot be
    """
    if data.strip() == DONE.encode():
        return Event(has_text=False, finish="", usage=None, is_done=True)
    said = read_json(data)
    if not isinstance(said, dict):
        raise ServerFaultError(NO_JSON, f"an event that is no object: {data[:80].decode('utf-8', 'replace')}")
    if said.get("error"):
        raise ServerFaultError(ERROR_EVENT, error_text(said["error"]))
    choices = said.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    finish = choice.get("finish_reason")
    return Event(_has_text(choice), finish if isinstance(finish, str) else "", read_usage(said.get("usage")))


def error_text(said: Any) -> str:
    """The words of an error object, in whichever form."""
    while isinstance(said, dict):
        said = next((said[key] for key in ("message", "error", "detail") if said.get(key)), "no message")
    return str(said)


def _has_text(choice: dict[str, Any]) -> bool:
    """Whether a choice carries text of a completion, of an answer, or of reasoning before it."""
    delta = choice.get("delta") or choice.get("message")
    texts = [choice.get("text")]
    if isinstance(delta, dict):
        texts += [delta.get(key) for key in ("content", "reasoning_content", "reasoning")]
    return any(isinstance(text, str) and text for text in texts)


def read_usage(said: Any) -> Usage | None:
    """Usage counts; None where the server says nothing.

    Raises
    ------
    ServerFaultError : for counts that are no whole numbers, negative or beyond all reason, or whose total is not their sum
    """
    if said is None:
        return None
    if not isinstance(said, dict):
        raise ServerFaultError(USAGE, f"no object: {said!r}")
    prompt = _count(said.get("prompt_tokens"))
    output = _count(said.get("completion_tokens", 0) or 0)  # missing in a count of the prompt alone
    total = said.get("total_tokens")
    if total is not None and total != prompt + output:
        raise ServerFaultError(USAGE, f"{prompt} and {output} tokens, in total {total!r}")
    return Usage(prompt, output)


def _count(said: Any) -> int:
    if type(said) is not int or not 0 <= said <= LARGEST_COUNT:
        raise ServerFaultError(USAGE, f"{said!r} tokens")
    return said


def check_usage(usage: Usage, *, texts: int, max_tokens: int, words: int) -> None:
    """Refuse usage counts that the stream contradicts.

    Parameters
    ----------
    usage : the server's counts
    texts : events with text that came; each holds a token at least, but for a last one that only flushes
    max_tokens : that were asked for
    words : of the prompt, each a token at least with nearly every tokeniser

    Raises
    ------
    ServerFaultError : when they cannot all be true
    """
    if usage.prompt < words // _WORDS_PER_TOKEN:
        raise ServerFaultError(USAGE, f"{usage.prompt} prompt tokens for {words} words")
    if usage.output > max_tokens:
        raise ServerFaultError(USAGE, f"{usage.output} tokens of output, where {max_tokens} were allowed")
    if usage.output < texts - 1 or (texts and not usage.output):
        raise ServerFaultError(USAGE, f"{usage.output} tokens of output in {texts} events with text")
