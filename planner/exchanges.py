"""Closed forms of several devices: what each way of dividing a model exchanges, and how long that takes.

They compare ways before a deployment is built; for the step of a whole deployment, ``StepModel`` counts its collectives itself. Times
without exchange come in as arguments. Overlap of exchange and compute is none or perfect, as each function says.

Symbols: n devices, M message bytes, a latency of a message, W bandwidth of one device in one direction (a vendor's NVLink figure counts
both). Data-parallel replicas (formula F12.5) exchange nothing and multiply throughput and cache. A divided context stands in
:mod:`~roofplan.planner.context_parallel`, a prefill and a decode worker in :mod:`~roofplan.planner.disaggregation`.
Sources: formulas F12.1 to F12.4; NVIDIA/nccl-tests, doc/PERFORMANCE.md (a0b82b2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ..errors import DomainError
from .domain import count, finite, not_negative, one_of, positive, several, total
from .parallel import all_reduce_bytes, all_to_all_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

AllReduce = Literal["ring", "two-shot", "one-shot"]

_MOST_EXPERTS = 2**16  # of a simulation of routing
_MOST_ROWS = 10**7  # tokens x devices x draws: about half a second
_ROWS_AT_A_TIME = 2**18

# ------------------------------------------------------------------------------------------------ tensor parallelism


def message_bytes(tokens: float, hidden_size: int, activation_bytes: float) -> float:
    """Bytes of the hidden states of a step, B d b_a: what an all-reduce joins and a pipeline hands on (formulas F12.2, F12.3).

    Raises
    ------
    DomainError : for negative tokens, sizes that are not positive, or a product that no floating-point number holds

    >>> message_bytes(32, 8192, 2)
    524288
    """
    elements = not_negative("tokens", tokens) * count("hidden_size", hidden_size)
    return finite("message_bytes", elements * positive("activation_bytes", activation_bytes))


def all_reduce_s(
    message: float, ranks: int, latency_s: float, bandwidth_bytes_per_s: float, way: AllReduce = "ring"
) -> float:
    """Time of an all-reduce of M bytes over n devices (formula F12.1); zero for one device.

    Ring: 2 (n-1) a + 2 (n-1)/n M / W. Two-shot (everyone reduces one piece and hands it to all): 2 a + 2 (n-1)/n M / W. One-shot (everyone
    sends all to all): a + (n-1) M / W. The arithmetic of the sum is left out, and so is reduction inside a switch.
    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md, for the ring's bytes.

    Raises
    ------
    DomainError : for no device, a negative message or latency, a bandwidth that is not positive, or a way that there is not
    """
    bytes_of_all = not_negative("message", message)
    latency = not_negative("latency_s", latency_s)
    bandwidth = positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    one_of("way", way, get_args(AllReduce))
    if count("ranks", ranks) == 1:
        return 0.0
    if way == "one-shot":
        rounds, sent = 1, (ranks - 1) * bytes_of_all
    else:
        rounds, sent = (2 * (ranks - 1) if way == "ring" else 2), all_reduce_bytes(bytes_of_all, ranks)
    return finite("all_reduce_s", rounds * latency + sent / bandwidth)


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
    return finite("message", budget / more) if more else None


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
    divided_s = not_negative("alone_s", alone_s) / count("ranks", ranks)
    return finite("step_s", divided_s + exchanged + not_negative("gather_s", gather_s))


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
    stages = [not_negative("stage_s", stage) for stage in several("stages_s", stages_s)]
    hops = count("stages", len(stages)) - 1
    return finite("token_s", total("stages", stages) + hops * not_negative("hop_s", hop_s))


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
    return finite("exchange_s", sent / positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s))


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
    return finite("step_s", count("layers", layers) * count("micro_batches", micro_batches) * longer)


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
    DomainError : for counts below one (two draws), a negative seed, more experts per token than experts, devices that do not divide the
        experts, or more than ten million tokens x devices x draws
    """
    import numpy as np

    count("draws", draws, 2)
    count("seed", seed, 0)
    count("tokens x devices x draws", count("tokens", tokens) * count("devices", devices) * draws, 1, _MOST_ROWS)
    if count("experts_per_token", experts_per_token) > count("num_experts", num_experts, 1, _MOST_EXPERTS):
        raise DomainError(
            "experts_per_token", got=experts_per_token, wanted=f"at most {num_experts}, the number of experts"
        )
    if num_experts % devices:
        raise DomainError("devices", got=devices, wanted=f"a divisor of {num_experts}, the number of experts")
    generator = np.random.default_rng(seed)
    groups = [num_experts // devices] * devices
    rows = np.zeros((draws, devices), dtype=np.int64)
    together = max(1, _ROWS_AT_A_TIME // (draws * devices))  # tokens
    for begun in range(0, tokens, together):
        size = (min(together, tokens - begun), draws)
        drawn = generator.multivariate_hypergeometric(groups, experts_per_token, size=size, method="marginals")
        rows += drawn.sum(axis=0)
    busiest = rows.max(axis=1)
    error = float(busiest.std(ddof=1)) / math.sqrt(draws)
    return Imbalance(tokens * experts_per_token / devices, float(busiest.mean()), error)
