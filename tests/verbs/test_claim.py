"""``roofplan claim`` through the installed console script: figures, verdicts and exit codes, and what is refused."""

import csv
import io
import json

import pytest
from console import answer, run
from pytest import approx

import roofplan
from roofplan import cli

ON_A100 = ("llama-3-8b", "a100-80gb")
LOGGED = (
    "--device-memory",
    str(int(79.18 * 2**30)) + " B",
    "--activation-memory",
    "5798205849 B",
    "--runtime-memory",
    "0 B",
)
CONTRACT = {"verdict", "bound_tokens_per_s", "ratio", "means", "reasons"}


def claimed(*words: str) -> dict:
    return answer("claim", *words)["result"]


def means(result: dict, name: str) -> dict:
    return next(each for each in result["means"] if each["id"] == name)


def test_500_tokens_per_second_on_one_a100() -> None:  # F16
    said = answer("claim", "500 tok/s", *ON_A100)
    result = said["result"]
    assert (said["schema"], said["command"]) == ("roofplan/result/v1", "claim")
    assert result.keys() >= CONTRACT
    assert result["verdict"] == "needs_help"
    assert result["bound_tokens_per_s"] == approx(135.8489542512466, rel=1e-12)
    assert result["ratio"] == approx(3.680558328592447, rel=1e-12)
    assert means(result, "weight_quantisation")["bound_tokens_per_s"] == approx(435.9959486888663, rel=1e-12)
    assert not means(result, "weight_quantisation")["explains"]
    assert means(result, "speculation")["setting"]["acceptance"] == approx(0.8486563493444659, rel=1e-9)
    assert means(result, "batching")["explains"]
    assert result["range"]["low"] < result["range"]["expected"] < result["range"]["high"] < result["range"]["bound"]
    users = means(claimed("500 tok/s", *ON_A100, "--context", "500"), "batching")
    assert (users["setting"], users["explains"]) == ({"users": 4}, True)
    assert users["bound_tokens_per_s"] == approx(534.06809424673, rel=1e-12)


@pytest.mark.parametrize(
    ("words", "verdict", "code"),
    [
        (("90 tok/s", *ON_A100), "plausible", 0),
        (("500 tok/s", *ON_A100), "needs_help", 0),
        (("130 tok/s", *ON_A100), "needs_help", 0),
        (("10 tok/s", *ON_A100), "slower_than_it_should_be", 0),
        (("12 ms/token", *ON_A100), "plausible", 0),
        (("1000000 tok/s/user", *ON_A100), "impossible", 1),
        (("1 us TTFT", *ON_A100, "--context", "4096"), "impossible", 1),
        (("300 ms TTFT", *ON_A100, "--context", "4000"), "plausible", 0),
        (("4x", *ON_A100, "--by", "weights", "--weights", "int4-g128"), "impossible", 1),
        (("4500 tok/s", "llama-3-8b", "h100", "--users", "64", "--prompt", "1024", "--output", "256"), "plausible", 0),
    ],
)
def test_verdicts_and_exit_codes(words: tuple[str, ...], verdict: str, code: int) -> None:
    done = run("claim", *words, "--format", "json")
    assert json.loads(done.stdout)["result"]["verdict"] == verdict
    assert done.returncode == code


@pytest.mark.parametrize(
    ("weights", "kv", "held"), [("bf16", "bf16", 105), ("all=fp8", "bf16", 158), ("all=fp8", "fp8", 316)]
)
def test_row_16_sequences_of_4096_tokens_on_four_h100(weights: str, kv: str, held: int) -> None:
    """The claim was about 360 for a 70B model."""
    words = ("360 sequences", "llama-3-70b", "h100", "--devices", "4", "--context", "4096")
    result = claimed(*words, "--weights", weights, "--kv", kv, *LOGGED)
    assert result["bound_sequences"] == held
    assert result["ratio"] == approx(360 / held)
    assert (result["verdict"], result["reasons"]) == ("needs_help", ["memory_holds_fewer"])


