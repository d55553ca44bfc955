"""A run: files are found, read and checked, each on its own; what the settings say; what is in the result."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roofplan.checks import plans, run
from roofplan.checks.checked import Unbuilt
from roofplan.checks.finding import Finding, Rule
from roofplan.checks.record import Place, Pod, Reading, Said, Service
from roofplan.checks.result import Problem
from roofplan.checks.run import check_paths, check_service, check_text, only_service
from roofplan.checks.settings import COMMAND_LINE, Settings
from roofplan.checks.settings import load as load_settings
from roofplan.errors import ExitCode, RoofplanError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roofplan.checks.checked import Checked

HEAD = "schema: roofplan/deployment/v1\nmodel: llama-3.1-8b\n"
GOOD = HEAD + "hardware: h100-sxm\n"
MISSED = GOOD + "limits:\n  ttft: 1 ms\n"
PLACE = Place("a.yaml", 3, 5)


def option(value: Any, line: int = 3) -> Said[Any]:
    return Said(value, Place("a.yaml", line, 5))


def service(**options: Any) -> Service:
    said = {name: option(value, line) for line, (name, value) in enumerate(options.items(), 10)}
    return Service(
        kind="command",
        name="chat",
        place=Place("a.yaml", 1, 1),
        engine=Said("plain", Place("a.yaml", 1, 1)),
        options=said,
    )


def settings(**defaults: Any) -> Settings:
    return Settings(defaults={name: Said(value, Place(COMMAND_LINE)) for name, value in defaults.items()})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def only(monkeypatch: pytest.MonkeyPatch, *rules: Rule) -> None:
    """Let a run know these rules only."""
    monkeypatch.setattr(run, "all_rules", lambda: rules)


def rule(name: str, check: Any, severity: Any = "error") -> Rule:
    return Rule(name, severity, name, "why", "fix", check)


# ------------------------------------------------------------------------------------------------ files


def test_a_folder_is_walked_and_each_file_read_once(folder: Path) -> None:
    for name in (
        "b/one.yaml",
        "a/two.yml",
        "a/three.json",
        "c/.hidden/x.yaml",
        "c/node_modules/x.yaml",
        "readme.md",
        "d/serve.sh",
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            '{"schema": "roofplan/deployment/v1", "model": "gpt2", "hardware": "l40s"}'
            if name.endswith("json")
            else GOOD
        )
    result = check_paths([".", "a", "b/one.yaml", folder / "a" / "two.yml"], Settings())
    assert [found.place.file for found in result.services] == ["a/three.json", "a/two.yml", "b/one.yaml"]
    assert result.skipped == {"other text": 1}  # a script without a command that starts an engine
    assert (result.files, result.problems, result.exit_code) == (4, (), ExitCode.YES)
    assert check_paths(["c"], Settings()).files == 0


def test_what_is_excluded_is_not_read(folder: Path) -> None:
    for name in ("charts/x/a.yaml", "deploy/b.yaml", "deploy/b-values.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(GOOD)
    result = check_paths(["."], Settings(exclude=("charts/", "*-values.yaml")))
    assert [found.place.file for found in result.services] == ["deploy/b.yaml"]


def test_links_in_a_circle_end(folder: Path) -> None:
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "up").symlink_to(folder / "a", target_is_directory=True)
    (inner / "self.yaml").symlink_to(inner / "self.yaml")
    (inner / "good.yaml").write_text(GOOD)
    (inner / "same.yaml").symlink_to("good.yaml")
    result = check_paths(["a"], Settings())
    assert len(result.services) == 1
    assert [problem.place.file for problem in result.problems] == ["a/b/self.yaml"]
    assert "symbolic links" in result.problems[0].message


def test_one_bad_file_never_stops_the_rest(folder: Path) -> None:
    files: dict[str, bytes] = {
        "alias.yaml": b"vllm: &a {b: *c}\n",
        "binary.yaml": bytes(range(256)) * 10,
        "bomb.yaml": b"a: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + b"".join(b"%c: &%c [%s]\n" % (at, at, b",".join([b"*%c" % (at - 1)] * 10)) for at in range(98, 106)),
        "broken.yaml": b"model: [1,\n",
        "nul.sh": b"vllm serve x\0\n",
        "good.yaml": GOOD.encode(),
        "large.yaml": b"# " + b"x" * 2**20 + b"\n",
        "missed.yaml": MISSED.encode(),
        "two.yaml": (GOOD + "---\n" + MISSED + "---\nkind: ConfigMap\napiVersion: v1\n").encode(),
        "wrong.yaml": (GOOD + "---\n" + GOOD + "tp: 3\nnonsense: 1\n").encode(),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    os.mkfifo(folder / "fifo.yaml")
    result = check_paths(["."], Settings())
    said = {problem.place.file: str(problem.place) + " " + problem.message for problem in result.problems}
    wanted = {
        "alias.yaml": "alias.yaml:1:14 YAML: got an alias (*c)",
        "binary.yaml": "binary.yaml text: got a byte that is not UTF-8 at offset 128",
        "bomb.yaml": "YAML: got more than 100,000 values",
        "broken.yaml": "broken.yaml:2:1 malformed YAML",
        "fifo.yaml": "fifo.yaml file: got a folder, FIFO or device",
        "large.yaml": "large.yaml file: got more than 1,048,576 bytes",
        "nul.sh": "nul.sh text: got a binary file",
        "wrong.yaml": "wrong.yaml:9:11 nonsense: got an unknown key",
    }
    assert said.keys() == wanted.keys()
    for name, text in wanted.items():
        assert text in said[name]
    assert [found.place.file for found in result.services] == [
        "good.yaml",
        "missed.yaml",
        "two.yaml",
        "two.yaml",
        "wrong.yaml",
    ]
    assert [str(finding.place) for finding in result.findings] == ["missed.yaml:5:9", "two.yaml:9:9"]
    assert result.skipped == {"ConfigMap": 1}
    assert result.exit_code is ExitCode.BAD_INPUT


def test_what_may_not_be_read_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/x.yaml", "b/x.yaml", "c/x.yaml"):
        (folder / name).parent.mkdir()
        (folder / name).write_text(GOOD)
    opened, scanned = os.open, os.scandir

    def refused(path: str) -> PermissionError:
        return PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    def open_(path: Any, *rest: Any, **named: Any) -> int:
        if str(path) == "a/x.yaml":  # the superuser, as whom tests run in containers, may read everything
            raise refused(path)
        return opened(path, *rest, **named)

    def scandir(path: Any) -> Any:
        if str(path).endswith("b"):
            raise refused(path)
        return scanned(path)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "scandir", scandir)
    result = check_paths(["."], Settings())
    assert [(problem.place.file, problem.message) for problem in result.problems] == [
        ("a/x.yaml", "file: got permission denied"),
        ("b", "folder: got permission denied"),
    ]
    assert [found.place.file for found in result.services] == ["c/x.yaml"]


def test_what_somebody_else_writes_is_passed_over(folder: Path) -> None:
    (folder / "package.json").write_text("{// comments\n}")
    (folder / "cloud.yaml").write_text("Value: !Ref Bucket\n")
    (folder / "list.yaml").write_text("[1, 2]\n")
    (folder / "crd.yaml").write_text(
        "apiVersion: example.com/v1\nkind: Widget\n---\napiVersion: example.com/v1\nkind: Widget\n"
    )
    (folder / "build.sh").write_text("make\n")
    (folder / "empty.yaml").write_text("---\n")
    (folder / "m.yaml").write_text("schema: roofplan/model/v1\n")
    result = check_paths(["."], Settings())
    assert result.problems == ()
    assert result.skipped == {
        "Widget": 2, "YAML with tags": 1, "empty file": 1, "other data": 1, "other file": 2, "roofplan/model/v1": 1,
    }  # fmt: skip
    assert [notice.code for notice in result.warnings] == ["no_deployments"]
    assert result.exit_code is ExitCode.YES


def test_a_file_that_is_named_is_read_whatever_it_is(folder: Path) -> None:
    (folder / "package.json").write_text("{// comments\n}")
    (folder / "cloud.yaml").write_text("Value: !Ref Bucket\n")
    result = check_paths(["package.json", "cloud.yaml", "none.yaml", "\0"], Settings())
    assert [problem.place.file for problem in result.problems] == ["\0", "cloud.yaml", "none.yaml", "package.json"]


def test_progress_counts_files(folder: Path) -> None:
    for at in range(3):
        (folder / f"{at}.yaml").write_text(GOOD)
    seen: list[tuple[int, int]] = []
    check_paths(["."], Settings(), lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3)]


# ------------------------------------------------------------------------------------------------ services


def test_settings_fill_in_what_a_file_leaves_open() -> None:
    given = settings(model="gpt2", hardware="h100-sxm", prompt=4096, engine="vllm@0.19")
    whole = check_text(HEAD + "hardware: l40s\n", "a.yaml", given).services[0]
    assert {name: said.value for name, said in whole.options.items()} == {
        "model": "llama-3.1-8b",
        "hardware": "l40s",
        "prompt": 4096,
    }
    assert whole.engine.value == "vllm@0.19"


@pytest.mark.parametrize(
    ("said", "default", "engine"),
    [
        ("vllm", "vllm@0.19", "vllm@0.19"),
        ("vllm@0.18", "vllm@0.19", "vllm@0.18"),
        ("sglang", "vllm@0.19", "sglang"),
        ("plain", "vllm", "plain"),
    ],
)
def test_an_engine_that_is_said_gets_its_version_at_most(said: str, default: str, engine: str) -> None:
    whole = check_text(GOOD + f"engine: {said}\n", "a.yaml", settings(engine=default)).services[0]
    assert whole.engine.value == engine


def test_the_device_of_a_pod_is_that_of_the_service() -> None:
    found = replace(service(model="gpt2"), pod=Pod(hardware=option("l40s")))
    assert run.completed(found, settings(hardware="h100-sxm")).options["hardware"].value == "l40s"
    assert run.completed(service(model="gpt2"), settings(hardware="h100-sxm")).options["hardware"].value == "h100-sxm"


def test_what_nobody_says_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(service(model="gpt2"), name="chat")
    monkeypatch.setattr(run, "read_text", lambda *_, **__: Reading((found,)))
    result = check_text("", "a.yaml", Settings())
    assert [str(problem.place) for problem in result.problems] == ["a.yaml:1:1"]
    assert result.problems[0].message.startswith("hardware of chat: got nothing, want a name (--hardware, or")
    assert result.exit_code is ExitCode.BAD_INPUT


@pytest.mark.parametrize("name", ["model", "hardware"])
def test_no_manifest_reads_standard_input(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Read:
        @property
        def buffer(self) -> Any:
            raise AssertionError

    monkeypatch.setattr("sys.stdin", Read())
    found = service(**{"model": "gpt2", "hardware": "l40s", name: "-"})
    monkeypatch.setattr(run, "read_text", lambda *_, **__: Reading((found,)))
    result = check_text("", "a.yaml", Settings())
    assert result.problems[0].message.startswith(f"{name}: got -, want a name or a path")


def test_a_service_without_a_plan_is_a_problem_where_no_rule_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    result = check_text(GOOD + "memory_utilization: 1.5\n", "a.yaml", Settings())
    assert [str(problem.place) for problem in result.problems] == ["a.yaml:4:21"]
    assert "--memory-utilization: got 1.5" in result.problems[0].message


def test_a_service_without_a_plan_is_a_finding_where_a_rule_says_why() -> None:
    result = check_text(GOOD + "memory_utilization: 1.5\n", "a.yaml", Settings())
    assert result.problems == ()
    assert [(finding.place.line, finding.severity) for finding in result.findings] == [(4, "error")]
    assert result.exit_code is ExitCode.NO


@pytest.mark.parametrize(
    ("asked", "code"),
    [({"select": ("missing-shm",)}, ExitCode.BAD_INPUT), ({"ignore": ("unknown-model",)}, ExitCode.YES)],
)
def test_rules_that_are_not_asked_for_explain_nothing(asked: dict[str, Any], code: ExitCode) -> None:
    text = GOOD.replace("llama-3.1-8b", "no-such-model")
    assert check_text(text, "a.yaml", Settings()).exit_code is ExitCode.NO
    assert check_text(text, "a.yaml", Settings(**asked)).exit_code is code


# ------------------------------------------------------------------------------------------------ rules


def test_a_rule_that_asks_for_what_is_not_there_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(checked: Checked) -> Iterator[Finding]:
        yield Finding("first", "error", PLACE, "said")
        raise Unbuilt

    only(monkeypatch, rule("first", check))
    result = check_text(GOOD, "a.yaml", Settings())
    assert [finding.message for finding in result.findings] == ["said"]
    assert result.problems == ()


def test_a_fault_of_a_rule_is_a_problem_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(checked: Checked) -> Iterator[Finding]:
        raise KeyError("x")

    def check(checked: Checked) -> Iterator[Finding]:
        yield Finding("second", "warning", checked.service.place_of("model"), "said")

    only(monkeypatch, rule("first", fault), rule("second", check, "warning"))
    result = check_text(GOOD, "a.yaml", Settings())
    assert [(finding.message, finding.subject) for finding in result.findings] == [("said", "model")]
    assert result.problems == (
        Problem(Place("a.yaml", 1, 1), "a fault of roofplan's own, please report it: KeyError: 'x'"),
    )


def test_a_fault_of_a_reader_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    class Faulty:
        def recognises(self, *_: object) -> bool:
            return True

        def read(self, *_: object) -> Reading:
            raise RecursionError("too\ndeep")

    monkeypatch.setattr(run, "all_readers", lambda: (Faulty(),))
    result = check_text("a: 1\n", "a.yaml", Settings())
    assert [problem.message for problem in result.problems] == [
        "a fault of roofplan's own, please report it: RecursionError: too deep"
    ]


def test_only_selected_rules_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def noted(name: str) -> Any:
        return lambda checked: ran.append(name) or ()

    only(monkeypatch, *(rule(name, noted(name)) for name in ("a", "b", "c")))
    check_text(GOOD, "a.yaml", Settings(select=("a", "b"), ignore=("b",)))
    assert ran == ["a"]


def test_equal_deployments_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    original = plans.deployment

    def counted(model: Any, hardware: Any, **options: Any) -> Any:
        built.append(getattr(model, "name", model))
        return original(model, hardware, **options)

    plans.forget()
    monkeypatch.setattr(plans, "deployment", counted)
    text = "---\n".join([GOOD, GOOD.replace("llama-3.1-8b", "gpt2"), GOOD + "name: other\n", GOOD + "prompt: 1024\n"])
    assert len(check_text(text, "a.yaml", Settings()).services) == 4
    assert sorted(built) == [
        "gpt2",
        "llama-3.1-8b",
        "llama-3.1-8b",
    ]  # the last says what it means to say nothing, but differently


def test_a_service_of_a_plugin_is_checked() -> None:
    found = check_service(service(model="llama-3.1-70b", hardware="rtx-4090"), Settings())
    assert [finding.rule for finding in found] == ["does-not-fit"]
    assert check_service(service(model="llama-3.1-8b"), settings(hardware="h100-sxm")) == []


# ------------------------------------------------------------------------------------------------ one service


def test_the_one_service_of_a_file(folder: Path) -> None:
    (folder / "a.yaml").write_text(HEAD)
    (folder / "b.yaml").write_text(GOOD + "---\n" + GOOD + "name: two\n")
    (folder / "c.yaml").write_text("a: 1\n")
    assert only_service([], settings(model="gpt2", hardware="l40s")).options["hardware"].value == "l40s"
    with pytest.raises(RoofplanError, match="hardware: got nothing"):
        only_service(["a.yaml"], Settings())
    with pytest.raises(
        RoofplanError, match=r"got 2 services, want one to begin with \(there are b \(b.yaml:1:1\), two"
    ):
        only_service(["b.yaml"], Settings())
    with pytest.raises(RoofplanError, match="got no services"):
        only_service(["c.yaml"], Settings())
    with pytest.raises(RoofplanError, match="no such file"):
        only_service(["d.yaml"], Settings())


def test_what_could_not_be_checked_of_an_older_state_is_said(folder: Path) -> None:
    (folder / "new.yaml").write_text(GOOD)
    (folder / "old.yaml").write_text(GOOD + "nonsense: 1\n")
    new, old = (check_paths([name], Settings()) for name in ("new.yaml", "old.yaml"))
    both = run.with_problems_of(new, old)
    assert [problem.place.file for problem in both.problems] == ["old.yaml"]
    assert both.line_at(both.problems[0].place) == "nonsense: 1"
    assert both.exit_code is ExitCode.BAD_INPUT


def test_a_prefix_that_requests_share_is_said_once_for_manifests(folder: Path) -> None:
    """No manifest says what prompts have in common: the settings do, for all files that leave it open."""
    (folder / ".roofplan.toml").write_text(
        '[check]\nhardware = "h100-sxm"\nprompt = 4096\nconcurrency = 16\nshared-prefix-tokens = 2048\n'
    )
    (folder / "run.sh").write_text(
        "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192 --no-enable-prefix-caching\n"
    )
    found = check_paths(["run.sh"], load_settings())
    assert [finding.rule for finding in found.findings] == ["prefix-cache-off-with-shared-prefix"]
    (folder / "run.sh").write_text("vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192\n")
    assert check_paths(["run.sh"], load_settings()).findings == ()
