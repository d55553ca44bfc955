"""Robust least squares of log(predicted/measured): Levenberg-Marquardt with the soft-L1 loss, on numpy alone.

Minimised is sum_i w_i 2 s^2 (sqrt(1 + (r_i/s)^2) - 1) with r_i = log(predicted_i/measured_i) and s = :data:`SCALE`: quadratic for errors
below about 10 %, linear beyond, so that a few slow rows do not decide a constant. Each step solves the weighted normal equations of the
linearised problem (Triggs et al. 2000, with the weights of iterated reweighting).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

SCALE = 0.10
_STEPS, _REL_STEP, _CONVERGED = 200, 1e-6, 1e-10
_DAMPING = (1e-3, 1e12)  # first, and the one at which no step helps any more


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a constant starts, and the closed interval that it stays in; all above zero, since it moves by factors."""

    start: float
    low: float
    high: float


def minimise(predict: Callable[[Array], Array], measured: Array, weights: Array, bounds: list[Bound]) -> Array:
    """The constants inside their bounds whose predictions are nearest to what was measured.

    Raises
    ------
    DomainError : for fewer rows than constants, and for times that are not above zero
    """
    if len(measured) < len(bounds):
        raise DomainError("rows", got=len(measured), wanted=f"at least {len(bounds)}, one for each constant")
    if not np.all(measured > 0):
        raise DomainError("measured", got=float(measured.min()), wanted="times above zero")
    low, high = np.log([b.low for b in bounds]), np.log([b.high for b in bounds])
    target = np.log(measured)

    def residuals(x: Array) -> Array:
        return np.log(predict(np.exp(x))) - target

    x = np.clip(np.log([b.start for b in bounds]), low, high)
    at, damping = residuals(x), _DAMPING[0]
    for _ in range(_STEPS):
        slopes = np.column_stack([(residuals(x + step) - at) / _REL_STEP for step in _REL_STEP * np.eye(len(x))])
        scaled = slopes * (weights / np.sqrt(1 + (at / SCALE) ** 2))[:, None]
        gradient, curvature = scaled.T @ at, scaled.T @ slopes
        free = ~(((x <= low) & (gradient > 0)) | ((x >= high) & (gradient < 0)))
        before, moved = loss(at, weights), 0.0
        while damping < _DAMPING[1] and free.any():
            chosen = np.ix_(free, free)
            eased = curvature[chosen] + damping * np.diag(np.diag(curvature[chosen]) + 1e-12)
            tried = x.copy()
            tried[free] = np.clip(x[free] - np.linalg.solve(eased, gradient[free]), low[free], high[free])
            there = residuals(tried)
            if loss(there, weights) < before:
                moved = float(np.max(np.abs(tried - x)))
                x, at, damping = tried, there, damping / 10
                break
            damping *= 10
        if moved < _CONVERGED:
            break
    found: Array = np.exp(x)
    return found


def loss(residuals: Array, weights: Array) -> float:
    """The soft-L1 loss of residuals."""
    return float(np.sum(weights * 2 * SCALE**2 * (np.sqrt(1 + (residuals / SCALE) ** 2) - 1)))
