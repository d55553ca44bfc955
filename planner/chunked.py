"""Chunked prefill: prompts are cut into chunks that share their steps with decoding sequences, which trades TTFT for steady gaps.

All times are those of :class:`~roofplan.planner.step.StepModel`. Its grouping ``parts`` gives the closed forms of F10.1 and F10.2;
``operators``, the default, adds the traffic of activations and a bound for each operator.

Symbols: B decoding sequences of context L_d, n tokens of a chunk, P tokens before it, S prompt, m = ceil(S / n) chunks.
Sources: formulas F10.1 to F10.4; Agrawal et al. 2024 (Sarathi-Serve, arXiv 2403.02310).
Left out: waiting before the first chunk, and chunks of several prompts in one step (vLLM: one partial prefill at a time by default).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import domain
from .costs import Load
from .latency import chunk_times_s, chunks
from .prefix import suffix_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .step import Grouping, StepModel


@dataclass(frozen=True, slots=True)
class ChunkedPrefill:
    """A prompt in chunks of at most ``chunk`` tokens, beside sequences that decode.

    Parameters
    ----------
    steps : m, chunks of the prompt
    ttft_s : time of all its steps
    longest_step_s : the longest of them, and so the longest gap between tokens (ITL) of those that decode meanwhile
    growth : ttft_s over that of the same prompt in one chunk, in the same company
    reread_bytes : cache bytes read again because of the cuts
    """

    chunk: int
    steps: int
    ttft_s: float
    longest_step_s: float
    growth: float
    reread_bytes: float


def mixed_step_s(
    model: StepModel, decoders: float, context: float, chunk: int, past: int = 0, *, grouping: Grouping = "operators"
) -> float:
    """Time of a step that decodes for B sequences and takes in a chunk of n tokens after P (formula F10.1).

        max((2 N_blk (B+n) + 2 d V (B+1)) / F, W_read / W_bw) + max(decode attention FLOP / F, B L_d c / W_bw)
        + max(prefill attention FLOP / F, (P+n) c / W_bw)

    That is ``grouping="parts"``. Without a chunk it is a decode step.

    Raises
    ------
    DomainError : for a negative number of sequences or tokens, or a grouping that there is not

    Source: Sarathi-Serve; the step model adds windows, latents, experts and layouts.
    """
    company = domain.not_negative("decoders", decoders), domain.not_negative("context", context)
    domain.count("chunk", chunk, 0)
    domain.count("past", past, 0)
    domain.grouping(grouping)
    step = float(model.step_s(*company, chunk=chunk, past=past, grouping=grouping))
    return domain.not_negative("step_s", step)


def reread_bytes(model: StepModel, prompt: int, largest_chunk: int, cached: int = 0) -> float:
    """Cache bytes that later chunks read of earlier ones, on one rank: c n m (m-1) / 2 without windows (formula F10.3).

    Counted by the step model as all cache bytes of the chunks less those of the same tokens in one chunk, so that windows, latents and
    recurrent states (read and written by each chunk) are in it. ``cached`` tokens before the prompt's own are read by every chunk.
    Weights are read by each step as well; beside decoding sequences they would be in any case.

    Raises
    ------
    DomainError : for a prompt or a chunk without a token, more than 131072 chunks, or nothing left to compute
    """
    import numpy as np

    own = suffix_tokens(prompt, cached)

    def read(largest: int) -> float:
        sizes, pasts = np.array(list(chunks(own, largest)), dtype=float).T
        moved = model.totals(Load(0, 0, chunk=sizes, past=cached + pasts))[2]
        return domain.not_negative("bytes read", float(np.sum(moved)))

    return read(largest_chunk) - read(own)


def chunked_prefill(
    model: StepModel,
    prompt: int,
    chunk_sizes: Iterable[int],
    *,
    cached: int = 0,
    decoders: float = 0,
    context: float = 0,
    grouping: Grouping = "operators",
) -> tuple[ChunkedPrefill, ...]:
    """The trade-off as a table: TTFT (sum of F10.1 over the chunks), longest gap and extra reads of each chunk size (formula F10.2).

    Parameters
    ----------
    prompt, cached : tokens of the prompt, and how many of them a prefix cache spares (see :mod:`~roofplan.planner.prefix`)
    chunk_sizes : largest chunks to look at; one beyond the prompt is the whole prompt
    decoders, context : sequences that decode in each of the steps, and their (mean) context

    Raises
    ------
    DomainError : for a prompt or a chunk without a token, more than 131072 chunks, nothing left to compute, or negative company

    Source: Sarathi-Serve. Assumes that the company stays as it is and that the prompt does not wait.
    """
    own = suffix_tokens(prompt, cached)

    def steps_s(largest: int) -> list[float]:
        return chunk_times_s(model, own, largest, cached=cached, decoders=decoders, context=context, grouping=grouping)

    def row(largest: int) -> ChunkedPrefill:
        steps = steps_s(largest)
        ttft = domain.total("ttft_s", steps)
        return ChunkedPrefill(
            largest, len(steps), ttft, max(steps), ttft / at_once_s, reread_bytes(model, prompt, largest, cached)
        )

    at_once_s = domain.positive("time in one chunk", steps_s(own)[0])
    return tuple(row(largest) for largest in domain.several("chunk_sizes", chunk_sizes))


def chunk_within_latency(
    model: StepModel,
    limit_s: float,
    prompt: int,
    *,
    cached: int = 0,
    tile: int = 1,
    decoders: float = 0,
    context: float = 0,
    grouping: Grouping = "operators",
) -> int:
    """Largest chunk n whose step keeps an ITL limit, at the end of the prompt (P = S - n), in whole tiles (formula F10.4).

    All that is left of the prompt where that keeps the limit as one chunk, whatever the tile; 0 where no tile does. The end is the worst
    place: a chunk there attends to the whole prompt. Found by halving, since a step does not get shorter when tokens move from its past
    into its chunk. Known to be inexact: with latent attention, ``parts`` and ``whole`` dip by up to 0.4 % where the form of attention
    changes; the answer keeps the limit there, but a little more might, too.

    Parameters
    ----------
    limit_s : longest gap between two tokens of the sequences that decode meanwhile
    prompt, cached : tokens of the prompt, and how many of them a prefix cache spares
    tile : rows of a product's tile: a part of one takes the time of a whole one (formula F6.5; usually 128)

    Raises
    ------
    DomainError : for a limit that is not above zero, a prompt or a tile without a token, nothing left to compute, or negative company
    """
    domain.positive("limit_s", limit_s)
    domain.count("tile", tile)
    own = suffix_tokens(prompt, cached)

    def step_s(chunk: int) -> float:
        return mixed_step_s(model, decoders, context, chunk, prompt - chunk, grouping=grouping)

    most = bisect_right(range(1, own + 1), limit_s, key=step_s)
    return own if most == own else most // tile * tile
