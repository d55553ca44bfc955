"""Tensor-parallel ranks exchange over the host's buses or a network, and another division of the same devices gives more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...planner.costs import Load
from ...planner.parallel import Layout
from ...quantities import show_rate
from ..finding import Rule
from ..holding import layout_text
from ..serving import batch, is_quick, laid_out, sized, timed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...planner.deployment import Deployment
    from ...planner.step import StepModel
    from ..checked import Checked
    from ..finding import Finding

_SLOW = ("host", "network")  # ways to join devices
_SHARE = 0.25  # of a step, from which exchanges are worth a word
_GAIN = 1.1  # of another division


@dataclass(frozen=True, slots=True)
class _Better:
    layout: Layout
    output_tokens_per_s: float


def check(checked: Checked) -> Iterator[Finding]:
    """Sum up the exchanges of a decode step and of a prompt, and size the same devices divided otherwise (formulas F12.2, F12.3)."""
    d = checked.deployment
    link = d.hardware.link(d.layout.tp) if d.layout.tp > 1 else None
    if link is None or link.topology not in _SLOW or not is_quick(d):
        return
    steps = timed(checked)
    of_decode = _exchanged(steps, Load(batch(checked), d.workload.mean_context))
    of_prompt = _exchanged(steps, Load(0, 0, chunk=min(d.workload.prompt, d.max_batched_tokens)))
    if max(of_decode, of_prompt) < _SHARE:
        return
    times = checked.plan.times
    if times is None:
        return
    now = times.throughput.output_tokens_per_s.expected
    found = checked.once("other divisions", lambda: tuple(_others(d)))
    better = max(found, key=lambda each: each.output_tokens_per_s, default=None)
    if better is None or better.output_tokens_per_s < _GAIN * now:
        return  # ranks are the best that these devices offer at this load
    fix = layout_text(checked.service, d.layout, better.layout)
    message = (
        f"{d.layout.tp} ranks exchange over {link.name}, which takes {of_decode:.0%} of a decode step and {of_prompt:.0%} of a"
        f" prompt; the same devices give {show_rate(better.output_tokens_per_s)} tokens/s instead of {show_rate(now)} with {fix}"
    )
    yield RULE.finding(
        checked,
        checked.service.place_of("tp", "devices"),
        message,
        fix=fix,
        decode_share=of_decode,
        prompt_share=of_prompt,
        output_tokens_per_s=now,
    )


def _exchanged(steps: StepModel, load: Load) -> float:
    """Share of a step in which ranks exchange data."""
    costs = steps.costs(load)
    total = sum(cost.time_s for cost in costs)
    return sum(cost.time_s for cost in costs if cost.bound == "interconnect") / total if total else 0.0


def _others(d: Deployment) -> Iterator[_Better]:
    """Stages, or replicas, or both, in the place of ranks, where the workload fits."""
    now, found = d.layout, []
    ranks = now.tp
    while ranks > 1:
        ranks, rest = (ranks // 2, now.tp // (ranks // 2)) if ranks % 2 == 0 else (1, now.tp)
        found += [Layout(ranks, now.pp * rest, now.dp, 1, now.cp), Layout(ranks, now.pp, now.dp * rest, 1, now.cp)]
    for layout in found:
        changed = laid_out(d, layout)
        answer = None if changed is None else sized(changed)
        if answer is not None and answer.times is not None:
            yield _Better(layout, answer.times.throughput.output_tokens_per_s.expected)


RULE = Rule(
    id="tp-over-pcie",
    severity="warning",
    title="Tensor parallelism over a slow link",
    why=(
        "Tensor-parallel ranks exchange data twice in every layer of every step. Without NVLink or a like link that takes more "
        "time than the shares save, above all for prompts; stages exchange once a stage, replicas not at all."
    ),
    fix="Replicas where the model fits one device, else pipeline stages, or devices that a fast link joins.",
    check=check,
)
