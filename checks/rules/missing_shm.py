"""Several ranks in a container whose shared memory is too small for what they exchange through it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...quantities import show_bytes
from ..finding import Rule
from ..ranks import local_devices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding

_DEFAULT = 64 * 2**20  # of Docker and Kubernetes
# A segment of NCCL, as it fails to be created in a small /dev/shm: vllm-project/production-stack issue 276, NVIDIA/nccl issue 525.
_SEGMENT = 9_637_888


def check(checked: Checked) -> Iterator[Finding]:
    """Compare ``/dev/shm`` with the ring of messages and two segments of each rank."""
    service, pod = checked.service, checked.service.pod
    ranks = local_devices(service)
    if ranks == 1 or not pod.contained or pod.host_ipc:
        return
    launcher = checked.launcher
    if launcher is not None and launcher.one_process:
        return
    ring = None if launcher is None else launcher.ring_bytes
    needed = (_DEFAULT if ring is None else ring) + 2 * ranks * _SEGMENT
    size = _DEFAULT if pod.shm_bytes is None else pod.shm_bytes.value
    if size >= needed:
        return
    place = pod.shm_bytes.place if pod.shm_bytes is not None else service.place_of("tp", "devices", "pp", "dp")
    said = "the default of " if pod.shm_bytes is None else ""
    message = (
        f"{ranks} ranks exchange about {show_bytes(needed, 3)} through /dev/shm, which has {said}{show_bytes(size, 3)}"
    )
    yield RULE.finding(checked, place, message, shm_bytes=size, needed_bytes=needed)


RULE = Rule(
    id="missing-shm",
    severity="warning",
    title="Shared memory is too small for several ranks",
    why=(
        "Ranks on one machine talk through `/dev/shm`, of which a container has 64 MiB unless it is told otherwise: NCCL then stops with "
        "an unhandled system error, or a rank dies with a bus error in the middle of serving."
    ),
    fix=(
        "Kubernetes: mount an `emptyDir` with `medium: Memory` and a `sizeLimit` of some GiB at `/dev/shm`; compose: `shm_size: 8gb` "
        "or `ipc: host`."
    ),
    check=check,
)
