"""The machine at hand: a CPU, a GPU of CUDA (or of ROCm, which torch shows under the same name), or Apple's GPU (MPS)."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import MeasureError

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = Literal["cpu", "cuda", "mps"]
UNKNOWN_CACHE = 32 * 2**20  # where the system does not say: larger than most, so that a flush is one
_DEVICE = re.compile(r"(cpu|cuda|mps)(?::([0-9]{1,3}))?", re.ASCII)
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_CPUINFO = Path("/proc/cpuinfo")
_SUFFIXES = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True, slots=True)
class Machine:
    """What measurements run on.

    Parameters
    ----------
    kind : cpu, cuda (also ROCm), or mps
    torch_device : what torch calls it (``cuda:0``)
    name : of the processor or device, as the system prints it
    cache_bytes : of the last cache before memory
    threads : that torch uses on the host
    memory_bytes : of the device, or of the host (the container's limit, where there is one)
    caches : bytes of each level of a CPU's data caches, the smallest first
    """

    kind: Kind
    torch_device: str
    name: str
    cache_bytes: int
    threads: int
    memory_bytes: int = 0
    caches: tuple[int, ...] = ()

    def synchronise(self) -> None:
        """Wait until the device has done what it was given."""
        if self.kind != "cpu":
            getattr(torch_module(), self.kind).synchronize()

    def flush(self) -> None:
        """Overwrite twice the last cache, so that what was in it must be read from memory again."""
        _flusher(self.torch_device, 2 * self.cache_bytes)()

    @property
    def index(self) -> int:
        """The number of the device among its kind."""
        return int(self.torch_device.partition(":")[2] or 0)

    def free_bytes(self) -> int:
        """Memory that a measurement may take now."""
        if self.kind == "cuda":
            free: int = torch_module().cuda.mem_get_info(self.index)[0]
            return free
        return _available() or self.memory_bytes

    def empty_cache(self) -> None:
        """Give back what torch keeps of memory that nothing uses."""
        _flusher.cache_clear()
        if self.kind != "cpu":
            getattr(torch_module(), self.kind).empty_cache()


def torch_module() -> Any:
    """The module torch.

    Raises
    ------
    MeasureError : where it is not installed, or does not load
    """
    try:
        import torch
    except ImportError as error:
        hint = "pip install 'roofplan[measure]'"
        if getattr(error, "name", "torch") not in {"torch", None}:
            hint = f"it is installed, but does not load: {error}"
        raise MeasureError(
            "measure", got="no torch", wanted="the extra measure (torch, nvidia-ml-py)", hint=hint
        ) from error
    except OSError as error:  # a library that torch needs
        hint = f"it is installed, but does not load: {error}"
        raise MeasureError("measure", got="no torch", wanted="a torch that loads", hint=hint) from error
    return torch


def find_machine(device: str | None = None) -> Machine:
    """Find the machine to measure: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; without a name a GPU where torch has one, else the CPU.

    Raises
    ------
    MeasureError : without torch, for a name that is none, or for a device that torch does not have
    """
    match = _DEVICE.fullmatch(device) if device is not None else None
    if device is not None and match is None:
        raise MeasureError("--device", got=device, wanted="cpu, cuda, cuda:1 (its number) or mps")
    torch = torch_module()
    has = {"cuda": torch.cuda.is_available(), "mps": _has_mps(torch), "cpu": True}
    kind = match[1] if match else next(kind for kind, there in has.items() if there)
    number = int(match[2]) if match and match[2] else 0
    if not has[kind]:
        raise MeasureError("--device", got=kind, wanted="a device that torch has: cpu", hint=_why_not(torch, kind, has))
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if number >= count:
        raise MeasureError("--device", got=device, wanted=f"{kind}:0 to {kind}:{count - 1}" if count > 1 else kind)
    return _cuda(torch, number) if kind == "cuda" else _host(torch, kind)


def _has_mps(torch: Any) -> bool:
    mps = getattr(torch.backends, "mps", None)
    return bool(mps is not None and mps.is_available())


def _why_not(torch: Any, kind: str, has: dict[str, bool]) -> str:
    others = [name for name, there in has.items() if there and name not in {kind, "cpu"}]
    if others:
        return f"there is {others[0]}"
    if kind == "cuda" and torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return f"torch {torch.__version__} was built without CUDA"
    return (
        "torch sees no such GPU: no driver, no permission, or CUDA_VISIBLE_DEVICES hides it" if kind == "cuda" else ""
    )


def _cuda(torch: Any, number: int) -> Machine:
    properties = torch.cuda.get_device_properties(number)
    cache = int(getattr(properties, "L2_cache_size", 0)) or UNKNOWN_CACHE
    return Machine(
        "cuda",
        f"cuda:{number}",
        str(properties.name),
        cache,
        torch.get_num_threads(),
        int(properties.total_memory),
    )


def _host(torch: Any, kind: str) -> Machine:
    caches = data_caches()
    return Machine(
        "mps" if kind == "mps" else "cpu",
        kind,
        cpu_name(),
        caches[-1] if caches else UNKNOWN_CACHE,
        torch.get_num_threads(),
        host_memory(),
        caches,
    )


# ------------------------------------------------------------------------------------------------ what the system says of a CPU


def cpu_name() -> str:
    """The processor's name, as the system prints it."""
    text = _text(_CPUINFO)
    for key in ("model name", "Model", "Hardware", "cpu model"):
        match = re.search(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE)
        if match:
            return match[1].strip()
    import platform

    return _sysctl("machdep.cpu.brand_string") or platform.processor() or platform.machine() or "CPU"


def data_caches() -> tuple[int, ...]:
    """Bytes of each level of the data caches of the first core, the smallest first; empty where the system does not say."""
    found: dict[str, int] = {}
    for folder in sorted(_CACHES.glob("index*")):
        kind, level, size = (_text(folder / name).strip() for name in ("type", "level", "size"))
        if kind in {"Data", "Unified"} and size[:-1].isdigit() and size[-1] in _SUFFIXES:
            found[level] = int(size[:-1]) * _SUFFIXES[size[-1]]
    if not found:
        for level, name in (("1", "hw.l1dcachesize"), ("2", "hw.l2cachesize"), ("3", "hw.l3cachesize")):
            size = _sysctl(name)
            if size.isdigit() and int(size):
                found[level] = int(size)
    return tuple(found[level] for level in sorted(found))


def host_memory() -> int:
    """Bytes of the host's memory, or of the container's limit where that is less; 0 where the system does not say."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        whole = 0
    limit = container_memory()
    return min(whole, limit) if whole and limit else whole or limit


def container_memory() -> int:
    """The memory limit of the control group (v2, else v1); 0 without one."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _text(Path(path)).strip()
        if text.isdigit() and int(text) < 2**60:
            return int(text)
    return 0


def _available() -> int:
    match = re.search(r"^MemAvailable:\s*(\d+) kB", _text(Path("/proc/meminfo")), re.MULTILINE)
    free = int(match[1]) * 1024 if match else 0
    limit = container_memory()
    used = _text(Path("/sys/fs/cgroup/memory.current")).strip()
    return min(free, max(limit - int(used), 0)) if limit and used.isdigit() and free else free


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _sysctl(name: str) -> str:
    import shutil
    import subprocess
    import sys

    program = shutil.which("sysctl") if sys.platform == "darwin" else None
    if program is None:
        return ""
    done = subprocess.run([program, "-n", name], capture_output=True, text=True, check=False, timeout=5)  # noqa: S603
    return done.stdout.strip()


@functools.lru_cache(maxsize=1)
def _flusher(device: str, size: int) -> Callable[[], Any]:
    """What overwrites a buffer of so many bytes; the buffer stays, since taking it anew would take longer than writing it."""
    torch = torch_module()
    buffer = torch.zeros(size, dtype=torch.uint8, device=device)
    zero: Callable[[], Any] = buffer.zero_
    return zero
