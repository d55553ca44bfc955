"""Golden values of formulas F14.1 to F14.5, and their bounds on random cases."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pytest import approx

from roofplan.errors import DomainError
from roofplan.planner import quantisation_error as qe

EXACT = 1e-12
PRINTED = 0.5e-6 * (1 + 1e-9)  # half a unit of the sixth decimal

# ------------------------------------------------------------------------------------------------ the quantiser


def test_uniform_quantiser() -> None:  # F14.1
    step = qe.quantiser_step(0, 10, 2)
    assert step == 3.3333333333333335
    read = qe.quantise([[0, 1, 2, 3, 10]], 2, "token", 5)
    assert read == approx(np.array([[0, 0, step, step, 10]]), rel=EXACT)
    assert [qe.signal_to_noise_db(bits) for bits in (2, 4, 8)] == approx([12.04, 24.08, 48.16], abs=0.005)


def test_halves_go_to_the_even_code() -> None:  # F14.1
    assert qe.quantise([[0, 0.5, 1.5, 2.5, 3]], 2, "token", 5).tolist() == [[0, 0, 2, 2, 3]]


def test_groups_lie_along_tokens_or_channels() -> None:  # F14.5
    outlier = np.array([[0.0, 100.0], [1.0, 101.0], [0.4, 100.4], [0.6, 100.6]])
    assert qe.quantise(outlier, 1, "channel", 4) == approx(np.array([[0, 100], [1, 101], [0, 100], [1, 101]]))
    assert qe.quantise(outlier, 1, "token", 2) == approx(outlier)  # two values are the ends of their own range


def test_noise_by_sampling() -> None:  # F14.1
    signal = np.random.default_rng(0).uniform(0, 1, 10**6)
    for bits in (2, 4, 8):
        step = 2.0**-bits  # cells of a signal that fills the range
        noise = (np.floor(signal / step) + 0.5) * step - signal
        assert noise.var() == approx(qe.quantiser_variance(step), rel=0.01)
        assert 10 * math.log10(signal.var() / noise.var()) == approx(qe.signal_to_noise_db(bits), abs=0.05)
        read = qe.quantise(signal.reshape(1, -1), bits, "token", signal.size)
        assert ((read - signal) ** 2).mean() == approx(qe.quantiser_variance(qe.quantiser_step(0, 1, bits)), rel=0.01)


MATRICES = arrays(np.float64, st.tuples(st.integers(1, 6), st.just(4)), elements=st.floats(-1e6, 1e6))


@given(MATRICES, st.integers(1, 8))
def test_errors_stay_within_half_a_step(values: np.ndarray, bits: int) -> None:  # F14.1
    read = qe.quantise(values, bits, "token", 4)
    for line, stored in zip(values, read, strict=True):
        step = qe.quantiser_step(line.min(), line.max(), bits)
        rounding = 1e-9 * max(abs(line))
        assert max(abs(stored - line)) <= step / 2 + rounding
        assert len(set(stored)) <= 2**bits
    assert qe.quantise(values.T, bits, "channel", 4) == approx(read.T, rel=EXACT, abs=0)


# ------------------------------------------------------------------------------------------------ bounds

P, DELTA = (0.7, 0.2, 0.1), (0.1, -0.1, 0.05)
V, DV = np.array([[1, 0], [0, 1], [-1, 0]]), np.array([[0.05, 0], [0, -0.05], [0.05, 0.05]])


def example_error(value_errors: np.ndarray) -> qe.AttentionError:
    """The example of F14.3 and F14.4: one-wide keys whose scores are ln p, and ln p + delta."""
    keys = np.log(P).reshape(-1, 1)
    return qe.attention_error([[1.0]], keys, V, keys + np.reshape(DELTA, (-1, 1)), V + value_errors)


def test_key_error_to_score_error() -> None:  # F14.2
    assert qe.score_error_bound(math.sqrt(128), 0.1, 128) == approx(0.1, rel=EXACT)


def test_score_error_to_weights() -> None:  # F14.3
    bounds = qe.weight_error_bounds(0.1)
    assert bounds.divergence == approx(0.005, rel=EXACT)
    assert bounds.total_variation == approx(0.04995837495787998, rel=EXACT)
    assert (bounds.least_ratio, bounds.most_ratio) == approx((math.exp(-0.2), math.exp(0.2)), rel=EXACT)
    weights = np.array(P) * np.exp(DELTA)
    assert weights / weights.sum() == approx(np.array([0.73002666, 0.17077008, 0.09920326]), abs=0.5e-8)
    found = example_error(np.zeros((3, 2)))
    assert found.divergence == approx(0.00299928, abs=0.5e-8)
    assert found.total_variation == approx(0.03002666, abs=0.5e-8)
    assert found.score_rms == approx(math.sqrt(sum(x * x for x in DELTA) / 3), rel=1e-9)


def test_output_error() -> None:  # F14.4
    found = example_error(DV)
    assert found.output_error == approx(0.07938191, abs=0.5e-8)
    from_values, from_weights = (
        qe.output_error_bound(math.hypot(0.05, 0.05), 0, 1),
        qe.output_error_bound(0, found.total_variation, 1),
    )
    assert (from_values, from_weights) == approx((0.07071068, 0.06005332), abs=0.5e-8)
    bound = qe.output_error_bound(math.hypot(0.05, 0.05), found.total_variation, 1)
    assert found.output_error <= bound == approx(from_values + from_weights, rel=EXACT)


def test_independent_errors_average() -> None:  # F14.4
    errors = np.random.default_rng(0).normal(0, 0.3, (400_000, 3))
    assert (errors @ P).var() == approx(qe.averaged_error_variance(0.09, P), rel=0.01)
    assert qe.averaged_error_variance(1.0, [0.25] * 4) == approx(0.25, rel=EXACT)


def matrices(rows: int, columns: int, limit: float) -> st.SearchStrategy:
    return arrays(np.float64, (rows, columns), elements=st.floats(-limit, limit))


@given(
    matrices(1, 3, 4),
    matrices(6, 3, 2).map(lambda keys: keys + 3),  # no zeros, which have no relative error
    matrices(6, 2, 2).map(lambda values: values + 3),
    matrices(6, 3, 0.5),
    matrices(6, 2, 0.5),
)
def test_the_chain_of_bounds(query, keys, values, key_errors, value_errors) -> None:  # F14.2, F14.3, F14.4
    found = qe.attention_error(query, keys, values, keys + key_errors, values + value_errors)
    norms = [np.linalg.norm(array, axis=1).max() for array in (query, key_errors, values, value_errors)]
    score_error = qe.score_error_bound(norms[0], norms[1], 3)
    exact = np.abs(query @ key_errors.T).max() / math.sqrt(3)
    assert found.score_rms <= exact + 1e-9 <= score_error + 2e-9
    for error in (exact, score_error):
        bounds = qe.weight_error_bounds(error)
        assert found.divergence <= bounds.divergence + 1e-9
        assert found.total_variation <= bounds.total_variation + 1e-9
        assert found.output_error <= qe.output_error_bound(norms[3], bounds.total_variation, norms[2]) + 1e-9
    assert found.output_error <= qe.output_error_bound(norms[3], min(1, found.total_variation), norms[2]) + 1e-9


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=8), st.data())
def test_ratios_of_weights(scores: list[float], data) -> None:  # F14.3
    errors = data.draw(st.lists(st.floats(-0.5, 0.5), min_size=len(scores), max_size=len(scores)))
    bounds = qe.weight_error_bounds(max(map(abs, errors)))
    weights, moved = np.exp(scores), np.exp(np.add(scores, errors))
    ratios = (moved / moved.sum()) / (weights / weights.sum())
    assert bounds.least_ratio - 1e-12 <= ratios.min()
    assert ratios.max() <= bounds.most_ratio + 1e-12


def test_the_bound_of_total_variation_is_reached() -> None:  # F14.3: odds of e^-0.2 become e^0.2
    found = qe.attention_error([[1.0]], [[-0.1], [0.1]], [[1.0], [2.0]], [[0.1], [-0.1]], [[1.0], [2.0]])
    assert found.total_variation == approx(qe.weight_error_bounds(0.2).total_variation, rel=EXACT)


# ------------------------------------------------------------------------------------------------ measured


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, keys and values of F14.5."""
    draw = np.random.default_rng(0)
    keys, values, queries = (draw.standard_normal((rows, 128)) for rows in (1024, 1024, 64))
    keys[:, [3, 40, 77, 101]] += [20, -20, 20, -20]
    return queries, keys, values


