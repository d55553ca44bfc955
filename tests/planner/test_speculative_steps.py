"""Golden values of formulas F11.6, F11.7 and F11.9 through step models, and tables against one step at a time."""

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, HA, HH, M7, M8, M70, dense, deploy, step_model

from roofplan import models
from roofplan.errors import DomainError, LayoutError
from roofplan.planner import speculative_steps
from roofplan.planner.acceptance import expected_tokens, independent_rates
from roofplan.planner.costs import Load
from roofplan.planner.draft_trees import DraftRound, depth_rates, expected_tree_tokens, greedy_tree, tree_rounds
from roofplan.planner.draft_trees import chain as chain_of
from roofplan.planner.parallel import Layout
from roofplan.planner.speculative import speedup
from roofplan.planner.speculative_steps import Drafter
from roofplan.planner.step import Efficiency, StepModel

EXACT = 1e-12
M7_HA, M8_HH, M70_HH, DS_HH = step_model(M7, HA), step_model(M8, HH), step_model(M70, HH), step_model(DS, HH)
DRAFT_HH = step_model(dense(2048, 16, 32, 8, 64, 8192, 128256, name="draft", tied_embeddings=True), HH)
RATES = independent_rates(0.8, 4)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

# ------------------------------------------------------------------------------------------------ golden values

BY_BATCH = [
    (1, 1024, 1, 2.4011428571428572),
    (16, 1024, 1, 2.4011428571428572),
    (64, 1024, 1.0530971046132638, 2.3134035497886956),
    (128, 1024, 1.5441399072529882, 1.7290936662834318),
    (256, 1024, 2.0135935972495744, 1.3927779738190937),
    (256, 8192, 1.1726193987719815, 2.1375801434377495),
    (256, 32768, 1.0448983561287664, 2.3265304342974984),
]


@pytest.mark.parametrize(("batch", "context", "ratio", "gain"), BY_BATCH)
def test_by_batch_and_context(batch: int, context: int, ratio: float, gain: float) -> None:  # F11.6
    found = speculative_steps.verify_ratio(M8_HH, batch, 4, context, grouping="parts")
    assert found == approx(ratio, rel=EXACT)
    assert speedup(expected_tokens(0.8, 4), 4, 0.1, found) == approx(gain, rel=EXACT)
    drafter = Drafter(relative_cost=0.1)
    row = speculative_steps.speculation_table(M8_HH, drafter, RATES, [batch], context, grouping="parts")[4]
    assert (row.drafts, row.batch, row.within_budget) == (4, batch, True)
    assert row.verify_ratio == approx(ratio, rel=EXACT)
    assert row.speedup == approx(gain, rel=EXACT)


@pytest.mark.parametrize(
    ("batch", "num_experts", "experts_per_token", "ratio"),
    [
        (1, 256, 8, 4.697113990783691),
        (8, 256, 8, 3.2062120824424993),
        (32, 256, 8, 1.5577820126014883),
        (128, 256, 8, 1.0174834404420812),
        (1, 8, 2, 3.05078125),
    ],
)
def test_experts_of_five_tokens(batch: int, num_experts: int, experts_per_token: int, ratio: float) -> None:  # F11.7
    assert speculative_steps.expert_bytes_ratio(batch, 4, num_experts, experts_per_token) == approx(ratio, rel=EXACT)


@pytest.mark.parametrize(
    ("repeat", "touched"), [(0, 101.96216232138948), (0.5, 69.35612906671514), (1, 30.531005859375)]
)
def test_correlated_experts(repeat: float, touched: float) -> None:  # F2.10 in F11.7
    plain = 256 * (1 - (31 / 32) ** 4)
    assert speculative_steps.expert_bytes_ratio(4, 3, 256, 8, repeat) == approx(touched / plain, rel=EXACT)
    # The same through a step: weights that are not experts cancel, and at one token per sequence nothing repeats.
    model = speculative_steps.with_repeated_experts(DS_HH, repeat)
    bytes_of = [model.totals(Load(4, 1, verify=tokens))[1] for tokens in (4, 1)]
    per_expert = 58 * 3 * 7168 * 2048 * 2
    assert bytes_of[0] - bytes_of[1] == approx(per_expert * (touched - plain), rel=1e-9)
    assert bytes_of[1] == approx(DS_HH.totals(Load(4, 1))[1], rel=EXACT)


