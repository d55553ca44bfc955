"""Golden values of formulas F8.1 to F8.4, against sampling, other closed forms, and slots that are run step by step."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import HA, M7, step_model

from roofplan.errors import DomainError
from roofplan.planner import static_batching

EXACT = 1e-12
LENGTHS = [8, 1, 2, 1, 3, 1]

# ------------------------------------------------------------------------------------------------ golden values


@pytest.mark.parametrize(
    ("batch", "utilization"),
    [(4, 0.4806258173776166), (8, 0.36852001450790417), (16, 0.29631648006704436), (32, 0.24686234984552965)],
)
def test_geometric_lengths(batch: int, utilization: float) -> None:  # F8.1
    assert static_batching.geometric_utilization(200, batch) == approx(utilization, rel=EXACT)


@pytest.mark.parametrize("batch", [1, 2, 1000, 1001, 1500, 40_000])
def test_harmonic_numbers_are_sums(batch: int) -> None:  # F8.1
    assert static_batching.harmonic(batch) == approx(math.fsum(1 / k for k in range(1, batch + 1)), rel=1e-15)


def test_exponential_lengths() -> None:  # F8.1
    assert static_batching.exponential_utilization(8) == approx(0.3679369250985546, rel=EXACT)


@pytest.mark.parametrize(
    ("sigma", "utilizations"),
    [
        (0.5, (0.635618, 0.529771, 0.450881, 0.390044)),
        (1.0, (0.452873, 0.32427, 0.239826, 0.182144)),
        (1.5, (0.356195, 0.225885, 0.148434, 0.10061)),
    ],
)
def test_lognormal_lengths(sigma: float, utilizations: tuple[float, ...]) -> None:  # F8.1
    found = [static_batching.lognormal_utilization(sigma, batch) for batch in (4, 8, 16, 32)]
    assert found == approx(utilizations, abs=5e-7)


def uniform(shortest: int, longest: int) -> dict[int, float]:
    number = longest - shortest + 1
    return dict.fromkeys(range(shortest, longest + 1), 1 / number)


@pytest.mark.parametrize(("batch", "utilization"), [(1, 1.0), (2, 0.75), (8, 0.5625), (100, 0.505)])
def test_uniform_lengths(batch: int, utilization: float) -> None:  # F8.1
    assert static_batching.uniform_utilization(batch) == approx(utilization, rel=EXACT)
    assert static_batching.static_utilization(uniform(1, 50_000), batch) == approx(utilization, rel=1e-4)


def test_prompt_padding() -> None:  # F8.2
    assert static_batching.padded_share(uniform(100, 1000), 8) == approx(0.3891523332147873, rel=EXACT)


def test_exact_small_case() -> None:  # F8.4
    static, continuous = static_batching.static_run(LENGTHS, 2), static_batching.continuous_run(LENGTHS, 2)
    assert (static.steps, continuous.steps) == (13, 8)
    assert static.utilization == approx(0.6153846153846154, rel=EXACT)
    assert continuous.utilization == 1.0
    assert static.live == (2, 1, 1, 1, 1, 1, 1, 1, 2, 1, 2, 1, 1)
    assert static.steps / continuous.steps == approx(static_batching.greatest_gain(static.utilization))  # F8.3


# ------------------------------------------------------------------------------------------------ by other ways


def sampled_utilization(draw, batch: int, batches: int = 40_000) -> float:
    """Mean length over mean longest, of batches whose lengths are drawn."""
    total = longest = 0.0
    for _ in range(batches):
        lengths = [draw() for _ in range(batch)]
        total += sum(lengths) / batch
        longest += max(lengths)
    return total / longest


@pytest.mark.parametrize("batch", [2, 8])
def test_against_sampling(batch: int) -> None:  # F8.1
    rng = random.Random(batch)
    shape = -math.log1p(-1 / 20)
    draws = {
        static_batching.geometric_utilization(20, batch): lambda: math.ceil(rng.expovariate(shape)),
        static_batching.exponential_utilization(batch): lambda: rng.expovariate(1),
        static_batching.lognormal_utilization(0.8, batch): lambda: rng.lognormvariate(3, 0.8),
        static_batching.uniform_utilization(batch): rng.random,
        static_batching.static_utilization({1: 0.2, 10: 0.5, 12: 0.3}, batch): lambda: rng.choices(
            [1, 10, 12], [0.2, 0.5, 0.3]
        )[0],
    }
    for expected, draw in draws.items():
        assert sampled_utilization(draw, batch) == approx(expected, rel=0.02)


def longest_geometric(mean: float, batch: int) -> float:
    """Mean steps until all of a batch are done, by conditioning on how many survive a step (no sum over lengths)."""
    q = 1 - 1 / mean
    steps = [0.0]
    for running in range(1, batch + 1):
        rest = sum(
            math.comb(running, left) * q**left * (1 - q) ** (running - left) * steps[left] for left in range(1, running)
        )
        steps.append((1 + rest) / (1 - q**running))
    return steps[batch]


@given(st.floats(1.0, 999.0) | st.floats(1000.0, 20_000.0), st.integers(1, 24))
def test_geometric_lengths_step_by_step(mean: float, batch: int) -> None:  # F8.1
    expected = mean / longest_geometric(mean, batch)
    assert static_batching.geometric_utilization(mean, batch) == approx(expected, rel=1e-9)


@pytest.mark.parametrize("batch", [1, 2, 3, 8, 64])
def test_both_ways_to_sum_geometric_lengths_meet(batch: int) -> None:  # F8.1
    below, above = (static_batching.geometric_utilization(mean, batch) for mean in (1000 - 1e-9, 1000))
    assert below == approx(above, rel=1e-11)


@pytest.mark.parametrize("batch", [1, 2, 8, 64])
def test_long_geometric_lengths_are_exponential(batch: int) -> None:  # F8.1
    found = static_batching.geometric_utilization(1e7, batch)
    assert found == approx(static_batching.exponential_utilization(batch), rel=1e-6)


def test_geometric_lengths_as_a_table() -> None:  # F8.1
    share, table = 1 / 5, {}
    for length in range(1, 400):
        table[length] = share * (1 - share) ** (length - 1)
    found = static_batching.static_utilization(table, 6)
    assert found == approx(static_batching.geometric_utilization(5, 6), rel=1e-9)


def test_lognormal_lengths_by_cutting_them_into_a_table() -> None:  # F8.1
    sigma, batch, edges = 0.5, 8, [math.exp(0.5 * 0.01 * k) for k in range(-900, 901)]
    longest, mean, below = 0.0, 0.0, 0.0
    for edge, following in itertools.pairwise(edges):
        up_to = math.erfc(-math.log(following) / sigma / math.sqrt(2)) / 2
        middle = math.sqrt(edge * following)
        longest += middle * (up_to**batch - below**batch)
        mean += middle * (up_to - below)
        below = up_to
    assert static_batching.lognormal_utilization(sigma, batch) == approx(mean / longest, rel=1e-4)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(1, 4))
def test_any_distribution_by_enumeration(values: list[int], batch: int) -> None:  # F8.1, F8.2
    table: dict[int, float] = {}
    for value in values:
        table[value] = table.get(value, 0) + 1 / len(values)
    longest = sum(max(lengths) for lengths in itertools.product(values, repeat=batch)) / len(values) ** batch
    expected = sum(values) / len(values) / longest
    assert static_batching.static_utilization(table, batch) == approx(expected, rel=1e-9)
    assert static_batching.padded_share(table, batch) == approx(1 - expected, abs=1e-9)


@given(st.floats(0, 5), st.integers(1, 500))
def test_utilization_lies_between_one_slot_and_all(sigma: float, batch: int) -> None:  # F8.1
    utilizations = (
        static_batching.lognormal_utilization(sigma, batch),
        static_batching.geometric_utilization(1 + 100 * sigma, batch),
        static_batching.exponential_utilization(batch),
        static_batching.uniform_utilization(batch),
    )
    for utilization in utilizations:
        assert 1 / batch * (1 - 1e-9) <= utilization <= 1
        assert static_batching.greatest_gain(utilization) >= 1  # F8.3


def test_lengths_that_are_all_equal_waste_nothing() -> None:
    assert static_batching.lognormal_utilization(0, 32) == approx(1, rel=1e-11)
    assert static_batching.geometric_utilization(1, 32) == 1
    assert static_batching.static_utilization({7: 1.0}, 32) == 1


# ------------------------------------------------------------------------------------------------ runs

JOBS = st.lists(st.integers(1, 30), min_size=1, max_size=40)


def step_by_step(lengths: list[int], slots: int, *, continuous: bool) -> tuple[int, ...]:
    """How many sequences are live in every step, with a queue and a list of what each slot has left."""
    queue, running, live = list(lengths), [], []
    while queue or running:
        if continuous or not running:
            while queue and len(running) < slots:
                running.append(queue.pop(0))
        live.append(len(running))
        running = [left - 1 for left in running if left > 1]
    return tuple(live)


@given(JOBS, st.integers(1, 9))
def test_runs_step_by_step(lengths: list[int], slots: int) -> None:  # F8.4
    assert static_batching.static_run(lengths, slots).live == step_by_step(lengths, slots, continuous=False)
    assert static_batching.continuous_run(lengths, slots).live == step_by_step(lengths, slots, continuous=True)


@given(JOBS, st.integers(1, 9), st.floats(0, 1), st.floats(0, 1))
def test_gain_of_continuous_over_static(lengths: list[int], slots: int, fixed: float, each: float) -> None:  # F8.3
    static, continuous = static_batching.static_run(lengths, slots), static_batching.continuous_run(lengths, slots)
    assert sum(static.live) == sum(continuous.live) == sum(lengths)
    most = static_batching.greatest_gain(static.utilization)
    in_steps = static.steps / continuous.steps
    assert 1 <= in_steps <= most * (1 + EXACT)
    slow, fast = (run.duration_s(lambda live: fixed + each * live) for run in (static, continuous))
    assert slow <= fast * in_steps * (1 + 1e-9)  # less when a step takes longer with more live sequences


def test_gain_of_many_sequences_reaches_the_limit() -> None:  # F8.1, F8.3
    rng = random.Random(8)
    rate = -math.log1p(-1 / 50)
    lengths = [math.ceil(rng.expovariate(rate)) for _ in range(8 * 3000)]
    static, continuous = static_batching.static_run(lengths, 8), static_batching.continuous_run(lengths, 8)
    expected = static_batching.geometric_utilization(50, 8)
    assert static.utilization == approx(expected, rel=0.02)
    assert static.steps / continuous.steps == approx(static_batching.greatest_gain(expected), rel=0.02)


def test_time_of_a_run_on_a_step_model() -> None:  # F8.3
    model = step_model(M7, HA)
    static, continuous = static_batching.static_run(LENGTHS, 2), static_batching.continuous_run(LENGTHS, 2)
    slow, fast = (run.duration_s(lambda live: model.step_s(live, 4096)) for run in (static, continuous))
    assert fast == approx(8 * model.step_s(2, 4096), rel=EXACT)
    assert slow == approx(3 * model.step_s(2, 4096) + 10 * model.step_s(1, 4096), rel=EXACT)
    assert 1 < slow / fast < 13 / 8


# ------------------------------------------------------------------------------------------------ outside the domain


@pytest.mark.parametrize("batch", [0, -1, 1.5, True])
@pytest.mark.parametrize(
    "call",
    [
        lambda batch: static_batching.geometric_utilization(200, batch),
        static_batching.exponential_utilization,
        static_batching.harmonic,
        lambda batch: static_batching.lognormal_utilization(1.0, batch),
        static_batching.uniform_utilization,
        lambda batch: static_batching.static_utilization({1: 1.0}, batch),
        lambda batch: static_batching.padded_share({1: 1.0}, batch),
        lambda batch: static_batching.static_run([1], batch),
        lambda batch: static_batching.continuous_run([1], batch),
    ],
)
def test_batches_that_are_none(call, batch) -> None:
    with pytest.raises(DomainError):
        call(batch)


@pytest.mark.parametrize(
    "call",
    [
        lambda: static_batching.geometric_utilization(0.5, 8),
        lambda: static_batching.geometric_utilization(math.inf, 8),
        lambda: static_batching.lognormal_utilization(-1, 8),
        lambda: static_batching.lognormal_utilization(math.nan, 8),
        lambda: static_batching.static_utilization({}, 8),
        lambda: static_batching.static_utilization({0: 1.0}, 8),
        lambda: static_batching.static_utilization({1: 0.5, 2: 0.4}, 8),
        lambda: static_batching.static_utilization({1: 1.5, 2: -0.5}, 8),
        lambda: static_batching.greatest_gain(0),
        lambda: static_batching.greatest_gain(1.1),
        lambda: static_batching.static_run([], 2),
        lambda: static_batching.static_run([1, 0], 2),
        lambda: static_batching.continuous_run([], 2),
        lambda: static_batching.continuous_run([1, 0], 2),
    ],
)
def test_outside_the_domain(call) -> None:
    with pytest.raises(DomainError):
        call()
