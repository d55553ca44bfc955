"""How uncertain a time is, and what makes it so: intervals, elasticities, combined errors, and attribution.

An elasticity is d ln t / d ln x: by how many percent a time changes when x changes by one percent.
Sources: formulas F18.1 to F18.4 (own derivations, checked by sampling).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ..errors import DomainError
from .domain import at_least, finite, not_negative, pairs, positive, probability
from .domain import grouping as checked_grouping
from .roofline import smooth_max

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .costs import Amount, Load
    from .step import Efficiency, Grouping, StepModel

_STEP = 1e-4  # of ln x: the error of a central difference is its square, and rounding costs as little
_EFFICIENCIES = ("compute", "bandwidth", "collective_latency_s")
_LOADS = ("decoders", "context", "verify", "chunk", "past")


@dataclass(frozen=True, slots=True)
class Interval:
    """The smallest and the largest value that a figure takes."""

    low: float
    high: float


def interval(model: StepModel, one: Efficiency, other: Efficiency, figure: Callable[[StepModel], float]) -> Interval:
    """Range of a figure between two efficiencies, such as the lowest and the highest of a calibration (formula F18.1).

    The figure is evaluated at both ends, which encloses all between for whatever only rises or only falls with efficiency: a step does.

    Raises
    ------
    DomainError : for a share of a rate outside (0, 1], a negative latency, or a figure that is no finite number
    """
    for end in (one, other):
        positive("compute", probability("compute", end.compute))
        positive("bandwidth", probability("bandwidth", end.bandwidth))
        not_negative("collective_latency_s", end.collective_latency_s)
    found = [finite("figure", figure(model.at(end))) for end in (one, other)]
    return Interval(min(found), max(found))


# ------------------------------------------------------------------------------------------------ elasticities


def elasticity(figure: Callable[[float], float], at: float = 1.0) -> float:
    """Elasticity of any figure, by a central difference: (ln f(x e^h) - ln f(x e^-h)) / (2 h) (formula F18.2).

    Where two bounds are equal at x, the figure has a kink there, and this is the mean of both sides.

    Raises
    ------
    DomainError : when x or a value of the figure is not a finite number above zero

    >>> round(elasticity(lambda length: 3 * length**2, 7.0), 6)
    2.0
    """
    here = positive("at", at)
    points = [positive("at", here * math.exp(side * _STEP)) for side in (1, -1)]
    above, below = (positive("figure", figure(point)) for point in points)
    return math.log(positive("change of the figure", above / below)) / (2 * _STEP)


def step_elasticities(model: StepModel, load: Load, grouping: Grouping = "operators") -> dict[str, float]:
    """Elasticities of a step to each efficiency and each number of its load that is not zero, by differences (formula F18.2).

    Keys are the fields of ``Efficiency`` and of ``Load``.

    Raises
    ------
    DomainError : when the step takes no time, or for a grouping that there is not
    """
    checked_grouping(grouping)
    held = _held(load)
    reached: dict[str, float] = {name: getattr(model.efficiency, name) for name in _EFFICIENCIES}

    def step_s(name: str, value: float) -> float:
        at = model.at(replace(model.efficiency, **{name: value})) if name in reached else model
        values = held | {name: value} if name in held else held
        return float(at.step_s(**values, grouping=grouping))

    return {name: elasticity(partial(step_s, name), value) for name, value in (reached | held).items() if value}


@dataclass(frozen=True, slots=True)
class RateElasticities:
    """Elasticities of a step to its efficiencies: the first two are negative; the shares of time that they stand for sum to one."""

    compute: float
    bandwidth: float
    collective_latency: float


def rate_elasticities(model: StepModel, load: Load) -> RateElasticities:
    """Elasticities of a step to its efficiencies in closed form: minus the share of time that each rate limits (formula F18.2).

    With t = sum_i max(c_i / e_c, m_i / e_m) + a: d ln t / d ln e_c = - sum of the compute-bound terms / t, likewise for e_m, and a / t for
    the latency of collectives. Holds away from kinks; link traffic scales with e_m, as in ``StepModel``.

    Raises
    ------
    DomainError : when the step takes no time
    """
    held = _held(load)
    total = positive("step_s", float(model.step_s(**held)))
    without = float(model.at(replace(model.efficiency, collective_latency_s=0.0)).step_s(**held))
    compute = math.fsum(cost.time_s for cost in model.costs(load) if cost.bound == "compute")
    return RateElasticities(
        compute=-compute / total, bandwidth=-(without - compute) / total, collective_latency=(total - without) / total
    )


def _held(load: Load) -> dict[str, Amount]:
    return {name: getattr(load, name) for name in _LOADS}


@dataclass(frozen=True, slots=True)
class ByteShares:
    """Parts of a step's traffic; of a memory-bound step also its elasticities to the bytes of weights and of the cache."""

    weights: float
    cache: float


