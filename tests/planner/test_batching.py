"""Golden values of formulas F7.1 to F7.7 and their properties; those on a step model against trying every batch."""

import math

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, GIB, HA, HH, M7, M8, M70, deploy, number_format, step_model

import roofplan
from roofplan.errors import DomainError
from roofplan.planner import batch_curve, batching
from roofplan.planner.costs import Load
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
M7_HA, M8_HH = step_model(M7, HA), step_model(M8, HH)
DS_HH = step_model(DS, HH)
MODELS = st.sampled_from([M7_HA, M8_HH, DS_HH])


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
    read = M7_HA.totals(Load(1, 1))[1]
    assert batching.crossover_batch(read, 4096 * C7) == approx(6.1533203125, rel=EXACT)


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
    assert batching.batch_within_memory(10e9, W7, 0, 4096 * C7) == 0


def test_marginal_gain_is_half_at_the_crossover() -> None:  # F7.6
    crossover = batching.crossover_batch(W7, 4096 * C7)
    assert batching.marginal_gain(crossover, W7, 4096 * C7) == approx(0.5, rel=EXACT)


@given(st.integers(1, 10**4), st.integers(1, 10**5))
def test_marginal_gain_is_the_slope_of_the_curve(batch: int, context: int) -> None:  # F7.6
    def log_throughput(log_batch: float) -> float:
        args = (W7, N7, context * C7, 1e30, 2.0e12)
        return log_batch - math.log(batching.textbook_step_s(math.exp(log_batch), *args))

    here, by = math.log(batch), 1e-4
    slope = (log_throughput(here + by) - log_throughput(here - by)) / (2 * by)
    assert batching.marginal_gain(batch, W7, context * C7) == approx(slope, rel=1e-5, abs=1e-9)


def test_a_cache_without_bytes_has_no_crossover() -> None:  # F7.2, F7.3
    assert batching.crossover_batch(W7, 0) is None
    assert batching.critical_context(N7, 156.0, 0) is None
    assert batching.batch_within_latency(0.02, W7, N7, 0, 312e12, 2.0e12) == math.floor(0.02 * 312e12 / (2 * N7))


@given(st.floats(1e-3, 0.2), st.integers(0, 20000))
def test_latency_budget_against_trying_every_batch(limit: float, context: int) -> None:  # F7.4
    args = (W7, N7, context * C7, 312e12, 2.0e12)
    found = batching.batch_within_latency(limit, *args)
    assert found == 0 or batching.textbook_step_s(found, *args) <= limit * (1 + EXACT)
    assert batching.textbook_step_s(found + 1, *args) > limit * (1 - EXACT)


@given(st.integers(0, 10**11), st.integers(0, 10**10), st.integers(1, 10**9))
def test_memory_budget_against_adding_sequences(budget: int, other: int, sequence: int) -> None:  # F7.5
    found = batching.batch_within_memory(budget, W7, other, sequence)
    assert found == 0 or W7 + other + found * sequence <= budget
    assert W7 + other + (found + 1) * sequence > budget


@given(st.integers(0, 300), st.floats(1, 400))
def test_compute_bound_batch_is_where_the_two_roofs_meet(context: int, ridge: float) -> None:  # F7.3
    batch = batching.compute_bound_batch(W7, N7, ridge, context * C7)
    tried = 1e9 if batch is None else batch
    compute, memory = 2 * N7 * tried / (ridge * 1e12), (W7 + tried * context * C7) / 1e12
    assert compute <= memory if batch is None else compute == approx(memory, rel=1e-6)


# ------------------------------------------------------------------------------------------------ on a step model

WHOLE_M7 = 13214154752  # F4.3: weight bytes that a step reads
WHOLE_M8 = 15009316864


def test_curve_on_a_step_model() -> None:  # F7.1, F6.2
    first, fourth = batch_curve.throughput_curve(M7_HA, [1, 4], 4096, grouping="whole")
    assert first.step_s == approx((WHOLE_M7 + 4096 * C7) / 2.0e12, rel=EXACT)
    assert fourth.step_s == approx((WHOLE_M7 + 4 * 4096 * C7) / 2.0e12, rel=EXACT)
    assert fourth.tokens_per_s == approx(4 / fourth.step_s, rel=EXACT)
    assert fourth.tokens_per_s_per_user == approx(1 / fourth.step_s, rel=EXACT)
    assert fourth.marginal_gain == approx(batching.marginal_gain(4, WHOLE_M7, 4096 * C7), rel=1e-9)  # F7.6


@given(MODELS, st.integers(1, 4000), st.integers(1, 10**5))
def test_throughput_never_falls_and_no_user_gets_faster(model, batch: int, context: int) -> None:  # F7.1
    here, more = batch_curve.throughput_curve(model, [batch, batch + 1], context)
    assert more.tokens_per_s >= here.tokens_per_s * (1 - EXACT)
    assert more.tokens_per_s_per_user <= here.tokens_per_s_per_user * (1 + EXACT)
    assert -1e-9 <= here.marginal_gain <= 1 + EXACT


