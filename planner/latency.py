"""Times of requests from times of steps: prefill alone, steady state under a closed loop of users, and the identities between metrics.

The steady state is a fixed point: running sequences share each step, and while one of them decodes the others' prefills pass through the
same steps. Sources: formulas F6.6 to F6.8; the closed-loop form was compared with published serving benchmarks of three engines.
Known to be left out: waiting behind other prefills, engine scheduling and host time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .deployment import Workload
    from .step import Grouping, StepModel

_ITERATIONS = 8


@dataclass(frozen=True, slots=True)
class SteadyState:
    """One replica in steady state: seconds, and how many sequences run and decode."""

    ttft_s: float
    ttft_alone_s: float
    tpot_s: float
    itl_s: float
    e2e_s: float
    running: int
    decoding: float
    queue_s: float  # of the TTFT: waiting for memory


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

    Decoding sequences are the share of running ones that is not in prefill; each sees the marginal prefill time of every other running one
    once. Users beyond the slots wait for memory: by Little's law (N - slots) requests ahead leave at slots per end-to-end time.

    Raises
    ------
    DomainError : without a slot
    """
    if slots < 1 or users < 1:
        raise DomainError("slots", got=f"{slots} slots for {users} users", wanted="at least one of each")
    running = min(users, slots)
    context, output = workload.mean_context, workload.output
    alone = prefill_s(model, workload.prompt, largest_chunk)
    decoding = float(running)
    tpot = itl = ttft = 0.0
    for _ in range(_ITERATIONS):
        # The stages of a pipeline work on as many groups of sequences, one each.
        batch = max(1.0, decoding / stages)
        itl = float(model.step_s(batch, context))
        mixed = prefill_s(model, workload.prompt, largest_chunk, decoders=batch, context=context)
        steps = -(-workload.prompt // largest_chunk)
        marginal = max(0.0, mixed - steps * itl)
        others = max(0.0, decoding - decoding / running)
        tpot = itl + others * marginal / output
        ttft = alone if running == 1 else itl + mixed
        share = output * tpot / (output * tpot + ttft)
        decoding = running * share
    service = end_to_end_s(ttft, tpot, output)
    queue = (users - running) * service / running
    return SteadyState(queue + ttft, alone, tpot, itl, queue + service, running, decoding, queue)


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
