"""Golden values of formulas F12.1 to F12.4; exchanges and pipelines against ones that are played through step by step."""

import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import HH, M70, step_model

from roofplan.errors import DomainError
from roofplan.planner import exchanges
from roofplan.planner.parallel import Layout
from roofplan.planner.step import Efficiency

EXACT = 1e-12
NVLINK = 450e9
M70_HH = step_model(M70, HH)
ENDLESS = (-1.0, math.nan, math.inf)


# ---------------------------------------------------------------------------------------------- all-reduce


def test_all_reduce() -> None:  # F12.1
    assert exchanges.all_reduce_s(16384, 8, 1e-6, NVLINK) == approx(1.4063715555555556e-05, rel=EXACT)
    assert exchanges.all_reduce_s(16384, 8, 3e-6, NVLINK, "one-shot") == approx(3.2548622222222224e-06, rel=EXACT)
    assert exchanges.all_reduce_s(134217728, 8, 1e-6, NVLINK) == approx(0.0005359578311111111, rel=EXACT)
    assert exchanges.one_shot_limit_bytes(8, 3e-6, NVLINK) == approx(257142.857, abs=5e-4)


@pytest.mark.parametrize(("ranks", "factor"), [(1, 0), (2, 1), (4, 1.5), (8, 1.75)])
def test_bytes_of_a_ring(ranks: int, factor: float) -> None:  # F12.1
    assert exchanges.all_reduce_s(1000, ranks, 0, 1, "ring") == approx(factor * 1000)
    assert exchanges.all_reduce_s(1000, ranks, 0, 1, "two-shot") == approx(factor * 1000)


@given(st.integers(2, 64), st.floats(1e-7, 1e-4), st.floats(1e9, 1e12))
def test_one_shot_wins_below_its_limit(ranks: int, latency: float, bandwidth: float) -> None:  # F12.1
    def gain(message: float) -> float:
        two, one = (exchanges.all_reduce_s(message, ranks, latency, bandwidth, way) for way in ("two-shot", "one-shot"))
        return two - one

    limit = exchanges.one_shot_limit_bytes(ranks, latency, bandwidth)
    if limit is None:
        assert ranks == 2
        assert gain(1e15) > 0
    else:
        assert gain(limit * 0.999) > 0 > gain(limit * 1.001)


@dataclass
class Ranks:
    """Ranks with a vector each, cut in as many pieces; every round is counted, and what the busiest rank sends."""

    count: int
    rounds: int = 0
    sent: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sent = [0] * self.count
        self.held = [[10**rank * (piece + 1) for piece in range(self.count)] for rank in range(self.count)]

    @property
    def wanted(self) -> list[int]:
        return [sum(10**rank for rank in range(self.count)) * (piece + 1) for piece in range(self.count)]

    def round(self, messages: list[tuple[int, int, int]], *, add: bool) -> None:
        """Send (from, to, piece) all at once."""
        values = [self.held[source][piece] for source, _, piece in messages]
        self.rounds += 1
        for (source, target, piece), value in zip(messages, values, strict=True):
            self.sent[source] += 1
            self.held[target][piece] = value + (self.held[target][piece] if add else 0)


def played(ranks: int, way: str) -> Ranks:
    n, state = ranks, Ranks(ranks)
    others = [(one, other) for one in range(n) for other in range(n) if one != other]
    if way == "ring":
        for shift in range(n - 1):
            state.round([(r, (r + 1) % n, (r - shift) % n) for r in range(n)], add=True)
        for shift in range(n - 1):
            state.round([(r, (r + 1) % n, (r + 1 - shift) % n) for r in range(n)], add=False)
    elif way == "two-shot":
        state.round([(one, other, other) for one, other in others], add=True)
        state.round([(one, other, one) for one, other in others], add=False)
    else:
        state.round([(one, other, piece) for one, other in others for piece in range(n)], add=True)
    return state


@pytest.mark.parametrize("way", ["ring", "two-shot", "one-shot"])
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_an_all_reduce_that_is_played_through(ranks: int, way: str) -> None:  # F12.1
    state = played(ranks, way)
    assert all(held == state.wanted for held in state.held)
    message = 1200.0
    assert exchanges.all_reduce_s(message, ranks, 1.0, math.ldexp(1, 200), way) == approx(state.rounds)
    assert exchanges.all_reduce_s(message, ranks, 0.0, 1.0, way) == approx(max(state.sent) * message / ranks)


# ---------------------------------------------------------------------------------------------- tensor parallelism and pipelines


