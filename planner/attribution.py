"""What a figure of a step model goes to: arithmetic, weights, cache, activations, links, and what is neither work nor traffic.

Two answers that differ are given for each, since bounds hide one another: by how much the figure drops when the term costs nothing, and its
elasticity to the term. Drops of terms that wait for one another overlap or vanish; elasticities always sum to one, because doubling all
terms doubles every time.

Sources: formulas F18.2, F18.4 (own derivations). See :mod:`~roofplan.planner.uncertainty` for both on figures without a step model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from . import domain
from .costs import Collective
from .uncertainty import attribution, elasticity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .costs import Cost, Load, Operator
    from .kernel_times import OperatorTime
    from .step import Grouping, StepModel

TERMS = ("compute", "weights", "cache", "activations", "link", "overhead")


@dataclass(frozen=True, slots=True)
class Attribution:
    """A term of a figure: seconds by which the figure drops without it, and its elasticity: the share of the time that it binds."""

    drop_s: float
    share: float


def step_attribution(model: StepModel, load: Load, grouping: Grouping = "operators") -> dict[str, Attribution]:
    """Attribution of one step, see :func:`figure_attribution` (formula F18.4).

    The shares of a decode step that is bound by memory are those of its bytes (formula F18.2). Groupings other than ``operators`` leave
    activations and overheads out.

    Raises
    ------
    DomainError : when the step takes no time, or for a grouping that there is not
    """
    domain.grouping(grouping)
    held = {name: getattr(load, name) for name in ("decoders", "context", "verify", "chunk", "past", "pieces")}
    return figure_attribution(model, lambda scaled: float(scaled.step_s(**held, grouping=grouping)))


def figure_attribution(model: StepModel, figure: Callable[[StepModel], float]) -> dict[str, Attribution]:
    """Attribution of any time that follows from a step model, such as a TTFT, to its terms (formulas F18.2, F18.4).

    - ``compute``: FLOP of all operators; ``weights``, ``cache``, ``activations``: bytes that they move;
    - ``link``: exchanges between devices, their latency included; ``overhead``: fixed times of kernels, and the host.

    Parameters
    ----------
    figure : a time in seconds as a function of the model

    Raises
    ------
    DomainError : when the figure is not a finite number above zero

    Attention over latents keeps the form that was the faster one before a term was changed.
    """

    def at(scales: Mapping[str, float]) -> float:
        return figure(_scaled(model, scales))

    whole = dict.fromkeys(TERMS, 1.0)
    drops = attribution(whole, at)

    def changed(term: str, scale: float) -> float:
        return at({**whole, term: scale})

    return {term: Attribution(drops[term], elasticity(partial(changed, term))) for term in TERMS}


@dataclass(frozen=True, slots=True)
class _Scaled:
    """An operator whose FLOP and bytes are multiplied."""

    operator: Operator
    compute: float
    weights: float
    cache: float
    activations: float

    def cost(self, load: Load) -> Cost:
        flop, weights, cache, other = self.operator.cost(load)
        return flop * self.compute, weights * self.weights, cache * self.cache, other * self.activations

    def __getattr__(self, name: str) -> Any:
        return getattr(self.operator, name)


def _scaled(model: StepModel, scales: Mapping[str, float]) -> StepModel:
    """The model with each term multiplied."""
    link, overhead = scales["link"], scales["overhead"]
    moved = {name: scales[name] for name in ("compute", "weights", "cache", "activations")}
    operators, times = [], []
    for operator, time in zip(model.operators, model.times, strict=True):
        if isinstance(operator, Collective):
            operators.append(cast("Operator", operator))
            times.append(_exchanged(time, link))
        else:
            operators.append(cast("Operator", _Scaled(operator, **moved)))
            times.append(replace(time, fixed_s=time.fixed_s * overhead))
    host = model.host
    return replace(
        model,
        operators=tuple(operators),
        times=tuple(times),
        efficiency=replace(model.efficiency, collective_latency_s=model.efficiency.collective_latency_s * link),
        host=replace(
            host,
            per_step_s=host.per_step_s * overhead,
            per_sequence_s=host.per_sequence_s * overhead,
            prompt_floor_s=host.prompt_floor_s * overhead,
        ),
    )


def _exchanged(time: OperatorTime, scale: float) -> OperatorTime:
    exchange = time.exchange
    if exchange is not None:
        if scale:
            by = math.log(scale)
            exchange = replace(exchange, log_s=tuple(log_s + by for log_s in exchange.log_s))
        else:
            exchange = None
    return replace(time, fixed_s=time.fixed_s * scale, s_per_byte=time.s_per_byte * scale, exchange=exchange)
