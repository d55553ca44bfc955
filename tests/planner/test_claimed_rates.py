"""Golden values of formula F16: whether a claimed rate is possible, and by which means, from the closed forms that it is made of."""

import math

import pytest
from pytest import approx
from shapes import DS, HA, HH, M7, M8, M70, device, step_model

from roofplan.planner.acceptance import alpha_from_tokens, expected_tokens, independent_rates
from roofplan.planner.costs import Load
from roofplan.planner.parameters import count_parameters
from roofplan.planner.speculative import best_drafts, break_even_acceptance, round_cost

EXACT = 1e-12
BANDWIDTH = 2.039e12
ONE = device("one", 312e12, BANDWIDTH)
M8_ONE = step_model(M8, ONE)
CLAIM = 500.0  # tokens per second of one M8
FOUR_BITS = 4.15625 / 8  # bytes per parameter of the blocks, 16-bit head


def ceiling(model, batch: float = 1, context: float = 0) -> float:
    """Tokens per second at full bandwidth: one over the floor time of F6.2."""
    return batch / model.step_s(batch, context, grouping="whole")


def in_four_bits(model, blocks: int, bandwidth: float) -> float:
    """Tokens per second of one sequence with four-bit blocks, the head as it is (formula F4.3)."""
    head = model.totals(Load(1, 0))[1] - 2 * blocks
    return bandwidth / (blocks * FOUR_BITS + head)


def test_ceilings_of_one_sequence() -> None:  # F16, F6.2
    assert ceiling(M8_ONE) == approx(135.8489542512466, rel=EXACT)
    assert CLAIM / ceiling(M8_ONE) == approx(3.680558328592447, rel=EXACT)
    assert ceiling(step_model(M7, HA)) == approx(151.35285135791938, rel=EXACT)
    assert ceiling(step_model(M7, HH)) == approx(253.51602602451496, rel=EXACT)


def test_narrower_weights_alone() -> None:  # F16, F4.3: not in proportion to the bits, for the head keeps its own
    assert in_four_bits(M8_ONE, 6979321856, BANDWIDTH) == approx(435.9959486888663, rel=EXACT)
    assert in_four_bits(step_model(M70, HH), 68451041280, 3.35e12) == approx(88.9448191753929, rel=EXACT)
    assert count_parameters(M70).total * 2 == 141107412992  # 2 B do not fit the 80 GB of one device
    assert HH.memory.nameplate < 141107412992


def test_speculation_alone() -> None:  # F16, F11.5: the least acceptance at which some number of drafts gains so much
    ratio = CLAIM / ceiling(M8_ONE)
    assert best_drafts(independent_rates(0.8, 40), 0.05).speedup == approx(3.0920795428571433, rel=EXACT)
    wanted = {drafts: ratio * round_cost(drafts, 0.05) for drafts in range(1, 60)}
    needed = min(alpha_from_tokens(tokens, k) for k, tokens in wanted.items() if tokens <= k + 1)
    assert needed == approx(0.8486563493444659, rel=1e-9)
    assert best_drafts(independent_rates(needed, 60), 0.05).speedup == approx(ratio, rel=1e-9)
    # The same as a break-even: a round that takes as long as the claim's tokens leave it.
    best = max(wanted, key=lambda k: expected_tokens(needed, k) / round_cost(k, 0.05))
    assert break_even_acceptance(best, 0.05 * ratio, ratio) == approx(needed, rel=1e-9)


@pytest.mark.parametrize(("sequences", "rate"), [(4, 534.06809424673), (3, 402.27740533441585)])
def test_aggregate_over_sequences(sequences: int, rate: float) -> None:  # F16, F7.1: of 500 tokens each
    assert ceiling(M8_ONE, sequences, 500) == approx(rate, rel=EXACT)
    assert (rate > CLAIM) == (sequences == 4)


def test_a_mixture_of_experts_on_eight_devices() -> None:  # F16, F2.10: active bytes of one token, 1 B each
    model = step_model(DS, device("eight", math.inf, 8 * 4.8e12), weights="all=int8")
    read = model.totals(Load(1, 0))[1]
    norms = 61 * (1536 + 512)  # of latents, which F2.3 counts with their block
    assert read + norms == approx(36624721920, rel=EXACT)
    assert ceiling(model) * read / (read + norms) == approx(1048.4721244813209, rel=EXACT)
