"""An engine later than the last version that its profile was compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the version with the last one that is known."""
    engine = checked.engine
    if engine.is_newer_than_known:
        known = f"{engine.checked_to}, the last version that is known"
        message = f"{engine.engine} {engine.version} is newer than {known}: it is planned as that"
        yield RULE.finding(checked, checked.service.engine.place, message)


RULE = Rule(
    id="engine-newer-than-known",
    severity="note",
    title="The engine is newer than what is known of it",
    why="How an engine spends memory changes between versions. A newer one is planned like the last that logs were compared with.",
    fix="Update roofplan, and read the engine's release notes for changed defaults.",
    check=check,
)
