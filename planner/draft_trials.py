"""Trying the acceptance rule on random drafts: rounds of k drafts from q, kept or replaced, and what comes out against p.

The exact rule keeps x with probability min(1, p(x) / q(x)) and replaces the first one that it does not keep by a sample of the residual;
after k kept ones it adds a sample of p. Whatever q is, every token that comes out is then one of p given all before it, so that counts of
any number of rounds are judged against p by chi-square. Relaxed rules keep more, replace by p, and are found out.

The trials take p and q as the same at every position: acceptance is then independent, and tokens per round have the formula
(1 - alpha^(k+1)) / (1 - alpha).

Sources: formulas F11.1 to F11.3, F11.10; Leviathan et al. 2023 (arXiv 2211.17192); Chen et al. 2023 (arXiv 2302.01318).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..errors import DomainError
from . import acceptance, domain
from .goodness import chi_square

if TYPE_CHECKING:
    from .goodness import ChiSquare

MOST_ROUNDS = 10**7
MOST_TOKENS = 10**6
_BLOCK = 2**19  # drafts that are drawn at once
_SPREAD = 2.0  # of the logarithms of p, which gives the likeliest of a thousand tokens about a tenth
_NORMAL_95 = 1.959963984540054
Kept = Literal["exact", "top", "typical"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A target distribution p and a draft distribution q over the same tokens."""

    target: tuple[float, ...]
    draft: tuple[float, ...]

    @property
    def divergence(self) -> float:
        """TV(p, q)."""
        return acceptance.total_variation(self.target, self.draft)


def random_pair(tokens: int, divergence: float, seed: int) -> Pair:
    """Random p and q with TV(p, q) as asked: q moves that much of p from one half of the tokens to the other.

    p has normal logarithms, as logits have; the halves are drawn at random and hold about as much of p, more on the side that gives where
    more than half is to be moved.

    Parameters
    ----------
    tokens : of the vocabulary
    divergence : total variation, 0 to below 1

    Raises
    ------
    DomainError : for fewer than 2 or more than a million tokens, a divergence outside [0, 1), one that would leave no token to move to, or
        a negative seed

    >>> round(random_pair(1000, 0.3, 0).divergence, 12)
    0.3
    """
    import numpy as np

    domain.count("tokens", tokens, 2, MOST_TOKENS)
    moved = domain.probability("divergence", divergence)
    rng = np.random.default_rng(domain.count("seed", seed, 0))
    # Uniform numbers alone: their stream is the same in all versions of numpy, that of normal ones is not promised to be.
    one, other = np.maximum(rng.random(tokens), 1e-300), rng.random(tokens)
    target = np.exp(_SPREAD * np.sqrt(-2 * np.log(one)) * np.cos(2 * math.pi * other))
    target /= target.sum()
    order = np.argsort(rng.random(tokens))
    held = np.cumsum(target[order])
    given = int(np.searchsorted(held, max(0.5, moved))) + 1
    if given >= tokens:
        raise DomainError("divergence", got=divergence, wanted=f"less, for {tokens} tokens: none is left to move to")
    from_, to = order[:given], order[given:]
    gain = rng.random(len(to)) + 0.1
    draft = target.copy()
    draft[from_] *= 1 - moved / held[given - 1]
    draft[to] += moved * gain / gain.sum()
    return Pair(tuple(target.tolist()), tuple((draft / draft.sum()).tolist()))


@dataclass(frozen=True, slots=True)
class Rule:
    """Which drafts are kept, and what replaces the first that is not.

    Parameters
    ----------
    kept : ``exact``; ``top``: those among the ``top`` likeliest of the target; ``typical``: those above the threshold of the entropy rule
    """

    kept: Kept
    top: int = 2

    def __str__(self) -> str:
        """As the option spells it."""
        return f"top:{self.top}" if self.kept == "top" else self.kept

    def tables(self, pair: Pair) -> tuple[Any, Any]:
        """Probability that each token is kept, and the distribution of what replaces one that is not, as arrays."""
        import numpy as np

        p, q = np.array(pair.target), np.array(pair.draft)
        if self.kept == "exact":
            share = np.minimum(1.0, np.divide(p, q, out=np.ones_like(p), where=q > 0))
            residual = acceptance.residual_distribution(pair.target, pair.draft)
            return share, p if residual is None else np.array(residual)
        if self.kept == "typical":
            return (p > acceptance.typical_threshold(pair.target)).astype(float), p
        likeliest = np.argsort(-p, kind="stable")[: self.top]
        share = np.zeros_like(p)
        share[likeliest] = 1.0
        return share, p

    def distance(self, pair: Pair) -> float:
        """How far its output is from p by the closed form (formula F11.10); zero for the exact rule."""
        if self.kept == "exact":
            return 0.0
        if self.kept == "typical":
            return acceptance.accept_typical(pair.target, pair.draft).distance
        return acceptance.accept_in_top(pair.target, pair.draft, self.top).distance


