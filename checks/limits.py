"""Limits of time, rate, cost and energy: the planner's figure beside the limit, and what would hold it.

A limit is missed where the expected figure lies beyond it, and held where it is equal. Each rule about a limit is one row of this form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ..planner.prices import cost_range
from ..planner.ranges import Range
from ..planner.spending import joules_per_token
from ..quantities import show_rate, show_time
from .holding import changes_that_hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..hardware.spec import HardwareSpec
    from ..planner.sizing import SizeResult
    from .checked import Checked
    from .finding import Finding, Rule
    from .holding import Sized
    from .record import Service


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a deployment file.

    Parameters
    ----------
    name : in ``limits``
    what : the figure in words
    unit : of the figure's name in a finding (``s``)
    figure : the planner's figure, or why there is none
    show : prints a value with its unit
    at_least : whether the figure must not be below it (a rate); else not above
    more_requests : whether more requests at a time bring it nearer
    """

    name: str
    what: str
    unit: str
    figure: Callable[[Service, SizeResult], Range | str]
    show: Callable[[float], str]
    at_least: bool = False
    more_requests: bool = False

    def holds(self, figure: Range, limit: float) -> bool:
        """Whether the expected figure is on the right side of the limit."""
        return figure.expected >= limit if self.at_least else figure.expected <= limit


# ------------------------------------------------------------------------------------------------ figures


def _ttft(_: Service, plan: SizeResult) -> Range | str:
    assert plan.times is not None
    return plan.times.latency.ttft_s


def _tpot(_: Service, plan: SizeResult) -> Range | str:
    assert plan.times is not None
    return plan.times.latency.tpot_s or "an output of one token has no gap"


def _e2e(_: Service, plan: SizeResult) -> Range | str:
    assert plan.times is not None
    return plan.times.latency.e2e_s


def _output_tokens_per_s(_: Service, plan: SizeResult) -> Range:
    assert plan.times is not None
    return plan.times.throughput.output_tokens_per_s


def _requests_per_s(service: Service, plan: SizeResult) -> Range | str:
    return _output_tokens_per_s(service, plan).scaled(1 / plan.deployment.workload.output)


def _usd_per_million(service: Service, plan: SizeResult) -> Range | str:
    d = plan.deployment
    price = price_of(service, d.hardware)
    if price is None:
        return f"no price of {d.hardware.name} is known: usd_per_hour says it"
    return cost_range(price * d.layout.devices, _output_tokens_per_s(service, plan))


def price_of(service: Service, device: HardwareSpec) -> float | None:
    """Dollars per hour of one device: the file's, else the catalogue's; None where neither says it."""
    if service.usd_per_hour is not None:
        return service.usd_per_hour.value
    return None if device.price is None else device.price.usd_per_hour


def _joules(service: Service, plan: SizeResult) -> Range | str:
    """Energy of an output token with every device at its limit of power: an upper bound (formula F13.9)."""
    d, rate = plan.deployment, _output_tokens_per_s(service, plan)
    if d.hardware.power is None:
        return f"no power of {d.hardware.name} is known"
    watts = d.hardware.power * d.layout.devices
    return Range(*(joules_per_token(watts, each) for each in (rate.bound, rate.high, rate.expected, rate.low)))


TTFT = Limit("ttft", "the time to first token", "s", _ttft, show_time)
TPOT = Limit("tpot", "the time per output token", "s", _tpot, show_time)
E2E = Limit("e2e", "the time of a whole request", "s", _e2e, show_time)
OUTPUT_RATE = Limit(
    "output_tokens_per_s",
    "the rate of output",
    "tokens_per_s",
    _output_tokens_per_s,
    lambda value: f"{show_rate(value)} tokens/s",
    at_least=True,
    more_requests=True,
)
REQUEST_RATE = Limit(
    "requests_per_s",
    "the rate of requests",
    "requests_per_s",
    _requests_per_s,
    lambda value: f"{show_rate(value)} requests/s",
    at_least=True,
    more_requests=True,
)
COST = Limit(
    "usd_per_million_output_tokens",
    "the cost of a million output tokens",
    "usd",
    _usd_per_million,
    lambda value: f"{show_rate(value)} $",
    more_requests=True,
)
ENERGY = Limit(
    "joules_per_output_token",
    "the energy of an output token, every device at its limit of power,",
    "joules",
    _joules,
    lambda value: f"{show_rate(value)} J",
    more_requests=True,
)
LIMITS = (TTFT, TPOT, E2E, OUTPUT_RATE, REQUEST_RATE, COST, ENERGY)