def test_tensor_parallel_decode() -> None:  # F12.2
    alone = M70_HH.step_s(1, 0, grouping="whole")
    assert exchanges.tensor_parallel_step_s(alone, 8, 160, 0) == approx(0.0051866951068656715, rel=EXACT)
    assert exchanges.tensor_parallel_step_s(alone, 8, 160, 3e-6) == approx(0.005666695106865672, rel=EXACT)
    divided = step_model(M70, HH, layout=Layout(tp=8)).at(Efficiency(collective_latency_s=3e-6))
    assert divided.step_s(1, 0, grouping="whole") == approx(0.005666695106865672, rel=EXACT)


def test_tensor_parallel_prefill() -> None:  # F12.2
    compute = M70_HH.step_s(0, 0, chunk=8192, grouping="whole")
    message = exchanges.message_bytes(8192, 8192, 2)
    assert message == 134217728
    exchange = exchanges.all_reduce_s(message, 8, 0, NVLINK)
    assert compute / 8 == approx(0.1528041779510491, rel=EXACT)
    assert 160 * exchange == approx(0.08351325297777777, rel=EXACT)
    step = exchanges.tensor_parallel_step_s(compute, 8, 160, exchange, gather_s=1e-4)
    assert step == approx(0.1528041779510491 + 0.08351325297777777 + 1e-4, rel=EXACT)
    assert 160 * exchange / (compute / 8) == approx(0.55, abs=0.005)


def test_one_sequence_gains_nothing_from_a_pipeline() -> None:  # F12.3
    alone = M70_HH.step_s(1, 0, grouping="whole")
    stage = alone / 4
    assert stage == approx(0.010373390213731343, rel=EXACT)
    assert exchanges.pipeline_token_s([stage] * 4, 0) == approx(0.04149356085492537, rel=EXACT)
    hop = exchanges.message_bytes(32, 8192, 2)
    assert hop == 524288
    assert exchanges.pipeline_token_s([stage] * 4, hop / 50e9) == approx(alone + 3 * 524288 / 50e9, rel=EXACT)


def test_bubble() -> None:  # F12.3
    assert exchanges.pipeline_bubble(4, 8) == approx(0.2727272727272727, rel=EXACT)


@given(st.integers(1, 12), st.integers(1, 40))
def test_the_bubble_of_a_schedule_that_is_played_through(stages: int, micro_batches: int) -> None:  # F12.3
    ends = [0] * stages
    for _ in range(micro_batches):
        before = 0
        for stage in range(stages):
            before = ends[stage] = max(before, ends[stage]) + 1
    idle = 1 - micro_batches / ends[-1]
    assert exchanges.pipeline_bubble(stages, micro_batches) == approx(idle, abs=EXACT)


# ---------------------------------------------------------------------------------------------- expert parallelism


def test_the_published_case_of_expert_parallelism() -> None:  # F12.4
    exchange = exchanges.expert_exchange_s(32, 9, 7000, 3, 50e9)
    assert exchange == approx(0.00012096, rel=EXACT)
    assert exchanges.expert_exchange_s(32, 9, 7168, 3, 50e9) == approx(0.00012386304, rel=EXACT)
    step = exchanges.overlapped_step_s(61, 0, exchange)
    assert step == approx(0.01475712, rel=EXACT)
    assert 1 / step == approx(67.76389973111284, rel=EXACT)
    faster = exchanges.overlapped_step_s(61, 0, exchanges.expert_exchange_s(32, 9, 7000, 3, 900e9))
    assert faster == approx(0.00081984, rel=EXACT)
    assert 1 / faster == approx(1219.7501951600314, rel=EXACT)
    assert exchanges.overlapped_step_s(61, 2e-4, exchange) == approx(2 * 61 * 2e-4)


@given(st.integers(2, 16), st.integers(1, 8))
def test_experts_that_are_here_need_no_exchange(ranks: int, experts: int) -> None:  # F12.4
    sent = sum(target != 0 for target in range(ranks)) * experts * 1024 * 3 / ranks  # of the mean token of rank 0
    assert exchanges.expert_exchange_s(1, experts, 1024, 3, 1.0, ranks) == approx(sent)


@pytest.mark.parametrize(("tokens", "busiest", "mean", "ratio"), [(32, 40.2, 32, 1.26), (128, 144.0, 128, 1.13)])
def test_imbalance_of_uniform_routing(tokens: int, busiest: float, mean: float, ratio: float) -> None:  # F12.4
    found = exchanges.routing_imbalance(tokens, 256, 8, 8, draws=4000)
    assert found.mean_rows == mean
    assert found.standard_error < 0.1
    assert found.busiest_rows == approx(busiest, abs=0.05 + 4 * found.standard_error)
    assert found.ratio == approx(ratio, abs=0.005 + 4 * found.standard_error / mean)
    assert found == exchanges.routing_imbalance(tokens, 256, 8, 8, draws=4000)


