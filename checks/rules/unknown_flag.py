"""A flag that the engine does not have in this version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import show
from ..finding import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Name each unknown flag, and the nearest known ones."""
    engine = checked.service.engine.value.replace("@", " ")
    for flag in checked.service.flags:
        if not flag.known:
            near = f"; the nearest: {', '.join(flag.closest)}" if flag.closest else ""
            message = f"{show(engine)} has no flag {show(flag.name)}: it stops with an error{near}"
            yield RULE.finding(checked, flag.value.place, message, fix=flag.closest[0] if flag.closest else "")


RULE = Rule(
    id="unknown-flag",
    severity="error",
    title="The engine has no such flag",
    why="An engine that is given a flag that it does not know prints its usage and stops. Flags come and go between versions.",
    fix="Spell the flag as the version at hand does, or leave it out.",
    check=check,
)
