"""A comment that accepts findings names a rule that does not exist, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:  # noqa: ARG001  # comments are no part of a service
    """Nothing: :mod:`roofplan.checks.ignores` finds it in the text of the file."""
    return iter(())


RULE = Rule(
    id="unknown-ignore",
    severity="note",
    title="A comment accepts a rule that does not exist",
    why="The finding that it was written for is shown all the same, or the rule has another name by now.",
    fix="Write the id of a rule, as roofplan check --list-rules shows it.",
    check=check,
)
