"""``roofplan speculate`` through the installed console script: figures, formats, drawings, exit codes, wrong input."""

import csv
import io
from pathlib import Path

import pytest
from console import answer, run
from pytest import approx

TARGET = ("speculate", "llama-3-8b", "h100-sxm")
GIVEN = (*TARGET, "--draft-cost", "0.1", "--acceptance", "0.8")
TWO_PART = (*GIVEN, "--timing", "two-part")


def test_the_textbook_case() -> None:  # F11.5, F11.6
    said = answer(*TWO_PART, "--k", "1..12", "--concurrency", "1,16,64,128,256", "--context", "1024")
    result = said["result"]
    four = {row["concurrency"]: round(row["speedup"], 2) for row in result["rows"] if row["k"] == 4}
    assert four == {1: 2.40, 16: 2.40, 64: 2.31, 128: 1.73, 256: 1.39}
    assert (result["best"]["k"], round(result["best"]["speedup"], 4), result["best"]["concurrency"]) == (6, 2.4696, 1)
    assert result["rows"][3]["expected_tokens"] == approx(3.3616, rel=1e-12)
    assert result["pays"] is True
    assert said["command"] == "speculate"
    assert all(set(entry) == {"name", "value", "source", "kind"} for entry in said["assumptions"])


def test_long_contexts() -> None:  # F11.6
    said = answer(*TWO_PART, "--k", "4", "--concurrency", "256", "--context", "32768")
    assert round(said["result"]["rows"][0]["speedup"], 2) == 2.33
    assert "cache_exceeds_memory" in {warning["code"] for warning in said["warnings"]}
    assert said["result"]["plain"][0]["fits"] is False


def test_it_says_what_pays_and_what_does_not() -> None:
    done = run(*GIVEN, "--k", "1..12", "--concurrency", "1,64")
    assert done.returncode == 0
    assert "Speculation pays:" in done.stdout
    assert "6 best" in done.stdout or " best" in done.stdout
    lost = run(*TARGET, "--draft", "llama-3.1-70b", "--acceptance", "0.9", "--k", "1..4")
    assert lost.returncode == 1
    assert "Speculation does not pay at 1 request: drafting takes more than its tokens save" in lost.stdout
    assert "not even perfect acceptance would pay" in lost.stdout
    assert "a draft is meant to be smaller" in lost.stdout


def test_row_36_the_curve_over_drafts_and_their_cost() -> None:
    """vllm#21278: drafts of half the target's size make it slower, the more the longer they are; the best k is printed."""
    found = {
        draft: answer("speculate", "qwen3-8b", "rtx-4090", "--draft", draft, "--acceptance", "0.6", "--k", "3,5,10")[
            "result"
        ]
        for draft in ("qwen3-4b", "qwen3-1.7b", "qwen3-0.6b")
    }
    gains = [[row["speedup"] for row in result["rows"]] for result in found.values()]
    assert all(one == sorted(one, reverse=True) for one in gains)  # over k
    assert all(list(one) == sorted(one) for one in zip(*gains, strict=True))  # over drafts, the largest first
    assert max(gains[0]) < 1
    assert found["qwen3-4b"]["best"]["reason"] == "draft_too_expensive"
    assert found["qwen3-0.6b"]["best"]["k"] == 3


def test_row_37_a_fixed_time_of_every_round() -> None:
    """llama.cpp#25908: some 20 ms fixed per round eat the gain of a good acceptance."""
    found = answer(*GIVEN, "--k", "4", "--overhead", "20 ms")["result"]
    assert (found["pays"], found["best"]["reason"]) == (False, "fixed_cost_per_round")


