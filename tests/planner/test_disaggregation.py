"""Golden values of formula F12.7; transfers that are played through layer by layer, and pools of workers that are simulated."""

import heapq
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import HH, M70, number_format, step_model

from roofplan.errors import DomainError
from roofplan.planner import disaggregation
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.queueing import mean_ttft_s

EXACT = 1e-12
M70_HH = step_model(M70, HH)
BF16 = number_format("bf16")


def test_disaggregation() -> None:  # F12.7
    cache = cache_layout(M70, BF16).bytes_per_sequence(8192)
    assert cache == 2684354560
    whole = disaggregation.cache_transfer_s(cache, 50e9)
    assert whole == approx(0.0536870912, rel=EXACT)
    prefill = M70_HH.step_s(0, 0, chunk=8192, grouping="whole")
    assert disaggregation.exposed_transfer_s(whole, 80, prefill) == approx(0.00067108864, rel=EXACT)
    ratio = disaggregation.prefill_workers_per_decode_worker(0.91, 0.019, 32, 512)
    assert ratio == approx(2.993421052631579, rel=EXACT)


@given(st.floats(0, 2), st.integers(1, 50), st.floats(0, 2))
def test_a_transfer_by_layers_that_is_played_through(transfer: float, layers: int, prefill: float) -> None:  # F12.7
    sent = 0.0
    for layer in range(1, layers + 1):
        sent = max(sent, layer * prefill / layers) + transfer / layers
    assert disaggregation.exposed_transfer_s(transfer, layers, prefill) == approx(sent - prefill, abs=1e-9)


@given(st.floats(0.01, 2), st.floats(0.001, 0.1), st.integers(1, 256), st.integers(1, 2000))
def test_pools_in_this_ratio_keep_pace(prefill: float, step: float, batch: int, output: int) -> None:  # F12.7
    workers = disaggregation.prefill_workers_per_decode_worker(prefill, step, batch, output)
    assert workers / prefill == approx(batch / (output * step), rel=1e-9)


# ---------------------------------------------------------------------------------------------- time to first token


def served(arrivals: np.ndarray, services: np.ndarray, servers: int) -> np.ndarray:
    """When each request leaves a pool that serves first come, first served."""
    free = [0.0] * servers
    left = []
    for arrival, service in zip(arrivals.tolist(), services.tolist(), strict=True):
        end = max(arrival, free[0]) + service
        heapq.heapreplace(free, end)
        left.append(end)
    return np.array(left)


def simulated_ttft(rate: float, prefill: np.ndarray, decode: np.ndarray, workers: int, places: int, transfer: float):
    """Mean TTFT where the decode pool hands out the first token, and its standard error by batch means."""
    rng = np.random.default_rng(7)
    arrivals = np.cumsum(rng.exponential(1 / rate, len(prefill)))
    handed = served(arrivals, prefill, workers) + transfer
    order = np.argsort(handed)
    started = np.empty(len(handed))
    started[order] = served(handed[order], decode[order], places) - decode[order]
    means = np.array([batch.mean() for batch in np.array_split(started - arrivals, 50)])[1:]
    return means.mean(), means.std(ddof=1) / math.sqrt(len(means))


@pytest.mark.parametrize(("workers", "places", "decode_s"), [(1, 1, 0.15), (2, 8, 1.7), (1, 16, 3.5)])
def test_two_pools_that_are_simulated(
    workers: int, places: int, decode_s: float
) -> None:  # F12.7, F13.3: exact (Burke)
    rng, count = np.random.default_rng(8), 400_000
    prefill_s = 0.18 if workers == 1 else 0.4
    prefill, decode = rng.exponential(prefill_s, count), rng.exponential(decode_s, count)
    mean, error = simulated_ttft(4.0, prefill, decode, workers, places, 0.02)
    assert error < 0.05 * mean
    found = disaggregation.disaggregated_ttft(
        4.0,
        prefill_s,
        0.02,
        decode_s,
        prefill_workers=workers,
        decode_places=places,
        prefill_variation=1,
        decode_variation=1,
    )
    assert found.from_decode_s == approx(mean, abs=4 * error)


def test_equal_prefills_come_out_more_evenly() -> None:  # F12.7: a little too long, as its docstring says
    rng, count = np.random.default_rng(9), 400_000
    mean, error = simulated_ttft(4.0, np.full(count, 0.18), rng.exponential(1.7, count), 1, 8, 0.02)
    found = disaggregation.disaggregated_ttft(4.0, 0.18, 0.02, 1.7, decode_places=8, decode_variation=1)
    assert mean - 4 * error < found.from_decode_s < 1.5 * mean


def test_parts_of_the_time() -> None:  # F12.7 with F13.1
    found = disaggregation.disaggregated_ttft(5.0, 0.1, 0.08, 2.0, layers=80, decode_places=64)
    assert found.prefill_wait_s + found.prefill_s == approx(mean_ttft_s(5.0, 0.1), rel=EXACT)
    assert found.transfer_s == approx(0.001, rel=EXACT)  # the last layer alone
    assert found.from_prefill_s == approx(0.15, rel=EXACT)
    assert found.from_decode_s == approx(0.151 + found.decode_wait_s, rel=EXACT)
    assert found.decode_wait_s < 1e-9  # 10 of 64 places are taken
    assert disaggregation.disaggregated_ttft(10.0, 0.1, 0.08, 2.0, decode_places=64) is None
    assert disaggregation.disaggregated_ttft(5.0, 0.1, 0.08, 2.0, decode_places=10) is None


# ---------------------------------------------------------------------------------------------- domains


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_negative_and_endless_arguments_are_refused(bad: float) -> None:
    for call in (
        lambda: disaggregation.cache_transfer_s(bad, 1),
        lambda: disaggregation.cache_transfer_s(1, bad),
        lambda: disaggregation.exposed_transfer_s(bad, 1, 1),
        lambda: disaggregation.exposed_transfer_s(1, 1, bad),
        lambda: disaggregation.prefill_workers_per_decode_worker(bad, 1, 1, 1),
        lambda: disaggregation.prefill_workers_per_decode_worker(1, bad, 1, 1),
        lambda: disaggregation.prefill_workers_per_decode_worker(1, 1, bad, 1),
        lambda: disaggregation.prefill_workers_per_decode_worker(1, 1, 1, bad),
        lambda: disaggregation.disaggregated_ttft(bad, 0.1, 0.1, 1),
        lambda: disaggregation.disaggregated_ttft(1, bad, 0.1, 1),
        lambda: disaggregation.disaggregated_ttft(1, 0.1, bad, 1),
        lambda: disaggregation.disaggregated_ttft(1, 0.1, 0.1, bad),
    ):
        with pytest.raises(DomainError):
            call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: disaggregation.cache_transfer_s(1, 0),
        lambda: disaggregation.exposed_transfer_s(1, 0, 1),
        lambda: disaggregation.prefill_workers_per_decode_worker(1, 0, 1, 1),
        lambda: disaggregation.disaggregated_ttft(1, 0, 0.1, 1),
        lambda: disaggregation.disaggregated_ttft(1, 0.1, 0.1, 1, prefill_workers=0),
        lambda: disaggregation.disaggregated_ttft(1, 0.1, 0.1, 1, decode_places=2**63),
        lambda: disaggregation.disaggregated_ttft(1, 0.1, 0.1, 1, decode_variation=-1),
    ],
)
def test_the_edges_of_the_domains(call) -> None:
    with pytest.raises(DomainError):
        call()
