"""Levers of speculation: a trained draft layer, and look-up in what was written already."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from ...models.spec import Moe
from ...quantities import show_count
from ..acceptance import expected_by_drafts, independent_rates
from ..load import Traffic, closed_loop
from ..memory import plan_capacity, rank_cache
from ..parameters import stored_bytes
from ..reached import reached_model
from ..speculative import best_drafts, most_drafts_within, speculation_memory
from ..speculative_steps import relative_draft_cost, verify_ratio
from ..times import server_of
from .situation import PAYS, Lever, not_applicable
from .words import change, times

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..costs import Amount
    from ..deployment import Deployment
    from ..load import LoadState
    from ..memory import MemoryPlan
    from ..speculative import SpeculationMemory
    from ..step import StepModel
    from .outcomes import Outcome, Steps
    from .situation import Situation

MOST_DRAFTS = 8
# Look-up in the prompt finds 1.37 tokens a step in a first and 1.66 in a second turn of chats (NVIDIA/TensorRT-LLM, blog on n-gram
# speculation): 1.5, which is 1 / (1 - alpha).
LOOKUP_ACCEPTANCE = 1 / 3


@dataclass(frozen=True, slots=True)
class Rounds:
    """Steps of a server that speculates: each verifies k drafts of every sequence, which a drafter made before.

    ``later`` tokens are added to the context, since rounds are counted and each yields several tokens.
    """

    target: Steps
    drafter: Steps | None
    drafts: int
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
        """Time of a round, t(B, L, k + 1 tokens) + k t_d(B, L), prompts beside it as in any step (formulas F11.5, F11.6)."""
        at = context + self.later
        step = self.target.step_s(
            decoders, at, verify=verify + self.drafts, chunk=chunk, past=past, pieces=pieces, grouping=grouping
        )
        if self.drafter is None:
            return step
        drafting = self.drafts * self.drafter.step_s(decoders, at, grouping=grouping)
        return step + drafting * (decoders > 0)


def draft_layer(s: Situation) -> Iterator[Lever]:
    """Drafts by one more layer over the target's own features and head (EAGLE, MTP), at the acceptance that is assumed."""
    own = any(part.kind == "mtp" for part in s.deployment.model.parts)
    alpha = s.choices.acceptance
    title = (
        f"speculation with {'its own draft layer' if own else 'a trained draft layer'}, {alpha:.0%} of its drafts kept"
    )
    one = one_layer(s.deployment)
    yield _speculation(
        s,
        "speculation.draft_layer",
        title,
        alpha,
        one,
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
        None,
        "a setting of the engine; pays for summaries, edits and code, where outputs repeat the prompt",
    )


def one_layer(d: Deployment) -> Deployment:
    """The last layer of a model with its head, as a drafter on the same ranks."""
    last = replace(d.model.layers[-1], count=1)
    return replace(
        d,
        model=replace(d.model, layers=(last,)),
        layout=replace(d.layout, pp=1, dp=1, ep=min(d.layout.ep, d.layout.tp)),
    )


def _speculation(
    s: Situation, lever_id: str, title: str, alpha: float, draft: Deployment | None, complexity: str
) -> Lever:
    d, now = s.deployment, s.outcome
    if now.tpot_s is None:
        why = "a single output token is no target of drafts" if d.workload.output == 1 else "nothing runs yet"
        return not_applicable(s, lever_id, title, why)
    target = cast("StepModel", s.reached)
    drafter = None if draft is None else cast("StepModel", reached_model(draft))
    context, batch = d.workload.mean_context, s.batch
    cost = 0.0 if drafter is None else float(relative_draft_cost(drafter, target, batch, context))
    most = min(MOST_DRAFTS, most_drafts_within(d.max_batched_tokens, int(batch)))
    rates = independent_rates(alpha, MOST_DRAFTS)[:most]
    ratios = [float(verify_ratio(target, batch, drafts, context)) for drafts in range(1, most + 1)]
    drafts = best_drafts(rates, cost, ratios).drafts
    tokens = expected_by_drafts(rates)[drafts]
    held = _held(s, draft, drafts)
    after = now
    if drafts:
        plan = replace(
            s.plan,
            kv_budget_bytes=s.plan.kv_budget_bytes - held.draft_weights_bytes,
            kv_bytes_per_sequence=s.plan.kv_bytes_per_sequence
            + (held.total_bytes - held.draft_weights_bytes) // s.running,
        )
        after = _outcome(s, plan, Rounds(target, drafter, drafts, 0.0), tokens)
    figures = {
        "acceptance": alpha,
        "drafts": drafts,
        "expected_tokens": tokens,
        "draft_cost": cost,
        "verify_ratio": ratios[max(1, drafts) - 1] if ratios else 1.0,
    }
    return Lever(
        id=lever_id,
        title=title,
        status="available",
        exact=True,
        before=now,
        after=after,
        reason=_reason(s, after),
        why=_why(s, figures, ratios, after),
        quality="none in distribution, with the exact rule of acceptance",
        complexity=complexity,
        memory_bytes=held.total_bytes if drafts else 0,
        figures=figures,
    )


