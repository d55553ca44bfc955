"""Closed forms of context parallelism: a prompt whose tokens are divided over devices, and a cache that is.

Symbols: n devices, S prompt, L context, B sequences, c cache bytes per token, W bandwidth of one device in one direction.
Sources: formula F12.6; Liu et al. 2023 (ring attention, arXiv 2310.01889); Bhatia et al. 2025 (Helix, arXiv 2507.07120) and
vllm-project/vllm, docs/serving/context_parallel_deployment.md, for decoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ..errors import DomainError
from . import domain
from .parallel import all_to_all_bytes

if TYPE_CHECKING:
    from .step import Grouping, StepModel

Split = Literal["contiguous", "zigzag"]


def attention_share(rank: int, ranks: int, split: Split) -> float:
    """Share of causal attention that one rank of a split prompt computes (formula F12.6), for prompts much longer than n tokens.

    Contiguous: (2 i + 1) / n^2, so that the last rank (i = n - 1) has 1 - ((n-1)/n)^2. Zigzag: rank i has pieces i and 2n - 1 - i out of
    2 n, and all ranks have 1 / n.

    Raises
    ------
    DomainError : for a rank that is not one of 0 .. n - 1, or a split that there is not

    >>> attention_share(7, 8, "contiguous"), attention_share(7, 8, "zigzag")
    (0.234375, 0.125)
    """
    domain.one_of("split", split, get_args(Split))
    if domain.count("rank", rank, 0) >= domain.count("ranks", ranks):
        raise DomainError("rank", got=rank, wanted=f"below {ranks}, the number of ranks")
    return 1 / ranks if split == "zigzag" else (2 * rank + 1) / ranks**2


@dataclass(frozen=True, slots=True)
class ContextParallelPrefill:
    """A prefill whose prompt is divided: compute of the busiest rank, and what each sends of keys and values."""

    compute_s: float
    sent_bytes: float
    transfer_s: float

    @property
    def serial_s(self) -> float:
        """Without overlap."""
        return domain.finite("serial_s", self.compute_s + self.transfer_s)

    @property
    def overlapped_s(self) -> float:
        """With perfect overlap, as ring attention aims at."""
        return max(self.compute_s, self.transfer_s)


def context_parallel_prefill(
    alone_s: float,
    cache_bytes: float,
    ranks: int,
    bandwidth_bytes_per_s: float,
    *,
    attention_s: float | None = None,
    split: Split = "zigzag",
) -> ContextParallelPrefill:
    """Context-parallel prefill: compute divided, and keys and values once round the ring, (n-1)/n S c / W (formula F12.6).

        (t - t_a) / n + t_a share of the busiest rank

    The share is that of :func:`attention_share`: 1 / n for a zigzag split, which needs no ``attention_s``. Weights are taken as replicated,
    latency of the ring's steps as nothing.

    Parameters
    ----------
    alone_s, attention_s : the prefill on one device, and the part of it that is attention
    cache_bytes : of the whole prompt, ``CacheLayout.bytes_per_sequence``

    Raises
    ------
    DomainError : for no device, a negative time or size, attention that takes longer than the whole, a contiguous split without its time,
        a split that there is not, or a bandwidth that is not positive

    >>> context_parallel_prefill(8.0, 1e9, 8, 450e9, attention_s=4.0, split="contiguous").compute_s
    1.4375
    """
    # The ring sends a rank's piece past n - 1 others, and that is what an all-to-all of the whole would send.
    sent = all_to_all_bytes(domain.not_negative("cache_bytes", cache_bytes), domain.count("ranks", ranks))
    transfer = sent / domain.positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    whole = domain.not_negative("alone_s", alone_s)
    busiest = attention_share(ranks - 1, ranks, split)
    if attention_s is None and split == "contiguous":
        raise DomainError(
            "attention_s", got=attention_s, wanted="the time of attention: a contiguous split divides it unevenly"
        )
    attention = 0.0 if attention_s is None else domain.between("attention_s", attention_s, 0, whole)
    compute = (whole - attention) / ranks + attention * busiest
    return ContextParallelPrefill(compute, sent, domain.finite("transfer_s", transfer))


def merge_bytes(
    tokens: float, num_heads: int, head_dim: int, ranks: int, element_bytes: float = 2.0, statistics_bytes: float = 4.0
) -> float:
    """Bytes that one rank sends so that partial outputs of one layer merge: (n-1)/n T n_h (d_h b + b_s) (formula F12.6, decoding).

    Each rank attends with all heads to its own tokens, and then gets from every other one the outputs and the log-sum-exp of n_h / n heads
    (an all-to-all; :func:`~roofplan.planner.attention.merge_states` joins them exactly). It does not grow with the context.

    Parameters
    ----------
    tokens : that are decoded in the step, drafts included
    num_heads, head_dim : query heads, and the width of one output: of latent attention in its absorbed form, kv_r
    element_bytes, statistics_bytes : of an output's element, and of what belongs to a head beside them

    Raises
    ------
    DomainError : for negative tokens, or sizes that are not positive

    Source: Helix (arXiv 2507.07120), section 2. Left out: the queries, which each rank computes for itself where weights are replicated.

    >>> merge_bytes(1, 32, 128, 8)
    7280.0
    """
    per_head = domain.count("head_dim", head_dim) * domain.positive("element_bytes", element_bytes)
    per_head += domain.positive("statistics_bytes", statistics_bytes)
    message = domain.not_negative("tokens", tokens) * domain.count("num_heads", num_heads) * per_head
    return domain.finite("merge_bytes", all_to_all_bytes(message, domain.count("ranks", ranks)))


@dataclass(frozen=True, slots=True)
class ContextParallelDecode:
    """A decode step whose cache is divided by tokens.

    Parameters
    ----------
    rank_context : tokens of each sequence that a rank holds
    compute_s : the step over them, with all weights
    sent_bytes, merge_s : what one rank sends to merge partial outputs in all layers, and its time
    """

    rank_context: float
    compute_s: float
    sent_bytes: float
    merge_s: float

    @property
    def step_s(self) -> float:
        """Without overlap: a layer's outputs are wanted before the next part of it begins."""
        return domain.finite("step_s", self.compute_s + self.merge_s)

    @property
    def overlapped_s(self) -> float:
        """With perfect overlap, while other sequences of the batch are attended to (Helix HOP-B)."""
        return max(self.compute_s, self.merge_s)


