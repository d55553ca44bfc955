"""Static batching against continuous batching: slots that wait for the longest sequence of their batch, and prompts padded to it.

A static batch of B sequences runs until its longest is done, so that the share of slot steps that give a token is U = E[len] / E[max of
B lens]. Lengths of one batch are taken as independent and alike in distribution. Expectations, not simulations; for given lengths both
ways of batching are also run exactly, step by step.

Sources: formulas F8.1 to F8.4; Orca (Yu et al. 2022); arXiv 2407.05347 for the longest of a batch.
Left out: prefill, memory, and arrivals over time (all sequences wait from the start); batches sorted by length, which waste less.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DomainError
from .domain import at_least, count, distribution, finite, not_negative, positive, probability, several, total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_CONTINUOUS_FROM = 1000  # mean tokens from which a geometric length is summed as an integral
_ADDED_UP_TO = 1000  # terms of a harmonic number; beyond, an expansion is exact to rounding
_EULER = 0.5772156649015329
_MOST_STEPS = 10**6  # of a run, step by step, and of its slots
_NEGLIGIBLE = 1e-17  # smaller terms do not change the sum
_NORMAL_REACH = 12  # standard deviations beyond which a normal density is nothing
_NORMAL_STEP = 1 / 64

# ------------------------------------------------------------------------------------------------ how full the slots are


def static_utilization(lengths: Mapping[int, float], batch: int) -> float:
    """Share of the slot steps of a static batch that give a token, for any distribution of lengths (formula F8.1).

        U = E[len] / E[max],   E[max] = sum_l l (P(len <= l)^B - P(len < l)^B)

    Parameters
    ----------
    lengths : tokens of a sequence, at least one, and the probability of each
    batch : sequences of a batch

    Raises
    ------
    DomainError : for lengths or a batch below one, or probabilities that do not sum to one

    >>> round(static_utilization({1: 0.5, 3: 0.5}, 2), 12)
    0.8
    """
    count("batch", batch)
    if not isinstance(lengths, Mapping):
        raise DomainError("lengths", got=lengths, wanted="the probability of each length")
    ordered = sorted(count("lengths", length) for length in lengths)
    distribution("lengths", lengths.values())
    longest, below = 0.0, 0.0
    for length in ordered:
        # Rounding may carry a sum of probabilities past one.
        up_to = 1.0 if length == ordered[-1] else min(1.0, below + lengths[length])
        longest += length * (up_to**batch - below**batch)
        below = up_to
    return _share(math.fsum(length * share for length, share in lengths.items()), longest)


def geometric_utilization(mean_tokens: float, batch: int) -> float:
    """The same for lengths that end with equal probability at every token, as far as the model knows (formula F8.1).

        U = m / sum_{t>=0} (1 - (1 - q^t)^B),   q = 1 - 1/m

    Raises
    ------
    DomainError : for a mean or a batch below one, or a longest length that no floating-point number holds

    >>> round(geometric_utilization(200, 8), 6)
    0.36852
    """
    at_least("mean_tokens", mean_tokens, 1)
    count("batch", batch)
    if mean_tokens < _CONTINUOUS_FROM:
        longest = math.fsum(_geometric_survival(1 - 1 / mean_tokens, batch))
    else:
        # The sum by Euler and Maclaurin: the integral H_B / rate, half of the first term, and the slope there, which only B = 1 has.
        # The next term is below 1e-11 of a token.
        rate = -math.log1p(-1 / mean_tokens)
        longest = harmonic(batch) / rate + 1 / 2 + (rate / 12 if batch == 1 else 0)
    return _share(mean_tokens, finite("longest length", longest))


def _geometric_survival(q: float, batch: int) -> Iterator[float]:
    """Probability that the longest of a batch is longer than t, for t = 0, 1, 2, … as long as it counts."""
    yield 1.0
    still_running = q
    while batch * still_running > _NEGLIGIBLE:
        yield -math.expm1(batch * math.log1p(-still_running))
        still_running *= q


def exponential_utilization(batch: int) -> float:
    """The same for exponential lengths, 1 / H_B with H_B = 1 + 1/2 + … + 1/B: the limit of long geometric ones (formula F8.1).

    Raises
    ------
    DomainError : for a batch below one

    >>> round(exponential_utilization(8), 6)
    0.367937
    """
    return 1 / harmonic(batch)


def harmonic(batch: int) -> float:
    """Mean of the longest of B exponential lengths over the mean length, H_B = 1 + 1/2 + … + 1/B (formula F8.1).

    Beyond a thousand terms by Euler and Maclaurin, ln B + gamma + 1 / (2 B) - 1 / (12 B^2), whose next term is below 1e-14.

    Raises
    ------
    DomainError : for a batch below one
    """
    if count("batch", batch) <= _ADDED_UP_TO:
        return math.fsum(1 / k for k in range(1, batch + 1))
    return math.log(batch) + _EULER + 1 / (2 * batch) - 1 / (12 * batch * batch)


def lognormal_utilization(sigma: float, batch: int) -> float:
    """The same for lognormal lengths of shape sigma, whatever their median (formula F8.1).

        1/U = B integral phi(z - sigma) Phi(z)^(B-1) dz

    phi and Phi are density and distribution of the standard normal. The trapezoidal rule is exact to rounding here, because the integrand
    is smooth and falls off like a normal density at both ends.

    Raises
    ------
    DomainError : for a negative sigma, or a batch below one

    >>> round(lognormal_utilization(1.0, 8), 6)
    0.32427
    """
    not_negative("sigma", sigma)
    count("batch", batch)
    points = round(_NORMAL_REACH / _NORMAL_STEP)
    terms = []
    for point in range(-points, points + 1):
        y = point * _NORMAL_STEP
        not_longer = math.erfc(-(y + sigma) / math.sqrt(2)) / 2
        terms.append(math.exp(-y * y / 2) * not_longer ** (batch - 1))
    return _share(math.sqrt(2 * math.pi), batch * _NORMAL_STEP * math.fsum(terms))


def uniform_utilization(batch: int) -> float:
    """The same for lengths spread evenly from nothing to a maximum, (B + 1) / (2 B) (formula F8.1).

    Raises
    ------
    DomainError : for a batch below one

    >>> uniform_utilization(8)
    0.5625
    """
    return (count("batch", batch) + 1) / (2 * batch)


def padded_share(prompts: Mapping[int, float], batch: int) -> float:
    """Share of the prompt tokens of a static batch that are padding, 1 - E[P] / E[max P] (formula F8.2).

    Parameters
    ----------
    prompts : tokens of a prompt and the probability of each
    batch : prompts that are padded to the longest of them

    Raises
    ------
    DomainError : for prompts or a batch below one, or probabilities that do not sum to one
    """
    return 1 - static_utilization(prompts, batch)


def _share(mean: float, longest: float) -> float:
    """Mean length over the mean of the longest; rounding may not lift it above one."""
    return min(1.0, mean / longest)


def greatest_gain(utilization: float) -> float:
    """Most that continuous batching gains in throughput over static batching, 1 / U (formula F8.3).

    It is reached when all slots stay full and a step takes equally long whatever runs in it; less when a step takes longer with more live
    sequences. :meth:`SlotRun.duration_s` gives the time for given lengths.

    Raises
    ------
    DomainError : for a utilisation outside (0, 1]

    >>> greatest_gain(0.4)
    2.5
    """
    return finite("gain", 1 / positive("utilization", probability("utilization", utilization)))


# ------------------------------------------------------------------------------------------------ given lengths, step by step


@dataclass(frozen=True, slots=True)
class SlotRun:
    """Sequences run to their end: for every step, how many slots still had a sequence that was not done."""

    slots: int
    live: tuple[int, ...]

    @property
    def steps(self) -> int:
        """Steps until the last sequence is done."""
        return len(self.live)

    @property
    def utilization(self) -> float:
        """Share of the slot steps that gave a token."""
        return sum(self.live) / (self.slots * self.steps)

    def duration_s(self, step_s: Callable[[int], float]) -> float:
        """Time of all steps, of which each takes as long as its live sequences need.

        Raises
        ------
        DomainError : when a step takes a time that is negative or no number

        >>> static_run([8, 1, 2, 1, 3, 1], 2).duration_s(lambda live: 0.01 + 0.001 * live)
        0.146
        """
        return total("duration_s", (not_negative("step_s", step_s(live)) for live in self.live))


def static_run(lengths: Sequence[int], slots: int) -> SlotRun:
    """Run sequences in batches, first come first served: a batch begins when the one before is wholly done (formula F8.4).

    Parameters
    ----------
    lengths : tokens of each sequence, at least one; all wait from the start
    slots : sequences of a batch

    Raises
    ------
    DomainError : without sequences, for lengths or slots below one, or more than a million steps or slots

    >>> run = static_run([8, 1, 2, 1, 3, 1], 2)
    >>> run.steps, run.utilization
    (13, 0.6153846153846154)
    """
    waiting = _checked_lengths(lengths, slots)
    batches = [waiting[first : first + slots] for first in range(0, len(waiting), slots)]
    _check_steps(sum(max(batch) for batch in batches))
    return SlotRun(slots, tuple(live for batch in batches for live in _beyond(batch)))


def continuous_run(lengths: Sequence[int], slots: int) -> SlotRun:
    """Run the same in slots, first come first served: a slot takes the next sequence as soon as its own is done (formula F8.4).

    Raises
    ------
    DomainError : as :func:`static_run`

    >>> run = continuous_run([8, 1, 2, 1, 3, 1], 2)
    >>> run.steps, run.utilization
    (8, 1.0)
    """
    waiting = _checked_lengths(lengths, slots)
    free_at = [0] * slots  # the step at which each slot is free, as a heap
    for length in waiting:
        heapq.heapreplace(free_at, free_at[0] + length)
    _check_steps(max(free_at))
    # Slots never stand empty while sequences wait: a slot works from the start until it is free for good.
    return SlotRun(slots, tuple(_beyond(free_at)))


def _beyond(ends: Sequence[int]) -> Iterator[int]:
    """For each step until the last end, how many ends are still to come."""
    ended, left = Counter(ends), len(ends)
    for step in range(max(ends)):
        left -= ended[step]
        yield left


def _checked_lengths(lengths: Sequence[int], slots: int) -> tuple[int, ...]:
    count("slots", slots, 1, _MOST_STEPS)
    checked = tuple(count("lengths", length) for length in several("lengths", lengths))
    if not checked:
        raise DomainError("lengths", got="no sequence", wanted="at least one")
    return checked


def _check_steps(steps: int) -> None:
    count("steps", steps, 1, _MOST_STEPS)
