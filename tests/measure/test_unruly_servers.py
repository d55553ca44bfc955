"""Servers that misbehave, or are not there: errors of one line or counted failures, within moments."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import time
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pytest
from unruly_server import SMALL, Answer, Request, after_probing, counts, event, good, measured, pieces_of, plain, unruly

from roofplan.errors import MeasureError, RoofplanError
from roofplan.measure.records import Run
from roofplan.measure.server import run_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


def fault(behave: Callable[[Request], Answer], models: Any = None, **options: Any) -> str:
    """The one line with which a measurement ends, within moments."""
    began = time.monotonic()
    with unruly(behave, models) as server, pytest.raises(RoofplanError) as found:
        run_server(server.address, **SMALL | options)
    assert time.monotonic() - began < 12
    line = str(found.value)
    assert line.isprintable()
    assert len(line) < 900
    return line


def failed(behave: Callable[[Request], Answer], **options: Any) -> tuple[Run, str]:
    """A run in which every second request of the load fails, and what is said of them."""
    turns = iter(range(1000))

    def second(request: Request) -> Answer:
        return behave(request) if next(turns) % 2 else good(request)

    run = measured(after_probing(second), **options)
    notes = [note for note in run.notes if "failed" in note]
    assert len(notes) == 1, run.notes
    return run, notes[0]


# ------------------------------------------------------------------------------------------------ servers that cannot be measured


def test_a_server_that_is_down() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(MeasureError, match=r"no connection.*is it running"):
        run_server(f"http://127.0.0.1:{port}", **SMALL)


def test_a_server_that_takes_connections_and_says_nothing() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        began = time.monotonic()
        with pytest.raises(MeasureError, match=r"timed out.*--timeout"):
            run_server(f"http://127.0.0.1:{mute.getsockname()[1]}", **SMALL | {"timeout_s": "0.4 s"})
        assert time.monotonic() - began < 3


async def _forever(piece: bytes, pause_s: float = 0.0) -> AsyncIterator[bytes]:
    for each in repeat(piece):
        yield each
        if pause_s:
            await asyncio.sleep(pause_s)


async def _then_forever(first: bytes, piece: bytes) -> AsyncIterator[bytes]:
    yield first
    async for each in _forever(piece):
        yield each


BAD: dict[str, tuple[Callable[[Request], Answer], str]] = {
    "trickles": (lambda _: Answer(_forever(b": wait\n\n", 0.05)), "timed out"),
    "endless line": (lambda _: Answer(_then_forever(b"data: ", b"x" * 65536)), "endless line"),
    "endless line in small pieces": (lambda _: Answer(_then_forever(b"data: ", b"x" * 4096)), "endless line"),
    "flood of events": (lambda _: Answer(_forever(event(" x") * 50)), "flood"),
    "flood of comments": (lambda _: Answer(_forever(b": x\n\n" * 5000)), "flood"),
    "torn": (lambda _: Answer(pieces_of(event(" x")), is_cut=True), "closed mid-stream"),
    "ends early": (lambda _: Answer(pieces_of(event(" x"))), "closed mid-stream"),
    "ends early without chunks": (lambda _: Answer(pieces_of(event(" x")), chunked=False), "closed mid-stream"),
    "no JSON": (lambda _: Answer(pieces_of(b"data: {oops\n\n")), "invalid JSON"),
    "no object": (lambda _: Answer(pieces_of(b"data: [1]\n\n")), "invalid JSON"),
    "NaN": (lambda _: Answer(pieces_of(b'data: {"usage": NaN}\n\n')), "invalid JSON"),
    "nested": (lambda _: Answer(pieces_of(b"data: " + b"[" * 200_000 + b"\n\n")), "invalid JSON"),
    "no UTF-8": (lambda _: Answer(pieces_of(b'data: {"x": "\xff"}\n\n')), "invalid JSON"),
    "huge number": (lambda _: Answer(pieces_of(b"data: " + b"9" * 10_000 + b"\n\n")), "invalid JSON"),
    "error event": (lambda _: Answer(pieces_of(b'data: {"error": {"message": "out of \\u001b[31mmemory"}}\n\n')), r"error event: out of \\x1b\[31mmemory"),
    "error status": (lambda _: plain({"error": {"message": "no\x1b[2J luck"}}, "500 Oops"), r"status 500: no\\x1b\[2J luck"),
    "key": (lambda _: plain({"error": "no key"}, "401 Unauthorized"), "--api-key-env"),
    "redirect": (lambda _: plain({}, "307 Temporary Redirect", Location="http://192.0.2.1/"), "redirected.*192.0.2.1"),
    "page": (lambda _: plain(b"<html>", **{"Content-Type": "text/html"}), "type text/html"),
    "compressed": (lambda _: Answer(pieces_of(gzip.compress(event(" x"))), headers={"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}), "in gzip"),
    "headers": (lambda _: Answer(pieces_of(), headers={"X-Long": "x" * 200_000}), "broken HTTP"),
    "no text": (lambda r: good(r, tokens=0), "no text"),
    "too many tokens": (lambda r: good(r, tokens=r.tokens + 1), "contradictory usage"),
    "negative": (lambda _: Answer(pieces_of(event(" x", finish="stop", usage=counts(-1, 1)))), "contradictory usage"),
    "truth": (lambda _: Answer(pieces_of(event(" x", finish="stop", usage=counts(16, True)))), "contradictory usage"),
    "fraction": (lambda _: Answer(pieces_of(event(" x", finish="stop", usage=counts(16.5, 1)))), "contradictory usage"),
    "text count": (lambda _: Answer(pieces_of(event(" x", finish="stop", usage=counts("16", 1)))), "contradictory usage"),
    "wrong total": (lambda _: Answer(pieces_of(event(" x", finish="stop", usage=counts(16, 1) | {"total_tokens": 99}))), "in total 99"),
    "no prompt": (lambda _: Answer(pieces_of(event(" x", finish="stop", usage=counts(1, 1)))), "1 prompt tokens for 16 words"),
    "none counted": (lambda _: Answer(pieces_of(event(" x", finish="stop", usage=counts(16, 0)))), "contradictory usage"),
    "usage is a list": (lambda _: Answer(pieces_of(event(" x", finish="stop", usage=[1]))), "contradictory usage"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_server_that_always_misbehaves_is_an_error_of_one_line(case: str) -> None:
    behave, wanted = BAD[case]

    line = fault(behave, timeout_s=1 if wanted == "timed out" else 7)
    assert re.search(wanted, line), line


@pytest.mark.parametrize("case", ["torn", "no JSON", "endless line", "error event", "error status", "too many tokens"])
def test_single_requests_that_fail_are_counted(case: str) -> None:
    behave, _ = BAD[case]
    run, note = failed(behave, requests=8, concurrency=1)
    assert "4 of 8 requests failed" in note
    assert run.records[0].parameters["failed"] == 4
    assert run.records[0].parameters["requests"] == 4


def test_counts_of_prompts_that_change_while_the_prompts_do_not_are_counted_as_failures() -> None:
    def tenfold(request: Request) -> Answer:
        parts = [event(" x"), event(finish="stop", usage=counts(10 * request.words, 1))]
        return Answer(pieces_of(*parts, b"data: [DONE]\n\n"))

    _, note = failed(tenfold, concurrency=1)
    assert "240 prompt tokens, where prompts alike had 24" in note


def test_slow_requests_are_counted_as_timed_out() -> None:
    _, note = failed(lambda _: Answer(_forever(b": wait\n\n", 0.05)), timeout_s=1.5, requests=4, concurrency=2)
    assert "timed out" in note


def test_a_load_of_failures_ends_early_and_says_why() -> None:
    asked = []

    def fails(request: Request) -> Answer:
        asked.append(request)
        return plain({"error": "overloaded"}, "503 Busy")

    line = fault(after_probing(fails), requests=1000)
    assert "refused 8x" in line or "refused 9x" in line
    assert "overloaded" in line
    assert len(asked) < 12


def test_counts_that_do_not_grow_with_the_prompt_are_refused() -> None:
    def constant(request: Request) -> Answer:
        return Answer(pieces_of(event(" x", finish="length", usage=counts(100, 1))))

    assert "usage.prompt_tokens" in fault(constant)


MODELS: dict[str, tuple[Any, str]] = {
    "two": ({"data": [{"id": "a"}, {"id": "b\x1b[31m"}]}, r"got a, b\\x1b\[31m, want one"),
    "none": ({"data": []}, "no model"),
    "other": ([1, 2], "no model"),
    "no names": ({"data": [{"id": 5}, 7]}, "no model"),
    "no JSON": (b"<html>", "invalid JSON"),
}


@pytest.mark.parametrize("case", MODELS)
def test_lists_of_models_that_do_not_name_one(case: str) -> None:

    said, wanted = MODELS[case]
    line = fault(good, lambda _: plain(said))
    assert re.search(wanted, line), line


def test_a_list_of_models_without_end() -> None:
    endless = Answer(_forever(b" " * 65536), headers={"Content-Type": "application/json"})
    assert "flood" in fault(good, lambda _: endless)


def test_a_server_without_a_list_wants_the_name() -> None:
    assert "--served-model" in fault(good, lambda _: plain({}, "404 Not Found"))
    with unruly(good, lambda _: plain({}, "404 Not Found")) as server:
        assert run_server(server.address, **SMALL, served_model="named").records
        assert server.asked[-1].body["model"] == "named"


def test_a_prompt_that_is_too_long_for_the_server() -> None:
    def short(request: Request) -> Answer:
        return plain({"error": "at most 512"}, "400 Bad Request") if request.words > 512 else good(request)

    line = fault(short, prompt=4096)
    assert "at most 512" in line
    assert "longer than the server allows" in line


def test_an_interruption_keeps_what_was_taken() -> None:
    kept: list[Run] = []
    loads = iter(range(10))

    def tell(line: str) -> None:
        if "client" in line and next(loads) == 1:
            raise KeyboardInterrupt

    with unruly(good) as server, pytest.raises(KeyboardInterrupt):
        run_server(server.address, **SMALL | {"concurrency": "1,2"}, tell=tell, keep=kept.append)
    assert {record.parameters["concurrency"] for record in kept[0].records} == {1}
    assert kept[0].notes[-1] == "interrupted"


def test_a_later_load_of_failures_keeps_the_earlier_ones() -> None:
    def overloaded(request: Request) -> Answer:
        return good(request) if request.number < 4 + 6 else plain({"error": "full"}, "503 Busy")

    run = measured(overloaded, concurrency="1,2,3", requests=6)
    assert {record.parameters["concurrency"] for record in run.records} == {1}
    assert sum("no request came to its end" in note for note in run.notes) == 1
