"""The rules of a check for people: a list of them, and what each is about."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..checks.finding import Rule

_WIDTH = 100


def rules_text(rules: Iterable[Rule]) -> str:
    """One line a rule: id, severity, and what it finds."""
    rows = [(rule.id, rule.severity, rule.title) for rule in rules]
    first, second = (max((len(row[at]) for row in rows), default=0) for at in (0, 1))
    return "".join(f"{name:{first}}  {severity:{second}}  {title}\n" for name, severity, title in rows)


def rules_json(rules: Iterable[Rule]) -> str:
    """The rules for programs, with all that is said of each."""
    listed = [
        {"id": rule.id, "severity": rule.severity, "title": rule.title, "why": rule.why, "fix": rule.fix}
        for rule in rules
    ]
    return json.dumps({"schema": "roofplan/rules/v1", "rules": listed}, indent=2, sort_keys=True) + "\n"


def rule_text(rule: Rule) -> str:
    """What a rule finds, why that matters, what to do, and how a finding is accepted."""
    parts = (
        f"{rule.id} ({rule.severity}): {rule.title}",
        rule.why,
        f"What to do: {rule.fix}",
        f"To accept a finding, write on its line or above it: # roofplan: ignore[{rule.id}] reason",
    )
    return "\n\n".join(textwrap.fill(part, _WIDTH) for part in parts) + "\n"
