"""Runs that nobody measured, made from rates that the tests choose; and clocks, drivers and a torch that tests hold in their hands."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from roofplan.measure.environment import Environment
from roofplan.measure.machine import Machine
from roofplan.measure.records import Record, Run
from roofplan.measure.samples import Summary, summarise

CPU = Machine("cpu", "cpu", "Test Processor 9000", 32 * 2**20, 2, 16 * 2**30, (32 * 2**10, 2**20, 32 * 2**20))
GPU = Machine("cuda", "cuda:0", "NVIDIA H200", 50 * 2**20, 16, 150_754_820_096)
GEMM_ROWS = (1, 8, 64, 256, 1024, 8192)


def there(machine: Machine = CPU, **changes: Any) -> Environment:
    """What a run on a machine would have recorded."""
    said: dict[str, Any] = {
        "date": "2026-11-30T12:00:00+00:00",
        "kind": machine.kind,
        "device": machine.name,
        "torch_device": machine.torch_device,
        "cpu": "Test Processor 9000",
        "cores": machine.threads,
        "threads": machine.threads,
        "memory_bytes": 16 * 2**30,
        "cache_bytes": machine.cache_bytes,
        "caches": machine.caches,
        "device_memory_bytes": machine.memory_bytes,
        "system": "Linux 6.0 x86_64",
        "versions": {"roofplan": "0.1.0", "python": "3.11.7", "torch": "2.13.0"},
        "container": {},
        "nvml": {},
        "load": 0.1,
        "notes": (),
    }
    return Environment(**said | changes)


def steady(seconds: float, count: int = 10) -> Summary:
    """Samples that hardly scatter."""
    return summarise([seconds * (1 + 1e-6 * place) for place in range(count)])


def timed(name: str, seconds: float, **parameters: Any) -> Record:
    return Record(name, "s", steady(seconds), parameters)


def streams(bytes_per_s: float, sizes: Sequence[int], launch_s: float = 0.0) -> Iterator[Record]:
    for operation in ("read", "copy", "triad"):
        for size in sizes:
            yield timed(f"stream.{operation}", launch_s + size / bytes_per_s, bytes=size, size=size, cold=False)


def products(
    arithmetic: str,
    time_of: Callable[[float, float], float],
    side: int = 8192,
    rows: Sequence[int] = GEMM_ROWS,
    width: int = 2,
) -> Iterator[Record]:
    """Products whose time is a function of bytes and FLOP."""
    for count in rows:
        moved, flop = width * (side * side + 2 * count * side), 2 * count * side * side
        own = {"bytes": moved, "flop": flop, "rows": count, "inputs": side, "outputs": side, "cold": True}
        yield timed(f"gemm.{arithmetic}", time_of(moved, flop), arithmetic=arithmetic, **own)


def run_of(records: Sequence[Record], machine: Machine = CPU, command: str = "ceilings", **changes: Any) -> Run:
    return Run(command, there(machine, **changes), tuple(records), (), "2026-11-30T12:00:00+00:00", quick=True)


def cpu_run(bandwidth: float = 30e9, fp32: float = 100e9, bf16: float = 200e9) -> Run:
    """Ceilings of a small processor."""
    records = [timed("launch.call", 2e-6), timed("launch.gemm", 3e-6), *streams(bandwidth, [2**20, 2**28], 2e-6)]
    for name, rate, width in (("fp32", fp32, 4), ("bf16", bf16, 2)):
        records += products(name, _joined(bandwidth, rate, 3e-6), 2048, (1, 4, 16, 64, 256, 1024), width)
    return run_of(records)


def _joined(bandwidth: float, rate: float, floor: float) -> Callable[[float, float], float]:
    return lambda moved, flop: floor + max(moved / bandwidth, flop / rate)


class TickingClock:
    """A clock that gives intervals from a list, over and over; its wall clock advances by them."""

    def __init__(self, intervals: Sequence[float], wall_per_interval: float | None = None) -> None:
        self._given = list(intervals)
        self._wall_per_interval = wall_per_interval
        self._place = 0
        self._open = 0
        self.wall = 0.0
        self.waits = 0
        self.starts = 0

    def start(self) -> None:
        self.starts += 1

    def stop(self) -> None:
        self._open += 1

    def intervals(self) -> list[float]:
        self.waits += 1
        found = [self._given[(self._place + step) % len(self._given)] for step in range(self._open)]
        self._place += self._open
        self.wall += sum(found) if self._wall_per_interval is None else self._wall_per_interval * self._open
        self._open = 0
        return found

    def now(self) -> float:
        return self.wall


class SaidThrottle:
    """A throttle that says what a list says, then never again."""

    def __init__(self, answers: Sequence[bool] = (), then: bool = False) -> None:
        self._answers = list(answers)
        self._then = then

    def seen(self) -> bool:
        return self._answers.pop(0) if self._answers else self._then


class NvmlError(Exception):
    """Of the driver."""


def nvml_module(**changes: Any) -> types.SimpleNamespace:
    """A driver that answers as one of an H200 does; ``changes`` replace functions, None takes one away."""
    names = {
        "NVMLError": NvmlError,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: ("uuid", uuid),
        "nvmlDeviceGetHandleByIndex": lambda index: ("index", index),
        "nvmlDeviceGetName": lambda _: b"NVIDIA H200",
        "nvmlDeviceGetUUID": lambda _: "GPU-1",
        "nvmlSystemGetDriverVersion": lambda: "580.95",
        "nvmlDeviceGetMemoryInfo": lambda _: types.SimpleNamespace(total=150_754_820_096, used=2**30),
        "nvmlDeviceGetClockInfo": lambda _, clock: {1: 1980, 2: 3201}[clock],
        "nvmlDeviceGetMaxClockInfo": lambda _, clock: {1: 1980, 2: 3201}[clock],
        "nvmlDeviceGetPowerUsage": lambda _: 120_000,
        "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda _: 700_000,
        "nvmlDeviceGetTemperature": lambda _, __: 41,
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda _: 5,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda _: 16,
        "nvmlDeviceGetNvLinkState": lambda _, link: 1 if link < 18 else 0,
        "nvmlDeviceGetEccMode": lambda _: [1, 1],
        "nvmlDeviceGetMigMode": lambda _: [0, 0],
        "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 0,
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [],
    }
    return types.SimpleNamespace(**{k: v for k, v in (names | changes).items() if v is not None})


class Event:
    """An event of CUDA on a stream that a list of times drives."""

    def __init__(self, stream: list[float]) -> None:
        self._stream = stream
        self.at = 0.0

    def record(self) -> None:
        self.at = sum(self._stream)

    def elapsed_time(self, end: Event) -> float:
        return (end.at - self.at) * 1e3  # events count milliseconds


def cuda_torch(stream: list[float] | None = None, count: int = 1, **changes: Any) -> types.SimpleNamespace:
    """A torch that has GPUs; what is appended to ``stream`` is the time that their work takes."""
    timeline = [] if stream is None else stream
    properties = types.SimpleNamespace(
        name="NVIDIA H200", L2_cache_size=50 * 2**20, total_memory=150_754_820_096, uuid="1"
    )
    calls: list[str] = []
    cuda = types.SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: count,
        get_device_properties=lambda _: properties,
        Event=lambda enable_timing: Event(timeline),
        synchronize=lambda: calls.append("synchronize"),
        mem_get_info=lambda _: (2**36, 2**37),
        empty_cache=lambda: calls.append("empty_cache"),
    )
    said = {
        "cuda": cuda,
        "backends": types.SimpleNamespace(mps=types.SimpleNamespace(is_available=lambda: False)),
        "version": types.SimpleNamespace(cuda="13.0", hip=None),
        "get_num_threads": lambda: 16,
        "__version__": "2.13.0",
        "calls": calls,
    }
    return types.SimpleNamespace(**said | changes)
