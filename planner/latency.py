"""Times of requests from times of steps: prefill alone, steady state under a closed loop of users, and the identities between metrics.

The steady state is a fixed point: running sequences share each step. In the time that one request takes, each of the others is
prefilled once: before its first token (it waits) or while it decodes (its steps get longer).
Sources: formulas F6.6 to F6.8; the closed-loop form was compared with published serving benchmarks of three engines.
Known to be left out: bursts of requests that begin together, engine scheduling and host time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .deployment import Workload
    from .step import Grouping, StepModel

_ITERATIONS = 16


@dataclass(frozen=True, slots=True)
class SteadyState:
    """One replica in steady state: seconds, and how many sequences run and decode.

    ``tpot_s`` is None for an output of a single token, which has no gap.
    """

    ttft_s: float
    ttft_alone_s: float
    tpot_s: float | None
    itl_s: float
    e2e_s: float
    running: int
    decoding: float
    queue_s: float  # of the TTFT: waiting for memory
    prefills_before: float  # of the others, while the first token is waited for
    prefills_during: float  # of the others, while tokens are decoded
    prefill_mixed_s: float  # of one request, in steps that decode for others too
    prefill_marginal_s: float  # by how much that lengthens these steps


def chunks(prompt: int, largest: int) -> Iterator[tuple[int, int]]:
    """Cut a prompt into chunks: (tokens, tokens before them)."""
    for past in range(0, prompt, largest):
        yield min(largest, prompt - past), past


def prefill_s(
    model: StepModel,
    prompt: int,
    largest_chunk: int,
    *,
    decoders: float = 0,
    context: float = 0,
    grouping: Grouping = "operators",
) -> float:
    """Time until a prompt is processed, in chunks, in steps that also hold ``decoders`` decoding sequences (formula F10.2)."""
    return float(
        sum(
            model.step_s(decoders, context, chunk=chunk, past=past, grouping=grouping)
            for chunk, past in chunks(prompt, largest_chunk)
        )
    )


def steady_state(
    model: StepModel, workload: Workload, users: int, slots: int, largest_chunk: int, stages: int = 1
) -> SteadyState:
    """Find the steady state of ``users`` in a closed loop on a replica whose cache holds ``slots`` of their sequences.

    With R running, R - 1 prefills of others fall into the time of one request. Those ahead of it are waited for: on average
    rho / (2 (1 - rho)) at a load rho of prefills (Pollaczek and Khinchine, equal service times), and at least those that its own decoding
    has no steps for, at one chunk a step. The others lengthen its decode steps by what a chunk adds. Both are divided by the stages of a
    pipeline, which work at the same time.
    Users beyond the slots wait for memory: by Little's law (N - slots) requests ahead leave at slots per end-to-end time.

    Raises
    ------
    DomainError : without a slot
    """
    if slots < 1 or users < 1:
        raise DomainError("slots", got=f"{slots} slots for {users} users", wanted="at least one of each")
    running = min(users, slots)
    prompt, context, gaps = workload.prompt, workload.mean_context, workload.output - 1
    steps = -(-prompt // largest_chunk)
    alone = prefill_s(model, prompt, largest_chunk)
    share, before = (1.0 if gaps else 0.0), 0.0
    for _ in range(_ITERATIONS):
        # The stages of a pipeline work on as many groups of sequences, one each.
        batch = max(1.0, running * share / stages)
        itl = float(model.step_s(batch, context))
        mixed = prefill_s(model, prompt, largest_chunk, decoders=batch, context=context)
        marginal = max(0.0, mixed - steps * itl)
        during = running - 1 - before
        decode = gaps * itl + during * marginal / stages
        ttft = alone if running == 1 else itl + mixed + before * mixed / stages
        share = decode / (decode + ttft)
        load = (running - 1) * mixed / stages / (decode + ttft)
        ahead = load / (2 * (1 - load)) if load < 1 else math.inf
        before = min(running - 1.0, max(running - 1 - gaps / steps, ahead))
    service = ttft + decode
    queue = (users - running) * service / running
    return SteadyState(
        ttft_s=queue + ttft,
        ttft_alone_s=alone,
        tpot_s=decode / gaps if gaps else None,
        itl_s=itl,
        e2e_s=queue + service,
        running=running,
        decoding=running * share,
        queue_s=queue,
        prefills_before=running - 1 - during,
        prefills_during=during,
        prefill_mixed_s=mixed,
        prefill_marginal_s=marginal,
    )


def end_to_end_s(ttft_s: float, tpot_s: float, output: int) -> float:
    """E2E = TTFT + (G - 1) TPOT (formula F6.7).

    >>> round(end_to_end_s(0.3, 0.02, 200), 12)
    4.28
    """
    return ttft_s + (output - 1) * tpot_s


def time_per_output_token_s(e2e_s: float, ttft_s: float, output: int) -> float:
    """TPOT = (E2E - TTFT) / (output - 1): the first token is not counted.

    Raises
    ------
    DomainError : for fewer than two tokens

    >>> time_per_output_token_s(10.0, 2.0, 101)
    0.08
    """
    if output < 2:
        raise DomainError("output", got=output, wanted="at least 2 tokens: a single one has no gap")
    return (e2e_s - ttft_s) / (output - 1)


def bandwidth_utilization(bytes_read: float, step_s: float, bandwidth_bytes_per_s: float) -> float:
    """MBU = (W_read + B L c) / (t W_bw) (formula F6.8); above one means that a byte count or the peak is wrong."""
    return bytes_read / (step_s * bandwidth_bytes_per_s)


def flop_utilization(flop: float, time_s: float, peak_flop_per_s: float) -> float:
    """MFU = useful FLOP / (t F), causal attention counted once (formula F6.8)."""
    return flop / (time_s * peak_flop_per_s)
