"""Golden values of formulas F2.5 to F2.11 and their properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, HA, HH, M7, deploy, step_model

from roofplan.errors import DomainError
from roofplan.planner import experts, flop
from roofplan.planner.costs import Experts, Load
from roofplan.planner.step import StepModel

EXACT = 1e-12
M7_BLOCKS, M7_HEAD = 6476005376, 4096 * 32000


def test_linear_flop() -> None:  # F2.5
    assert flop.linear_flop(M7_BLOCKS, M7_HEAD, 2048, 2048) == 27062588932096
    assert flop.linear_flop(M7_BLOCKS, M7_HEAD, 2048) == 26525980164096


def test_attention_flop() -> None:  # F2.6
    causal = flop.attention_flop(32, 128, 32, flop.causal_pairs(2048))
    assert causal == 1100048498688
    full = flop.attention_flop(32, 128, 32, 2048 * 2048)
    assert full == 2199023255552
    assert causal / full == 0.500244140625
    assert flop.attention_flop(32, 128, 32, flop.causal_pairs(512, 1024)) == 343731601408
    assert flop.linear_flop(M7_BLOCKS, M7_HEAD, 2048) + causal == 27626028662784


def test_the_step_model_counts_the_same_flop() -> None:  # F2.5, F2.6
    model = step_model(M7, HA)
    assert model.totals(Load(0, 0, chunk=2048))[0] == 27626028662784
    assert model.totals(Load(1, 2048))[0] == 14287896576


def test_causal_attention_equals_the_linear_part() -> None:  # F2.6
    assert approx(49407, abs=0.5) == M7_BLOCKS / (32 * 32 * 128) - 1


def test_window_pairs() -> None:  # F2.7
    windowed, full = flop.causal_pairs(32768, window=4096), flop.causal_pairs(32768)
    assert (windowed, full) == (125831168, 536887296)
    assert windowed / full == approx(0.23437166224175288, rel=EXACT)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 10**5))
def test_chunks_add_up_to_the_whole(first: int, second: int, third: int, window: int) -> None:  # F2.6
    whole = flop.causal_pairs(first + second + third, window=window)
    parts = [(first, 0), (second, first), (third, first + second)]
    assert sum(flop.causal_pairs(tokens, past, window) for tokens, past in parts) == whole


@given(st.integers(1, 3000), st.one_of(st.none(), st.integers(1, 3000)))
def test_pairs_by_counting(tokens: int, window: int | None) -> None:
    counted = sum(min(position, window or position) for position in range(1, tokens + 1))
    assert flop.causal_pairs(tokens, window=window) == counted
    assert flop.pairs_up_to(tokens, window or math.inf) == counted


@given(st.integers(0, 2**61), st.integers(0, 2**61), st.none() | st.integers(1, 2**61))
def test_pairs_of_any_size_are_exact(
    tokens: int, past: int, window: int | None
) -> None:  # F2.6, F2.7: no float on the way
    end = past + tokens
    if window is None or window >= end:
        assert flop.causal_pairs(tokens, past, window) == tokens * past + tokens * (tokens + 1) // 2
    elif past >= window:
        assert flop.causal_pairs(tokens, past, window) == tokens * window
    else:
        head = window - past
        assert flop.causal_pairs(tokens, past, window) == (
            head * past + head * (head + 1) // 2 + (tokens - head) * window
        )


def test_latent_decode_forms() -> None:  # F2.8
    forms = flop.latent_decode_flop(128, 512, 128, 64, 128, 4096)
    assert forms == {"expanded": 335544320, "absorbed": 1140850688, "absorb": 33554432, "expand": 137438953472}
    assert forms["absorbed"] / forms["expanded"] == approx(3.4, rel=EXACT)
    assert approx(71.11111111111111, rel=EXACT) == 128 * (128 + 64 + 128) / (512 + 64)
    assert approx(241.77777777777777, rel=EXACT) == 128 * (2 * 512 + 64) / (512 + 64)


def test_latent_attention_takes_the_faster_form() -> None:  # F2.8
    model = StepModel.of(deploy(DS, HH))
    decode = next(cost for cost in model.costs(Load(1, 4096)) if cost.name == "attention decode")
    assert decode.flop == 61 * 1140850688  # absorbed: expanding all latents again would cost a hundred times as much
    prefill = next(cost for cost in model.costs(Load(0, 0, chunk=4096)) if cost.name == "attention prefill")
    assert prefill.flop == 61 * 2 * 128 * (128 + 64 + 128) * flop.causal_pairs(
        4096
    )  # expanded: its latents are new anyway


def test_sparse_attention() -> None:  # F2.9
    index, chosen = flop.indexed_decode_flop(128, 2 * 512 + 64, 64, 128, 2048, 131072)
    dense = flop.latent_decode_flop(128, 512, 128, 64, 128, 131072)["absorbed"]
    assert (index, chosen, dense) == (2147483648, 570425344, 36507222016)
    assert (index + chosen) / dense == approx(0.0744485294117647, rel=EXACT)


def test_sparse_attention_reads_few_latents_and_all_index_keys() -> None:  # F2.9, bytes
    by_rule = 131072 * 132 + 2048 * 656
    assert by_rule == 18644992
    assert by_rule / (131072 * 656) == approx(0.21684451219512196, rel=EXACT)


@pytest.mark.parametrize(
    ("num_experts", "per_token", "tokens", "distinct"),
    [
        (8, 2, 1, 2.0),
        (8, 2, 4, 5.46875),
        (8, 2, 16, 7.919819233939052),
        (256, 8, 1, 8.0),
        (256, 8, 16, 101.96216232138948),
        (256, 8, 32, 163.31384595038296),
        (256, 8, 64, 222.4424876855104),
        (256, 8, 256, 255.92441438744697),
    ],
)
def test_distinct_experts(num_experts: int, per_token: int, tokens: int, distinct: float) -> None:  # F2.10
    assert experts.distinct_experts(tokens, num_experts, per_token) == approx(distinct, rel=EXACT)


@pytest.mark.parametrize(
    ("repeat", "distinct"), [(0, 101.96216232138948), (0.5, 69.35612906671514), (1, 30.531005859375)]
)
def test_correlated_experts(repeat: float, distinct: float) -> None:  # F2.10
    assert experts.distinct_experts_correlated(4, 4, 256, 8, repeat) == approx(distinct, rel=EXACT)


def test_skew_touches_fewer_experts() -> None:  # F2.10
    skewed = [0.125] * 32 + [0.017857142857142856] * 224
    assert experts.distinct_experts_skewed(32, skewed) == approx(129.70856217480662, rel=EXACT)
    assert experts.distinct_experts_skewed(32, skewed) < experts.distinct_experts(32, 256, 8)


def test_coverage_rows_and_bytes() -> None:  # F2.10
    assert experts.tokens_for_coverage(0.5, 256, 8) == approx(21.832302341719117, rel=EXACT)
    assert experts.rows_per_expert(32, 256, 8) == approx(1.567533962048609, rel=EXACT)
    per_expert = 3 * 7168 * 2048
    assert 58 * experts.distinct_experts(32, 256, 8) * per_expert == approx(417157641650.9707, rel=EXACT)
    assert 58 * 256 * per_expert == 653908770816


def test_step_model_reads_the_distinct_experts() -> None:  # F2.10 through the operators
    model = StepModel.of(deploy(DS, HH, weights="all=int8"))
    operator = next(operator for operator in model.operators if isinstance(operator, Experts))
    assert operator.cost(Load(32, 1))[1] == approx(417157641650.9707, rel=EXACT)


@given(st.integers(1, 512), st.integers(2, 512), st.data())
def test_distinct_experts_are_bounded_and_grow(tokens: int, num_experts: int, data: st.DataObject) -> None:
    per_token = data.draw(st.integers(1, num_experts))
    distinct = experts.distinct_experts(tokens, num_experts, per_token)
    more = experts.distinct_experts(tokens + 1, num_experts, per_token)
    slack = 1 + 1e-9
    assert per_token <= distinct * slack
    assert distinct <= min(num_experts, per_token * tokens) * slack
    assert distinct <= more * slack
    assert experts.distinct_experts_correlated(tokens, 1, num_experts, per_token, 0.3) == approx(distinct)


@pytest.mark.parametrize(
    "call",
    [
        lambda: experts.distinct_experts(4, 8, 9),
        lambda: experts.distinct_experts(-1, 8, 2),
        lambda: experts.rows_per_expert(0, 8, 2),
        lambda: experts.distinct_experts_correlated(4, 0.5, 8, 2, 0.5),
        lambda: experts.distinct_experts_skewed(4, [1.5]),
        lambda: experts.distinct_experts_correlated(4, 4, 8, 2, -0.1),
        lambda: experts.tokens_for_coverage(1.0, 8, 2),
        lambda: experts.tokens_for_coverage(0.5, 8, 8),
    ],
)
def test_expert_formulas_state_their_domain(call: object) -> None:
    with pytest.raises(DomainError):
        call()


def test_recurrent_state() -> None:  # F2.11
    elements = 32 * 128 * 128
    assert elements * 4 == 2097152
    assert flop.recurrent_flop(elements) == 2621440
    assert elements * 4 == 512 * 2 * 8 * 128 * 2  # as many bytes as 512 tokens of a GQA-8 cache
