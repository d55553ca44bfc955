"""``roofplan kv`` with variants, on a device, and within an error budget, through the installed console script."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from console import answer, run
from pytest import approx

import roofplan

BY_HAND = {  # llama-3.1-8b in bf16: 32 layers, 8 KV heads of 128; bytes per token, and of 8192 tokens
    "mqa": (131072 // 8, 16384 * 8192),
    "gqa:8": (131072, 131072 * 8192),
    "gqa:2": (32768, 32768 * 8192),
    "mla:512+64": (32 * 576 * 2, 36864 * 8192),
    "window:4096": (0, 536870912),
    "interleave:5:1": (5 * 4096, 4096 * (5 * 8192 + 27 * 1024)),
    "sinks:4+1020": (0, 131072 * 1024),
    "h2o:0.2": (26214, 131072 * 1638),
    "share:2": (65536, 65536 * 8192),
    "kv=fp8": (65536, 65536 * 8192),
    "kv=q8_0": (69632, 69632 * 8192),
    "kv=kivi2": (24576, 24576 * 8064 + 131072 * 128),
    "kv=nvfp4": (36864, 36864 * 8192),
}
ALL = ",".join(BY_HAND)
LOAD = ("--concurrency", "32")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products on busy machines are slow in several threads."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")


def variants(*arguments: str) -> dict[str, dict]:
    return {row["variant"]: row for row in answer("kv", *arguments)["result"]["variants"]}


def test_bytes_of_every_variant_by_hand() -> None:  # F3.1 to F3.7
    found = variants("llama-3.1-8b", "--variant", ALL)
    assert list(found) == list(BY_HAND)
    for name, (per_token, sequence) in BY_HAND.items():
        assert (found[name]["bytes_per_token"], found[name]["bytes_per_sequence"]) == (per_token, sequence), name
        assert found[name]["times"]["bytes_per_sequence"] == approx(sequence / 2**30, rel=1e-12)


def test_json_keeps_its_contract() -> None:
    said = answer(
        "kv", "llama-3.1-8b", "--variant", "mqa", "--variant", "kv=fp8", "--on", "h100-sxm", "--concurrency", "32"
    )
    assert set(said) == {"schema", "command", "inputs", "result", "assumptions", "warnings"}
    assert (said["schema"], said["command"]) == ("roofplan/result/v1", "kv")
    assert said["inputs"]["variants"] == ["mqa", "kv=fp8"]
    assert (said["inputs"]["hardware"], said["inputs"]["context"], said["inputs"]["concurrency"]) == (
        "h100-sxm5-80gb",
        8192,
        32,
    )
    result = said["result"]
    assert {"kv", "by_layer_group", "by_context", "now", "variants"} == set(result)
    now = {"kv_format", "bytes_per_token", "index_bytes_per_token", "fixed_bytes_per_sequence", "bytes_per_sequence"}
    now |= {"bytes_per_token_per_device", "decode", "receptive_field_tokens", "served"}
    assert set(result["now"]) == now
    more = {"variant", "title", "decided", "exact", "exact_up_to_tokens", "why", "source", "times"}
    for row in result["variants"]:
        assert set(row) == now | more
        assert set(row["decode"]) == {"attention_flop", "cache_bytes", "vector_bytes", "flop_per_byte"}
        served = row["served"]
        assert set(served["tpot_s"]) == {"bound", "low", "expected", "high"}
        assert served["max_batch"] > result["now"]["served"]["max_batch"]
        assert row["times"]["tpot_s"] == approx(
            served["tpot_s"]["expected"] / result["now"]["served"]["tpot_s"]["expected"], rel=1e-12
        )
        assert row["times"]["tpot_s"] < 1
    assert said == json.loads(json.dumps(said, sort_keys=True))


def test_a_plain_answer_is_as_before() -> None:
    assert set(answer("kv", "llama-3.1-8b")["result"]) == {"kv", "by_layer_group", "by_context"}


@pytest.mark.parametrize("options", [(), ("--engine", "vllm"), ("--weights", "fp8"), ("--tp", "2")])
def test_the_room_is_that_of_size_and_the_times_are_those_of_sweep(options: tuple[str, ...]) -> None:
    on = answer("kv", "llama-3.1-8b", "--on", "h100-sxm", *LOAD, *options)["result"]["now"]["served"]
    sized = answer("size", "llama-3.1-8b", "h100-sxm", "--prompt", "8191", "--output", "1", *LOAD, *options)["result"]
    assert on["max_batch"] == sized["capacity"]["max_concurrency"]
    assert on["max_batch_binds"] == sized["capacity"]["max_concurrency_binds"]
    swept = answer("sweep", "llama-3.1-8b", "h100-sxm", "--over", "batch=32", "--context", "8192", *options)
    [row] = swept["result"]["rows"]
    assert on["batch"] == 32
    assert on["tpot_s"] == approx(row["tpot_s"], rel=1e-12)


def test_the_library_gives_the_same_answer() -> None:
    result = roofplan.kv("llama-3.1-8b", variants=["mqa", "sinks:4+1020"], on="h100-sxm", concurrency=8)
    said = answer("kv", "llama-3.1-8b", "--variant", "mqa,sinks:4+1020", "--on", "h100-sxm", "--concurrency", "8")
    assert json.loads(json.dumps(result.to_dict())) == said


def test_what_is_exact_and_who_decides() -> None:
    found = variants("llama-3.1-8b", "--variant", ALL)
    said = {name: (row["decided"], row["exact"], row["exact_up_to_tokens"]) for name, row in found.items()}
    assert said["mqa"] == said["mla:512+64"] == said["window:4096"] == ("training", False, None)
    assert said["gqa:8"] == ("training", True, None)
    assert said["sinks:4+1020"] == ("serving", False, 1024)
    assert said["kv=kivi2"] == ("serving", False, 128)
    assert said["kv=fp8"] == said["h2o:0.2"] == ("serving", False, 0)
    assert found["window:4096"]["receptive_field_tokens"] == 32 * 4095 + 1
    assert found["sinks:4+1020"]["receptive_field_tokens"] == 32 * 1019 + 1
    assert found["mqa"]["receptive_field_tokens"] is None


def test_text_compares_and_says_what_is_given_up() -> None:
    text = run("kv", "llama-3.1-8b", "--variant", ALL, "--on", "h100-sxm", env={"COLUMNS": "200"}).stdout
    for fragment in (
        "Variants, for a sequence of 8,192 tokens",
        "as it is",
        "On h100-sxm5-80gb, sequences of 8,192 tokens",
        "131,041 tokens",
        "nothing: the model is so already",
        "the same up to 1,024 tokens",
        "another model's",
        "decided in training: another model, which must be trained so",
    ):
        assert fragment in text, fragment


def test_explain_derives_variants_and_what_the_device_makes_of_them() -> None:
    text = run(
        "kv", "llama-3.1-8b", "--variant", "mla:512+64", "--on", "h100", "--explain", env={"COLUMNS": "160"}
    ).stdout
    for fragment in (
        "variants.mla:512+64.bytes_per_token = 36.00 KiB",
        "(32 layers x 576 elements) x 2 B",
        "variants.mla:512+64.decode.flop_per_byte",
        "now.served.max_batch = ",
        "floor(cache of a device / bytes of a sequence on it) (F7.5)",
        "variants.mla:512+64.served.tpot_s",
    ):
        assert fragment in text, fragment


@pytest.mark.parametrize("output", ["csv", "markdown"])
def test_other_formats(output: str) -> None:
    text = run("kv", "llama-3.1-8b", "--variant", "gqa:4+kv=fp8", "--format", output).stdout
    if output == "csv":
        figures = dict(csv.reader(io.StringIO(text)))
        assert figures["variants.0.bytes_per_token"] == "32768"
        assert figures["variants.0.variant"] == "gqa:4+kv=fp8"
    else:
        assert "### Variants, for a sequence of 8,192 tokens" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--variant", "gqa"), "--variant: got 'gqa', want gqa:KV_HEADS such as gqa:8"),
        (("--variant", "mqa:1"), "--variant: got 'mqa:1', want mqa, without a value"),
        (("--variant", "mla:512"), "want mla:RANK+ROTARY such as mla:512+64"),
        (("--variant", "window:4k"), "want window:TOKENS such as window:4096"),
        (("--variant", "interleave:5"), "want interleave:LOCAL:FULL or interleave:LOCAL:FULL:WINDOW"),
        (("--variant", "sinks:1024"), "want sinks:FIRST+RECENT such as sinks:4+1020"),
        (("--variant", "h2o:2"), "want h2o:SHARE such as h2o:0.2"),
        (("--variant", "share:0"), "want share:LAYERS such as share:2"),
        (("--variant", "kv=fp9"), "want kv=FORMAT such as kv=fp8"),
        (("--variant", "gqa8"), "did you mean gqa:KV_HEADS such as gqa:8?"),
        (("--variant", "gqa:5"), "--variant: got gqa:5 of llama-3.1-8b, want a divisor of 32"),
        (("--variant", "mqa", "--variant", "mqa"), "--variant: got mqa twice, want each once"),
        (("--concurrency", "4"), "--concurrency: got 4, want --on HARDWARE beside it"),
        (("--weights", "fp8"), "--weights: got fp8, want --on HARDWARE beside it"),
        (("--on", "h100-sxm6"), "did you mean h100-sxm5-80gb"),
        (("--on", "h100", "--context", "1"), "--context: got 1, want at least 2 with --on"),
        (("--on", "h100", "--concurrency", "0"), "--concurrency: got '0'"),
        (("--tensors", "heads.npz"), "--tensors: got heads.npz, want --error-budget beside it"),
        (("--error-budget", "kl"), "--error-budget: got 'kl', want METRIC=LIMIT such as kl=0.01"),
        (("--error-budget", "ppl=1"), "--error-budget: got ppl, want one of kl, tv, score"),
        (("--error-budget", "kl=-1"), "--error-budget kl: got '-1'"),
        (("--error-budget", "kl=1", "--tensors", "none.npz"), "none.npz: file: got no such file"),
        (("--variant", "mqa", "--tp", "3"), "--tp: got 3, want a divisor of the 32 heads"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(words: tuple[str, ...], said: str) -> None:
    done = run("kv", "llama-3.1-8b", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words", [(), ("--variant", "mqa"), ("--on", "h100"), ("--error-budget", "kl=1", "--context", "100")]
)
def test_without_a_model(words: tuple[str, ...]) -> None:
    done = run("kv", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "MODEL: got nothing, want a name or a path" in done.stderr


# ------------------------------------------------------------------------------------------------ error budgets


def test_a_budget_without_a_model() -> None:
    said = answer("kv", "--error-budget", "kl=0.01")
    assert said["inputs"] == {"error_budget": {"kl": 0.01}, "tensors": "synthetic"}
    budget = said["result"]["error_budget"]
    assert budget["chosen"] == "kivi-4"
    errors = {row["scheme"]: row["errors"] for row in budget["schemes"]}
    assert errors["int4-g32"]["divergence"] == approx(0.086123, abs=0.5e-6)  # F14.5: 4 bits, keys per token
    assert [warning["code"] for warning in said["warnings"]] == ["values_not_limited", "synthetic_tensors"]
    [assumption] = said["assumptions"]
    assert "shifted by +20, -20, +20, -20" in assumption["value"]


def test_a_budget_of_a_model() -> None:
    result = answer("kv", "llama-3.1-8b", "--error-budget", "kl=0.01,cosine=0.998", "--context", "32768")["result"]
    assert {"kv", "error_budget"} <= set(result)
    budget = result["error_budget"]
    row = next(row for row in budget["schemes"] if row["scheme"] == budget["chosen"])
    assert (budget["chosen"], row["bytes_per_token"], budget["context"]) == ("int8-head128", 67584, 32768)
    text = run("kv", "llama-3.1-8b", "--error-budget", "kl=0.01").stdout
    assert "Cheapest that holds kl <= 0.01: kivi-4" in text


def test_a_budget_that_nothing_holds_is_a_no() -> None:
    done = run("kv", "--error-budget", "kl=0")
    assert done.returncode == 1
    assert "No scheme holds kl <= 0 on these arrays." in done.stdout
    assert run("kv", "--error-budget", "kl=0.01").returncode == 0


def test_arrays_of_ones_own(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    calm = {
        name: draw.standard_normal((heads, 256, 64)) for name, heads in (("queries", 4), ("keys", 2), ("values", 2))
    }
    path = tmp_path / "heads.npz"
    np.savez(path, **calm)
    said = answer("kv", "--error-budget", "kl=0.01", "--tensors", str(path))
    budget = said["result"]["error_budget"]
    assert budget["tensors"] == {
        "source": f"{path}: queries (4, 256, 64), keys (2, 256, 64), values (2, 256, 64)",
        "synthetic": False,
        "heads": 4,
        "tokens": 256,
    }
    assert said["assumptions"] == []
    bits = {row["scheme"]: row["bits_per_element"] for row in budget["schemes"]}
    assert bits[budget["chosen"]] == 4.5  # enough without outlier channels, where the arrays of F14.5 want more
    assert "groups_do_not_divide" in {row["reason"] for row in budget["schemes"]}  # int8 with a scale of a head of 128


def test_pickled_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "heads.npz"
    objects = np.array([[{}]], dtype=object)
    np.savez(path, queries=objects, keys=objects, values=objects)
    done = run("kv", "--error-budget", "kl=1", "--tensors", str(path))
    assert done.returncode == 2
    assert "got pickled objects, want arrays of numbers" in done.stderr
