"""Closed forms of speculative decoding: what rounds of drafts and verification gain over plain decoding, and what they take in memory.

Costs count in plain decode steps of the target; :mod:`~roofplan.planner.speculative_steps` takes them from step models. Acceptance comes
as cumulative rates or as tokens per round (:mod:`~roofplan.planner.acceptance`; for trees :mod:`~roofplan.planner.draft_trees`).

Special drafters are arguments of the same forms (formula F11.9): self-speculation costs the share of the layers that it runs, lookup in
the prompt costs nothing (:mod:`~roofplan.planner.lookup_drafts` when it does not always find something), one MTP head is a single draft of
high acceptance.

Symbols: k drafts per round, E tokens per round, c_d draft step / target step, v verification / target step.
Sources: formulas F11.5, F11.9, F11.11; Leviathan et al. 2023 (arXiv 2211.17192); DeepSeek-V3 report (arXiv 2412.19437).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import DomainError
from . import domain
from .acceptance import alpha_from_tokens, expected_by_drafts, expected_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .kv_cache import CacheLayout

TIE = 1e-12  # relative: a gain below it is one of rounding

# ------------------------------------------------------------------------------------------------ closed forms


def round_cost(drafts: int, draft_cost: float, verify_ratio: float = 1.0) -> float:
    """Cost of a round in plain decode steps, k c_d + v (formula F11.5).

    Parameters
    ----------
    draft_cost : c_d, one draft step in plain steps; for a drafter that makes all k in one pass, the cost of the pass over k
    verify_ratio : v, the verification in plain steps: 1 while both are bound by reading the same bytes

    Raises
    ------
    DomainError : for drafts outside 0 to 1000, negative costs, or a verification that costs nothing
    """
    drafting = domain.drafts(drafts) * domain.not_negative("draft_cost", draft_cost)
    return domain.positive("cost of a round", drafting + domain.positive("verify_ratio", verify_ratio))


def speedup(tokens: float, drafts: int, draft_cost: float, verify_ratio: float = 1.0) -> float:
    """Tokens per second with drafts over those without: Sp = E / (k c_d + v) (formula F11.5).

    Parameters
    ----------
    tokens : E, mean tokens per round
    draft_cost, verify_ratio : see :func:`round_cost`

    Raises
    ------
    DomainError : for E outside [1, k + 1], drafts outside 0 to 1000, negative costs, or a verification that costs nothing

    >>> round(speedup(3.3616, 4, 0.1), 6)
    2.401143
    """
    cost = round_cost(drafts, draft_cost, verify_ratio)
    return domain.positive("speedup", domain.tokens_per_round(tokens, drafts) / cost)


def speedup_of_times(tokens: float, round_s: float, step_s: float) -> float:
    """Speed-up from times, E t_step / t_round (formula F11.5): it is above 1 while a round takes less than E plain steps.

    Raises
    ------
    DomainError : for E below one, or times that are not above zero

    >>> round(speedup_of_times(1.75, 98.7e-3, 37.7e-3), 3)
    0.668
    """
    plain_s = domain.at_least("tokens", tokens, 1) * domain.positive("step_s", step_s)
    return domain.positive("speedup", plain_s / domain.positive("round_s", round_s))


def implied_round_cost(tokens: float, reported_speedup: float) -> float:
    """Cost of a round in plain steps that a reported speed-up implies, E / Sp (formula F11.9).

    Raises
    ------
    DomainError : for E below one, or a speed-up that is not above zero
    """
    cost = domain.at_least("tokens", tokens, 1) / domain.positive("reported_speedup", reported_speedup)
    return domain.positive("cost of a round", cost)


def one_more_draft_helps(alpha: float, drafts: int, draft_cost: float, verify_ratio: float = 1.0) -> bool:
    """Whether k + 1 drafts beat k at a constant v: alpha^(k+1) (k c_d + v) > c_d E(k) (formula F11.5).

    Once it is false it stays so for all larger k. At k = 0 and v = 1 it says that some number of drafts helps: alpha > c_d.

    Raises
    ------
    DomainError : for alpha outside [0, 1], drafts outside 0 to 1000, negative costs, or a verification that costs nothing
    """
    cost = round_cost(drafts, draft_cost, verify_ratio)
    now = domain.finite("c_d E", draft_cost * expected_tokens(alpha, drafts))
    return alpha ** (drafts + 1) * cost - now > TIE * now


@dataclass(frozen=True, slots=True)
class BestDrafts:
    """The number of drafts that gains most, and its speed-up; none and 1 where no number helps."""

    drafts: int
    speedup: float


def best_drafts(rates: Sequence[float], draft_cost: float, verify_ratios: Sequence[float] | None = None) -> BestDrafts:
    """The number of drafts, none included, of the largest E(k) / (k c_d + v_k); ties go to the smaller (formula F11.5).

    Parameters
    ----------
    rates : cumulative rates R_1 to R_K; their number is the most drafts that are looked at
    verify_ratios : v for 1, 2, ... K drafts; 1 throughout where not given

    Raises
    ------
    DomainError : for rates outside [0, 1] or rising ones, negative costs, or another number of verify ratios than of rates
    """
    tokens = expected_by_drafts(rates)
    most = len(tokens) - 1
    ratios = (1.0,) * most if verify_ratios is None else domain.several("verify_ratios", verify_ratios)
    if len(ratios) != most:
        raise DomainError("verify_ratios", got=len(ratios), wanted=f"{most}, one for each rate")
    speedups = [1.0, *(speedup(tokens[k], k, draft_cost, ratio) for k, ratio in enumerate(ratios, 1))]
    best = first_best(speedups)
    return BestDrafts(best, speedups[best])


def first_best(values: Iterable[float]) -> int:
    """Index of the largest speed-up, argmax_k Sp(k); the first of those that differ by less than 1e-12 of it (formula F11.5).

    Raises
    ------
    DomainError : without a value, or for a negative one

    >>> first_best([1.0, 1.25, 1.25 * (1 + 1e-15)])
    1
    """
    best, largest = 0, 0.0
    given = [domain.not_negative("speedup", value) for value in domain.several("values", values)]
    domain.count("values", len(given))
    for index, value in enumerate(given):
        if value > largest * (1 + TIE):
            best, largest = index, value
    return best


def break_even_acceptance(drafts: int, draft_cost: float, verify_ratio: float = 1.0) -> float | None:
    """Independent acceptance above which k drafts gain: E(alpha, k) = k c_d + v solved for alpha (formula F11.5).

    0 where any acceptance gains; None where not even perfect acceptance does. For k = 1 and v = 1 it is c_d.

    Raises
    ------
    DomainError : without a draft, for negative costs, or a verification that costs nothing
    """
    cost = round_cost(domain.drafts(drafts, 1), draft_cost, verify_ratio)
    if cost >= drafts + 1:
        return None
    return alpha_from_tokens(max(1.0, cost), drafts) if cost > 1 else 0.0


def break_even_verify_ratio(tokens: float, drafts: int, draft_cost: float) -> float:
    """The v at which speculation gains nothing, E - k c_d (formula F11.5); at or below 1, drafts never pay.

    Raises
    ------
    DomainError : for E outside [1, k + 1], drafts outside 0 to 1000, or negative costs
    """
    drafting = domain.drafts(drafts) * domain.not_negative("draft_cost", draft_cost)
    return domain.finite("verify_ratio", domain.tokens_per_round(tokens, drafts) - drafting)


def mean_rounds(tokens: float, output: int) -> float:
    """Rounds for G tokens, about G / E (formula F11.11).

    The last round may yield more than is wanted: by Wald's identity the true mean lies between this and (G + k) / E.

    Raises
    ------
    DomainError : for E below one, or no output
    """
    return domain.count("output", output) / domain.at_least("tokens", tokens, 1)


def most_drafts_within(max_batched_tokens: int, batch: int) -> int:
    """Most drafts of each sequence that a limit of tokens per step leaves room for: B (k + 1) <= budget; 0 where it has room for none.

    Raises
    ------
    DomainError : unless both are at least one
    """
    return max(0, domain.count("max_batched_tokens", max_batched_tokens) // domain.count("batch", batch) - 1)


# ------------------------------------------------------------------------------------------------ memory


@dataclass(frozen=True, slots=True)
class SpeculationMemory:
    """Bytes that speculation takes beside the target: draft weights, draft cache, slots for unverified tokens, copies of states."""

    draft_weights_bytes: int
    draft_cache_bytes: int
    slots_bytes: int
    states_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of them."""
        return self.draft_weights_bytes + self.draft_cache_bytes + self.slots_bytes + self.states_bytes