def test_row_39_the_batch_above_which_to_turn_it_off() -> None:
    result = answer(
        *TARGET,
        "--draft-cost",
        "0.05",
        "--acceptance",
        "0.4",
        "--k",
        "2",
        "--concurrency",
        "1,1024",
        "--prompt",
        "64",
        "--output",
        "64",
    )["result"]
    by_count = {choice["concurrency"]: choice for choice in result["best_by_concurrency"]}
    assert by_count[1]["pays"]
    assert by_count[1024]["reason"] == "batch_above_break_even"
    batch = {entry["concurrency"]: entry["batch"] for entry in result["break_even_by_concurrency"]}
    assert 1 < batch[1024] < 1024


def test_row_40_sparse_experts() -> None:
    """SpecForge#339: the tokens of a verification touch more experts."""
    result = answer(
        "speculate",
        "qwen3-30b-a3b",
        "h100-sxm",
        "--method",
        "ngram",
        "--acceptance",
        "0.15",
        "--k",
        "1..4",
        "--concurrency",
        "4",
    )["result"]
    assert result["best"]["reason"] == "experts_multiply"


@pytest.mark.parametrize("method", ["mtp", "medusa", "eagle", "ngram", "layer-skip"])
def test_every_method_is_answered(method: str) -> None:
    result = answer("speculate", "llama-3.1-8b", "h100-sxm", "--method", method, "--acceptance", "0.9", "--k", "1..4")[
        "result"
    ]
    assert result["pays"]
    assert all(row["memory_bytes"] > 0 for row in result["rows"])


@pytest.mark.parametrize(
    "given",
    [
        ("--per-position", "0.8,0.64,0.512,0.4096"),
        ("--mean-length", "3.3616", "--measured-at", "4"),
        ("--accepted-per-drafted", "0.5904"),
        ("--acceptance", "80 %"),
    ],
)
def test_ways_to_say_one_acceptance(given: tuple[str, ...]) -> None:  # F11.4
    result = answer(*TARGET, "--draft-cost", "0.1", "--timing", "two-part", "--k", "4", *given)["result"]
    assert result["rows"][0]["speedup"] == approx(2.4011428571428572, rel=1e-9)


def test_trees_count_nodes() -> None:  # F11.8
    result = answer(*TARGET, "--draft-cost", "0", "--tree", "0.6,0.2,0.08;0.5,0.2", "--k", "2,6")["result"]
    assert [(row["k"], row["expected_tokens"]) for row in result["rows"]] == [(2, approx(1.9)), (6, approx(2.4))]


@pytest.mark.parametrize(
    ("options", "binds", "said"),
    [
        (("--k", "4", "--context", "1024"), "memory", "never stops to pay (memory holds 441)"),
        (
            ("--k", "4", "--context", "1024", "--device-memory", "2 TB"),
            "step_budget",
            "never stops to pay (the step holds 1,638)",
        ),
        (
            ("--k", "4", "--context", "1024", "--device-memory", "2 TB", "--max-num-batched-tokens", "50000"),
            "search_end",
            "never stops to pay (looked up to 4,096)",
        ),
    ],
)
def test_a_limit_is_not_called_a_break_even(options: tuple[str, ...], binds: str, said: str) -> None:
    """v(B) tends to 2.0986 and never reaches E - k c = 2.9616: drafts pay at every batch that there can be."""
    text = run(*TWO_PART, *options, "--concurrency", "256").stdout
    assert said in text
    (found,) = answer(*TWO_PART, *options, "--concurrency", "256")["result"]["break_even_by_concurrency"]
    assert (found["batch"], found["batch_reason"]) == (None, binds)
    assert f"{found['batch_limit']:,}" in said


def test_a_break_even_is_a_batch() -> None:
    given = ("--draft-cost", "0.1", "--acceptance", "0.6", "--k", "4", "--timing", "two-part", "--context", "1024")
    asked = (*TARGET, *given)
    found = answer(*asked)["result"]["break_even"]
    last = found["batch"]
    assert (found["batch_reason"], found["batch_limit"]) == (None, None)
    rows = answer(*asked, "--concurrency", f"{last},{last + 1}")["result"]["rows"]
    assert rows[0]["speedup"] > 1 >= rows[1]["speedup"]
    lines = run(*asked).stdout.split("Where it stops to pay")[1].splitlines()
    assert lines[3].split()[-1] == f"{last:,}"


