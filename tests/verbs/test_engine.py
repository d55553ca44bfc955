"""``roofplan engine`` and ``roofplan size --engine``, ``--solve``, ``--from-log`` through the installed console script."""

from __future__ import annotations

from pathlib import Path

import pytest
from console import answer, run

from roofplan import engines

LOGS = Path(__file__).parents[1] / "data" / "logs"


def test_engine_list_has_every_profile_oldest_version_first() -> None:
    names = [row["name"] for row in answer("engine", "list")["result"]["rows"]]
    assert sorted(names) == engines.CATALOGUE.slugs()
    own = [name for name in names if name.startswith("vllm@")]
    assert own.index("vllm@0.9") < own.index("vllm@0.12") < own.index("vllm@0.19")


def test_engine_show_has_inherited_figures_and_sources() -> None:
    out = run("engine", "show", "vllm@0.19.1").stdout
    assert "activations.logit_bytes" in out
    assert "sources.paging.window_blocks.source" in out


@pytest.mark.parametrize(
    ("first", "second", "code", "said"),
    [
        ("vllm@0.16", "vllm@0.17", 1, "activations.logit_bytes"),
        ("vllm@0.20", "vllm@0.21", 1, "budget.within"),
        ("vllm@0.19", "vllm@0.19.1", 0, "the same figures"),
    ],
)
def test_engine_diff_says_what_a_version_changed(first: str, second: str, code: int, said: str) -> None:
    done = run("engine", "diff", first, second)
    assert done.returncode == code
    assert said in done.stdout


def test_size_with_an_engine_shows_blocks_and_graphs() -> None:
    out = run("size", "gemma-3-12b", "h100-sxm", "--engine", "vllm@0.19", "--prompt", "8000").stdout
    assert "engine vllm 0.19" in out
    assert "beside what is usable" in out
    assert "without blocks" in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--solve", "max-context"), 0, "max-context"),
        (("--solve", "min-utilization", "--engine", "vllm"), 0, "limited by memory"),
        (("--solve", "max-concurrency", "--device-memory", "1 GiB"), 1, "none"),
    ],
)
def test_size_answers_inverse_questions(words: tuple[str, ...], code: int, said: str) -> None:
    done = run("size", "llama-3.1-8b", "h100-sxm", *words)
    assert done.returncode == code
    assert said in done.stdout


def test_size_compares_a_log_part_by_part() -> None:
    result = answer("size", "h100-sxm", "--from-log", str(LOGS / "vllm-0.19-llama-8b.log"))["result"]
    parts = {part["part"]: part for part in result["log"]["parts"]}
    assert {"weights", "activations", "runtime", "graphs", "cache", "tokens", "concurrency"} <= set(parts)
    assert all(abs(part["error"]) < 0.01 for part in parts.values())


@pytest.mark.parametrize(
    ("log", "words", "within"),
    [
        ("vllm-0.19-llama-70b-tp4.log", ("h100-sxm",), {"cache": 0.01, "tokens": 0.01}),
        ("sglang-0.4-llama-8b.log", ("llama-3.1-8b", "h100-sxm"), {"cache": 0.01, "tokens": 0.01}),
        ("llama.cpp-b4701-qwen-3b.log", ("qwen2.5-3b", "rtx-4080-super"), {"cache": 1e-9, "compute buffer": 1e-3}),
    ],
)
def test_size_reads_logs_of_every_engine(log: str, words: tuple[str, ...], within: dict[str, float]) -> None:
    result = answer("size", *words, "--from-log", str(LOGS / log))["result"]
    parts = {part["part"]: part["error"] for part in result["log"]["parts"]}
    assert {name: abs(parts[name]) <= limit for name, limit in within.items()} == dict.fromkeys(within, True)


def test_options_go_before_what_a_log_says() -> None:
    log = str(LOGS / "vllm-0.19-llama-8b.log")
    asked = answer("size", "h100-sxm", "--from-log", log, "--memory-utilization", "0.5")["inputs"]
    assert asked["memory_utilization"] == 0.5


def test_a_log_never_chooses_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text("password: 1\n", encoding="utf-8")
    text = (LOGS / "vllm-0.19-llama-8b.log").read_text(encoding="utf-8")
    log = tmp_path / "serve.log"
    log.write_text(text.replace("meta-llama/Llama-3.1-8B-Instruct", str(secret)), encoding="utf-8")
    done = run("size", "h100-sxm", "--from-log", str(log))
    assert done.returncode == 2
    assert "password" not in done.stdout + done.stderr
    assert "MODEL: got nothing" in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "want"),
        ("INFO Initializing a V1 LLM engine (v0.19.0) with config: model='a/b', tensor_parallel_size=1\n", "log"),
        ("nothing that any engine prints\n", "want"),
    ],
)
def test_a_log_that_is_cut_or_unknown_is_refused(tmp_path: Path, content: str, said: str) -> None:
    log = tmp_path / "serve.log"
    log.write_text(content, encoding="utf-8")
    done = run("size", "llama-3.1-8b", "h100-sxm", "--from-log", str(log))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr
