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
from typing import TYPE_CHECKING, Literal

from ..errors import DomainError
from . import domain
from .costs import Experts
from .draft_trees import DraftRound, chain_rounds
from .experts import distinct_experts_correlated
from .speculative import TIE, first_best
from .step import StepModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .costs import Amount
    from .deployment import Deployment
    from .step import Grouping

MOST_SEQUENCES = 4096  # that are looked at unless more are asked for
_MOST_BATCH = 2**20


def verify_ratio(
    target: StepModel, batch: Amount, drafts: Amount, context: Amount, grouping: Grouping = "operators"
) -> Amount:
    """Verification of k drafts over a plain decode step, v = t(B, L, k + 1 tokens) / t(B, L, 1 token) (formula F11.6).

    It is 1 while the weights bind, grows towards k + 1 with the batch, and falls again with the context, whose cache is read once for all
    k + 1 tokens (MagicDec). With grouping ``parts`` these are the figures of F11.6. Numbers or arrays.

    Raises
    ------
    DomainError : unless batch and context are above zero and drafts not negative, or for a grouping that there is not
    """
    batch, drafts, context = _checked_load(batch, drafts, context, grouping)
    plain = target.step_s(batch, context, grouping=grouping)
    verify = target.step_s(batch, context, verify=drafts + 1, grouping=grouping)
    return _quotient("verify_ratio", verify, plain)


def relative_draft_cost(
    draft: StepModel, target: StepModel, batch: Amount, context: Amount, grouping: Grouping = "operators"
) -> Amount:
    """One decode step of the draft model over one of the target, c_d = t_d(B, L) / t(B, L) (formula F11.5). Numbers or arrays.

    Raises
    ------
    DomainError : unless batch and context are above zero, or for a grouping that there is not
    """
    batch, _, context = _checked_load(batch, 0, context, grouping)
    own, plain = (model.step_s(batch, context, grouping=grouping) for model in (draft, target))
    return _quotient("relative_draft_cost", own, plain)


def _checked_load(batch: Amount, drafts: Amount, context: Amount, grouping: Grouping) -> tuple[Amount, Amount, Amount]:
    """The arguments as they are, but for whole numbers beyond 64 bits, which become floats: what follows then is infinite, and refused."""
    domain.grouping(grouping)
    return (
        domain.amounts("batch", batch, domain.positive),
        domain.amounts("drafts", drafts, domain.not_negative),
        domain.amounts("context", context, domain.positive),
    )


def _quotient(what: str, one_s: Amount, other_s: Amount) -> Amount:
    domain.amounts(what, one_s, domain.positive)
    return domain.amounts(what, one_s / domain.amounts(what, other_s, domain.positive), domain.positive)


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

    def time_s(self, passes: Amount, batch: Amount, context: Amount, plain_s: Amount, grouping: Grouping) -> Amount:
        """Time of a round that is not verification: the passes of the drafter, and the overhead (none without drafts).

            p (t_d + c_d t) + overhead, with one pass p for all drafts where they come from one (formula F11.5)

        Numbers or arrays, in seconds; what it gets was checked.
        """
        own = 0 if self.model is None else self.model.step_s(batch, context, grouping=grouping)
        drafting = passes > 0
        run = 1 * drafting if self.one_pass else passes
        return run * (own + self.relative_cost * plain_s) + self.overhead_s * drafting