@pytest.mark.parametrize(
    ("bits", "keys_per", "relative", "score_rms", "divergence", "cosine"),
    [
        (2, "channel", 0.107213, 0.393946, 0.076468, 0.92993),
        (2, "token", 0.593762, 2.242879, 1.44791, 0.29701),
        (4, "channel", 0.021335, 0.078351, 0.003038, 0.997053),
        (4, "token", 0.112476, 0.415045, 0.086123, 0.920273),
        (8, "channel", 0.001258, 0.004665, 1.1e-05, 0.999989),
        (8, "token", 0.006577, 0.024255, 0.000291, 0.999726),
    ],
)
def test_quantised_keys(drawn, bits, keys_per, relative, score_rms, divergence, cosine) -> None:  # F14.5
    found = qe.quantised_attention_error(*drawn, bits, keys_per=keys_per, values_per=None)
    shown = (found.relative_key_error, found.score_rms, found.divergence, found.output_cosine)
    assert shown == approx((relative, score_rms, divergence, cosine), rel=0, abs=PRINTED)
    assert found.relative_value_error == 0


@pytest.mark.parametrize(
    ("bits", "relative", "cosine"), [(2, 0.392131, 0.928777), (4, 0.078252, 0.996846), (8, 0.004601, 0.999989)]
)
def test_quantised_values(drawn, bits: int, relative: float, cosine: float) -> None:  # F14.5
    found = qe.quantised_attention_error(*drawn, bits, keys_per=None, values_per="token")
    assert (found.relative_value_error, found.output_cosine) == approx((relative, cosine), rel=0, abs=PRINTED)
    assert (found.relative_key_error, found.score_rms, found.divergence) == (0, 0, 0)
    # The step of a group of 32 normals says as much, but for the two ends, which have no error.
    step = qe.expected_normal_range(32) / (2**bits - 1)
    assert relative == approx(math.sqrt(qe.quantiser_variance(step)), rel=0.02)


