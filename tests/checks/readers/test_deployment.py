"""roofplan's own deployment files as services: each value with its place, limits in base units, and one fault each."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofplan.checks.readers.deployment import READER
from roofplan.checks.record import Expectation, Place, Reading, Said, Service
from roofplan.checks.run import read_text
from roofplan.errors import RoofplanError

HEAD = "schema: roofplan/deployment/v1\nmodel: llama-3.1-8b\nhardware: h100-sxm\n"
FULL = (
    HEAD
    + """\
name: chat
engine: vllm@0.19
tp: "2"
max_model_len: 8192
memory_utilization: 90 %
beside_memory: 2 GiB
eager: true
prompt: 4096
output: 512
concurrency: 64
usd_per_hour: 2.5
shared_prefix_tokens: 2000
limits:
  fits: true
  headroom: 4 GiB
  context: 32768
  concurrency: 64
  ttft: 500 ms
  tpot: 30 ms
  e2e: 20 s
  output_tokens_per_s: 2000
  requests_per_s: 3.5
  usd_per_million_output_tokens: 2.5
  joules_per_output_token: 1.2
expect:
  - {claim: 45 tok/s, verdict: plausible}
  - claim: 9000 tok/s
    verdict: impossible
  - bottleneck: kv_bandwidth
"""
)


def read(text: str, name: str = "deploy/today.yaml") -> Reading:
    return read_text(text, name)


def one(text: str) -> Service:
    reading = read(text)
    assert reading.problems == ()
    (service,) = reading.services
    return service


def at(line: int, column: int) -> Place:
    return Place("deploy/today.yaml", line, column)


def test_everything_has_its_value_and_place() -> None:
    service = one(FULL)
    assert (service.kind, service.name, service.place) == ("deployment", "chat", at(1, 1))
    assert service.engine == Said("vllm@0.19", at(5, 9))
    assert service.options == {
        "model": Said("llama-3.1-8b", at(2, 8)),
        "hardware": Said("h100-sxm", at(3, 11)),
        "tp": Said(2, at(6, 5)),
        "max_model_len": Said(8192, at(7, 16)),
        "memory_utilization": Said("90 %", at(8, 21)),
        "beside_memory": Said("2 GiB", at(9, 16)),
        "eager": Said(True, at(10, 8)),
        "prompt": Said(4096, at(11, 9)),
        "output": Said(512, at(12, 9)),
        "concurrency": Said(64, at(13, 14)),
    }
    assert service.usd_per_hour == Said(2.5, at(14, 15))
    assert service.shared_prefix_tokens == Said(2000, at(15, 23))


def test_limits_are_in_base_units() -> None:
    limits = one(FULL).limits
    assert {name: said.value for name, said in limits.items()} == {
        "fits": True,
        "headroom": 4 * 2**30,
        "context": 32768,
        "concurrency": 64,
        "ttft": 0.5,
        "tpot": 0.03,
        "e2e": 20.0,
        "output_tokens_per_s": 2000.0,
        "requests_per_s": 3.5,
        "usd_per_million_output_tokens": 2.5,
        "joules_per_output_token": 1.2,
    }
    assert limits["ttft"] == Said(0.5, at(21, 9), "500 ms")


def test_expectations() -> None:
    assert one(FULL).expectations == (
        Expectation("claim", Said("45 tok/s", at(29, 13)), "plausible"),
        Expectation("claim", Said("9000 tok/s", at(30, 12)), "impossible"),
        Expectation("bottleneck", Said("kv_bandwidth", at(32, 17))),
    )


def test_what_is_left_out_is_not_said() -> None:
    service = one(HEAD)
    assert (service.name, service.engine) == ("today", Said("plain", at(1, 1)))
    assert set(service.options) == {"model", "hardware"}
    assert (service.limits, service.expectations, service.usd_per_hour) == ({}, (), None)


def test_paths_are_seen_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "today.yaml"
    (service,) = read(HEAD.replace("llama-3.1-8b", "./config.json"), str(file)).services
    assert service.options["model"] == Said(str(tmp_path / "config.json"), Place(str(file), 2, 8), "./config.json")


def test_json_and_several_documents() -> None:
    text = '{"schema": "roofplan/deployment/v1", "model": "gpt2", "hardware": "l40s",\n "limits": {"ttft": "1 s"}}'
    (service,) = read(text, "a.json").services
    assert service.limits["ttft"].place == Place("a.json", 2, 21)
    assert [service.place.line for service in read(f"{HEAD}---\n{HEAD}").services] == [1, 5]


def test_other_documents_are_not_recognised() -> None:
    for text in ("schema: roofplan/model/v1\n", "[1]\n", "model: llama-3.1-8b\n"):
        assert read(text).services == ()
        assert read(text).problems == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema: roofplan/deployment/v2\n", ":1:9: schema: got 'roofplan/deployment/v2', want roofplan/deployment/v1"),
        (HEAD + "tpp: 2\n", ":4:6: tpp: got an unknown key"),
        (HEAD + "tp: [2]\n", ":4:5: tp: got a list"),
        (HEAD.replace("hardware: h100-sxm\n", ""), ":1:1: hardware: got nothing, want this key"),
        (HEAD + "usd_per_hour: 2 EUR\n", ":4:15: usd_per_hour: got '2 EUR'"),
        (HEAD + "shared_prefix_tokens: 2k\n", ":4:23: shared_prefix_tokens: got '2k'"),
        (HEAD + "limits: [fits]\n", ":4:9: limits: got a list, want a mapping"),
        (HEAD + "limits:\n", ":4:8: limits: got nothing, want a mapping"),
        (HEAD + "limits: {tftf: 1 s}\n", ":4:16: limits.tftf: got an unknown limit"),
        (HEAD + "limits: {tftf: 1 s}\n", "(did you mean ttft?)"),
        (HEAD + "limits:\n  fits: yes\n", ":5:9: limits.fits: got 'yes', want true or false"),
        (HEAD + "limits:\n  fits: 1\n", "limits.fits: got 1, want true or false"),
        (HEAD + "limits:\n  ttft: 500\n", ":5:9: limits.ttft: got 500, want a time such as 20 ms"),
        (HEAD + "limits:\n  ttft: 0 s\n", "limits.ttft: got '0 s'"),
        (HEAD + "limits:\n  headroom: 4 gb\n", ":5:13: limits.headroom: got '4 gb'"),
        (HEAD + "limits:\n  context: 32k\n", "limits.context: got '32k'"),
        (HEAD + "limits:\n  concurrency: 0\n", "limits.concurrency: got 0"),
        (HEAD + "limits:\n  requests_per_s: -1\n", "limits.requests_per_s: got -1"),
        (HEAD + "expect: {claim: 1 tok/s}\n", ":4:9: expect: got a mapping, want a list"),
        (HEAD + "expect: [1]\n", ":4:10: expect.0: got 1, want {claim: 45 tok/s"),
        (HEAD + "expect: [{}]\n", "expect.0: got nothing, want {claim"),
        (HEAD + "expect: [{verdict: plausible}]\n", "expect.0: got verdict, want {claim"),
        (HEAD + "expect: [{claim: 45}]\n", ":4:18: expect.0.claim: got 45, want a text"),
        (HEAD + "expect: [{claim: 4 tok/s, verdict: likely}]\n", ":4:36: expect.0.verdict: got 'likely', want one of plausible"),
        (HEAD + "expect: [{bottleneck: kv_bandwith}]\n", "expect.0.bottleneck: got 'kv_bandwith'"),
        (HEAD + "expect: [{bottleneck: kv_bandwith}]\n", "(did you mean kv_bandwidth?)"),
        (HEAD + "expect: [{bottleneck: compute, verdict: plausible}]\n", ":4:41: expect.0.verdict: got an unknown key"),
    ],
)  # fmt: skip
def test_each_fault_has_its_place(text: str, said: str) -> None:
    reading = read(text)
    assert reading.services == ()
    (problem,) = reading.problems
    assert isinstance(problem, RoofplanError)
    assert said in str(problem)
    assert str(problem).startswith("deploy/today.yaml:")


def test_a_number_that_is_wrong_is_left_to_the_plan() -> None:
    assert one(HEAD + "prompt: 8k tokens\n").options["prompt"].value == "8k tokens"


def test_the_reader_says_what_it_is() -> None:
    assert READER.recognises.__doc__
