"""What tokens cost: dollars and energy per token, from prices, power and rates.

Input, output and all tokens are kept apart: each figure divides the whole bill by one count of tokens, so that they do not add up.
Left out: idle hours, networks, staff, and whatever the price of a device-hour does not cover.
Sources: formulas F13.8, F13.9; the published day of deepseek-ai/open-infra-index, 202502OpenSourceWeek/day_6 (commit 56d8685).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .domain import at_least, finite, not_negative, pairs, positive, total

if TYPE_CHECKING:
    from collections.abc import Iterable

_MILLION = 1e6
_S_PER_HOUR = 3600
_J_PER_KWH = 3.6e6


def usd_per_million_tokens(usd_per_hour: float, tokens_per_s: float) -> float:
    """Cost of a million tokens, price 1e6 / (3600 X) (formula F13.8); price and rate are those of all devices together.

    Raises
    ------
    DomainError : for a negative price, a rate that is not positive, or a cost that no floating-point number holds

    >>> round(usd_per_million_tokens(8 * 2.0, 14800), 6)
    0.3003
    """
    dollars = not_negative("usd_per_hour", usd_per_hour) * _MILLION
    return finite("usd", dollars / (_S_PER_HOUR * positive("tokens_per_s", tokens_per_s)))


@dataclass(frozen=True, slots=True)
class TokenCosts:
    """The whole bill per million input tokens, per million output tokens, and per million of both; None where there are none."""

    usd_per_million_input: float | None
    usd_per_million_output: float | None
    usd_per_million_total: float | None


def token_costs(usd_per_hour: float, input_tokens_per_s: float, output_tokens_per_s: float) -> TokenCosts:
    """Cost per million input, output and all tokens of one deployment, each carrying the whole price (formula F13.8).

    Raises
    ------
    DomainError : for a negative price or rate

    >>> token_costs(3.6, 1000.0, 250.0)
    TokenCosts(usd_per_million_input=1.0, usd_per_million_output=4.0, usd_per_million_total=0.8)
    """

    def cost(tokens_per_s: float) -> float | None:
        return usd_per_million_tokens(usd_per_hour, tokens_per_s) if tokens_per_s else None

    not_negative("usd_per_hour", usd_per_hour)
    taken = not_negative("input_tokens_per_s", input_tokens_per_s)
    made = not_negative("output_tokens_per_s", output_tokens_per_s)
    return TokenCosts(cost(taken), cost(made), cost(taken + made))


def servers_busy(loads: Iterable[tuple[float, float]]) -> float:
    """Servers that loads keep busy: the sum of X_i / x_i (formula F13.8), not rounded up.

    Parameters
    ----------
    loads : of each kind of work, tokens per second that come and tokens per second that one server does of that kind alone

    Raises
    ------
    DomainError : for a negative load or a server's rate that is not positive
    """
    return total(
        "servers", (not_negative("load", load) / positive("rate", rate) for load, rate in pairs("loads", loads))
    )


def usd_of_devices(devices: float, usd_per_device_hour: float, hours: float) -> float:
    """Price of devices over a time, n p h (formula F13.8).

    Raises
    ------
    DomainError : for a negative number
    """
    price = not_negative("usd_per_device_hour", usd_per_device_hour) * not_negative("hours", hours)
    return finite("usd", not_negative("devices", devices) * price)


def usd_of_tokens(sales: Iterable[tuple[float, float]]) -> float:
    """What sold tokens bring: the sum of tokens / 1e6 times their price (formula F13.8).

    Parameters
    ----------
    sales : of each kind of token (cached input, other input, output), their number and dollars per million

    Raises
    ------
    DomainError : for a negative number
    """
    return total(
        "usd",
        (
            not_negative("tokens", tokens) / _MILLION * not_negative("usd_per_million", price)
            for tokens, price in pairs("sales", sales)
        ),
    )


def margin(income_usd: float, cost_usd: float) -> float:
    """Profit as a multiple of the cost, income / cost - 1 (formula F13.8): 0 breaks even, -1 sells nothing.

    Raises
    ------
    DomainError : for a negative income or a cost that is not positive
    """
    return finite("margin", not_negative("income_usd", income_usd) / positive("cost_usd", cost_usd) - 1)


def joules_per_token(power_w: float, tokens_per_s: float, overhead: float = 1.0) -> float:
    """Energy of a token: P u / X, or power times step time / tokens of the step (formula F13.9).

    Parameters
    ----------
    power_w : of all devices that make the tokens, while they do so (the limit of a device is an upper bound)
    overhead : u, what the building draws per watt of the devices (PUE)

    Raises
    ------
    DomainError : for a negative power, a rate that is not positive, or an overhead below 1

    >>> joules_per_token(700, 32 / 0.010)
    0.21875
    """
    drawn = not_negative("power_w", power_w) * at_least("overhead", overhead, 1)
    return finite("joules", drawn / positive("tokens_per_s", tokens_per_s))


def kwh_per_million_tokens(joules: float) -> float:
    """Energy of a million tokens in kilowatt-hours, from joules per token: J 1e6 / 3.6e6 (formula F13.9).

    Raises
    ------
    DomainError : for a negative energy

    >>> kwh_per_million_tokens(3.6)
    1.0
    """
    return finite("kwh", not_negative("joules", joules) * _MILLION / _J_PER_KWH)
