"""Golden values of formulas F13.1 to F13.7, and the closed forms against simulated queues and the exact distribution of M/D/1."""

import heapq
import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from roofplan.errors import DomainError
from roofplan.planner import queueing
from roofplan.planner.latency import end_to_end_s

EXACT = 1e-12
INFINITE = (math.nan, math.inf)


# ---------------------------------------------------------------------------------------------- golden values


@pytest.mark.parametrize(("load", "seconds"), [(0.1, 0.10555555555555557), (0.5, 0.15), (0.8, 0.3), (0.9, 0.55)])
def test_mean_ttft(load: float, seconds: float) -> None:  # F13.1
    assert queueing.mean_ttft_s(load / 0.1, 0.1) == approx(seconds, rel=EXACT)


@pytest.mark.parametrize(
    ("rate", "one", "pipeline", "tensor"),
    [(5, 0.15, 0.10833333333333334, 0.07670454545454546), (9, 0.55, 0.12045454545454545, 0.10267857142857142)],
)
def test_two_ways_on_two_devices(rate: float, one: float, pipeline: float, tensor: float) -> None:  # F13.1
    assert queueing.mean_ttft_s(rate, 0.1) == approx(one, rel=EXACT)
    assert queueing.mean_ttft_s(rate, 0.1, stages=2) == approx(pipeline, rel=EXACT)
    assert queueing.tensor_parallel_ttft_s(rate, 0.1, 1.6) == approx(tensor, rel=EXACT)


def test_one_server_with_any_service_times() -> None:  # F13.2
    assert queueing.mean_wait_s(8, 0.1, service_variation=4) == approx(1.0, rel=EXACT)
    assert queueing.mean_wait_s(8, 0.1, service_variation=4, arrival_variation=1) == approx(1.0, rel=EXACT)


def test_several_servers() -> None:  # F13.3
    assert queueing.erlang_c(4, 3) == approx(0.5094339622641509, rel=EXACT)
    assert queueing.mean_wait_s(3, 1, service_variation=1, servers=4) == approx(0.5094339622641509, rel=EXACT)
    assert queueing.mean_wait_s(3, 1, service_variation=0, servers=4) == approx(0.25471698113207547, rel=EXACT)


def test_tail_of_equal_prompts() -> None:  # F13.4
    tail = queueing.wait_tail(0.8)
    assert tail is not None
    assert tail.decay == approx(0.4308422097842592, rel=EXACT)
    assert tail.weight == approx(0.866392677, abs=5e-10)
    assert queueing.wait_percentile_s(0.8, 1, 0.95) == approx(6.620324501021432, rel=EXACT)
    assert queueing.wait_percentile_s(0.8, 1, 0.99) == approx(10.355886792469184, rel=EXACT)
    assert queueing.wait_percentile_s(0.5, 1, 0.95) == approx(2.054811086270949, rel=EXACT)
    assert queueing.wait_percentile_s(0.9, 1, 0.95) == approx(14.128673830202054, rel=EXACT)
    assert queueing.wait_percentile_s(8, 0.1, 0.95) == approx(0.6620324501021432, rel=EXACT)


@pytest.mark.parametrize(
    ("load", "share", "services"), [(0.1, 0.91, 0.1105), (0.06, 0.95, 0.1764), (0.3, 0.75, 0.2300), (0.4, 0.6, 0.0)]
)
def test_short_waits_are_exact(
    load: float, share: float, services: float
) -> None:  # F13.4: P(W <= t) = (1 - rho) e^(rho t)
    found = queueing.wait_percentile_s(load, 1, share)
    assert found == approx(services, abs=5e-5)
    assert (1 - load) * math.exp(load * found) == approx(share, rel=EXACT)
    if found:
        assert queueing.largest_arrivals_per_s(1, found, share) == approx(load, rel=1e-9)


def test_waits_of_exponential_services() -> None:  # F13.2, F13.3: M/M/1 and M/M/4 in closed form
    found = queueing.general_wait_percentile_s(0.8, 1, 0.95, service_variation=1)
    assert found == approx(math.log(0.8 / 0.05) / (1 - 0.8), rel=EXACT)
    found = queueing.general_wait_percentile_s(3, 1, 0.95, service_variation=1, servers=4)
    assert found == approx(math.log(0.5094339622641509 / 0.05) / (4 - 3), rel=EXACT)
    assert (
        queueing.general_wait_percentile_s(3, 1, 0.4, service_variation=1, servers=4) == 0
    )  # half of them do not wait


