"""What the pytest plugin hands out, called as a test calls it (how pytest runs it: test_pytest_plugin.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofplan.checks.asserting import Deployed, Unread, assert_fits, cases
from roofplan.errors import RoofplanError

HOLDS = """\
schema: roofplan/deployment/v1
name: chat
model: llama-3.1-8b
hardware: h100-sxm
engine: vllm@0.19
max_model_len: 16384
concurrency: 16
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def only(root: Path, text: str) -> Deployed:
    (root / "chat.yaml").write_text(text, encoding="utf-8")
    (case,) = cases(root, ("chat.yaml",))
    return case.opened()


def test_what_fits_gives_the_plan() -> None:
    plan = assert_fits(Path("llama-3.1-8b"), "h100-sxm", concurrency=16)
    assert plan.fits


@pytest.mark.parametrize(
    ("limits", "held"),
    [
        ({"tpot": "60 ms"}, True),
        ({"tpot": "1 ms"}, False),
        ({"concurrency": 16, "context": 32768}, True),
        ({"concurrency": 100_000}, False),
        ({"headroom": "79 GiB"}, False),
        ({"fits": True}, True),
    ],
)
def test_limits_are_held_against_the_plan(limits: dict[str, object], *, held: bool) -> None:
    if held:
        assert assert_fits("llama-3.1-8b", "h100-sxm", limits=limits).fits
        return
    with pytest.raises(AssertionError, match=r"^llama-3.1-8b on h100-sxm:\n  limits:\d+:\d+: error: "):
        assert_fits("llama-3.1-8b", "h100-sxm", limits=limits)


def test_what_a_project_ignores_is_still_asserted(tmp_path: Path) -> None:
    (tmp_path / ".roofplan.toml").write_text('[check]\nignore = ["tpot-limit-missed"]\n', encoding="utf-8")
    with pytest.raises(AssertionError):
        assert_fits("llama-3.1-8b", "h100-sxm", limits={"tpot": "1 ms"})


@pytest.mark.parametrize("limits", [{"tpott": "1 ms"}, {"tpot": 5}, {"tpot": object()}])
def test_limits_that_do_not_exist_are_errors(limits: dict[str, object]) -> None:
    with pytest.raises(RoofplanError):
        assert_fits("llama-3.1-8b", "h100-sxm", limits=limits)


def test_a_deployment_that_holds(tmp_path: Path) -> None:
    case = only(tmp_path, HOLDS)
    assert case.name == "chat.yaml:chat"
    assert case.fits
    case.assert_fits()
    case.check()
    assert case.deployment.max_model_len == 16384
    assert case.plan.capacity.max_concurrency > 16


def test_a_deployment_that_does_not_fit(tmp_path: Path) -> None:
    case = only(tmp_path, HOLDS.replace("8b", "70b"))
    assert not case.fits
    with pytest.raises(AssertionError, match=r"chat.yaml:chat does not fit: weights_exceed_memory"):
        case.assert_fits()
    with pytest.raises(AssertionError, match=r"\[does-not-fit\]"):
        case.check()


def test_severities_that_fail_can_be_chosen(tmp_path: Path) -> None:
    case = only(tmp_path, HOLDS.replace("concurrency: 16", "memory_utilization: 0.99"))
    severities = {finding.severity for finding in case.findings}
    assert severities == {"warning"}, case.findings
    case.check()
    with pytest.raises(AssertionError, match="warning: "):
        case.check(fail_on="warning")


def test_an_unknown_name_is_said_where_it_is_asked_for(tmp_path: Path) -> None:
    case = only(tmp_path, HOLDS.replace("llama-3.1-8b", "llama-3.1-9b"))
    with pytest.raises(RoofplanError, match=r"llama-3\.1-9b"):
        _ = case.plan
    with pytest.raises(AssertionError, match=r"\[unknown-model\]"):
        case.check()


def test_what_cannot_be_read_is_a_case_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(HOLDS, encoding="utf-8")
    (tmp_path / "b.yaml").write_text("a: [1\n", encoding="utf-8")
    found = cases(tmp_path, ("*.yaml", "nowhere"))
    assert [type(case) for case in found] == [Unread, Deployed, Unread]
    with pytest.raises(AssertionError, match="nowhere: no such file"):
        found[0].opened()
    with pytest.raises(AssertionError, match=r"b.yaml:2:1: malformed YAML"):
        found[2].opened()


def test_names_of_strangers_cannot_move_the_terminal(tmp_path: Path) -> None:
    case = only(tmp_path, HOLDS.replace("8b", "70b").replace("name: chat", 'name: "a\\e[31mb"'))
    for fails in (case.check, case.assert_fits):
        with pytest.raises(AssertionError) as raised:
            fails()
        assert "\x1b" not in str(raised.value)
    (tmp_path / "bad\x1b[2J.yaml").write_text("a: [1\n", encoding="utf-8")
    (broken,) = cases(tmp_path, ("bad*.yaml",))
    with pytest.raises(AssertionError) as raised:
        broken.opened()
    assert "\x1b" not in str(raised.value)
