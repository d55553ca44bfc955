"""Timing through injected clocks: when it stops, what it drops, what it names, and that CUDA is waited for once."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from measured import CPU, GPU, SaidThrottle, TickingClock, cuda_torch
from pytest import approx

from roofplan.errors import MeasureError
from roofplan.measure import timing
from roofplan.measure.machine import Machine
from roofplan.measure.timing import (
    EventClock,
    HostClock,
    Limits,
    clock_of,
    copies_needed,
    graphed,
    rotate,
    time_call,
)

ONE = Limits(sample_s=0.0)  # no repetition within a sample
NEVER = SaidThrottle()


def nothing() -> None:
    pass


def test_it_stops_as_soon_as_samples_are_steady() -> None:
    said = time_call(nothing, machine=CPU, limits=ONE, clock=TickingClock([0.01]), throttle=NEVER)
    assert (said.count, said.median, said.unmet) == (10, 0.01, "")


def test_noise_that_falls_is_waited_for() -> None:
    """Ten samples that differ, then equal ones: it goes on until the median deviation is below the criterion."""
    clock = TickingClock([0.01] * 11 + [0.011, 0.009] * 5 + [0.01] * 10_000, 1e-4)
    said = time_call(nothing, machine=CPU, limits=ONE, clock=clock, throttle=NEVER)
    assert said.unmet == ""
    assert 10 < said.count < 100


def test_noise_that_has_settled_is_enough() -> None:
    clock = TickingClock([0.010, 0.011, 0.012, 0.013], 1e-6)
    said = time_call(nothing, machine=CPU, limits=ONE, clock=clock, throttle=NEVER)
    assert said.unmet == ""
    assert said.relative_mad > ONE.noise
    assert said.count < 200


def test_a_limit_names_what_was_not_met() -> None:
    clock = TickingClock([1.0, 1.5, 2.0, 2.5, 1.2, 3.0], 0.3)
    said = time_call(nothing, machine=CPU, limits=replace(ONE, most_s=4.0), clock=clock, throttle=NEVER)
    assert said.unmet.startswith("noise 0.5% (got ") or said.unmet.startswith("10 samples (got ")
    assert "4 s" in said.unmet


def test_a_call_longer_than_the_limit_gives_one_sample_and_says_so() -> None:
    said = time_call(nothing, machine=CPU, limits=replace(ONE, most_s=2.0), clock=TickingClock([30.0]), throttle=NEVER)
    assert said.count == 1
    assert said.unmet == "10 samples (got 1 in 2 s)"


def test_most_samples_is_a_limit() -> None:
    import random

    draw = random.Random(3)
    clock = TickingClock([draw.uniform(0.5, 1.5) ** 3 for _ in range(999)], 0.0)
    limits = replace(ONE, most=12, noise=1e-9)
    said = time_call(nothing, machine=CPU, limits=limits, clock=clock, throttle=NEVER)
    assert said.count == 12
    assert "12 samples" in said.unmet


def test_short_calls_are_repeated_within_a_sample() -> None:
    """An interval of 1 ms of calls that were estimated at 10 us each holds a hundred of them."""
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1

    clock = TickingClock([1e-5] * 11 + [1e-3] * 1000)
    limits = Limits(sample_s=1e-3, warm_s=1.0)
    said = time_call(count, machine=CPU, limits=limits, clock=clock, throttle=NEVER)
    assert said.median == approx(1e-5)
    assert calls == 11 + 10 * 100


def test_warm_up_is_not_counted() -> None:
    clock = TickingClock([9.0] + [0.01] * 500)
    said = time_call(nothing, machine=CPU, limits=ONE, clock=clock, throttle=NEVER)
    assert max(said.samples) == 0.01


def test_warm_up_ends_by_its_time() -> None:
    clock = TickingClock([0.15])
    time_call(nothing, machine=CPU, limits=replace(ONE, warm_s=0.2, least=1, most=1), clock=clock, throttle=NEVER)
    assert clock.starts == 1 + 2 + 1  # the first call, two that take 0.3 s, one sample


def test_throttled_samples_are_dropped() -> None:
    """Of the first ten samples it is said that the machine was slowed down; ten others are taken."""
    clock = TickingClock([0.01] * 11 + [0.09] * 10 + [0.01] * 500)
    said = time_call(nothing, machine=CPU, limits=ONE, clock=clock, throttle=SaidThrottle([False, True, False]))
    assert (said.count, said.dropped) == (10, 10)
    assert max(said.samples) == 0.01


def test_a_machine_that_is_always_throttled() -> None:
    with pytest.raises(MeasureError, match="throttled"):
        time_call(
            nothing,
            machine=CPU,
            limits=replace(ONE, most_s=1.0),
            clock=TickingClock([0.05]),
            throttle=SaidThrottle(then=True),
        )


def test_cold_calls_flush_before_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(Machine, "flush", lambda _: order.append("flush"))
    time_call(
        lambda: order.append("call"), machine=CPU, limits=ONE, cold=True, clock=TickingClock([0.2]), throttle=NEVER
    )
    warm = order.index("flush")
    assert order[warm:] == ["flush", "call"] * ((len(order) - warm) // 2)
    assert order.count("flush") == 10


def test_cold_calls_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "flush", lambda _: None)
    said = time_call(
        nothing, machine=CPU, limits=Limits(sample_s=1.0), cold=True, clock=TickingClock([1e-6]), throttle=NEVER
    )
    assert said.median == approx(1e-6)


# ------------------------------------------------------------------------------------------------ clocks


def test_the_hosts_clock_measures() -> None:
    import time

    clock = HostClock()
    clock.start()
    time.sleep(0.02)
    clock.stop()
    (found,) = clock.intervals()
    assert 0.02 <= found < 0.2
    assert clock.intervals() == []


def test_the_hosts_clock_waits_for_a_device() -> None:
    waits: list[int] = []
    clock = HostClock(lambda: waits.append(1))
    clock.start()
    clock.stop()
    assert len(waits) == 2


def test_events_are_waited_for_once() -> None:
    """Ten intervals, one wait: their times are those of the stream, whatever the host did."""
    stream: list[float] = []
    torch = cuda_torch(stream)
    clock = EventClock(torch)
    for _ in range(10):
        clock.start()
        stream.append(0.002)
        clock.stop()
    assert clock.intervals() == approx([0.002] * 10)
    assert torch.calls == ["synchronize"]
    assert clock.intervals() == []


def test_a_gpu_is_timed_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    stream: list[float] = []
    torch = cuda_torch(stream)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(timing, "throttle_of", lambda _: SaidThrottle())
    assert isinstance(clock_of(GPU), EventClock)
    said = time_call(lambda: stream.append(0.003), machine=GPU, limits=ONE)
    assert said.median == approx(0.003)
    assert said.count == 10
    assert torch.calls.count("synchronize") < said.count + 11  # warm-up one by one, samples together


def test_a_cpu_is_timed_by_the_host() -> None:
    assert isinstance(clock_of(CPU), HostClock)


# ------------------------------------------------------------------------------------------------ cold buffers, graphs


def test_five_caches_lie_between_two_uses() -> None:
    cache = 50 * 2**20
    for size in (2**20, 30 * 2**20, 2**30):
        copies = copies_needed(size, cache)
        assert (copies - 1) * size >= 5 * cache
        assert copies == 2 or (copies - 2) * size < 5 * cache


def test_a_buffer_has_bytes() -> None:
    with pytest.raises(MeasureError, match="more than none"):
        copies_needed(0, 1)


def test_rotating() -> None:
    order: list[int] = []
    call = rotate([lambda n=n: order.append(n) for n in range(3)])  # type: ignore[misc]
    for _ in range(7):
        call()
    assert order == [0, 1, 2, 0, 1, 2, 0]


def test_a_graph_on_a_cpu_is_the_call_itself() -> None:
    assert graphed(nothing, CPU) is nothing


def test_a_graph_is_captured_once_and_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    import contextlib
    import types

    events: list[str] = []

    class Graph:
        def replay(self) -> None:
            events.append("replay")

    @contextlib.contextmanager
    def capture(_: Any) -> Any:
        events.append("capture")
        yield

    stream = types.SimpleNamespace(wait_stream=lambda _: events.append("wait"))
    torch = cuda_torch()
    torch.cuda.Stream = lambda: stream
    torch.cuda.current_stream = lambda: stream
    torch.cuda.stream = lambda _: contextlib.nullcontext()
    torch.cuda.CUDAGraph = Graph
    torch.cuda.graph = capture
    monkeypatch.setitem(sys.modules, "torch", torch)
    replay = graphed(lambda: events.append("call"), GPU)
    assert events == ["wait", "call", "call", "call", "wait", "capture", "call"]
    replay()
    assert events[-1] == "replay"