@dataclass(frozen=True, slots=True)
class Speculation:
    """Decoding of ``batch`` sequences with so many drafts each, in so many passes of the drafter; no drafts is plain decoding.

    ``drafts`` counts the tokens to verify beside the last one, of a tree its nodes. ``tpot_s`` is the mean time per token of one sequence
    (its tokens come in bursts of a round), ``output_tokens_per_s`` that of all. ``within_budget`` says whether a step has room for all
    drafts of all sequences.
    """

    drafts: int
    passes: int
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
    DomainError : for rates outside [0, 1] or rising ones, batches, context or a limit that are not above zero, or a grouping that there is
        not
    """
    return rounds_table(
        target,
        drafter,
        chain_rounds(rates),
        batches,
        context,
        max_batched_tokens=max_batched_tokens,
        grouping=grouping,
    )


def rounds_table(
    target: StepModel,
    drafter: Drafter,
    rounds: Iterable[DraftRound],
    batches: Iterable[int],
    context: float,
    *,
    max_batched_tokens: int | None = None,
    grouping: Grouping = "operators",
) -> tuple[Speculation, ...]:
    """Speculation with any rounds, chains or trees, at each batch, batch by batch: Sp = E t / (t_draft + t_verify) (formula F11.5, F11.8).

    The best size of a tree by batch is :func:`best_by_batch` of a table of :func:`~roofplan.planner.draft_trees.tree_rounds`. No rows
    without a round or a batch.

    Parameters
    ----------
    rounds : tokens to verify, passes of the drafter, and E of each
    context : mean tokens of a sequence
    max_batched_tokens : most tokens of a step: B (nodes + 1); None where nothing limits them

    Raises
    ------
    DomainError : for batches, context or a limit that are not above zero, or a grouping that there is not
    """
    import numpy as np

    sizes = [domain.count("batch", batch) for batch in domain.several("batches", batches)]
    drawn = domain.several("rounds", rounds, DraftRound)
    domain.positive("context", context)
    domain.grouping(grouping)
    limit = None if max_batched_tokens is None else domain.count("max_batched_tokens", max_batched_tokens)
    if not sizes or not drawn:
        return ()
    nodes, passes = np.array([(each.nodes, each.passes) for each in drawn]).T
    columns = np.asarray(sizes, dtype=float)[:, np.newaxis]
    plain, verify, whole = _times(target, drafter, (nodes, passes), columns, context, grouping)
    return tuple(
        Speculation(
            drafts=each.nodes,
            passes=each.passes,
            batch=batch,
            expected_tokens=each.expected_tokens,
            verify_ratio=verify_s / plain_s,
            round_s=round_s,
            speedup=each.expected_tokens * plain_s / round_s,
            tpot_s=round_s / each.expected_tokens,
            output_tokens_per_s=batch * each.expected_tokens / round_s,
            within_budget=limit is None or batch * (each.nodes + 1) <= limit,
        )
        for batch, (plain_s,), verified, rounds_s in zip(
            sizes, plain.tolist(), verify.tolist(), whole.tolist(), strict=True
        )
        for each, verify_s, round_s in zip(drawn, verified, rounds_s, strict=True)
    )


def _times(
    target: StepModel,
    drafter: Drafter,
    nodes_and_passes: tuple[Amount, Amount],
    batch: Amount,
    context: Amount,
    grouping: Grouping,
) -> tuple[Amount, Amount, Amount]:
    """Seconds of a plain step, of the verification, and of the whole round."""
    nodes, passes = nodes_and_passes
    plain = target.step_s(batch, context, grouping=grouping)
    verify = target.step_s(batch, context, verify=nodes + 1, grouping=grouping)
    whole = verify + drafter.time_s(passes, batch, context, plain, grouping)
    for times in (plain, verify, whole):
        domain.amounts("time of a round", times, domain.positive)
    return plain, verify, whole


def best_by_batch(table: Iterable[Speculation]) -> tuple[Speculation, ...]:
    """The row of the largest speed-up at each batch, of those within the budget of a step (formula F11.5).

    Ties go to fewer drafts, whatever the order of the rows; batches come back in rising order. One that exceeds the budget even without
    drafts has no row.

    Raises
    ------
    DomainError : for what is no collection of rows
    """
    by_batch: dict[int, list[Speculation]] = {}
    for row in sorted(domain.several("table", table, Speculation), key=lambda row: (row.batch, row.drafts, row.passes)):
        if row.within_budget:
            by_batch.setdefault(row.batch, []).append(row)
    return tuple(rows[first_best(row.speedup for row in rows)] for rows in by_batch.values())


Binds = Literal["break_even", "step_budget", "memory", "search_end"]


@dataclass(frozen=True, slots=True)
class LargestBatch:
    """The largest batch at which drafts gain, of those that there can be, and what ends it.

    Parameters
    ----------
    batch : None where drafts gain at none that was looked at
    binds : ``break_even``: a larger batch gains nothing; else the drafts still gain at ``batch``, which is the largest that a step has
        room for, that memory holds, or that was looked at. Of a batch that is None: why, by the same words
    """

    batch: int | None
    binds: Binds

    @property
    def break_even(self) -> int | None:
        """The batch above which drafts gain nothing; None where there is no such one, or where they never gain."""
        return self.batch if self.binds == "break_even" else None

    @property
    def limit(self) -> int | None:
        """The batch at which drafts still gain though there is no larger one; None where they stop to gain before, or never do."""
        return None if self.binds == "break_even" else self.batch


def break_even_batch(
    target: StepModel,
    drafter: Drafter,
    tokens: float,
    drafts: int,
    context: float,
    *,
    max_batched_tokens: int | None = None,
    places: int | None = None,
    most: int = MOST_SEQUENCES,
    grouping: Grouping = "operators",
) -> LargestBatch:
    """Largest batch at which k drafts still gain, E t_plain > t_round (formula F11.6), and what ends it.

    Where v(B) stays below E - k c_d no batch breaks even: the answer is then the largest that there can be, and says what limits it, of
    several the tightest. All batches are looked at: with experts a middle batch can gain where a small one, which touches more experts per
    token, does not.

    Parameters
    ----------
    tokens : E, mean tokens per round
    max_batched_tokens : most tokens of a step; batches that exceed it are not looked at
    places : sequences of a step that memory holds; a break-even beyond them is one, but without one they are what ends it
    most : the largest batch that is looked at

    Raises
    ------
    DomainError : without a draft, for E outside [1, k + 1], a context or limits that are not above zero, a ``most`` above 1048576, or a
        grouping that there is not
    """
    import numpy as np

    domain.tokens_per_round(tokens, domain.drafts(drafts, 1))
    domain.positive("context", context)
    domain.grouping(grouping)
    ends: dict[Binds, int] = {"search_end": domain.count("most", most, 1, _MOST_BATCH)}
    if max_batched_tokens is not None:
        ends["step_budget"] = domain.count("max_batched_tokens", max_batched_tokens) // (drafts + 1)
    binds = min(ends, key=lambda name: ends[name])
    last = ends[binds]
    held = last if places is None else domain.count("places", places, 0)
    if not last:
        return LargestBatch(None, "step_budget")
    plain, _, whole = _times(target, drafter, (drafts, drafts), np.arange(1.0, last + 1), context, grouping)
    gains = np.flatnonzero(tokens * plain > whole * (1 + TIE))
    if not gains.size:
        return LargestBatch(None, "break_even")
    batch = int(gains[-1]) + 1
    if batch < last:
        return LargestBatch(batch, "break_even")
    if held >= last:
        return LargestBatch(batch, binds)
    within = gains[gains < held]
    if not within.size:
        return LargestBatch(None, "memory")
    batch = int(within[-1]) + 1
    return LargestBatch(batch, "memory" if batch == held else "break_even")


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
    domain.drafts(drafts)
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