def test_half_the_layers_cost_about_half() -> None:  # F11.9
    half = StepModel.of(speculative_steps.early_exit(deploy(M7, HA), 16))
    # Half of the blocks and the whole head: (N_blk / 2 + d V) / N_mm, figures of section 0.
    expected = (6476005376 / 2 + 4096 * 32000) / 6607077376
    assert speculative_steps.relative_draft_cost(half, M7_HA, 1, 1e-9, grouping="whole") == approx(expected, rel=1e-9)


def test_early_exit_keeps_the_first_layers() -> None:  # F11.9
    kept = speculative_steps.early_exit(deploy(DS, HH), 5).model
    assert [group.count for group in kept.layers] == [3, 2]
    assert [group.count for group in speculative_steps.early_exit(deploy(DS, HH), 2).model.layers] == [2]
    assert speculative_steps.early_exit(deploy(DS, HH), 61).model == DS


# ------------------------------------------------------------------------------------------------ brute force

TARGETS = {"m8": M8_HH, "m70": M70_HH, "ds": DS_HH, "ds-repeating": speculative_steps.with_repeated_experts(DS_HH, 0.4)}
DRAFTERS = {
    "model": Drafter(DRAFT_HH),
    "lookup": Drafter(),
    "heads": Drafter(relative_cost=0.05, one_pass=True),
    "late": Drafter(DRAFT_HH, relative_cost=0.01, overhead_s=0.002),
}


def one_round_s(target: StepModel, drafter: Drafter, drafts: int, batch: int, context: int) -> float:
    """A round, pass by pass."""
    if not drafts:
        return target.step_s(batch, context)
    total = target.step_s(batch, context, verify=drafts + 1) + drafter.overhead_s
    for _ in range(1 if drafter.one_pass else drafts):
        total += drafter.relative_cost * target.step_s(batch, context)
        total += drafter.model.step_s(batch, context) if drafter.model else 0
    return total


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_table_against_single_rounds(target: str, drafter: str) -> None:  # F11.5, F11.6
    model, drafts = TARGETS[target], DRAFTERS[drafter]
    table = speculative_steps.speculation_table(model, drafts, RATES, (1, 7, 300), 2048, max_batched_tokens=900)
    assert [(row.batch, row.drafts) for row in table] == [(batch, k) for batch in (1, 7, 300) for k in range(5)]
    for row in table:
        round_s = one_round_s(model, drafts, row.drafts, row.batch, 2048)
        tokens = sum(0.8**j for j in range(row.drafts + 1))
        plain = model.step_s(row.batch, 2048)
        assert row.expected_tokens == approx(tokens, rel=EXACT)
        assert row.round_s == approx(round_s, rel=EXACT)
        assert row.tpot_s == approx(round_s / tokens, rel=EXACT)
        assert row.output_tokens_per_s == approx(row.batch * tokens / round_s, rel=EXACT)
        assert row.speedup == approx(tokens * plain / round_s, rel=EXACT)
        assert row.within_budget == (row.batch * (row.drafts + 1) <= 900)
    for best in speculative_steps.best_by_batch(table):
        rows = [row for row in table if row.batch == best.batch and row.within_budget]
        assert best.speedup == approx(max(row.speedup for row in rows), rel=EXACT)
        assert all(row.speedup < best.speedup for row in rows if row.drafts < best.drafts)


