"""Every rule has a file that it is about, one that it is not about, and a page that shows both as they are."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from roofplan.checks.rules import all_rules

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
rule_pages = importlib.import_module("rule_pages")

RULES = {rule.id: rule for rule in all_rules()}
FOLDER = ROOT / "docs" / "rules"


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_says_what_and_why_in_its_own_file(rule: str) -> None:
    one = RULES[rule]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", one.id)
    assert one.check.__module__ == f"roofplan.checks.rules.{one.id.replace('-', '_')}"
    assert one.title
    assert not one.title.endswith(".")
    assert one.why.endswith(".")
    assert one.fix.endswith(".")


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_found_in_its_trigger_and_not_in_its_quiet_file(rule: str) -> None:
    trigger, quiet = (rule_pages.example_of(RULES[rule], kind) for kind in ("trigger", "quiet"))
    assert trigger is not None
    assert quiet is not None
    assert rule in {found.rule for found in rule_pages.findings_in(trigger)}
    assert rule not in {found.rule for found in rule_pages.findings_in(quiet)}


@pytest.mark.parametrize("rule", RULES)
def test_pages_are_up_to_date(rule: str) -> None:
    shown = (FOLDER / f"{rule}.md").read_text(encoding="utf-8")
    assert shown == rule_pages.page(RULES[rule]), "run make docs"
    for target in re.findall(r"\]\(([^)#:]+)\)", shown):
        assert (FOLDER / target).exists(), target


def test_the_list_names_every_rule_once() -> None:
    shown = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert shown == rule_pages.index()
    assert sorted(re.findall(r"^\| \[([^]]+)\]", shown, re.MULTILINE)) == sorted(RULES)
    assert {path.name for path in FOLDER.glob("*.md")} == {"README.md", *(f"{rule}.md" for rule in RULES)}


def test_pages_of_rules_that_are_no_more_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "gone.md").write_text("")
    monkeypatch.setattr(rule_pages, "pages", lambda: {"README.md": "x\n"})
    rule_pages.write(tmp_path)
    assert [path.name for path in (tmp_path / "rules").iterdir()] == ["README.md"]
