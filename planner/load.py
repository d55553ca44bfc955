"""A server under load, in closed form: time per token with the prompts of others in between, and time to first token in a burst and after.

A closed loop of C clients keeps C requests in flight. All begin together (the burst); later each ends at another time, so that prompts come
one by one into the steps of those that decode (the waves). Symbols: S and G mean tokens of prompt and output, d a decode step, tau the time
of one prompt in a busy step, T tokens of a step, k = max(1, floor(T / S)) prompts that fill one.

    TPOT  = d + (B - s) x / G            each other running request is prefilled once while one decodes (s: share of time that it decodes)
    burst = t_k (ceil(C / k) + 1) / 2    mean over the first C requests
    wave  = wait for the step at hand, for others' prompts, for engines that look ahead, poll or hold prompts; then tau

x is what a prompt adds to steps that decode anyway (or its whole time where prompts run first). Requests beyond the places in memory wait
for one to end: that is a state of its own, told in ``waiting``.

Sources: the forms of a queue with one server (Pollaczek and Khinchine); schedulers of vllm-project/vllm (v1/core/sched), sgl-project/sglang
(srt/managers/scheduler.py) and NVIDIA/TensorRT-LLM (pyexecutor). The factors of the waves were chosen against the event simulation of
:mod:`roofplan.planner.simulator`, not against measurements.
Left out: unequal arrival of clients, prefix hits, and that outputs end early.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DomainError

if TYPE_CHECKING:
    from ..engines.timing import Scheduling
    from .step import StepModel
    from .streams import StreamModel

_ITERATIONS = 8
# Against the simulation: how far arrivals of equal lengths spread per wave, how much of a step is waited for, how queues build up.
_SPREAD = 1.2
_RESIDUAL = 0.3
_QUEUE = 0.6
_CLUSTER = 0.15
_KEPT_STEP = (
    1.2  # prompt steps until the first token, of requests of equal lengths that follow one another step by step
)
_FULLEST = 0.97


@dataclass(frozen=True, slots=True)
class Traffic:
    """What clients send: mean tokens of prompt and output, and how far lengths vary.

    Parameters
    ----------
    prompt, output : mean tokens
    clients : requests in flight on one replica
    length_from : lengths are uniform between this share of the longest and the longest; one: all are equal
    waves : requests per client that are measured, the burst among them
    prompt_variation, output_variation : squared coefficients of variation where lengths vary more: exp(sigma^2) - 1 of log-normal ones
    """

    prompt: float
    output: float
    clients: int
    length_from: float = 1.0
    waves: int = 10
    prompt_variation: float = 0.0
    output_variation: float = 0.0

    @property
    def context(self) -> float:
        """Mean tokens of a sequence that decodes, S + G (1 + c^2) / 2: long outputs are met more often than short ones."""
        return self.prompt + self.output * (1 + self.output_variation) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One replica: its steps, its scheduler, and what it admits.

    Parameters
    ----------
    model : times of its steps
    scheduling : in which order it serves
    budget : tokens of a step
    places : requests that run at a time, by memory and by the engine's limit
    stages : of a pipeline, which work on as many groups of requests
    """

    model: StepModel | StreamModel
    scheduling: Scheduling
    budget: int
    places: int
    stages: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadState:
    """A server under load: seconds, and how many requests run, decode and wait.

    ``ttft_s`` is the mean over all waves, as benchmark clients report it; ``steady_ttft_s`` is the limit that users with spread arrivals
    see. ``waiting`` requests queue for memory (or for the engine's limit of sequences), for ``queue_s`` each. ``rate`` is that of arrivals
    per second in an open loop, None in a closed one.
    """

    alone_ttft_s: float
    burst_ttft_s: float
    steady_ttft_s: float
    ttft_s: float
    tpot_s: float
    step_s: float
    decoding: float
    during: float  # prompts of others while one decodes
    running: int
    waiting: int
    queue_s: float
    prompt_s: float  # tau: one prompt in a busy step
    prompt_added_s: float  # x: what a prompt adds to the steps of others
    rate: float | None = None


