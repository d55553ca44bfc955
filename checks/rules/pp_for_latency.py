"""Pipeline stages where tensor-parallel ranks on the same devices answer faster and give no less."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...quantities import show_count, show_rate, show_time
from ..finding import Rule
from ..holding import layout_text
from ..serving import is_quick, laid_out, sized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding

_GAIN = 1.25  # of the time per token


def check(checked: Checked) -> Iterator[Finding]:
    """Size the same devices as tensor-parallel ranks (formulas F12.2, F12.3)."""
    d = checked.deployment
    if d.layout.pp == 1 or d.streams is not None or "concurrency" not in checked.service.options:
        return  # without a load nobody knows whether the stages have work
    if not is_quick(d):
        return
    now = checked.plan.times
    if now is None or now.latency.tpot_s is None:
        return
    for ranks in (factor for factor in range(d.layout.pp, 1, -1) if d.layout.pp % factor == 0):
        layout = replace(d.layout, tp=d.layout.tp * ranks, pp=d.layout.pp // ranks)
        changed = laid_out(d, layout)
        answer = None if changed is None else sized(changed)
        if answer is None or answer.times is None or answer.times.latency.tpot_s is None:
            continue
        tpot_s, other_s = now.latency.tpot_s.expected, answer.times.latency.tpot_s.expected
        rate, other = now.throughput.output_tokens_per_s.expected, answer.times.throughput.output_tokens_per_s.expected
        if tpot_s < _GAIN * other_s or other < rate:
            continue
        fix = layout_text(checked.service, d.layout, layout)
        message = (
            f"a token passes {d.layout.pp} stages one after the other: {show_time(tpot_s)} per token and {show_rate(rate)} tokens/s"
            f" with {show_count(d.workload.concurrency)} request(s) at a time; with {fix} it is {show_time(other_s)} and"
            f" {show_rate(other)} tokens/s"
        )
        place = checked.service.place_of("pp", "devices")
        yield RULE.finding(checked, place, message, fix=fix, tpot_s=tpot_s, tpot_of_ranks_s=other_s)
        return


RULE = Rule(
    id="pp-for-latency",
    severity="warning",
    title="Pipeline stages where ranks would be faster",
    why=(
        "Stages divide the memory of a model, but not the time of a token, which passes all of them; they give more only where "
        "enough requests keep every stage busy. Tensor-parallel ranks within a machine divide both."
    ),
    fix="Tensor-parallel ranks within a machine, stages between machines.",
    check=check,
)
