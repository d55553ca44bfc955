"""Levers of serving: continuous batches, paged caches, chunked prompts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ...quantities import show_bytes, show_count, show_time
from ..latency import chunks
from ..memory import engine_cache
from ..paging import reserved_waste
from ..static_batching import geometric_utilization
from .outcomes import outcome_of
from .situation import EXACT, PAYS, Lever, not_applicable, room_reason
from .words import change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .outcomes import Outcome, Steps
    from .situation import Situation

# ------------------------------------------------------------------------------------------------ continuous batches


def continuous_batching(s: Situation) -> Iterator[Lever]:
    """Continuous batching against static batches, whose slots wait for the longest of their sequences (formulas F8.1, F8.3).

    A static batch of B sequences takes its prompts and then E[max] - 1 steps of all B slots, E[max] = G / U; requests that come while it
    runs wait for its end. Output lengths are taken as geometric around their mean, as far as anyone knows before a sequence ends.
    """
    d, now = s.deployment, s.outcome
    if now.tpot_s is None or s.running == 1:
        yield (
            _single(s)
            if now.output_tokens_per_s is not None
            else not_applicable(s, "continuous_batching", "continuous batching", "nothing runs yet")
        )
        return
    output, batch = d.workload.output, s.running
    use = geometric_utilization(float(output), batch)
    step = float(s.reached.step_s(s.batch, d.workload.mean_context))
    prompts, longest = _prompts_s(s), output / use
    cycle = prompts + (longest - 1) * step
    running = min(d.workload.concurrency, d.layout.dp * batch)
    rounds = math.ceil(d.sequences_per_replica / batch) - 1  # batches that one without a slot waits for
    waiting = (longest - output) * step + rounds * cycle
    before = replace(
        now,
        ttft_s=d.scheduling.request_overhead + waiting + prompts,
        tpot_s=step,
        output_tokens_per_s=running * output / cycle,
    )
    yield Lever(
        id="continuous_batching",
        title="continuous batching, against static batches",
        status="in_use",
        exact=True,
        before=before,
        after=now,
        reason="slots_wait_for_the_longest",
        why=(
            f"of {show_count(batch)} outputs of {show_count(output)} tokens in the mean the longest has {show_count(longest)}: slots of"
            f" a static batch are used to {use:.0%}; continuous batches mix prompts into the steps, which costs TPOT; {change(before, now)}"
        ),
        quality=EXACT,
        complexity="none: every serving engine has it",
        figures={"static_utilization": use, "longest_output_tokens": longest},
    )


def _single(s: Situation) -> Lever:
    return Lever(
        id="continuous_batching",
        title="continuous batching, against static batches",
        status="in_use",
        exact=True,
        before=s.outcome,
        after=s.outcome,
        reason="single_sequence",
        why="one sequence runs at a time: nobody waits for a longer one",
        quality=EXACT,
        complexity="none: every serving engine has it",
    )


def _prompts_s(s: Situation) -> float:
    """Time until the prompts of all running sequences are computed, as many in a step as it has tokens for."""
    prompt, budget = s.deployment.workload.prompt, s.deployment.max_batched_tokens
    stages = s.deployment.layout.pp
    if prompt > budget:
        one = sum(float(s.reached.step_s(0, 0, chunk=chunk, past=past)) for chunk, past in chunks(prompt, budget))
        return one * max(1.0, s.running / stages)
    together = min(s.running, budget // prompt)
    filled = float(s.reached.step_s(0, 0, chunk=together * prompt, pieces=together))
    return filled * max(1.0, math.ceil(s.running / together) / stages)


# ------------------------------------------------------------------------------------------------ paging


def paged_cache(s: Situation) -> Iterator[Lever]:
    """A paged cache against one that reserves the longest sequence for each request (formulas F3.9, F3.10; Kwon et al. 2023)."""
    d, cache, longest = s.deployment, engine_cache(s.deployment), s.deployment.longest_sequence
    reserved = max(cache.bytes_per_sequence(longest), s.plan.kv_bytes_per_sequence)
    before = outcome_of(d, plan=replace(s.plan, kv_bytes_per_sequence=reserved), nominal=s.nominal, reached=s.reached)
    waste = reserved_waste(min(d.workload.mean_context, longest), longest)
    same = before.max_concurrency == s.outcome.max_concurrency
    why = (
        f"reserving {show_count(longest)} tokens takes {show_bytes(reserved)} a sequence and leaves {waste:.0%} of it empty in the mean;"
        f" blocks take {show_bytes(s.plan.kv_bytes_per_sequence)} at the end; {change(before, s.outcome)}"
    )
    yield Lever(
        id="paged_cache",
        title=f"a paged cache, against reserving {show_count(longest)} tokens",
        status="in_use",
        exact=True,
        before=before,
        after=s.outcome,
        reason=room_reason(before, s.outcome) or ("sequences_are_as_long_as_reserved" if same else "nothing_reserved"),
        why=why,
        quality=EXACT,
        complexity="none: every serving engine has it",
        memory_bytes=s.running * (s.plan.kv_bytes_per_sequence - reserved),
        figures={"reserved_waste": waste, "reserved_tokens": longest},
    )


# ------------------------------------------------------------------------------------------------ chunked prompts

_LEAST_CHUNK, _MOST_CHUNKS, _GROWTH, _SPARE = 256, 256, 1.1, 1.25


def chunked_prefill(s: Situation) -> Iterator[Lever]:
    """Prompts in chunks beside the sequences that decode: shorter gaps for those, a later first token (formulas F10.1, F10.2).

    Where prompts are not cut yet, a step gets the smallest power of two of tokens at which a prompt adds at most a tenth more to the steps
    of those that decode.
    """
    d, title = s.deployment, "chunked prefill, against whole prompts"
    scheduling, prompt = d.engine.scheduling, d.workload.prompt
    if s.outcome.output_tokens_per_s is None:
        yield not_applicable(s, "chunked_prefill", title, "nothing runs yet")
        return
    if scheduling.admission == "prefill_first":
        why = f"{d.engine.engine} computes prompts in steps of their own"
        yield not_applicable(s, "chunked_prefill", title, why)
        return
    in_use = scheduling.admission == "mixed" and prompt > d.max_batched_tokens
    budget = d.max_batched_tokens if in_use else _good_budget(s)
    chunk = _room(s, budget)
    if chunk >= prompt and not in_use:
        yield _chunks(s, s.outcome, s.outcome, f"a prompt of {show_count(prompt)} tokens is short enough for one step")
        return
    tokens = prompt + s.running if in_use else budget
    mixed = replace(d.engine, scheduling=replace(scheduling, admission="mixed"))
    other = replace(d, engine=mixed, settings=replace(d.settings, max_batched_tokens=tokens))
    changed = outcome_of(other)
    before, after = (changed, s.outcome) if in_use else (s.outcome, changed)
    gaps = [longest_gap_s(s.reached, s.batch, d.workload.mean_context, prompt, size) for size in (prompt, chunk)]
    why = (
        f"the longest gap between tokens is {show_time(gaps[0])} with whole prompts, {show_time(gaps[1])} with chunks of"
        f" {show_count(chunk)} tokens; {change(before, after)}"
    )
    pays = "single_sequence" if s.running == 1 else "shorter_gaps" if gaps[0] >= PAYS * gaps[1] else "prompt_is_short"
    yield replace(
        _chunks(s, before, after, why, in_use=in_use),
        reason=room_reason(before, after) or pays,
        memory_bytes=(s.memory_of(d) - s.memory_of(other)) * (1 if in_use else -1),
        option="" if in_use else f"--max-num-batched-tokens {budget}",
        figures={"chunk_tokens": chunk, "longest_gap_whole_s": gaps[0], "longest_gap_chunked_s": gaps[1]},
        changed=other,
    )


def _chunks(s: Situation, before: Outcome, after: Outcome, why: str, *, in_use: bool = False) -> Lever:
    return Lever(
        id="chunked_prefill",
        title="chunked prefill, against whole prompts",
        status="in_use" if in_use else "available",
        exact=True,
        before=before,
        after=after,
        reason="single_sequence" if s.running == 1 else "prompt_is_short",
        why=why,
        quality=EXACT,
        complexity="a setting of the engine",
    )


def _room(s: Situation, budget: int) -> int:
    """Tokens of a prompt in a step that also decodes, at least one."""
    return max(1, budget - math.ceil(s.batch))


def _good_budget(s: Situation) -> int:
    """The smallest power of two of tokens in a step at which a prompt adds at most a tenth more to the steps of those that decode.

    There is room for those that decode, and for the prompts of all others that come while one decodes: B S / G tokens a step.
    """
    d, prompt = s.deployment, s.deployment.workload.prompt
    arriving = math.ceil(_SPARE * s.running * prompt / d.workload.output)
    least = max(_LEAST_CHUNK, prompt // _MOST_CHUNKS, arriving) + math.ceil(s.batch)
    whole = _added_s(s, prompt)
    budget: int = 1 << (least - 1).bit_length()
    while _room(s, budget) < prompt and _added_s(s, _room(s, budget)) > _GROWTH * whole:
        budget *= 2
    return min(budget, d.max_batched_tokens)


def _added_s(s: Situation, largest: int) -> float:
    """What a prompt in chunks adds to the steps of those that decode beside it."""
    d, context = s.deployment, s.deployment.workload.mean_context
    alone = float(s.reached.step_s(s.batch, context))
    pieces = chunks(d.workload.prompt, largest)
    return sum(float(s.reached.step_s(s.batch, context, chunk=chunk, past=past)) - alone for chunk, past in pieces)


def longest_gap_s(model: Steps, decoders: float, context: float, prompt: int, chunk: int) -> float:
    """Longest step that holds a chunk of a prompt: the last whole one, which attends to most (formula F10.1)."""
    piece = min(chunk, prompt)
    return float(model.step_s(decoders, context, chunk=piece, past=prompt - piece))
