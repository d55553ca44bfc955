"""A server measured as a client, against a server of the test's own that answers well, badly, or not at all."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pytest

from roofplan.errors import DomainError, MeasureError, QuantityError, RoofplanError, UnknownNameError
from roofplan.measure.records import Run
from roofplan.measure.server import run_server
from unruly_server import LISTED, Answer, Request, counts, event, good, pieces_of, plain, unruly

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

SMALL: dict[str, Any] = {"prompt": 24, "output": 4, "requests": 6, "warm_up": 0, "concurrency": 2, "timeout_s": 2}


def measured(behave: Callable[[Request], Answer], **options: Any) -> Run:
    with unruly(behave) as server:
        return run_server(server.address, **SMALL | options)


def fault(behave: Callable[[Request], Answer], models: Any = None, **options: Any) -> str:
    """The one line with which a measurement ends, within moments."""
    began = time.monotonic()
    with unruly(behave, models) as server, pytest.raises(RoofplanError) as found:
        run_server(server.address, **SMALL | options)
    assert time.monotonic() - began < 8
    line = str(found.value)
    assert line.isprintable()
    assert len(line) < 900
    return line


def after_probing(behave: Callable[[Request], Answer]) -> Callable[[Request], Answer]:
    """Well at first, while the server is asked what it understands; badly afterwards."""
    return lambda request: (
        behave(request) if request.tokens == SMALL["output"] and request.number > 3 else good(request)
    )


def failed(behave: Callable[[Request], Answer], **options: Any) -> tuple[Run, str]:
    """A run in which every second request of the load fails, and what is said of them."""
    turns = iter(range(1000))

    def second(request: Request) -> Answer:
        return behave(request) if next(turns) % 2 else good(request)

    run = measured(after_probing(second), **options)
    notes = [note for note in run.notes if "failed" in note]
    assert len(notes) == 1, run.notes
    return run, notes[0]


# ------------------------------------------------------------------------------------------------ what is measured


def test_records_of_a_closed_loop_follow_from_how_the_server_pauses() -> None:
    pause = 0.02
    run = measured(lambda request: good(request, pause_s=pause), concurrency="1,3", output=5, requests=9)
    by_load = {n: {r.name: r for r in run.records if r.parameters["concurrency"] == n} for n in (1, 3)}
    for clients, found in by_load.items():
        # Pauses are at least what was asked for, and longer on a busy machine.
        assert found["server.ttft"].measured.median >= pause * 0.9
        assert found["server.tpot"].measured.median >= pause * 0.9
        assert found["server.itl"].measured.count == 4 * found["server.tpot"].measured.count
        assert found["server.e2e"].measured.median >= 5 * pause * 0.9
        # Little's law: what is in flight is at most the clients.
        per_s, e2e = found["server.output_tokens_per_s"].measured.median, found["server.e2e"].parameters["mean"]
        assert per_s <= 1.3 * clients * 5 / e2e
        assert found["server.ttft"].parameters["prompt_tokens"] == 24
        assert found["server.ttft"].parameters["output_tokens"] == 5
        assert found["server.ttft"].parameters["requests"] == 9
        assert found["server.ttft"].parameters["failed"] == 0
    assert (
        by_load[3]["server.output_tokens_per_s"].measured.median
        > by_load[1]["server.output_tokens_per_s"].measured.median
    )
    assert by_load[1]["server.ttft"].measured.count == 9
    assert by_load[3]["server.ttft"].measured.count == 6  # the first wave stands apart
    assert by_load[3]["server.ttft_burst"].measured.count == 3
    assert run.environment.kind == "client"
    assert Run.from_dict(json.loads(json.dumps(run.to_dict(), allow_nan=False))) == run


def test_arrivals_at_random_come_at_their_rate_and_whatever_the_server_does() -> None:
    with unruly(lambda request: good(request, pause_s=0.05)) as server:
        run = run_server(server.address, **SMALL | {"concurrency": None, "rate": "40", "requests": 20, "seed": 1})
    found = {record.name: record for record in run.records}
    # A request takes 0.3 s, so that a closed loop of one would send 3 a second.
    assert found["server.ttft"].parameters["rate"] == 40
    assert found["server.ttft"].measured.count == 20
    assert found["server.e2e"].measured.median > 0.15
    assert "server.ttft_burst" not in found


def test_prompts_have_the_length_that_the_server_counts_and_are_all_different() -> None:
    def three_tokens_a_word(request: Request) -> Answer:
        parts = [event(" x"), event(finish="length"), event(usage=counts(7 + 3 * request.words, 1))]
        return Answer(pieces_of(*parts, b"data: [DONE]\n\n"))

    with unruly(three_tokens_a_word) as server:
        run = run_server(server.address, **SMALL | {"prompt": 100, "output": 1})
        prompts = [request.body["prompt"] for request in server.asked if request.method == "POST"]
    assert run.records[0].parameters["prompt_tokens"] == 100
    assert len(set(prompts[-6:])) == 6
    assert {len(prompt.split()) for prompt in prompts[-6:]} == {31}
    assert not any(record.name == "server.tpot" for record in run.records)  # one token has no gap


def test_requests_say_what_was_asked_for_and_no_more() -> None:
    with unruly(good) as server:
        run_server(server.address, **SMALL)
        last = server.asked[-1]
    assert last.path == "/v1/completions"
    assert last.body["max_tokens"] == 4
    assert last.body["stream_options"] == {"include_usage": True}
    assert last.body["ignore_eos"] is True
    assert last.body["model"] == "tiny"
    assert "authorization" not in last.headers
    assert last.headers["accept-encoding"] == "identity"


def test_a_key_comes_from_a_variable_and_stands_in_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_THE_TEST", "sk-secret")
    with unruly(good) as server:
        run = run_server(server.address, **SMALL, key_variable="KEY_OF_THE_TEST")
        assert server.asked[-1].headers["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in json.dumps(run.to_dict())


def test_dialects_are_tried_until_the_server_takes_one() -> None:
    def strict(request: Request) -> Answer:
        odd = {"ignore_eos", "stream_options"} & set(request.body)
        return plain({"detail": f"unexpected: {sorted(odd)}"}, "422 Unprocessable Entity") if odd else good(request)

    run = measured(strict)
    assert run.records
    assert any("ignore_eos" in note for note in run.notes)


def test_chat_is_asked_where_there_are_no_completions() -> None:
    def chat(request: Request) -> Answer:
        if request.path != "/v1/chat/completions":
            return plain({"error": {"message": "no such route"}}, "404 Not Found")
        return good(request)

    run = measured(chat)
    assert run.records[0].parameters["api"] == "chat"


def test_without_usage_in_the_stream_it_is_asked_for_apart() -> None:
    def silent(request: Request) -> Answer:
        if request.body["stream"]:
            return good(request, usage=False)
        return plain({"choices": [{"text": " x"}], "usage": counts(request.words + 2, 1)})

    run = measured(silent)
    assert run.records[0].parameters["output_tokens"] == 4  # it stopped for length
    assert not any("counts no tokens" in note for note in run.notes)


def test_without_any_usage_a_word_is_taken_for_a_token_and_that_is_said() -> None:
    run = measured(lambda request: good(request, usage=False))
    assert any("counts no tokens" in note for note in run.notes)
    assert "prompt_tokens" not in run.records[0].parameters
    assert run.records[0].parameters["output_tokens"] == 4


@pytest.mark.parametrize("tail", [b"", b"\r\n", b"\n"])
def test_streams_without_done_and_with_other_ends_of_lines_are_understood(tail: bytes) -> None:
    def other(request: Request) -> Answer:
        parts = [event(f" t{n}") for n in range(request.tokens)] + [
            event(finish="length", usage=counts(request.words, request.tokens))
        ]
        whole = b"\xef\xbb\xbf: hello\r\n\r\n" + b"".join(parts).replace(b"\n\n", b"\r\n\r\n").rstrip() + tail
        return Answer(pieces_of(*(whole[at : at + 7] for at in range(0, len(whole), 7))), chunked=False)

    assert measured(other).records


def test_loads_end_with_their_time_and_cut_requests_count_for_nothing() -> None:
    began = time.monotonic()
    run = measured(
        after_probing(lambda request: good(request, pause_s=0.08)), most_s="0.6 s", requests=1000, concurrency=2
    )
    assert time.monotonic() - began < 4
    first = run.records[0]
    assert first.parameters["requests"] < 20
    assert first.parameters["failed"] == 0
    assert first.parameters["cut"] >= 1
    assert any("under way" in note for note in run.notes)


# ------------------------------------------------------------------------------------------------ predictions


def test_predictions_are_those_of_size_for_the_lengths_that_were_measured() -> None:
    from roofplan import api

    with unruly(good) as server:
        run = run_server(
            server.address,
            **SMALL | {"concurrency": "1,2", "rate": "50", "output": 3},
            model="llama-3.1-8b",
            hardware="h100-sxm",
            options={"engine": "vllm@0.19"},
        )
    of = {(r.name, r.parameters.get("concurrency")): r for r in run.records}
    two = api.size("llama-3.1-8b", "h100-sxm", engine="vllm@0.19", prompt=24, output=3, concurrency=2)
    assert two.times is not None
    assert two.times.latency.tpot_s is not None
    assert of["server.tpot", 2].predicted_datasheet == two.times.latency.tpot_s.expected
    assert of["server.ttft", 2].predicted_datasheet == two.times.latency.ttft_s.expected
    assert of["server.ttft_burst", 2].predicted_datasheet == two.times.latency.ttft_burst_s.expected
    assert of["server.output_tokens_per_s", 2].predicted_datasheet == two.times.throughput.output_tokens_per_s.expected
    assert of["server.tpot", 2].parameters["roof"] == two.times.latency.tpot_s.bound
    one = api.size("llama-3.1-8b", "h100-sxm", engine="vllm@0.19", prompt=24, output=3, concurrency=1)
    assert one.times is not None
    assert of["server.ttft", 1].predicted_datasheet == one.times.latency.ttft_alone_s.expected
    assert of["server.tpot", 1].predicted_measured is None
    # What arrives at a server that keeps up is what leaves it.
    assert of["server.requests_per_s", None].predicted_datasheet == pytest.approx(50)
    assert of["server.output_tokens_per_s", None].predicted_datasheet == pytest.approx(150)


def test_the_served_name_stands_for_the_model_where_the_catalogue_has_it() -> None:
    listed = {"data": [{"id": "meta-llama/Llama-3.1-8B-Instruct"}]}
    with unruly(good, lambda _: plain(listed)) as server:
        run = run_server(server.address, **SMALL, hardware="h100-sxm")
    assert run.records[0].predicted_datasheet


@pytest.mark.parametrize("name", ["/etc/passwd", "-", "./config.json", "no-such-model"])
def test_a_served_name_is_never_read_as_a_path(name: str) -> None:
    with unruly(good, lambda _: plain({"data": [{"id": name}]})) as server:
        run = run_server(server.address, **SMALL, hardware="h100-sxm")
    assert run.records[0].predicted_datasheet is None
    assert any("--model says" in note for note in run.notes)


def test_a_model_without_a_device_is_refused_before_anything_is_sent() -> None:
    with unruly(good) as server:
        with pytest.raises(DomainError, match="--hardware"):
            run_server(server.address, **SMALL, model="llama-3.1-8b")
        with pytest.raises(UnknownNameError, match="h1000"):
            run_server(server.address, **SMALL, model="llama-3.1-8b", hardware="h1000")
        assert server.asked == []


# ------------------------------------------------------------------------------------------------ servers that cannot be measured


def test_a_server_that_is_down() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(MeasureError, match="no connection.*is it running"):
        run_server(f"http://127.0.0.1:{port}", **SMALL)


def test_a_server_that_takes_connections_and_says_nothing() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        began = time.monotonic()
        with pytest.raises(MeasureError, match="timed out.*--timeout"):
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
    import re

    line = fault(behave, timeout_s=1)
    assert re.search(wanted, line), line


@pytest.mark.parametrize("case", ["torn", "no JSON", "endless line", "error event", "error status", "too many tokens"])
def test_single_requests_that_fail_are_counted(case: str) -> None:
    behave, _ = BAD[case]
    run, note = failed(behave, requests=8, concurrency=1)
    assert "4 of 8 requests failed" in note
    assert run.records[0].parameters["failed"] == 4
    assert run.records[0].parameters["requests"] == 4


def test_slow_requests_are_counted_as_timed_out() -> None:
    _, note = failed(lambda _: Answer(_forever(b": wait\n\n", 0.05)), timeout_s=0.4, requests=4, concurrency=2)
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
    import re

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
        return good(request) if request.number < 11 else plain({"error": "full"}, "503 Busy")

    run = measured(overloaded, concurrency="1,2,3", requests=6)
    assert {record.parameters["concurrency"] for record in run.records} == {1}
    assert sum("no request came to its end" in note for note in run.notes) == 1


# ------------------------------------------------------------------------------------------------ what is asked wrongly


@pytest.mark.parametrize(
    "url",
    [
        "", "localhost:8000", "ftp://localhost", "http://", "http://user:secret@localhost", "http://localhost/?a=1", "http://localhost/#x",
        "http://local host", "http://localhost:99999", "http://localhost:0", "http://[::1", "http://localhost\n", "http://h\x1b[31m/",
    ],
)  # fmt: skip
def test_addresses_that_are_none(url: str) -> None:
    if url == "http://localhost\n":
        pytest.skip("blanks around an address are cut")
    with pytest.raises(MeasureError, match="URL") as found:
        run_server(url, **SMALL)
    assert str(found.value).isprintable()
    assert "secret" not in str(found.value)


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/", "/v1/completions", "/v1/chat/completions", "/v1/models"])
def test_addresses_may_end_anywhere(tail: str) -> None:
    from roofplan.measure.server_client import read_url

    assert read_url(f"http://h:8000{tail}") == "http://h:8000/v1"
    assert read_url(f"https://h/api{tail}") == ("https://h/api" if tail in {"", "/"} else "https://h/api/v1")


@pytest.mark.parametrize(
    ("options", "kind", "wanted"),
    [
        ({"concurrency": "0"}, QuantityError, "--concurrency"),
        ({"concurrency": "1,,2"}, QuantityError, "--concurrency"),
        ({"concurrency": "1000000"}, DomainError, "--concurrency"),
        ({"concurrency": ",".join(["1"] * 40)}, DomainError, "loads"),
        ({"rate": "-1"}, QuantityError, "--rate"),
        ({"rate": "nan"}, QuantityError, "--rate"),
        ({"prompt": "8k"}, QuantityError, "--prompt"),
        ({"output": "0"}, QuantityError, "--output"),
        ({"output": 2**21}, DomainError, "--output"),
        ({"requests": 10**6}, DomainError, "--requests"),
        ({"warm_up": "-1"}, QuantityError, "--warm-up"),
        ({"most_s": "0"}, DomainError, "--most-time"),
        ({"most_s": "2 hours"}, QuantityError, "--most-time"),
        ({"timeout_s": 10**9}, DomainError, "--timeout"),
        ({"api": "responses"}, UnknownNameError, "--api"),
        ({"key_variable": "NO_SUCH_VARIABLE_OF_ROOFPLAN"}, MeasureError, "--api-key-env"),
    ],
)
def test_options_that_are_wrong(options: dict[str, Any], kind: type[RoofplanError], wanted: str) -> None:
    with pytest.raises(kind, match=wanted):
        run_server("http://localhost:1", **SMALL | options)


def test_a_key_that_no_header_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_THE_TEST", "a\nb")
    with pytest.raises(MeasureError, match="--api-key-env") as found:
        run_server("http://localhost:1", **SMALL, key_variable="KEY_OF_THE_TEST")
    assert "a\nb" not in str(found.value)


def test_listed_is_what_the_tests_take_it_for() -> None:
    assert LISTED["data"][0]["id"] == "tiny"  # type: ignore[index]
