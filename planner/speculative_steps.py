"""Speculative decoding through step models: the cost of drafting and verifying by batch and context, and what follows from it.

A target verifies k + 1 tokens of each sequence in one step; a drafter makes k of them. Verification is nearly free while reading weights
binds the step, and is not once the batch makes it compute-bound, or where more tokens touch more experts.

Symbols: k drafts per round, E tokens per round, c_d draft step / target step, v verification / target step, B batch, L context.
Sources: formulas F11.5 to F11.7, F11.9; MagicDec (arXiv 2408.11049) for long contexts; MoESD (arXiv 2505.19645) for experts.
Known to be left out: sampling and host time of a round (give them as ``overhead_s``), the drafter's second token after a round of which all
drafts were kept, and the k tokens by which the context grows within a round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from ..errors import DomainError
from . import domain
from .acceptance import check_drafts, check_expected, expected_by_drafts
from .costs import Experts
from .experts import distinct_experts_correlated
from .speculative import TIE, first_best
from .step import StepModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .costs import Amount
    from .deployment import Deployment
    from .step import Grouping

_MOST_SEQUENCES = 4096


def verify_ratio(
    target: StepModel, batch: Amount, drafts: Amount, context: Amount, grouping: Grouping = "operators"
) -> Amount:
    """Verification of k drafts over a plain decode step, v = t(B, L, k + 1 tokens) / t(B, L, 1 token) (formula F11.6).

    It is 1 while the weights bind, grows towards k + 1 with the batch, and falls again with the context, whose cache is read once for all
    k + 1 tokens (MagicDec). With grouping ``parts`` these are the figures of F11.6. Numbers or arrays.

    Left out: the state that a recurrent layer writes for each of the k + 1 tokens (their memory is counted in
    :func:`~roofplan.planner.speculative.speculation_memory`).

    Raises
    ------
    DomainError : unless batch and context are above zero and drafts not negative
    """
    _check_load(batch, drafts, context)
    plain = target.step_s(batch, context, grouping=grouping)
    return target.step_s(batch, context, verify=drafts + 1, grouping=grouping) / plain


def relative_draft_cost(
    draft: StepModel, target: StepModel, batch: Amount, context: Amount, grouping: Grouping = "operators"
) -> Amount:
    """One decode step of the draft model over one of the target, c_d = t_d(B, L) / t(B, L) (formula F11.5). Numbers or arrays.

    Raises
    ------
    DomainError : unless batch and context are above zero
    """
    _check_load(batch, 0, context)
    return draft.step_s(batch, context, grouping=grouping) / target.step_s(batch, context, grouping=grouping)


def _check_load(batch: Amount, drafts: Amount, context: Amount) -> None:
    """Check numbers, or the extremes of arrays (a NaN is both)."""
    import numpy as np

    for extreme in (np.min, np.max):
        domain.positive("batch", float(extreme(batch)))
        domain.positive("context", float(extreme(context)))
        domain.not_negative("drafts", float(extreme(drafts)))


@dataclass(frozen=True, slots=True)
class Drafter:
    """How drafts are made.

    Parameters
    ----------
    model : step model of a draft model, which decodes the same batch at the same context
    relative_cost : c_d in plain steps of the target at the same batch, beside the model's time: 0 for lookup
    one_pass : all drafts of a round come from one pass (Medusa heads, block drafters) and not from one each
    overhead_s : time of a round beside drafts and verification

    Raises
    ------
    DomainError : for a negative cost or overhead
    """

    model: StepModel | None = None
    relative_cost: float = 0.0
    one_pass: bool = False
    overhead_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse negative times."""
        domain.not_negative("relative_cost", self.relative_cost)
        domain.not_negative("overhead_s", self.overhead_s)

    def time_s(self, drafts: Amount, batch: Amount, context: Amount, plain_s: Amount, grouping: Grouping) -> Amount:
        """Time of a round that is not verification: the passes of the drafter, and the overhead (none without drafts)."""
        own = 0 if self.model is None else self.model.step_s(batch, context, grouping=grouping)
        drafting = drafts > 0
        passes = 1 * drafting if self.one_pass else drafts
        return passes * (own + self.relative_cost * plain_s) + self.overhead_s * drafting


@dataclass(frozen=True, slots=True)
class Speculation:
    """Decoding of ``batch`` sequences with so many drafts each; no drafts is plain decoding.

    ``tpot_s`` is the mean time per token of one sequence (its tokens come in bursts of a round), ``output_tokens_per_s`` that of all.
    ``within_budget`` says whether a step has room for all drafts of all sequences.
    """

    drafts: int
    batch: int
    expected_tokens: float
    verify_ratio: float
    round_s: float
    speedup: float
    tpot_s: float
    output_tokens_per_s: float
    within_budget: bool


def speculation_table(
    target: StepModel,
    drafter: Drafter,
    rates: Sequence[float],
    batches: Sequence[int],
    context: float,
    *,
    max_batched_tokens: int | None = None,
    grouping: Grouping = "operators",
) -> tuple[Speculation, ...]:
    """Speculation with 0, 1, ... K drafts at each batch, batch by batch: Sp = E t / (t_draft + t_verify) (formula F11.5, F11.6).

    Parameters
    ----------
    rates : cumulative rates R_1 to R_K
    context : mean tokens of a sequence
    max_batched_tokens : most tokens of a step: B (k + 1); None where nothing limits them

    Raises
    ------
    DomainError : for rates outside [0, 1] or rising ones, or batches, context or a limit that are not above zero
    """
    import numpy as np

    for batch in batches:
        domain.count("batch", batch)
    domain.positive("context", context)
    limit = None if max_batched_tokens is None else domain.count("max_batched_tokens", max_batched_tokens)
    expected = expected_by_drafts(rates)
    drafts, columns = np.arange(len(expected)), np.asarray(batches, dtype=float)[:, np.newaxis]
    plain, verify, whole = _times(target, drafter, drafts, columns, context, grouping)
    return tuple(
        Speculation(
            drafts=k,
            batch=batch,
            expected_tokens=tokens,
            verify_ratio=verify_s / plain_s,
            round_s=round_s,
            speedup=tokens * plain_s / round_s,
            tpot_s=round_s / tokens,
            output_tokens_per_s=batch * tokens / round_s,
            within_budget=limit is None or batch * (k + 1) <= limit,
        )
        for batch, (plain_s,), verified, rounds in zip(
            batches, plain.tolist(), verify.tolist(), whole.tolist(), strict=True
        )
        for k, (tokens, verify_s, round_s) in enumerate(zip(expected, verified, rounds, strict=True))
    )


