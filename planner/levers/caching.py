"""Levers of the cache itself: having one at all, and sharing the cache of equal beginnings of prompts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...models.spec import Recurrent
from ...quantities import show_count, show_time
from ..costs import Load
from ..memory import engine_cache
from ..prefix import reusable_tokens
from ..without_cache import CacheSaving, token_passes
from .outcomes import outcome_of
from .situation import EXACT, PAYS, Lever, not_applicable, room_reason
from .words import change, times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..costs import Amount
    from .outcomes import Outcome, Steps
    from .situation import Situation

_SEGMENTS = 8  # of the lengths that a sum is taken over
_ROUNDING = 1e-9

# ------------------------------------------------------------------------------------------------ a cache or none


def kv_cache(s: Situation) -> Iterator[Lever]:
    """The KV cache: without it every token is the last of a pass over all tokens before it (formula F17).

    The saving in FLOP and in time is that of one sequence alone; the gains are those of as many as run here, whose passes are computed
    together. What binds both differs, so that the saving in time is mostly far below that in FLOP.
    """
    d, now = s.deployment, s.outcome
    if now.tpot_s is None or now.ttft_s is None:
        why = (
            "a single output token is the last of one pass in any case"
            if d.workload.output == 1
            else "nothing runs yet"
        )
        yield not_applicable(s, "kv_cache", "the KV cache", why)
        return
    prompt, output = d.workload.prompt, d.workload.output
    flop, alone = generation_flop(s.nominal, prompt, output), generation_s(s.reached, prompt, output)
    pass_s = _mean(lambda length: _passes_s(s.reached, s.running, length), prompt + 1, output - 1)
    end_to_end = now.ttft_s + (output - 1) * pass_s
    running = min(d.workload.concurrency, d.layout.dp * s.running)
    before = replace(now, tpot_s=pass_s, output_tokens_per_s=running * output / end_to_end)
    passes = token_passes(prompt, output)
    yield Lever(
        id="kv_cache",
        title="the KV cache, against computing everything again",
        status="in_use",
        exact=True,
        before=before,
        after=now,
        reason="less_computed_again",
        why=(
            f"one sequence alone: {times(passes.ratio)} fewer tokens pass through the model, {times(flop.ratio)} fewer FLOP, but"
            f" {times(alone.ratio)} less time ({show_time(alone.without_cache)} -> {show_time(alone.with_cache)}), since decoding"
            f" with a cache is bound by what it reads; with {show_count(s.running)} running: {change(before, now)}"
        ),
        quality=EXACT,
        complexity="none: every engine has it",
        memory_bytes=s.running * s.plan.kv_bytes_per_sequence,
        figures={
            "token_passes_ratio": passes.ratio,
            "flop_ratio": flop.ratio,
            "time_ratio_alone": alone.ratio,
        },
    )


def _passes_s(model: Steps, sequences: int, length: float) -> float:
    """One pass over all tokens of so many sequences."""
    return float(model.step_s(0, 0, chunk=sequences * length, pieces=sequences))


def generation_flop(model: Any, prompt: int, output: int) -> CacheSaving:
    """FLOP of a generation without a cache and with it, all operators of a step model counted (formula F17).

    Sums over lengths are exact for what grows up to quadratically with them, as attention does. ``model`` is a
    :class:`~roofplan.planner.step.StepModel`.
    """

    def pass_flop(length: float) -> float:
        return float(model.totals(Load(0, 0, chunk=length))[0])

    def token_flop(length: float) -> float:
        return float(model.totals(Load(1, length))[0])

    return _saving(pass_flop, token_flop, prompt, output)


def generation_s(model: Steps, prompt: int, output: int) -> CacheSaving:
    """Time of a generation without a cache and with it, as :func:`roofplan.planner.without_cache.generation_s`, at a few lengths only."""
    return _saving(
        lambda length: _passes_s(model, 1, length), lambda length: float(model.step_s(1, length)), prompt, output
    )


def _saving(
    of_pass: Callable[[float], float], of_token: Callable[[float], float], prompt: int, output: int
) -> CacheSaving:
    """Passes over P, P + 1, ... P + G - 1 tokens, against one over P and G - 1 single tokens."""
    without = output * _mean(of_pass, prompt, output)
    later = (output - 1) * _mean(of_token, prompt + 1, output - 1) if output > 1 else 0.0
    return CacheSaving(without, of_pass(prompt) + later)


def _mean(of: Callable[[float], float], first: int, count: int) -> float:
    """Mean over ``count`` whole numbers from ``first`` on, in segments of three points each: exact for cubics.

        mean = f_mid + (f_first + f_last - 2 f_mid) / 2 x (n + 1) / (3 (n - 1))

    The last factor is the mean square of n evenly spread points of [-1, 1]: a third of it is Simpson's rule, its limit for large n.
    """
    size = max(1, -(-count // _SEGMENTS))
    total = 0.0
    for start in range(0, count, size):
        n = min(size, count - start)
        low, high = float(first + start), float(first + start + n - 1)
        middle = of((low + high) / 2)
        spread = (of(low) + of(high) - 2 * middle) / 2 * (n + 1) / (3 * (n - 1)) if n > 1 else 0.0
        total += n * (middle + spread)
    return total / count


# ------------------------------------------------------------------------------------------------ prefixes


@dataclass(frozen=True, slots=True)
class AfterPrefix:
    """A step model of requests whose first ``cached`` tokens are in the cache: lengths count what is left."""

    model: Steps
    cached: int

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
        """Time of a step: prompts and contexts come after the cached tokens, which are read and not computed (formula F9.2)."""
        return self.model.step_s(
            decoders,
            context + self.cached,
            verify=verify,
            chunk=chunk,
            past=past + self.cached,
            pieces=pieces,
            grouping=grouping,
        )


def prefix_cache(s: Situation) -> Iterator[Lever]:
    """A prefix cache where all requests begin alike: those tokens are neither computed nor stored again (formulas F9.1 to F9.3).

    Known to be left out: requests that miss, and prefixes that differ between requests: those are computed as rarely, but each is stored.
    """
    d, share = s.deployment, s.choices.prefix_hit
    paging = d.engine.paging
    block = d.settings.block or (paging.block if paging is not None else 1)
    prompt = d.workload.prompt
    cached = reusable_tokens(int(share * prompt + _ROUNDING), prompt, block)
    saves = "recurrent layers take a prefix up only where their state was saved; " if _is_recurrent(s) else ""
    after = _after_prefix(s, cached) if cached else s.outcome
    held = engine_cache(d).bytes_per_sequence(cached) if cached else 0
    yield Lever(
        id="prefix_cache",
        title=f"prefix cache, {share:.0%} of every prompt in common",
        status="available",
        exact=True,
        before=s.outcome,
        after=after,
        reason=_prefix_reason(s.outcome, after, cached),
        why=(
            f"{saves}{show_count(cached)} of {show_count(prompt)} prompt tokens are not computed again (in blocks of {block}), and are"
            f" stored once; decoding reads them as before; {change(s.outcome, after)}"
        ),
        quality=EXACT,
        complexity="on by default in vLLM V1 and SGLang; prompts must begin alike, token by token",
        memory_bytes=held,
        figures={"cached_tokens": cached, "hit_share": cached / prompt},
    )


def _after_prefix(s: Situation, cached: int) -> Outcome:
    d = s.deployment
    rest = replace(
        d,
        workload=replace(d.workload, prompt=d.workload.prompt - cached),
        max_model_len=max(d.longest_sequence, d.workload.length),  # the engine still plans for whole sequences
    )
    cache = engine_cache(d)
    plan = replace(
        s.plan,
        kv_budget_bytes=s.plan.kv_budget_bytes - cache.bytes_per_sequence(cached),
        kv_bytes_per_sequence=cache.bytes_per_sequence(rest.workload.length),
    )
    outcome = outcome_of(
        rest, plan=plan, nominal=AfterPrefix(s.nominal, cached), reached=AfterPrefix(s.reached, cached)
    )
    if outcome.ttft_s is None:
        return outcome
    # Cached tokens are still text that comes in.
    return replace(outcome, ttft_s=outcome.ttft_s + d.engine.scheduling.tokenise_per_token * cached)


def _prefix_reason(before: Outcome, after: Outcome, cached: int) -> str:
    if not cached:
        return "no_shared_prefix"
    room = room_reason(before, after)
    if room is not None or before.ttft_s is None or after.ttft_s is None:
        return room or "less_to_store"
    return "less_to_compute" if before.ttft_s >= PAYS * after.ttft_s else "prompts_are_short_beside_the_rest"


def _is_recurrent(s: Situation) -> bool:
    return any(isinstance(mixer, Recurrent) for layer in s.deployment.model.layers for mixer in layer.attention)
