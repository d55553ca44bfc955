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
from . import domain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .deployment import Workload
    from .step import Grouping, StepModel

_ITERATIONS = 16
_FEW_CHUNKS = 16  # evaluated one by one; more of them as arrays
_MOST_CHUNKS = 2**17  # of a prompt: ten million tokens in chunks of a hundred


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
    """Cut a prompt into chunks: (tokens, tokens before them), ceil(S / n) of them (formula F10.2).

    Raises
    ------
    DomainError : for a prompt or a chunk without a token, or more than 131072 chunks
    """
    domain.count("prompt", prompt)
    domain.count("chunk", largest)
    domain.count("chunks of a prompt", -(-prompt // largest), 1, _MOST_CHUNKS)
    return ((min(largest, prompt - past), past) for past in range(0, prompt, largest))


def chunk_times_s(
    model: StepModel,
    prompt: int,
    largest_chunk: int,
    *,
    cached: int = 0,
    decoders: float = 0,
    context: float = 0,
    grouping: Grouping = "operators",
) -> list[float]:
    """Times of the steps that take in a prompt, chunk by chunk; each also decodes for ``decoders`` sequences (formula F10.1).

    Parameters
    ----------
    prompt : tokens to take in, after ``cached`` ones that are read and not computed
    decoders, context : sequences that decode in each of the steps, and their (mean) context

    Raises
    ------
    DomainError : for a prompt or a chunk without a token, more than 131072 chunks, negative company or cached tokens, or a grouping that
        there is not
    """
    company = domain.not_negative("decoders", decoders), domain.not_negative("context", context)
    domain.count("cached", cached, 0)
    domain.grouping(grouping)
    pieces = [(chunk, cached + past) for chunk, past in chunks(prompt, largest_chunk)]
    if len(pieces) <= _FEW_CHUNKS:
        times = [float(model.step_s(*company, chunk=chunk, past=past, grouping=grouping)) for chunk, past in pieces]
    else:
        import numpy as np

        sizes, pasts = np.array(pieces, dtype=float).T
        times = model.step_s(*company, chunk=sizes, past=pasts, grouping=grouping).tolist()
    domain.total("steps_s", times)
    return times


def prefill_s(
    model: StepModel,
    prompt: int,
    largest_chunk: int,
    *,
    decoders: float = 0,
    context: float = 0,
    grouping: Grouping = "operators",
) -> float:
    """Time until a prompt is processed, the sum of its chunks' steps (formula F10.2), in steps that also decode for ``decoders`` sequences.

    Arguments and errors are those of :func:`chunk_times_s`. Left out: waiting before the first chunk.

    Raises
    ------
    DomainError : for a prompt or a chunk without a token, more than 131072 chunks, or negative company
    """
    times = chunk_times_s(model, prompt, largest_chunk, decoders=decoders, context=context, grouping=grouping)
    return domain.total("prefill_s", times)


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
    DomainError : without a user, a slot, a stage or a token of a chunk, or when a step takes no time
    """
    domain.count("users", users)
    domain.count("slots", slots)
    domain.count("stages", stages)
    domain.count("output", workload.output)
    domain.count("largest_chunk", largest_chunk)
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
        service = domain.positive("time of a request", decode + ttft)
        share = decode / service
        load = (running - 1) * mixed / stages / service
        ahead = load / (2 * (1 - load)) if load < 1 else math.inf
        before = min(running - 1.0, max(running - 1 - gaps / steps, ahead))
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
    """E2E = TTFT + (G - 1) TPOT, in seconds (formula F6.7).

    Raises
    ------
    DomainError : for a negative time, or no output

    >>> round(end_to_end_s(0.3, 0.02, 200), 12)
    4.28
    """
    gaps = domain.count("output", output) - 1
    return domain.finite("e2e_s", domain.not_negative("ttft_s", ttft_s) + gaps * domain.not_negative("tpot_s", tpot_s))


def time_per_output_token_s(e2e_s: float, ttft_s: float, output: int) -> float:
    """TPOT = (E2E - TTFT) / (G - 1), in seconds: the first token is not counted (formula F6.7).

    Raises
    ------
    DomainError : for fewer than two tokens, a negative time, or a first token after the last

    >>> time_per_output_token_s(10.0, 2.0, 101)
    0.08
    """
    if domain.count("output", output) < 2:
        raise DomainError("output", got=output, wanted="at least 2 tokens: a single one has no gap")
    decoding = domain.at_least("e2e_s", e2e_s, domain.not_negative("ttft_s", ttft_s)) - ttft_s
    return decoding / (output - 1)


def bandwidth_utilization(bytes_read: float, step_s: float, bandwidth_bytes_per_s: float) -> float:
    """Share of the memory bandwidth that a step makes use of, MBU = (W_read + B L c) / (t W_bw) (formula F6.8).

    Above one a byte count or the peak is wrong: it is given as it is, so that this can be seen.

    Parameters
    ----------
    bytes_read : weights and cache, W_read + B L c (``StepModel.totals``)
    step_s, bandwidth_bytes_per_s : measured time of the step, and nominal rate

    Raises
    ------
    DomainError : for negative bytes, or a time or a rate that is not above zero

    >>> bandwidth_utilization(1e9, 0.001, 2e12)
    0.5
    """
    return _share_of_rate("bytes_read", bytes_read, step_s, "bandwidth_bytes_per_s", bandwidth_bytes_per_s)


def flop_utilization(flop: float, time_s: float, peak_flop_per_s: float) -> float:
    """Share of the dense peak that is made use of, MFU = useful FLOP / (t F), causal attention counted once (formula F6.8).

    Above one the FLOP or the peak is wrong (one with sparsity, or of another arithmetic type).

    Raises
    ------
    DomainError : for negative FLOP, or a time or a rate that is not above zero

    >>> flop_utilization(1e12, 0.01, 4e14)
    0.25
    """
    return _share_of_rate("flop", flop, time_s, "peak_flop_per_s", peak_flop_per_s)


def _share_of_rate(what: str, work: float, time_s: float, of_what: str, rate: float) -> float:
    possible = domain.positive("time_s", time_s) * domain.positive(of_what, rate)
    return domain.finite("utilization", domain.not_negative(what, work) / domain.positive("time x rate", possible))