def test_errors_fall_with_the_step(drawn) -> None:  # F14.5: 15/3 from 2 to 4 bits, 255/15 from 4 to 8
    errors = [
        qe.quantised_attention_error(*drawn, bits, keys_per="channel", values_per="token").relative_key_error
        for bits in (2, 4, 8)
    ]
    assert errors[0] / errors[1] == approx(5.03, abs=0.005)
    assert errors[1] / errors[2] == approx(16.96, abs=0.01)


def test_expected_range_of_normals() -> None:  # F14.5
    assert qe.expected_normal_range(32) == approx(4.139337655857818, rel=EXACT)
    assert qe.expected_normal_range(2) == approx(2 / math.sqrt(math.pi), rel=EXACT)
    assert qe.expected_normal_range(3) == approx(3 / math.sqrt(math.pi), rel=EXACT)
    sampled = np.ptp(np.random.default_rng(0).standard_normal((100_000, 100)), axis=1).mean()
    assert qe.expected_normal_range(100) == approx(sampled, rel=0.005)


def test_weights_that_underflow_leave_the_divergence_finite() -> None:  # F14.5
    found = qe.attention_error([[1.0]], [[1.0], [1.0]], [[1.0], [1.0]], [[1.0], [-4999.0]], [[1.0], [1.0]])
    assert found.divergence == approx(0.5 * (2 * math.log(0.5) + 5000), rel=EXACT)
    assert found.total_variation == approx(0.5, rel=EXACT)


