"""Closed forms of several devices: what each way of dividing a model exchanges, and how long that takes.

They compare ways before a deployment is built; for the step of a whole deployment, ``StepModel`` counts its collectives itself. Times
without exchange come in as arguments. Overlap of exchange and compute is none or perfect, as each function says.

Symbols: n devices, M message bytes, a latency of a message, W bandwidth of one device in one direction (a vendor's NVLink figure counts
both). Data-parallel replicas (formula F12.5) exchange nothing and multiply throughput and cache.
Sources: formulas F12.1 to F12.7; NVIDIA/nccl-tests, doc/PERFORMANCE.md (a0b82b2); jax-ml/scaling-book, applied-inference.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..errors import DomainError
from .domain import count, not_negative, positive
from .parallel import all_reduce_bytes, all_to_all_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

AllReduce = Literal["ring", "two-shot", "one-shot"]
Split = Literal["contiguous", "zigzag"]

# ------------------------------------------------------------------------------------------------ tensor parallelism


def message_bytes(tokens: float, hidden_size: int, activation_bytes: float) -> float:
    """Bytes of the hidden states of a step, B d b_a: what an all-reduce joins and a pipeline hands on (formulas F12.2, F12.3).

    Raises
    ------
    DomainError : for negative tokens, or sizes that are not positive

    >>> message_bytes(32, 8192, 2)
    524288
    """
    return (
        not_negative("tokens", tokens)
        * count("hidden_size", hidden_size)
        * positive("activation_bytes", activation_bytes)
    )


def all_reduce_s(
    message: float, ranks: int, latency_s: float, bandwidth_bytes_per_s: float, way: AllReduce = "ring"
) -> float:
    """Time of an all-reduce of M bytes over n devices (formula F12.1); zero for one device.

    Ring: 2 (n-1) a + 2 (n-1)/n M / W. Two-shot (everyone reduces one piece and hands it to all): 2 a + 2 (n-1)/n M / W. One-shot (everyone
    sends all to all): a + (n-1) M / W. The arithmetic of the sum is left out, and so is reduction inside a switch.
    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md, for the ring's bytes.

    Raises
    ------
    DomainError : for no device, a negative message or latency, or a bandwidth that is not positive
    """
    not_negative("message", message)
    not_negative("latency_s", latency_s)
    positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    if count("ranks", ranks) == 1:
        return 0.0
    match way:
        case "ring":
            rounds, sent = 2 * (ranks - 1), all_reduce_bytes(message, ranks)
        case "two-shot":
            rounds, sent = 2, all_reduce_bytes(message, ranks)
        case "one-shot":
            rounds, sent = 1, (ranks - 1) * message
    return rounds * latency_s + sent / bandwidth_bytes_per_s


def one_shot_limit_bytes(ranks: int, latency_s: float, bandwidth_bytes_per_s: float) -> float | None:
    """Message below which one-shot is faster than two-shot, a W / ((n-1) (1 - 2/n)) (formula F12.1).

    None for two devices: one-shot then sends no more, and is always faster.

    Raises
    ------
    DomainError : for fewer than two devices, a negative latency, or a bandwidth that is not positive

    >>> round(one_shot_limit_bytes(8, 3e-6, 450e9), 3)
    257142.857
    """
    budget = not_negative("latency_s", latency_s) * positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    more = (count("ranks", ranks, 2) - 1) * (1 - 2 / ranks)
    return budget / more if more else None


def tensor_parallel_step_s(
    alone_s: float, ranks: int, exchanges: int, exchange_s: float, gather_s: float = 0.0
) -> float:
    """Step under tensor parallelism: t / n + 2 n_L all-reduces + one gather of logits (formula F12.2).

    Everything is taken to divide evenly, and no exchange to overlap with compute. KV heads and latents that ranks hold twice are left out:
    a ``StepModel`` with a ``Layout`` has them.

    Parameters
    ----------
    alone_s : the step on one device
    exchanges : all-reduces of the step: two for each layer
    exchange_s, gather_s : time of one of them, and of the gather

    Raises
    ------
    DomainError : for no device, or a negative time or count
    """
    exchanged = count("exchanges", exchanges, 0) * not_negative("exchange_s", exchange_s)
    return not_negative("alone_s", alone_s) / count("ranks", ranks) + exchanged + not_negative("gather_s", gather_s)


# ------------------------------------------------------------------------------------------------ pipelines


def pipeline_token_s(stages_s: Sequence[float], hop_s: float) -> float:
    """Time of one token through a pipeline: the sum of its stages and p - 1 hops (formula F12.3).

    One sequence gains nothing from stages: the others work only for other sequences in that time.

    Raises
    ------
    DomainError : without a stage, or for a negative time

    >>> pipeline_token_s([0.01, 0.01], 0.001)
    0.021
    """
    hops = count("stages", len(stages_s)) - 1
    return math.fsum(not_negative("stage_s", stage) for stage in stages_s) + hops * not_negative("hop_s", hop_s)


def pipeline_bubble(stages: int, micro_batches: int) -> float:
    """Share of its time that a stage waits, (p-1) / (m+p-1), when m equal micro-batches pass p stages once (formula F12.3).

    In steady decoding with m >= p there is no bubble: the next token of a micro-batch follows at once.

    Raises
    ------
    DomainError : without a stage or a micro-batch

    >>> round(pipeline_bubble(4, 8), 12)
    0.272727272727
    """
    idle = count("stages", stages) - 1
    return idle / (count("micro_batches", micro_batches) + idle)


# ------------------------------------------------------------------------------------------------ expert parallelism


def expert_exchange_s(
    tokens: float,
    experts_per_token: int,
    hidden_size: int,
    element_bytes: float,
    bandwidth_bytes_per_s: float,
    ranks: int | None = None,
) -> float:
    """Time of dispatch and combine of one layer on one device: T k d (b_dispatch + b_combine) (n-1)/n / W (formula F12.4).

    Latency is left out, and so is that a token is sent once to a device, not once to each of its experts there.

    Parameters
    ----------
    tokens : of this device
    element_bytes : b_dispatch + b_combine, bytes per element of both together (3 for 8-bit dispatch and 16-bit combine)
    ranks : devices that share the experts; None takes every expert to be elsewhere (DeepSeek's published case, arXiv 2505.09343, 2.3)

    Raises
    ------
    DomainError : for negative tokens, or sizes that are not positive

    >>> round(expert_exchange_s(32, 9, 7000, 3, 50e9), 12)
    0.00012096
    """
    message = message_bytes(tokens, hidden_size, element_bytes) * count("experts_per_token", experts_per_token)
    sent = message if ranks is None else all_to_all_bytes(message, count("ranks", ranks))
    return sent / positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)


def overlapped_step_s(layers: int, compute_s: float, exchange_s: float, micro_batches: int = 2) -> float:
    """Step in which one micro-batch computes while the other exchanges: 2 n_L max(compute, exchange) (formula F12.4).

    Overlap is taken as perfect: the smaller of both times vanishes.

    Parameters
    ----------
    compute_s, exchange_s : of one micro-batch in one layer

    Raises
    ------
    DomainError : without a layer or a micro-batch, or for a negative time

    >>> round(1 / overlapped_step_s(61, 0, 0.00012096), 3)
    67.764
    """
    longer = max(not_negative("compute_s", compute_s), not_negative("exchange_s", exchange_s))
    return count("layers", layers) * count("micro_batches", micro_batches) * longer


@dataclass(frozen=True, slots=True)
class Imbalance:
    """Rows of experts that devices get: the mean, and the mean of the busiest device, which the others wait for."""

    mean_rows: float
    busiest_rows: float
    standard_error: float  # of busiest_rows, from the draws

    @property
    def ratio(self) -> float:
        """Busiest over mean: by this factor the step of the experts is longer."""
        return self.busiest_rows / self.mean_rows


def routing_imbalance(
    tokens: int, num_experts: int, experts_per_token: int, devices: int, *, draws: int = 2000, seed: int = 0
) -> Imbalance:
    """Simulate uniform, independent routing: E[max over devices of rows] against T k / n (formula F12.4).

    There is no short closed form. Rows of one token over devices are multivariate hypergeometric: k experts without replacement out of n
    equal groups. Real routing is skewed, which makes it worse; a balanced placement of hot experts makes it better.

    Raises
    ------
    DomainError : for counts below one (two draws), more experts per token than experts, or devices that do not divide the experts
    """
    import numpy as np

    count("tokens", tokens)
    count("draws", draws, 2)
    if count("experts_per_token", experts_per_token) > count("num_experts", num_experts):
        raise DomainError(
            "experts_per_token", got=experts_per_token, wanted=f"at most {num_experts}, the number of experts"
        )
    if num_experts % count("devices", devices):
        raise DomainError("devices", got=devices, wanted=f"a divisor of {num_experts}, the number of experts")
    generator = np.random.default_rng(seed)
    groups = [num_experts // devices] * devices
    rows = np.zeros((draws, devices), dtype=np.int64)
    for _ in range(tokens):
        rows += generator.multivariate_hypergeometric(groups, experts_per_token, size=draws, method="marginals")
    busiest = rows.max(axis=1)
    error = float(busiest.std(ddof=1)) / math.sqrt(draws)
    return Imbalance(tokens * experts_per_token / devices, float(busiest.mean()), error)


# ------------------------------------------------------------------------------------------------ context parallelism


def attention_share(rank: int, ranks: int, split: Split) -> float:
    """Share of causal attention that one rank of a split prompt computes (formula F12.6), for prompts much longer than n tokens.

    Contiguous: (2 i + 1) / n^2, so that the last rank (i = n - 1) has 1 - ((n-1)/n)^2. Zigzag: rank i has pieces i and 2n - 1 - i out of
    2 n, and all ranks have 1 / n.

    Raises
    ------
    DomainError : for a rank that is not one of 0 .. n - 1

    >>> attention_share(7, 8, "contiguous"), attention_share(7, 8, "zigzag")
    (0.234375, 0.125)
    """
    if count("rank", rank, 0) >= count("ranks", ranks):
        raise DomainError("rank", got=rank, wanted=f"below {ranks}, the number of ranks")
    return 1 / ranks if split == "zigzag" else (2 * rank + 1) / ranks**2


@dataclass(frozen=True, slots=True)
class ContextParallelPrefill:
    """A prefill whose prompt is divided: compute of each rank, and what it sends of keys and values."""

    compute_s: float
    sent_bytes: float
    transfer_s: float

    @property
    def serial_s(self) -> float:
        """Without overlap."""
        return self.compute_s + self.transfer_s

    @property
    def overlapped_s(self) -> float:
        """With perfect overlap, as ring attention aims at."""
        return max(self.compute_s, self.transfer_s)


def context_parallel_prefill(
    alone_s: float, cache_bytes: float, ranks: int, bandwidth_bytes_per_s: float
) -> ContextParallelPrefill:
    """Context-parallel prefill: compute t / n, and keys and values once round the ring, (n-1)/n S c / W (formula F12.6).

    Work is taken as even (zigzag, see :func:`attention_share`), weights as replicated, latency of the ring's steps as nothing.

    Parameters
    ----------
    alone_s : the prefill on one device
    cache_bytes : of the whole prompt, ``CacheLayout.bytes_per_sequence``

    Raises
    ------
    DomainError : for no device, a negative time or size, or a bandwidth that is not positive
    """
    # The ring sends a rank's piece past n - 1 others, and that is what an all-to-all of the whole would send.
    sent = all_to_all_bytes(not_negative("cache_bytes", cache_bytes), count("ranks", ranks))
    transfer = sent / positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    return ContextParallelPrefill(not_negative("alone_s", alone_s) / ranks, sent, transfer)


# ------------------------------------------------------------------------------------------------ disaggregation


def cache_transfer_s(cache_bytes: float, bandwidth_bytes_per_s: float) -> float:
    """Time to hand a prompt's cache from a prefill to a decode worker as a whole, S c / W (formula F12.7).

    Raises
    ------
    DomainError : for a negative size or a bandwidth that is not positive

    >>> cache_transfer_s(8192 * 327680, 50e9)
    0.0536870912
    """
    return not_negative("cache_bytes", cache_bytes) / positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)


def exposed_transfer_s(transfer_s: float, layers: int, prefill_s: float) -> float:
    """What is left of a transfer after a prefill that sends each layer when it is computed (formula F12.7).

    x + (n_L - 1) max(0, x - p), with x = transfer / n_L and p = prefill / n_L of one layer: the last layer alone where computing a layer
    takes longer than sending it. Layers are taken as equal.

    Raises
    ------
    DomainError : without a layer, or for a negative time
    """
    sent = not_negative("transfer_s", transfer_s) / count("layers", layers)
    return sent + (layers - 1) * max(0.0, sent - not_negative("prefill_s", prefill_s) / layers)


def prefill_workers_per_decode_worker(prefill_s: float, step_s: float, decode_batch: float, output: float) -> float:
    """Ratio of the pools that keep pace: t_prefill B / (t_step G) (formula F12.7).

    A prefill worker finishes a request every t_prefill, a decode worker B of them every G steps.

    Raises
    ------
    DomainError : for a negative prefill time, or another number that is not positive

    >>> round(prefill_workers_per_decode_worker(0.91, 0.019, 32, 512), 12)
    2.993421052632
    """
    decode_s = positive("step_s", step_s) * positive("output", output)
    return not_negative("prefill_s", prefill_s) * positive("decode_batch", decode_batch) / decode_s
