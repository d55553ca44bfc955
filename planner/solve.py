"""Inverse questions of a sizing: the largest context or concurrency that fits, the fewest devices, the smallest share of memory.

All are found by halving or counting on :func:`~roofplan.planner.memory.plan_memory`: whatever holds for a plan holds for its inverse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from ..errors import DomainError, LayoutError
from .memory import plan_capacity, plan_memory
from .parallel import Layout, check_layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from .deployment import Deployment

Question = Literal["max-context", "max-concurrency", "min-devices", "min-utilization"]
QUESTIONS: tuple[Question, ...] = get_args(Question)

_MOST_SEQUENCES = 2**20
_MOST_DEVICES = 64
_MOST_TOKENS = 2**24
_SHARES = 1000  # shares of memory are found in steps of 0.001


@dataclass(frozen=True, slots=True)
class Solution:
    """The answer to one question, None where there is none; ``layout`` names the division that the fewest devices have."""

    question: Question
    answer: float | None
    unit: str
    binds: str
    layout: str = ""


def solve(d: Deployment, question: Question) -> Solution:
    """Find the limit of one setting of a deployment, all others as they are.

    ``max-context`` counts prompt and output of each of the sequences that were asked for; ``min-devices`` looks at tensor and pipeline
    parallelism of one replica, up to 64 devices.

    Raises
    ------
    DomainError : when a share is asked for where the bytes of the cache are given
    """
    match question:
        case "max-context":
            return _max_context(d)
        case "max-concurrency":
            most = _largest(lambda count: fits(_at_concurrency(d, count)), _MOST_SEQUENCES)
            admitted = d.max_num_seqs is not None and most == d.max_num_seqs * d.layout.dp
            return Solution(
                question, most or None, "sequences", "the engine's limit of sequences" if admitted else "memory"
            )
        case "min-devices":
            return _min_devices(d)
        case "min-utilization":
            return _min_utilization(d)


def fits(d: Deployment) -> bool:
    """Whether all sequences of the workload fit at their full length, and the engine runs that many."""
    plan = plan_memory(d)
    if (
        plan.kv_budget_bytes < 0
        or plan.free_bytes < 0
        or (d.settings.kv_cache_bytes is not None and plan.spare_bytes < 0)
    ):
        return False
    return plan_capacity(d, plan).max_concurrency >= d.workload.concurrency


def _at_concurrency(d: Deployment, count: int) -> Deployment:
    return replace(d, workload=replace(d.workload, concurrency=count))


def _largest(possible: Callable[[int], bool], limit: int) -> int:
    """Largest number up to a limit for which something is possible, 0 where it never is; what holds for one holds for all below."""
    low, high = 0, 1
    while high <= limit and possible(high):
        low, high = high, high * 2
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if possible(middle) else (low, middle)
    return low


def _max_context(d: Deployment) -> Solution:
    limit = d.context_limit or _MOST_TOKENS

    def possible(tokens: int) -> bool:
        # The engine plans for its longest sequence: unless that is given, it is the one in question.
        longest = d.max_model_len or max(2, tokens)
        return fits(
            replace(d, workload=replace(d.workload, prompt=max(1, tokens - 1), output=1), max_model_len=longest)
        )

    most = _largest(possible, limit)
    by_model = "the limit of the model or the engine" if most == limit else "memory"
    return Solution("max-context", most if most > 1 else None, "tokens", by_model)


def _min_devices(d: Deployment) -> Solution:
    for devices in range(1, _MOST_DEVICES + 1):
        for tp in range(devices, 0, -1):
            if devices % tp:
                continue
            layout = Layout(tp=tp, pp=devices // tp, ep=tp if d.layout.ep > 1 else 1)
            try:
                check_layout(d.model, layout)
                possible = fits(replace(d, layout=layout))
            except LayoutError:
                continue
            if possible:
                return Solution("min-devices", devices, "devices", "memory", str(layout))
    return Solution("min-devices", None, "devices", f"memory: not even {_MOST_DEVICES} devices are enough")


def _min_utilization(d: Deployment) -> Solution:
    if d.settings.kv_cache_bytes is not None:
        raise DomainError(
            "--solve min-utilization", got="--kv-cache-bytes", wanted="no bytes of the cache: they replace the share"
        )

    def too_small(step: int) -> bool:
        return not fits(replace(d, memory=replace(d.memory, utilization=step / _SHARES)))

    step = _largest(too_small, _SHARES) + 1
    return Solution("min-utilization", step / _SHARES if step <= _SHARES else None, "", "memory")