def context_parallel_decode(
    model: StepModel,
    batch: float,
    context: float,
    ranks: int,
    bandwidth_bytes_per_s: float,
    *,
    layers: int,
    num_heads: int,
    head_dim: int,
    latency_s: float = 0.0,
    element_bytes: float = 2.0,
    grouping: Grouping = "operators",
) -> ContextParallelDecode:
    """Decode with a cache that is divided over n devices: t(B, L / n) + n_L (a + merge / W) (formula F12.6, decoding).

    Only reading the cache gets shorter: weights are replicated, and read by every rank. Each rank holds every n-th token of each sequence,
    so that one more fits than n copies of the cache would hold.

    Parameters
    ----------
    model : step model of one rank
    batch, context : sequences, and their (mean) tokens with the new one, over all ranks
    layers, num_heads, head_dim : layers with attention, and what :func:`merge_bytes` takes
    latency_s : of one merge

    Raises
    ------
    DomainError : for a batch or a context that is not above zero, counts below one, a negative latency, a bandwidth that is not positive,
        or a grouping that there is not

    Source: Helix (arXiv 2507.07120). Left out: that windows are divided too (a window counts up to its whole length on each rank).
    """
    domain.grouping(grouping)
    on_rank = domain.positive("context", context) / domain.count("ranks", ranks)
    compute = float(model.step_s(domain.positive("batch", batch), on_rank, grouping=grouping))
    sent = domain.count("layers", layers) * merge_bytes(batch, num_heads, head_dim, ranks, element_bytes)
    rounds = layers * domain.not_negative("latency_s", latency_s) if ranks > 1 else 0.0
    merge = rounds + sent / domain.positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    return ContextParallelDecode(
        on_rank,
        domain.positive("compute_s", compute),
        domain.finite("sent_bytes", sent),
        domain.finite("merge_s", merge),
    )
