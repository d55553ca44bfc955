"""Timing one call: warm-up, enough samples and no more, hot or cold caches, and no sample of a throttled machine.

Sources: what to stop at follows NVIDIA/nvbench (``nvbench/detail/stdrel_criterion.cxx``: 0.5 % noise, or noise that has settled), cold
caches by rotation follow flashinfer-ai/flashinfer (``flashinfer/testing/utils.py``: five times the cache between two uses).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import MeasureError
from .samples import noise, summarise
from .throttle import Throttle, throttle_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .machine import Machine
    from .samples import Summary

SETTLED = 0.05  # noise has settled when its last estimates lie within this share of their mean
SETTLED_CHECKS = 6
ROTATION = 5  # caches that must lie between two uses of a buffer


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop taking samples of one call.

    Parameters
    ----------
    least : samples that are taken at least
    noise : relative deviation (1.4826 x relative MAD) at which the samples are enough
    most_s : seconds after which the measurement ends, with the criterion that was not met
    most : samples after which it ends
    sample_s : seconds that one sample lasts at least: shorter calls are repeated within it (not with cold caches)
    warm_s : seconds of warm-up at most, after the first call
    """

    least: int = 10
    noise: float = 0.005
    most_s: float = 2.0
    most: int = 10_000
    sample_s: float = 1e-3
    warm_s: float = 0.2

    def within(self, seconds: float) -> Limits:
        """The same limits with less time."""
        return replace(self, most_s=min(self.most_s, seconds), warm_s=min(self.warm_s, seconds / 4))

    def shared(self, rounds: int) -> Limits:
        """The same limits for each of several rounds, whose samples are put together."""
        least, most = (math.ceil(count / rounds) for count in (self.least, self.most))
        return replace(self, least=least, most=most, most_s=self.most_s / rounds, warm_s=self.warm_s / rounds)


STANDARD = Limits()
QUICK = Limits(noise=0.02, most_s=0.3, most=1_000, sample_s=3e-4, warm_s=0.05)


class Clock(Protocol):
    """What takes times: marks before and after, and gives all intervals since the last time they were asked for."""

    def start(self) -> None:
        """Mark the start of an interval."""

    def stop(self) -> None:
        """Mark its end."""

    def intervals(self) -> list[float]:
        """Wait until all marked work has ended, and give the seconds of each interval; they are then forgotten."""
        ...

    def now(self) -> float:
        """Seconds of the wall clock, for limits."""
        ...


class HostClock:
    """``perf_counter_ns`` of the host; work that a device does later is waited for at each end."""

    def __init__(self, synchronise: Callable[[], None] | None = None) -> None:
        self._synchronise = synchronise
        self._began = 0
        self._found: list[float] = []

    def start(self) -> None:
        """Mark the start."""
        if self._synchronise is not None:
            self._synchronise()
        self._began = time.perf_counter_ns()

    def stop(self) -> None:
        """Mark the end."""
        if self._synchronise is not None:
            self._synchronise()
        self._found.append((time.perf_counter_ns() - self._began) * 1e-9)

    def intervals(self) -> list[float]:
        """Give the intervals."""
        found, self._found = self._found, []
        return found

    def now(self) -> float:
        """Seconds of the wall clock."""
        return time.monotonic()


class EventClock:
    """Events of CUDA (and of ROCm under the same name): the device notes when work began and ended; one wait for all of them."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._pairs: list[tuple[Any, Any]] = []

    def start(self) -> None:
        """Mark the start."""
        pair = (self._torch.cuda.Event(enable_timing=True), self._torch.cuda.Event(enable_timing=True))
        self._pairs.append(pair)
        pair[0].record()

    def stop(self) -> None:
        """Mark the end."""
        self._pairs[-1][1].record()

    def intervals(self) -> list[float]:
        """Wait once, and give the intervals; events count milliseconds."""
        self._torch.cuda.synchronize()
        pairs, self._pairs = self._pairs, []
        return [begin.elapsed_time(end) * 1e-3 for begin, end in pairs]

    def now(self) -> float:
        """Seconds of the wall clock."""
        return time.monotonic()


def clock_of(machine: Machine) -> Clock:
    """The clock of a machine: events on CUDA, else the host's."""
    if machine.kind == "cuda":
        from .machine import torch_module

        return EventClock(torch_module())
    return HostClock(machine.synchronise if machine.kind != "cpu" else None)


