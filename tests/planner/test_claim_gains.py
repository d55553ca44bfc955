"""Claimed gains: formula F17, and what users asked (notes/user_demand.md rows 36 to 42) with the reason that was found for each."""

from dataclasses import replace
from typing import get_args

import pytest
from pytest import approx
from shapes import DS, HA, HH, M7, M8, deploy, device, formats, number_format

from roofplan.api.building import deployment
from roofplan.errors import DomainError
from roofplan.hardware.spec import Link
from roofplan.planner.claim_gains import BY, GainResult, check_gain
from roofplan.planner.claim_levers import Drafting
from roofplan.planner.claim_reasons import CauseCode, Why
from roofplan.planner.claim_speeds import Question
from roofplan.planner.claim_text import parse_claim
from roofplan.planner.deployment import Deployment
from roofplan.planner.fitting import Reason
from roofplan.planner.parallel import Layout
from roofplan.report.claim import REASONS

EXACT = 1e-12
PLAIN_S = 37.7e-3  # 26.51 tokens/s
JOINED = replace(HA, links=(Link(name="switch", per_direction=300e9, topology="switch", domain=8),))


def check(
    text: str, d: Deployment, by: str, *, context: float = 0, drafting: Drafting | None = None, **changes: object
) -> GainResult:
    question = replace(Question(kind="gain", context=context), **changes)
    wide = formats("bf16") if by == "weights" else None
    return check_gain(parse_claim(text), d, question, by, weights=wide, kv=number_format("bf16"), drafting=drafting)


# ------------------------------------------------------------------------------------------------ a cache against none


def test_256_fold_is_true_of_passes_and_not_of_time() -> None:  # F17
    result = check("256x", deploy(M7, HA, prompt=1, output=512), "cache")
    found = result.figures_beside
    assert found["token_passes"] == 256.5
    assert found["flop"] == approx(250.62441821645294, rel=EXACT)
    # F17 gives 1.7956 for 14e9 bytes and 14e9 FLOP a token; M7 reads 13.2e9, and has attention and a cache that is read.
    assert found["time"] == approx(1.7956, rel=0.02)
    assert (result.verdict, result.reasons) == ("impossible", ("counts_token_passes_not_time",))
    assert check("1.8x", deploy(M7, HA, prompt=1, output=512), "cache").verdict == "plausible"


def test_long_prompts_gain_more_from_a_cache() -> None:  # F17
    result = check("14x", deploy(M7, HA, prompt=2048, output=512), "cache")
    assert result.figures_beside["time"] == approx(14.424, rel=0.08)  # the textbook's, without attention
    assert result.figures_beside["token_passes"] == approx(460.8800312622118, rel=EXACT)


# ------------------------------------------------------------------------------------------------ what bounds a gain


USERS = {"prompt": 999, "output": 1}
SERVED = {
    # what is compared, and the most of it by hand: bytes, FLOP, steps, tokens
    "cache": (deploy(M7, HA, prompt=1, output=512), "cache", {}, 250.62441821645294),
    "weights": (
        deploy(M8, HA, weights="int4-g128", concurrency=256),
        "weights",
        {"context": 1},
        (15009316864 + 256 * 131072) / (4676648960 + 256 * 131072),
    ),
    "kv": (
        deploy(M8, HA, kv="fp8", concurrency=8, **USERS),
        "kv",
        {"context": 1000},
        (15009316864 + 8000 * 131072) / (15009316864 + 8000 * 65536),
    ),
    "batching": (deploy(M8, HA, concurrency=8, **USERS), "batching", {"context": 1000}, 8),
    "devices": (deploy(M7, JOINED, layout=Layout(tp=2)), "devices", {}, 2),
    "speculation": (deploy(M8, HH), "speculation", {"drafting": Drafting(drafts=4, acceptance=0.8)}, 3.3616),
}


@pytest.mark.parametrize("by", SERVED)
def test_a_claim_is_impossible_above_a_true_bound_only(by: str) -> None:
    d, means, options, most = SERVED[by]
    found = check("1x", d, means, **options)
    assert found.most == approx(most, rel=2e-3)
    assert found.gain.expected <= found.most
    assert found.gain.bound <= found.most * (1 + 1e-9)  # the ratio of the roofs is one case of what may be
    assert check(f"{most * 1.02:.6g}x", d, means, **options).verdict == "impossible"
    below = check(f"{most * 0.99:.6g}x", d, means, **options)
    assert below.verdict == ("plausible" if below.claim.value <= found.gain.high * 1.005 else "needs_help")
    assert below.ratio == approx(0.99, rel=3e-3)


@pytest.mark.parametrize("by", SERVED)
@pytest.mark.parametrize("engine", ["plain", "vllm@0.19"])
def test_what_is_expected_bounds_nothing(by: str, engine: str) -> None:
    """With kernels as reached: the range goes beyond what is expected, and a claim in it is plausible, one above it in need of help."""
    _, means, options, _ = SERVED[by]
    asked = {
        "cache": {"prompt": 1, "output": 512},
        "weights": {"weights": "int4-g128"},
        "kv": {"kv": "fp8", "concurrency": 64, "prompt": 1000, "output": 1},
        "batching": {"concurrency": 16, "prompt": 1000, "output": 1},
        "devices": {"devices": 2},
        "speculation": {},
    }[by]
    d = deployment("llama-2-7b", "a100-80gb", engine=engine, **asked)
    found = check("1x", d, means, **options)
    gain, most = found.gain, found.most
    assert most is not None
    assert gain.low < gain.expected < gain.high <= most
    assert gain.high == approx(min(most, gain.expected**2 / gain.low), rel=1e-9)  # as far above as below
    assert check(f"{(gain.expected + gain.high) / 2:.6g}x", d, means, **options).verdict == "plausible"
    if gain.high * 1.02 < most:
        assert check(f"{gain.high * 1.01:.6g}x", d, means, **options).verdict == "needs_help"


def test_what_kernels_reach_above_equal_work_is_bounded_by_nothing() -> None:
    """Where the kernels with the means are expected to reach more of the device than those without it, the ratio of work is no bound."""
    found = check("1.5x", deploy(M8, HH), "speculation", drafting=Drafting(drafts=4, acceptance=0.8))
    assert found.most is not None
    free = replace(found, most=None)
    assert free.ratio is None
    assert free.figures()["bound_gain"] is None
    assert free.figures()["bound_gain_reason"] == "kernels_reach_as_much"
    assert "none" in next(line for line in free.explain() if line.figure == "bound_gain").value


def test_more_memory_for_users_may_gain_more_than_the_number_of_devices() -> None:
    """One device holds few caches beside the weights, two hold many: what bounds the gain counts the users that run."""
    tight = device("tight", 312e12, 2.039e12, capacity=20 * 10**9)
    linked = replace(tight, links=(Link(name="switch", per_direction=300e9, topology="switch", domain=8),))
    d = deploy(M8, linked, layout=Layout(tp=2), concurrency=64, prompt=1999, output=1)
    found = check("3x", d, "devices", context=2000)
    assert found.most is not None
    assert found.most > 2
    assert found.gain.bound > 2
    assert found.verdict != "impossible"


# ------------------------------------------------------------------------------------------------ drafts


@pytest.mark.parametrize(("drafts", "tokens", "round_s", "gain"), [(1, 1.75, 98.7e-3, 0.668), (7, 3.21, 263e-3, 0.460)])
def test_row_38_a_round_that_costs_more_than_its_tokens(
    drafts: int, tokens: float, round_s: float, gain: float
) -> None:
    used = Drafting(drafts=drafts, tokens=tokens, round_s=round_s, step_s=PLAIN_S)
    result = check(f"{tokens}x", deploy(M8, HH), "speculation", drafting=used)
    assert result.gain.expected == result.gain.bound == approx(gain, abs=0.001)
    assert result.verdict == "impossible"
    assert result.most == result.gain.expected
    assert "round_costs_more_than_its_tokens" in result.reasons
    assert result.figures_beside["round_cost"] == approx(round_s / PLAIN_S, rel=EXACT)  # the break-even of its tokens
    assert check(f"{gain}x", deploy(M8, HH), "speculation", drafting=used).verdict == "plausible"


def test_row_36_too_many_drafts_for_what_they_cost() -> None:
    """Drafts of 4 billion parameters for 32: an eighth of a step each, of which k = 10 were drawn."""
    used = Drafting(drafts=10, acceptance=0.6)
    result = check("2x", deploy(M8, HH), "speculation", drafting=used, draft_cost=0.125)
    tokens = (1 - 0.6**11) / 0.4
    assert result.gain.bound == approx(tokens / (10 * 0.125 + 1), rel=EXACT)
    assert result.reasons[-1] == "too_many_drafts_for_their_cost"
    by_hand = max(range(1, 17), key=lambda k: (1 - 0.6 ** (k + 1)) / 0.4 / (k * 0.125 + 1))
    assert result.figures_beside["best_drafts"] == by_hand == 3


