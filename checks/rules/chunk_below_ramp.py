"""Prompts are cut into pieces so small that each pays for reading the weights again: the first token comes late for nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...planner.latency import prefill_s
from ...quantities import show_count, show_time
from ..finding import Rule
from ..serving import is_plain, longest_gap_s, room, running, timed
from ..spelling import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding

_GROWTH = 1.25  # of the time of a prompt, from which it is worth a word
_GOOD = 1.1  # of the same at the size that is advised


def check(checked: Checked) -> Iterator[Finding]:
    """Compare a prompt in pieces of this size with the same in one (formula F10.2)."""
    said = "max_num_batched_tokens" in checked.service.options
    if (is_plain(checked) and not said) or checked.feature("chunked_prefill") is False:
        return
    d, steps = checked.deployment, timed(checked)
    if d.engine.scheduling.admission == "whole_prompts":
        return
    count, prompt = running(checked), d.workload.prompt
    decoders = (count - 1) / d.layout.pp
    piece = room(d, decoders)
    if piece >= prompt:
        return
    whole_s, now_s = (prefill_s(steps, prompt, size) for size in (prompt, piece))
    if now_s < _GROWTH * whole_s:
        return
    better = 2 * d.max_batched_tokens
    while better - math.ceil(decoders) < prompt and prefill_s(steps, prompt, better) > _GOOD * whole_s:
        better *= 2
    tokens = 1 << (better - 1).bit_length()
    better_s = prefill_s(steps, prompt, min(prompt, tokens))
    fix = setting(checked.service, "max_num_batched_tokens", tokens)
    beside = ""
    if decoders:
        company = 0.0 if d.engine.scheduling.admission == "prefill_first" else decoders
        gaps = [longest_gap_s(steps, company, d.workload.mean_context, prompt, size) for size in (piece, tokens)]
        beside = (
            f"; the longest gap between the tokens of others grows from {show_time(gaps[0])} to {show_time(gaps[1])}"
        )
    message = (
        f"a prompt of {show_count(prompt)} tokens takes {show_time(now_s)} in {show_count(-(-prompt // piece))} pieces of"
        f" {show_count(piece)}, and {show_time(whole_s)} in one: pieces below the ramp cost a step of reading the weights each;"
        f" with {fix} it takes {show_time(better_s)}{beside}"
    )
    yield RULE.finding(
        checked,
        checked.service.place_of("max_num_batched_tokens"),
        message,
        fix=fix,
        severity="warning" if said else "note",
        prompt_s=now_s,
        whole_prompt_s=whole_s,
        growth_ratio=now_s / whole_s,
    )


RULE = Rule(
    id="chunk-below-ramp",
    severity="warning",
    title="Prompts are cut too small",
    why=(
        "A step reads all weights, however few tokens it holds. Pieces of a prompt that are too small to be bound by "
        "arithmetic add up to more time than the prompt needs, and the cache of earlier pieces is read again by each later one."
    ),
    fix="More tokens in a step, up to where the gaps between the tokens of others become too long.",
    check=check,
)
