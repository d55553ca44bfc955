"""Whatever numbers, words or nothing at all a closed form is given: a named error, or a finite result, and soon."""

import dataclasses
import itertools
import math
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from closed_forms import GOOD, MODEL, UNCHECKED, public_functions
from hypothesis import given, settings
from hypothesis import strategies as st

from roofplan.errors import DomainError, RoofplanError
from roofplan.planner import (
    acceptance,
    batch_curve,
    chunked,
    domain,
    draft_trees,
    exchanges,
    experts,
    latency,
    prefix,
    quantisation_error,
    queueing,
    speculative_steps,
    static_batching,
    without_cache,
)
from roofplan.planner.deployment import Deployment
from roofplan.planner.step import Grouping, StepModel

WORDS = ("x", "")
NUMBERS = (math.nan, math.inf, -math.inf, 10**400, 10**300, 2**63, -1, 0, True, 1e308, 5e-324, 0.5)
KINDS = (*NUMBERS, *WORDS, None, [], ["x"], [math.nan], {}, [[1.0], [1.0, 2.0]])
SECONDS = 1.0
NAMES = [
    f"{getattr(function, '__module__', '')}.{function.__qualname__}".removeprefix("roofplan.planner.")
    for function in GOOD
]


def replaced(value) -> Iterator:
    """What may stand in the place of an argument: each kind, and the argument with its first leaf or key of each kind."""
    if callable(value):
        yield from ((lambda *_, kind=kind: kind) for kind in KINDS)
    elif isinstance(value, bool) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return
    elif isinstance(value, (int, float, str, type(None))):
        yield from KINDS
    elif isinstance(value, Mapping):
        yield from KINDS
        first, *rest = value
        for other in replaced(value[first]):
            yield {first: other, **{key: value[key] for key in rest}}
        for key in NUMBERS + WORDS:
            yield {key: value[first], **{key: value[key] for key in rest}}
    elif isinstance(value, (list, tuple)):
        yield from KINDS
        for other in replaced(value[0]):
            yield [other, *value[1:]]


def bad_calls(function) -> Iterator[dict]:
    good = GOOD[function]
    for name, value in good.items():
        for other in replaced(value):
            yield {**good, name: other}


def assert_finite(result) -> None:
    """Every number in a result, and every property of it, is finite, or says why it is not."""
    if isinstance(result, (bool, str, bytes, type(None), StepModel, Deployment)) or callable(result):
        return
    if isinstance(result, (int, float)):
        assert abs(result) <= sys.float_info.max
    elif isinstance(result, np.ndarray):
        assert np.isfinite(result).all()
    elif isinstance(result, Mapping):
        for value in result.values():
            assert_finite(value)
    elif dataclasses.is_dataclass(result):
        shown = [field.name for field in dataclasses.fields(result)]
        shown += [name for name, value in vars(type(result)).items() if isinstance(value, property)]
        for name in shown:
            try:
                value = getattr(result, name)
            except RoofplanError:
                continue
            assert_finite(value)
    else:
        for value in itertools.islice(result, 1000):
            assert_finite(value)


def run(function, arguments) -> None:
    """Call a closed form: within a second of this process a RoofplanError, or a finite result."""

    def stopped(*_) -> None:
        raise TimeoutError(f"{function.__name__} with {arguments!r:.500}")

    before = signal.signal(signal.SIGALRM, stopped)
    signal.alarm(30)
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # numpy on the way to a result that is then refused
            result = function(**arguments)
            assert_finite(result)
    except RoofplanError:
        pass
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert time.process_time() - start < SECONDS


def test_every_closed_form_is_tried() -> None:
    assert {function.__name__ for function in public_functions() if function not in GOOD} == set(UNCHECKED)


@pytest.mark.parametrize("function", GOOD, ids=NAMES)
def test_a_good_call_is_good(function) -> None:
    assert_finite(function(**GOOD[function]))


@pytest.mark.parametrize("function", GOOD, ids=NAMES)
def test_one_bad_argument(function) -> None:
    for arguments in bad_calls(function):
        run(function, arguments)


@settings(max_examples=3000)
@given(st.sampled_from(list(GOOD)), st.data())
def test_several_bad_arguments(function, data) -> None:
    good = GOOD[function]
    changing = data.draw(st.sets(st.sampled_from(sorted(good)), min_size=1))
    kinds = {name: list(replaced(good[name])) or [good[name]] for name in sorted(changing)}
    run(function, {**good, **{name: data.draw(st.sampled_from(kinds[name])) for name in kinds}})


@pytest.mark.parametrize(
    "function",
    [function for function in GOOD if any(isinstance(value, str) for value in GOOD[function].values())],
    ids=lambda function: function.__name__,
)
def test_words_are_one_of_those_there_are(function) -> None:
    for name, value in GOOD[function].items():
        if isinstance(value, str) and name not in {"model", "kv_format"}:
            for other in ("operator", value.upper(), f"{value} ", "nope", ""):
                with pytest.raises(DomainError, match=name.split("_")[-1]):
                    function(**{**GOOD[function], name: other})


