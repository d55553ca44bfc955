"""Inverse questions of a sizing: the largest context or concurrency that fits, the fewest devices, the smallest share of memory.

All are found by halving or counting on :func:`~roofplan.planner.fitting.fits`: whatever holds for a plan holds for its inverse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from ..errors import DomainError, LayoutError
from .fitting import Reason, fits, reason_of
from .parallel import Layout, check_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .deployment import Deployment

Question = Literal["max-context", "max-concurrency", "min-devices", "min-utilization"]
QUESTIONS: tuple[Question, ...] = get_args(Question)

_MOST_SEQUENCES = 2**20
_MOST_DEVICES = 64
_MOST_TOKENS = 2**24
_SHARES = 1000  # shares of memory are found in steps of 0.001

_MEMORY = "memory"
_LIMITS: dict[Reason, str] = {
    "engine_admits_fewer": "the sequences that the engine runs at a time",
    "cache_exceeds_memory": "the bytes of the cache that were asked for",
    "max_model_len_exceeds_cache": "the longest sequence that the engine accepts",
}


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
    parallelism of one replica, up to 64 devices. Where the longest sequence of the engine is not given, it is that of the workload.

    Raises
    ------
    DomainError : when a share is asked for where the bytes of the cache are given
    """
    match question:
        case "max-context":
            return _max_context(d)
        case "max-concurrency":
            return _max_concurrency(_for_its_workload(d))
        case "min-devices":
            return _min_devices(_for_its_workload(d))
        case "min-utilization":
            return _min_utilization(_for_its_workload(d))


def _for_its_workload(d: Deployment) -> Deployment:
    return replace(d, max_model_len=d.max_model_len or d.workload.length)


def _limit(d: Deployment) -> str:
    """What stands in the way of a deployment that does not fit."""
    reason = reason_of(d)
    return _MEMORY if reason is None else _LIMITS.get(reason, _MEMORY)


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

    def of_length(tokens: int) -> Deployment:
        # The engine plans for its longest sequence: unless that is given, it is the one in question.
        workload = replace(d.workload, prompt=max(1, tokens - 1), output=1)
        return replace(d, workload=workload, max_model_len=d.max_model_len or max(2, tokens))

    most = _largest(lambda tokens: fits(of_length(tokens)), limit)
    binds = "the limit of the model or the engine" if most == limit else _limit(of_length(most + 1))
    return Solution("max-context", most if most > 1 else None, "tokens", binds)


def _max_concurrency(d: Deployment) -> Solution:
    def of_users(count: int) -> Deployment:
        return replace(d, workload=replace(d.workload, concurrency=count))

    most = _largest(lambda count: fits(of_users(count)), _MOST_SEQUENCES)
    binds = f"the search, which ends at {most:,}" if most == _MOST_SEQUENCES else _limit(of_users(most + 1))
    return Solution("max-concurrency", most or None, "sequences", binds)


def _min_devices(d: Deployment) -> Solution:
    unit, binds = "devices for one replica", _limit(replace(d, layout=Layout()))
    for layout in _layouts(d):
        if fits(replace(d, layout=layout)):
            return Solution("min-devices", layout.devices, unit, binds, str(layout))
    return Solution("min-devices", None, unit, f"{binds}, even on {_MOST_DEVICES} devices")


def _layouts(d: Deployment) -> Iterator[Layout]:
    """Layouts of one replica that exist for the model, by their number of devices, tensor parallelism first."""
    for devices in range(1, _MOST_DEVICES + 1):
        for tp in range(devices, 0, -1):
            if devices % tp == 0:
                layout = Layout(tp=tp, pp=devices // tp, ep=tp if d.layout.ep > 1 else 1)
                try:
                    check_layout(d.model, layout)
                except LayoutError:
                    continue
                yield layout


def _min_utilization(d: Deployment) -> Solution:
    if d.settings.kv_cache_bytes is not None:
        wanted = "no bytes of the cache: they replace the share"
        raise DomainError("--solve min-utilization", got="--kv-cache-bytes", wanted=wanted)

    def with_share(step: int) -> Deployment:
        return replace(d, memory=replace(d.memory, utilization=step / _SHARES))

    step = _largest(lambda step: not fits(with_share(step)), _SHARES) + 1
    binds = _limit(with_share(min(step, _SHARES)) if step > _SHARES else with_share(max(1, step - 1)))
    return Solution("min-utilization", step / _SHARES if step <= _SHARES else None, "", binds)