def speculation_memory(
    target: CacheLayout,
    drafts: int,
    sequences: int,
    tokens: int,
    *,
    draft_weights_bytes: int = 0,
    draft: CacheLayout | None = None,
) -> SpeculationMemory:
    """Memory of speculation: draft weights + draft cache of every sequence + k + 1 slots of target cache each (formula F11.11).

    A recurrent state cannot be rolled back: one is kept for each of the k + 1 tokens, so that k more are needed (vllm-project/vllm,
    MambaSpec.num_speculative_blocks). Left out: whole blocks of a paged cache, activations of the draft model, states of its own drafts.

    Parameters
    ----------
    target, draft : caches of a sequence; ``draft`` None for drafters without one (lookup, heads, self-speculation)
    tokens : cached tokens of each sequence

    Raises
    ------
    DomainError : for negative counts or bytes, or no sequence
    """
    domain.drafts(drafts)
    domain.count("sequences", sequences)
    domain.count("tokens", tokens, 0)
    domain.count("draft_weights_bytes", draft_weights_bytes, 0)
    # A full window needs them too: a token that is rejected must not have replaced one that is still seen.
    endless = replace(target, terms=tuple(replace(term, window=None) for term in target.terms))
    slots = endless.bytes_per_sequence(tokens + drafts + 1) - endless.bytes_per_sequence(tokens)
    return SpeculationMemory(
        draft_weights_bytes,
        sequences * draft.bytes_per_sequence(tokens) if draft else 0,
        sequences * slots,
        sequences * drafts * target.state_bytes,
    )