def test_imbalance_against_tokens_that_choose_experts_one_by_one() -> None:  # F12.4
    rng = random.Random(1)
    busiest = []
    for _ in range(3000):
        rows = [0] * 4
        for _ in range(6):
            for expert in rng.sample(range(12), 3):
                rows[expert // 3] += 1
        busiest.append(max(rows))
    mean = sum(busiest) / len(busiest)
    found = exchanges.routing_imbalance(6, 12, 3, 4, draws=3000)
    assert found.busiest_rows == approx(mean, abs=4 * math.sqrt(2) * found.standard_error)


def test_a_token_that_uses_all_experts_is_balanced() -> None:
    assert exchanges.routing_imbalance(5, 8, 8, 4, draws=2) == exchanges.Imbalance(10, 10, 0)
    assert exchanges.routing_imbalance(5, 8, 2, 1, draws=2).ratio == 1


# ---------------------------------------------------------------------------------------------- domains


@pytest.mark.parametrize("bad", ENDLESS)
def test_negative_and_endless_arguments_are_refused(bad: float) -> None:
    for call in (
        lambda: exchanges.message_bytes(bad, 1, 1),
        lambda: exchanges.message_bytes(1, 1, bad),
        lambda: exchanges.all_reduce_s(bad, 2, 1, 1),
        lambda: exchanges.all_reduce_s(1, 2, bad, 1),
        lambda: exchanges.all_reduce_s(1, 2, 1, bad),
        lambda: exchanges.one_shot_limit_bytes(4, bad, 1),
        lambda: exchanges.one_shot_limit_bytes(4, 1, bad),
        lambda: exchanges.tensor_parallel_step_s(bad, 2, 1, 1),
        lambda: exchanges.tensor_parallel_step_s(1, 2, 1, bad),
        lambda: exchanges.tensor_parallel_step_s(1, 2, 1, 1, bad),
        lambda: exchanges.pipeline_token_s([1, bad], 1),
        lambda: exchanges.pipeline_token_s([1], bad),
        lambda: exchanges.expert_exchange_s(bad, 1, 1, 1, 1),
        lambda: exchanges.expert_exchange_s(1, 1, 1, bad, 1),
        lambda: exchanges.expert_exchange_s(1, 1, 1, 1, bad),
        lambda: exchanges.overlapped_step_s(1, bad, 1),
        lambda: exchanges.overlapped_step_s(1, 1, bad),
    ):
        with pytest.raises(DomainError):
            call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: exchanges.message_bytes(1, 0, 1),
        lambda: exchanges.all_reduce_s(1, 0, 1, 1),
        lambda: exchanges.all_reduce_s(1, 2, 1, 0),
        lambda: exchanges.one_shot_limit_bytes(1, 1, 1),
        lambda: exchanges.tensor_parallel_step_s(1, 0, 1, 1),
        lambda: exchanges.tensor_parallel_step_s(1, 2, -1, 1),
        lambda: exchanges.pipeline_token_s([], 1),
        lambda: exchanges.pipeline_bubble(0, 1),
        lambda: exchanges.pipeline_bubble(1, 0),
        lambda: exchanges.expert_exchange_s(1, 0, 1, 1, 1),
        lambda: exchanges.expert_exchange_s(1, 1, 1, 1, 1, 0),
        lambda: exchanges.overlapped_step_s(0, 1, 1),
        lambda: exchanges.overlapped_step_s(1, 1, 1, 0),
        lambda: exchanges.routing_imbalance(0, 8, 2, 4),
        lambda: exchanges.routing_imbalance(1, 8, 9, 4),
        lambda: exchanges.routing_imbalance(1, 8, 0, 4),
        lambda: exchanges.routing_imbalance(1, 8, 2, 3),
        lambda: exchanges.routing_imbalance(1, 8, 2, 0),
        lambda: exchanges.routing_imbalance(1, 8, 2, 4, draws=1),
        lambda: exchanges.routing_imbalance(1, 8, 2, 4, seed=-1),
        lambda: exchanges.routing_imbalance(2**63, 8, 2, 4),
        lambda: exchanges.all_reduce_s(1, 2, 1, 1, "tree"),
        lambda: exchanges.expert_exchange_s(1e308, 8, 7168, 3, 50e9, 1),
    ],
)
def test_the_edges_of_the_domains(call) -> None:
    with pytest.raises(DomainError):
        call()
