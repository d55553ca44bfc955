"""A server that requests reach at random, at a rate, in closed form: as many in flight as Little's law says, and waits of a random stream.

Time per token, and what a prompt adds to a step, are those of a closed loop (:mod:`.load`) with as many clients as it needs to send at that
rate, interpolated between two numbers of clients. Times to first token differ, since arrivals bunch. With d a decode step, x what a prompt
adds to it, lambda arrivals per second, c^2 the squared variation of prompts and rho = lambda x:

    mixed          a step takes in all prompts that came during the one before: E[D] = d / (1 - rho),
                   Var D = x^2 (1 + c^2) lambda E[D] / (1 - rho^2), I = E[D^2] / E[D]
                   TTFT = I / 2 + d + x (1 + lambda I)
    prompts first  the same of steps of prompts alone, between decode steps: P = x (1 + lambda (1 - rho) d) / (1 - rho^2),
                   TTFT = ((1 - rho) d + rho P) / 2 + P
    long prompts   one at a time, tau each (more than half of a step's tokens): rho = lambda tau,
                   TTFT = (1 - rho) d / 2 + rho tau (1 + c^2) / (2 (1 - rho)) + tau    (Pollaczek and Khinchine)

I is the interval that an arrival falls into, longer than the mean one.

For a place one waits as in a queue whose rate depends on those in service: n of them are served at mu(n) = n / E2E(n), of a closed loop
of n clients, and mu(places) whoever waits beyond, so that p(n) ~ prod lambda / mu(j). Of the wait with exponential times equal ones have
half, outputs that vary (1 + c^2) / 2; prompts of others, which come at random, lengthen it by 1 / (1 - rho), a factor that was chosen
against the simulation.

Checked against the event simulation of :mod:`roofplan.planner.simulator` (tests/planner/test_open_loop.py): within 15 % up to 0.7 of the
rate with all places taken; at 0.9 times to first token may be off by a factor of two, either way.
Left out: outputs that end early.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING

from . import domain
from .load import closed_loop

if TYPE_CHECKING:
    from .load import LoadState, Server, Traffic

_FULLEST = 0.97
_NEGLIGIBLE = 1e-12
_VARIED = 0.8  # requests at random do not stay together, however equal their lengths


def open_loop(server: Server, traffic: Traffic, arrivals_per_s: float) -> LoadState | None:
    """State of a server at a rate of requests (``traffic.clients`` does not count); None where it cannot keep up: the queue has no end.

    ``ttft_s`` and ``steady_ttft_s`` are the same here, with the wait for a place; ``burst_ttft_s`` is that of as many requests at once as
    are in flight.

    Raises
    ------
    DomainError : for a rate that is not positive, and as :func:`~roofplan.planner.load.closed_loop`
    """
    rate = domain.positive("arrivals_per_s", arrivals_per_s)
    found = _between(server, traffic, rate)
    if found is None:
        return None
    fewer, more, share, most = found

    def mixed(name: str) -> float:
        below, above = float(getattr(fewer, name)), float(getattr(more, name))
        return below + share * (above - below)

    tpot, step, gaps = mixed("tpot_s"), mixed("step_s"), max(0.0, traffic.output - 1)
    queue = _queue_s(server, traffic, rate, most, min(_FULLEST, rate * mixed("prompt_added_s") / server.stages))
    scheduling = server.scheduling
    fixed = scheduling.request_overhead + scheduling.tokenise_per_token * traffic.prompt + scheduling.output_lag * tpot
    ttft = fixed + queue + _first_token_s(server, traffic, rate, step, mixed("prompt_s"), mixed("prompt_added_s"))
    return replace(
        more,
        steady_ttft_s=ttft,
        ttft_s=ttft,
        tpot_s=tpot,
        step_s=step,
        decoding=min(mixed("decoding"), rate * gaps * tpot),
        during=mixed("during"),
        running=math.ceil(rate * (ttft - queue + gaps * tpot)),
        waiting=round(rate * queue),
        queue_s=queue,
        prompt_s=mixed("prompt_s"),
        prompt_added_s=mixed("prompt_added_s"),
        rate=rate,
    )


def _between(server: Server, traffic: Traffic, rate: float) -> tuple[LoadState, LoadState, float, float] | None:
    """The closed loops next below and above a rate, how far it lies between them, and the rate with every place taken.

    A request that arrives at random meets as many others as are in flight; in a closed loop it meets one fewer. So the loop of n clients
    stands for n - 1 in flight.
    """

    def at(clients: int) -> tuple[float, LoadState]:
        served, state = _served(server, traffic, clients)
        return served * (clients - 1) / clients, state

    most = rate_when_full(server, traffic)
    if most <= rate:
        return None
    low, high = 1, server.places + 1  # of those who find all places taken it is said below what they wait
    below, above = at(low), at(high)
    while high - low > 1:
        middle = min(2 * low, (low + high) // 2)  # few are in flight, mostly: begin there
        found = at(middle)
        if found[0] < rate:
            low, below = middle, found
        else:
            high, above = middle, found
    return below[1], above[1], min(1.0, (rate - below[0]) / (above[0] - below[0])), most


def rate_when_full(server: Server, traffic: Traffic) -> float:
    """Requests per second that a server keeps up with when every place is taken."""
    return _served(server, traffic, server.places)[0]


def _served(server: Server, traffic: Traffic, clients: int) -> tuple[float, LoadState]:
    """Requests per second of a closed loop, and its state."""
    state = closed_loop(server, replace(traffic, clients=clients, length_from=min(traffic.length_from, _VARIED)))
    return clients / (state.steady_ttft_s + max(0.0, traffic.output - 1) * state.tpot_s), state


def _queue_s(server: Server, traffic: Traffic, rate: float, most: float, load: float) -> float:
    """Mean wait for a place: p(places or more) / (mu(places) - lambda) (1 + c^2) / (2 (1 - rho))."""
    sizes = [1]
    while sizes[-1] < server.places:
        sizes.append(min(server.places, 2 * sizes[-1]))
    served = [_served(server, traffic, size)[0] for size in sizes]
    logs = [(math.log(size), math.log(of)) for size, of in zip(sizes, served, strict=True)]
    # Weights of n in the server, relative to that of all places taken, from there downwards: p(n - 1) = p(n) mu(n) / lambda.
    weight, free = 1.0, 0.0
    for count in range(server.places, 0, -1):
        weight *= _at(logs, math.log(count)) / rate
        free += weight
        if free * _NEGLIGIBLE > 1:
            return 0.0  # hardly ever are all places taken
        if weight < _NEGLIGIBLE * free:
            break
    beyond = 1 / (1 - rate / most)  # places taken, and any number of requests waiting
    return beyond / (beyond + free) / (most - rate) * (1 + traffic.output_variation) / (2 * (1 - load))


def _at(logs: list[tuple[float, float]], size: float) -> float:
    """Between two rates along a straight line in both logarithms."""
    upper = min(len(logs) - 1, bisect_left(logs, (size, -math.inf)))
    lower = max(0, upper - 1)
    (x0, y0), (x1, y1) = logs[lower], logs[upper]
    return math.exp(y1 if x1 == x0 else y0 + (y1 - y0) * (size - x0) / (x1 - x0))


def _first_token_s(
    server: Server, traffic: Traffic, rate: float, step: float, prompt_s: float, added_s: float
) -> float:
    """From arrival to the end of the step with the first token, for those who find a place."""
    scheduling, added = server.scheduling, added_s / server.stages
    varied = 1 + traffic.prompt_variation
    load = min(_FULLEST, rate * added)
    if scheduling.poll_steps:  # those who came between two polls are computed together
        interval = scheduling.poll_steps * step / (1 - load)
        wait, own = interval / 2, added * (1 + rate * interval)
    elif server.budget < 2 * traffic.prompt:
        load = min(_FULLEST, rate * prompt_s / server.stages)
        wait, own = (1 - load) * step / 2 + load * prompt_s * varied / (2 * (1 - load)), prompt_s
    elif scheduling.admission == "prefill_first":
        own = added * (1 + rate * (1 - load) * step) / (1 - load**2)
        wait = ((1 - load) * step + load * own * varied) / 2
    else:
        mean = step / (1 - load)
        interval = mean + added**2 * varied * rate / (1 - load**2)
        wait, own = interval / 2, step + added * (1 + rate * interval)
    ahead = scheduling.look_ahead * step
    held = 0.0
    if traffic.prompt < scheduling.hold_share * server.budget:
        held = scheduling.hold_steps * step * (1 - load / 2)
    met = 1 - math.exp(-rate * (own + traffic.output * step))  # somebody is there whose step is waited for
    return met * (wait + ahead + held) + own