def test_heavy_traffic_shortcut() -> None:  # F13.4
    assert queueing.heavy_traffic_wait_s(0.8, 1, 0.95) == approx(6.93, abs=0.005)
    assert queueing.heavy_traffic_wait_s(0.8, 1, 0.99) == approx(10.96, abs=0.005)


def test_largest_load_for_a_percentile() -> None:  # F13.4
    assert queueing.largest_arrivals_per_s(1, 4, 0.95) == approx(0.6937797568505686, rel=EXACT)
    assert queueing.largest_arrivals_per_s(0.1, 0.4, 0.95) == approx(6.937797568505686, rel=EXACT)
    assert queueing.largest_arrivals_per_s(1, 0, 0.95) == approx(0.05, rel=EXACT)  # no more than 5 % may find it busy


def test_little() -> None:  # F13.6
    running = queueing.concurrency(10, end_to_end_s(0.3, 0.02, 200))
    assert running == approx(42.8, rel=EXACT)
    assert queueing.resident_tokens(running, 1000 + 200 / 2) == approx(47080, rel=EXACT)


def test_replicas() -> None:  # F13.7
    assert queueing.replicas(40, 6.2) == 7
    assert queueing.replicas(40, 6.2, headroom=0.8) == 9
    assert queueing.replicas(0, 6.2) == 0


# ---------------------------------------------------------------------------------------------- simulations


def waits_of_one_server(gaps: np.ndarray, services: np.ndarray) -> np.ndarray:
    """Lindley's recursion W' = max(0, W + S - A), unrolled: a random walk less its running minimum."""
    walk = np.concatenate(([0.0], np.cumsum(services[:-1] - gaps[1:])))
    return walk - np.minimum.accumulate(walk)


def mean_and_error(waits: np.ndarray, batches: int = 50) -> tuple[float, float]:
    """Mean and its standard error by batch means, since waits in a row are alike; the first batch only fills the queue."""
    means = np.array([batch.mean() for batch in np.array_split(waits, batches)])[1:]
    return means.mean(), means.std(ddof=1) / math.sqrt(len(means))


SERVICES = {
    "constant": (0.0, lambda rng, n: np.full(n, 1.0)),
    "exponential": (1.0, lambda rng, n: rng.exponential(1.0, n)),
    "two kinds": (4.0, lambda rng, n: np.where(rng.random(n) < 0.2, 5.0, 0.0)),
    "lognormal": (math.e - 1, lambda rng, n: rng.lognormal(-0.5, 1.0, n)),
}


@pytest.mark.parametrize("load", [0.3, 0.7])
@pytest.mark.parametrize("kind", SERVICES)
def test_mean_wait_is_that_of_a_simulated_queue(kind: str, load: float) -> None:  # F13.1, F13.2
    variation, draw = SERVICES[kind]
    rng = np.random.default_rng(1)
    count = 1_000_000
    mean, error = mean_and_error(waits_of_one_server(rng.exponential(1 / load, count), draw(rng, count)))
    assert error < 0.03 * mean
    assert queueing.mean_wait_s(load, 1.0, service_variation=variation) == approx(mean, abs=4 * error)


def waits_of_servers(servers: int, gaps: np.ndarray, services: np.ndarray) -> np.ndarray:
    """First come, first served by the server that is free first."""
    free = [0.0] * servers
    waits, now = [], 0.0
    for gap, service in zip(gaps.tolist(), services.tolist(), strict=True):
        now += gap
        start = max(now, free[0])
        heapq.heapreplace(free, start + service)
        waits.append(start - now)
    return np.array(waits)


def test_exponential_servers_are_those_of_a_simulation() -> None:  # F13.3
    rng = np.random.default_rng(2)
    count = 400_000
    waits = waits_of_servers(4, rng.exponential(1 / 3, count), rng.exponential(1.0, count))
    mean, error = mean_and_error(waits)
    busy, busy_error = mean_and_error((waits > 0).astype(float))
    assert error < 0.03 * mean
    assert queueing.mean_wait_s(3, 1, service_variation=1, servers=4) == approx(mean, abs=4 * error)
    assert queueing.erlang_c(4, 3) == approx(busy, abs=4 * busy_error)


def test_constant_servers_are_near_those_of_a_simulation() -> None:  # F13.3: an approximation
    rng = np.random.default_rng(3)
    count = 400_000
    mean, _ = mean_and_error(waits_of_servers(4, rng.exponential(1 / 3.6, count), np.full(count, 1.0)))
    assert queueing.mean_wait_s(3.6, 1, service_variation=0, servers=4) == approx(mean, rel=0.05)


