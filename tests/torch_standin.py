"""A torch that says it has CUDA: tensors stay on the CPU, kernels run there, and events take times from a list.

What it cannot show is how fast CUDA is. What it shows is which calls are made: devices, pinned memory, graphs, events, settings.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import torch

from roofplan.measure.machine import Machine

CUDA = Machine("cuda", "cuda:0", "Stand-in H100", 2**16, 2, 2**30)
EVENT_S = 2e-3  # between the events of every pair
FREE_BYTES = 2**24


class Ticking:
    """A clock on which every interval lasts as long; a list of lengths is taken in turn, the last one for ever."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = list(seconds) or [1e-3]
        self.ended = 0
        self.pending: list[float] = []

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self.pending.append(self.seconds[min(self.ended, len(self.seconds) - 1)])
        self.ended += 1

    def intervals(self) -> list[float]:
        found, self.pending = self.pending, []
        return found

    def now(self) -> float:
        return 1e-3 * self.ended


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.timing = enable_timing
        self.recorded = False

    def record(self) -> None:
        self.recorded = True

    def elapsed_time(self, later: Event) -> float:
        assert all((self.timing, later.timing, self.recorded, later.recorded))
        return EVENT_S * 1e3


class Graph:
    """Keeps no kernels: a replay is counted and does nothing."""

    replays = 0

    def replay(self) -> None:
        Graph.replays += 1


class Stream:
    def wait_stream(self, other: Stream) -> None:
        assert isinstance(other, Stream)


class CudaTorch:
    """Delegates to torch what is not of CUDA, and notes what was asked of CUDA."""

    def __init__(self, **missing: Exception) -> None:
        self.asked: list[tuple[str, object]] = []
        self.missing = missing
        self.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False)))
        self.cuda = SimpleNamespace(
            Event=Event,
            CUDAGraph=Graph,
            Stream=Stream,
            current_stream=Stream,
            stream=self._within("stream"),
            graph=self._within("graph"),
            synchronize=lambda: self.asked.append(("synchronize", None)),
            empty_cache=lambda: self.asked.append(("empty_cache", None)),
            mem_get_info=lambda index: (FREE_BYTES, 2**30),
            device_count=lambda: 1,
            set_device=lambda index: self.asked.append(("set_device", index)),
        )

    def __getattr__(self, name):
        if name in self.missing:
            raise self.missing[name]
        return getattr(torch, name)

    def _within(self, name):
        @contextlib.contextmanager
        def within(what):
            self.asked.append((name, what))
            yield

        return within

    def _made(self, name, *arguments, device="cpu", pin_memory=False, **options):
        self.asked.append((name, "pinned" if pin_memory else str(device)))
        return getattr(torch, name)(*arguments, **options)

    def ones(self, *arguments, **options):
        return self._made("ones", *arguments, **options)

    def zeros(self, *arguments, **options):
        return self._made("zeros", *arguments, **options)

    def empty(self, *arguments, **options):
        return self._made("empty", *arguments, **options)

    def tensor(self, *arguments, **options):
        return self._made("tensor", *arguments, **options)
