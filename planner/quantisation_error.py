"""The error of a quantised KV cache: bounds from a key's error to the output's, and the measured error of given arrays.

The bounds chain: error of keys -> scores (F14.2) -> weights (F14.3) -> output (F14.4). They hold always and are far from tight; the
measured error of arrays (F14.5) says what happens. What quantised entries take in bytes is counted in :mod:`~roofplan.planner.kv_cache`.

Sources: formulas F14.1 to F14.5 (the bounds are derived there); Liu et al. 2024, KIVI (arXiv 2402.02750) for the design.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ..errors import DomainError
from . import domain

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Matrix = NDArray[np.float64]

Per = Literal["channel", "token"]

_MOST_BITS = 16
_MOST_SCORE_ERROR = 350.0  # exp(2 x) of more is no floating-point number
_LARGEST = 1e60  # squares of scores of such entries do not overflow
_STEPS_PER_DEVIATION = 16
_DEVIATIONS = 40  # beyond them the normal density is no floating-point number

# ------------------------------------------------------------------------------------------------ bounds


def quantiser_step(low: float, high: float, bits: int) -> float:
    """Step of a uniform min-max quantiser, s = (max - min) / (2^bits - 1); its error lies in [-s/2, s/2] (formula F14.1).

    Raises
    ------
    DomainError : when bits is not a whole number from 1 to 16, or the range is negative or not finite

    >>> quantiser_step(0, 10, 2)
    3.3333333333333335
    """
    span = domain.finite("high", high) - domain.finite("low", low)
    return domain.not_negative("high - low", span) / _levels(bits)


def quantiser_variance(step: float) -> float:
    """Variance of an error that is spread evenly over one step: s^2 / 12 (formula F14.1).

    It assumes a step much smaller than the spread of the values; the two ends of a min-max group have no error at all.

    Raises
    ------
    DomainError : when the step is negative or not finite, or its square overflows
    """
    size = domain.not_negative("step", step)
    return domain.finite("variance", size * size / 12)


def signal_to_noise_db(bits: int) -> float:
    """Signal-to-noise ratio of a uniform signal that fills the range, 20 log10(2^bits) in decibels, 6.02 a bit (formula F14.1).

    Raises
    ------
    DomainError : when bits is not a whole number from 1 to 16
    """
    return 20 * math.log10(_levels(bits) + 1)


def score_error_bound(query_norm: float, key_error_norm: float, head_dim: int) -> float:
    """Bound of the error of a score q k / sqrt(d_h), by Cauchy and Schwarz: ||q|| ||dk|| / sqrt(d_h) (formula F14.2).

    Raises
    ------
    DomainError : when a norm is negative or not finite, their bound overflows, or head_dim is not a whole number of at least 1
    """
    norms = domain.not_negative("query_norm", query_norm) * domain.not_negative("key_error_norm", key_error_norm)
    return domain.finite("bound", norms / math.sqrt(domain.count("head_dim", head_dim)))


@dataclass(frozen=True, slots=True)
class WeightErrorBounds:
    """How far softmax weights p' can be from p.

    Parameters
    ----------
    least_ratio, most_ratio : of p'_i / p_i
    divergence : KL(p || p') in nats
    total_variation : half the sum of |p'_i - p_i|
    """

    least_ratio: float
    most_ratio: float
    divergence: float
    total_variation: float


def weight_error_bounds(score_error: float) -> WeightErrorBounds:
    """Bounds of the change of softmax weights when no score is off by more than x (formula F14.3).

        e^(-2 x) <= p'_i / p_i <= e^(2 x),  KL(p || p') <= x^2 / 2,  TV(p, p') <= tanh(x / 2)

    The bound of KL is Hoeffding's lemma on the scores' errors, which span at most 2 x.

    Raises
    ------
    DomainError : when the error is negative or above 350, where the ratio is no floating-point number

    >>> weight_error_bounds(0.1).total_variation
    0.04995837495787998
    """
    if domain.not_negative("score_error", score_error) > _MOST_SCORE_ERROR:
        raise DomainError("score_error", got=score_error, wanted=f"at most {_MOST_SCORE_ERROR:g}")
    ratio = math.exp(2 * score_error)
    return WeightErrorBounds(1 / ratio, ratio, score_error**2 / 2, math.tanh(score_error / 2))


def output_error_bound(value_error_norm: float, total_variation: float, value_norm: float) -> float:
    """Bound of the error of one query's output: max||dv|| + 2 TV max||v|| (formula F14.4).

    Parameters
    ----------
    value_error_norm, value_norm : largest norms of an error of a value vector, and of a value vector as it was

    Raises
    ------
    DomainError : when a norm is negative or not finite, their bound overflows, or the total variation not in [0, 1]
    """
    moved = 2 * domain.probability("total_variation", total_variation) * domain.not_negative("value_norm", value_norm)
    return domain.finite("bound", domain.not_negative("value_error_norm", value_error_norm) + moved)


def averaged_error_variance(value_error_variance: float, weights: Sequence[float]) -> float:
    """Variance of an output element when errors of values are independent: they average, s^2 sum p_i^2 (formula F14.4).

    Raises
    ------
    DomainError : when the variance is negative or not finite, or the weights do not sum to one
    """
    shares = math.fsum(weight * weight for weight in domain.distribution("weights", weights))
    return domain.finite("variance", domain.not_negative("value_error_variance", value_error_variance) * shares)


def expected_normal_range(count: int) -> float:
    """Expected range (maximum less minimum) of independent standard normals: the integral of 1 - F^n - (1 - F)^n (formula F14.5).

    Over a quantiser's levels it is the step of a group without outliers. F is the normal distribution function; the trapezoidal rule is
    exact to rounding for so smooth an integrand. Source: Tippett 1925.

    Raises
    ------
    DomainError : when count is not a whole number of at least 2
    """
    domain.count("count", count, 2)

    def density(x: float) -> float:
        above = math.erfc(x / math.sqrt(2)) / 2
        return -math.expm1(count * math.log1p(-above)) - above**count

    # The integrand is even: twice the half from zero on, whose first point counts half.
    points = [density(step / _STEPS_PER_DEVIATION) for step in range(1, _DEVIATIONS * _STEPS_PER_DEVIATION)]
    return (density(0.0) + 2 * math.fsum(points)) / _STEPS_PER_DEVIATION


def _levels(bits: int) -> int:
    """Steps between the least and the greatest code."""
    if domain.count("bits", bits) > _MOST_BITS:
        raise DomainError("bits", got=bits, wanted=f"at most {_MOST_BITS}")
    return int(2**bits - 1)


# ------------------------------------------------------------------------------------------------ measured


@dataclass(frozen=True, slots=True)
class AttentionError:
    """How far attention is off with keys and values as they are stored. One figure hides what another shows: report them together.

    Parameters
    ----------
    relative_key_error, relative_value_error : ||X' - X|| / ||X|| over the whole array (Frobenius)
    score_rms : root mean square of the scores' errors
    divergence : mean of KL(p || p') over the queries, in nats
    total_variation : mean of TV(p, p') over the queries
    output_error : mean norm of the outputs' errors
    output_cosine : mean cosine between outputs with and without the error
    """

    relative_key_error: float
    relative_value_error: float
    score_rms: float
    divergence: float
    total_variation: float
    output_error: float
    output_cosine: float


def quantise(values: ArrayLike, bits: int, per: Per, group: int = 32) -> Matrix:
    """Quantise an array of tokens by channels and give back what is then read (formula F14.1, F14.5).

    Asymmetric min-max groups with exact scales and zero points, rounding half to even. Left out: the rounding of scales to 16 bits, and
    recent tokens that an engine keeps as they are.

    Parameters
    ----------
    per : "channel" groups along tokens of one channel (KIVI's keys), "token" along channels of one token (its values)
    group : values that share a scale

    Raises
    ------
    DomainError : when bits is not a whole number from 1 to 16, the array is no matrix of numbers within 1e60, groups do not divide it, or
        there is no such way to group

    >>> quantise([[0, 1, 2, 3, 10]], 2, "token", 5).round(2).tolist()
    [[0.0, 0.0, 3.33, 3.33, 10.0]]
    """
    import numpy as np

    domain.one_of("per", per, get_args(Per))
    matrix = _matrix("values", values)
    lines = matrix if per == "token" else matrix.T
    if lines.shape[1] % domain.count("group", group):
        raise DomainError("group", got=group, wanted=f"a divisor of {lines.shape[1]}")
    groups = lines.reshape(-1, group)
    low, high = groups.min(axis=1, keepdims=True), groups.max(axis=1, keepdims=True)
    step = (high - low) / _levels(bits)
    codes = np.rint((groups - low) / np.where(step > 0, step, 1.0))
    read: Matrix = (codes * step + low).reshape(lines.shape)
    return read if per == "token" else read.T


def attention_error(
    queries: ArrayLike, keys: ArrayLike, values: ArrayLike, stored_keys: ArrayLike, stored_values: ArrayLike
) -> AttentionError:
    """Compare attention over keys and values with attention over what a cache holds of them (formula F14.5).

    One head, scores q k / sqrt(d_h), no mask.

    Parameters
    ----------
    queries : one row each
    keys, values, stored_keys, stored_values : one row per token

    Raises
    ------
    DomainError : when an array is no matrix of numbers within 1e60, shapes do not fit, or keys, values or the output of a query are zero
    """
    import numpy as np

    query = _matrix("queries", queries)
    key, value = _matrix("keys", keys, columns=query.shape[1]), _matrix("values", values)
    if len(key) != len(value):
        raise DomainError("values", got=f"{len(value)} rows", wanted=f"{len(key)}, one for each key")
    stored_key = _matrix("stored_keys", stored_keys, *key.shape)
    stored_value = _matrix("stored_values", stored_values, *value.shape)
    scores, log_weights = _log_softmax(query, key)
    stored_scores, stored_log_weights = _log_softmax(query, stored_key)
    weights, stored_weights = np.exp(log_weights), np.exp(stored_log_weights)
    output, stored_output = weights @ value, stored_weights @ stored_value
    return AttentionError(
        relative_key_error=_relative("keys", key, stored_key),
        relative_value_error=_relative("values", value, stored_value),
        score_rms=float(np.sqrt(np.mean((stored_scores - scores) ** 2))),
        divergence=float(np.mean(np.sum(weights * (log_weights - stored_log_weights), axis=1))),
        total_variation=float(np.mean(np.abs(stored_weights - weights).sum(axis=1)) / 2),
        output_error=float(np.mean(np.linalg.norm(stored_output - output, axis=1))),
        output_cosine=_mean_cosine(output, stored_output),
    )


def quantised_attention_error(
    queries: ArrayLike,
    keys: ArrayLike,
    values: ArrayLike,
    bits: int,
    *,
    keys_per: Per | None,
    values_per: Per | None,
    group: int = 32,
) -> AttentionError:
    """Error of attention when keys, values or both are quantised; None leaves them as they are (formula F14.5).

    With outlier channels, a group of keys along channels takes the outlier's range, so that keys want groups per channel; values have
    no such channels, and groups per token let a new token be stored at once (KIVI, arXiv 2402.02750).

    Raises
    ------
    DomainError : as in :func:`quantise` and :func:`attention_error`
    """
    stored_keys = keys if keys_per is None else quantise(keys, bits, keys_per, group)
    stored_values = values if values_per is None else quantise(values, bits, values_per, group)
    return attention_error(queries, keys, values, stored_keys, stored_values)


def _matrix(what: str, array: ArrayLike, rows: int | None = None, columns: int | None = None) -> Matrix:
    import numpy as np

    wanted = f"a matrix of numbers between -{_LARGEST:g} and {_LARGEST:g}"
    try:
        given = np.asarray(array)
    except ValueError:
        raise DomainError(what, got="rows of unequal lengths", wanted=wanted) from None
    if given.dtype.kind not in "iuf":
        raise DomainError(what, got=f"values of type {given.dtype}", wanted=wanted)
    matrix: Matrix = given.astype(np.float64)
    if matrix.ndim != 2 or not matrix.size or not (np.abs(matrix) <= _LARGEST).all():
        raise DomainError(what, got=f"an array of shape {matrix.shape}", wanted=wanted)
    shape = (rows or matrix.shape[0], columns or matrix.shape[1])
    if matrix.shape != shape:
        raise DomainError(what, got=f"shape {matrix.shape}", wanted=f"shape {shape}")
    return matrix


def _log_softmax(query: Matrix, key: Matrix) -> tuple[Matrix, Matrix]:
    """Scores, and the logarithms of their weights: they stay finite where a weight underflows to zero."""
    import numpy as np

    scores: Matrix = query @ key.T / math.sqrt(query.shape[1])
    return scores, scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)


def _relative(what: str, exact: Matrix, stored: Matrix) -> float:
    import numpy as np

    size = domain.positive(f"norm of {what}", float(np.linalg.norm(exact)))
    return float(np.linalg.norm(stored - exact)) / size


def _mean_cosine(first: Matrix, second: Matrix) -> float:
    import numpy as np

    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    domain.positive("norm of an output", float(norms.min()))
    return float(np.mean((first * second).sum(axis=1) / norms))