def byte_shares(model: StepModel, load: Load) -> ByteShares:
    """Elasticities of a memory-bound step to weight and cache bytes, W / (W + B L c) and the rest (formula F18.2).

    The second is also the elasticity to context and batch. Only products and attention are counted, as in ``StepModel.totals``.

    Raises
    ------
    DomainError : when the step reads nothing
    """
    _, weights, cache = model.totals(load)
    read = positive("bytes", float(weights + cache))
    return ByteShares(float(weights) / read, float(cache) / read)


def smooth_max_shares(compute_s: float, memory_s: float, p: float) -> tuple[float, float]:
    """Elasticities of a smooth maximum to its two times, (t_i / t)^p; they sum to one (formula F18.2).

    Raises
    ------
    DomainError : for a p that is not a finite number of at least 1, times that are negative, or two times of zero

    >>> tuple(round(share, 12) for share in smooth_max_shares(1.0, 1.5, 4))
    (0.164948453608, 0.835051546392)
    """
    at_least("p", p, 1)
    total = positive("the joint time", smooth_max(compute_s, memory_s, p))
    return (compute_s / total) ** p, (memory_s / total) ** p


# ------------------------------------------------------------------------------------------------ combination and attribution


def combined_error(terms: Iterable[tuple[float, float]]) -> float:
    """Relative error of a figure from independent ones of its inputs: sqrt(sum (elasticity error)^2) (formula F18.3).

    First order: errors of some ten percent and more, or a kink within their reach, make the figure's distribution skewed.

    Parameters
    ----------
    terms : of each input, its elasticity and its relative error (one standard deviation, or any other common multiple of it)

    Raises
    ------
    DomainError : for an elasticity that is not finite, or a negative error

    >>> round(combined_error([(-1.0, 0.03), (0.8, 0.05)]), 12)
    0.05
    """
    parts = (finite("elasticity", power) * not_negative("error", error) for power, error in pairs("terms", terms))
    return finite("error", math.hypot(*parts))


def attribution(terms: Mapping[str, float], combined: Callable[[Mapping[str, float]], float]) -> dict[str, float]:
    """By how much a figure drops when one of its terms is set to zero, for each (formula F18.4).

    Where terms hide behind one another (a maximum), the drops sum to less than the figure, and a hidden term has none: give the shares
    of :func:`smooth_max_shares` or :func:`rate_elasticities` beside them. For a step :mod:`~roofplan.planner.attribution` gives both.

    Parameters
    ----------
    terms : named times
    combined : the figure, from all of the terms

    Raises
    ------
    DomainError : for a negative term, or a figure that is no finite number

    >>> attribution({"compute": 2.0, "memory": 3.0}, lambda t: max(t.values()))
    {'compute': 0.0, 'memory': 1.0}
    """
    if not isinstance(terms, Mapping):
        raise DomainError("terms", got=terms, wanted="a time for each name")
    for name, term in terms.items():
        not_negative(name, term)
    whole = finite("figure", combined(terms))
    return {name: whole - finite("figure", combined({**terms, name: 0.0})) for name in terms}
