"""A comment accepts a finding that is not there."""

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
    id="unused-ignore",
    severity="note",
    title="A comment accepts nothing",
    why="What it was written for is gone; left where it is, it hides the next finding of this rule on the line.",
    fix="Remove the comment.",
    check=check,
)
