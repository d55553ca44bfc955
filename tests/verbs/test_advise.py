"""``roofplan advise`` through the installed console script."""

import csv
import io
import json

import pytest
from console import answer, run

import roofplan

WORKLOAD = ("--prompt", "4096", "--output", "512", "--concurrency", "64")
HERE = ("advise", "llama-3.1-8b", "h100-sxm", *WORKLOAD)
EVERY_LEVER = {
    "kv_cache",
    "continuous_batching",
    "paged_cache",
    "prefix_cache",
    "chunked_prefill",
    "speculation.draft_layer",
    "speculation.lookup",
    "flash_attention",
    "gqa",
    "mqa",
    "mla",
    "window",
    "weights.fp8",
    "weights.int4-g128",
    "kv.fp8",
    "layout.tp2",
    "layout.pp2",
    "layout.dp2",
    "device.h200-sxm-141gb",
}


def test_json_keeps_its_contract() -> None:
    said = answer(*HERE)
    assert (said["schema"], said["command"]) == ("roofplan/result/v1", "advise")
    assert said["inputs"]["goal"] == said["result"]["goal"] == "throughput"
    levers = said["result"]["levers"]
    assert {lever["id"] for lever in levers} >= EVERY_LEVER
    for lever in levers:
        assert {"id", "gain", "exact", "cost", "why", "status", "gains", "reason"} <= set(lever)
        assert set(lever["gains"]) == {"ttft", "tpot", "throughput", "capacity", "cost"}
        assert set(lever["cost"]) == {"quality", "complexity", "memory_bytes"}
        assert lever["gain"] == lever["gains"]["throughput"]
        assert (lever["gain"] is None) == (lever["gain_reason"] is not None)
    gains = [lever["gain"] for lever in levers if lever["gain"] is not None]
    assert gains == sorted(gains, reverse=True)
    assert {entry["name"] for entry in said["assumptions"]} >= {"prefix_hit", "draft_acceptance", "output_lengths"}


def test_json_is_sorted_exact_and_repeatable() -> None:
    first, second = (run(*HERE, "--format", "json").stdout for _ in range(2))
    assert first == second
    assert first == json.dumps(json.loads(first), sort_keys=True, indent=2) + "\n"


def test_the_library_gives_the_same_answer() -> None:
    advice = roofplan.advise("llama-3.1-8b", "h100-sxm", prompt=4096, output=512, concurrency=64)
    assert json.loads(json.dumps(advice.to_dict())) == answer(*HERE)


@pytest.mark.parametrize("goal", ["ttft", "tpot", "throughput", "capacity", "cost"])
def test_levers_are_ranked_by_the_goal(goal: str) -> None:
    levers = answer(*HERE, "--goal", goal)["result"]["levers"]
    gains = [lever["gains"][goal] for lever in levers if lever["gains"][goal] is not None]
    assert gains == sorted(gains, reverse=True)
    assert [lever["gain"] for lever in levers] == [lever["gains"][goal] for lever in levers]


def test_assumptions_can_be_given() -> None:
    def levers(*options: str) -> dict:
        return {lever["id"]: lever for lever in answer(*HERE, *options)["result"]["levers"]}

    usual, more = levers(), levers("--prefix-hit", "90%", "--acceptance", "0.9")
    assert more["prefix_cache"]["gains"]["ttft"] > usual["prefix_cache"]["gains"]["ttft"]
    assert more["speculation.draft_layer"]["gain"] > usual["speculation.draft_layer"]["gain"]
    none = levers("--prefix-hit", "0", "--acceptance", "0")
    assert none["prefix_cache"]["gain"] == none["speculation.draft_layer"]["gain"] == 1


def test_what_does_not_fit_is_told_what_makes_it_fit() -> None:
    done = run("advise", "llama-3-70b", "h100-sxm")
    assert done.returncode == 0
    assert "makes it fit" in done.stdout
    levers = answer("advise", "llama-3-70b", "h100-sxm")["result"]["levers"]
    assert (levers[0]["gain"], levers[0]["gain_reason"]) == (None, "makes_it_fit")


def test_text_says_where_it_stands_what_pays_and_why() -> None:
    text = run(*HERE).stdout
    for fragment in (
        "Best for tokens/s:",
        "As it stands",
        "What can be changed",
        "In use already: what each gives",
        "Decided when a model is trained",
        "Why, and at what cost",
        "assumed: 50% of every prompt in common (--prefix-hit)",
        "decoding is bound by reading the cache",
    ):
        assert fragment in text, fragment


def test_explain_gives_both_sides_of_each_gain() -> None:
    text = run(*HERE, "--goal", "tpot", "--explain").stdout
    assert "levers.weights.fp8.gain = " in text
    assert "TPOT without the lever over that with it" in text


def test_csv_has_one_lever_a_row() -> None:
    rows = list(csv.DictReader(io.StringIO(run(*HERE, "--format", "csv").stdout)))
    said = {lever["id"]: lever for lever in answer(*HERE)["result"]["levers"]}
    assert {row["id"] for row in rows} == set(said)
    fp8 = next(row for row in rows if row["id"] == "weights.fp8")
    assert float(fp8["gain_tpot"]) == said["weights.fp8"]["gains"]["tpot"]
    assert fp8["exact"] == "false"


def test_markdown_is_tables() -> None:
    text = run(*HERE, "--format", "markdown").stdout
    assert text.startswith("## llama-3.1-8b on h100-sxm5-80gb")
    assert "### What can be changed" in text


def test_results_go_to_stdout_without_escape_codes() -> None:
    done = run(*HERE)
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--goal", "speed"), "'speed' is not one of 'ttft', 'tpot', 'throughput', 'capacity', 'cost'"),
        (("--prefix-hit", "1"), "--prefix-hit: got 1, want a share below 1"),
        (("--prefix-hit", "1.5"), "--prefix-hit: got '1.5', want a fraction"),
        (("--prefix-hit", "-0.1"), "--prefix-hit: got "),
        (("--prefix-hit", "half"), "--prefix-hit: got 'half'"),
        (("--prefix-hit", "nan"), "--prefix-hit: got "),
        (("--acceptance", "100%"), "--acceptance: got 100%, want a share below 1"),
        (("--acceptance", "inf"), "--acceptance: got "),
        (("--prompt", "0"), "--prompt: got "),
        (("--tp", "3"), "--tp: got 3, want a divisor of the 32 heads"),
        (("--weights", "fp9"), "number format: got fp9"),
        (("--engine", "plane"), "engine: got plane"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(words: tuple[str, ...], said: str) -> None:
    done = run("advise", "llama-3.1-8b", "h100-sxm", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("llama-3.1-8bb", "h100"), "model: got llama-3.1-8bb"),
        (("gpt2", "h100-sxm6"), "(did you mean h100-sxm5-80gb"),
        (("gpt2",), "Missing argument 'HARDWARE'"),
    ],
)
def test_unknown_names_are_answered_with_near_ones(words: tuple[str, ...], said: str) -> None:
    done = run("advise", *words)
    assert done.returncode == 2
    assert said in done.stderr
