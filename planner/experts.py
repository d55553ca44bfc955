"""How many experts the tokens of a step touch: it decides which expert weights are read.

Symbols: E experts, k of them per token, T tokens, p = k / E. Sources: formula F2.10; MoESD (arXiv 2505.19645); skew seen in MoE-Spec (arXiv
2602.16052). Left out: routing that is skewed and correlated at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..errors import DomainError
from . import domain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .costs import Amount

_NUMBERS = (int, float)


def distinct_experts(tokens: Amount, num_experts: float, experts_per_token: float) -> Amount:
    """Mean number of distinct experts touched by T tokens, E (1 - (1 - k/E)^T): uniform, independent routing (formula F2.10).

    Parameters
    ----------
    tokens : T, a number or an array
    num_experts, experts_per_token : E and k, of one layer or of several together

    Raises
    ------
    DomainError : for negative tokens, or unless 0 < k <= E

    >>> distinct_experts(4, 8, 2)
    5.46875
    """
    if not _plain(tokens, num_experts, experts_per_token):
        _check(tokens, num_experts, experts_per_token)
    return num_experts * (1 - (1 - experts_per_token / num_experts) ** tokens)


def distinct_experts_skewed(tokens: float, probabilities: Iterable[float]) -> float:
    """The same for known inclusion probabilities of each expert, sum of 1 - (1 - p_e)^T (formula F2.10).

    Their sum is k; it is never more than the uniform figure.

    Raises
    ------
    DomainError : for negative tokens, or a probability outside [0, 1]
    """
    domain.not_negative("tokens", tokens)
    shares = [domain.probability("probability", share) for share in domain.several("probabilities", probabilities)]
    return math.fsum(1 - (1 - share) ** tokens for share in shares)


def distinct_experts_correlated(
    sequences: Amount, run: Amount, num_experts: float, experts_per_token: float, repeat: float
) -> Amount:
    """The same for ``sequences`` runs of ``run`` consecutive tokens, in which a token may repeat its predecessor's choice (formula F2.10).

    E (1 - [(1-p)(1-(1-rho)p)^(m-1)]^B): exact for a two-state Markov chain of each expert; ``repeat`` rho 0 is independent.
    Source: temporal correlation in the Cohere blog of 2026-04-21.

    Raises
    ------
    DomainError : for negative sequences, runs of less than a token, rho outside [0, 1], or unless 0 < k <= E
    """
    if not (
        _plain(sequences, num_experts, experts_per_token) and run.__class__ in _NUMBERS and 1 <= run <= domain.MOST
    ):
        _check(sequences, num_experts, experts_per_token)
        domain.amounts("run", run, _of_a_token)
    if not (repeat.__class__ is float and 0 <= repeat <= 1):
        domain.probability("repeat", repeat)
    share = experts_per_token / num_experts
    missed = (1 - share) * (1 - (1 - repeat) * share) ** (run - 1)
    return num_experts * (1 - missed**sequences)


def tokens_for_coverage(fraction: float, num_experts: int, experts_per_token: int) -> float:
    """Tokens after which this fraction of the experts is touched, ln(1 - f) / ln(1 - k/E) (formula F2.10).

    Raises
    ------
    DomainError : for a fraction outside (0, 1), or unless 0 < k < E
    """
    _check(0, num_experts, experts_per_token)
    if not 0 < domain.probability("fraction", fraction) < 1 or experts_per_token == num_experts:
        raise DomainError("fraction", got=fraction, wanted="between 0 and 1, and fewer experts per token than experts")
    share = domain.positive("k / E", experts_per_token / num_experts)
    # log1p keeps the digits of a small share, which 1 - k/E loses.
    return domain.finite("tokens", math.log1p(-fraction) / math.log1p(-share))


def rows_per_expert(tokens: float, num_experts: int, experts_per_token: int) -> float:
    """Mean rows of a touched expert's product, T k / D(T): the M of the expert GEMM (formula F2.10).

    D is :func:`distinct_experts`; at least one for a whole token, and k T / E once all experts are touched.

    Raises
    ------
    DomainError : for no tokens, or unless 0 < k <= E
    """
    domain.positive("tokens", tokens)
    touched = domain.positive("experts touched", distinct_experts(tokens, num_experts, experts_per_token))
    return domain.positive("rows", tokens * experts_per_token / touched)


def _plain(tokens: Amount, num_experts: float, experts_per_token: float) -> bool:
    """Whether these are plain numbers inside the domain: the short way, since every step of a mixture of experts asks."""
    return (
        tokens.__class__ in _NUMBERS
        and num_experts.__class__ in _NUMBERS
        and experts_per_token.__class__ in _NUMBERS
        and 0 <= tokens <= domain.MOST
        and 0 < experts_per_token <= num_experts <= domain.MOST
    )


def _check(tokens: Amount, num_experts: float, experts_per_token: float) -> None:
    """Check arrays, and name what lies outside the domain."""
    domain.amounts("tokens", tokens, domain.not_negative)
    domain.positive("num_experts", num_experts)
    if domain.positive("experts_per_token", experts_per_token) > num_experts:
        raise DomainError("experts_per_token", got=experts_per_token, wanted=f"at most the {num_experts:g} experts")


def _of_a_token(what: str, value: float) -> float:
    return domain.at_least(what, value, 1)