@pytest.mark.parametrize(
    ("drafts", "tokens", "round_time", "gain"), [("1", "1.75", "98.7 ms", 0.668), ("7", "3.21", "263 ms", 0.460)]
)
def test_row_38_good_acceptance_and_no_gain(drafts: str, tokens: str, round_time: str, gain: float) -> None:
    used = ("--drafts", drafts, "--tokens-per-round", tokens, "--round-time", round_time, "--step-time", "37.7 ms")
    done = run("claim", f"{tokens}x", "qwen3-8b", "h100", "--by", "speculation", *used, "--format", "json")
    result = json.loads(done.stdout)["result"]
    assert result["expected_gain"] == approx(gain, abs=0.001)
    assert "round_costs_more_than_its_tokens" in result["reasons"]
    assert done.returncode == 1


def test_row_41_half_a_millisecond_for_each_all_reduce() -> None:
    words = ("2x", "llama-2-7b", "a100-80gb", "--by", "devices", "--devices", "2", "--all-reduce", "500 us")
    result = claimed(*words)
    assert result["figures"]["all_reduces"] == 64
    assert result["figures"]["exchange_s"] == approx(32e-3, rel=1e-12)
    assert (result["verdict"], result["reasons"]) == ("needs_help", ["exchanges_outweigh"])
    assert result["range"]["high"] < 1 < result["bound_gain"]
    assert result["expected_gain"] < 17 / 29  # of kernels that took 34.5 ms a token on one device


def test_row_44_the_datasheet_is_not_what_is_reached() -> None:
    result = claimed("130 tok/s", *ON_A100)
    assert result["reasons"] == ["datasheet_is_not_reached"]
    assert result["ratio"] < 1
    slow = claimed("20 tok/s", *ON_A100)
    causes = {cause["code"]: cause["figures"] for cause in slow["causes"]}
    assert causes["datasheet_is_not_reached"]["share_of_roof"] == approx(20 / 135.8489542512466, rel=1e-9)
    assert causes["datasheet_is_not_reached"]["bandwidth_bytes_per_s"] == approx(2.039e12 * 20 / 135.8489542512466)


def test_256_fold_counts_passes(tmp_path) -> None:  # F17
    result = claimed("256x", "llama-2-7b", "a100-80gb", "--by", "cache", "--prompt", "1", "--output", "512")
    assert result["figures"]["token_passes"] == 256.5
    assert result["figures"]["flop"] == approx(250.62441821645294, rel=1e-12)
    assert result["figures"]["time"] == approx(1.8, abs=0.05)
    assert result["reasons"] == ["counts_token_passes_not_time"]


@pytest.mark.parametrize(
    "words",
    [
        ("1000 tok/s", "deepseek-v3", "h200", "--tp", "8"),
        ("500 tok/s", *ON_A100),
        ("5000 tok/s", *ON_A100, "--users", "64", "--context", "8000"),
        ("50000 tok/s", *ON_A100, "--users", "512", "--context", "1"),
        ("300 ms TTFT", *ON_A100, "--context", "4000"),
    ],
)
def test_the_roof_is_limited_by_what_it_is_made_of(words: tuple[str, ...]) -> None:
    """At nominal rates there are no launches and no host: the roof is never limited by overhead, whatever is reached."""
    result = answer("claim", *words)["result"]
    limit = result["roof_bottleneck"]
    assert limit in {"compute", "weight_bandwidth", "kv_bandwidth"}
    text = run("claim", *words, "--explain").stdout
    (line,) = (line for line in text.splitlines() if line.strip().startswith("roof  "))
    assert line.rstrip().endswith(f"limited by {limit}")
    assert result["bottleneck"] is not None  # of what is reached


def test_what_is_reached_may_be_limited_by_something_else() -> None:
    result = claimed("1000 tok/s", "deepseek-v3", "h200", "--tp", "8")
    assert (result["roof_bottleneck"], result["bottleneck"]) == ("weight_bandwidth", "overhead")


@pytest.mark.parametrize(
    ("words", "end"),
    [
        (("20 s/token", *ON_A100), "at most"),
        (("100 s TTFT", *ON_A100, "--context", "4000"), "at most"),
        (("10 tok/s", *ON_A100), "at least"),
        (("10 tok/s/user", *ON_A100), "at least"),
        (("1 tok/s/gpu", *ON_A100), "at least"),
    ],
)
def test_the_slow_end_of_a_time_is_its_most_and_of_a_rate_its_least(words: tuple[str, ...], end: str) -> None:
    verdict = run("claim", *words).stdout.splitlines()[1]
    assert verdict.startswith("Slower than it should be: ")
    expected, _, slowest = (
        verdict.removeprefix("Slower than it should be: ").rstrip(".").partition(f" is expected, {end} ")
    )
    result = claimed(*words)
    shown = [float(text.split()[0].replace(",", "")) for text in (expected, slowest)]
    assert slowest
    assert (shown[1] > shown[0]) == (end == "at most")
    slow_end = result["range"]["high" if end == "at most" else "low"]
    assert shown[1] / shown[0] == approx(slow_end / result["range"]["expected"], rel=0.01)


