"""Settings that make no deployment, and that no other rule is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import RoofplanError
from ..finding import Rule
from ..spelling import with_flags
from . import tp_does_not_divide

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Give the planner's own error, at the option that it names."""
    error, service = checked.built, checked.service
    if (
        not isinstance(error, RoofplanError)
        or checked.hindrance is not None
        or error is checked.named_model
        or error is checked.named_hardware
    ):
        return
    option = checked.option_of(error)
    if error.what.startswith("--") and option in tp_does_not_divide.OPTIONS:
        return
    if error.what == "--max-model-len" and str(error.got).endswith(" tokens"):
        return  # prompt + output: workload-exceeds-context
    yield RULE.finding(checked, service.place_of(option, "tp", "devices", "model"), with_flags(service, str(error)))


RULE = Rule(
    id="cannot-be-planned",
    severity="error",
    title="The settings make no deployment",
    why="A layout, format or setting does not exist for the model, the device or the engine, so that no other rule could look further.",
    fix="Correct the value that the message names.",
    check=check,
    explains=True,
)
