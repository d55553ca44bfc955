"""Drafts that are looked up in the prompt or in earlier output (n-grams, suffix trees): nearly free, but not always found.

Two things set them apart from a draft model: only a share h of the rounds finds a match, and a match gives a number of drafts that varies.
Rounds without a match are plain decode steps.

Symbols: h hit rate, P(k) share of the matches that give k drafts, R'_j cumulative rates of drafts that are there, v_k verification / plain
step. Sources: formulas F11.4, F11.5, F11.9 (the mixture is our derivation); apoorvumang/prompt-lookup-decoding; SuffixDecoding (arXiv
2411.04975). Left out: matches of one sequence in a row, which come in runs (text that is copied): means hold, spreads do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING

from ..errors import DomainError
from . import domain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .step import Grouping, StepModel

_MOST_TOKENS = 2**20  # drafts of a step: each number of them is timed


@dataclass(frozen=True, slots=True)
class Lookup:
    """How often something is found, and how much.

    Parameters
    ----------
    hit_rate : h, share of the rounds with a match
    lengths : share of the matches by their number of drafts, at least one each
    rates : R'_1 to R'_K, cumulative rates of the drafts of a match, for the longest of them

    Raises
    ------
    DomainError : for a hit rate outside [0, 1], lengths outside 1 to 1000, shares that do not sum to one, rates outside [0, 1] or rising
        ones, or fewer rates than the longest match has drafts
    """

    hit_rate: float
    lengths: Mapping[int, float]
    rates: Sequence[float]

    def __post_init__(self) -> None:
        """Refuse look-ups that cannot be."""
        domain.probability("hit_rate", self.hit_rate)
        if not isinstance(self.lengths, Mapping):
            raise DomainError("lengths", got=self.lengths, wanted="the share of each number of drafts")
        longest = max((domain.drafts(length, 1) for length in self.lengths), default=0)
        domain.distribution("lengths", self.lengths.values())
        if len(domain.falling_rates(self.rates)) < longest:
            raise DomainError("rates", got=f"{len(self.rates)} of them", wanted=f"{longest}, for the longest match")

    @property
    def mean_drafts(self) -> float:
        """Drafts of a round, rounds without a match counted: h sum_k k P(k)."""
        return self.hit_rate * math.fsum(length * share for length, share in self.lengths.items())

    def of_round(self) -> list[float]:
        """Probabilities that a round has 0, 1, ... K drafts."""
        shares = [1 - self.hit_rate] + [0.0] * max(self.lengths)
        for length, share in self.lengths.items():
            shares[length] += self.hit_rate * share
        return shares


def lookup_rates(lookup: Lookup) -> tuple[float, ...]:
    """Cumulative rates over all rounds, with a match or without: R_j = h P(K >= j) R'_j (formula F11.4).

    Distribution, mean and variance of the tokens of a round follow as from any rates (:mod:`~roofplan.planner.acceptance`).

    >>> lookup_rates(Lookup(0.5, {1: 0.5, 2: 0.5}, (0.8, 0.64)))
    (0.4, 0.16)
    """
    reach = list(accumulate(reversed(lookup.of_round()[1:])))  # P(K >= K), ... P(K >= 1)
    return tuple(accumulate(map(mul, reversed(reach), lookup.rates), min))


def lookup_speedup(
    lookup: Lookup, verify_ratios: Mapping[int, float] | None = None, *, lookup_cost: float = 0.0
) -> float:
    """Tokens per second with look-ups over those without, of one sequence: E / (1 - h + h sum_k P(k) v_k + c) (formula F11.9).

    Parameters
    ----------
    verify_ratios : v_k for each length of a match; 1 throughout where not given, as while weights bind
    lookup_cost : c, the search of a round in plain decode steps, found or not

    Raises
    ------
    DomainError : for a length without a ratio, ratios that are not above zero, or a negative cost

    >>> round(lookup_speedup(Lookup(1.0, {3: 1.0}, (0.5, 0.25, 0.125))), 12)  # always three drafts: F11.9
    1.875
    """
    ratios = dict.fromkeys(lookup.lengths, 1.0) if verify_ratios is None else verify_ratios
    if not isinstance(ratios, Mapping) or not set(lookup.lengths) <= set(ratios):
        raise DomainError("verify_ratios", got=ratios, wanted="one for each length of a match")
    verified = math.fsum(share * domain.positive("verify_ratio", ratios[k]) for k, share in lookup.lengths.items())
    cost = 1 - lookup.hit_rate + lookup.hit_rate * verified + domain.not_negative("lookup_cost", lookup_cost)
    return domain.positive("speedup", (1 + math.fsum(lookup_rates(lookup))) / domain.positive("cost", cost))


@dataclass(frozen=True, slots=True)
class LookupSpeculation:
    """Decoding of a batch with look-ups: mean tokens and drafts of a sequence in a round, mean time of a round, and what follows."""

    batch: int
    expected_tokens: float
    mean_drafts: float
    round_s: float
    speedup: float
    tpot_s: float
    output_tokens_per_s: float


def lookup_speculation(
    target: StepModel,
    lookup: Lookup,
    batch: int,
    context: float,
    *,
    overhead_s: float = 0.0,
    grouping: Grouping = "operators",
) -> LookupSpeculation:
    """Look-ups of B sequences in one step: E[t(B, L, 1 + D / B tokens)] over the drafts D of all of them (formulas F11.6, F11.9).

    Each sequence finds, or does not find, on its own; the distribution of D is that of one sequence, B times convolved (by Fourier
    transform). At the mean of D the time would come out too short, since a step gets no shorter with more drafts and bends upwards.

    Parameters
    ----------
    context : mean tokens of a sequence
    overhead_s : search and host time of a round

    Raises
    ------
    DomainError : for a batch below one, more than 1048576 drafts in a step, a context that is not above zero, a negative overhead, or a
        grouping that there is not
    """
    import numpy as np

    domain.positive("context", context)
    domain.grouping(grouping)
    shares = lookup.of_round()
    most = domain.count("drafts of a step", domain.count("batch", batch) * (len(shares) - 1), 1, _MOST_TOKENS)
    transformed = np.fft.rfft(shares, most + 1) ** batch
    likelihood = np.clip(np.fft.irfft(transformed, most + 1), 0, None)
    times = target.step_s(float(batch), context, verify=1 + np.arange(most + 1) / batch, grouping=grouping)
    mean_s = float(np.dot(times, likelihood / likelihood.sum()))
    round_s = domain.positive("round_s", mean_s + domain.not_negative("overhead_s", overhead_s))
    tokens = 1 + math.fsum(lookup_rates(lookup))
    return LookupSpeculation(
        batch=batch,
        expected_tokens=tokens,
        mean_drafts=lookup.mean_drafts,
        round_s=round_s,
        speedup=domain.positive("speedup", tokens * float(times[0]) / round_s),
        tpot_s=round_s / tokens,
        output_tokens_per_s=domain.finite("output_tokens_per_s", batch * tokens / round_s),
    )
