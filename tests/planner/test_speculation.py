"""The table of speculation: golden values of F11.5 and F11.6, rows against single rounds, choices, break-even, reasons, memory."""

import itertools
import json
import time

import pytest
from pytest import approx

from roofplan.api.speculation import speculate
from roofplan.planner.acceptance import expected_tokens
from roofplan.planner.explain_speculation import where_it_ends
from roofplan.planner.memory import plan_memory
from roofplan.planner.speculation import Planned
from roofplan.planner.speculation_table import Row

EXACT = 1e-9
TEXTBOOK = {"draft_cost": 0.1, "acceptance": 0.8, "timing": "two-part"}


def planned(target: str = "llama-3-8b", device: str = "h100-sxm", **options: object) -> Planned:
    found = speculate(target, device, **options).planned  # type: ignore[arg-type]
    assert found is not None
    return found


def rows(p: Planned) -> dict[tuple[int, int], Row]:
    return {(row.k, row.concurrency): row for row in p.table.rows}


# ------------------------------------------------------------------------------------------------ golden values


def test_by_drafts() -> None:  # F11.5
    p = planned(k="1..12", **TEXTBOOK)
    row = rows(p)[4, 1]
    assert (row.expected_tokens, row.speedup) == approx((3.3616, 2.4011428571428572), rel=EXACT)
    assert (p.table.best.k, round(p.table.best.speedup, 5)) == (6, 2.46964)


@pytest.mark.parametrize(
    ("count", "context", "gain"),
    [
        (1, 1024, 2.4011428571428572),
        (16, 1024, 2.4011428571428572),
        (64, 1024, 2.3134035497886956),
        (128, 1024, 1.7290936662834318),
        (256, 1024, 1.3927779738190937),
        (256, 8192, 2.1375801434377495),
        (256, 32768, 2.3265304342974984),
    ],
)
def test_by_concurrency_and_context(count: int, context: int, gain: float) -> None:  # F11.6
    p = planned(k=4, concurrency=count, context=context, **TEXTBOOK)
    assert rows(p)[4, count].speedup == approx(gain, rel=EXACT)


@pytest.mark.parametrize(("cost", "best"), [(0.05, (3, 4, 6, 8, 13)), (0.1, (2, 3, 4, 6, 10)), (0.2, (1, 2, 3, 4, 7))])
def test_best_number_of_drafts(cost: float, best: tuple[int, ...]) -> None:  # F11.5
    for alpha, k in zip((0.5, 0.6, 0.7, 0.8, 0.9), best, strict=True):
        p = planned(draft_cost=cost, acceptance=alpha, k="1..16", timing="two-part")
        assert p.table.best.k == k


def test_memory_of_a_draft_model() -> None:  # F11.11
    p = planned("llama-3.1-8b", draft="llama-3.2-1b", acceptance=0.8, k=4, prompt=8000, output=192)
    memory = rows(p)[4, 1].memory
    assert memory.draft_weights_bytes + memory.draft_cache_bytes == 2740064256
    assert memory.slots_bytes == 5 * 131072


def test_break_even() -> None:
    """At one draft and c = 0.1 the acceptance is c; a round may cost as many steps as it yields tokens."""
    p = planned(draft_cost=0.1, acceptance=0.8, k=1, timing="two-part")
    assert p.table.best.acceptance == approx(0.1, rel=1e-9)
    many = planned(k="1..12", concurrency=256, context=1024, **TEXTBOOK)
    choice = many.table.best
    assert choice.nearest is not None
    assert choice.acceptance is not None
    assert expected_tokens(choice.acceptance, choice.k) == approx(choice.nearest.round_cost, rel=1e-9)
    assert choice.speedup == approx(choice.nearest.expected_tokens / choice.nearest.round_cost, rel=EXACT)


def test_the_batch_up_to_which_it_pays() -> None:
    options = {"draft_cost": 0.1, "acceptance": 0.6, "k": 4, "context": 1024, "timing": "two-part"}
    most = planned(concurrency=64, **options).table.choices[0].most_batch
    assert most is not None
    assert most.break_even is not None
    last = most.break_even
    gains = [rows(planned(concurrency=count, **options))[4, count].speedup for count in (64, last, last + 1)]
    assert gains[0] > gains[1] > 1 >= gains[2]


@pytest.mark.parametrize(
    ("options", "binds", "limit"),
    [
        ({"max_num_batched_tokens": 1000}, "step_budget", 1000 // 5),
        ({"max_num_batched_tokens": 8192}, "memory", None),
        ({"max_num_batched_tokens": 2**20, "activation_memory": "1 GiB", "device_memory": "2 TB"}, "search_end", 4096),
        ({"max_num_batched_tokens": 8192, "device_memory": "2 TB"}, "step_budget", 8192 // 5),
    ],
)
def test_what_ends_the_batch_up_to_which_it_pays(options: dict[str, object], binds: str, limit: int | None) -> None:
    """Each limit alone: what a step holds, what memory holds, how far was looked."""
    found = speculate(
        "llama-3-8b",
        "h100-sxm",
        **({"k": 4, "context": 1024, "draft_cost": 0.0, "acceptance": 0.8, "timing": "two-part"} | options),
    )  # type: ignore[arg-type]
    assert found.planned is not None
    most = found.planned.table.choices[0].most_batch
    assert most is not None
    assert (most.break_even, most.binds) == (None, binds)
    if limit is None:
        d = found.planned.deployment
        memory = plan_memory(d)
        each = memory.kv_bytes_per_sequence + 5 * 131072  # and slots for unverified tokens
        limit = memory.kv_budget_bytes // each
    assert most.limit == limit
    said = found.figures()["break_even"]
    assert (said["batch"], said["batch_reason"], said["batch_limit"]) == (None, binds, limit)
    words = {"step_budget": "the step holds", "memory": "memory holds", "search_end": "looked up to"}[binds]
    assert where_it_ends(most) == f"never stops to pay ({words} {limit:,})"
    assert f"up to batch: {where_it_ends(most)}" in next(e for e in found.explain() if "break_even" in e.figure).value


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"draft_cost": 2.0, "acceptance": 0.5}, "gains_at_no_batch"),
        ({"draft_cost": 0.1, "tree": [[0.8, 0.1]]}, "only_of_chains"),
        ({"draft_cost": 0.1, "acceptance": 0.8, "concurrency": 64, "max_num_batched_tokens": 100}, "no_room_in_step"),
        ({"draft_cost": 0.1, "acceptance": 0.6, "k": 4, "timing": "two-part", "context": 1024}, None),
    ],
)
def test_a_break_even_is_a_number_or_has_a_reason(options: dict[str, object], reason: str | None) -> None:
    found = speculate("llama-3-8b", "h100-sxm", **options).figures()  # type: ignore[arg-type]
    for said in (found["break_even"], *found["break_even_by_concurrency"]):
        assert said["batch_reason"] == reason
        assert (said["batch"] is None) == (reason is not None)
        assert said["batch_limit"] is None


# ------------------------------------------------------------------------------------------------ rows


def test_rows_agree_with_themselves() -> None:
    p = planned(
        "llama-3.1-70b", tp=4, draft="llama-3.2-1b", acceptance=0.75, k="1..6", concurrency="1,8,64", engine="vllm@0.19"
    )
    plain = {each.concurrency: each for each in p.table.plain}
    for row in p.table.rows:
        assert row.expected_tokens == approx(expected_tokens(0.75, row.k), rel=EXACT)
        assert row.speedup == approx(row.expected_tokens / row.round_cost, rel=EXACT)
        assert row.tpot_s.expected == approx(plain[row.concurrency].tpot_s.expected / row.speedup, rel=EXACT)
        assert row.output_tokens_per_s.expected == approx(row.concurrency / row.tpot_s.expected, rel=EXACT)
        assert row.tpot_s.bound <= row.tpot_s.low <= row.tpot_s.expected <= row.tpot_s.high
        assert row.verify_ratio >= 1
        assert row.draft_cost > 0
    by_batch = [rows(p)[4, count].verify_ratio for count in (1, 8, 64)]
    assert by_batch == sorted(by_batch)


def test_replicas_share_the_requests() -> None:
    one, two = (planned(k=4, concurrency=64 * dp, dp=dp, **TEXTBOOK) for dp in (1, 2))
    assert rows(one)[4, 64].speedup == approx(rows(two)[4, 128].speedup, rel=EXACT)
    assert rows(two)[4, 128].output_tokens_per_s.expected == approx(2 * rows(one)[4, 64].output_tokens_per_s.expected)


def test_the_same_acceptance_in_other_words() -> None:
    rate = planned(k=4, **TEXTBOOK).table.best.speedup
    for other in (
        {"per_position": [0.8, 0.64, 0.512, 0.4096]},
        {"mean_length": 3.3616, "measured_at": 4},
        {"accepted_per_drafted": 0.5904, "measured_at": 4},
        {"tree": [[0.8], [0.8], [0.8], [0.8]]},
    ):
        assert planned(k=4, draft_cost=0.1, timing="two-part", **other).table.best.speedup == approx(rate, rel=EXACT)


def test_a_single_k_says_where_a_mean_length_was_measured() -> None:
    assert planned(k=4, mean_length=3.3616, draft_cost=0.1).given.measured_at == 4


def test_look_ups_that_do_not_always_find() -> (
    None
):  # F11.9: c_d = 0, alpha = .5: k = 3 gives 1.875; found in half of the rounds: 1.4375
    always, half = (planned(method="ngram", acceptance=0.5, k=3, hit_rate=rate, timing="two-part") for rate in (1, 0.5))
    assert always.table.best.speedup == approx(1.875, rel=EXACT)
    assert half.table.best.speedup == approx(1.4375, rel=EXACT)
    assert half.table.best.acceptance is None


def test_a_budget_of_tokens_leaves_rows_out_of_the_choice() -> None:
    p = planned(k="1..12", concurrency=64, max_num_batched_tokens=320, **TEXTBOOK)
    assert {row.k for row in p.table.rows if row.within_budget} == {1, 2, 3, 4}
    assert p.table.best.k <= 4
    full = planned(k="1..12", concurrency=64, max_num_batched_tokens=100, **TEXTBOOK)
    assert (full.table.best.k, full.table.best.reason) == (0, "no_room_in_step")


# ------------------------------------------------------------------------------------------------ why it does not pay


@pytest.mark.parametrize(
    ("reason", "options"),
    [
        ("draft_too_expensive", {"draft": "llama-3-8b", "acceptance": 0.8}),
        ("fixed_cost_per_round", {"draft_cost": 0.01, "acceptance": 0.5, "overhead": "50 ms"}),
        ("acceptance_too_low", {"draft_cost": 0.01, "acceptance": 0.005}),
        (
            "batch_above_break_even",
            {"draft_cost": 0.01, "acceptance": 0.3, "concurrency": 2048, "prompt": 16, "output": 2},
        ),
        ("experts_multiply", {"target": "qwen3-30b-a3b", "method": "ngram", "acceptance": 0.1, "concurrency": 2}),
    ],
)
def test_reasons(reason: str, options: dict[str, object]) -> None:
    p = planned(**options)  # type: ignore[arg-type]
    assert not p.pays
    assert p.table.best.reason == reason


def test_a_draft_larger_than_the_target_is_answered() -> None:
    found = speculate("llama-3-8b", "h100-sxm", draft="llama-3.1-70b", acceptance=0.9)
    assert not found.good
    assert "draft_larger_than_target" in {warning.code for warning in found.warnings}


def test_every_warning_has_its_case() -> None:
    crowded = speculate("llama-3-8b", "h100-sxm", draft_cost=0.1, acceptance=0.8, concurrency=256, context=32768)
    full = speculate(
        "llama-3-8b", "h100-sxm", draft_cost=0.1, acceptance=0.8, concurrency=256, max_num_batched_tokens=512
    )
    short = speculate("llama-3-8b", "a100-40gb", draft="llama-3.2-3b", acceptance=0.9, concurrency=110)
    codes = [{warning.code for warning in each.warnings} for each in (crowded, full, short)]
    assert "cache_exceeds_memory" in codes[0]
    assert "step_budget_exceeded" in codes[1]
    assert "speculation_exceeds_memory" in codes[2]


def test_a_draft_that_cannot_be_divided_runs_whole_on_each_rank() -> None:
    found = speculate("llama-3.1-70b", "h100-sxm", tp=8, draft="qwen2.5-0.5b", acceptance=0.7)
    assert "draft_not_divided" in {warning.code for warning in found.warnings}


# ------------------------------------------------------------------------------------------------ the answer


def test_json_has_its_keys() -> None:
    found = speculate("llama-3-8b", "h100-sxm", simulate=True, k="1..4", concurrency="1,64", rounds=2000, **TEXTBOOK)  # type: ignore[arg-type]
    said = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    result = said["result"]
    assert {"rows", "plain", "best", "break_even", "best_by_concurrency", "simulation", "pays"} <= set(result)
    keys = {"k", "concurrency", "expected_tokens", "speedup", "tpot_s", "output_tokens_per_s"}
    assert all(keys <= set(row) for row in result["rows"])
    assert [(row["k"], row["concurrency"]) for row in result["rows"]] == [
        (k, count) for count, k in itertools.product((1, 64), (1, 2, 3, 4))
    ]
    assert result["best"]["k"] == 4
    assert result["break_even"]["round_cost"] == approx(3.3616)
    assert said["inputs"]["concurrency"] == [1, 64]
    assert result["simulation"]["exact"]["tokens_per_round"]["formula"] == approx(3.3616)


def test_every_figure_of_the_best_is_explained() -> None:
    found = speculate("llama-3.1-8b", "h100-sxm", draft="llama-3.2-1b", acceptance=0.8, engine="vllm@0.19")
    lines = {line.figure: line for line in found.explain()}
    assert set(lines) == {
        "best.expected_tokens",
        "best.round_cost",
        "best.speedup",
        "best.tpot_s",
        "break_even.acceptance",
        "best.memory.total_bytes",
    }
    assert "F11.2" in lines["best.expected_tokens"].formula
    assert lines["best.round_cost"].binds == "the drafter costs most beside the step itself"


def test_trials_take_the_divergence_of_the_acceptance() -> None:
    found = speculate(simulate=True, acceptance=0.6, rounds=5000).tried
    assert found is not None
    assert found.divergence == approx(0.4)
    pair = speculate(
        simulate=True, target_probabilities="0.5,0.3,0.2", draft_probabilities=[0.2, 0.5, 0.3], k=4, rounds=5000
    ).tried
    assert pair is not None
    assert pair.exact.tokens_per_round.formula == approx(2.7731)


def test_the_table_takes_the_acceptance_of_the_trials() -> None:
    found = speculate(
        "llama-3-8b",
        "h100-sxm",
        simulate=True,
        divergence=0.2,
        draft_cost=0.1,
        k="1..12",
        timing="two-part",
        rounds=1000,
    )
    assert found.planned is not None
    assert found.tried is not None
    assert found.planned.given.alpha == approx(0.8)
    assert found.tried.exact.drafts == found.planned.table.best.k == 6


def test_a_table_takes_no_third_of_a_second() -> None:
    speculate("llama-3-8b", "h100-sxm", draft="llama-3.2-1b", acceptance=0.8)  # loads modules and files
    start = time.process_time()
    speculate("llama-3-8b", "h100-sxm", draft="llama-3.2-1b", acceptance=0.8, k="1..12", concurrency="1,8,64").to_dict()
    assert time.process_time() - start < 0.3
