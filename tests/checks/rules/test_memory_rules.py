"""Rules about memory, layout and configuration: one file that each is about, one that it is not, and what decides between them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from roofplan.checks import plans
from roofplan.checks.checked import Checked
from roofplan.checks.record import Place, Said
from roofplan.checks.rules import all_rules
from roofplan.checks.run import check_paths
from roofplan.checks.settings import Settings

HERE = Path(__file__).parent
RULES = {rule.id: rule for rule in all_rules()}
MINE = (
    "blocks-do-not-divide",
    "batched-tokens-too-few",
    "cannot-be-planned",
    "concurrency-limit-missed",
    "concurrency-over-capacity",
    "context-exceeds-model",
    "context-limit-missed",
    "default-changed-between-versions",
    "does-not-fit",
    "drafts-do-not-fit",
    "engine-newer-than-known",
    "gpu-limit-mismatch",
    "gpus-requested-not-used",
    "headroom-missed",
    "kv-heads-replicated",
    "kv-less-than-one-sequence",
    "missing-shm",
    "offload-slows-every-step",
    "partly-on-host",
    "quantisation-unsupported-on-device",
    "remote-code-unpinned",
    "tp-does-not-divide",
    "unknown-device",
    "unknown-flag",
    "unknown-model",
    "utilisation-risky",
    "workload-exceeds-context",
)


def settings_of(path: Path) -> Settings:
    """What a file is checked with: scripts do not say on which device they run."""
    return Settings(defaults={"hardware": Said("h100-sxm", Place("<options>"))} if path.suffix == ".sh" else {})


def file_of(rule: str, kind: str) -> Path:
    (path,) = (HERE / rule).glob(f"{kind}.*")
    return path


@pytest.mark.parametrize("rule", MINE)
def test_trigger_gives_this_rule_alone_at_the_line_that_it_names(rule: str) -> None:
    path = file_of(rule, "trigger")
    line = re.match(rf"# {rule}, line (\d+)\n", path.read_text())
    assert line is not None
    result = check_paths([str(path)], settings_of(path))
    assert not result.problems
    assert [(found.rule, found.place.line) for found in result.findings] == [(rule, int(line[1]))]
    (found,) = result.findings
    assert found.message
    assert "\n" not in found.message


@pytest.mark.parametrize("rule", MINE)
def test_quiet_gives_nothing(rule: str) -> None:
    path = file_of(rule, "quiet")
    result = check_paths([str(path)], settings_of(path))
    assert len(result.services) == 1
    assert not result.problems
    assert not result.findings


@pytest.mark.parametrize("rule", MINE)
def test_rules_about_memory_time_nothing(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        pytest.fail("a rule about memory asked for times")

    path = file_of(rule, "trigger")
    services = check_paths([str(path)], settings_of(path)).services
    plans.forget()
    monkeypatch.setattr(plans, "size_deployment", refuse)
    monkeypatch.setattr(plans.StepModel, "reached", refuse)
    assert [found.rule for service in services for found in RULES[rule].check(Checked(service))] == [rule]
