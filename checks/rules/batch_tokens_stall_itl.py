"""A piece of a prompt is so large that the sequences that decode beside it wait longer for their next token than people read."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ...planner.latency import prefill_s
from ...quantities import show_count, show_time
from ..finding import Rule
from ..serving import LONGEST_GAP_S, is_plain, longest_gap_s, room, running, timed
from ..spelling import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding

_TILE = 128  # rows of a product's tile: a part of one takes the time of a whole one
_GROWTH = 1.25  # of the time of a prompt, which smaller pieces may cost
_LEAST = 256  # tokens of a piece below which a prompt takes too many steps to be an advice


def check(checked: Checked) -> Iterator[Finding]:
    """Time the longest step that holds a piece of a prompt beside sequences that decode (formulas F10.1, F10.4)."""
    said = "max_num_batched_tokens" in checked.service.options
    if is_plain(checked) and not said:
        return
    d, steps = checked.deployment, timed(checked)
    count = running(checked)
    if count < 2 or d.workload.output < 2:
        return  # nobody waits
    apart = d.engine.scheduling.admission == "prefill_first"
    decoders, context, prompt = max(1.0, (count - 1) / d.layout.pp), d.workload.mean_context, d.workload.prompt
    step_s = float(steps.step_s(decoders, context))
    # Steps of prompts alone hold up a decode step; in mixed ones both are computed at a time.
    company, waited_s = (0.0, step_s) if apart else (decoders, 0.0)
    whole = checked.feature("chunked_prefill") is False or d.engine.scheduling.admission == "whole_prompts"
    piece = prompt if whole else min(prompt, room(d, decoders))
    gap_s = waited_s + longest_gap_s(steps, company, context, prompt, piece)
    if gap_s <= LONGEST_GAP_S or waited_s >= LONGEST_GAP_S:
        return
    from ...planner.chunked import chunk_within_latency

    limit_s = LONGEST_GAP_S - waited_s
    held = chunk_within_latency(steps, limit_s, prompt, tile=_TILE, decoders=company, context=context)
    if held < _LEAST:
        return  # no setting of this kind holds it
    tokens = _power_of_two(held + (0 if apart else math.ceil(decoders)))
    smaller = min(prompt, room(replace(d, settings=replace(d.settings, max_batched_tokens=tokens)), decoders))
    now_s, then_s = (prefill_s(steps, prompt, size) for size in (piece, smaller))
    if then_s > _GROWTH * now_s:
        return  # the first token would come too late
    fix = setting(checked.service, "max_num_batched_tokens", tokens)
    if (d.settings.max_num_seqs or 0) > tokens:  # engines want room for a token of each sequence
        fix = f"{fix} and {setting(checked.service, 'max_num_seqs', tokens)}"
    held_s = waited_s + longest_gap_s(steps, company, context, prompt, smaller)
    others = "1 other sequence waits" if count == 2 else f"{show_count(count - 1)} other sequences wait"
    message = (
        f"a step with {show_count(piece)} tokens of a prompt takes {show_time(gap_s)}, for which {others}, where a token else comes after"
        f" {show_time(step_s)}; more than {show_time(LONGEST_GAP_S)} is slower than people read: with {fix} it is {show_time(held_s)}, and"
        f" a whole prompt takes {show_time(then_s)} instead of {show_time(now_s)}"
    )
    yield RULE.finding(
        checked,
        checked.service.place_of("max_num_batched_tokens", "chunked_prefill"),
        message,
        fix=f"{fix}, with prompts in chunks" if whole else fix,
        severity="warning" if said or "chunked_prefill" in checked.service.features else "note",
        gap_s=gap_s,
        limit_s=LONGEST_GAP_S,
        step_s=step_s,
    )


def _power_of_two(tokens: int) -> int:
    return 1 << (tokens.bit_length() - 1)


RULE = Rule(
    id="batch-tokens-stall-itl",
    severity="warning",
    title="Prompts hold up the tokens of others",
    why=(
        "A step ends when its slowest part does: while a long piece of a prompt is computed, every sequence that decodes waits "
        "for its next token. A mean time per token does not show such gaps; people do see them."
    ),
    fix=(
        "Fewer tokens in a step, so that prompts are cut into smaller pieces; the first token then comes a little later."
    ),
    check=check,
)
