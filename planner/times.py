"""Times and rates of a deployment at its asked concurrency: the bound of the roofline, and what is reached under load.

The bound is the steady state of an ideal server at nominal rates (:mod:`.latency`); what is expected comes from the kernels as they are
reached and the engine's scheduler (:mod:`.load`), within a range by what stands behind it (:mod:`.evidence`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..engines.timing import Scheduling
from .evidence import Evidence, evidence_of
from .figures import LatencyFigures, ThroughputFigures
from .latency import SteadyState, steady_state
from .load import LoadState, Server, Traffic, closed_loop
from .memory import plan_capacity, plan_memory
from .ranges import Range
from .reached import reached_model

if TYPE_CHECKING:
    from .deployment import Deployment
    from .step import StepModel
    from .streams import StreamModel


_IDEAL = Scheduling(admission="mixed")
_VARIED = 0.8  # lengths of requests vary, so that they do not stay together


@dataclass(frozen=True, slots=True)
class Times:
    """Everything that needs at least one sequence to fit."""

    roof: SteadyState
    load: LoadState
    evidence: Evidence
    latency: LatencyFigures
    throughput: ThroughputFigures


def times_of(d: Deployment, nominal: StepModel, reached: StepModel | StreamModel, places: int) -> Times:
    """Times at the asked concurrency, where the cache of each replica has so many places for requests at their full length.

    More than those run on engines that do not keep the whole of each output free.
    """
    users = d.sequences_per_replica
    if users > places and d.engine.scheduling.reserved_output < 1:
        places = max(places, places_of(d))
    roof = steady_state(nominal, d.workload, users, places, d.max_batched_tokens, d.layout.pp)
    load = _load(d, server_of(d, reached, places), users)
    # An ideal server that computes prompts together is as much a roof as one that takes them one chunk a step: the faster one bounds.
    ideal = _load(d, replace(server_of(d, nominal, places), scheduling=_IDEAL), users)
    evidence, workload = evidence_of(d), d.workload
    width, first = evidence.width, evidence.first_token_width
    # Replicas that the asked concurrency does not fill evenly run fewer than the fullest one.
    running = min(workload.concurrency, d.layout.dp * roof.running)
    gaps = workload.output - 1
    reached_e2e = load.steady_ttft_s + gaps * load.tpot_s
    ideal_e2e = ideal.steady_ttft_s + gaps * ideal.tpot_s
    service = min(roof.e2e_s - roof.queue_s, ideal_e2e - ideal.queue_s)
    requests = Range.of_rate(running / service, running / (reached_e2e - load.queue_s), width if gaps else first)
    if load.rate is not None:  # what arrives is served
        requests = Range.of_rate(max(requests.bound, d.layout.dp * load.rate), d.layout.dp * load.rate, 1.0)
    roof_tpot = None if roof.tpot_s is None else min(roof.tpot_s, ideal.tpot_s)
    tpot = None if roof_tpot is None else Range.of_time(roof_tpot, load.tpot_s, width)
    latency = LatencyFigures(
        ttft_s=Range.of_time(min(roof.ttft_s, ideal.steady_ttft_s), load.steady_ttft_s, first),
        ttft_alone_s=Range.of_time(roof.ttft_alone_s, load.alone_ttft_s, first),
        ttft_burst_s=Range.of_time(min(roof.ttft_alone_s, ideal.burst_ttft_s), load.burst_ttft_s, first),
        tpot_s=tpot,
        itl_s=Range.of_time(roof.itl_s, load.step_s, width),
        e2e_s=Range.of_time(min(roof.e2e_s, ideal_e2e), reached_e2e, width if gaps else first),
    )
    per_user = None if tpot is None else Range.of_rate(_inverse(tpot.bound), _inverse(tpot.expected), width)
    return Times(
        roof,
        load,
        evidence,
        latency,
        ThroughputFigures(requests.scaled(workload.output), requests.scaled(workload.length), per_user),
    )


def _load(d: Deployment, server: Server, users: int) -> LoadState:
    """A replica under its share of the workload: of the rate that arrives, where one is given that it can keep up with."""
    workload = d.workload
    traffic = Traffic(workload.prompt, workload.output, users, _VARIED)
    if workload.rate is not None:
        from .open_loop import open_loop

        state = open_loop(server, traffic, workload.rate / d.layout.dp)
        if state is not None:
            return state
    return closed_loop(server, traffic)


def at_rate(d: Deployment, rate: float) -> Deployment:
    """The deployment with as many requests in flight as a rate of arrivals keeps there (Little's law); see :mod:`.open_loop`.

    Where it cannot keep up, one more request is in flight than it has places for: the queue has no end.

    Parameters
    ----------
    rate : requests per second over all replicas
    """
    from .open_loop import open_loop

    workload, places = d.workload, max(1, places_of(d))
    server = server_of(d, reached_model(d), places)
    state = open_loop(server, Traffic(workload.prompt, workload.output, 1, _VARIED), rate / d.layout.dp)
    of_one = places + 1.0
    if state is not None:
        of_one = min(of_one, rate / d.layout.dp * (state.steady_ttft_s + max(0, workload.output - 1) * state.tpot_s))
    return replace(d, workload=replace(workload, concurrency=max(1, math.ceil(of_one * d.layout.dp)), rate=rate))


def most_requests_per_s(d: Deployment) -> float:
    """Requests per second that a deployment keeps up with, every place taken."""
    from .open_loop import rate_when_full

    server = server_of(d, reached_model(d), max(1, places_of(d)))
    return d.layout.dp * rate_when_full(server, Traffic(d.workload.prompt, d.workload.output, 1, _VARIED))


def places_of(d: Deployment) -> int:
    """Requests that a replica runs at a time: those that its cache holds with a part of each output kept free, and its limit."""
    kept = max(1, round(d.engine.scheduling.reserved_output * d.workload.output))
    admitting = replace(d, workload=replace(d.workload, output=kept))
    return plan_capacity(admitting, plan_memory(admitting)).max_concurrency // d.layout.dp


def server_of(d: Deployment, reached: StepModel | StreamModel, places: int) -> Server:
    """One replica of a deployment as a server."""
    return Server(
        model=reached,
        scheduling=d.scheduling,
        budget=d.max_batched_tokens,
        places=places,
        stages=d.layout.pp,
    )


def _inverse(time_s: float) -> float:
    return 1 / time_s if time_s else math.inf