def test_row_37_verification_was_assumed_to_be_free() -> None:
    """Twenty milliseconds of every round are neither drafts nor a plain step."""
    used = Drafting(drafts=4, acceptance=0.8, round_s=PLAIN_S * (4 * 0.1 + 1) + 20e-3, step_s=PLAIN_S)
    result = check("2.4x", deploy(M8, HH), "speculation", drafting=used, draft_cost=0.1)
    assert result.reasons == ("verification_is_not_free", "too_many_drafts_for_their_cost")[: len(result.reasons)]
    assert result.figures_beside["beside_model_s"] == approx(20e-3, rel=1e-9)
    assert result.gain.expected == approx(3.3616 * PLAIN_S / (PLAIN_S * 1.4 + 20e-3), rel=1e-9)


def test_row_39_beyond_the_batch_up_to_which_drafts_gain() -> None:  # F11.6
    def at(users: int) -> GainResult:
        d = deploy(M8, HH, concurrency=users, prompt=199, output=1)
        return check("2x", d, "speculation", context=200, drafting=Drafting(drafts=4, acceptance=0.6), draft_cost=0.1)

    many = at(256)
    assert many.gain.bound < 1
    assert {"batch_above_break_even", "verification_is_compute_bound"} <= set(many.reasons)
    largest = int(many.figures_beside["break_even_users"])
    assert at(largest).gain.bound > 1 >= at(largest + 1).gain.bound


def test_row_40_experts_multiply_with_drafts() -> None:  # F11.7
    d = deploy(DS, device("node", 8e15, 38.4e12, 8 * 141 * 10**9), weights="all=int8")
    result = check("3x", d, "speculation", drafting=Drafting(drafts=4, acceptance=0.8), draft_cost=0.0)
    assert result.reasons[0] == "experts_multiply_with_drafts"
    # Experts of 58 layers: 8 touched by one token, 37.577 of 256 by five (F11.7: 4.6971 times as many).
    expert = 58 * 3 * 7168 * 2048
    read = 36624596992.0
    assert result.figures_beside["verify_ratio"] == approx(
        (read + (4.697113990783691 - 1) * 8 * expert) / read, rel=1e-9
    )
    assert result.gain.bound == approx(3.3616 / result.figures_beside["verify_ratio"], rel=1e-9)


def test_no_round_gains_more_than_its_tokens() -> None:
    result = check("4x", deploy(M8, HH), "speculation", drafting=Drafting(drafts=4, acceptance=0.8), draft_cost=0.0)
    assert result.reasons[0] == "no_more_than_the_tokens_of_a_round"
    assert result.gain.bound == approx(3.3616, rel=EXACT)


@pytest.mark.parametrize(
    "stated",
    [
        {},
        {"acceptance": 0.8, "tokens": 3.0},
        {"acceptance": 0.8, "round_s": 0.1},
        {"acceptance": 0.8, "step_s": 0.1},
        {"acceptance": 0.8, "drafts": 0},
    ],
)
def test_drafts_that_are_stated_twice_or_by_half(stated: dict[str, float]) -> None:
    with pytest.raises(DomainError):
        Drafting(**{"drafts": 4, **stated})


def test_more_tokens_than_a_round_can_have() -> None:
    with pytest.raises(DomainError, match="tokens per round"):
        check("2x", deploy(M8, HH), "speculation", drafting=Drafting(drafts=1, tokens=2.5))


# ------------------------------------------------------------------------------------------------ devices, formats, users


def test_row_41_exchanges_that_outweigh_what_two_devices_save() -> None:
    """A 7B model, 64 all-reduces a token of half a millisecond: 32 ms, more than the 3.3 ms that half of the weights save."""
    d = deploy(M7, JOINED, layout=Layout(tp=2))
    result = check("2x", d, "devices", all_reduce_s=500e-6)
    assert result.figures_beside["all_reduces"] == 64
    assert result.figures_beside["exchange_s"] == approx(32e-3, rel=EXACT)
    assert result.figures_beside["saved_s"] == approx(6.607077376e-3 / 2, rel=0.01)
    assert (result.verdict, result.reasons) == ("needs_help", ("exchanges_outweigh",))
    assert result.gain.bound < 1
    assert result.gain.expected == approx(6.607077376 / (6.607077376 / 2 + 32), rel=0.05)
    assert result.most == approx(2, rel=0.001)
    assert check("2.1x", d, "devices", all_reduce_s=500e-6).verdict == "impossible"
    linked = check("2x", d, "devices")
    assert linked.verdict == "plausible"
    assert 1.99 < linked.gain.bound < 2