def test_kingman_is_exact_at_high_load() -> (
    None
):  # F13.2: against E4/M/1, c_a^2 = 1/4, whose wait is that of the root s = A(1 - s)
    for load, most in ((0.9, 0.05), (0.97, 0.02), (0.99, 0.005)):
        root = 0.5
        for _ in range(10_000):
            root = (4 * load / (4 * load + 1 - root)) ** 4
        kingman = queueing.mean_wait_s(load, 1, service_variation=1, arrival_variation=0.25)
        assert 0 < kingman * (1 - root) / root - 1 < most


def test_a_simulated_pipeline_waits_as_long() -> None:  # F13.1
    rng = np.random.default_rng(5)
    count = 1_000_000
    waits = waits_of_one_server(rng.exponential(1 / 15, count), np.full(count, 0.05))  # the first of two stages
    mean, error = mean_and_error(waits)
    assert queueing.mean_ttft_s(15, 0.1, stages=2) == approx(0.1 + mean, abs=4 * error)


def test_simulated_percentiles() -> None:  # F13.4: 6.617 and 10.398 in the simulation of the formula collection
    rng = np.random.default_rng(6)
    count = 2_000_000
    waits = waits_of_one_server(rng.exponential(1 / 0.8, count), np.full(count, 1.0))
    for share, published in ((0.95, 6.617), (0.99, 10.398)):
        batches = np.array([np.quantile(batch, share) for batch in np.array_split(waits, 50)])
        error = batches.std(ddof=1) / math.sqrt(len(batches))
        found = queueing.wait_percentile_s(0.8, 1, share)
        assert found == approx(np.quantile(waits, share), abs=4 * error)
        assert found == approx(published, abs=4 * error)


# What the docstring states of p99, from a load of 0.5 on; of p90 and p95 it is 16 %.
STATED = {"constant": 0.20, "exponential": 0.20, "two kinds": 0.20, "lognormal": 0.34, "long tail": 0.34}


@pytest.mark.parametrize("load", [0.5, 0.8])
@pytest.mark.parametrize("kind", STATED)
def test_general_percentiles_are_off_by_what_is_stated(kind: str, load: float) -> None:  # F13.2
    sigma = math.sqrt(math.log(5))
    known = {**SERVICES, "long tail": (4.0, lambda rng, n: rng.lognormal(-(sigma**2) / 2, sigma, n))}
    variation, draw = known[kind]
    rng = np.random.default_rng(11)
    count = 2_000_000
    waits = waits_of_one_server(rng.exponential(1 / load, count), draw(rng, count))
    for share, most in zip((0.9, 0.95, 0.99), (0.16, 0.16, STATED[kind]), strict=True):
        batches = np.array([np.quantile(batch, share) for batch in np.array_split(waits, 40)])
        noise = 4 * batches.std(ddof=1) / math.sqrt(len(batches)) / batches.mean()
        found = queueing.general_wait_percentile_s(load, 1, share, service_variation=variation)
        error = found / np.quantile(waits, share) - 1
        assert abs(error) < most + noise
        if share == 0.99 and kind == "long tail":
            assert error < 0  # too short
        if share == 0.99 and kind == "constant":
            assert error > 0


def test_percentiles_of_several_servers_are_those_of_a_simulation() -> None:  # F13.3
    rng = np.random.default_rng(12)
    count = 400_000
    waits = waits_of_servers(4, rng.exponential(1 / 3, count), rng.exponential(1.0, count))
    for share in (0.6, 0.9, 0.95):
        batches = np.array([np.quantile(batch, share) for batch in np.array_split(waits, 40)])
        error = batches.std(ddof=1) / math.sqrt(len(batches))
        found = queueing.general_wait_percentile_s(3, 1, share, service_variation=1, servers=4)
        assert found == approx(np.quantile(waits, share), abs=4 * error)


# ---------------------------------------------------------------------------------------------- exact forms and properties


