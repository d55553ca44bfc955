"""A server measured as a client: what is asked of it, what is measured, and what is predicted, against a server of the test's own."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
from unruly_server import SMALL, Answer, Request, after_probing, counts, event, good, measured, pieces_of, plain, unruly

from roofplan import hardware
from roofplan.errors import DomainError, MeasureError, QuantityError, RoofplanError, UnknownNameError
from roofplan.hardware.spec import Achieved
from roofplan.measure.records import Run
from roofplan.measure.server import run_server

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
    assert run.environment.device.startswith("http://127.0.0.1:")
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


def test_it_can_be_called_where_a_loop_runs_already() -> None:
    async def notebook() -> Run:
        return measured(good)

    assert asyncio.run(notebook()).records


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
        after_probing(lambda request: good(request, pause_s=0.03)), most_s="2 s", requests=1000, concurrency=2
    )
    assert time.monotonic() - began < 8
    first = run.records[0]
    assert first.parameters["requests"] < 40
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


def test_a_measured_machine_predicts_beside_its_data_sheet() -> None:
    name = "h100-sxm5-80gb-measured"
    overlay = replace(hardware.load("h100-sxm"), name=name, achieved=Achieved(kernels={"measured_on": [name]}))
    run = measured(good, model="llama-3.1-8b", hardware=overlay)
    assert run.records[0].predicted_datasheet
    assert run.records[0].predicted_measured == run.records[0].predicted


@pytest.mark.parametrize("missing", [("httpx",), ("httpx", "httpx2")])
def test_the_client_is_httpx_or_its_successor_and_else_the_extra_is_named(
    missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("httpx2")
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    with unruly(after_probing(lambda _: Answer(pieces_of(event(" x")), is_cut=True))) as server:
        if len(missing) == 2:
            with pytest.raises(MeasureError, match=r"no httpx.*roofplan\[measure\]"):
                run_server(server.address, **SMALL)
            return
        with pytest.raises(MeasureError, match="closed mid-stream 6x"):
            run_server(server.address, **SMALL)
    assert measured(good).records


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


# ------------------------------------------------------------------------------------------------ what is asked wrongly


@pytest.mark.parametrize(
    "url",
    [
        "", "localhost:8000", "ftp://localhost", "http://", "http://user:secret@localhost", "http://localhost/?a=1", "http://localhost/#x",
        "http://local host", "http://localhost:99999", "http://localhost:0", "http://[::1", "http://h\x1b[31m/",
    ],
)  # fmt: skip
def test_addresses_that_are_none(url: str) -> None:
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