def test_largest_batch_within_a_tpot() -> None:  # F7.4 with the weights read, and attention counted in the FLOP
    assert batch_curve.batch_within_tpot(M7_HA, 4096, 0.020, 1000, "whole") == 12
    assert batch_curve.batch_within_tpot(M8_HH, 4096, 0.025, 1000, "whole") == 128
    assert math.floor((0.025 * 3.35e12 - WHOLE_M8) / (4096 * C8)) == 128
    assert batch_curve.batch_within_tpot(M7_HA, 4096, 0.020, 5, "whole") == 5
    assert batch_curve.batch_within_tpot(M7_HA, 4096, 0.001, 1000) == 0
    assert batch_curve.batch_within_tpot(M7_HA, 4096, 0.020, 0) == 0


@given(MODELS, st.integers(1, 50000), st.floats(1e-3, 0.3), st.integers(0, 60))
def test_tpot_against_trying_every_batch(model, context: int, limit: float, most: int) -> None:  # F7.4
    tried = [batch for batch in range(1, most + 1) if model.step_s(batch, context) <= limit]
    assert batch_curve.batch_within_tpot(model, context, limit, most) == max(tried, default=0)


def test_knee_is_the_least_of_three_limits() -> None:  # F7.6
    memory = batching.batch_within_memory(0.9 * 80e9, W7, 0, 4096 * C7)
    assert batch_curve.knee(M7_HA, 4096, memory, limit_s=0.02, grouping="whole") == batch_curve.Knee(
        6, "gain", 27, 12, 6
    )
    wide = batch_curve.knee(M7_HA, 4096, memory, limit_s=0.02, least_gain=0.1, grouping="whole")
    assert (wide.batch, wide.binds, wide.by_gain) == (12, "latency", 27)
    assert batch_curve.knee(M7_HA, 4096, memory, least_gain=0.1, grouping="whole").binds == "memory"
    assert batch_curve.knee(M7_HA, 4096, 0) == batch_curve.Knee(0, "memory", 0, None, 0)
    assert batch_curve.knee(M7_HA, 4096, 50, limit_s=0.001) == batch_curve.Knee(0, "latency", 50, 0, 6)


@given(st.sampled_from([(M7_HA, WHOLE_M7, C7), (M8_HH, WHOLE_M8, C8)]), st.integers(500, 10**5))
def test_knee_of_a_dense_model_is_its_crossover(
    figures, context: int
) -> None:  # F7.2, F7.6; beyond the critical context
    model, read, growth = figures
    crossover = batching.crossover_batch(read, context * growth)
    assume(abs(crossover - round(crossover)) > 1e-6)
    assert batch_curve.knee(model, context, 400, grouping="whole").by_gain == math.floor(crossover)


@given(MODELS, st.integers(1, 50000), st.floats(0, 1), st.integers(0, 60))
@example(DS_HH, 1000, 0.5, 60)
def test_knee_against_trying_every_batch(model, context: int, least_gain: float, most: int) -> None:  # F7.6
    """From throughputs alone: a gain g lets the step grow by (1 - g) / B of its time, so that X(B+1) / X(B) = (B + 1) / (B + 1 - g)."""
    found = batch_curve.knee(model, context, most, least_gain=least_gain)
    rates = [batch / model.step_s(batch, context) for batch in range(1, most + 2)]
    gains = [batch + 1 - (batch + 1) * rates[batch - 1] / rates[batch] for batch in range(1, most + 1)]
    assume(all(abs(gain - least_gain) > 1e-9 for gain in gains))  # rounding decides such ties
    assert found.by_gain == max((batch for batch, gain in enumerate(gains, 1) if gain >= least_gain), default=0)
    assert found.batch == min(most, found.by_gain)


def test_experts_pay_late() -> None:
    """The first sequences of a mixture of experts bring weights of their own: gain falls short at first, and not for good."""
    gains = [point.marginal_gain for point in batch_curve.throughput_curve(DS_HH, [1, 2, 256], 1000)]
    assert gains[0] < 0.5 < gains[2]
    assert batch_curve.knee(DS_HH, 1000, 1000).by_gain > 256


@given(MODELS, st.integers(1, 50000), st.integers(1, 400), st.sampled_from([0.0, 0.02, 0.3]))
def test_cheapest_batch_against_trying_every_batch(model, context: int, most: int, tolerance: float) -> None:
    found = batch_curve.cheapest_batch(model, context, 2.0, most, tolerance=tolerance)
    prices = [1e6 * 2.0 / 3600 * model.step_s(batch, context) / batch for batch in range(1, most + 1)]
    assert found.usd_per_million_tokens == approx(prices[found.batch - 1], rel=EXACT)
    assert found.usd_per_million_tokens <= min(prices) * (1 + tolerance + 1e-8)
    assert all(price > min(prices) * (1 + tolerance) for price in prices[: found.batch - 1])