def test_the_best_does_not_depend_on_the_order_of_the_rows() -> None:
    table = speculative_steps.speculation_table(M8_HH, Drafter(relative_cost=0.1), RATES, BATCHES, 1024)
    best = speculative_steps.best_by_batch(table)
    assert [row.batch for row in best] == list(BATCHES)
    shuffled = sorted(table, key=lambda row: (row.drafts * 7 % 5, -row.batch))
    assert speculative_steps.best_by_batch(shuffled) == best
    # Of rows that gain the same, fewer drafts stand first, wherever they stand.
    free = speculative_steps.speculation_table(M8_HH, Drafter(), (0.0, 0.0), [1], 1024)
    assert speculative_steps.best_by_batch(reversed(free))[0].drafts == 0


def test_a_batch_beyond_the_budget_has_no_best() -> None:
    table = speculative_steps.speculation_table(M8_HH, Drafter(), RATES, (8, 100), 1024, max_batched_tokens=24)
    assert [(row.batch, row.drafts) for row in speculative_steps.best_by_batch(table)] == [(8, 2)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("tokens", "drafts", "budget"), [(1.9, 1, None), (2.9, 4, None), (1.5, 4, None), (2.9, 4, 500)]
)
def test_break_even_batch_against_every_batch(
    target: str, tokens: float, drafts: int, budget: int | None
) -> None:  # F11.6
    model, drafter = TARGETS[target], DRAFTERS["model"]
    found = speculative_steps.break_even_batch(
        model, drafter, tokens, drafts, 1024, most=700, max_batched_tokens=budget
    )
    last = 700 if budget is None else min(700, budget // (drafts + 1))
    gaining = [
        batch
        for batch in range(1, last + 1)
        if tokens * model.step_s(batch, 1024) > one_round_s(model, drafter, drafts, batch, 1024) * (1 + EXACT)
    ]
    assert found.batch == (max(gaining) if gaining else None)
    ends = last in gaining
    assert found.binds == ("break_even" if not ends else "search_end" if budget is None else "step_budget")
    assert found.break_even == (None if ends else found.batch)
    assert found.limit == (found.batch if ends else None)


GEMM_S, CACHE_S = 15009316864 / 989.4e12, 1024 * 131072 / 3.35e12  # of one token: 2 N / F, and of a sequence: L c / W
V_AT_MOST = (5 * GEMM_S + CACHE_S) / (GEMM_S + CACHE_S)  # of five tokens each, as the batch grows: 2.0986


@pytest.mark.parametrize(
    ("budget", "places", "most", "batch", "binds"),
    [
        (None, None, 4096, 4096, "search_end"),
        (8192, None, 4096, 1638, "step_budget"),
        (8192, 441, 4096, 441, "memory"),
        (8192, 1638, 4096, 1638, "step_budget"),  # as many as the step holds: both end there
        (8192, 5000, 100, 100, "search_end"),
        (8192, 0, 4096, None, "memory"),
        (4, None, 4096, None, "step_budget"),
    ],
)
def test_a_limit_is_no_break_even(
    budget: int | None, places: int | None, most: int, batch: int | None, binds: str
) -> None:
    """E - k c_d = 2.9616 stays above v at every batch: what ends the gain is a limit, and the speed-up there is still 1.34 or more."""
    tokens, drafter = expected_tokens(0.8, 4), Drafter(relative_cost=0.1)
    found = speculative_steps.break_even_batch(
        M8_HH, drafter, tokens, 4, 1024, max_batched_tokens=budget, places=places, most=most, grouping="parts"
    )
    assert (found.batch, found.binds, found.break_even, found.limit) == (batch, binds, None, batch)
    if batch is not None:
        verify = speculative_steps.verify_ratio(M8_HH, batch, 4, 1024, grouping="parts")
        assert verify < V_AT_MOST * 1.001 < tokens - 4 * 0.1
        assert speedup(tokens, 4, 0.1, verify) > 1.34


def test_a_break_even_beyond_memory_is_one() -> None:
    """It is a figure of times; that memory holds fewer is another matter."""
    args = (M8_HH, Drafter(relative_cost=0.1), expected_tokens(0.6, 4), 4, 1024)
    free, small = (speculative_steps.break_even_batch(*args, places=places, grouping="parts") for places in (None, 10))
    assert free == small
    assert free.binds == "break_even"
    assert free.break_even is not None
    assert free.break_even > 10


def test_drafts_that_gain_at_no_batch_have_no_limit() -> None:
    found = speculative_steps.break_even_batch(M8_HH, Drafter(relative_cost=1.0), 2.0, 4, 1024, places=7)
    assert (found.batch, found.binds, found.break_even, found.limit) == (None, "break_even", None, None)


def test_experts_may_gain_only_beyond_what_memory_holds() -> None:
    """Few sequences touch more experts with each draft; many touch them all: the gain begins at a larger batch than memory holds."""
    args = (DS_HH, Drafter(), 2.2, 4, 1024)
    gains = [batch for batch in range(1, 201) if 2.2 * DS_HH.step_s(batch, 1024) > DS_HH.step_s(batch, 1024, verify=5)]
    assert gains
    assert gains[0] > 2
    found = speculative_steps.break_even_batch(*args, most=gains[-1], places=gains[0] - 1)
    assert (found.batch, found.binds) == (None, "memory")


def test_long_contexts_push_the_break_even_away() -> None:  # F11.6, MagicDec
    drafter = Drafter(relative_cost=0.1)
    short, longer = (
        speculative_steps.break_even_batch(M8_HH, drafter, expected_tokens(0.6, 4), 4, context, grouping="parts")
        for context in (1024, 8192)
    )
    assert short.break_even is not None
    assert short.break_even < 400
    assert (longer.batch, longer.binds) == (4096, "search_end")  # the default of the most batches: no limit was met


def test_no_room_for_a_round() -> None:
    drafter = Drafter()
    found = speculative_steps.break_even_batch(M8_HH, drafter, 2.0, 4, 1024, max_batched_tokens=4)
    assert (found.batch, found.binds) == (None, "step_budget")


@given(st.integers(1, 2000), st.integers(0, 12), st.integers(1, 100_000))
def test_verification_costs_between_one_step_and_all_of_its_tokens(batch: int, drafts: int, context: int) -> None:
    for model in (M8_HH, DS_HH):
        ratio = speculative_steps.verify_ratio(model, batch, drafts, context)
        assert 1 - EXACT <= ratio <= (drafts + 1) * (1 + EXACT)


@given(st.integers(1, 500), st.integers(0, 8), st.floats(0, 1), st.floats(0, 1))
def test_repeated_experts_cost_less(batch: int, drafts: int, first: float, second: float) -> None:  # F11.7
    low, high = sorted((first, second))
    ratio = [speculative_steps.expert_bytes_ratio(batch, drafts, 256, 8, repeat) for repeat in (0, low, high, 1)]
    assert ratio == sorted(ratio, reverse=True) or np.ptp(ratio) < 1e-9
    assert ratio[-1] == approx(1, rel=1e-9)


@given(st.integers(1, 500), st.integers(0, 8), st.integers(0, 2000))
def test_independent_experts_are_repeated_at_zero(batch: int, drafts: int, chunk: int) -> None:  # F11.7
    load = Load(batch, 1024, drafts + 1, chunk)
    repeated = speculative_steps.with_repeated_experts(DS_HH, 0.0)
    assert repeated.totals(load) == approx(DS_HH.totals(load), rel=1e-9)


def test_repeated_experts_keep_efficiencies() -> None:
    slower = DS_HH.at(Efficiency(compute=0.5, bandwidth=0.7))
    assert speculative_steps.with_repeated_experts(slower, 0.0).step_s(4, 1024) == approx(
        slower.step_s(4, 1024), rel=EXACT
    )


def test_arrays_are_what_single_numbers_are() -> None:
    batches, drafts = np.array([1.0, 30.0, 700.0])[:, None], np.array([0, 1, 5])
    for model in TARGETS.values():
        ratios = speculative_steps.verify_ratio(model, batches, drafts, 2048)
        costs = speculative_steps.relative_draft_cost(DRAFT_HH, model, batches, 2048)
        for (row, column), ratio in np.ndenumerate(ratios):
            batch, k = int(batches[row, 0]), int(drafts[column])
            assert ratio == approx(speculative_steps.verify_ratio(model, batch, k, 2048), rel=EXACT)
            assert costs[row, 0] == approx(DRAFT_HH.step_s(batch, 2048) / model.step_s(batch, 2048), rel=EXACT)


@pytest.mark.parametrize("target", ["m8", "ds", "ds-repeating"])
def test_a_table_takes_at_most_20_ms(target: str) -> None:
    model, rates = TARGETS[target], independent_rates(0.8, 12)
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        table = speculative_steps.speculation_table(model, Drafter(DRAFT_HH), rates, BATCHES, 4096)
        best = min(best, time.perf_counter() - start)
    assert len(table) == 13 * 10
    assert best < 0.020


# ------------------------------------------------------------------------------------------------ trees

HEADS = ((0.6, 0.2, 0.08), (0.5, 0.2), (0.4, 0.2))


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_chains_are_rounds(drafter: str) -> None:  # F11.5, F11.8
    args = (M8_HH, DRAFTERS[drafter])
    rounds = [DraftRound(k, k, expected_tokens(0.8, k)) for k in range(5)]
    table = speculative_steps.rounds_table(*args, rounds, (1, 64), 2048)
    for row, same in zip(table, speculative_steps.speculation_table(*args, RATES, (1, 64), 2048), strict=True):
        assert (row.drafts, row.passes, row.batch) == (same.drafts, same.passes, same.batch)
        assert row.speedup == approx(same.speedup, rel=EXACT)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_trees_against_single_rounds(drafter: str) -> None:  # F11.8: nodes are verified, levels are drafted
    drafts = DRAFTERS[drafter]
    table = speculative_steps.rounds_table(M8_HH, drafts, tree_rounds(HEADS, [0, 3, 8]), (1, 100), 2048)
    for row in table:
        round_s = M8_HH.step_s(row.batch, 2048, verify=row.drafts + 1) + (drafts.overhead_s if row.drafts else 0)
        for _ in range(min(1, row.passes) if drafts.one_pass else row.passes):
            round_s += drafts.relative_cost * M8_HH.step_s(row.batch, 2048)
            round_s += drafts.model.step_s(row.batch, 2048) if drafts.model else 0
        tree = greedy_tree(HEADS, row.drafts)
        assert row.passes == max(map(len, tree), default=0)
        assert row.round_s == approx(round_s, rel=EXACT)
        assert row.speedup == approx(
            expected_tree_tokens(tree, HEADS) * M8_HH.step_s(row.batch, 2048) / round_s, rel=EXACT
        )


def test_the_best_tree_gets_smaller_with_the_batch() -> None:  # F11.6, F11.8
    sizes = range(len(greedy_tree(HEADS, 1000)) + 1)
    drafter = Drafter(relative_cost=0.02)
    table = speculative_steps.rounds_table(M8_HH, drafter, tree_rounds(HEADS, sizes), BATCHES, 1024)
    best = speculative_steps.best_by_batch(table)
    nodes = [row.drafts for row in best]
    assert nodes == sorted(nodes, reverse=True)
    assert nodes[0] == max(sizes)
    assert nodes[-1] < 3
    # A small batch wants more than the best chain, and gains more.
    chain = speculative_steps.speculation_table(M8_HH, drafter, depth_rates(chain_of(3), HEADS), [1], 1024)
    assert best[0].speedup > max(row.speedup for row in chain)


# ------------------------------------------------------------------------------------------------ recurrent states


def test_verification_writes_a_state_for_every_token() -> None:  # F2.11 in F11.6
    model = step_model(models.load("qwen3-next-80b-a3b"), HH)
    batch, drafts = 64, 4
    plain, verified = (model.costs(Load(batch, 4096, verify=tokens)) for tokens in (1, drafts + 1))
    one, all_of_them = (next(cost for cost in costs if cost.name == "state") for costs in (plain, verified))
    state = one.bytes_moved / (2 * batch)  # read and written once
    assert all_of_them.bytes_moved == approx(batch * (1 + drafts + 1) * state, rel=EXACT)
    # Were the last state alone written, verification would take less by the bytes of the others.
    saved = drafts * batch * state / HH.memory.bandwidth
    step = model.step_s(batch, 4096, verify=drafts + 1)
    assert all_of_them.time_s == approx(one.time_s + saved, rel=1e-9)
    assert saved > 0.01 * step
    ratio = speculative_steps.verify_ratio(model, batch, drafts, 4096)
    assert ratio == approx(step / model.step_s(batch, 4096), rel=EXACT)
    assert ratio > (step - saved) / model.step_s(batch, 4096)


# ------------------------------------------------------------------------------------------------ domains

NAN, INF = math.nan, math.inf
table_of = speculative_steps.speculation_table
break_even = speculative_steps.break_even_batch
experts = speculative_steps.expert_bytes_ratio


@pytest.mark.parametrize(
    "call",
    [
        lambda: speculative_steps.verify_ratio(M8_HH, 0, 4, 1024),
        lambda: speculative_steps.verify_ratio(M8_HH, 1, -1, 1024),
        lambda: speculative_steps.verify_ratio(M8_HH, 1, 4, NAN),
        lambda: speculative_steps.verify_ratio(M8_HH, np.array([1, INF]), 4, 1024),
        lambda: speculative_steps.verify_ratio(M8_HH, np.array([1, NAN]), 4, 1024),
        lambda: speculative_steps.verify_ratio(M8_HH, [], 1, 100),
        lambda: speculative_steps.verify_ratio(M8_HH, 1, 4, 1024, "part"),
        lambda: speculative_steps.rounds_table(M8_HH, Drafter(), RATES, [1], 1024),
        lambda: speculative_steps.best_by_batch(None),
        lambda: break_even(M8_HH, Drafter(), 2.0, 4, 1024, most=2**21),
        lambda: speculative_steps.relative_draft_cost(DRAFT_HH, M8_HH, 1, -5),
        lambda: Drafter(relative_cost=-0.1),
        lambda: Drafter(overhead_s=NAN),
        lambda: table_of(M8_HH, Drafter(), (0.5, 0.6), [1], 1024),
        lambda: table_of(M8_HH, Drafter(), RATES, [0], 1024),
        lambda: table_of(M8_HH, Drafter(), RATES, [1.5], 1024),
        lambda: table_of(M8_HH, Drafter(), RATES, [1], 0),
        lambda: table_of(M8_HH, Drafter(), RATES, [1], INF),
        lambda: table_of(M8_HH, Drafter(), RATES, [1], 1024, max_batched_tokens=0),
        lambda: break_even(M8_HH, Drafter(), 1.0, 0, 1024),
        lambda: break_even(M8_HH, Drafter(), 6.0, 4, 1024),
        lambda: break_even(M8_HH, Drafter(), 2.0, 4, NAN),
        lambda: break_even(M8_HH, Drafter(), 2.0, 4, 1024, most=0),
        lambda: break_even(M8_HH, Drafter(), 2.0, 4, 1024, max_batched_tokens=0),
        lambda: break_even(M8_HH, Drafter(), 2.0, 4, 1024, places=-1),
        lambda: experts(0, 4, 256, 8),
        lambda: experts(1, -1, 256, 8),
        lambda: experts(1, 4, 8, 9),
        lambda: experts(1, 4, 8, 0),
        lambda: experts(1, 4, 256, 8, 1.1),
        lambda: speculative_steps.with_repeated_experts(DS_HH, NAN),
        lambda: speculative_steps.with_repeated_experts(M8_HH, -0.1),
        lambda: speculative_steps.early_exit(deploy(M8, HH), 0),
        lambda: speculative_steps.early_exit(deploy(M8, HH), 33),
    ],
)
def test_outside_the_domain(call) -> None:
    with pytest.raises(DomainError):
        call()


def test_early_exit_with_fewer_layers_than_stages() -> None:
    with pytest.raises(LayoutError):
        speculative_steps.early_exit(deploy(M8, HH, layout=Layout(pp=4)), 3)
