"""Admission: how many sequences a cache lets run at a time, and how long the others wait without a word.

An engine that is given a batch above its cache does not fail: it queues the rest, and only the TTFT tells (bug case 70).
Sources: formula F7.5 in blocks; ai-dynamo/aiconfigurator 652, which found it in 72 measurements of TensorRT-LLM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import domain
from .latency import steady_state
from .paging import blocks_of

if TYPE_CHECKING:
    from .deployment import Workload
    from .step import StepModel


@dataclass(frozen=True, slots=True)
class Admission:
    """How many of the users run and wait; the times are None where not one sequence fits, since then nobody is ever served.

    Parameters
    ----------
    queue_s : mean time that a request waits for memory, a part of the TTFT
    ttft_s : mean time to the first token
    ttft_running_s : the same without the wait for memory: what a planner says that does not look at the cache
    """

    in_flight: int
    waiting: int
    queue_s: float | None
    ttft_s: float | None
    ttft_running_s: float | None


def sequences_in_flight(pool_tokens: int, tokens: int, block: int = 1) -> int:
    """Sequences of L tokens that a pool holds at a time, in whole blocks: floor(floor(pool / b) / ceil(L / b)) (formulas F3.9, F7.5).

    ``tokens`` is what the engine reserves for a sequence: prompt and output where it never evicts, or the longest sequence that it accepts.

    Raises
    ------
    DomainError : for a negative pool, or a sequence or a block without a token

    >>> sequences_in_flight(400_000, 5096, 32)
    78
    """
    domain.count("pool_tokens", pool_tokens, 0)
    domain.count("tokens", tokens)
    domain.count("block", block)
    return pool_tokens // block // blocks_of(tokens, block)


def admit(model: StepModel, workload: Workload, users: int, slots: int, largest_chunk: int) -> Admission:
    """Who runs and who waits when ``users`` in a closed loop share a cache for ``slots`` sequences.

        in flight = min(N, slots), wait = (N - slots) E2E / slots (Little's law)

    The times are those of :func:`~roofplan.planner.latency.steady_state` (formula F13.6).

    Raises
    ------
    DomainError : without a user, for negative slots, or a chunk without a token

    Assumes that a sequence is admitted only when it fits at its full length; engines that evict lose time in another way.
    """
    domain.count("users", users)
    domain.count("largest_chunk", largest_chunk)
    if domain.count("slots", slots, 0) == 0:
        return Admission(0, users, None, None, None)
    state = steady_state(model, workload, users, slots, largest_chunk)
    return Admission(state.running, users - state.running, state.queue_s, state.ttft_s, state.ttft_s - state.queue_s)