@pytest.mark.parametrize("timing", ["reached", "roofline", "two-part"])
def test_it_says_that_decoding_alone_is_timed(timing: str) -> None:
    asked = (*GIVEN, "--prompt", "1024", "--output", "256", "--concurrency", "64", "--timing", timing)
    assert "Decoding alone: " in run(*asked).stdout
    (served,) = (entry for entry in answer(*asked)["assumptions"] if entry["name"] == "served")
    assert served["value"] is False
    assert "decoding alone" in " ".join(run("speculate", "--help").stdout.split())
    assert "Decoding alone" not in run("speculate", "--simulate", "--rounds", "1000").stdout


# ------------------------------------------------------------------------------------------------ trials


def test_trials_of_the_rule() -> None:
    done = run("speculate", "--simulate", "--divergence", "0.2", "--k", "4", "--seeds", "20")
    assert done.returncode == 0
    assert "The exact rule gives the target's distribution" in done.stdout
    said = answer("speculate", "--simulate", "--divergence", "0.2", "--k", "4", "--seeds", "20")["result"]["simulation"]
    assert said["holds"]
    assert len(said["p_values"]) == 20
    assert said["uniformity_p_value"] > 0.01
    assert max(said["relaxed_p_values"]) < 1e-6
    assert said["exact"]["acceptance"]["agrees"]
    assert said["exact"]["tokens_per_round"]["formula"] == approx(3.3616)
    assert said["exact"]["tokens_per_round"]["agrees"]
    assert said["exact"]["rounds"] == 100_000


def test_given_distributions() -> None:  # F11.1, F11.10
    pair = ("--target-probabilities", "0.5,0.3,0.2", "--draft-probabilities", "0.2,0.5,0.3")
    said = answer("speculate", "--simulate", *pair, "--k", "4")["result"]["simulation"]
    assert said["divergence"] == approx(0.3)
    assert said["exact"]["acceptance"]["formula"] == approx(0.7)
    assert said["relaxed"]["rule_distance"] == approx(0.29)
    assert said["relaxed"]["chi_square"]["p_value"] < 1e-6
    typical = answer("speculate", "--simulate", *pair, "--relaxed", "typical")["result"]["simulation"]
    assert typical["relaxed"]["rule"] == "typical"


def test_trials_beside_a_table() -> None:
    result = answer(*TWO_PART, "--k", "1..12", "--simulate", "--rounds", "20000")["result"]
    assert result["simulation"]["exact"]["tokens_per_round"]["formula"] == approx(
        3.951424, rel=1e-9
    )  # at the best k, 6


# ------------------------------------------------------------------------------------------------ formats