def closed_loop(server: Server, traffic: Traffic) -> LoadState:
    """State of a server under a closed loop of clients.

    Raises
    ------
    DomainError : without a place, a client, a token of prompt or output
    """
    _check(server, traffic)
    running = min(server.places, traffic.clients)
    filled = min(running, max(1, int(server.budget // traffic.prompt)))
    per_prompt = _prompts_s(server, traffic.prompt, filled) / filled
    decode = _decode(server, traffic, running, per_prompt)
    step, tpot = decode.step_s, decode.tpot_s
    cycle = traffic.output * tpot + decode.prompt_s
    overhead = server.scheduling.request_overhead + server.scheduling.tokenise_per_token * traffic.prompt
    late = server.scheduling.output_lag * (tpot or step)
    alone = _prompts_s(server, traffic.prompt, 1)
    if server.scheduling.output_lag:
        alone += float(server.model.step_s(1.0, traffic.context))
    burst = per_prompt * filled * (math.ceil(running / filled) + 1) / 2
    wave = _Wave(server, traffic, running, decode, cycle, per_prompt, burst)
    waves = [burst, *(wave.ttft_s(number) for number in range(1, traffic.waves))]
    waiting = traffic.clients - running
    fixed = overhead + late
    steady = wave.ttft_s(_LATE_WAVE) + fixed
    # In steady state (C - places) requests ahead leave at places per request's time (Little); in a burst they come group after group.
    queue = waiting / running * (steady + max(0.0, traffic.output - 1) * tpot)
    groups = (math.ceil(traffic.clients / running) - 1) / 2
    of_waves = fixed + _WAIT * queue
    return LoadState(
        alone_ttft_s=overhead + alone,
        burst_ttft_s=burst + fixed + groups * cycle,
        steady_ttft_s=steady + queue,
        ttft_s=sum(waves) / len(waves) + of_waves,
        tpot_s=tpot,
        step_s=step,
        decoding=decode.decoding,
        during=decode.during,
        running=running,
        waiting=waiting,
        queue_s=queue,
        prompt_s=decode.prompt_s,
        prompt_added_s=decode.added_s,
    )


def _check(server: Server, traffic: Traffic) -> None:
    counts = (server.places, server.budget, server.stages, traffic.clients, traffic.waves)
    lengths = (traffic.prompt, traffic.output)
    if min(counts) < 1 or not all(1 <= length < math.inf for length in lengths):
        got = f"{server.places} places, {traffic.clients} clients, {traffic.prompt} + {traffic.output} tokens"
        raise DomainError("load", got=got, wanted="at least one of each, and finite lengths")
    if not 0 < traffic.length_from <= 1:
        raise DomainError("length_from", got=traffic.length_from, wanted="a share above 0, at most 1")


_WAIT = 0.9  # of the queue in steady state: in a measurement that begins empty the first places are free at once
_LATE_WAVE = 10**6  # arrivals are spread evenly by then
_MANY_STEPS = 256


@dataclass(frozen=True, slots=True)
class _Decode:
    tpot_s: float
    step_s: float
    decoding: float
    prompt_s: float
    added_s: float
    unserved: float  # prompts of others that find no room in the steps of one decode: they come before it
    during: float  # prompts of others while one decodes


def _decode(server: Server, traffic: Traffic, running: int, per_prompt_s: float) -> _Decode:
    """Time per token: a fixed point of the sequences that decode at a time.

    In the time of one request every other one is prefilled once: before its first token, or while it decodes. Prompts that come within one
    step are computed together in the next.
    """
    model, stages, gaps = server.model, server.stages, max(0.0, traffic.output - 1)
    context, first = traffic.context, server.scheduling.admission == "prefill_first"
    lockstep = _lockstep_s(server, traffic, running)
    # Requests end, and their clients send the next, at the ends of steps: so many come at once at least.
    at_once = (running - 1.0) / gaps if gaps else running - 1.0
    share, together = (1.0 if gaps else 0.0), 1.0
    others = running - 1.0
    most = max(1.0, min(server.budget // traffic.prompt, others))
    for _ in range(_ITERATIONS):
        batch = max(1.0, running * share / stages)
        step = float(model.step_s(batch, context))
        decoders = 0.0 if first else batch
        prompt, steps = _one_prompt_s(server, traffic.prompt, decoders, context)
        busy = (
            prompt
            if together == 1
            else float(model.step_s(decoders, context, chunk=together * traffic.prompt, pieces=together))
        )
        added = busy / together if first else max(0.0, busy - steps * step) / together
        unserved = 0.0 if first and gaps else max(0.0, others - gaps * max(1 / steps, most))
        cycle = gaps * step + others * added / stages + prompt
        before = max(_ahead(min(_FULLEST, others * per_prompt_s / stages / cycle), running), unserved)
        during = max(0.0, others - before)
        waited = during * added / stages if lockstep is None else lockstep
        decode = gaps * step + waited
        share = decode / (decode + prompt + before * prompt / stages)
        if steps == 1:
            interval = max((busy + step * first) / stages, _gathered_steps(server, traffic) * step)
            together = min(most, max(at_once, _at_least_one(others * interval / cycle)))
    return _Decode(decode / gaps if gaps else 0.0, step, running * share, prompt, added, unserved, during)


def _at_least_one(mean: float) -> float:
    """Mean number of random arrivals in an interval, of those intervals that have one: m / (1 - exp(-m))."""
    return mean / -math.expm1(-mean) if mean > 0 else 1.0


def _gathered_steps(server: Server, traffic: Traffic) -> int:
    """Decode steps for which an engine lets prompts gather before it computes them together: it polls, or holds them back."""
    return max(server.scheduling.poll_steps, server.scheduling.hold_steps if _is_held(server, traffic) else 0)


def _is_held(server: Server, traffic: Traffic) -> bool:
    """Whether prompts are held back: not where one alone fills the share of a step at which they are let go."""
    return traffic.prompt < server.scheduling.hold_share * server.budget


def _ahead(load: float, running: int) -> float:
    """Prompts that one finds before it: rho / (2 (1 - rho)) of a queue with equal service times, less in a loop of few clients."""
    return _QUEUE * min(load / (2 * (1 - load)), _CLUSTER * math.sqrt(running) * load)


def _lockstep_s(server: Server, traffic: Traffic, running: int) -> float | None:
    """Where prompts run first and lengths are equal, all prompts of a wave are done before anyone decodes: one waits for half of them."""
    if server.scheduling.admission != "prefill_first" or traffic.length_from < 1:
        return None
    count = min(running, max(1, int(server.budget // traffic.prompt)))
    return (math.ceil(running / count) - 1) * _prompts_s(server, traffic.prompt, count) / 2


def _one_prompt_s(server: Server, prompt: float, decoders: float, context: float) -> tuple[float, int]:
    """Time of one prompt in steps that also decode for others, and how many steps it takes."""
    room = max(1.0, server.budget - decoders) if server.scheduling.admission == "mixed" else float(server.budget)
    steps = math.ceil(prompt / room)
    piece = prompt / steps
    if steps > _MANY_STEPS:  # all at once; numpy takes longer to load than a few steps take
        import numpy as np

        return float(server.model.step_s(decoders, context, chunk=piece, past=piece * np.arange(steps)).sum()), steps
    times = (server.model.step_s(decoders, context, chunk=piece, past=done * piece) for done in range(steps))
    return float(sum(times)), steps


def _prompts_s(server: Server, prompt: float, count: float) -> float:
    """Time of so many prompts in one step, nothing else in it; of one that exceeds a step in as many as it needs."""
    if count <= 1:
        return _one_prompt_s(server, prompt, 0.0, 0.0)[0]
    return float(server.model.step_s(0.0, 0.0, chunk=count * prompt, pieces=count))


@dataclass(frozen=True, slots=True)
class _Wave:
    """Time to first token in a later wave of a closed loop."""

    server: Server
    traffic: Traffic
    running: int
    decode: _Decode
    cycle_s: float
    per_prompt_s: float
    burst_s: float

    def ttft_s(self, number: int) -> float:
        """Mean of wave ``number`` after the burst."""
        if self.traffic.length_from >= 1 and number < _LATE_WAVE and self.running > 1:
            return self._of_equal_lengths()
        spread = _SPREAD * (1 - self.traffic.length_from) * self.traffic.output * self.decode.step_s * math.sqrt(number)
        width = min(self.cycle_s, self.running * self.per_prompt_s + spread) if number < _LATE_WAVE else self.cycle_s
        load = min(_FULLEST, (self.running - 1) * self.per_prompt_s / width)
        if self.server.scheduling.poll_steps and self.running > 1:
            return self._of_polling(width)
        return self._of_arrivals(load)

    def _of_arrivals(self, load: float) -> float:
        step, prompt, scheduling = self.decode.step_s, self.decode.prompt_s, self.server.scheduling
        others = 1 - 1 / self.running  # alone, nobody's step is waited for
        idle = (1 - load) * step
        waited = others * ((0.5 + scheduling.look_ahead) * idle + _RESIDUAL * load * prompt)
        before = max(_ahead(load, self.running), self.decode.unserved)
        held = scheduling.hold_steps * step * (1 - load / 2) if _is_held(self.server, self.traffic) and others else 0.0
        return waited + prompt + before * prompt / self.server.stages + held

    def _of_polling(self, width: float) -> float:
        """Engines that fetch new requests now and then compute those of an interval together."""
        interval = self.server.scheduling.poll_steps * self.decode.step_s
        rate = self.running / width
        count = 1 + rate * interval / max(1 - _FULLEST, 1 - self.running * self.per_prompt_s / width)
        together = min(float(self.running), count)
        return interval / 2 + self.decode.prompt_s + (together - 1) * self.per_prompt_s

    def _of_equal_lengths(self) -> float:
        """Requests of equal lengths stay together: the burst comes again, or its groups follow one another step by step."""
        if self.server.scheduling.admission == "prefill_first":
            return self.burst_s
        step, scheduling = self.decode.step_s, self.server.scheduling
        count = max(1, int(self.server.budget // self.traffic.prompt))
        if self.running <= count:
            return self.burst_s + scheduling.look_ahead * step
        together = _prompts_s(self.server, self.traffic.prompt, count)
        return (_KEPT_STEP + scheduling.look_ahead) * together + (0.5 + scheduling.look_ahead) * step


@dataclass(frozen=True, slots=True)
class Saturated:
    """A replica that never waits for requests: the batch with the highest rate, and that rate."""

    batch: int
    requests_per_s: float
    step_s: float


def saturated(server: Server, traffic: Traffic) -> Saturated:
    """Most requests per second of a replica that has all of them at hand, over batches up to its places: B / (G d(B) + B x(B)).

    In the time of one request's decoding every other one's prompt is computed once. Batches are tried in steps of an eighth.

    Raises
    ------
    DomainError : without a place or a token
    """
    _check(server, traffic)
    return max(
        (_saturated(server, traffic, batch) for batch in _batches(server.places)), key=lambda s: s.requests_per_s
    )


def _batches(most: int) -> list[int]:
    batches = [1]
    while batches[-1] < most:
        batches.append(min(most, max(batches[-1] + 1, batches[-1] * 9 // 8)))
    return batches


def _saturated(server: Server, traffic: Traffic, batch: int) -> Saturated:
    decoders = max(1.0, batch / server.stages)
    context = traffic.context
    step = float(server.model.step_s(decoders, context))
    mixed = server.scheduling.admission != "prefill_first"
    # So many places are free at the end of a step, and their prompts are computed together.
    filled = max(1, int(server.budget // traffic.prompt))
    together = max(1, min(filled, math.ceil(batch / max(1.0, traffic.output - 1))))
    if mixed and together > 1:
        busy = float(server.model.step_s(decoders, context, chunk=together * traffic.prompt, pieces=together))
        added = (busy - step) / together
    elif mixed:
        busy, steps = _one_prompt_s(server, traffic.prompt, decoders, context)
        added = max(0.0, busy - steps * step)
    else:
        added = _prompts_s(server, traffic.prompt, together) / together
    rate = batch / (max(1.0, traffic.output - 1) * step + batch * added / server.stages)
    return Saturated(batch, rate, step)
