"""What a measurement depends on beside the code: device and driver, processor and threads, versions, limits of the container, other work.

Source: which facts to keep follows psf/pyperf (``pyperf/_collect_metadata.py``).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .machine import container_memory, cpu_name, host_memory, torch_module

if TYPE_CHECKING:
    from .machine import Machine

_BUSY = 0.5  # load of other work, over the cores, from which on it is told
# What parts of a file may be, so that a comparison can rely on them.
_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("date", "kind", "device", "torch_device", "cpu", "system"), str),
    **dict.fromkeys(("cores", "threads", "memory_bytes", "cache_bytes", "device_memory_bytes"), int),
    **dict.fromkeys(("versions", "container", "nvml"), dict),
    **dict.fromkeys(("caches", "notes"), (list, tuple)),
    "load": (int, float, type(None)),
}
_VERSIONS = ("numpy", "transformers", "bitsandbytes", "httpx", "nvidia-ml-py", "triton")


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine and its software.

    Parameters
    ----------
    date : when it was asked (ISO 8601 with the zone)
    kind, device, torch_device : of the machine that is measured
    cpu, cores, threads : the processor, the cores that this process may use, and the threads that torch uses
    memory_bytes : of the host, or of its container
    cache_bytes, caches : of the last cache, and of each level of a CPU
    device_memory_bytes : of the device
    system : kernel and its version
    versions : of Python, torch, CUDA or ROCm, roofplan and libraries that are installed
    container : limits of the control group: ``cpus`` (its quota) and ``memory_bytes``; empty without any
    nvml : what the driver says; ``missing`` says why it says nothing
    load : mean number of running processes in the last minute, before the measurement
    notes : what may disturb the figures, in words
    """

    date: str
    kind: str
    device: str
    torch_device: str
    cpu: str
    cores: int
    threads: int
    memory_bytes: int
    cache_bytes: int
    caches: tuple[int, ...]
    device_memory_bytes: int
    system: str
    versions: dict[str, str]
    container: dict[str, Any]
    nvml: dict[str, Any]
    load: float | None
    notes: tuple[str, ...]

    @property
    def shown_threads(self) -> str:
        """The threads that torch uses, in words."""
        return f"{self.threads} thread{'s' if self.threads != 1 else ''}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        said = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return said | {"caches": list(self.caches), "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> Environment:
        """Read what :meth:`to_dict` wrote.

        Raises
        ------
        KeyError : when a part is missing
        TypeError : when one is of another kind than what is written
        """
        known = {field.name: said[field.name] for field in dataclasses.fields(cls)}
        for name, kind in _KINDS.items():
            if not isinstance(known[name], kind) or isinstance(known[name], bool):
                raise TypeError(f"environment.{name} is a {type(known[name]).__name__}")
        versions = {str(name): str(version) for name, version in said["versions"].items()}
        notes = tuple(str(note) for note in said["notes"])
        return cls(**known | {"versions": versions, "caches": tuple(said["caches"]), "notes": notes})


def environment(machine: Machine) -> Environment:
    """Record the machine and its software."""
    nvml = _nvml(machine)
    cores, load, container = usable_cores(), _load(), _container()
    return Environment(
        date=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        kind=machine.kind,
        device=machine.name,
        torch_device=machine.torch_device,
        cpu=cpu_name(),
        cores=cores,
        threads=machine.threads,
        memory_bytes=host_memory(),
        cache_bytes=machine.cache_bytes,
        caches=machine.caches,
        device_memory_bytes=machine.memory_bytes,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        versions=_versions(),
        container=container,
        nvml=nvml,
        load=load,
        notes=_notes(machine, nvml, cores, load, container),
    )


def usable_cores() -> int:
    """Cores that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _nvml(machine: Machine) -> dict[str, Any]:
    if machine.kind != "cuda":
        return {}
    if getattr(torch_module().version, "hip", None):
        return {"missing": "a device of ROCm: NVML does not know it, so clocks, power and throttling are not known"}
    from .nvml import open_device

    device = open_device(machine)
    return {"missing": device} if isinstance(device, str) else device.describe()


def _versions() -> dict[str, str]:
    from importlib import metadata

    from .. import __version__

    torch = torch_module()
    found = {"roofplan": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    for name, version in (("cuda", torch.version.cuda), ("rocm", getattr(torch.version, "hip", None))):
        if version:
            found[name] = str(version)
    for name in _VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _container() -> dict[str, Any]:
    found: dict[str, Any] = {}
    quota = _quota()
    if quota is not None:
        found["cpus"] = quota
    memory = container_memory()
    if memory:
        found["memory_bytes"] = memory
    return found


def _quota() -> float | None:
    """Processors' worth of time that the control group allows (v2 ``cpu.max``, else v1), or None without a limit."""
    try:
        words = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except OSError:
        words = [_line(f"/sys/fs/cgroup/cpu/cpu.cfs_{part}_us") for part in ("quota", "period")]
    if len(words) != 2 or not all(word.isdigit() for word in words) or not int(words[1]):
        return None
    return int(words[0]) / int(words[1])


def _line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def _notes(
    machine: Machine, nvml: dict[str, Any], cores: int, load: float | None, container: dict[str, Any]
) -> tuple[str, ...]:
    found = []
    if nvml.get("missing"):
        found.append(str(nvml["missing"]))
    if nvml.get("other_processes"):
        found.append(f"{nvml['other_processes']} other processes compute on the device: figures are theirs too")
    if nvml.get("mig"):
        found.append("MIG is on: torch sees a slice, while power and clocks are those of the whole device")
    limit, default = nvml.get("power_limit_w"), nvml.get("power_default_w")
    if limit and default and limit < default:
        found.append(f"the power limit is {limit:.0f} W, below the usual {default:.0f} W")
    if load is not None and machine.kind == "cpu" and load > _BUSY * cores:
        found.append(f"other work runs: {load:.1f} processes in the last minute on {cores} cores")
    quota = container.get("cpus")
    if quota is not None and quota < machine.threads:
        found.append(f"the container has {quota:g} processors' time for {machine.threads} threads: samples may be cut")
    if machine.kind == "cpu" and machine.threads < cores:
        found.append(f"torch uses {machine.threads} of {cores} cores")
    return tuple(found)