def _times(
    target: StepModel, drafter: Drafter, drafts: Amount, batch: Amount, context: Amount, grouping: Grouping
) -> tuple[Amount, Amount, Amount]:
    """Seconds of a plain step, of the verification, and of the whole round."""
    plain = target.step_s(batch, context, grouping=grouping)
    verify = target.step_s(batch, context, verify=drafts + 1, grouping=grouping)
    return plain, verify, verify + drafter.time_s(drafts, batch, context, plain, grouping)


def best_by_batch(table: Iterable[Speculation]) -> tuple[Speculation, ...]:
    """The row of the largest speed-up at each batch, of those within the budget of a step; ties go to fewer drafts (formula F11.5).

    A batch that exceeds the budget even without drafts has no row.
    """
    best = []
    for _, rows in groupby((row for row in table if row.within_budget), key=lambda row: row.batch):
        of_batch = tuple(rows)
        best.append(of_batch[first_best(row.speedup for row in of_batch)])
    return tuple(best)


def break_even_batch(
    target: StepModel,
    drafter: Drafter,
    tokens: float,
    drafts: int,
    context: float,
    *,
    max_batched_tokens: int | None = None,
    most: int = _MOST_SEQUENCES,
    grouping: Grouping = "operators",
) -> int | None:
    """Largest batch at which k drafts still gain, E t_plain > t_round (formula F11.6); None where they gain at none up to ``most``.

    All batches are looked at: with experts a middle batch can gain where a small one, which touches more experts per token, does not.
    An answer equal to ``most`` says that no limit was met.

    Parameters
    ----------
    tokens : E, mean tokens per round
    max_batched_tokens : most tokens of a step; batches that exceed it are not looked at

    Raises
    ------
    DomainError : without a draft, for E outside [1, k + 1], or a context or limits that are not above zero
    """
    import numpy as np

    check_drafts(drafts, 1)
    check_expected(tokens, drafts)
    domain.positive("context", context)
    last = domain.count("most", most)
    if max_batched_tokens is not None:
        last = min(last, domain.count("max_batched_tokens", max_batched_tokens) // (drafts + 1))
    plain, _, whole = _times(target, drafter, drafts, np.arange(1.0, last + 1), context, grouping)
    gains = np.flatnonzero(tokens * plain > whole * (1 + TIE))
    return int(gains[-1]) + 1 if gains.size else None


# ------------------------------------------------------------------------------------------------ experts


def expert_bytes_ratio(batch: int, drafts: int, num_experts: int, experts_per_token: int, repeat: float = 0.0) -> float:
    """Expert bytes that verification reads over those of a plain step, D(B runs of k + 1 tokens) / D(B tokens) (formula F11.7).

    Parameters
    ----------
    repeat : probability that a token repeats its predecessor's choice of an expert (formula F2.10); 0 is independent, D(B (k + 1))

    Raises
    ------
    DomainError : for a batch or experts below one, drafts outside 0 to 1000, more experts per token than there are, or a ``repeat``
        outside [0, 1]
    """
    domain.count("batch", batch)
    check_drafts(drafts)
    if domain.count("experts_per_token", experts_per_token) > domain.count("num_experts", num_experts):
        raise DomainError("experts_per_token", got=experts_per_token, wanted=f"at most the {num_experts} experts")
    touched, plain = (
        distinct_experts_correlated(batch, run, num_experts, experts_per_token, repeat) for run in (drafts + 1, 1)
    )
    return float(touched / plain)


def with_repeated_experts(target: StepModel, repeat: float) -> StepModel:
    """Give a step model the correlated form of expert coverage (formula F2.10, F11.7): verification then touches fewer experts.

    Raises
    ------
    DomainError : for a probability outside [0, 1]
    """
    domain.probability("repeat", repeat)

    operators = tuple(replace(each, repeat=repeat) if isinstance(each, Experts) else each for each in target.operators)
    return replace(target, operators=operators)


def early_exit(d: Deployment, layers: int) -> Deployment:
    """The deployment of the target's first layers with its own head, as a drafter (formula F11.9; self-speculation, arXiv 2309.08168).

    Its step over the target's is c_d: about layers / all layers, and a little more for the head. Groups of layers are taken in the order
    of the spec; layers that are skipped elsewhere cost the same.

    Raises
    ------
    DomainError : unless at least one layer is kept, and not more than there are
    LayoutError : when the pipeline has more stages than layers are kept
    """
    if domain.count("layers", layers) > d.model.num_layers:
        raise DomainError("layers", got=layers, wanted=f"at most the {d.model.num_layers} of {d.model.name}")
    kept, room = [], layers
    for group in d.model.layers:
        if room:
            kept.append(replace(group, count=min(room, group.count)))
            room -= kept[-1].count
    return replace(d, model=replace(d.model, layers=tuple(kept)))
