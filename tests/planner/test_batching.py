"""Golden values of formulas F7.1 to F7.7 and their properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import GIB, HA, HH, M7, M8, M70, deploy, number_format, step_model

import roofplan
from roofplan.errors import DomainError
from roofplan.planner import batching
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.memory import plan_capacity, plan_memory
from roofplan.planner.parallel import Layout
from roofplan.planner.parameters import count_parameters

EXACT = 1e-12
BF16 = number_format("bf16")


def figures(model) -> tuple[int, int, int]:
    """Weight bytes, parameters and cache bytes per token, in the convention of section 7."""
    parameters = count_parameters(model).total
    return 2 * parameters, parameters, cache_layout(model, BF16).bytes_per_token


W7, N7, C7 = figures(M7)
W8, N8, C8 = figures(M8)
W70, N70, C70 = figures(M70)
M7_AT_4096 = (W7, N7, 4096 * C7, 312e12, 2.0e12)


@pytest.mark.parametrize(
    ("batch", "seconds", "tokens_per_s"),
    [
        (1, 0.00781215744, 128.00561274914602),
        (6, 0.01318086656, 455.2052759723864),
        (32, 0.041098153984, 778.623779852934),
        (64, 0.075457892352, 848.1551499139333),
    ],
)
def test_curve(batch: int, seconds: float, tokens_per_s: float) -> None:  # F7.1
    step = batching.textbook_step_s(batch, *M7_AT_4096)
    assert step == approx(seconds, rel=EXACT)
    assert batch / step == approx(tokens_per_s, rel=EXACT)
    assert batching.throughput_limit(2.0e12, 4096 * C7) == approx(931.3225746154785, rel=EXACT)


@pytest.mark.parametrize(
    ("weights", "growth", "batch"),
    [
        (W7, C7, 6.275638580322266),
        (W8, C8, 29.915054321289062),
        (W7, C7 // 4, 25.102554321289062),
        (W7 // 2, C7, 3.137819290161133),
    ],
)
def test_crossover(weights: int, growth: int, batch: float) -> None:  # F7.2
    assert batching.crossover_batch(weights, 4096 * growth) == approx(batch, rel=EXACT)


def test_crossover_with_weights_read() -> None:  # section 7, convention
    read = step_model(M7, HA).totals(_load())[1]
    assert batching.crossover_batch(read, 4096 * C7) == approx(6.1533203125, rel=EXACT)


def _load():
    from roofplan.planner.costs import Load

    return Load(1, 1)


@pytest.mark.parametrize(
    ("weights", "parameters", "growth", "ridge", "context"),
    [
        (W7, N7, C7, 156.0, 164.77574118589743),
        (W8, N8, C8, HH.ridge("bf16"), 414.8801388467758),
        (W8, N8, C8, 156.0, 785.4619391025641),
        (W70, N70, C70, HH.ridge("bf16"), 1458.0512709723064),
    ],
)
def test_critical_context(weights: int, parameters: int, growth: int, ridge: float, context: float) -> None:  # F7.3
    assert batching.critical_context(parameters, ridge, growth) == approx(context, rel=EXACT)
    assert batching.compute_bound_batch(weights, parameters, ridge, context * 1.001 * growth) is None


@pytest.mark.parametrize(
    ("context", "batch"),
    [(0, 156), (50, 223.95861145750885), (100, 396.83089925949525), (150, 1739.6769002379328), (200, None)],
)
def test_compute_bound_batch(context: int, batch: float | None) -> None:  # F7.3
    found = batching.compute_bound_batch(W7, N7, 156.0, context * C7)
    assert (
        found is None if batch is None else found == approx(batch, rel=1e-11)
    )  # a difference of near numbers loses a digit


def test_largest_batch_in_a_latency_budget() -> None:  # F7.4
    assert batching.batch_within_latency(0.020, *M7_AT_4096) == 12
    assert batching.batch_within_latency(0.025, W8, N8, 4096 * C8, 989.4e12, 3.35e12) == 126
    assert batching.batch_within_latency(0.001, *M7_AT_4096) == 0


def test_largest_batch_in_memory() -> None:  # F7.5
    assert batching.batch_within_memory(0.9 * 80e9, W7, 0, 4096 * C7) == 27
    assert batching.batch_within_memory(0.9 * 80 * GIB, W8, 0, 4096 * C8) == 114
    with pytest.raises(DomainError):
        batching.batch_within_memory(1e9, 0, 0, 0)


def test_marginal_gain_is_half_at_the_crossover() -> None:  # F7.6
    crossover = batching.crossover_batch(W7, 4096 * C7)
    assert batching.marginal_gain(crossover, W7, 4096 * C7) == approx(0.5, rel=EXACT)


@given(st.integers(1, 10**5), st.integers(1, 10**5))
def test_throughput_grows_and_stays_below_its_limit(batch: int, context: int) -> None:  # F7.1
    args = (W7, N7, context * C7, 312e12, 2.0e12)
    here, more = (
        batch / batching.textbook_step_s(batch, *args),
        (batch + 1) / batching.textbook_step_s(batch + 1, *args),
    )
    assert here <= more * (1 + EXACT)
    assert here <= min(batching.throughput_limit(2.0e12, context * C7), 312e12 / 2 / N7) * (1 + EXACT)


@given(st.integers(1, 10**5))
def test_throughput_is_half_its_limit_at_the_crossover(context: int) -> None:  # F7.2
    crossover = batching.crossover_batch(W7, context * C7)
    step = batching.textbook_step_s(crossover, W7, N7, context * C7, math.inf, 2.0e12)
    assert crossover / step == approx(batching.throughput_limit(2.0e12, context * C7) / 2)


# F7.7 and the issue: 70B on two devices at 8k context, nothing but weights and KV. (memory of a device, utilisation) -> 2 B, 1 B each.
@pytest.mark.parametrize(
    ("memory", "utilization", "sixteen_bits", "eight_bits"),
    [("80 GB", 1.0, 7, 66), ("80 GB", 0.9, 1, 54), ("80 GiB", 1.0, 11, 75), ("80 GiB", 0.9, 5, 62)],
)
def test_worked_deployment(memory: str, utilization: float, sixteen_bits: int, eight_bits: int) -> None:  # F7.7
    found = [
        roofplan.size(
            "llama-3-70b",
            "h100-sxm",
            devices=2,
            prompt=8000,
            output=192,
            weights=weights,
            kv=kv,
            device_memory=memory,
            memory_utilization=utilization,
            activation_memory=0,
            runtime_memory=0,
        ).capacity.max_concurrency
        for weights, kv in (("bf16", "bf16"), ("all=int8", "int8"))
    ]
    assert found == [sixteen_bits, eight_bits]


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 20000))
def test_more_memory_never_lowers_the_capacity(gib: int, more: int, context: int) -> None:
    import dataclasses

    from roofplan.planner.deployment import MemoryOverrides

    def capacity(size: int):
        deployment = deploy(M8, HH, prompt=context, layout=Layout(tp=2))
        memory = MemoryOverrides(total_bytes=size * GIB, activation_bytes=0, runtime_bytes=0)
        deployment = dataclasses.replace(deployment, memory=memory)
        return plan_capacity(deployment, plan_memory(deployment))

    small, large = capacity(gib), capacity(gib + more)
    assert small.max_concurrency <= large.max_concurrency
    assert small.kv_tokens <= large.kv_tokens
    assert (small.max_context or 0) <= (large.max_context or math.inf)


@given(st.integers(1, 10**5), st.integers(1, 10**4))
def test_longer_sequences_never_raise_the_batch(context: int, more: int) -> None:
    def batch(tokens: int) -> int:
        deployment = deploy(M8, HH, prompt=tokens)
        return plan_capacity(deployment, plan_memory(deployment)).max_concurrency

    assert batch(context + more) <= batch(context)