def test_row_42_four_bits_are_not_a_fourth_of_what_is_read() -> None:  # F4.3
    result = check("4x", deploy(M8, HA, weights="int4-g128"), "weights")
    assert result.gain.bound == approx(15009316864 / 4676648960, rel=EXACT)
    assert (result.verdict, result.reasons) == ("impossible", ("only_the_weights_shrink",))


def test_row_42_above_the_ridge_narrow_weights_are_multiplied_in_16_bits() -> None:
    result = check("4x", deploy(M8, HA, weights="int4-g128", concurrency=256), "weights", context=1)
    assert (result.verdict, result.reasons) == ("impossible", ("dequantised_to_16_bit_compute",))
    assert result.gain.bound == approx(1, abs=0.1)


def test_a_narrower_cache() -> None:
    d = deploy(M8, HA, kv="fp8", concurrency=8, prompt=999, output=1)
    result = check("2x", d, "kv", context=1000)
    wide, narrow = (15009316864 + 8 * 1000 * size for size in (131072, 65536))
    assert result.gain.bound == approx(wide / narrow, rel=EXACT)
    assert result.figures_beside["cache_share_of_bytes"] == approx(1 - 15009316864 / wide, rel=EXACT)
    assert result.reasons == ("cache_is_a_part_of_what_is_read",)


def test_users_share_the_weights_and_not_their_caches() -> None:  # F7.1
    result = check("8x", deploy(M8, HA, concurrency=8, prompt=999, output=1), "batching", context=1000)
    one, eight = (15009316864 + users * 1000 * 131072 for users in (1, 8))
    assert result.gain.bound == approx(8 * one / eight, rel=EXACT)
    assert result.reasons == ("cache_of_every_user_is_read",)


@pytest.mark.parametrize(
    ("by", "what"),
    [
        ("weights", "--weights"),
        ("kv", "--kv"),
        ("batching", "--users"),
        ("devices", "--devices"),
        ("speculation", "--by"),
    ],
)
def test_a_means_that_the_deployment_does_not_have(by: str, what: str) -> None:
    with pytest.raises(DomainError) as caught:
        check("2x", deploy(M8, HA), by)
    assert caught.value.what == what


def test_all_means_are_known_by_name() -> None:
    assert set(BY) == {"cache", "weights", "kv", "speculation", "batching", "devices"}


def test_every_reason_has_words() -> None:
    codes = {*get_args(Why), *get_args(CauseCode), *get_args(Reason)}
    assert codes <= set(REASONS)
    assert all(text.isprintable() and text for text in REASONS.values())


def test_gains_that_were_measured_have_no_range_and_others_have() -> None:
    nothing_known = check("2x", deploy(M8, HA, weights="int4-g128"), "weights").gain
    assert (nothing_known.low, nothing_known.high) == (0, nothing_known.bound)
    used = Drafting(drafts=4, acceptance=0.8, round_s=2 * PLAIN_S, step_s=PLAIN_S)
    measured = check("1.7x", deploy(M8, HH), "speculation", drafting=used).gain
    assert measured.low == measured.expected == measured.high == measured.bound == approx(1.6808, rel=EXACT)


def test_stages_of_a_pipeline_take_turns() -> None:  # F12.3
    result = check("2x", deploy(M7, JOINED, layout=Layout(pp=2)), "devices")
    assert (result.verdict, result.reasons) == ("impossible", ("devices_take_turns",))
    assert result.gain.bound == approx(1, abs=0.01)


def test_replicas_each_read_all_weights() -> None:  # F12.5
    d = deploy(M8, HA, layout=Layout(dp=2), concurrency=64, prompt=99, output=1)
    result = check("2x", d, "devices", context=100)
    together, half = (15009316864 + users * 100 * 131072 for users in (64, 32))
    assert together / half <= result.gain.bound < 1.05  # activations of the fuller batch beside it
    assert (result.verdict, result.reasons) == ("needs_help", ("every_replica_reads_the_weights",))
    assert result.most == approx(2, rel=1e-3)  # if arithmetic were all that counts
