"""Whether the machine was slowed down while samples were taken: by power, heat or another limit (NVML), or by a container's CPU quota.

Sources: reasons of NVML (``nvmlDeviceGetCurrentClocksEventReasons``; of which idle, and clocks that a person has set, are none),
NVIDIA/nvbench (``nvbench/detail/gpu_frequency.cuh``: samples below 75 % of the clock are thrown away), and
``nr_throttled`` of cgroup v2 (kernel.org, admin-guide/cgroup-v2, ``cpu.stat``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from .machine import Machine

CPU_STAT = Path("/sys/fs/cgroup/cpu.stat")
# Bits of NVML's reasons that slow a device down: hardware slowdown, heat (told by software or hardware), power brake.
SLOWED = 0x08 | 0x20 | 0x40 | 0x80
# The power cap holds clocks back in every large product, which is no fault; it counts where they are far below the highest, as for nvbench.
POWER_CAP = 0x04
LEAST_CLOCK = 0.75


class Throttle(Protocol):
    """Tells whether the machine has been slowed down since it was last asked."""

    def seen(self) -> bool:
        """Whether it was slowed down since the last call."""
        ...


class NeverThrottled:
    """A machine that cannot say."""

    def seen(self) -> bool:
        """No."""
        return False


class CountedThrottle:
    """A count that rises each time the machine is slowed down."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._last = count()

    def seen(self) -> bool:
        """Whether the count has risen."""
        now = self._count()
        risen, self._last = now > self._last, now
        return risen


class ReasonsThrottle:
    """Reasons that the device gives at the moment: those before the samples count as well as those after.

    Parameters
    ----------
    reasons : asks for the bits
    clock_share : asks for the clock, over the highest
    """

    def __init__(self, reasons: Callable[[], int], clock_share: Callable[[], float]) -> None:
        self._reasons = reasons
        self._clock_share = clock_share
        self._last = False

    def seen(self) -> bool:
        """Whether a reason holds now, or held at the last look."""
        bits = self._reasons()
        now = bool(bits & SLOWED) or (bool(bits & POWER_CAP) and self._clock_share() < LEAST_CLOCK)
        found, self._last = now or self._last, now
        return found


def throttle_of(machine: Machine) -> Throttle:
    """The throttle of a machine: reasons of NVML on NVIDIA's devices, the container's quota on a CPU."""
    if machine.kind == "cuda":
        from .nvml import open_device

        device = open_device(machine)
        return (
            NeverThrottled()
            if isinstance(device, str)
            else ReasonsThrottle(device.throttle_reasons, device.clock_share)
        )
    if machine.kind == "cpu" and CPU_STAT.is_file():
        return CountedThrottle(_times_throttled)
    return NeverThrottled()


def _times_throttled() -> int:
    try:
        text = CPU_STAT.read_text(encoding="ascii")
    except OSError:
        return 0
    found = [line.split()[1] for line in text.splitlines() if line.startswith("nr_throttled ")]
    return int(found[0]) if found and found[0].isdigit() else 0