def test_csv_is_the_table() -> None:
    text = run(*TWO_PART, "--k", "1..3", "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["k"] for row in rows] == ["1", "2", "3"]
    assert float(rows[0]["speedup"]) == approx(1.8 / 1.1, rel=1e-9)
    trials = list(
        csv.DictReader(io.StringIO(run("speculate", "--simulate", "--rounds", "5000", "--format", "csv").stdout))
    )
    assert [row["rule"] for row in trials] == ["exact", "top:2"]


def test_markdown_and_derivations() -> None:
    assert "### Speed-up by drafts" in run(*GIVEN, "--k", "1..3", "--format", "markdown").stdout
    text = run(*GIVEN, "--k", "4", "--explain").stdout
    for fragment in ("F11.2", "(1 - 0.8^5) / (1 - 0.8)", "F11.11", "plain steps"):
        assert fragment in text, fragment


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")])
def test_drawings(tmp_path: Path, name: str, start: bytes) -> None:
    path = tmp_path / name
    options = (*GIVEN, "--k", "1..12", "--concurrency", "1,64", "-o", str(path))
    assert run(*options).returncode == 0
    first = path.read_bytes()
    assert first.startswith(start)
    again = run(*options)
    assert (again.returncode, "--force replaces it" in again.stderr) == (2, True)
    assert run(*options, "--force").returncode == 0
    assert path.read_bytes() == first
    assert run(*options, "--force", "--dark").returncode == 0
    assert path.read_bytes() != first


def test_files_go_by_the_names_that_other_verbs_use(tmp_path: Path) -> None:
    written = {}
    for option, name in (("--out", "a.svg"), ("-o", "b.svg"), ("--figure", "c.svg"), ("--figure", "d.html")):
        assert run(*GIVEN, option, str(tmp_path / name)).returncode == 0
        written[name] = (tmp_path / name).read_bytes()
    assert written["a.svg"] == written["b.svg"] == written["c.svg"]
    assert written["d.html"].startswith(b"<!DOCTYPE html>")
    sized = tmp_path / "e.png"
    assert run(*GIVEN, "-o", str(sized), "--size", "900x500").returncode == 0
    header = sized.read_bytes()[16:24]
    assert (int.from_bytes(header[:4]), int.from_bytes(header[4:])) == (900, 500)


# ------------------------------------------------------------------------------------------------ wrong input

WRONG = {
    "no target": ((), "TARGET: got nothing"),
    "no device": (("llama-3-8b",), "HARDWARE: got nothing"),
    "no drafter": ((*TARGET[1:], "--acceptance", "0.8"), "drafter: got nothing"),
    "two drafters": ((*GIVEN[1:], "--method", "mtp"), "drafter: got --draft-cost and --method"),
    "no acceptance": ((*TARGET[1:], "--draft-cost", "0.1"), "acceptance: got nothing"),
    "two acceptances": ((*GIVEN[1:], "--mean-length", "3"), "acceptance: got --acceptance and --mean-length"),
    "rates and a share": (
        (*TARGET[1:], "--draft-cost", "0.1", "--per-position", "0.8", "--accepted-per-drafted", "0.5", "--k", "1"),
        "acceptance: got --per-position and --accepted-per-drafted",
    ),
    "a length of unknown drafts": ((*TARGET[1:], "--draft-cost", "0.1", "--mean-length", "3"), "want --measured-at K"),
    "a length above k + 1": (
        (*TARGET[1:], "--draft-cost", "0.1", "--mean-length", "6", "--measured-at", "4"),
        "--mean-length: got 6.0, want a number from 1 to 5",
    ),
    "measured at without use": ((*GIVEN[1:], "--measured-at", "4"), "--measured-at: got 4 with --acceptance"),
    "acceptance above one": ((*TARGET[1:], "--draft-cost", "0.1", "--acceptance", "1.2"), "--acceptance: got '1.2'"),
    "rising rates": ((*TARGET[1:], "--draft-cost", "0.1", "--per-position", "0.5,0.6"), "never rise"),
    "k backwards": ((*GIVEN[1:], "--k", "12..1"), "--k: got 12..1"),
    "k from zero": ((*GIVEN[1:], "--k", "0..4"), "--k: got 0..4"),
    "k zero": ((*GIVEN[1:], "--k", "0"), "--k: got '0'"),
    "k open": ((*GIVEN[1:], "--k", "1.."), "--k: got '1..'"),
    "k twice": ((*GIVEN[1:], "--k", "2,1..4"), "--k: got a number twice"),
    "k endless": ((*GIVEN[1:], "--k", "1..100000"), "--k: got 1..100000"),
    "k beyond the rates": (
        (*TARGET[1:], "--draft-cost", "0.1", "--per-position", "0.8,0.6", "--k", "1..4"),
        "--k: got 4, want at most 2",
    ),
    "no requests": ((*GIVEN[1:], "--concurrency", "0"), "--concurrency: got '0'"),
    "context and prompt": ((*GIVEN[1:], "--context", "100", "--prompt", "10"), "--context: got --prompt too"),
    "hits without look-ups": ((*GIVEN[1:], "--hit-rate", "0.5"), "--hit-rate: got draft-cost"),
    "hits in a tree": (
        (*TARGET[1:], "--method", "ngram", "--tree", "0.5;0.5", "--hit-rate", "0.5", "--k", "2"),
        "--tree: got branches",
    ),
    "too many layers": (
        (*TARGET[1:], "--method", "layer-skip", "--draft-layers", "33", "--acceptance", "0.8"),
        "--draft-layers: got 33",
    ),
    "ranks that do not divide": (
        (*TARGET[1:], "--draft", "llama-3.2-1b", "--draft-tp", "3", "--acceptance", "0.8"),
        "--draft-tp: got 3",
    ),
    "weights of no draft": ((*GIVEN[1:], "--draft-weights", "fp8"), "--draft-weights: got --draft-cost"),
    "a time without unit": ((*GIVEN[1:], "--overhead", "2"), "--overhead: got '2'"),
    "a draft that is not there": (
        (*TARGET[1:], "--draft", "llama-3.2-1c", "--acceptance", "0.8"),
        "did you mean",
    ),
    "rounds without trials": ((*GIVEN[1:], "--rounds", "10"), "want --simulate beside it"),
    "acceptance against divergence": (
        (*GIVEN[1:], "--simulate", "--divergence", "0.5"),
        "--acceptance: got 0.8, want 0.5",
    ),
    "half a pair": (("--simulate", "--target-probabilities", "0.5,0.5"), "--draft-probabilities beside it"),
    "a pair and a divergence": (
        ("--simulate", "--target-probabilities", "1,0", "--draft-probabilities", "1,0", "--divergence", "0"),
        "--divergence: got given distributions too",
    ),
    "no distribution": (
        ("--simulate", "--target-probabilities", "0.5,0.6", "--draft-probabilities", "0.5,0.5"),
        "sum to 1",
    ),
    "one possible token": (
        ("--simulate", "--target-probabilities", "1,0", "--draft-probabilities", "0,1"),
        "--target-probabilities: got one possible token, want two tokens that are possible",
    ),
    "one possible token that is drafted": (
        ("--simulate", "--target-probabilities", "0,1,0", "--draft-probabilities", "0.2,0.4,0.4"),
        "--target-probabilities: got one possible token",
    ),
    "too few rounds": (("--simulate", "--rounds", "1"), "--rounds: got 1, want at least "),
    "too few rounds of two tokens": (
        ("--simulate", "--target-probabilities", "0.9,0.1", "--draft-probabilities", "0.8,0.2", "--rounds", "3"),
        "--rounds: got 3, want at least 50: chi-square says something when 5 tokens of two kinds are expected",
    ),
    "all of the mass": (("--simulate", "--divergence", "1"), "divergence: got 1"),
    "an unknown rule": (("--simulate", "--relaxed", "kind"), "want exact, typical or top:N"),
    "too many seeds": (("--simulate", "--seeds", "101"), "--seeds: got 101"),
    "a deployment's option alone": (("--simulate", "--tp", "2"), "want a target for --tp"),
    "a file of unknown type": ((*GIVEN[1:], "-o", "a.gif"), "want one of .png, .svg, .pdf"),
    "a file nowhere": ((*GIVEN[1:], "-o", "/nowhere/a.png"), "no such file or directory"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_line_and_exit_code_2(name: str) -> None:
    arguments, said = WRONG[name]
    done = run("speculate", *arguments)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_as_many_rounds_as_the_message_wants_are_enough() -> None:
    pair = ("--target-probabilities", "0.9,0.1", "--draft-probabilities", "0.8,0.2")
    assert run("speculate", "--simulate", *pair, "--rounds", "50").returncode == 0


def test_nothing_is_left_of_a_figure_that_cannot_be_drawn(tmp_path: Path) -> None:
    done = run("speculate", "--simulate", "--rounds", "1000", "-o", str(tmp_path / "a.png"))
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []
