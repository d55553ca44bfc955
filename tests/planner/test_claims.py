"""Golden values of formula F16, the verdicts, and each means against a derivation of its own."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, HA, HH, M7, M8, M70, deploy, device, formats, number_format

from roofplan.errors import DomainError
from roofplan.hardware.spec import HardwareSpec, Link
from roofplan.planner.claim_search import least
from roofplan.planner.claim_speeds import (
    Aid,
    Machine,
    Question,
    drafted,
    exchange_s,
    speed_of,
    thinned,
    with_all_reduce,
)
from roofplan.planner.claim_text import parse_claim
from roofplan.planner.claims import ClaimResult, check_claim
from roofplan.planner.costs import Load
from roofplan.planner.deployment import Deployment, MemoryOverrides
from roofplan.planner.parallel import Layout
from roofplan.planner.parameters import stored_bytes
from roofplan.planner.speculative import speedup

EXACT = 1e-12
BANDWIDTH = 2.039e12
A100 = device("a100", 312e12, BANDWIDTH)
JOINED = replace(A100, links=(Link(name="switch", per_direction=300e9, topology="switch", domain=8),))
READ, CACHE = 15009316864, 131072  # of M8 in 16 bits: weights of a step (F4.3), cache of a token (F3.1)
NARROW = (formats("int8"), formats("int4-g128"))


def check(
    text: str, d: Deployment | None = None, *, context: float = 0, served: bool = False, **changes: object
) -> ClaimResult:
    """A claim against M8 on one device of 2.039 TB/s, or another deployment."""
    claim = parse_claim(text)
    question = replace(Question(kind=claim.kind, context=context, served=served), **changes)
    kv = (number_format("fp8"),)
    return check_claim(claim, d or deploy(M8, A100), question, weights=NARROW, kv=kv)


def means(result: ClaimResult, name: str):
    return next(each for each in result.means if each.id == name)


# ------------------------------------------------------------------------------------------------ F16


@pytest.mark.parametrize(
    ("d", "ceiling", "within"),
    [
        (deploy(M8, A100), 135.8489542512466, EXACT),
        (deploy(M8, A100, weights="int4-g128"), 435.9959486888663, EXACT),
        (deploy(M7, HA), 151.35285135791938, EXACT),
        (deploy(M7, HH), 253.51602602451496, EXACT),
        (deploy(M70, HH, weights="int4-g128"), 88.9448191753929, EXACT),
        # F16 counts 124,928 norm parameters of queries and keys among the matrices.
        (
            deploy(DS, device("8 x 4.8 TB/s", 8e15, 8 * 4.8e12, 8 * 141 * 10**9), weights="all=int8"),
            1048.4721244813209,
            4e-6,
        ),
    ],
    ids=["M8", "M8 4-bit", "M7 HA", "M7 HH", "M70 4-bit", "DS"],
)
def test_ceilings(d: Deployment, ceiling: float, within: float) -> None:  # F16
    result = check("1 tok/s", d)
    assert result.speed.bound == approx(ceiling, rel=within)
    assert result.figures()["bound_tokens_per_s"] == result.speed.bound


def test_500_tokens_per_second_of_one_sequence() -> None:  # F16
    result = check("500 tok/s")
    assert result.ratio == approx(3.680558328592447, rel=EXACT)
    assert (result.verdict, result.reasons) == ("needs_help", ("above_the_roof",))
    narrow = means(result, "weight_quantisation")
    assert narrow.setting == {"weights": "int4-g128"}
    assert narrow.speed.bound == approx(435.9959486888663, rel=EXACT)
    assert narrow.reason == "only_the_weights_shrink"
    drafts = means(result, "speculation")
    assert drafts.explains
    assert drafts.setting["acceptance"] == approx(0.8486563493444659, rel=EXACT)
    assert drafts.setting["draft_cost"] == 0.05
    sparse = means(result, "sparsity")
    assert sparse.setting["weights_share"] == approx(1 / 3.680558328592447, rel=1e-9)
    assert sparse.reason == "sparser_than_hardware_skips"
    assert means(result, "kv_quantisation").reason == "no_cache_is_read"
    assert means(result, "devices").reason == "no_link_or_layout_is_known"
    assert [each.ids for each in result.combinations] == [("batching",), ("speculation",)]


def test_what_drafts_of_0_8_gain_at_most() -> None:  # F16
    question = Question(kind="rate", context=0)
    machine = Machine.of(deploy(M8, A100), question)
    assert drafted(machine.nominal, question, 0.8, 1, "whole").speedup == approx(3.0920795428571433, rel=EXACT)
    assert not check("500 tok/s", most_acceptance=0.8).means[3].explains
    assert means(check("500 tok/s", most_acceptance=0.8), "speculation").reason == "acceptance_above_what_is_published"


def test_four_users_of_500_tokens_explain_it() -> None:  # F16
    result = check("500 tok/s", context=500)
    users = means(result, "batching")
    assert (users.explains, users.setting) == (True, {"users": 4})
    assert users.speed.bound == approx(534.06809424673, rel=EXACT)
    three = speed_of(result.machine, result.question, Aid(users=3))
    assert three.bound == approx(402.27740533441585, rel=EXACT)


def test_a_model_that_does_not_fit_needs_narrower_weights() -> None:  # F16
    d = deploy(M70, HH)
    assert stored_bytes(M70, d.formats) == 141107412992
    result = check("20 tok/s", d)
    assert result.ratio < 1
    assert (result.verdict, result.reasons) == ("needs_help", ("weights_exceed_memory",))
    narrow = means(result, "weight_quantisation")
    assert (narrow.explains, narrow.setting) == (True, {"weights": "int4-g128"})
    assert narrow.speed.bound == approx(88.9448191753929, rel=EXACT)
    assert means(result, "batching").reason == "weights_exceed_memory"


# ------------------------------------------------------------------------------------------------ verdicts


@pytest.mark.parametrize(
    ("text", "verdict", "possible"),
    [
        ("135.8 tok/s", "plausible", True),
        ("135.9 tok/s", "needs_help", True),
        ("135.9 tok/s/user", "needs_help", True),
        ("10000000 tok/s/user", "impossible", False),
        ("7.37 ms/token", "plausible", True),
        ("7.36 ms/token", "needs_help", True),
        ("1 us/token", "impossible", False),
    ],
)
def test_verdicts_where_only_the_roof_is_known(text: str, verdict: str, possible: bool) -> None:
    result = check(text)
    assert (result.verdict, result.is_possible) == (verdict, possible)
    assert bool(result.combinations) == (verdict == "needs_help")


def test_a_rate_of_each_device() -> None:
    d = deploy(M8, JOINED, layout=Layout(tp=2))
    of_all, of_each = (check(text, d).speed.bound for text in ("1 tok/s", "1 tok/s/gpu"))
    assert of_all == approx(2 * of_each, rel=EXACT)


def test_a_claim_of_one_user_is_not_explained_by_others() -> None:
    result = check("500 tok/s/user")
    assert means(result, "batching").reason == "figure_is_of_one_user"
    assert (
        means(check("1 ms TTFT", deploy(M8, A100, prompt=2048, output=9)), "batching").reason
        == "others_only_add_waiting"
    )


def test_the_roof_of_a_prompt() -> None:  # F6.1
    result = check("1 ms TTFT", deploy(M7, HA, prompt=2048, output=9), served=True)
    assert 1 / result.speed.bound == approx(0.08854496366276923, rel=EXACT)
    assert result.figures()["bound_s"] == approx(0.08854496366276923, rel=EXACT)
    assert result.figures()["bound_tokens_per_s"] is None
    cached = means(result, "prefix_cache")
    assert cached.reason == "one_new_token_is_too_slow"  # which still reads all weights: 6.6 ms
    enough = means(check("20 ms TTFT", deploy(M7, HA, prompt=2048, output=9), served=True), "prefix_cache")
    flop = (
        20e-3 * 312e12
    )  # of 2 N_blk per token, the head once, and causal attention over all that came before (F2.5, F2.6)
    new = next(
        n
        for n in range(2048, 0, -1)
        if 2 * 6476005376 * n + 2 * 4096 * 32000 + 4 * 32 * 128 * 32 * (n * (2048 - n) + n * (n + 1) / 2) <= flop
    )
    assert enough.setting["cached_tokens"] == 2048 - new


@pytest.mark.parametrize(
    ("weights", "kv", "share", "held"),
    [("bf16", "bf16", 1.0, 7), ("bf16", "bf16", 0.9, 1), ("all=int8", "fp8", 1.0, 66), ("all=int8", "fp8", 0.9, 54)],
)
def test_sequences_in_memory(
    weights: str, kv: str, share: float, held: int
) -> None:  # F7.7, 2 x 80e9 bytes, 8192 tokens
    memory = MemoryOverrides(utilization=share, activation_bytes=0, runtime_bytes=0)
    options = {"layout": Layout(tp=2), "weights": weights, "kv": kv, "memory": memory}
    d = deploy(M70, HH, prompt=8191, output=1, **options)
    assert check(f"{held} sequences", d, context=8192).verdict == "plausible"
    result = check(f"{held + 1} sequences", d, context=8192)
    assert result.speed.bound == held
    assert result.figures()["bound_sequences"] == held
    assert result.reasons == ("memory_holds_fewer",)
    shorter = means(result, "shorter_context").setting["context"]
    cache = (1 if kv == "fp8" else 2) * 2 * 80 * 8 * 128 // 2  # bytes of a token on each of two devices
    room = share * 80e9 - (70553706496 if weights == "all=int8" else 141107412992) / 2
    assert shorter == approx(room / cache / (held + 1), rel=2e-3)


def test_fewer_bytes_of_a_prompt_do_not_make_it_faster_where_arithmetic_binds() -> None:
    result = check("50 ms TTFT", deploy(M7, HA, prompt=2048, output=9), served=True)
    assert means(result, "weight_quantisation").reason == "dequantised_to_16_bit_compute"
    assert means(result, "speculation").reason == "drafts_come_after_the_first_token"
    assert means(result, "sparsity").setting["weights_share"] < 0.6


# ------------------------------------------------------------------------------------------------ each means by itself


@settings(deadline=None, max_examples=40)
@given(st.integers(140, 4000), st.integers(1, 4000))
def test_users_by_hand(claimed: int, context: int) -> None:
    """B W_bw / (W + B L c) = X solved for B; never beyond the limit W_bw / (L c), memory, or what arithmetic allows."""
    result = check(f"{claimed} tok/s", context=context)
    found = means(result, "batching")
    limit = BANDWIDTH / (context * CACHE)
    memory = int((0.9 * 80e9 - 16060522496) // (context * CACHE)) if context > 1 else 10**9
    needed = math.ceil(claimed * READ / (BANDWIDTH - claimed * context * CACHE) - 1e-9) if claimed < limit else 10**9
    if needed <= memory:
        assert found.explains
        assert found.setting["users"] == needed
    else:
        assert found.reason in {"memory_holds_fewer_users", "cache_of_every_user_is_read", "compute_bound"}


@settings(deadline=None, max_examples=40)
@given(st.floats(1.05, 8), st.floats(0, 0.3))
def test_acceptance_by_hand(ratio: float, cost: float) -> None:
    """The acceptance that is found gains the ratio, with the best of up to 16 drafts, and no smaller one does."""
    claimed = ratio * 135.8489542512466
    found = means(check(f"{claimed:.6f} tok/s", draft_cost=cost), "speculation")
    most = max(17 / (16 * cost + 1), 2 / (cost + 1))
    if "acceptance" not in found.setting:
        assert most < ratio * (1 + 1e-6)
        assert found.reason == "draft_cost_limits_the_gain"
        return

    def gain(alpha: float) -> float:
        return max(speedup(sum(alpha**j for j in range(k + 1)), k, cost) for k in range(17))

    alpha = found.setting["acceptance"]
    assert gain(alpha) == approx(ratio, rel=1e-6)
    assert gain(alpha * 0.999) < ratio


@settings(deadline=None, max_examples=30)
@given(st.integers(200, 3000), st.booleans())
def test_what_explains_a_claim_reaches_it(claimed: int, of_one: bool) -> None:
    result = check(f"{claimed} tok/s{'/user' if of_one else ''}", deploy(M8, JOINED), context=300)
    for each in result.means:
        assert each.explains == (each.reason is None)
        if each.explains:
            assert each.speed.bound >= claimed * (1 - 1e-9)
    for each in result.combinations:
        assert each.speed.bound >= claimed * (1 - 1e-9)
        assert len(each.ids) == len(result.combinations[0].ids)
    assert (result.verdict == "impossible") == (not result.combinations)


def test_devices_are_doubled_until_they_suffice_and_a_link_joins_them() -> None:
    result = check("500 tok/s/user", deploy(M8, JOINED))
    found = means(result, "devices")
    assert found.setting == {"devices": 4, "tp": 4, "dp": 1}
    # A quarter of the weights, and 64 exchanges of 8192 bytes, 1.5 times of each over the link (F12.1).
    assert 1 / found.speed.bound == approx(READ / 4 / BANDWIDTH + 64 * 1.5 * 8192 / 300e9, rel=EXACT)
    far = means(check("5000 tok/s/user", deploy(M8, JOINED)), "devices")
    assert (far.setting["devices"], far.reason) == (8, "not_enough_devices")


def test_replicas_multiply_what_many_users_get() -> None:
    d = deploy(M8, A100, concurrency=64, prompt=999, output=1)
    found = means(check("8000 tok/s", d, context=1000), "devices")
    assert found.setting["tp"] == 1
    assert found.setting["dp"] == found.setting["devices"] == 8
    assert found.speed.bound == approx(64 / ((READ + 8 * 1000 * CACHE) / BANDWIDTH), rel=EXACT)


def test_a_narrower_cache_helps_where_it_is_what_is_read() -> None:
    d = deploy(M8, A100, concurrency=100, prompt=2999, output=1)
    full = (READ + 100 * 3000 * CACHE) / BANDWIDTH
    half = (READ + 100 * 3000 * CACHE / 2) / BANDWIDTH
    result = check(f"{0.99 * 100 / half:.3f} tok/s", d, context=3000)
    assert result.speed.bound == approx(100 / full, rel=EXACT)
    found = means(result, "kv_quantisation")
    assert found.explains
    assert found.speed.bound == approx(100 / half, rel=EXACT)
    assert means(result, "weight_quantisation").reason == "cache_is_read_too"


def test_prompts_in_the_steps_lower_the_roof_of_all_but_not_of_one() -> None:
    d = deploy(M8, A100, concurrency=32, prompt=2000, output=100)
    alone = check("1 tok/s", d, context=2050).speed.bound
    served = check("1 tok/s", d, context=2050, served=True).speed.bound
    assert served < alone
    # One prompt for each 100 tokens: at least its FLOP at the peak, whatever else overlaps.
    flop = 2 * 6979321856 * 2000 + 4 * 32 * 128 * 32 * 2000 * 2001 / 2
    assert served <= 100 / (flop / 312e12)
    of_one = [check("1 tok/s/user", d, context=2050, served=how).speed.bound for how in (False, True)]
    assert of_one[0] == of_one[1]


def test_more_users_than_memory_holds_wait() -> None:
    d = deploy(M8, A100, concurrency=1000, prompt=7999, output=1)
    result = check("1000000 tok/s/user", d, context=8000)
    held = int((0.9 * 80e9 - 16060522496) // (8000 * CACHE))
    assert result.machine.places == held
    assert result.speed.bound == approx(1 / ((READ + held * 8000 * CACHE) / BANDWIDTH), rel=EXACT)
    assert "kv_less_than_concurrency" in {warning.code for warning in result.warnings}


def test_a_rate_of_all_users_is_no_goodput() -> None:  # user demand, row 43
    many = check("400 tok/s", deploy(M8, A100, concurrency=8))
    assert "average_without_limit" in {warning.code for warning in many.warnings}
    assert many.figures()["headroom"] == approx(many.speed.expected / 400)
    assert many.figures()["bottleneck"] == "weight_bandwidth"
    assert "average_without_limit" not in {warning.code for warning in check("100 tok/s").warnings}


def test_fewest_means_together() -> None:
    """Above what any means gives alone, and within what two give: all pairs that do are named, none is larger than needed."""
    result = check("1150 tok/s/user")
    assert {each.ids for each in result.combinations} == {
        ("weight_quantisation", "speculation"),
        ("speculation", "sparsity"),
    }
    both = result.combinations[0]
    gain = 1150 / (BANDWIDTH / (6979321856 + 2 * 4096 * 128256))  # int8: 8 bits in the blocks, 16 in the head
    assert both.setting["weights"] == "int8"
    alpha = both.setting["acceptance"]
    reached = max((1 - alpha ** (k + 1)) / (1 - alpha) / (k * 0.05 + 1) for k in range(17))
    assert reached == approx(gain, rel=1e-3)


def test_least_is_the_first_of_a_range() -> None:
    assert least(lambda number: number >= 37, 1, 1000) == 37
    assert least(lambda number: number > 1000, 1, 1000) is None
    assert least(lambda _: True, 5, 4) is None


# ------------------------------------------------------------------------------------------------ parts


def test_a_measured_exchange_replaces_the_link() -> None:  # user demand, row 41
    question = Question(kind="rate", context=0, all_reduce_s=0.5e-3)
    machine = Machine.of(deploy(M7, JOINED, layout=Layout(tp=2)), question)
    assert exchange_s(machine.reached, Load(1, 0)) == approx(32e-3, rel=EXACT)  # 64 x 0.5 ms
    faster = with_all_reduce(machine.reached, 0.0)
    assert machine.reached.step_s(1, 0) - faster.step_s(1, 0) == approx(32e-3, rel=EXACT)


def test_a_share_of_the_weights_is_a_share_of_bytes_and_flop() -> None:
    model = Machine.of(deploy(DS, HH), Question(kind="rate", context=0)).nominal
    flop, weights, _ = model.totals(Load(4, 100))
    thin_flop, thin_weights, _ = thinned(model, 0.25).totals(Load(4, 100))
    attention, _, _ = thinned(model, 1e-12).totals(Load(4, 100))
    assert thin_weights == approx(weights / 4, rel=EXACT)
    assert thin_flop - attention == approx((flop - attention) / 4, rel=1e-9)


def test_a_device_without_rates_has_a_roof_of_bytes_and_no_times_of_prompts() -> None:
    bare = HardwareSpec(
        schema="roofplan/hardware/v1",
        name="bare",
        memory=A100.memory,
        peak=replace(A100.peak, bf16=None, fp32=None),
        evidence=(),
    )
    result = check("100 tok/s", deploy(M8, bare))
    assert result.speed.bound == approx(135.8489542512466, rel=EXACT)
    assert (result.verdict, result.bottleneck) == ("plausible", None)
    assert "no_dense_rate" in {warning.code for warning in result.warnings}
    with pytest.raises(DomainError, match="no dense rate"):
        check("100 ms TTFT", deploy(M8, bare, prompt=100, output=9), served=True)
