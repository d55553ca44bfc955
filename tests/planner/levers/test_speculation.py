"""Speculation as a lever against formulas F11.2, F11.5 and F11.6."""

import pytest
from levers import choices, levers
from pytest import approx
from shapes import DS, HH, M8, deploy, device, step_model

from roofplan.planner.levers.speculation import LOOKUP_ACCEPTANCE, MOST_DRAFTS, Rounds, one_layer
from roofplan.planner.speculative_steps import verify_ratio
from roofplan.planner.step import StepModel

ROOMY = device("roomy", 989.4e12, 3.35e12, capacity=10**12)


def expected_tokens(alpha: float, drafts: int) -> float:
    return (1 - alpha ** (drafts + 1)) / (1 - alpha)


def test_the_gain_per_token_is_the_closed_form_for_one_sequence() -> None:
    """E / (k c + v) with what a step of the target and of one of its layers costs (formula F11.5)."""
    lever = levers(M8, ROOMY, choices(acceptance=0.8), prompt=16, output=1001)["speculation.draft_layer"]
    figures, context = lever.figures, 16 + 1001 / 2
    target = step_model(M8, ROOMY)
    draft = StepModel.of(one_layer(deploy(M8, ROOMY)))
    cost = draft.step_s(1, context) / target.step_s(1, context)
    assert figures["draft_cost"] == approx(cost)
    speedups = [
        expected_tokens(0.8, k) / (k * cost + verify_ratio(target, 1, k, context)) for k in range(1, MOST_DRAFTS + 1)
    ]
    best = speedups.index(max(speedups)) + 1
    assert figures["drafts"] == best
    assert figures["expected_tokens"] == approx(expected_tokens(0.8, best))
    assert lever.gains.tpot == approx(max(speedups), rel=0.01)
    assert (lever.exact, lever.reason) == (True, "steps_are_cheap_to_widen")


def test_verification_pays_less_in_large_batches() -> None:
    """Formula F11.6: at a context of 1,024 verifying four drafts costs nothing at a batch of 16 and twice a step at 256."""
    gains = [
        levers(M8, ROOMY, choices(acceptance=0.8), prompt=768, output=512, concurrency=batch)["speculation.draft_layer"]
        for batch in (1, 64, 256, 1024)
    ]
    speed = [lever.gains.tpot for lever in gains]
    assert speed == sorted(speed, reverse=True)
    assert gains[0].figures["drafts"] > gains[2].figures["drafts"]


def test_where_no_number_of_drafts_pays_the_gain_is_one_and_the_reason_is_said() -> None:
    lever = levers(M8, ROOMY, choices(acceptance=0.1), prompt=64, output=64, concurrency=2048)[
        "speculation.draft_layer"
    ]
    assert lever.figures["drafts"] == 0
    assert {lever.gains.ttft, lever.gains.tpot, lever.gains.throughput, lever.gains.capacity} == {1}
    assert lever.reason == "verification_is_not_free"
    assert "no number of drafts pays" in lever.why
    assert lever.memory_bytes == 0


def test_drafts_that_are_never_kept_gain_nothing() -> None:
    lever = levers(M8, ROOMY, choices(acceptance=0.0), prompt=64, output=64)["speculation.draft_layer"]
    assert lever.gains.throughput == 1


def test_experts_make_verification_dear_in_small_batches() -> None:
    """user_demand row 40: more tokens touch more experts."""
    lever = levers(
        DS, device("large", 1979e12, 4.8e12, capacity=2 * 10**12), choices(acceptance=0.7), prompt=64, output=64
    )
    found = lever["speculation.lookup"]
    assert found.figures["verify_ratio"] > 1.2
    assert "more tokens touch more experts" in found.why
    dense = levers(M8, ROOMY, prompt=64, output=64)["speculation.lookup"]
    assert dense.figures["verify_ratio"] < 1.02


def test_look_up_drafts_for_nothing_and_is_kept_as_published() -> None:
    lever = levers(M8, ROOMY, prompt=64, output=64)["speculation.lookup"]
    assert lever.figures["draft_cost"] == 0
    assert approx((1.37 + 1.66) / 2, rel=0.02) == 1 / (1 - LOOKUP_ACCEPTANCE)
    assert lever.gains.tpot == approx(1.5, rel=0.02)


def test_memory_of_a_draft_layer_is_its_weights_its_cache_and_room_for_drafts() -> None:
    lever = levers(M8, ROOMY, choices(acceptance=0.8), prompt=512, output=512, concurrency=4)["speculation.draft_layer"]
    layer = 2 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336 + 2 * 4096)
    cache = 4 * 1024 * 131072 // 32
    slots = 4 * (int(lever.figures["drafts"]) + 1) * 131072
    assert lever.memory_bytes == layer + cache + slots
    assert lever.gains.capacity < 1


def test_a_round_verifies_all_drafts_and_drafts_them_before() -> None:
    target, draft = step_model(M8, HH), StepModel.of(one_layer(deploy(M8, HH)))
    rounds = Rounds(target, draft, 3, 100.0)
    assert rounds.step_s(4, 1000) == approx(target.step_s(4, 1100, verify=4) + 3 * draft.step_s(4, 1100))
    assert rounds.step_s(0, 0, chunk=64) == target.step_s(0, 0, chunk=64)


@pytest.mark.parametrize("name", ["speculation.draft_layer", "speculation.lookup"])
def test_a_single_token_is_not_speculated_about(name: str) -> None:
    assert levers(M8, HH, prompt=64, output=1)[name].status == "not_applicable"