# ------------------------------------------------------------------------------------------------ findings


def missed(rule: Rule, checked: Checked, limit: Limit) -> Iterator[Finding]:
    """A finding where a limit of the file is missed, or cannot be checked; none where it is not stated, or nothing fits at all.

    Raises
    ------
    Unbuilt : where there is no deployment to size
    """
    said = checked.service.limits.get(limit.name)
    if said is None:
        return
    plan, service = checked.plan, checked.service
    if plan.times is None:
        if not plan.deployment.hardware.has_rates:
            name = plan.deployment.hardware.name
            yield rule.finding(checked, said.place, f"{limit.what} cannot be checked: no dense rate of {name} is known")
        return  # what does not fit is told by the rule about that
    figure, wanted = limit.figure(service, plan), float(said.value)
    if isinstance(figure, str):
        yield rule.finding(checked, said.place, f"{limit.what} cannot be checked: {figure}")
        return
    if limit.holds(figure, wanted):
        return
    price = service.usd_per_hour.value if service.usd_per_hour is not None else None
    text, fix = checked.once(
        f"what holds {limit.name} {wanted!r} at {price!r}", partial(_what_holds, checked, limit, figure, wanted)
    )
    message = f"{limit.what} is {_told(limit, figure)}, the limit is {limit.show(wanted)}: {text}"
    figures = {
        f"expected_{limit.unit}": figure.expected,
        f"limit_{limit.unit}": wanted,
        f"roof_{limit.unit}": figure.bound,
    }
    yield replace(rule.finding(checked, said.place, message, fix=fix), figures=figures)


def _told(limit: Limit, figure: Range) -> str:
    shown = limit.show(figure.expected)
    if figure.low == figure.high:
        return shown
    return f"{shown} (80 % of cases: {limit.show(figure.low)} to {limit.show(figure.high)})"


def _what_holds(checked: Checked, limit: Limit, now: Range, wanted: float) -> tuple[str, str]:
    """Words about what would hold a limit, and the first setting that does."""
    service = checked.service

    def holds(answer: SizeResult) -> bool:
        figure = limit.figure(service, answer)
        return isinstance(figure, Range) and limit.holds(figure, wanted)

    found, tried = changes_that_hold(service, checked.deployment, holds, more_requests=limit.more_requests)
    if not found:
        beyond = now.bound < wanted if limit.at_least else now.bound > wanted
        roof = f"{limit.show(now.bound)} is the roof of this deployment, and " if beyond else ""
        return f"{roof}no single change that was tried holds it{_nearest(service, limit, now, tried)}", ""
    told = []
    for change, answer in found:
        figure = limit.figure(service, answer)
        assert isinstance(figure, Range)
        told.append(f"{change.text} ({limit.show(figure.expected)})")
    fix = next((change.text for change, _ in found if change.is_setting), "")
    return f"it holds with {', or '.join(told)}", fix


def _nearest(service: Service, limit: Limit, now: Range, tried: list[Sized]) -> str:
    """The change that comes nearest to a limit, where one comes nearer."""
    figures = [
        (figure, change) for change, answer in tried if isinstance(figure := limit.figure(service, answer), Range)
    ]
    sign = 1 if limit.at_least else -1
    best, change = max(figures, key=lambda pair: sign * pair[0].expected, default=(None, None))
    if best is None or change is None or sign * best.expected <= sign * now.expected:
        return ""
    return f"; nearest comes {change.text} ({limit.show(best.expected)})"