def test_a_means_that_explains_a_claim_at_the_roof_only_is_said_to() -> None:
    words = ("500 tok/s", *ON_A100, "--context", "500")
    users = means(claimed(*words), "batching")
    assert users["expected_tokens_per_s"] < 500 < users["bound_tokens_per_s"]
    assert (users["explains"], users["explains_as_reached"]) == (True, False)
    text = run("claim", *words).stdout
    (line,) = (line for line in text.splitlines() if line.strip().startswith("more users  "))
    assert line.rstrip().endswith("explains it at the roof")
    assert "would explain it at the roof." in text
    held = claimed("360 sequences", "llama-3-70b", "h100", "--devices", "4", "--context", "4096")
    assert all(each["explains_as_reached"] for each in held["means"] if each["explains"])  # memory has no roof
    within = ("110 tok/s", *ON_A100)
    for each in claimed(*within)["means"]:  # below the roof: means have to reach it
        assert each["explains"] == each["explains_as_reached"]


def test_the_library_gives_the_same_answer() -> None:
    said = answer("claim", "500 tok/s/user", *ON_A100, "--users", "8", "--context", "2000")
    result = roofplan.claim("500 tok/s/user", *ON_A100, concurrency=8, context=2000)
    assert json.loads(json.dumps(result.to_dict())) == said
    gain = roofplan.claim("2x", *ON_A100, by="kv", kv="fp8", context="2000")
    assert isinstance(gain, roofplan.GainResult)
    assert json.loads(json.dumps(gain.to_dict())) == answer(
        "claim", "2x", *ON_A100, "--by", "kv", "--kv", "fp8", "--context", "2000"
    )


def test_text_says_what_explains_it_and_why_the_rest_does_not() -> None:
    done = run("claim", "500 tok/s", *ON_A100)
    assert "3.681 times the roof, 136 tokens/s" in done.stdout
    assert "more users, or drafts, or more devices would explain it" in done.stdout
    assert "acceptance 0.8487, 10 drafts" in " ".join(done.stdout.split())
    assert done.stderr == ""
    together = run("claim", "1500 tok/s/user", *ON_A100, "--context", "8000").stdout
    assert "The fewest together" in together
    assert "Slower than it should be" in run("claim", "10 tok/s", *ON_A100, "--devices", "2").stdout


def test_a_time_is_shown_from_its_least_to_its_most() -> None:
    text = run("claim", "20 ms TTFT", *ON_A100, "--context", "4000").stdout
    line = next(line for line in text.splitlines() if line.strip().startswith("expected"))
    numbers = [float(word) for word in line.split() if word.replace(".", "").isdigit()]
    assert numbers[1] < numbers[0] < numbers[2]


@pytest.mark.parametrize(
    "words", [("500 tok/s", *ON_A100), ("4x", *ON_A100, "--by", "weights", "--weights", "int4-g128")]
)
def test_other_formats_and_the_derivation(words: tuple[str, ...]) -> None:
    table = dict(csv.reader(io.StringIO(run("claim", *words, "--format", "csv").stdout)))
    said = claimed(*words)
    assert table["verdict"] == said["verdict"]
    assert float(table["ratio"]) == said["ratio"]
    markdown = run("claim", *words, "--format", "markdown", "--explain").stdout
    assert markdown.startswith("## ")
    assert "(F" in markdown
    explained = json.loads(run("claim", *words, "--format", "json", "--explain").stdout)["explanations"]
    assert {"ratio"} <= {line["figure"] for line in explained}


def test_a_plain_claim_loads_nothing_heavy() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from roofplan import cli\n"
        "cli.run(['claim', '500 tok/s', 'llama-3-8b', 'a100', '--format', 'json'])\n"
        "print(' '.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "matplotlib", "torch", "rich"} & set(done.stderr.split())


