"""How long an operator takes on kernels as they are reached: a fixed time per launch, and shares of the nominal rates.

Sources: the forms are those of formulas F1.3 and F12.4; the constants come from ``hardware/kernels`` (by family of devices) and from the
engine profile (what an engine fuses, and which kernel it exchanges with).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..hardware.achieved import choose
from .costs import (
    ActivationTraffic,
    Collective,
    Elementwise,
    Experts,
    Gemm,
    LatentScores,
    LayerFloor,
    Scores,
    StateUpdate,
)

if TYPE_CHECKING:
    from ..engines.timing import Timing
    from ..hardware.achieved import Exchange, Kernel, Kernels
    from .costs import Amount, Operator
    from .deployment import Deployment

_NARROW = frozenset({"fp8", "int8", "fp4", "int4"})  # products whose activations are quantised first


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """The time of one operator as a function of its work: ``fixed_s + (flop s_per_flop) (+)_p (bytes s_per_byte)``.

    Parameters
    ----------
    fixed_s : of all its launches
    s_per_flop, s_per_byte : inverse rates that are reached
    overlap : p of the join, or None for the larger of both
    ramp_tokens : attention of prompts is longer by 1 + ramp / (tokens at the end of the piece)
    exchange : of a collective: its measured times
    """

    fixed_s: float
    s_per_flop: float
    s_per_byte: float
    overlap: float | None = None
    ramp_tokens: float = 0.0
    exchange: ExchangeTimes | None = None


@dataclass(frozen=True, slots=True)
class ExchangeTimes:
    """Seconds of one exchange by bytes of its message: interpolated in both logarithms, constant below, proportional above."""

    log_bytes: tuple[float, ...]
    log_s: tuple[float, ...]

    @classmethod
    def of(cls, measured: Exchange) -> ExchangeTimes:
        """Take the logarithms of a table once."""
        return cls(
            tuple(math.log(size) for size in measured.bytes), tuple(math.log(time * 1e-6) for time in measured.us)
        )

    def __call__(self, message_bytes: Amount) -> Amount:
        """Seconds of one exchange."""
        if not isinstance(message_bytes, (int, float)):
            return self._of_array(message_bytes)
        sizes, times = self.log_bytes, self.log_s
        size = math.log(message_bytes) if message_bytes > 0 else sizes[0]
        if size <= sizes[0]:
            return math.exp(times[0])
        if size >= sizes[-1]:
            return math.exp(times[-1] + size - sizes[-1])
        after = bisect_right(sizes, size)
        share = (size - sizes[after - 1]) / (sizes[after] - sizes[after - 1])
        return math.exp(times[after - 1] + share * (times[after] - times[after - 1]))

    def _of_array(self, message_bytes: Amount) -> Amount:
        import numpy as np

        size = np.log(np.maximum(message_bytes, math.exp(self.log_bytes[0])))
        beyond = np.maximum(size - self.log_bytes[-1], 0)
        return np.exp(np.interp(size, self.log_bytes, self.log_s) + beyond)


def nominal_time(d: Deployment, operator: Operator) -> OperatorTime:
    """The time of an operator at nominal rates.

    Where a link between the devices is unknown its bytes cost nothing: the caller warns of it.
    """
    hardware = d.hardware
    if isinstance(operator, Collective):
        link = hardware.link(operator.ranks)
        return OperatorTime(0.0, 0.0, 1 / link.among(operator.ranks) if link else 0.0)
    if isinstance(operator, ActivationTraffic):
        return OperatorTime(0.0, 0.0, 0.0)  # not of the roofline
    rate = hardware.peak.rate(operator.arithmetic)
    return OperatorTime(0.0, 1 / rate if rate else 0.0, 1 / hardware.memory.bandwidth)


def reached_time(d: Deployment, kernels: Kernels, operator: Operator) -> OperatorTime:
    """The time of an operator on the kernels of a device, as the deployment's engine launches them."""
    nominal, timing = nominal_time(d, operator), d.engine.timing
    match operator:
        case Collective():
            return _exchange_time(kernels, timing, operator, nominal)
        case LayerFloor():
            return replace(nominal, fixed_s=operator.launches * getattr(kernels.floors, operator.kind))
        case ActivationTraffic():
            passes = timing.layer_passes if operator.kind == "layer" else timing.expert_passes
            rate = d.hardware.memory.bandwidth * kernels.elementwise.bandwidth
            return OperatorTime(0.0, 0.0, passes / rate)
        case Gemm():
            kernel = choose(kernels.gemm, operator.arithmetic)
            return _at(nominal, kernel, operator.launches * _kept_share(operator, timing))
        case Experts():
            bits = d.formats.weights["experts"].bits
            return _at(nominal, choose(kernels.experts, operator.arithmetic, bits), operator.launches)
        case Scores() | LatentScores():
            if operator.phase == "prefill":
                return _at(nominal, kernels.prefill_attention, operator.launches)
            return _at(
                nominal, choose(kernels.decode_attention, operator.arithmetic, d.formats.kv.bits), operator.launches
            )
        case StateUpdate():
            return _at(nominal, kernels.state, operator.launches)
        case Elementwise():
            return _at(nominal, kernels.elementwise, operator.launches * timing.small_kernels)


def _at(nominal: OperatorTime, kernel: Kernel, launches: float) -> OperatorTime:
    return OperatorTime(
        launches * kernel.floor,
        nominal.s_per_flop / kernel.compute,
        nominal.s_per_byte / kernel.bandwidth,
        kernel.overlap,
        kernel.ramp_tokens,
    )


def _kept_share(operator: Gemm, timing: Timing) -> float:
    """Engines quantise activations within the kernel before: a part of the fixed time of narrow products falls away."""
    return 1 - timing.fused_quantisation if operator.arithmetic in _NARROW else 1.0


def _exchange_time(kernels: Kernels, timing: Timing, operator: Collective, nominal: OperatorTime) -> OperatorTime:
    """Measured times of the first kernel of the engine's list that is known among so many ranks, else the usual ones of it."""
    for name in timing.exchange_kernels:
        for known in kernels.collectives:
            if (known.operation, known.kernel, known.ranks) == (operator.operation, name, operator.ranks):
                return replace(nominal, exchange=ExchangeTimes.of(known))
    usual = [known for known in kernels.collective if known.operation == operator.operation] or list(kernels.collective)
    named = [known for known in usual if known.kernel == timing.exchange_kernels[0]] or usual
    nearest = min(named, key=lambda known: abs(math.log(known.ranks / operator.ranks)))
    return OperatorTime(operator.count * nearest.floor, 0.0, nominal.s_per_byte / nearest.bandwidth)
