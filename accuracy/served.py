"""Predictions of served requests: the deployment, launch and client of a published row, through the closed form or the simulation."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..planner.evidence import evidence_of
from ..planner.load import Server, Traffic, closed_loop
from ..planner.memory import plan_memory, rank_cache
from ..planner.simulator import core
from ..planner.simulator.servers import policy_of, step_time_of
from ..planner.step import StepModel
from ..planner.times import places_of
from .limits import check_simulation
from .serving import deployment_of, settings_of
from .serving_settings import by_defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..engines.timing import Scheduling
    from ..planner.deployment import Deployment
    from .serving import ServingRow
    from .serving_settings import ClientSettings, LaunchSettings

LEAST_CACHE = 0.04  # of memory: such servers were run where weights and what is subtracted leave less by our count
_OPEN_LOOP_REQUESTS = 500


@dataclass(frozen=True, slots=True)
class Served:
    """Predicted means of one row in seconds, and the widths of their 80 % ranges."""

    ttft_s: float
    tpot_s: float
    width: float
    first_token_width: float
    waiting: float  # share of the clients that queue for a place


@dataclass(frozen=True, slots=True)
class Case:
    """A row as a deployment under a client, with how the server was launched."""

    deployment: Deployment
    client: ClientSettings
    launch: LaunchSettings
    scheduling: Scheduling
    places: int
    row: ServingRow


def case_of(row: ServingRow, *, launched_by_defaults: bool = False) -> Case:
    """Put a row's deployment, client and launch together.

    Parameters
    ----------
    launched_by_defaults : leave out what is known of the launch: tokens of a step, sequences at a time, longest sequence, share of memory,
        polling, holding and planning ahead are those of the engine's own defaults. Client, version and format of the cache stay

    Raises
    ------
    RoofplanError : for a row that names what nothing describes
    """
    settings = settings_of(row)
    if launched_by_defaults:
        settings = replace(settings, launch=by_defaults(settings.launch))
    d = deployment_of(row, settings)
    launch = settings.launch
    scheduling = replace(
        d.scheduling,
        poll_steps=launch.poll_steps,
        hold_steps=launch.hold_steps,
        hold_share=launch.hold_tokens,
        look_ahead=d.scheduling.look_ahead if launch.look_ahead is None else launch.look_ahead,
    )
    return Case(d, settings.client, launch, scheduling, _places(d), row)


def _places(d: Deployment) -> int:
    """Requests of a replica that run at a time: what the plan says, but at least what a small part of memory would hold."""
    cache = rank_cache(d).bytes_per_sequence(d.workload.length)
    least = int(LEAST_CACHE * plan_memory(d).total_bytes // max(1, cache))
    return max(1, places_of(d), min(least, d.max_num_seqs or least))


def predict(
    case: Case, step: Callable[[Deployment], StepModel] = StepModel.reached, *, simulate: bool = False
) -> Served:
    """Predict the means that the client of a row saw.

    Parameters
    ----------
    step : how the step model of a deployment is made
    simulate : send the client's requests through the event simulation; open loops always are
    """
    d, model = case.deployment, step(case.deployment)
    evidence = evidence_of(d)
    clients = case.row.concurrency
    if clients is None or simulate:
        ttft, tpot, waiting = _simulated(case, model)
    else:
        state = closed_loop(_server(case, model), _traffic(case, clients))
        ttft, tpot, waiting = state.ttft_s, state.tpot_s, state.waiting / max(1, state.waiting + state.running)
    return Served(ttft, tpot, evidence.width, evidence.first_token_width, waiting)


_RESIDUAL_PASSES = 4.0


def without_serving_constants(case: Case) -> Case:
    """A row as kernels and data sheets alone would have it: nothing of what was fitted on served rows.

    No host, no floors of layers and prompt steps; a small kernel takes the device's own floor. Of what passes over the activations only the
    residual is left, which the norm before each of a layer's two parts reads and writes beside its own input and output.
    """
    d = case.deployment
    assert d.kernels is not None
    timing = replace(
        d.engine.timing,
        host_per_step=0.0,
        host_per_sequence=0.0,
        small_kernels=1.0,
        fused_quantisation=0.0,
        layer_passes=_RESIDUAL_PASSES,
        expert_passes=0.0,
        prompt_floor=0.0,
        expert_prompt_floor=0.0,
    )
    floors = replace(d.kernels.floors, routing=0.0, latent=0.0, gated_delta=0.0, sparse_index=0.0)
    engine, kernels = replace(d.engine, timing=timing), replace(d.kernels, floors=floors)
    return replace(case, deployment=replace(d, engine=engine, kernels=kernels))


def _server(case: Case, model: StepModel) -> Server:
    d = case.deployment
    return Server(
        model=model, scheduling=case.scheduling, budget=d.max_batched_tokens, places=case.places, stages=d.layout.pp
    )


def _traffic(case: Case, clients: int) -> Traffic:
    client = case.client
    return Traffic(
        case.row.isl * (client.length_from + client.length_to) / 2,
        case.row.osl * (client.length_from + client.length_to) / 2,
        max(1, round(clients / case.deployment.layout.dp)),
        client.length_from / client.length_to,
        client.waves or 1,
    )


# ------------------------------------------------------------------------------------------------ simulation


def _simulated(case: Case, model: StepModel) -> tuple[float, float, float]:
    """Means over the requests of every replica: clients are divided among them, requests at a rate go to one after the other."""
    row, client, replicas = case.row, case.client, case.deployment.layout.dp
    clients = max(1, round((row.concurrency or 0) / replicas))
    is_open = row.concurrency is None
    count = (client.requests or _OPEN_LOOP_REQUESTS) if is_open else clients * (client.waves or 1)
    check_simulation(count, row.isl, case.deployment.max_batched_tokens)
    if is_open:
        requests = _open_loop(row.isl, row.osl, row.request_rate or math.inf, client.length_sigma or 0.0, count)
    else:
        requests = _closed_loop(row.isl, row.osl, count, client.length_from, client.length_to, client.seed or 0)
    policy, step_s = policy_of(_server(case, model), max(r.prompt for r in requests)), step_time_of(model)
    if is_open:
        shares = [own for replica in range(replicas) if (own := requests[replica::replicas])]
        outcomes = [core.open_loop(own, policy, step_s) for own in shares]
    else:
        outcomes = [core.closed_loop(requests, clients, policy, step_s)]
    waiting = _total(o.queued_s for o in outcomes) / max(1e-12, _total(o.e2e_s for o in outcomes))
    sent = sum(len(o.ttft_s) for o in outcomes)
    tpot = [tpot for o in outcomes for tpot in o.tpot_s if tpot is not None]
    return _total(o.ttft_s for o in outcomes) / sent, math.fsum(tpot) / len(tpot) if tpot else 0.0, waiting


def _total(seconds: Iterable[tuple[float, ...]]) -> float:
    return math.fsum(second for own in seconds for second in own)


@functools.lru_cache(maxsize=64)
def _closed_loop(
    prompt: int, output: int, count: int, least: float, most: float, seed: int
) -> tuple[core.Request, ...]:
    """Uniform lengths as the client draws them: first all prompts, then all outputs."""
    import numpy as np

    draw = np.random.RandomState(seed)
    lengths = [draw.randint(int(least * size), int(most * size) + 1, count) for size in (prompt, output)]
    return tuple(core.Request(max(1, int(p)), max(1, int(o))) for p, o in zip(*lengths, strict=True))


@functools.lru_cache(maxsize=64)
def _open_loop(prompt: int, output: int, rate: float, sigma: float, count: int) -> tuple[core.Request, ...]:
    """Poisson arrivals, and log-normal lengths around the means."""
    import numpy as np

    draw = np.random.RandomState(0)
    lengths = [size * np.exp(draw.normal(-sigma * sigma / 2, sigma, count)) for size in (prompt, output)]
    sent = np.cumsum(draw.exponential(1 / rate, count)) if math.isfinite(rate) else np.zeros(count)
    return tuple(
        core.Request(max(1, round(p)), max(1, round(o)), float(at)) for p, o, at in zip(*lengths, sent, strict=True)
    )
