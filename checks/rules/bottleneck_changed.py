"""What most of a decode step is spent on is something else than the file expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...planner.costs import Load
from ...quantities import show_count
from ..checked import Unbuilt
from ..finding import Rule
from ..serving import timed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding

_MOST_SEQUENCES = 4096


def check(checked: Checked) -> Iterator[Finding]:
    """Compare what binds a decode step of the workload with what is expected to."""
    for expectation in checked.service.expectations:
        if expectation.kind != "bottleneck":
            continue
        said, now = expectation.value, checked.plan.decode_limit
        if said.value == now:
            continue
        from ...planner.levers.words import LIMITS

        words: dict[str | None, str] = {**LIMITS, "capacity": "room in memory"}
        message = f"a decode step is bound by {now} ({words[now]}), and {said.value} ({words[said.value]}) is expected{_shares(checked)}"
        where = _from(checked, said.value) if said.value != "capacity" else ""
        yield RULE.finding(checked, said.place, message + where)


def _shares(checked: Checked) -> str:
    """Shares of the time of a step, the largest two."""
    try:
        steps = timed(checked)
    except Unbuilt:
        return ""
    load = Load(checked.plan.decode_batch, checked.deployment.workload.mean_context)
    spent: dict[str, float] = {}
    for cost in steps.costs(load):
        spent[cost.bound] = spent.get(cost.bound, 0.0) + cost.time_s
    total = sum(spent.values())
    first = sorted(spent, key=lambda bound: -spent[bound])[:2]
    return f": {' and '.join(f'{bound} takes {spent[bound] / total:.0%}' for bound in first)} of it"


def _from(checked: Checked, wanted: str) -> str:
    """From or up to which number of sequences the expected one binds, with everything else as it is."""
    try:
        steps = timed(checked)
    except Unbuilt:
        return ""
    d = checked.deployment
    context, now = d.workload.mean_context, checked.plan.decode_batch
    counts = [2**power for power in range(_MOST_SEQUENCES.bit_length())]
    found = [count for count in counts if steps.bottleneck(Load(float(count), context)) == wanted]
    if not found:
        return f"; with contexts of {show_count(context)} tokens it binds at no batch"
    nearest = min(found, key=lambda count: abs(count - now))
    return f"; it binds at a batch of {show_count(nearest)}, this is one of {show_count(now)}"


RULE = Rule(
    id="bottleneck-changed",
    severity="error",
    title="Another bottleneck than expected",
    why=(
        "What binds a step decides what pays: a narrower cache where reading the cache binds, narrower weights where the "
        "weights do. When it changes, what was tuned for the old one may have lost its reason."
    ),
    fix="Take the change back, or change the expectation and look at the levers again (roofplan advise).",
    check=check,
)
