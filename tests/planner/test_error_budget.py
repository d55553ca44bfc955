"""Choosing the cheapest cache format within limits: on the arrays of F14.5, on made-up ones, and what cannot be tried."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from shapes import DS, M8

from roofplan import engines
from roofplan.errors import DomainError, QuantityError, RoofplanError, UnknownNameError
from roofplan.planner.error_budget import METRICS, BudgetResult, Choice, choose_scheme, parse_limits
from roofplan.planner.kv_schemes import SCHEME_NAMES, Heads, outlier_heads, schemes
from roofplan.planner.quantisation_error import AttentionError, attention_error
from roofplan.planner.results import plain

HEADS = outlier_heads()


def choose(limits: str, heads: Heads = HEADS, **options: object) -> Choice:
    return choose_scheme(parse_limits(limits), heads, schemes(engines.load_format), **options)


def chosen(limits: str, heads: Heads = HEADS, **options: object) -> str | None:
    found = choose(limits, heads, **options).chosen
    return None if found is None else found.scheme.format.name


# ------------------------------------------------------------------------------------------------ limits


def test_limits() -> None:
    assert [(one.metric, one.value) for one in parse_limits("KL=0.01, cosine = 0.99")] == [
        ("kl", 0.01),
        ("cosine", 0.99),
    ]
    assert {field for field, _ in METRICS.values()} == {field.name for field in fields(AttentionError)}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", DomainError),
        ("kl", DomainError),
        ("kl=", DomainError),
        ("=0.1", DomainError),
        ("kl=0.1,", DomainError),
        ("kl=0.1,kl=0.2", DomainError),
        (0.01, DomainError),
        ("kl=0.01" + "0" * 300, DomainError),
        ("ppl=0.1", UnknownNameError),
        ("kl=-0.1", QuantityError),
        ("kl=nan", QuantityError),
        ("kl=1e999", QuantityError),
        ("kl=small", QuantityError),
        ("cosine=1.1", QuantityError),
        ("tv=2", QuantityError),
    ],
)
def test_wrong_limits(text: object, error: type[RoofplanError]) -> None:
    with pytest.raises(error, match="--error-budget"):
        parse_limits(text)


# ------------------------------------------------------------------------------------------------ choices


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        ("kl=1", "nvfp4"),  # 4.5 bits, as q4_0, with less error; kivi-2 has 4.6 with its recent tokens of 1,024
        ("kl=0.01", "kivi-4"),  # 0.003038 without recent tokens (F14.5)
        ("kl=0.002", "int8-head128"),
        ("kl=0.01,cosine=0.998", "int8-head128"),
        ("kl=0.01,value=0.05", "fp8"),
        ("kl=0", None),
    ],
)
def test_the_cheapest_that_holds(limits: str, name: str | None) -> None:
    assert chosen(limits) == name


def test_with_a_model_the_bytes_of_a_sequence_decide() -> None:  # F3.7
    long = choose("kl=1", model=M8, context=131072)
    assert long.chosen.scheme.format.name == "kivi-2"  # 3 bits but for 128 tokens of 131,072
    assert long.chosen.bytes_per_sequence == 24576 * (131072 - 128) + 131072 * 128
    short = choose("kl=1", model=M8, context=128)
    assert short.chosen.scheme.format.name == "nvfp4"  # all tokens of KIVI are recent
    sizes = {one.scheme.format.name: one.bytes_per_token for one in short.tried}
    assert (sizes["bf16"], sizes["fp8"], sizes["q8_0"], sizes["nvfp4"]) == (131072, 65536, 69632, 36864)


def test_rows_are_ordered_by_cost_and_tell_which_limits_break() -> None:
    found = choose("kl=0.01,cosine=0.999999")
    costs = [one.cost for one in found.tried]
    assert costs == sorted(costs)
    assert {one.scheme.format.name for one in found.tried} == set(SCHEME_NAMES)
    broken = {one.scheme.format.name: [limit.metric for limit in one.broken] for one in found.tried}
    assert broken["kivi-4"] == ["cosine"]
    assert broken["q4_0"] == ["kl", "cosine"]
    assert found.chosen is None


def test_every_head_must_hold() -> None:
    calm = outlier_heads(seed=1)
    loud = Heads((calm.arrays[0], tuple(4 * array for array in HEADS.arrays[0])), "two")
    worst = {one.scheme.format.name: one.errors for one in choose("kl=1", loud).tried}
    for one in schemes(engines.load_format):
        each = [
            attention_error(queries, keys, values, *one.stored(keys, values)) for queries, keys, values in loud.arrays
        ]
        found = worst[one.format.name]
        assert found.divergence == max(error.divergence for error in each)
        assert found.output_cosine == min(error.output_cosine for error in each)


@given(st.floats(0.00001, 1), st.floats(0.00001, 1))
def test_a_tighter_budget_is_never_cheaper(one: float, other: float) -> None:
    tight, loose = sorted((one, other))
    found = [_least_tried(limit) for limit in (tight, loose)]
    assert found[0] is None or (found[1] is not None and found[1] <= found[0])


_ALL = [(one.errors.divergence, one.cost) for one in choose("kl=1").tried]


def _least_tried(limit: float) -> tuple[float, float] | None:
    return min((cost for divergence, cost in _ALL if divergence <= limit), default=None)


def test_the_rule_of_the_property_is_the_one_in_use() -> None:
    for limit in (0.0001, 0.001, 0.01, 0.1, 1):
        found = choose(f"kl={limit}").chosen
        assert (None if found is None else found.cost) == _least_tried(limit)


# ------------------------------------------------------------------------------------------------ what cannot be tried


def test_heads_that_groups_do_not_divide() -> None:
    found = {one.scheme.format.name: one.reason for one in choose("kl=1", outlier_heads(80)).tried}
    assert {name for name, reason in found.items() if not reason} == {"bf16", "fp8", "nvfp4"}
    assert found["q8_0"] == found["kivi-2"] == "groups_do_not_divide"


def test_scales_that_overflow() -> None:
    queries, keys, values = HEADS.arrays[0]
    large = Heads(((queries, 1e9 * keys, values),), "large")
    found = {one.scheme.format.name: one.reason for one in choose("key=0.1", large).tried}
    assert found["q8_0"] == found["q4_1"] == "scale_overflows"
    assert found["kivi-2"] == found["int8-head128"] == found["bf16"] == ""


def test_arrays_of_zeros_have_no_relative_error() -> None:
    queries, keys, _ = HEADS.arrays[0]
    with pytest.raises(DomainError, match="norm of values"):
        choose("kl=1", Heads(((queries, keys, np.zeros_like(keys)),), "zeros"))


# ------------------------------------------------------------------------------------------------ what is said


def test_warnings_and_assumptions() -> None:
    def codes(choice: Choice) -> set[str]:
        return {notice.code for notice in choice.warnings}

    assert codes(choose("kl=0.01")) == {"values_not_limited", "synthetic_tensors"}
    assert codes(choose("kl=0.01,cosine=0.9")) == {"synthetic_tensors"}
    assert "latents_not_tried" in codes(choose("kl=0.01", model=DS, context=100))
    given_arrays = Heads(HEADS.arrays, "mine")
    assert codes(choose("value=0.1", given_arrays)) == set()
    assert choose("kl=0.01", given_arrays).assumptions == ()
    [assumption] = choose("kl=0.01").assumptions
    assert "shifted by +20, -20, +20, -20" in assumption.value


def test_the_answer_as_data_and_its_derivation() -> None:
    result = BudgetResult(choose("kl=0.01"))
    said = plain(result.figures())["error_budget"]
    assert (result.command, result.good, said["chosen"]) == ("kv", True, "kivi-4")
    assert said["limits"] == [{"metric": "kl", "value": 0.01, "is_least": False}]
    kivi = next(row for row in said["schemes"] if row["scheme"] == "kivi-4")
    assert kivi["mean_bits_per_element"] == approx((896 * 5 + 128 * 16) / 1024)
    assert (kivi["bits_per_element"], kivi["holds"], kivi["broken"], kivi["keys_per"]) == (5, True, [], "channel")
    assert said["tensors"] == {"source": HEADS.source, "synthetic": True, "heads": 1, "tokens": 1024}
    lines = {line.figure: line for line in result.explain()}
    assert lines["error_budget.kivi-4"].numbers.startswith(
        "4 + (16 + 16) / 32, the last 128 of 1,024 tokens in 16 bits"
    )
    assert lines["error_budget.q4_0"].binds == "kl <= 0.01"
    assert not BudgetResult(choose("kl=0")).good