def test_tokens_get_no_cheaper_once_all_is_compute_bound() -> None:
    found = batch_curve.cheapest_batch(M7_HA, 1, 2.0, 4000, grouping="whole")
    attention = 4 * 32 * 128 * 32  # FLOP of one key in all layers
    flop, growth = (2 * WHOLE_M7 / 2 + attention) / 312e12, C7 / 2.0e12
    assert found.batch == math.ceil(WHOLE_M7 / 2.0e12 / (flop - growth))  # F7.3 with the parameters multiplied
    assert found.usd_per_million_tokens == approx(1e6 * 2.0 / 3600 * flop, rel=1e-8)


GOOD_STEP = {
    "batch": 1,
    "weight_bytes": W7,
    "parameters": N7,
    "cache_bytes_per_sequence": C7,
    "peak_flop_per_s": 312e12,
    "bandwidth_bytes_per_s": 2e12,
}


@pytest.mark.parametrize("name", GOOD_STEP)
@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
def test_domain_of_the_closed_forms(name: str, value: float) -> None:
    with pytest.raises(DomainError, match=name):
        batching.textbook_step_s(**{**GOOD_STEP, name: value})
    if name != "batch":
        budget = {key: number for key, number in GOOD_STEP.items() if key != "batch"}
        with pytest.raises(DomainError, match=name):
            batching.batch_within_latency(0.02, **{**budget, name: value})


@pytest.mark.parametrize(
    "call",
    [
        lambda: batching.textbook_step_s(1, W7, N7, C7, 0, 2e12),
        lambda: batching.throughput_limit(2e12, 0),
        lambda: batching.throughput_limit(0, C7),
        lambda: batching.crossover_batch(-1, C7),
        lambda: batching.crossover_batch(W7, -1),
        lambda: batching.critical_context(N7, 0, C7),
        lambda: batching.critical_context(N7, 156.0, -1),
        lambda: batching.critical_context(-1, 156.0, C7),
        lambda: batching.compute_bound_batch(W7, N7, 0, C7),
        lambda: batching.compute_bound_batch(W7, -1, 156.0, C7),
        lambda: batching.batch_within_latency(-0.01, *M7_AT_4096),
        lambda: batching.batch_within_latency(0.02, W7, 0, C7, 312e12, 2e12),
        lambda: batching.batch_within_memory(1e9, 0, 0, 0),
        lambda: batching.batch_within_memory(-1, 0, 0, 1),
        lambda: batching.batch_within_memory(1e9, -1, 0, 1),
        lambda: batching.batch_within_memory(1e9, 0, -1, 1),
        lambda: batching.marginal_gain(-1, W7, C7),
        lambda: batching.marginal_gain(1, 0, 0),
        lambda: batching.marginal_gain(1, W7, -1),
        lambda: batching.critical_context(1e308, 1e308, 1e5),
        lambda: batching.textbook_step_s(0, W7, 1e308, C7, 5e-324, 2e12),
        lambda: batching.textbook_step_s(1e10, W7, 1e308, C7, 1e12, 2e12),
        lambda: batching.crossover_batch(1e10, 1e-300),
        lambda: batching.batch_within_memory(1e9, 0, 0, 5e-324),
        lambda: batch_curve.batch_within_tpot(M7_HA, 1, 0.02, 2**63),
        lambda: batch_curve.knee(M7_HA, 1, 2**21),
        lambda: batch_curve.cheapest_batch(M7_HA, 1, 1e308, 1),
        lambda: batch_curve.throughput_curve(M7_HA, [1], 1, "Whole"),
        lambda: batch_curve.throughput_curve(M7_HA, [0], 1),
        lambda: batch_curve.throughput_curve(M7_HA, [1], 0),
        lambda: batch_curve.batch_within_tpot(M7_HA, 0, 0.02, 1),
        lambda: batch_curve.batch_within_tpot(M7_HA, 1, -0.02, 1),
        lambda: batch_curve.batch_within_tpot(M7_HA, 1, 0.02, -1),
        lambda: batch_curve.knee(M7_HA, 0, 1),
        lambda: batch_curve.knee(M7_HA, 1, -1),
        lambda: batch_curve.knee(M7_HA, 1, 1, limit_s=-1),
        lambda: batch_curve.knee(M7_HA, 1, 1, least_gain=1.5),
        lambda: batch_curve.cheapest_batch(M7_HA, 0, 1, 1),
        lambda: batch_curve.cheapest_batch(M7_HA, 1, -1, 1),
        lambda: batch_curve.cheapest_batch(M7_HA, 1, 1, 0),
        lambda: batch_curve.cheapest_batch(M7_HA, 1, 1, 1, tolerance=-1),
    ],
)
def test_outside_the_domain(call) -> None:
    with pytest.raises(DomainError):
        call()


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
    step = batching.textbook_step_s(crossover, W7, N7, context * C7, 1e30, 2.0e12)
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
