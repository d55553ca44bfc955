"""Servers whose steps have simple times, in closed form and in the event simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from roofplan.engines.timing import Scheduling
from roofplan.planner.load import LoadState, Server, Traffic, closed_loop
from roofplan.planner.simulator import core

if TYPE_CHECKING:
    from roofplan.planner.simulator.outcome import Outcome

MANY = 10**6  # places that never bind


@dataclass(frozen=True)
class Affine:
    """Steps of a fixed time, a time per token, and one per token that decoding reads; as the simulation asks for them too."""

    fixed_s: float = 6e-3
    token_s: float = 25e-6
    cached_s: float = 60e-12
    decoder_s: float = 25e-6

    def step_s(self, decoders: float, context: float, *, chunk: float = 0, past: float = 0, pieces: float = 1) -> float:
        return self.fixed_s + self.decoder_s * decoders + self.token_s * chunk + self.cached_s * decoders * context

    def __call__(self, decoders: int, context: float, chunk: int, past: float, pieces: int) -> float:
        return self.step_s(decoders, context, chunk=chunk)


SMALL, LARGE, SLOW = Affine(), Affine(12e-3, 60e-6, 1e-10, 60e-6), Affine(20e-3, 1e-4, 2e-10, 1e-4)
ROUND = Affine(10e-3, 1e-4, 0.0, 0.0)  # 10 ms a step, 0.1 ms a prompt token, decoding for nothing
MIXED = Scheduling(admission="mixed")
WHOLE = Scheduling(admission="whole_prompts")
FIRST = Scheduling(admission="prefill_first")


def server(
    model: Any = ROUND, scheduling: Scheduling = MIXED, budget: int = 8192, places: int = MANY, stages: int = 1
) -> Server:
    return Server(model=model, scheduling=scheduling, budget=budget, places=places, stages=stages)


def state(traffic: Traffic, **of: Any) -> LoadState:
    return closed_loop(server(**of), traffic)


def rate_of(found: LoadState, output: float) -> float:
    """Requests per second: those that run, over the time that each has a place."""
    return found.running / (found.steady_ttft_s - found.queue_s + (output - 1) * found.tpot_s)


def requests(traffic: Traffic) -> list[core.Request]:
    """Uniform lengths of these means, as the clients of benchmarks draw them: first all prompts, then all outputs."""
    draw = np.random.RandomState(0)
    count, share = traffic.clients * traffic.waves, (1 + traffic.length_from) / 2
    nominal = [round(mean / share) for mean in (traffic.prompt, traffic.output)]
    lengths = [draw.randint(max(1, int(traffic.length_from * most)), most + 1, count) for most in nominal]
    return [core.Request(int(prompt), int(output)) for prompt, output in zip(*lengths, strict=True)]


def simulated(s: Server, traffic: Traffic) -> Outcome:
    """The same server and clients, event by event."""
    scheduling = s.scheduling
    policy = core.Policy(
        admission=scheduling.admission,
        budget=s.budget,
        slots=s.places,
        look_ahead=scheduling.look_ahead,
        output_lag=scheduling.output_lag,
        request_overhead_s=scheduling.request_overhead,
        poll_steps=scheduling.poll_steps,
        hold_steps=scheduling.hold_steps,
        hold_tokens=round(scheduling.hold_share * s.budget) if scheduling.hold_steps else 0,
    )
    model: Any = s.model
    return core.closed_loop(requests(traffic), traffic.clients, policy, model)