def test_groupings_are_those_of_the_step_model() -> None:
    for name in ("operators", "parts", "whole"):
        assert domain.grouping(name) == name
    assert Grouping.__args__ == ("operators", "parts", "whole")


@pytest.mark.parametrize(
    "call",
    [
        lambda: queueing.erlang_c(10**6, 10**6 * 0.999),
        lambda: prefix.zipf_popularity(10**6, 1.1),
        lambda: chunked.reread_bytes(MODEL, 2**17, 1),
        lambda: latency.prefill_s(MODEL, 2**17, 1),
        lambda: batch_curve.knee(MODEL, 1000, 2**20),
        lambda: batch_curve.cheapest_batch(MODEL, 1000, 1.0, 2**20),
        lambda: without_cache.generation_s(MODEL, 1, 2**20),
        lambda: without_cache.textbook_generation_s(1, 2**62, 14e9, 7e9, 3e14, 2e12),
        lambda: speculative_steps.break_even_batch(MODEL, speculative_steps.Drafter(), 2.0, 4, 100, most=2**20),
        lambda: static_batching.static_run([10**6], 10**6),
        lambda: static_batching.continuous_run([1] * 10**5, 10**5),
        lambda: static_batching.geometric_utilization(999.9, 2**62),
        lambda: static_batching.harmonic(2**62),
        lambda: exchanges.routing_imbalance(5000, 256, 8, 1),
        lambda: exchanges.routing_imbalance(100, 256, 8, 8),
        lambda: draft_trees.greedy_tree([(0.1,) * 10] * 1000, 10_000),
        lambda: acceptance.expected_by_drafts([0.5] * 1000),
    ],
)
def test_the_largest_that_is_allowed_takes_less_than_a_second(call) -> None:
    start = time.process_time()
    call()
    assert time.process_time() - start < SECONDS


# ------------------------------------------------------------------------------------------------ the checks themselves


@pytest.mark.parametrize("bad", [*NUMBERS[:4], True, "1", None, [1.0], 1j, np.bool_(True), np.float64(math.nan)])
def test_no_check_takes_what_is_no_number(bad) -> None:
    for check in (domain.finite, domain.positive, domain.not_negative, domain.probability, domain.count):
        with pytest.raises(DomainError):
            check("value", bad)
    for limits in ((0,), (0, 1)):
        with pytest.raises(DomainError):
            (domain.between if len(limits) == 2 else domain.at_least)("value", bad, *limits)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**1023), 2**1023))
def test_numbers_come_back_as_they_were(value) -> None:
    assert domain.finite("value", value) == pytest.approx(value, rel=1e-15)
    if isinstance(value, float) or abs(value) < 2**63:
        assert domain.finite("value", value) is value


def test_numbers_of_numpy_are_numbers() -> None:
    assert domain.positive("value", np.float32(0.5)) == 0.5
    assert domain.count("value", np.int64(4)) == 4
    assert domain.amounts("value", np.arange(1, 3), domain.positive).tolist() == [1, 2]
    for bad in ([], [[1.0], [1.0, 2.0]], ["x"], [math.nan, 1.0], None, [10**400]):
        with pytest.raises(DomainError):
            domain.amounts("value", bad, domain.positive)


def test_arrays_of_experts_are_checked_too() -> None:
    tokens = np.array([1.0, 4.0])
    assert experts.distinct_experts(tokens, 8, 2).tolist() == [2.0, 5.46875]
    for bad in (np.array([1.0, math.nan]), np.array([-1.0, 4.0]), np.array([])):
        with pytest.raises(DomainError):
            experts.distinct_experts(bad, 8, 2)
        with pytest.raises(DomainError):
            experts.distinct_experts_correlated(bad, 2, 8, 2, 0.5)
    with pytest.raises(DomainError):
        experts.distinct_experts_correlated(tokens, np.array([0.5, 2]), 8, 2, 0.5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: experts.distinct_experts(4, 0, 2),
        lambda: experts.distinct_experts(math.nan, 8, 2),
        lambda: experts.distinct_experts(-math.inf, 8, 2),
        lambda: experts.distinct_experts(4, 8, 9),
        lambda: experts.distinct_experts(4, 8, -2),
        lambda: experts.rows_per_expert(0, 8, 2),
        lambda: experts.tokens_for_coverage(0.5, math.inf, 2),
        lambda: experts.tokens_for_coverage(0.5, 8, math.nan),
        lambda: queueing.goodput_per_s([(math.nan,)], (1.0,), 1.0),
        lambda: queueing.goodput_per_s([(1.0,)], (math.nan,), 1.0),
        lambda: queueing.goodput_per_s([(-1.0,)], (1.0,), 1.0),
        lambda: speculative_steps.verify_ratio(MODEL, [], 1, 100),
        lambda: speculative_steps.verify_ratio(MODEL, 10**300, 10**300, 100),
        lambda: quantisation_error.quantise([["x"]], 4, "token", 1),
        lambda: exchanges.routing_imbalance(8, 8, 2, 4, seed=-1),
        lambda: chunked.chunked_prefill(MODEL, 10**30, [512]),
    ],
)
def test_what_once_slipped_through(call) -> None:
    with pytest.raises(DomainError):
        call()