def test_a_constant_group_has_no_error() -> None:  # F14.1
    assert qe.quantise([[0.1] * 4], 2, "token", 4).tolist() == [[0.1] * 4]
    assert qe.quantise([[0.0, 5e-324]], 2, "token", 2) == approx(0.0, abs=1e-300)


# ------------------------------------------------------------------------------------------------ domains


@pytest.mark.parametrize(
    "call",
    [
        lambda: qe.quantiser_step(0, 1, 0),
        lambda: qe.quantiser_step(0, 1, 17),
        lambda: qe.quantiser_step(0, 1, 2.0),
        lambda: qe.quantiser_step(1, 0, 4),
        lambda: qe.quantiser_step(0, math.inf, 4),
        lambda: qe.quantiser_step(-1.7e308, 1.7e308, 4),
        lambda: qe.quantiser_step(math.nan, 1, 4),
        lambda: qe.quantiser_variance(-1),
        lambda: qe.quantiser_variance(math.nan),
        lambda: qe.quantiser_variance(1e200),
        lambda: qe.signal_to_noise_db(0),
        lambda: qe.score_error_bound(-1, 1, 128),
        lambda: qe.score_error_bound(1, math.inf, 128),
        lambda: qe.score_error_bound(1, 1, 0),
        lambda: qe.score_error_bound(1e200, 1e200, 128),
        lambda: qe.output_error_bound(0, 1, 1e308),
        lambda: qe.weight_error_bounds(-0.1),
        lambda: qe.weight_error_bounds(350.1),
        lambda: qe.weight_error_bounds(math.nan),
        lambda: qe.output_error_bound(-1, 0.5, 1),
        lambda: qe.output_error_bound(0, 1.1, 1),
        lambda: qe.output_error_bound(0, 0.5, -1),
        lambda: qe.averaged_error_variance(-1, [1.0]),
        lambda: qe.averaged_error_variance(1, [0.5, 0.4]),
        lambda: qe.averaged_error_variance(1, [1.5, -0.5]),
        lambda: qe.expected_normal_range(1),
        lambda: qe.quantise([[1.0, 2.0, 3.0]], 2, "token", 2),
        lambda: qe.quantise([[1.0, 2.0]], 2, "channel", 2),
        lambda: qe.quantise([[1.0, 2.0]], 2, "token", 0),
        lambda: qe.quantise([1.0, 2.0], 2, "token", 2),
        lambda: qe.quantise([[]], 2, "token", 1),
        lambda: qe.quantise([[1.0, math.nan]], 2, "token", 2),
        lambda: qe.quantise([[1.0, math.inf]], 2, "token", 2),
        lambda: qe.quantise([[1.0, 1e61]], 2, "token", 2),
    ],
)
def test_domains(call) -> None:  # F14.1 to F14.5
    with pytest.raises(DomainError):
        call()


@pytest.mark.parametrize(
    "changed",
    [
        {"queries": [[1.0, 2.0]]},
        {"values": [[1.0]]},
        {"stored_keys": [[1.0]]},
        {"stored_values": [[1.0, 2.0], [3.0, 4.0]]},
        {"keys": [[0.0], [0.0]]},
        {"values": [[0.0], [0.0]]},
        {"stored_values": [[0.0], [0.0]]},
        {"queries": [[math.nan]]},
        {"stored_keys": [[math.inf], [1.0]]},
    ],
)
def test_domain_of_the_comparison(changed) -> None:  # F14.5
    column = [[1.0], [2.0]]
    fitting = {"queries": [[1.0]], **dict.fromkeys(("keys", "values", "stored_keys", "stored_values"), column)}
    qe.attention_error(**fitting)
    with pytest.raises(DomainError):
        qe.attention_error(**{**fitting, **changed})
