"""More sequences are asked for, or admitted, than the cache holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...quantities import show_count
from ..finding import Rule
from ..spelling import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the stated concurrency with the capacity; where none is stated, sequences x longest length with the cache."""
    service, options = checked.service, checked.service.options
    if checked.reason in {"kv_less_than_concurrency", "engine_admits_fewer"}:
        if not checked.promises_fit:  # else an error of does-not-fit
            yield _asked(checked)
    elif checked.reason is None and "max_num_seqs" in options and checked.deployment.max_num_seqs:
        d, capacity = checked.deployment, checked.capacity
        admitted = d.max_num_seqs * d.layout.dp if d.max_num_seqs else 0
        if capacity.concurrency_at_limit >= admitted:
            return
        message = (
            f"{show_count(admitted)} sequences may run and the cache holds {capacity.concurrency_at_limit:,.1f} of the longest length, "
            f"{show_count(d.longest_sequence)} tokens: {show_count(capacity.kv_tokens)} tokens in all, "
            f"{show_count(capacity.kv_tokens / admitted)} for each"
        )
        yield RULE.finding(
            checked,
            service.place_of("max_num_seqs"),
            message,
            severity="note",
            admitted=admitted,
            concurrency_at_max_model_len=capacity.concurrency_at_limit,
            kv_tokens=capacity.kv_tokens,
        )


def _asked(checked: Checked) -> Finding:
    """The finding of a stated concurrency that does not all run."""
    d, capacity, service = checked.deployment, checked.capacity, checked.service
    asked, running = d.workload.concurrency, capacity.max_concurrency
    admits = capacity.binds == "max_num_seqs"
    binds = "the engine admits" if admits else "the cache holds"
    message = (
        f"{show_count(asked)} sequences of {show_count(d.workload.length)} tokens are asked for and {binds} {show_count(running)}: "
        f"{show_count(asked - running)} wait for their turn"
    )
    fix = setting(service, "max_num_seqs", d.sequences_per_replica) if admits else ""
    place = service.place_of("max_num_seqs", "concurrency") if admits else service.place_of("concurrency")
    return RULE.finding(checked, place, message, fix=fix, concurrency=asked, max_concurrency=running)


RULE = Rule(
    id="concurrency-over-capacity",
    severity="warning",
    title="More sequences than the cache holds",
    why=(
        "Sequences beyond the capacity wait, or push others out, whose cache is computed again. A note, not a warning, is given where only "
        "the engine's own limit times the longest length exceeds the cache: that is the case of all sequences at their longest."
    ),
    fix="Give the cache more memory or fewer bits, lower the longest sequence, or state the concurrency that is meant.",
    check=check,
)
