"""A part of the model stays in the host's memory: nothing of memory and time is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import show
from ..finding import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Say so where the file does."""
    said = checked.service.features.get("partly_on_host")
    if said is not None:
        what = show(said.text) if said.text else "what the file says"
        message = f"with {what} a part of the model stays in the host's memory: memory and times are not checked"
        yield RULE.finding(checked, said.place, message)


RULE = Rule(
    id="partly-on-host",
    severity="note",
    title="A part of the model stays in the host's memory",
    why=(
        "Layers or experts that the processor computes need no memory of a device, and their time is that of the host's memory. Plans are "
        "of devices alone: that a check of memory and times did not happen is at least said."
    ),
    fix="Take all layers to the devices where they fit, to have the deployment checked.",
    check=check,
)
