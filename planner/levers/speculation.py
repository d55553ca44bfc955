"""Levers of speculation: a trained draft layer, and look-up in what was written already.

Rounds are those of ``roofplan speculate``: the same drafters, the same fixed time of a round, the same table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from ...models.spec import Moe
from ...quantities import show_count
from ..draft_memory import with_drafts
from ..drafters import has_mtp_layer, of_method, round_overhead
from ..given_acceptance import GivenAcceptance
from ..load import Traffic, closed_loop
from ..memory import plan_capacity
from ..speculation_table import table_of
from ..times import server_of
from .situation import PAYS, Lever, not_applicable
from .words import change, times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..costs import Amount
    from ..drafters import DraftPlan, Method
    from ..load import LoadState
    from ..memory import MemoryPlan
    from ..speculation_table import Choice, Row
    from ..speculative_steps import Drafter
    from ..step import StepModel
    from .outcomes import Outcome, Steps
    from .situation import Situation

MOST_DRAFTS = 8
# Look-up in the prompt finds 1.37 tokens a step in a first and 1.66 in a second turn of chats (NVIDIA/TensorRT-LLM, blog on n-gram
# speculation): 1.5, which is 1 / (1 - alpha).
LOOKUP_ACCEPTANCE = 1 / 3


@dataclass(frozen=True, slots=True)
class Rounds:
    """Steps of a server that speculates: each verifies k drafts of every sequence, which a drafter made before in so many passes.

    ``later`` tokens are added to the context, since rounds are counted and each yields several tokens.
    """

    target: Steps
    drafter: Drafter
    drafts: int
    passes: int
    later: float

    def step_s(
        self,
        decoders: Amount,
        context: Amount,
        *,
        verify: Amount = 1,
        chunk: Amount = 0,
        past: Amount = 0,
        pieces: Amount = 1,
        grouping: Any = "operators",
    ) -> Amount:
        """Time of a round, t(B, L, k + 1 tokens) + k t_d(B, L) + what is fixed, prompts beside it as ever (formulas F11.5, F11.6)."""
        at = context + self.later
        step = self.target.step_s(
            decoders, at, verify=verify + self.drafts, chunk=chunk, past=past, pieces=pieces, grouping=grouping
        )
        plain_s = self.target.step_s(decoders, at, grouping=grouping) if self.drafter.relative_cost else 0.0
        return step + self.drafter.time_s(self.passes, decoders, at, plain_s, grouping) * (decoders > 0)


def draft_layer(s: Situation) -> Iterator[Lever]:
    """Drafts by one more layer over the target's own features and head (EAGLE, MTP), at the acceptance that is assumed."""
    own = has_mtp_layer(s.deployment.model)
    alpha = s.choices.acceptance
    title = (
        f"speculation with {'its own draft layer' if own else 'a trained draft layer'}, {alpha:.0%} of its drafts kept"
    )
    yield _speculation(
        s,
        "speculation.draft_layer",
        title,
        alpha,
        "mtp" if own else "eagle",
        "the model comes with it"
        if own
        else "a draft layer trained for this model (EAGLE, MTP), and an engine that verifies",
    )


def lookup(s: Situation) -> Iterator[Lever]:
    """Drafts copied from the prompt where the last words stand there, too: no drafter, and few drafts are kept in open chat."""
    yield _speculation(
        s,
        "speculation.lookup",
        f"speculation by look-up in the prompt, {LOOKUP_ACCEPTANCE:.0%} of drafts kept",
        LOOKUP_ACCEPTANCE,
        "ngram",
        "a setting of the engine; pays for summaries, edits and code, where outputs repeat the prompt",
    )


