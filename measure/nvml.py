"""What the driver of an NVIDIA device says, through NVML (``import pynvml``, of the package nvidia-ml-py).

Every question may be refused: by an old driver, by a container, on a slice (MIG), or because the device does not have the thing. A refused
question is left out, and named; without the module or the driver there is one sentence that says why.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .machine import Machine

_MOST_LINKS = 18


@dataclass(frozen=True, slots=True)
class NvmlDevice:
    """One device of NVML."""

    nvml: Any
    handle: Any

    def throttle_reasons(self) -> int:
        """The bits of why its clocks are below what they could be; 0 where it does not say."""
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            question = getattr(self.nvml, name, None)
            if question is not None:
                try:
                    return int(question(self.handle))
                except self.nvml.NVMLError:
                    return 0
        return 0

    def clock_share(self) -> float:
        """Its clock over the highest; one where it does not say."""
        nvml = self.nvml
        try:
            highest = nvml.nvmlDeviceGetMaxClockInfo(self.handle, nvml.NVML_CLOCK_SM)
            return float(nvml.nvmlDeviceGetClockInfo(self.handle, nvml.NVML_CLOCK_SM)) / highest if highest else 1.0
        except nvml.NVMLError:
            return 1.0

    def describe(self) -> dict[str, Any]:
        """All that it says: memory in bytes, clocks in Hz, power in W, links, driver, ECC, MIG, other processes."""
        nvml, handle = self.nvml, self.handle
        questions: dict[str, Callable[[], Any]] = {
            "name": lambda: _text(nvml.nvmlDeviceGetName(handle)),
            "uuid": lambda: _text(nvml.nvmlDeviceGetUUID(handle)),
            "driver": lambda: _text(nvml.nvmlSystemGetDriverVersion()),
            "memory_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            "memory_used_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
            "clock_hz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6,
            "clock_most_hz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6,
            "memory_clock_hz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6,
            "memory_clock_most_hz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6,
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
            "power_default_w": lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1e3,
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "pcie_generation": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
            "pcie_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
            "nvlinks": self._links,
            "ecc": lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
            "mig": lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0]),
            "throttle_reasons": self.throttle_reasons,
            "other_processes": self._others,
        }
        said: dict[str, Any] = {}
        refused: list[str] = []
        for name, question in questions.items():
            try:
                said[name] = question()
            except (nvml.NVMLError, AttributeError, IndexError, TypeError):
                refused.append(name)
        return said | {"not_said": refused}

    def _links(self) -> int:
        active = 0
        for link in range(_MOST_LINKS):
            try:
                active += bool(self.nvml.nvmlDeviceGetNvLinkState(self.handle, link))
            except self.nvml.NVMLError:
                break
        return active

    def _others(self) -> int:
        running = self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)
        return sum(1 for process in running if process.pid != os.getpid())


def open_device(machine: Machine) -> NvmlDevice | str:
    """The device of NVML that torch's device is; else why there is none, in words."""
    try:
        import pynvml
    except ImportError:
        return "NVML is missing: no module pynvml (pip install nvidia-ml-py), so clocks, power and throttling are not known"
    nvml: Any = pynvml
    try:
        nvml.nvmlInit()
        return NvmlDevice(nvml, _handle(nvml, machine))
    except nvml.NVMLError as error:
        return f"NVML is refused: {error}, so clocks, power and throttling are not known"


def _handle(nvml: Any, machine: Machine) -> Any:
    """By the device's own id: torch numbers only the devices that CUDA_VISIBLE_DEVICES leaves, and may order them otherwise."""
    from .machine import torch_module

    properties = torch_module().cuda.get_device_properties(machine.index)
    uuid = getattr(properties, "uuid", None)
    if uuid is not None:
        named = str(uuid)
        try:
            return nvml.nvmlDeviceGetHandleByUUID((named if named.startswith("GPU-") else f"GPU-{named}").encode())
        except nvml.NVMLError:  # a slice has another id
            pass
    return nvml.nvmlDeviceGetHandleByIndex(machine.index)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
