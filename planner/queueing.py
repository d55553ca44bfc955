"""Closed forms of queues: how long requests wait for a server that works on one at a time, and how many servers they need.

A server is what prefills prompts, one after the other; token-level batching is not a queue of this kind (``latency.steady_state`` and the
simulator treat it). Load rho is arrivals times service time per server. At rho >= 1 the queue grows without end: every function then
returns None, which reads "unstable".

Symbols: lambda arrivals per second, D or E[S] (mean) service time, rho load, c^2 = variance / mean^2 (squared coefficient of variation).
Sources: formulas F13.1 to F13.7; DistServe (arXiv 2401.09670), section 3.1; Kingman 1961; Allen and Cunneen 1990 for several servers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DomainError
from .domain import at_least, count, finite, not_negative, positive, probability, several

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MOST_SERVERS = 10**6  # the recursion goes through all of them
_LEAST_LOAD = 1e-300
_MOST_ROUNDS = 100  # Newton's method needs fewer than ten; a bound in case rounding makes it go round in circles
_EXACT_UP_TO = 2.0  # services
_ROUNDING = 1e-12  # how far above a whole number of replicas a quotient of floats may come to lie

# ------------------------------------------------------------------------------------------------ mean waits


def erlang_c(servers: int, offered_load: float) -> float | None:
    """Probability that a request has to wait for one of k servers, at a = lambda E[S] (formula F13.3).

    C = B / (1 - rho (1 - B)), rho = a / k, with Erlang's B by its recursion B_i = a B_(i-1) / (i + a B_(i-1)), B_0 = 1, which neither
    overflows nor cancels. Exact for Poisson arrivals and exponential service times. None where a >= k: unstable.

    Raises
    ------
    DomainError : unless there are one to a million servers, or for a negative load

    >>> round(erlang_c(4, 3.0), 12)
    0.509433962264
    """
    count("servers", servers, 1, _MOST_SERVERS)
    not_negative("offered_load", offered_load)
    if offered_load >= servers:
        return None
    blocked = 1.0
    for busy in range(1, servers + 1):
        blocked = offered_load * blocked / (busy + offered_load * blocked)
    return blocked / (1 - offered_load / servers * (1 - blocked))


def mean_wait_s(
    arrivals_per_s: float,
    service_s: float,
    *,
    service_variation: float,
    arrival_variation: float = 1.0,
    servers: int = 1,
) -> float | None:
    """Mean wait in a queue G/G/k: C(k, a) / (k / E[S] - lambda) (c_a^2 + c_s^2) / 2 (formulas F13.2, F13.3).

    With one server C = rho, so that this is Kingman's rho / (1 - rho) (c_a^2 + c_s^2) / 2 E[S]; with Poisson arrivals (c_a^2 = 1) too it
    is lambda E[S^2] / (2 (1 - rho)) of Pollaczek and Khinchine. Exact for M/G/1 and M/M/k; for other arrivals, or several servers with
    other service times, the approximation of Allen and Cunneen, best at high load. None where unstable.

    Parameters
    ----------
    service_s : mean service time
    service_variation, arrival_variation : squared coefficients of variation: 0 constant, 1 exponential

    Raises
    ------
    DomainError : for negative arrivals or variations, a service time that is not positive, unless there are one to a million servers, or
        for a wait that no floating-point number holds

    >>> round(mean_wait_s(8.0, 0.1, service_variation=4.0), 12)
    1.0
    """
    load = not_negative("arrivals_per_s", arrivals_per_s) * positive("service_s", service_s)
    variation = not_negative("arrival_variation", arrival_variation)
    variation += not_negative("service_variation", service_variation)
    waiting = erlang_c(servers, load)
    return None if waiting is None else finite("wait_s", waiting * service_s / (servers - load) * variation / 2)


def mean_ttft_s(arrivals_per_s: float, prefill_s: float, stages: int = 1) -> float | None:
    """Mean TTFT of equal prompts that arrive at random, prefilled one by one: D + lambda D^2 / (2 (1 - rho)) (formula F13.1).

    In a pipeline of p equal stages a prompt still takes D, but the next one may start after D / p, and waits as if that were the service
    time: D + lambda D^2 / (4 (2 - lambda D)) for two. Decoding is left out, and so is the time between stages. None where unstable.
    For tensor parallelism see :func:`tensor_parallel_ttft_s`. Source: DistServe (arXiv 2401.09670), 3.1.

    Raises
    ------
    DomainError : for negative arrivals, a time that is not positive, or no stage

    >>> round(mean_ttft_s(5.0, 0.1), 12)
    0.15
    """
    stage_s = positive("prefill_s", prefill_s) / count("stages", stages)
    wait = mean_wait_s(arrivals_per_s, stage_s, service_variation=0)
    return None if wait is None else finite("ttft_s", prefill_s + wait)


def tensor_parallel_ttft_s(arrivals_per_s: float, prefill_s: float, speedup: float) -> float | None:
    """Mean TTFT when devices share each prefill and it takes D / K: D / K + lambda D^2 / (2 K (K - lambda D)) (formula F13.1).

    ``speedup`` K lies below the number of devices, for they have to exchange what they computed. None where unstable.
    Source: DistServe (arXiv 2401.09670), 3.1.

    Raises
    ------
    DomainError : for negative arrivals, a time that is not positive, or a speedup below 1
    """
    return mean_ttft_s(arrivals_per_s, positive("prefill_s", prefill_s) / at_least("speedup", speedup, 1))


@dataclass(frozen=True, slots=True)
class Burst:
    """First tokens of requests that came at the same moment: the mean, and the last of them."""

    mean_ttft_s: float
    last_ttft_s: float


def burst_ttft(requests: int, step_s: float, prompts_per_step: int = 1) -> Burst:
    """TTFT of n requests that arrive together and are prefilled in order, k prompts a step of t seconds (formula F13.1, at once).

    The last has m t with m = ceil(n / k); the mean is t (m - k m (m - 1) / (2 n)), for k = 1 that is t (n + 1) / 2. Steps are taken as
    equal, and decoding between them is left out. Own derivation: a sum over the steps.

    Raises
    ------
    DomainError : without a request or a prompt per step, or for a time that is not positive

    >>> burst_ttft(4, 0.1)
    Burst(mean_ttft_s=0.25, last_ttft_s=0.4)
    """
    count("requests", requests)
    positive("step_s", step_s)
    steps = -(-requests // count("prompts_per_step", prompts_per_step))
    mean_steps = steps - prompts_per_step * steps * (steps - 1) / (2 * requests)
    return Burst(finite("mean_ttft_s", step_s * mean_steps), finite("last_ttft_s", step_s * steps))


# ------------------------------------------------------------------------------------------------ percentiles


@dataclass(frozen=True, slots=True)
class WaitTail:
    """Long waits of M/D/1: P(W > t) = C e^(-theta t), t in service times."""

    weight: float  # C
    decay: float  # theta


def wait_tail(load: float) -> WaitTail | None:
    """Tail of the wait of M/D/1: theta > 0 solves rho (e^theta - 1) = theta, C = (1 - rho) / (rho e^theta - 1) (formula F13.4).

    The limit of the exact distribution for long waits (Cramer and Lundberg): from half a service time on the probability is off by less
    than 0.017, from one and a half on by less than 0.002. None where unstable.

    Raises
    ------
    DomainError : for a load below 1e-300

    >>> tail = wait_tail(0.8)
    >>> round(tail.decay, 12), round(tail.weight, 9)
    (0.430842209784, 0.866392677)
    """
    if at_least("load", load, _LEAST_LOAD) >= 1:
        return None
    spare = 1 - load
    # ln(1 + theta / rho) - theta is concave and not above zero at the start, so that Newton's method comes down to the root from above.
    # 2 (1 - rho) is a bound from below, which keeps rounding from crossing the root at zero.
    decay = -2 * math.log(load)
    for _ in range(_MOST_ROUNDS):
        excess = math.log1p(decay / load) - decay
        following = max(2 * spare, decay - excess * (load + decay) / (spare - decay))
        if following >= decay:
            break
        decay = following
    return WaitTail(weight=spare / (decay - spare), decay=decay)  # rho e^theta = theta + rho


def wait_percentile_s(arrivals_per_s: float, service_s: float, share: float) -> float | None:
    """Wait that a share q of the requests does not exceed, in M/D/1, by the distribution of service times (formula F13.4).

        0 up to q = 1 - rho,  ln(q / (1 - rho)) / rho up to one service,  ln(C / (1 - q)) / theta from two services on

    Up to two services it is exact, by P(W <= t) = (1 - rho) (e^(rho t) - rho (t - 1) e^(rho (t - 1))), the second term from one service on
    (Erlang 1909). Beyond, the share is off by less than 0.001; see :func:`wait_tail` for C and theta. None where unstable.

    Raises
    ------
    DomainError : for negative arrivals, a time that is not positive, or a share outside [0, 1)

    >>> round(wait_percentile_s(0.8, 1.0, 0.95), 6)
    6.620325
    >>> round(wait_percentile_s(0.3, 1.0, 0.75), 4)
    0.23
    """
    beyond = 1 - _share(share)
    load = finite("load", not_negative("arrivals_per_s", arrivals_per_s) * positive("service_s", service_s))
    if load >= 1:
        return None
    if load <= beyond:
        return 0.0
    if share <= _served_within(load, _EXACT_UP_TO):
        return finite("wait_s", _exact_percentile(load, share) * service_s)
    tail = wait_tail(load)
    assert tail is not None
    # Rounding, and the error of the tail, may not carry it below what is exact.
    services = max(_EXACT_UP_TO, math.log(tail.weight / beyond) / tail.decay)
    return finite("wait_s", services * service_s)


def _served_within(load: float, services: float) -> float:
    """P(W <= t) of M/D/1 for a t of at most two services."""
    late = services - 1
    late_term = load * late * math.exp(load * late) if late > 0 else 0.0
    return (1 - load) * (math.exp(load * services) - late_term)


def _exact_percentile(load: float, share: float) -> float:
    """The t of at most two services at which P(W <= t) = q, by halving where it has no closed form."""
    closed = math.log(share / (1 - load)) / load
    if closed <= 1:
        return closed
    low, high = 1.0, _EXACT_UP_TO
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _served_within(load, middle) < share else (low, middle)
    return high


def general_wait_percentile_s(
    arrivals_per_s: float,
    service_s: float,
    share: float,
    *,
    service_variation: float,
    arrival_variation: float = 1.0,
    servers: int = 1,
) -> float | None:
    """Wait that a share q of the requests does not exceed, in G/G/k: ln(C / (1 - q)) E[W] / C (formulas F13.2, F13.3, F13.4).

    The wait of those that wait, a share C (:func:`erlang_c`, rho of one server), is taken as exponential; E[W] is :func:`mean_wait_s`.
    Exact for M/M/k. For M/G/1 at loads from 0.5 and squared coefficients of variation up to 4, p90 and p95 are off by at most 16 %, and p99
    by at most 20 %, but of lognormal service times p99 is up to a third too short. Too short for heavy tails, too long for constant times,
    for which :func:`wait_percentile_s` is nearly exact. None where unstable.

    Parameters
    ----------
    service_variation, arrival_variation : squared coefficients of variation, see :func:`mean_wait_s`

    Raises
    ------
    DomainError : as in :func:`mean_wait_s`, or for a share outside [0, 1)

    >>> round(general_wait_percentile_s(0.8, 1.0, 0.95, service_variation=1), 6)  # M/M/1: ln(rho / (1 - q)) / (mu (1 - rho))
    13.862944
    """
    beyond = 1 - _share(share)
    mean = mean_wait_s(
        arrivals_per_s,
        service_s,
        service_variation=service_variation,
        arrival_variation=arrival_variation,
        servers=servers,
    )
    waiting = erlang_c(servers, arrivals_per_s * service_s)
    if mean is None or waiting is None:
        return None
    return 0.0 if waiting <= beyond else finite("wait_s", math.log(waiting / beyond) * (mean / waiting))


def heavy_traffic_wait_s(arrivals_per_s: float, service_s: float, share: float) -> float | None:
    """Shortcut for :func:`wait_percentile_s` at high load: ln(rho / (1 - q)) / (2 (1 - rho)) service times (formula F13.4).

    It is :func:`general_wait_percentile_s` of constant times. At a load of 0.8 it is 5 % too long, at 0.5 12 %. None where unstable.

    Raises
    ------
    DomainError : for negative arrivals, a time that is not positive, or a share outside [0, 1)
    """
    return general_wait_percentile_s(arrivals_per_s, service_s, share, service_variation=0)


def largest_arrivals_per_s(service_s: float, limit_s: float, share: float) -> float:
    """Most arrivals at which a share q of the requests waits no longer than a limit, in M/D/1 (formula F13.4).

    The inverse of :func:`wait_percentile_s`, by halving; the load is this times the service time.

    Raises
    ------
    DomainError : for a time that is not positive, a negative limit, or a share outside [0, 1)

    >>> round(largest_arrivals_per_s(1.0, 4.0, 0.95), 12)
    0.693779756851
    """
    positive("service_s", service_s)
    not_negative("limit_s", limit_s)
    _share(share)
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        wait = wait_percentile_s(middle, 1.0, share)
        low, high = (middle, high) if wait is not None and wait * service_s <= limit_s else (low, middle)
    return finite("arrivals_per_s", low / service_s)


def _share(share: float) -> float:
    if probability("share", share) == 1:
        raise DomainError("share", got=share, wanted="less than 1: waits have no longest one")
    return share


# ------------------------------------------------------------------------------------------------ populations and replicas


def concurrency(arrivals_per_s: float, e2e_s: float) -> float:
    """Mean number of requests in the system, lambda E2E (formula F13.6): Little's law, whatever the order and the distributions.

    Raises
    ------
    DomainError : for a negative rate or time

    >>> round(concurrency(10.0, 0.3 + 0.02 * 199), 12)
    42.8
    """
    return finite("concurrency", not_negative("arrivals_per_s", arrivals_per_s) * not_negative("e2e_s", e2e_s))


def resident_tokens(running: float, mean_context: float) -> float:
    """Tokens that the cache holds on average, about concurrency (S + G / 2) (formula F13.6); ``Workload.mean_context`` has the second.

    Prefill is taken as short against decoding, and no prefix as shared.

    Raises
    ------
    DomainError : for a negative number
    """
    return finite("tokens", not_negative("running", running) * not_negative("mean_context", mean_context))


def goodput_per_s(latencies: Iterable[Sequence[float]], limits: Sequence[float], duration_s: float) -> float:
    """Rate of the requests that meet every limit: their number / duration (formula F13.7).

    Parameters
    ----------
    latencies : of each request, in the order of the limits (TTFT and TPOT, say)

    Raises
    ------
    DomainError : when a request has more or fewer latencies than there are limits, one of them is negative, or the duration is not
        positive

    >>> goodput_per_s([(0.1, 0.02), (0.5, 0.02), (0.1, 0.09)], (0.2, 0.05), 2.0)
    0.5
    """
    positive("duration_s", duration_s)
    most = [not_negative("limit", limit) for limit in several("limits", limits)]
    good = 0
    for request in several("latencies", latencies):
        times = [not_negative("latency", latency) for latency in several("latencies of a request", request)]
        if len(times) != len(most):
            raise DomainError("latencies", got=f"{len(times)} of a request", wanted=f"{len(most)}, one for each limit")
        good += all(latency <= limit for latency, limit in zip(times, most, strict=True))
    return finite("goodput", good / duration_s)


def replicas(arrivals_per_s: float, goodput_of_one_per_s: float, headroom: float = 1.0) -> int:
    """Replicas that arrivals need: ceil(lambda / (mu h)), with mu what one serves within its limits (formula F13.7).

    ``headroom`` h is the share of mu that is planned with. Arrivals are taken as evenly spread over the replicas.

    Raises
    ------
    DomainError : for negative arrivals, a goodput that is not positive, or a headroom outside (0, 1]

    >>> replicas(40, 6.2), replicas(40, 6.2, headroom=0.8)
    (7, 9)
    """
    share = positive("headroom", probability("headroom", headroom))
    planned = positive("planned rate", positive("goodput_of_one_per_s", goodput_of_one_per_s) * share)
    needed = finite("replicas", not_negative("arrivals_per_s", arrivals_per_s) / planned)
    return math.ceil(needed * (1 - _ROUNDING))
