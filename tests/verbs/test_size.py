"""``roofplan size`` through the installed console script: figures, formats, exit codes, colour."""

import csv
import io
import json
from pathlib import Path

import pytest
from console import answer, run
from pytest import approx

import roofplan

WORKLOAD = ("--prompt", "4096", "--output", "512", "--concurrency", "64")
EXAMPLE = Path(__file__).parents[2] / "examples" / "llama-3.1-8b" / "config.json"

CONTRACT = {
    "model": {"parameters_total", "parameters_active", "weights_bytes", "weights_bytes_read_per_step"},
    "kv": {
        "bytes_per_token",
        "index_bytes_per_token",
        "fixed_bytes_per_sequence",
        "bytes_per_sequence",
        "bytes_per_token_per_device",
    },
    "memory": {
        "total_bytes",
        "budget_bytes",
        "weights_bytes",
        "activation_bytes",
        "non_torch_bytes",
        "graph_bytes",
        "kv_budget_bytes",
        "free_bytes",
    },
    "capacity": {"kv_tokens", "max_concurrency", "max_context", "max_batch_compute_bound"},
    "latency": {"ttft_s", "ttft_alone_s", "ttft_burst_s", "tpot_s", "itl_s", "e2e_s"},
    "throughput": {"output_tokens_per_s", "total_tokens_per_s", "per_user_tokens_per_s"},
    "intensity": {"prefill_flop_per_byte", "decode_flop_per_byte", "ridge_flop_per_byte"},
    "bottleneck": {"prefill", "decode"},
}


@pytest.mark.parametrize(
    ("model", "hardware"), [("llama-3.1-8b", "h100-sxm"), ("llama-3-70b", "a100-80gb"), ("gpt2", "epyc-9654")]
)
def test_json_keeps_its_contract_whether_it_fits_or_not(model: str, hardware: str) -> None:
    said = answer("size", model, hardware, "--output", "100")
    assert set(said) == {"schema", "command", "inputs", "result", "assumptions", "warnings"}
    assert (said["schema"], said["command"]) == ("roofplan/result/v1", "size")
    assert isinstance(said["result"]["fits"], bool)
    assert isinstance(said["result"]["reasons"], list)
    for part, names in CONTRACT.items():
        assert names <= set(said["result"][part]), part
    assert all(set(entry) == {"name", "value", "source", "kind"} for entry in said["assumptions"])
    assert all(set(entry) == {"code", "message"} for entry in said["warnings"])


def test_json_is_sorted_exact_and_repeatable() -> None:
    first, second = (run("size", "llama-3.1-8b", "h100", *WORKLOAD, "--format", "json").stdout for _ in range(2))
    assert first == second
    assert first == json.dumps(json.loads(first), sort_keys=True, indent=2) + "\n"
    assert json.loads(first)["result"]["intensity"]["ridge_flop_per_byte"] == approx(295.34328358208955, rel=1e-15)


def test_the_library_gives_the_same_answer() -> None:
    said = answer("size", "llama-3.1-8b", "h100-sxm", *WORKLOAD)
    result = roofplan.size("llama-3.1-8b", "h100-sxm", prompt=4096, output=512, concurrency=64)
    assert json.loads(json.dumps(result.to_dict())) == said


def test_a_model_can_be_a_name_an_id_a_path_a_folder_or_standard_input() -> None:
    names = ["llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", str(EXAMPLE), str(EXAMPLE.parent)]
    weights = {name: answer("size", name, "h100")["result"]["model"]["weights_bytes"] for name in names}
    assert set(weights.values()) == {16060522496}
    piped = run("size", "-", "h100", "--format", "json", stdin=EXAMPLE.read_text())
    assert json.loads(piped.stdout)["result"]["model"]["weights_bytes"] == 16060522496


def test_what_fits_exits_0_and_what_does_not_exits_1_with_remedies() -> None:
    assert run("size", "llama-3.1-8b", "h100").returncode == 0
    done = run("size", "llama-3-70b", "a100-80gb")
    assert done.returncode == 1
    assert "does not fit" in done.stdout
    assert "short per device" in done.stdout
    assert "2 devices (--tp 2)" in done.stdout
    assert "bits in the layers (now 16)" in done.stdout
    assert run("size", "llama-3-70b", "a100-80gb", "--tp", "2").returncode == 0


def test_too_many_users_wait_and_the_answer_is_no() -> None:
    said = answer("size", "llama-3.1-8b", "h100", "--prompt", "4096", "--output", "512", "--concurrency", "500")
    result = said["result"]
    assert result["reasons"] == ["kv_less_than_concurrency"]
    assert result["bottleneck"]["decode"] == "capacity"
    assert result["memory"]["free_bytes"] < 0
    assert any("sequences at a time" in remedy for remedy in result["remedies"])
    assert any("sequences of at most" in remedy for remedy in result["remedies"])
    assert result["latency"]["ttft_s"]["expected"] > result["latency"]["ttft_alone_s"]["expected"]


