"""Speculation as a lever against formulas F11.2, F11.5 and F11.6."""

import pytest
from levers import choices, levers
from pytest import approx
from shapes import DS, HH, M8, deploy, device, formats, step_model

from roofplan.api.advising import advise
from roofplan.api.speculation import speculate
from roofplan.planner.drafters import of_method
from roofplan.planner.levers.situation import Lever
from roofplan.planner.levers.speculation import LOOKUP_ACCEPTANCE, MOST_DRAFTS, Rounds
from roofplan.planner.speculation import Planned
from roofplan.planner.speculation_table import Choice
from roofplan.planner.speculative_steps import Drafter, verify_ratio

ROOMY = device("roomy", 989.4e12, 3.35e12, capacity=10**12)


def expected_tokens(alpha: float, drafts: int) -> float:
    return (1 - alpha ** (drafts + 1)) / (1 - alpha)


def test_the_gain_per_token_is_the_closed_form_for_one_sequence() -> None:
    """E / (k c + v) with what a step of the target and of a draft layer costs (formula F11.5)."""
    lever = levers(M8, ROOMY, choices(acceptance=0.8), prompt=16, output=1001)["speculation.draft_layer"]
    figures, context = lever.figures, 16 + 1001 / 2
    target = step_model(M8, ROOMY)
    draft = of_method(deploy(M8, ROOMY), "eagle", formats("bf16")).nominal.model
    assert draft is not None
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
    assert lever.reason == "verification_too_expensive"  # as ``speculate`` says it
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
    matrices = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336
    layer = 2 * (matrices + 2 * 4096 + 2 * 4096**2 + 4096)  # norms, the projection of feature and token, the final norm
    cache = 4 * 1024 * 131072 // 32
    slots = 4 * (int(lever.figures["drafts"]) + 1) * 131072
    assert lever.memory_bytes == layer + cache + slots
    assert lever.gains.capacity < 1


def test_a_round_verifies_all_drafts_and_drafts_them_before() -> None:
    target, draft = step_model(M8, HH), of_method(deploy(M8, HH), "eagle", formats("bf16")).nominal.model
    assert draft is not None
    rounds = Rounds(target, Drafter(draft, relative_cost=0.01, overhead_s=2e-3), 3, 3, 100.0)
    passes = 3 * (draft.step_s(4, 1100) + 0.01 * target.step_s(4, 1100))
    assert rounds.step_s(4, 1000) == approx(target.step_s(4, 1100, verify=4) + passes + 2e-3)
    assert rounds.step_s(0, 0, chunk=64) == approx(target.step_s(0, 0, chunk=64, verify=4))  # prompts alone: no round


# ------------------------------------------------------------------------------------------------ one answer by two verbs

BOTH = {  # model, device, options, the method that stands for the lever
    "a fixed time of every round": ("llama-3.1-8b", "h100-sxm", {"engine": "sglang"}, "eagle"),
    "a drafter in 16 bits beside narrow weights": ("llama-3.1-8b", "h100-sxm", {"weights": "int4-g128"}, "eagle"),
    "a dense layer for a mixture": ("qwen3-30b-a3b", "h100-sxm", {"engine": "vllm@0.19"}, "eagle"),
    "the model's own layer, on eight ranks": ("deepseek-v3", "h200", {"tp": 8, "engine": "sglang"}, "mtp"),
    "recurrent layers among the others": ("qwen3-next-80b-a3b", "h200", {"tp": 2}, "mtp"),
    "look-up": ("llama-3.1-8b", "h100-sxm", {"engine": "sglang"}, "ngram"),
    "a drafter that every rank holds in part": ("llama-3.1-70b", "h100-sxm", {"tp": 4}, "eagle"),
}


def by_both(
    model: str, hardware: str, method: str, users: int, options: dict[str, object]
) -> tuple[Lever, Planned, Choice]:
    acceptance = LOOKUP_ACCEPTANCE if method == "ngram" else 0.8
    advised = advise(model, hardware, goal="tpot", acceptance=0.8, concurrency=users, **options)  # type: ignore[arg-type]
    name = "speculation.lookup" if method == "ngram" else "speculation.draft_layer"
    lever = next(lever for lever in advised.levers if lever.id == name)
    asked = {"method": method, "acceptance": acceptance, "concurrency": users, "k": f"1..{MOST_DRAFTS}", **options}
    planned = speculate(model, hardware, **asked).planned  # type: ignore[arg-type]
    assert planned is not None
    return lever, planned, planned.table.best


@pytest.mark.parametrize("users", [1, 16])
@pytest.mark.parametrize("name", BOTH)
def test_advise_and_speculate_count_the_same_round(name: str, users: int) -> None:
    model, hardware, options, method = BOTH[name]
    lever, planned, choice = by_both(model, hardware, method, users, options)
    row, figures = choice.nearest, lever.figures
    assert row is not None
    assert planned.plan.method == method
    assert figures["drafts"] == choice.k > 0
    assert figures["expected_tokens"] == approx(row.expected_tokens, rel=1e-12)
    assert figures["draft_cost"] * row.passes == approx(row.draft_cost, rel=1e-9, abs=1e-12)
    assert figures["verify_ratio"] == approx(row.verify_ratio, rel=1e-12)
    assert figures["fixed_cost"] == approx(row.fixed_cost, rel=1e-12)
    assert figures["round_overhead_s"] == planned.plan.reached.overhead_s
    assert lever.memory_bytes == row.memory.total_bytes
    if users == 1:  # nobody sends prompts in between: TPOT is that of the rounds
        assert lever.gains.tpot == approx(row.speedup, rel=1e-3)


def test_one_user_of_sglang_gains_the_same_by_both_verbs() -> None:
    """The fixed time of a round counts in both: without it advice would promise 2.3-fold."""
    lever, _, choice = by_both("llama-3.1-8b", "h100-sxm", "eagle", 1, {"engine": "sglang"})
    assert lever.figures["round_overhead_s"] > 1e-3
    assert "is fixed in every round" in lever.why
    assert lever.gains.tpot == approx(choice.speedup, rel=1e-3)
    assert choice.speedup < 2


def test_where_none_pays_both_say_the_same_reason() -> None:
    options = {"prompt": 64, "output": 64}
    lever, _, choice = by_both("llama-3.1-8b", "h100-sxm", "ngram", 1024, options)
    assert (choice.k, lever.figures["drafts"]) == (0, 0)
    assert lever.reason == choice.reason


@pytest.mark.parametrize("name", ["speculation.draft_layer", "speculation.lookup"])
def test_a_single_token_is_not_speculated_about(name: str) -> None:
    assert levers(M8, HH, prompt=64, output=1)[name].status == "not_applicable"
