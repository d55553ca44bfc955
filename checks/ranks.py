"""How many devices a service is given, and how many its layout uses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .record import Said, Service

_LAYOUT = ("tp", "pp", "dp", "cp")


def _count(said: Said[Any] | None) -> int:
    """A number that was said; 1 where none was."""
    return max(1, said.value) if said is not None and isinstance(said.value, int) else 1


def used_devices(service: Service) -> int:
    """Devices of the layout: tp x pp x dp x cp, or the number that is said."""
    if "devices" in service.options:
        return _count(service.options["devices"])
    return math.prod(_count(service.options.get(option)) for option in _LAYOUT)


def local_devices(service: Service) -> int:
    """Devices that the layout uses in one pod, at least one.

    Where the file does not say how many pods work together, what the command line says of nodes and of the replicas of its own node is
    taken.
    """
    used, pod = used_devices(service), service.pod
    if pod.pods is not None:
        return max(1, -(-used // _count(pod.pods)))
    copies, local = _count(service.options.get("dp")), service.features.get("local_data_parallel")
    if local is not None:
        used = used // copies * min(_count(local), copies)
    return max(1, -(-used // _count(service.features.get("nodes"))))


def is_spread_by_ray(service: Service) -> bool:
    """Whether ranks may run on other machines than this pod's: Ray places them, and the file does not say over how many pods."""
    executor = service.features.get("executor")
    by_ray = service.kind == "ray" or (executor is not None and executor.value == "ray")
    return service.pod.pods is None and by_ray
