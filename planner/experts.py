"""How many experts the tokens of a step touch: it decides which expert weights are read.

Sources: formula F2.10; MoESD (arXiv 2505.19645); skew seen in MoE-Spec (arXiv 2602.16052).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .costs import Amount


def distinct_experts(tokens: Amount, num_experts: float, experts_per_token: float) -> Amount:
    """Mean number of distinct experts touched by T tokens, E (1 - (1 - k/E)^T): uniform, independent routing.

    >>> distinct_experts(4, 8, 2)
    5.46875
    """
    return num_experts * (1 - (1 - experts_per_token / num_experts) ** tokens)


def distinct_experts_skewed(tokens: float, probabilities: Iterable[float]) -> float:
    """The same for known inclusion probabilities of each expert (their sum is k); never more than the uniform figure.

    Raises
    ------
    DomainError : for a probability outside [0, 1]
    """
    total = 0.0
    for probability in probabilities:
        if not 0 <= probability <= 1:
            raise DomainError("probability", got=probability, wanted="a value between 0 and 1")
        total += 1 - (1 - probability) ** tokens
    return total


def distinct_experts_correlated(
    sequences: Amount, run: Amount, num_experts: float, experts_per_token: float, repeat: float
) -> Amount:
    """The same for ``sequences`` runs of ``run`` consecutive tokens in which a token repeats its predecessor's choice of an expert.

    E (1 - [(1-p)(1-(1-rho)p)^(m-1)]^B), p = k/E: exact for a two-state Markov chain of each expert; ``repeat`` rho 0 is independent.

    Raises
    ------
    DomainError : for rho outside [0, 1]
    """
    if not 0 <= repeat <= 1:
        raise DomainError("repeat", got=repeat, wanted="a value between 0 and 1")
    share = experts_per_token / num_experts
    missed = (1 - share) * (1 - (1 - repeat) * share) ** (run - 1)
    return num_experts * (1 - missed**sequences)


def tokens_for_coverage(fraction: float, num_experts: int, experts_per_token: int) -> float:
    """Tokens after which this fraction of the experts is touched, ln(1 - f) / ln(1 - k/E).

    Raises
    ------
    DomainError : for a fraction outside (0, 1), or when every token uses all experts
    """
    if not 0 < fraction < 1 or experts_per_token >= num_experts:
        raise DomainError("fraction", got=fraction, wanted="between 0 and 1, and fewer experts per token than experts")
    return math.log(1 - fraction) / math.log(1 - experts_per_token / num_experts)


def rows_per_expert(tokens: float, num_experts: int, experts_per_token: int) -> float:
    """Mean rows of a touched expert's product, T k / D(T): the M of the expert GEMM."""
    return float(tokens * experts_per_token / distinct_experts(tokens, num_experts, experts_per_token))
