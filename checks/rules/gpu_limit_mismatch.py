"""The layout needs more devices than the pod gets, or the pod more than any of its nodes has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import RoofplanError, show
from ...planner.fitting import fits
from ...quantities import show_count
from ..finding import Rule
from ..ranks import is_spread_by_ray, local_devices
from ..spelling import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the ranks that run in a pod with its devices, and these with the devices of a node."""
    service = checked.service
    yield from _on_no_node(checked)
    gpus, needed = service.pod.gpus, local_devices(checked.service)
    if gpus is None or needed <= gpus.value or is_spread_by_ray(service):
        return
    names = [name for name in ("devices", "tp", "pp", "dp", "cp") if name in service.options]
    listed = " x ".join(f"{name} {service.options[name].value}" for name in names)
    pods = service.pod.pods
    spread = pods is not None and pods.value > 1
    where = f"in each of {pods.value} pods, which" if pods is not None and spread else "and the pod"
    message = (
        f"{listed} needs {show_count(needed)} devices {where} gets {show_count(gpus.value)}: the engine cannot start"
    )
    fix = setting(service, "tp", gpus.value) if names == ["tp"] and _fits(checked, gpus.value) else ""
    yield RULE.finding(checked, gpus.place, message, fix=fix, requested=gpus.value, needed=needed)


def _on_no_node(checked: Checked) -> Iterator[Finding]:
    gpus, most, device = checked.service.pod.gpus, checked.service.pod.node_gpus, checked.service.pod.hardware
    if gpus is None or device is None or not 0 < most < gpus.value:
        return
    requested = f"{show_count(gpus.value)} devices are requested of one pod"
    message = f"{requested} and a node has {show_count(most)} ({show(device.text)}): the pod waits without end"
    yield RULE.finding(checked, gpus.place, message, requested=gpus.value, node_gpus=most)


def _fits(checked: Checked, ranks: int) -> bool:
    """Whether the deployment fits so few ranks."""
    if ranks < 1 or isinstance(checked.built, RoofplanError):
        return False
    try:
        return fits(replace(checked.built, layout=replace(checked.built.layout, tp=ranks)))
    except RoofplanError:
        return False


RULE = Rule(
    id="gpu-limit-mismatch",
    severity="error",
    title="The layout needs more devices than it gets",
    why=(
        "Every rank needs a device of its own: an engine that sees fewer than tensor x pipeline x data parallelism stops at its start. A "
        "pod that requests more devices than its nodes have is never placed."
    ),
    fix="Request as many devices as the layout has ranks in one pod, or make the layout narrower.",
    check=check,
)