REFUSED = [
    (("500", *ON_A100), "CLAIM: got '500'"),
    (("20 ms", *ON_A100), "a time of what?"),
    (("500 tok/s", "no-such-model", "a100"), "no-such-model"),
    (("500 tok/s", "llama-3-8b", "no-such-device"), "no-such-device"),
    (("2x", *ON_A100), "a gain by what? --by"),
    (("500 tok/s", *ON_A100, "--by", "cache"), "--by: got cache, want the claim of a gain"),
    (("2x", *ON_A100, "--by", "magic"), "--by: got magic, want one of cache, weights"),
    (("2x", *ON_A100, "--by", "cache"), "want --prompt and --output"),
    (("2x", *ON_A100, "--by", "weights"), "--weights: got bf16, want a format narrower"),
    (("2x", *ON_A100, "--by", "kv"), "--kv: got bf16, want a format narrower"),
    (("2x", *ON_A100, "--by", "batching"), "--users: got 1, want at least 2"),
    (("2x", *ON_A100, "--by", "devices"), "--devices: got 1, want at least 2"),
    (
        ("2x", *ON_A100, "--by", "speculation"),
        "--by speculation: got neither --acceptance nor --tokens-per-round, want one of them",
    ),
    (
        ("2x", *ON_A100, "--by", "speculation", "--acceptance", "0.8", "--tokens-per-round", "2"),
        "--by speculation: got --acceptance and --tokens-per-round, want one of them",
    ),
    (
        ("2x", *ON_A100, "--by", "speculation", "--acceptance", "0.8", "--round-time", "20 ms"),
        "--by speculation: got --round-time alone, want both --round-time and --step-time",
    ),
    (
        ("2x", *ON_A100, "--by", "speculation", "--acceptance", "0.8", "--step-time", "20 ms"),
        "--by speculation: got --step-time alone, want both --round-time and --step-time",
    ),
    (("2x", *ON_A100, "--by", "speculation", "--drafts", "1", "--tokens-per-round", "3"), "tokens per round: got 3"),
    (("2x", *ON_A100, "--by", "kv", "--kv", "fp8", "--drafts", "3"), "--drafts: got 3, want --by speculation"),
    (("500 tok/s", *ON_A100, "--tokens-per-round", "2"), "--tokens-per-round: got 2, want --by speculation"),
    (("500 tok/s", *ON_A100, "--context", "100", "--prompt", "100"), "either --context, or --prompt"),
    (("300 ms TTFT", *ON_A100), "want the tokens of the prompt"),
    (("360 sequences", *ON_A100), "want the tokens of a sequence"),
    (("500 tok/s", *ON_A100, "--context", "8k"), "--context: got '8k'"),
    (("500 tok/s", *ON_A100, "--context", "-1"), "--context: got '-1'"),
    (("500 tok/s", *ON_A100, "--context", "20000", "--strict"), "context: got 20000 tokens, want at most 8192"),
    (("500 tok/s", *ON_A100, "--users", "0"), "--users: got '0'"),
    (("500 tok/s", *ON_A100, "--users", "-3"), "--users: got '-3'"),
    (("500 tok/s", *ON_A100, "--users", "many"), "--users: got 'many'"),
    (("500 tok/s", *ON_A100, "--acceptance", "1.2"), "--acceptance: got '1.2'"),
    (("500 tok/s", *ON_A100, "--draft-cost", "nan"), "--draft-cost: got 'nan'"),
    (("500 tok/s", *ON_A100, "--drafts", "65"), "--drafts: got 65, want a whole number"),
    (("500 tok/s", *ON_A100, "--all-reduce", "5"), "--all-reduce: got '5'"),
    (("500 tok/s", *ON_A100, "--all-reduce", "0 ms"), "greater than zero"),
    (("500 tok/s", *ON_A100, "--tp", "3"), "--tp: got 3"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED)
def test_what_does_not_go_together_is_refused_in_one_line(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.run(["claim", *words])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("roofplan: ")
    assert said in err
    assert err.count("\n") == 1


def test_help_shows_examples_and_exit_codes() -> None:
    text = run("claim", "--help").stdout
    assert 'roofplan claim "500 tok/s" llama-3.1-8b a100-80gb' in text
    assert "1 impossible" in text