def read_rule(text: str) -> Rule:
    """A rule as an option spells it: ``exact``, ``typical``, ``top:2``.

    Raises
    ------
    DomainError : for anything else

    >>> read_rule("top:2")
    Rule(kept='top', top=2)
    """
    name, _, number = text.partition(":")
    if text in {"exact", "typical"}:
        return Rule("exact" if text == "exact" else "typical")
    if name == "top" and number.isascii() and number.isdigit() and 0 < int(number[:7]) <= MOST_TOKENS:
        return Rule("top", int(number[:7]))
    raise DomainError("rule", got=text, wanted="exact, typical or top:N")


@dataclass(frozen=True, slots=True)
class Measured:
    """A mean of the trials with its 95 % confidence interval, and what the formula says."""

    value: float
    low: float
    high: float
    formula: float

    @property
    def agrees(self) -> bool:
        """Whether the formula's value lies in the interval."""
        return self.low <= self.formula <= self.high


@dataclass(frozen=True, slots=True)
class Trials:
    """What came out of the rounds of one rule.

    ``fit`` judges the tokens that came out against p; ``distance`` is their TV to p (of a finite sample it is never zero), and
    ``rule_distance`` that of the rule itself by the closed form. ``acceptance`` and ``tokens_per_round`` are compared with the formulas of
    the exact rule.
    """

    rule: Rule
    rounds: int
    drafts: int
    seed: int
    tokens: int
    fit: ChiSquare
    acceptance: Measured
    tokens_per_round: Measured
    distance: float
    rule_distance: float


def run_trials(pair: Pair, rule: Rule, drafts: int, rounds: int, seed: int) -> Trials:
    """Draw so many rounds of k drafts, apply the rule, and judge what comes out.

    Raises
    ------
    DomainError : unless p and q are distributions over as many tokens, for drafts outside 1 to 1000, no round or more than ten million, or
        a negative seed
    """
    import numpy as np

    alpha = acceptance.acceptance_probability(pair.target, pair.draft)
    domain.drafts(drafts, 1)
    domain.count("rounds", rounds, 1, MOST_ROUNDS)
    rng = np.random.default_rng(
        (domain.count("seed", seed, 0), 1)
    )  # not the stream that a random pair of this seed came from
    share, residual = rule.tables(pair)
    draws = _Draws(rng, np.array(pair.draft)), _Draws(rng, residual), _Draws(rng, np.array(pair.target))
    counts = np.zeros(len(pair.target), dtype=np.int64)
    kept_in_round = np.zeros(drafts + 1, dtype=np.int64)
    for start in range(0, rounds, size := max(1, _BLOCK // drafts)):
        counts_of_block, kept_of_block = _block(draws, share, drafts, min(size, rounds - start))
        counts += counts_of_block
        kept_in_round += kept_of_block
    kept = np.arange(drafts + 1)
    accepted = int(kept_in_round @ kept)
    looked_at = int(kept_in_round @ np.minimum(kept + 1, drafts))
    mean = accepted / looked_at
    tokens = accepted + rounds
    variance = float(kept_in_round @ (kept + 1 - tokens / rounds) ** 2) / max(1, rounds - 1)
    expected = np.array(pair.target)
    return Trials(
        rule=rule,
        rounds=rounds,
        drafts=drafts,
        seed=seed,
        tokens=tokens,
        fit=chi_square(counts.tolist(), pair.target),
        acceptance=_measured(mean, math.sqrt(mean * (1 - mean) / looked_at), alpha),
        tokens_per_round=_measured(
            tokens / rounds, math.sqrt(variance / rounds), acceptance.expected_tokens(alpha, drafts)
        ),
        distance=float(np.abs(counts / tokens - expected).sum() / 2),
        rule_distance=rule.distance(pair),
    )


def _measured(value: float, error: float, formula: float) -> Measured:
    return Measured(value, value - _NORMAL_95 * error, value + _NORMAL_95 * error, formula)


class _Draws:
    """Samples of one distribution, by the inverse of its cumulative sums."""

    def __init__(self, rng: Any, probabilities: Any) -> None:
        import numpy as np

        self._rng = rng
        self._up_to = np.cumsum(probabilities)
        self._up_to /= self._up_to[-1]
        # Rounding must not give a token that is impossible.
        self._last = int(np.flatnonzero(probabilities)[-1])

    def __call__(self, *shape: int) -> Any:
        import numpy as np

        found = np.searchsorted(self._up_to, self._rng.random(shape), side="right")
        return np.minimum(found, self._last)

    @property
    def uniform(self) -> Any:
        """Uniform numbers of the same stream."""
        return self._rng.random


def _block(draws: tuple[_Draws, _Draws, _Draws], share: Any, drafts: int, rounds: int) -> tuple[Any, Any]:
    """Counts by token of what comes out of some rounds, and how many of them kept 0, 1, ... k drafts."""
    import numpy as np

    draft, residual, target = draws
    drawn = draft(rounds, drafts)
    kept = np.logical_and.accumulate(draft.uniform((rounds, drafts)) < share[drawn], axis=1)
    count = kept.sum(axis=1)
    whole = int((count == drafts).sum())
    tokens = np.concatenate([drawn[kept], residual(rounds - whole), target(whole)])
    return np.bincount(tokens, minlength=len(share)), np.bincount(count, minlength=drafts + 1)
