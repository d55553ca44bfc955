"""Two rooflines such as people write on the back of an envelope: of one prompt and of one step, without queue, interference or fixed times.

They get the best inputs that we have: our counts of parameters, bytes and FLOP, dense nominal rates, the mean lengths of the client and
the cache's format of the launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofplan.planner.costs import Load
from roofplan.planner.formats import main_class
from roofplan.planner.parameters import count_parameters, stored_bytes
from roofplan.planner.step import StepModel

if TYPE_CHECKING:
    from roofplan.planner.deployment import Deployment

READ_SHARE, COMPUTE_SHARE = 0.85, 0.5  # of nominal rates, as blog posts have them


def overlapped(d: Deployment) -> tuple[float, float]:
    """TTFT and TPOT in seconds as max(bytes / bandwidth, FLOP / peak) of one rank at nominal rates, with everything overlapping.

    Bytes are those of weights (of the experts that a batch reaches) and of the cache; links cost nothing.
    """
    model, workload = StepModel.of(d), d.workload

    def bound_s(load: Load) -> float:
        flop, weights, cache = model.totals(load)
        return max((weights + cache) / d.hardware.memory.bandwidth, flop / _peak(d))

    decode = Load(d.sequences_per_replica, workload.mean_context)
    return bound_s(Load(0, 0, chunk=workload.prompt)), bound_s(decode)


def blog_rule(d: Deployment) -> tuple[float, float]:
    """TTFT = 2 N prompt / (0.5 peak) and TPOT = weight bytes / (0.85 bandwidth), in seconds, with N the parameters that a token uses.

    All devices work together at no cost; batch, context and cache do not count.
    """
    devices = d.layout.tp * d.layout.pp * d.layout.dp
    flop = 2 * count_parameters(d.model).active * d.workload.prompt
    ttft_s = flop / (COMPUTE_SHARE * _peak(d) * devices)
    return ttft_s, stored_bytes(d.model, d.formats) / (READ_SHARE * d.hardware.memory.bandwidth * devices)


def _peak(d: Deployment) -> float:
    """Dense rate of the arithmetic in which most of the work is done."""
    rate = d.hardware.peak.rate(d.formats.arithmetic(main_class(d.model), d.hardware))
    assert rate is not None
    return rate
