"""Fitting the activation constants of vLLM on start-up logs: bytes of one logit and workspaces, in the sample and with each model left out.

The form is that of :class:`roofplan.engines.profile.Activations`; fitted are ``logit_bytes`` c and ``constant`` k of the sampling term

    peak - experts - logits R V b_a - T b_a sampled_hidden H = c R V + k

by a straight line through the rows on which sampling is the larger term. The profile's own constants stand beside.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..planner.activations import activation_peak, logit_rows
from . import names
from .memory import deployment_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..planner.deployment import Deployment
    from .truth import TruthRow

FITTED_ON = ("vLLM", "0.19.0", "H100")  # engine, version, and how the device's label begins


@dataclass(frozen=True, slots=True)
class ActivationFit:
    """Constants in bytes, and mean and worst absolute errors in bytes of the logged peaks.

    ``left_out_error_bytes`` is the mean error of rows of a model on whose other rows nothing was fitted.
    """

    rows: int
    models: int
    logit_bytes: float
    constant_bytes: float
    profile_logit_bytes: float
    profile_constant_bytes: int
    error_bytes: float
    worst_error_bytes: float
    left_out_error_bytes: float
    profile_error_bytes: float


@dataclass(frozen=True, slots=True)
class _Sample:
    """One logged peak, and what the form gives beside the fitted constants."""

    model: str
    measured: int
    logits: int  # R V
    sampled: float  # known part of the sampling term
    forward: int
    experts: int

    def predicted(self, logit_bytes: float, constant: float) -> float:
        return max(self.logits * logit_bytes + self.sampled + constant, self.forward) + self.experts


def fit_activations(rows: Iterable[TruthRow]) -> ActivationFit | None:
    """Fit the constants on the rows of :data:`FITTED_ON` that log the peak, without pipelines and float32; None where there are too few."""
    samples: list[_Sample] = []
    profile = None
    for row in rows:
        deployment = _deployment(row)
        measured = row.gib("activation_peak_gib")
        if deployment is not None and measured:
            profile = deployment.engine.activations
            samples.append(_sample(row, deployment, measured))
    models = sorted({sample.model for sample in samples})
    if profile is None or len(models) < 3:
        return None
    fitted = _fit(samples)
    errors = [abs(sample.predicted(*fitted) - sample.measured) for sample in samples]
    left_out = []
    for model in models:
        others = _fit([sample for sample in samples if sample.model != model])
        left_out += [abs(s.predicted(*others) - s.measured) for s in samples if s.model == model]
    own = [abs(s.predicted(profile.logit_bytes, profile.constant) - s.measured) for s in samples]
    return ActivationFit(
        rows=len(samples),
        models=len(models),
        logit_bytes=fitted[0],
        constant_bytes=fitted[1],
        profile_logit_bytes=profile.logit_bytes,
        profile_constant_bytes=profile.constant,
        error_bytes=statistics.fmean(errors),
        worst_error_bytes=max(errors),
        left_out_error_bytes=statistics.fmean(left_out),
        profile_error_bytes=statistics.fmean(own),
    )


def _deployment(row: TruthRow) -> Deployment | None:
    engine, version, device = FITTED_ON
    wanted = (row.text("engine"), row.text("engine_version")) == (engine, version) and row.text("gpu").startswith(
        device
    )
    model = names.model_of(row.text("model"))
    profile = names.engine_of(engine, version, "")
    if not wanted or row.trusted != "yes" or model is None or profile is None:
        return None
    if (row.count("pp") or 1) > 1 or row.text("weights_dtype") == "float32":
        return None
    built = deployment_of(row, model, profile)
    return None if isinstance(built, str) else built


def _sample(row: TruthRow, d: Deployment, measured: int) -> _Sample:
    rows, how = logit_rows(d), d.engine.activations
    peak = activation_peak(d, rows)
    logits = rows * d.model.vocab_size
    known = peak.sampling_bytes - logits * how.logit_bytes - how.constant
    return _Sample(row.text("model"), measured, logits, known, peak.forward_bytes, peak.expert_bytes)


def _fit(samples: Sequence[_Sample]) -> tuple[float, float]:
    """Least squares over the rows on which sampling is the larger term; which those are follows from a first fit over all."""
    chosen = list(samples)
    fitted = (0.0, 0.0)
    for _ in range(2):
        line = statistics.linear_regression(
            [sample.logits for sample in chosen],
            [sample.measured - sample.experts - sample.sampled for sample in chosen],
        )
        fitted = (line.slope, line.intercept)
        larger = [s for s in samples if s.logits * fitted[0] + s.sampled + fitted[1] >= s.forward]
        chosen = larger if len({s.logits for s in larger}) > 1 else chosen
    return fitted