def time_call(
    call: Callable[[], Any],
    *,
    machine: Machine,
    limits: Limits = STANDARD,
    cold: bool = False,
    clock: Clock | None = None,
    throttle: Throttle | None = None,
) -> Summary:
    """Time a call: seconds of one execution.

    The first call and some more are not counted. ``cold`` overwrites twice the last cache before each sample; buffers that rotate (see
    :func:`rotate`) need no flush. Hot calls shorter than ``limits.sample_s`` are repeated within a sample, which is divided by the count.
    Samples end when their noise is at most ``limits.noise``, or has settled; at the latest at ``most_s`` or ``most``, and then
    ``Summary.unmet`` names what was not met.

    Parameters
    ----------
    call : what is timed, without arguments
    machine : on which it runs
    limits : when to stop
    cold : whether caches are flushed before each sample
    clock, throttle : for tests; the machine's own otherwise

    Raises
    ------
    MeasureError : when every sample was taken while the machine was throttled
    """
    clock = clock or clock_of(machine)
    watch = throttle or throttle_of(machine)
    estimate = _warm_up(call, clock, limits)
    repeats = 1 if cold else max(1, math.ceil(limits.sample_s / max(estimate, 1e-9)))
    before = machine.flush if cold else None
    kept: list[float] = []
    history: list[float] = []
    dropped, began, ended = 0, clock.now(), ""
    watch.seen()  # what lies before is not ours
    while not ended:
        wanted = _batch(len(kept), limits, (limits.most_s - (clock.now() - began)) / max(estimate * repeats, 1e-9))
        fresh = [interval / repeats for interval in _batch_of(call, clock, wanted, repeats, before)]
        if watch.seen():
            dropped += len(fresh)
        else:
            kept += fresh
            history.append(noise(kept))
        if len(kept) >= limits.least and (history[-1] <= limits.noise or _settled(history)):
            return summarise(kept, dropped)
        ended = _limit_reached(clock.now() - began, len(kept) + dropped, limits)
    return summarise(kept, dropped, _unmet(kept, ended, limits))


def _warm_up(call: Callable[[], Any], clock: Clock, limits: Limits) -> float:
    """Run a call until it has taken ``warm_s``, at most ten times after the first; the shortest time seen."""
    clock.start()
    call()
    clock.stop()
    shortest = clock.intervals()[0]
    spent = 0.0
    for _ in range(10):
        if spent >= limits.warm_s:
            break
        clock.start()
        call()
        clock.stop()
        found = clock.intervals()[0]
        shortest, spent = min(shortest, found), spent + found
    return shortest


def _batch(done: int, limits: Limits, fitting: float) -> int:
    """How many samples to take before the next look: as many as are needed at least, then an eighth more, and what time is left for."""
    step = limits.least - done if done < limits.least else done // 8
    return max(1, min(step, limits.most - done, math.floor(fitting)))


def _batch_of(
    call: Callable[[], Any], clock: Clock, count: int, repeats: int, before: Callable[[], None] | None
) -> list[float]:
    rounds = range(repeats)
    for _ in range(count):
        if before is not None:
            before()
        clock.start()
        for _ in rounds:
            call()
        clock.stop()
    return clock.intervals()


def _settled(history: Sequence[float]) -> bool:
    last = history[-SETTLED_CHECKS:]
    mean = sum(last) / len(last)
    return len(last) == SETTLED_CHECKS and all(abs(value - mean) <= SETTLED * mean for value in last)


def _limit_reached(spent: float, taken: int, limits: Limits) -> str:
    if spent >= limits.most_s:
        return f"{limits.most_s:g} s"
    return f"{limits.most:,} samples" if taken >= limits.most else ""


def _unmet(kept: Sequence[float], ended: str, limits: Limits) -> str:
    if len(kept) < limits.least:
        return f"{limits.least} samples (got {len(kept)} in {ended})"
    return f"noise {limits.noise:.1%} (got {noise(kept):.1%} in {ended}, not settled)"


# ------------------------------------------------------------------------------------------------ cold buffers, small kernels


def copies_needed(bytes_of_one: int, cache_bytes: int) -> int:
    """Copies of a buffer so that five times the cache lies between two uses of one of them; at least two.

    Raises
    ------
    MeasureError : for a buffer without bytes
    """
    if bytes_of_one <= 0:
        raise MeasureError("buffer", got=f"{bytes_of_one} bytes", wanted="more than none")
    return max(2, math.ceil(ROTATION * cache_bytes / bytes_of_one) + 1)


def rotate(calls: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
    """One call that runs the next of several each time, in turn, and gives its result."""
    count, place = len(calls), -1

    def following() -> Any:
        nonlocal place
        place = (place + 1) % count
        return calls[place]()

    return following


def graphed(call: Callable[[], Any], machine: Machine) -> Callable[[], None]:
    """A call as a CUDA graph, so that its launches cost one; elsewhere the call itself."""
    if machine.kind != "cuda":
        return call
    from .machine import torch_module

    torch = torch_module()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # libraries choose their kernels before the capture
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    replay: Callable[[], None] = graph.replay
    return replay
