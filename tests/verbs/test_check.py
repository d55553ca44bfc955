"""``roofplan check`` as people run it: what is read, what is printed where, and the exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest
from console import SCRIPT, answer, run

GOOD = "schema: roofplan/deployment/v1\nmodel: llama-3.1-8b\nhardware: h100-sxm\n"
MISSED = GOOD + "limits:\n  ttft: 1 ms\n"
COMMAND = "#!/bin/sh\nvllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(GOOD)
    Path("missed.yaml").write_text(MISSED)
    return tmp_path


def test_a_deployment_that_holds() -> None:
    done = run("check", "good.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert "No findings in 1 service of 1 file." in done.stdout


def test_a_limit_that_is_missed_points_at_its_line() -> None:
    done = run("check", "good.yaml", "missed.yaml")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("missed.yaml:5:9: error: ")
    assert "ttft: 1 ms\n" in done.stdout


def test_the_answer_as_json() -> None:
    done = run("check", "missed.yaml", "--format", "json")
    found = json.loads(done.stdout)["result"]["findings"]
    assert done.returncode == 1
    assert [(one["rule"], one["file"], one["line"], one["column"]) for one in found] == [
        ("ttft-limit-missed", "missed.yaml", 5, 9)
    ]
    assert answer("check", "good.yaml")["result"]["findings"] == []


def test_standard_input() -> None:
    done = run("check", "-", stdin=MISSED)
    assert done.returncode == 1
    assert done.stdout.startswith("<stdin>:5:9: error: ")
    script = run("check", "-", "--hardware", "h100-sxm", "--format", "json", stdin=COMMAND)
    (service,) = json.loads(script.stdout)["result"]["services"]
    assert (service["kind"], service["file"], service["engine"].partition("@")[0]) == ("command", "<stdin>", "vllm")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--exit-zero"], 0),
        (["--fail-on", "never"], 0),
        (["--fail-on", "error"], 1),
        (["--fail-on", "warning"], 1),
        (["--ignore", "ttft-limit-missed"], 0),
        (["--select", "tpot-limit-missed,does-not-fit"], 0),
        (["--select", "tpot-limit-missed", "--select", "ttft-limit-missed"], 1),
    ],
)
def test_what_fails(arguments: list[str], code: int) -> None:
    assert run("check", "missed.yaml", *arguments).returncode == code


def test_what_cannot_be_checked_is_two_whatever_else_is_found() -> None:
    Path("broken.yaml").write_text("a: [1,\n")
    done = run("check", ".", "--exit-zero")
    assert done.returncode == 2
    assert "broken.yaml:2:1: not checked: malformed YAML" in done.stdout
    assert "missed.yaml:5:9: error: " in done.stdout


def test_settings_of_the_folder() -> None:
    Path(".roofplan.toml").write_text('[check]\nignore = ["ttft-limit-missed"]\n')
    assert run("check", "missed.yaml").returncode == 0
    Path(".roofplan.toml").write_text('[check]\nignored = ["ttft-limit-missed"]\n')
    done = run("check", "missed.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("roofplan: .roofplan.toml:2: ignored: got an unknown key")


def test_a_baseline_is_made_and_kept() -> None:
    assert run("check", "missed.yaml", "--baseline", "known.json").returncode == 2
    made = run("check", "missed.yaml", "--baseline", "known.json", "--update-baseline")
    assert (made.returncode, made.stderr) == (0, "")
    assert run("check", "missed.yaml", "--baseline", "known.json").returncode == 0
    Path("more.yaml").write_text(MISSED)
    assert run("check", ".", "--baseline", "known.json").returncode == 1


def test_rules_are_listed_and_explained() -> None:
    listed = run("check", "--list-rules")
    assert listed.returncode == 0
    assert "does-not-fit " in listed.stdout
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    rules = json.loads(run("check", "--list-rules", "--format", "json").stdout)["rules"]
    assert [rule["id"] for rule in rules] == names == sorted(names)
    explained = run("check", "--explain", "does-not-fit")
    assert explained.stdout.startswith("does-not-fit (error): ")
    assert "# roofplan: ignore[does-not-fit] reason" in explained.stdout
    wrong = run("check", "--explain", "does-not-fitt")
    assert wrong.returncode == 2
    assert "(did you mean does-not-fit?)" in wrong.stderr


def test_every_rule_explains_itself() -> None:
    for rule in json.loads(run("check", "--list-rules", "--format", "json").stdout)["rules"]:
        assert rule["severity"] in {"error", "warning", "note"}
        assert all(len(rule[part]) > 10 for part in ("title", "why", "fix")), rule["id"]
        assert rule["why"].endswith(".")
        assert rule["fix"].endswith(".")


def test_a_report_is_written_and_the_text_shown() -> None:
    done = run("check", "missed.yaml", "--format", "sarif", "-o", "found.sarif")
    assert done.returncode == 1
    assert done.stdout.startswith("missed.yaml:5:9: error: ")
    assert json.loads(Path("found.sarif").read_text())["version"] == "2.1.0"
    again = run("check", "missed.yaml", "--format", "sarif", "-o", "found.sarif")
    assert again.returncode == 2
    assert "--force replaces it" in again.stderr
    assert run("check", "missed.yaml", "-o", "found.sarif", "--force").returncode == 1
    assert run("check", "missed.yaml", "-o", "none/found.txt").returncode == 2


@pytest.mark.parametrize("name", ["text", "json", "github", "sarif", "junit", "gitlab", "markdown"])
def test_every_format(name: str) -> None:
    for file, code in (("good.yaml", 0), ("missed.yaml", 1), ("none.yaml", 2)):
        done = run("check", file, "--format", name)
        assert (done.returncode, done.stderr) == (code, "")
        assert file != "missed.yaml" or "ttft-limit-missed" in done.stdout


def test_what_a_change_does() -> None:
    Path("old.yaml").write_text(GOOD + "name: chat\n")
    Path("new.yaml").write_text(GOOD + "name: chat\nkv: fp8\n")
    done = run("check", "new.yaml", "--diff", "old.yaml", "--format", "markdown")
    assert (done.returncode, done.stderr) == (0, "")
    assert "fp8" in done.stdout
    assert "|" in done.stdout
    missing = run("check", "new.yaml", "--diff", "none.yaml")
    assert missing.returncode == 2
    assert "none.yaml" in missing.stdout


def test_the_first_file_is_written_from_options_or_a_manifest() -> None:
    done = run(
        "check", "--init", "--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--concurrency", "8", "-o", "first.yaml"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert run("check", "first.yaml").returncode == 0
    Path("serve.sh").write_text(COMMAND)
    shown = run("check", "serve.sh", "--hardware", "h100-sxm", "--init")
    assert shown.returncode == 0
    assert "schema: roofplan/deployment/v1\n" in shown.stdout
    assert "max_model_len: 8192\n" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "FILE: got nothing, want deployment files"),
        (["good.yaml", "--update-baseline"], "--update-baseline: got no file, want --baseline FILE"),
        (["good.yaml", "--select", "nothing"], "--select: got nothing, want a rule"),
        (["good.yaml", "--fail-on", "note"], "--fail-on"),
        (["good.yaml", "--format", "csv"], "--format"),
        (["good.yaml", "--prompt", "8k"], "--prompt: got '8k'"),
        (["good.yaml", "--hardwear", "x"], "--hardwear"),
        (["--init"], "model: got nothing, want a name"),
        (["good.yaml", "missed.yaml", "--init"], "FILE: got 2 services, want one"),
    ],
)
def test_wrong_arguments_are_one_line_and_two(arguments: list[str], said: str) -> None:
    done = run("check", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("roofplan: ")


def test_a_stream_without_end_is_read_to_the_largest_size() -> None:
    command = f"yes 'a: 1' | {SCRIPT} check -"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "<stdin>: not checked: file: got more than 1,048,576 bytes" in done.stdout


def test_a_device_and_a_large_file_are_refused_at_once() -> None:
    with Path("large.yaml").open("wb") as stream:
        stream.truncate(2**30)
    Path("zero.yaml").symlink_to("/dev/zero")
    os.mkfifo("fifo.yaml")
    done = run("check", ".")
    assert done.returncode == 2
    assert "large.yaml: not checked: file: got more than 1,048,576 bytes" in done.stdout
    for name in ("zero", "fifo"):
        assert f"{name}.yaml: not checked: file: got a folder, FIFO or device" in done.stdout
    assert "missed.yaml:5:9: error" in done.stdout


def test_thousands_of_manifests() -> None:
    Path("many").mkdir()
    for number in range(2_000):
        Path("many", f"{number}.yaml").write_text(f"{GOOD}name: service-{number}\nconcurrency: {1 + number % 20}\n")
    done = run("check", "many")
    assert (done.returncode, done.stderr) == (0, "")
    assert "2,000 services of 2,000 files" in done.stdout


def test_progress_is_shown_to_people_only() -> None:
    reader, writer = pty.openpty()
    done = subprocess.run(
        [str(SCRIPT), "check", "good.yaml"], stdout=subprocess.PIPE, stderr=writer, timeout=30, check=False
    )
    os.close(writer)
    assert done.returncode == 0
    assert b"0 of 1 files" in os.read(reader, 1000)
    os.close(reader)
    assert run("check", "good.yaml").stderr == ""


def test_help_shows_examples_and_exit_codes() -> None:
    done = run("check", "--help", env={"COLUMNS": "120"})
    assert done.returncode == 0
    for text in ("roofplan check deployment.yaml", "--baseline", "--fail-on", "Exit code: 0"):
        assert text in done.stdout
