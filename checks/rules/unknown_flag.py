"""A flag that the engine does not have in this version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import show
from ..finding import Rule
from ..launcher_spec import launchers
from ..spelling import flag_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding
    from ..record import Service


def check(checked: Checked) -> Iterator[Finding]:
    """Name each unknown flag, and the nearest known ones."""
    engine = checked.service.engine.value.replace("@", " ")
    for flag in checked.service.flags:
        if not flag.known:
            near = f"; the nearest: {', '.join(flag.closest)}" if flag.closest else ""
            message = f"{show(engine)} has no flag {show(flag.name)}: it stops with an error{near}"
            fix = flag.closest[0] if flag.closest else _of_others(checked.service, flag.name)
            yield RULE.finding(checked, flag.value.place, message, fix=fix)


def _of_others(service: Service, name: str) -> str:
    """What a flag of another engine is called here; empty where no engine has it, or this one has nothing like it."""
    known = (one.flag(name) or one.flag(name.replace("-", "_").replace("__", "--", 1)) for one in launchers().values())
    options = dict.fromkeys(spec.option for spec in known if spec is not None and spec.option)
    return next((flag for option in options if (flag := flag_for(service, option))), "")


RULE = Rule(
    id="unknown-flag",
    severity="error",
    title="The engine has no such flag",
    why="An engine that is given a flag that it does not know prints its usage and stops. Flags come and go between versions.",
    fix="Spell the flag as the version at hand does, or leave it out.",
    check=check,
)