def _held(s: Situation, draft: Deployment | None, drafts: int) -> SpeculationMemory:
    """Bytes of one rank: the layer without table and head, which it shares, its cache, and room for unverified tokens (formula F11.11)."""
    d = s.deployment
    weights = 0
    if draft is not None:
        layers = replace(draft, model=replace(draft.model, layers=(replace(draft.model.layers[0], count=2),)))
        # Two layers less one: table, head and other parameters fall away.
        weights = _stored(layers) - _stored(draft)
    return speculation_memory(
        rank_cache(d),
        drafts,
        s.running,
        d.workload.length,
        draft_weights_bytes=weights,
        draft=None if draft is None else rank_cache(draft),
    )


def _stored(d: Deployment) -> int:
    return stored_bytes(d.model, d.formats, d.layout, d.engine.expert_padding)


def _outcome(s: Situation, plan: MemoryPlan, rounds: Rounds, tokens: float) -> Outcome:
    """The outcome as it is now, changed by the ratio of two closed loops: with (G - 1) / E rounds after the first token, and without."""
    d, now = s.deployment, s.outcome
    workload, places = d.workload, plan_capacity(d, plan).max_concurrency
    gaps = workload.output - 1
    after = replace(now, max_concurrency=places)
    if places < d.layout.dp or now.ttft_s is None or now.tpot_s is None or now.output_tokens_per_s is None:
        return replace(after, ttft_s=None, tpot_s=None, output_tokens_per_s=None)

    def loop(model: Steps, held: int, later: float) -> LoadState:
        server = server_of(d, cast("StepModel", model), held // d.layout.dp)
        return closed_loop(server, Traffic(workload.prompt, 1 + later, d.sequences_per_replica))

    def requests_per_s(state: LoadState, later: float) -> float:
        return state.running / (state.steady_ttft_s - state.queue_s + later * state.tpot_s)

    later = gaps / tokens
    old = loop(s.reached, now.max_concurrency, gaps)
    new = loop(replace(rounds, later=(gaps - later) / 2), places, later)
    return replace(
        after,
        ttft_s=now.ttft_s * new.steady_ttft_s / old.steady_ttft_s,
        tpot_s=now.tpot_s * new.tpot_s / tokens / old.tpot_s,
        output_tokens_per_s=now.output_tokens_per_s * requests_per_s(new, later) / requests_per_s(old, gaps),
    )


def _why(s: Situation, figures: dict[str, float], ratios: Sequence[float], after: Outcome) -> str:
    drafts = int(figures["drafts"])
    more = ", also because more tokens touch more experts" if _has_experts(s) and figures["verify_ratio"] > PAYS else ""
    at = f"at a batch of {s.batch:g} and a context of {show_count(s.deployment.workload.mean_context)}"
    if not drafts:
        one = f"{times(ratios[0])} of a plain step" if ratios else "more tokens than a step holds"
        return f"{at} verifying one draft costs {one}{more}, drafting it {times(figures['draft_cost'])}: no number of drafts pays"
    return (
        f"{at} the best is {drafts} draft(s): {figures['expected_tokens']:.2f} tokens a round, which costs"
        f" {times(figures['verify_ratio'])} of a plain step to verify{more} and {drafts} x {figures['draft_cost']:.3f} to draft;"
        f" {change(s.outcome, after)}"
    )


def _reason(s: Situation, after: Outcome) -> str:
    now = s.outcome
    if not after.max_concurrency:
        return "does_not_fit"
    if now.tpot_s and after.tpot_s and now.tpot_s >= PAYS * after.tpot_s:
        return "steps_are_cheap_to_widen"
    is_read = _has_experts(s) and s.decode_limit == "weight_bandwidth"
    return "drafts_touch_more_experts" if is_read else "verification_is_not_free"


def _has_experts(s: Situation) -> bool:
    return any(isinstance(part, Moe) for layer in s.deployment.model.layers for part in layer.mlp)
