"""More devices are requested than the layout uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import LayoutError, RoofplanError
from ...planner.parallel import Layout, check_layout
from ...quantities import show_count
from ..finding import Rule
from ..ranks import local_devices, used_devices
from ..spelling import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the devices of a pod with those that the layout uses there."""
    service = checked.service
    gpus = service.pod.gpus
    if gpus is None or service.lost or "devices" in service.options:
        return
    if checked.launcher is not None and checked.launcher.takes_all_devices:
        return
    used = local_devices(service)
    if used >= gpus.value:
        return
    message = (
        f"{show_count(gpus.value)} devices are requested and {show_count(used)} used: {show_count(gpus.value - used)} "
        f"stand{'s' if gpus.value - used == 1 else ''} idle"
    )
    yield RULE.finding(
        checked, gpus.place, message, fix=_fix(checked, gpus.value, used), requested=gpus.value, used=used
    )


def _fix(checked: Checked, gpus: int, used: int) -> str:
    """Tensor parallelism over all of them, where the heads divide; else nothing is proposed."""
    said = checked.service.options.get("tp")
    tp = said.value if said is not None and isinstance(said.value, int) else 1
    wider = tp * gpus // used
    if gpus % used or used_devices(checked.service) % tp or isinstance(checked.named_model, RoofplanError):
        return ""
    try:
        check_layout(checked.named_model, Layout(tp=wider))
    except LayoutError:
        return ""
    return setting(checked.service, "tp", wider)


RULE = Rule(
    id="gpus-requested-not-used",
    severity="warning",
    title="Requested devices stand idle",
    why="A container keeps the devices that it requests, and an engine uses those of its layout only: the others are paid for nothing.",
    fix="Request as many devices as the layout has ranks, or make the layout as wide.",
    check=check,
)