def _speculation(s: Situation, lever_id: str, title: str, alpha: float, method: Method, complexity: str) -> Lever:
    d, now = s.deployment, s.outcome
    if now.tpot_s is None:
        why = "a single output token is no target of drafts" if d.workload.output == 1 else "nothing runs yet"
        return not_applicable(s, lever_id, title, why)
    overhead_s, _ = round_overhead(d, None)
    plan = of_method(d, method, s.choices.sixteen_bits or d.formats, overhead_s=overhead_s)
    given = GivenAcceptance("acceptance", alpha)
    (choice,) = table_of(d, plan, given, range(1, MOST_DRAFTS + 1), [s.running * d.layout.dp]).choices
    row, after = choice.nearest, now
    figures = {"acceptance": alpha, "drafts": float(choice.k), "round_overhead_s": overhead_s}
    if row is not None:
        figures |= {
            "drafts": choice.k,
            "expected_tokens": row.expected_tokens if choice.k else 1.0,
            "draft_cost": row.draft_cost / row.passes,
            "verify_ratio": row.verify_ratio,
            "fixed_cost": row.fixed_cost,
        }
        if choice.k:
            after = _outcome(s, plan, row)
    return Lever(
        id=lever_id,
        title=title,
        status="available",
        exact=True,
        before=now,
        after=after,
        reason=_reason(s, choice, after),
        why=_why(s, choice, after),
        quality="none in distribution, with the exact rule of acceptance",
        complexity=complexity,
        memory_bytes=row.memory.total_bytes if row is not None and choice.k else 0,
        figures=figures,
    )


def _outcome(s: Situation, plan: DraftPlan, row: Row) -> Outcome:
    """The outcome as it is now, changed by the ratio of two closed loops: with (G - 1) / E rounds after the first token, and without."""
    d, now = s.deployment, s.outcome
    memory: MemoryPlan = with_drafts(d, s.plan, plan, row.k, row.passes)
    workload, places = d.workload, plan_capacity(d, memory).max_concurrency
    gaps = workload.output - 1
    after = replace(now, max_concurrency=places)
    if places < d.layout.dp or now.ttft_s is None or now.tpot_s is None or now.output_tokens_per_s is None:
        return replace(after, ttft_s=None, tpot_s=None, output_tokens_per_s=None)

    def loop(model: Steps, held: int, later: float) -> LoadState:
        server = server_of(d, cast("StepModel", model), held // d.layout.dp)
        return closed_loop(server, Traffic(workload.prompt, 1 + later, d.sequences_per_replica))

    def requests_per_s(state: LoadState, later: float) -> float:
        return state.running / (state.steady_ttft_s - state.queue_s + later * state.tpot_s)

    later = gaps / row.expected_tokens
    rounds = Rounds(s.reached, plan.reached, row.k, row.passes, (gaps - later) / 2)
    old = loop(s.reached, now.max_concurrency, gaps)
    new = loop(rounds, places, later)
    return replace(
        after,
        ttft_s=now.ttft_s * new.steady_ttft_s / old.steady_ttft_s,
        tpot_s=now.tpot_s * new.tpot_s / row.expected_tokens / old.tpot_s,
        output_tokens_per_s=now.output_tokens_per_s * requests_per_s(new, later) / requests_per_s(old, gaps),
    )


def _why(s: Situation, choice: Choice, after: Outcome) -> str:
    row = choice.nearest
    at = f"at a batch of {choice.batch:,} and a context of {show_count(s.deployment.workload.mean_context)}"
    if row is None:
        return f"{at} a step has no room for a single draft of each sequence"
    more = ", also because more tokens touch more experts" if _has_experts(s) and row.verify_ratio > PAYS else ""
    fixed = f", and {row.fixed_cost:.2f} of a step is fixed in every round" if row.fixed_cost else ""
    each = row.draft_cost / row.passes
    if not choice.k:
        drafts = "one draft" if row.k == 1 else f"{row.k} drafts"
        return (
            f"{at} verifying {drafts} costs {times(row.verify_ratio)} of a plain step{more}, drafting each {times(each)}{fixed}:"
            " no number of drafts pays"
        )
    return (
        f"{at} the best is {row.k} draft(s): {row.expected_tokens:.2f} tokens a round, which costs"
        f" {times(row.verify_ratio)} of a plain step to verify{more} and {row.k} x {each:.3f} to draft{fixed};"
        f" {change(s.outcome, after)}"
    )


def _reason(s: Situation, choice: Choice, after: Outcome) -> str:
    now = s.outcome
    if choice.reason is not None:
        return choice.reason
    if not after.max_concurrency:
        return "does_not_fit"
    if now.tpot_s and after.tpot_s and now.tpot_s >= PAYS * after.tpot_s:
        return "steps_are_cheap_to_widen"
    is_read = _has_experts(s) and s.decode_limit == "weight_bandwidth"
    return "drafts_touch_more_experts" if is_read else "verification_is_not_free"


def _has_experts(s: Situation) -> bool:
    return any(isinstance(part, Moe) for layer in s.deployment.model.layers for part in layer.mlp)
