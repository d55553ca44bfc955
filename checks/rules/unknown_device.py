"""A device that nothing is known of: nothing about memory and times can be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import RoofplanError, show
from ..finding import Rule
from ..spelling import near_miss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Look the device up."""
    found, service = checked.named_hardware, checked.service
    if not isinstance(found, RoofplanError):
        return
    said = service.options.get("hardware") or service.pod.hardware
    unknown = service.pod.unknown_hardware
    fix = "--hardware NAME, or hardware in [check]"
    if said is not None and said.value:
        message, place = f"no device {show(said.value)} in the catalogue{near_miss(found)}", said.place
    elif unknown is not None:
        message, place = f"no device of the catalogue is called {show(unknown.value)}", unknown.place
    else:  # one that is not named is a problem of the run
        return
    yield RULE.finding(checked, place, message, fix=fix)


RULE = Rule(
    id="unknown-device",
    severity="error",
    title="The device is not known",
    why=(
        "What fits and how fast it is depends on the device. Manifests name one by a node selector, an instance type or an accelerator; "
        "scripts mostly do not, and a check of memory that silently did not happen would be worth nothing."
    ),
    fix="Name the device with `--hardware`, in the settings, or in the manifest's node selector.",
    check=check,
    explains=True,
)
