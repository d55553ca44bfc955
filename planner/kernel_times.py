"""How long an operator takes on kernels as they are reached: a fixed time per launch, and shares of the nominal rates.

Sources: the forms are those of formulas F1.3 and F12.4; the constants come from ``hardware/kernels`` (by family of devices) and from the
engine profile (what an engine fuses, and which kernel it exchanges with).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import DomainError
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
    from collections.abc import Sequence

    from ..engines.timing import Timing
    from ..hardware.achieved import Exchange, Kernel, Kernels, UsualExchange
    from .costs import Amount, Operator
    from .deployment import Deployment

_SAME_LINK = 0.1  # rates of links that differ by less are those of one kind of link
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
    if isinstance(operator, Collective):
        return _exchange_time(d, kernels, operator, nominal)
    if isinstance(operator, LayerFloor):
        return replace(nominal, fixed_s=operator.launches * getattr(kernels.floors, operator.kind))
    if isinstance(operator, ActivationTraffic):
        passes = {"layer": timing.layer_passes, "expert": timing.expert_passes, "gate": 1.0}[operator.kind]
        return replace(nominal, s_per_byte=passes / (d.hardware.memory.bandwidth * kernels.elementwise.bandwidth))
    return _at(nominal, *_kernel_of(d, kernels, operator))


def _kernel_of(
    d: Deployment, kernels: Kernels, operator: Gemm | Experts | Scores | LatentScores | StateUpdate | Elementwise
) -> tuple[Kernel, float]:
    """The kernel of an operator, and how many launches of it there are."""
    timing, launches = d.engine.timing, operator.launches
    match operator:
        case Gemm():
            kernel = choose(kernels.gemm, operator.arithmetic)
            if operator.arithmetic in _NARROW and timing.narrow_compute != 1:
                kernel = kernel.scaled(1.0, timing.narrow_compute)
            return kernel, launches * _kept_share(operator, timing)
        case Experts():
            return choose(kernels.experts, operator.arithmetic, d.formats.weights["experts"].bits), launches
        case Scores(phase="prefill") | LatentScores(phase="prefill"):
            return kernels.prefill_attention, launches
        case Scores() | LatentScores():
            return choose(kernels.decode_attention, operator.arithmetic, d.formats.kv.bits), launches
        case StateUpdate():
            return kernels.state, launches
        case Elementwise():
            return kernels.elementwise, launches * timing.small_kernels


def _at(nominal: OperatorTime, kernel: Kernel, launches: float) -> OperatorTime:
    return OperatorTime(
        launches * kernel.floor,
        nominal.s_per_flop / kernel.compute,
        nominal.s_per_byte / kernel.bandwidth,
        kernel.overlap,
        kernel.ramp_tokens,
    )


def _kept_share(operator: Gemm, timing: Timing) -> float:
    """The share of its fixed time that a product adds to a step.

    Engines quantise activations within the kernel before, so that a part of it falls away for narrow products; and some compute the shared
    expert beside the routed ones, whose kernels are longer: its bytes still count.
    """
    if timing.shared_experts_beside and operator.name.startswith("shared."):
        return 0.0
    return 1 - timing.fused_quantisation if operator.arithmetic in _NARROW else 1.0


def measured_exchange(d: Deployment, kernels: Kernels, operation: str, ranks: int) -> Exchange | None:
    """The table of the first kernel of the engine's list that was measured among so many ranks, over such a link as the device has."""
    link = d.hardware.link(ranks)
    if kernels.link is not None and (
        link is None or not math.isclose(link.per_direction, kernels.link, rel_tol=_SAME_LINK)
    ):
        return None
    known = {k.kernel: k for k in kernels.collectives if (k.operation, k.ranks) == (operation, ranks)}
    return next((known[name] for name in d.engine.timing.exchange_kernels if name in known), None)


def _exchange_time(d: Deployment, kernels: Kernels, operator: Collective, nominal: OperatorTime) -> OperatorTime:
    measured = measured_exchange(d, kernels, operator.operation, operator.ranks)
    if measured is not None:
        return replace(nominal, exchange=ExchangeTimes.of(measured))
    link, names = d.hardware.link(operator.ranks), d.engine.timing.exchange_kernels
    usual = _usual_exchange(kernels.collective, operator, link.topology if link else "", names)
    return OperatorTime(operator.count * usual.floor, 0.0, nominal.s_per_byte / usual.bandwidth)


def _usual_exchange(
    usual: Sequence[UsualExchange], operator: Collective, topology: str, names: Sequence[str]
) -> UsualExchange:
    """The entry for devices that are joined so, else for any; of the first kernel of the engine's list, and of the nearest ranks."""
    if not usual:
        raise DomainError("kernels", got="those of a device alone", wanted="those of several (hardware.kernels_of)")
    same = [known for known in usual if known.operation == operator.operation] or usual
    joined = [known for known in same if topology in known.topologies] or [
        known for known in same if not known.topologies
    ]
    named = next((own for name in names if (own := [known for known in joined if known.kernel == name])), joined)
    return min(named, key=lambda known: abs(math.log(known.ranks / operator.ranks)))