def waits_longer(load: float, time: float) -> float:
    """P(W > t) of M/D/1 by Erlang's alternating series, in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        rho, total = Decimal(load), Decimal(0)
        for served in range(int(time) + 1):
            x = rho * (Decimal(time) - served)
            total += x.exp() * ((-x) ** served if served else 1) / math.factorial(served)
        return float(1 - (1 - rho) * total)


@given(st.floats(0.05, 0.98), st.floats(0.5, 20))
def test_tail_against_the_exact_distribution(load: float, time: float) -> None:  # F13.4
    tail = queueing.wait_tail(load)
    assert tail is not None
    error = abs(tail.weight * math.exp(-tail.decay * time) - waits_longer(load, time))
    assert error < (0.017 if time < 1.5 else 0.002)


@given(st.floats(0.01, 0.99), st.floats(0.001, 0.999))
def test_percentiles_against_the_exact_distribution(load: float, share: float) -> None:  # F13.4
    found = queueing.wait_percentile_s(load, 1, share)
    if found == 0:
        assert share <= (1 - load) * (1 + EXACT)
    elif found < 20:  # the alternating series has 60 digits to lose
        assert 1 - waits_longer(load, found) == approx(share, abs=1e-9 if found < 2 else 0.001)


@given(st.floats(0.01, 0.99), st.floats(0.001, 0.998), st.floats(1e-6, 0.001))
def test_percentiles_rise_without_a_jump(
    load: float, share: float, more: float
) -> None:  # F13.4: exact and tail forms meet
    low, high = (queueing.wait_percentile_s(load, 1, each) for each in (share, share + more))
    assert low <= high
    if low <= 2 <= high:  # from one form to the other: what the share lacks is the error of the tail
        assert waits_longer(load, low) - waits_longer(load, high) == approx(more, abs=0.001)


@given(st.floats(1e-6, 1 - 1e-6))
def test_decay_solves_its_equation(load: float) -> None:  # F13.4
    tail = queueing.wait_tail(load)
    assert tail is not None
    assert 0 < tail.weight <= 1
    assert load * math.expm1(tail.decay) == approx(tail.decay, rel=1e-9)


@given(st.integers(1, 30), st.floats(0.01, 0.99))
def test_erlang_c_is_the_sum_over_states(servers: int, share: float) -> None:  # F13.3
    load = servers * share
    states = [load**busy / math.factorial(busy) for busy in range(servers)]
    all_busy = load**servers / math.factorial(servers) / (1 - share)
    assert queueing.erlang_c(servers, load) == approx(all_busy / (math.fsum(states) + all_busy), rel=1e-10)


@given(st.floats(1e-3, 0.999), st.floats(1e-3, 1e3), st.floats(0, 10))
def test_the_general_wait_has_the_classic_ones_in_it(load: float, service: float, variation: float) -> None:  # F13.2
    rate = load / service
    second_moment = (1 + variation) * service**2
    pollaczek = rate * second_moment / (2 * (1 - rate * service))
    assert queueing.mean_wait_s(rate, service, service_variation=variation) == approx(pollaczek, rel=1e-9)
    constant = queueing.mean_wait_s(rate, service, service_variation=0)
    assert queueing.mean_ttft_s(rate, service) == approx(service + constant, rel=EXACT)


@given(st.floats(0.01, 0.98), st.floats(1.001, 1.02), st.floats(0.5, 0.999))
def test_more_load_never_waits_less(load: float, more: float, share: float) -> None:
    for wait in (queueing.wait_percentile_s, queueing.heavy_traffic_wait_s):
        assert wait(load, 1, share) <= wait(min(0.9999, load * more), 1, share) * (1 + EXACT)
    assert queueing.mean_ttft_s(load, 1) < queueing.mean_ttft_s(min(0.9999, load * more), 1)


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.floats(0.01, 0.999))
def test_largest_arrivals_invert_the_percentile(service: float, limit: float, share: float) -> None:  # F13.4
    rate = queueing.largest_arrivals_per_s(service, limit, share)
    within, beyond = (queueing.wait_percentile_s(rate * by, service, share) for by in (1 - 1e-9, 1 + 1e-9))
    assert within is not None
    assert within <= limit * (1 + 1e-9)
    assert beyond is None or beyond > limit * (1 - 1e-6)


def test_limits_of_the_load() -> None:
    assert queueing.mean_ttft_s(0, 0.1) == 0.1
    assert queueing.wait_percentile_s(0, 0.1, 0.99) == 0
    assert queueing.mean_ttft_s(0.999999, 1) > 1e5


@pytest.mark.parametrize("load", [1.0, 1.5, 1e300])
def test_unstable_queues_have_no_wait(load: float) -> None:
    assert queueing.erlang_c(2, 2 * load) is None
    assert queueing.mean_wait_s(load, 1, service_variation=0) is None
    assert queueing.mean_ttft_s(2 * load, 1, stages=2) is None
    assert queueing.tensor_parallel_ttft_s(2 * load, 1, 2) is None
    assert queueing.wait_tail(load) is None
    assert queueing.wait_percentile_s(load, 1, 0.0) is None
    assert queueing.heavy_traffic_wait_s(load, 1, 0.0) is None
    assert queueing.general_wait_percentile_s(2 * load, 1, 0.0, service_variation=1, servers=2) is None


@given(st.integers(1, 200), st.integers(1, 30))
def test_a_burst_is_served_in_order(requests: int, together: int) -> None:
    firsts = [0.25 * (index // together + 1) for index in range(requests)]
    burst = queueing.burst_ttft(requests, 0.25, together)
    assert burst.mean_ttft_s == approx(sum(firsts) / requests, rel=EXACT)
    assert burst.last_ttft_s == approx(firsts[-1], rel=EXACT)


def test_goodput_counts_requests_within_every_limit() -> None:  # F13.7
    values = list(itertools.product((0.1, 0.3), (0.01, 0.03)))
    assert queueing.goodput_per_s(values, (0.2, 0.02), 0.5) == 2.0
    assert queueing.goodput_per_s(values, (0.3, 0.03), 0.5) == 8.0
    assert queueing.goodput_per_s([], (0.3, 0.03), 0.5) == 0.0


@given(st.integers(0, 1000), st.floats(0.001, 1000))
def test_replicas_of_a_multiple_are_not_rounded_up(multiple: int, goodput: float) -> None:  # F13.7
    assert queueing.replicas(multiple * goodput, goodput) == multiple
    assert queueing.replicas((multiple + 0.01) * goodput, goodput) == multiple + 1


# ---------------------------------------------------------------------------------------------- domains


@pytest.mark.parametrize("bad", [-1.0, *INFINITE])
def test_negative_and_endless_arguments_are_refused(bad: float) -> None:
    for call in (
        lambda: queueing.erlang_c(1, bad),
        lambda: queueing.mean_wait_s(bad, 1, service_variation=1),
        lambda: queueing.mean_wait_s(0.1, bad, service_variation=1),
        lambda: queueing.mean_wait_s(0.1, 1, service_variation=bad),
        lambda: queueing.mean_wait_s(0.1, 1, service_variation=1, arrival_variation=bad),
        lambda: queueing.mean_ttft_s(bad, 1),
        lambda: queueing.mean_ttft_s(0.1, bad),
        lambda: queueing.tensor_parallel_ttft_s(0.1, 1, bad),
        lambda: queueing.burst_ttft(1, bad),
        lambda: queueing.wait_tail(bad),
        lambda: queueing.wait_percentile_s(bad, 1, 0.5),
        lambda: queueing.wait_percentile_s(0.1, bad, 0.5),
        lambda: queueing.wait_percentile_s(0.1, 1, bad),
        lambda: queueing.heavy_traffic_wait_s(bad, 1, 0.5),
        lambda: queueing.heavy_traffic_wait_s(0.1, bad, 0.5),
        lambda: queueing.heavy_traffic_wait_s(0.1, 1, bad),
        lambda: queueing.largest_arrivals_per_s(bad, 1, 0.5),
        lambda: queueing.largest_arrivals_per_s(1, bad, 0.5),
        lambda: queueing.largest_arrivals_per_s(1, 1, bad),
        lambda: queueing.concurrency(bad, 1),
        lambda: queueing.concurrency(1, bad),
        lambda: queueing.resident_tokens(bad, 1),
        lambda: queueing.resident_tokens(1, bad),
        lambda: queueing.goodput_per_s([], (), bad),
        lambda: queueing.replicas(bad, 1),
        lambda: queueing.replicas(1, bad),
        lambda: queueing.replicas(1, 1, bad),
    ):
        with pytest.raises(DomainError):
            call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: queueing.erlang_c(0, 1),
        lambda: queueing.mean_wait_s(1, 0, service_variation=1),
        lambda: queueing.mean_wait_s(1, 1, service_variation=1, servers=0),
        lambda: queueing.mean_ttft_s(1, 0.1, stages=0),
        lambda: queueing.tensor_parallel_ttft_s(1, 0.1, 0.9),
        lambda: queueing.burst_ttft(0, 1),
        lambda: queueing.burst_ttft(1, 1, 0),
        lambda: queueing.wait_tail(0),
        lambda: queueing.wait_percentile_s(0.5, 1, 1.0),
        lambda: queueing.heavy_traffic_wait_s(0.5, 1, 1.0),
        lambda: queueing.largest_arrivals_per_s(1, 1, 1.0),
        lambda: queueing.goodput_per_s([(1.0,)], (1.0, 2.0), 1),
        lambda: queueing.goodput_per_s([(1.0, 2.0, 3.0)], (1.0, 2.0), 1),
        lambda: queueing.replicas(1, 1, 0),
        lambda: queueing.replicas(1, 1, 1.1),
    ],
)
def test_the_edges_of_the_domains(call) -> None:
    with pytest.raises(DomainError):
        call()