def test_llama_2_7b_on_the_textbook_device(tmp_path: Path) -> None:
    """The issue's worked figures: a 312 TFLOP/s, 2.0 TB/s device."""
    spec = tmp_path / "textbook.yaml"
    spec.write_text(
        "schema: roofplan/hardware/v1\nname: textbook\nmemory: {nameplate: 80 GB, bandwidth: 2.0 TB/s}\npeak: {bf16: 312 TFLOP/s}\n"
        "evidence: [{figures: [memory, peak], kind: datasheet, source: textbook}]\n"
    )
    result = answer("size", "llama-2-7b", str(spec), "--prompt", "2048", "--output", "2")["result"]
    assert result["intensity"]["ridge_flop_per_byte"] == 156.0
    assert result["work"]["prefill_flop"] == 27626028662784
    assert result["work"]["prefill_whole_step_s"] == approx(0.0885, abs=5e-5)
    assert result["capacity"]["max_batch_compute_bound"] is None
    assert result["capacity"]["max_batch_compute_bound_reason"] == "memory_bound_at_any_batch"
    assert int(result["work"]["critical_context"]) == 164
    at_4096 = answer("size", "llama-2-7b", str(spec), "--prompt", "4095", "--output", "2")["result"]
    assert at_4096["work"]["crossover_batch"] == approx(6.2756, abs=5e-5)
    short = answer("size", "llama-2-7b", str(spec), "--prompt", "1", "--output", "1")["result"]
    assert short["work"]["decode_whole_step_s"] == approx(1 / 151.35, rel=1e-3)
    assert short["capacity"]["max_batch_compute_bound"] is not None


def test_csv_has_one_figure_a_line_in_base_units() -> None:
    text = run("size", "llama-3.1-8b", "h100", *WORKLOAD, "--format", "csv").stdout
    table = dict(csv.reader(io.StringIO(text)))
    said = answer("size", "llama-3.1-8b", "h100", *WORKLOAD)["result"]
    assert float(table["latency.tpot_s.expected"]) == said["latency"]["tpot_s"]["expected"]
    assert int(table["model.weights_bytes"]) == 16060522496
    assert table["fits"] == "true"


def test_markdown_is_tables() -> None:
    text = run("size", "llama-3.1-8b", "h100", *WORKLOAD, "--format", "markdown").stdout
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert text.startswith("## llama-3.1-8b on h100-sxm5-80gb")
    widths = {line.replace("\\|", "").count("|") for line in tables}
    assert widths <= {4, 5}
    assert "### Memory per device" in text


def test_explain_shows_formula_numbers_sources_and_what_binds() -> None:
    text = run("size", "llama-3.1-8b", "h100", *WORKLOAD, "--explain").stdout
    for fragment in (
        "F3.1",
        "32 layers x 2048 elements",
        "989 TFLOP/s bf16 / 3.35 TB/s",
        "datasheet",
        "binds",
        "floor(",
    ):
        assert fragment in text, fragment
    explained = answer("size", "llama-3.1-8b", "h100", *WORKLOAD, "--explain")["explanations"]
    assert {line["figure"] for line in explained} >= {
        "model.weights_bytes",
        "kv.bytes_per_token",
        "latency.tpot_s",
        "capacity.max_concurrency",
    }
    assert all(line["formula"] and line["numbers"] for line in explained)


def test_results_go_to_stdout_without_escape_codes() -> None:
    done = run("size", "llama-3.1-8b", "h100")
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("env", "options", "colored"),
    [
        ({"FORCE_COLOR": "1"}, (), True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, (), False),
        ({"FORCE_COLOR": "", "NO_COLOR": ""}, (), False),
        ({"GITHUB_ACTIONS": "true"}, (), False),
        ({"PY_COLORS": "1"}, (), False),
        ({"TERM": "dumb"}, (), False),
        ({}, ("--color", "always"), True),
        ({"NO_COLOR": "1"}, ("--color", "always"), True),
        ({"FORCE_COLOR": "1"}, ("--color", "never"), False),
    ],
)
def test_colour_rules(env: dict[str, str], options: tuple[str, ...], colored: bool) -> None:
    assert ("\x1b[" in run("size", "llama-3.1-8b", "h100", *options, env=env).stdout) == colored


def test_numbers_are_not_cut_in_a_narrow_terminal() -> None:
    text = run("size", "llama-3.1-8b", "h100", *WORKLOAD, env={"COLUMNS": "60"}).stdout
    assert "55.66 GiB" in text
    assert "…" not in text


def test_csv_explains_in_two_more_columns() -> None:
    done = run("size", "llama-3.1-8b", "h100", "--format", "csv", "--explain")
    rows = list(csv.reader(io.StringIO(done.stdout)))
    assert rows[0] == ["figure", "value", "formula", "numbers"]
    explained = {row[0]: row[2] for row in rows[1:] if row[2]}
    assert "(F5.1)" in explained["memory.kv_budget_bytes"]
    assert {"latency.ttft_s.expected", "throughput.output_tokens_per_s.bound"} <= set(explained)


@pytest.mark.parametrize(
    ("words", "label"),
    [
        (("h100",), "total, as the driver reports it"),
        (("m2-ultra",), "total, as advertised"),
        (("h100", "--device-memory", "60 GB"), "total, as given"),
    ],
)
def test_the_report_says_whose_memory_figure_it_is(words: tuple[str, ...], label: str) -> None:
    assert label in run("size", "llama-3.1-8b", *words).stdout


def test_strict_refuses_contexts_beyond_the_model() -> None:
    assert run("kv", "llama-3.1-8b", "--context", "400000").returncode == 0
    assert run("kv", "llama-3.1-8b", "--context", "400000", "--strict").returncode == 2
