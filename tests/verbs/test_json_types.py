"""Numbers in the JSON of every verb: what is counted is an integer where it is whole."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest

from roofplan import cli
from roofplan.planner.results import plain

ANSWERS = [
    "size llama-3.1-8b h100-sxm",
    "kv llama-2-7b --variant kv=kivi2,mqa,h2o:0.3,window:100 --on h100-sxm",
    "kv llama-2-7b --error-budget kl=0.01",
    "roofline llama-3.1-8b h100-sxm --batches 1,8",
    "roofline deepseek-v3 h100-sxm --tp 8 --ceilings nvlink",
    "sweep llama-3.1-8b h100-sxm --over batch=1,2 --prompt 1000 --output 100",
    "sweep llama-3.1-8b h100-sxm --over batch=1,2 --context 1000",
    "compare llama-3.1-8b h100-sxm h200",
    "advise llama-3.1-8b h100-sxm",
    "speculate llama-3.1-8b h100-sxm --draft-cost 0.1 --acceptance 0.8",
]
COUNTS = ("bytes", "flop")  # at the end of a name, and not of a second
WORDS = ("context", "tokens", "batch", "bytes", "flop", "cache_bytes", "attention_flop")


def numbers(value: object, name: str = "", under: str = "") -> Iterator[tuple[str, str, object]]:
    """Every number with its key and the key above."""
    if (
        isinstance(value, dict) and "figure" in value
    ):  # a row of a comparison: its values have the names of the alternatives
        yield from numbers(list(value.get("values", {}).values()), value["figure"].rpartition(".")[2])
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, key, name)
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item, name, under)
    elif isinstance(value, (int, float)):
        yield name, under, value


@pytest.mark.parametrize("words", ANSWERS)
def test_counts_and_bytes_are_integers_where_they_are_whole(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.run([*shlex.split(words), "--format", "json"])
    found = list(numbers(json.loads(capsys.readouterr().out)["result"]))
    counted = [one for one in found if (one[0] in WORDS or one[0].endswith(COUNTS)) and one[1] != "times"]
    assert counted
    assert [one for one in counted if isinstance(one[2], float) and one[2].is_integer()] == []


def test_what_is_no_count_keeps_its_type() -> None:
    rates = {"bytes_per_s": 3e12, "flop_per_byte": 20.0, "nominal_flop_per_s": 1e12, "gain": 1.0, "tpot_s": 1.0}
    assert {name: type(value) for name, value in plain(rates).items()} == dict.fromkeys(rates, float)
    assert type(plain({"times": {"decode_attention_flop": 1.0}})["times"]["decode_attention_flop"]) is float
    counts = {"weights_bytes_read_per_step": 3.0, "step_flop_per_device": 2.0, "context": 1152.0}
    assert {name: type(value) for name, value in plain(counts).items()} == dict.fromkeys(counts, int)
    assert plain({"bytes": 24.5, "flop": 0.0}) == {"bytes": 24.5, "flop": 0}
