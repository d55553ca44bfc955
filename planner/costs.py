"""The kinds of operators, each with its FLOP and bytes as a function of what a step holds.

A step holds ``decoders`` sequences of ``context`` tokens that get ``verify`` tokens each (more than one when drafts are verified), and a
prefill chunk of ``chunk`` tokens after ``past`` cached ones. Every quantity may be a number or a numpy array.

Sources: formulas F1.4, F1.9, F2.6 to F2.11, F6.3, F12.1, F12.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .experts import distinct_experts, distinct_experts_correlated
from .flop import pairs_up_to

if TYPE_CHECKING:
    from collections.abc import Callable

Amount = Any  # a float or a numpy array of floats: mypy cannot express "the same as the arguments" without numpy
Cost = tuple[Amount, Amount, Amount, Amount]  # FLOP, weight bytes, cache bytes, other bytes
Bottleneck = Literal["compute", "weight_bandwidth", "kv_bandwidth", "interconnect", "overhead"]
Part = Literal["linear", "decode attention", "prefill attention", "elementwise", "link"]


class Load:
    """What one step holds (see the module). Slotted and not frozen: one is made per evaluation."""

    __slots__ = (
        "choose",
        "chunk",
        "context",
        "decoders",
        "greater",
        "has_chunk",
        "lesser",
        "logits",
        "past",
        "tokens",
        "verify",
    )

    def __init__(
        self, decoders: Amount, context: Amount, verify: Amount = 1, chunk: Amount = 0, past: Amount = 0
    ) -> None:
        self.decoders = decoders
        self.context = context
        self.verify = verify
        self.chunk = chunk
        self.past = past
        decoded = decoders * verify
        self.tokens = decoded + chunk
        if type(self.tokens) in _SCALARS and type(context) in _SCALARS and type(past) in _SCALARS:
            self.lesser: Callable[[Amount, Amount], Amount] = min
            self.greater: Callable[[Amount, Amount], Amount] = max
            self.choose: Callable[[Any, Amount, Amount], Amount] = _choose
            self.has_chunk = chunk != 0
            self.logits = decoded + 1 if chunk else decoded
        else:
            import numpy as np

            self.lesser, self.greater, self.choose = np.minimum, np.maximum, np.where
            self.has_chunk = bool(np.any(chunk))
            self.logits = decoded + (np.asarray(chunk) > 0)


_SCALARS = (int, float)


def _choose(condition: bool, if_true: Amount, if_false: Amount) -> Amount:
    return if_true if condition else if_false


@dataclass(frozen=True, slots=True)
class Gemm:
    """``count`` products of all rows with a weight matrix (formula F1.4)."""

    name: str
    arithmetic: str
    flop_per_row: float
    weight_bytes: float
    activation_bytes_per_row: float
    rows: Literal["tokens", "logits"] = "tokens"

    part: Part = "linear"
    bottleneck: Bottleneck = "weight_bandwidth"

    def cost(self, load: Load) -> Cost:
        """FLOP and bytes of all layers."""
        rows = load.tokens if self.rows == "tokens" else load.logits
        return self.flop_per_row * rows, self.weight_bytes, 0, self.activation_bytes_per_row * rows


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts: bytes of the distinct ones that the step's tokens touch, E_rank (1 - (1 - k/E)^T) (formula F2.10).

    ``replicas`` data-parallel replicas share the experts, so that their tokens meet here. Routing is taken as uniform, and as independent
    unless ``repeat`` says how likely a token of a sequence repeats the choice of the one before it; real routing is skewed and correlated,
    which touches fewer. A prefill chunk counts as runs of as many tokens as are verified.
    """

    name: str
    arithmetic: str
    experts: int  # on this rank, all layers
    flop_per_row: float
    weight_bytes_per_expert: float
    activation_bytes_per_row: float
    share: float  # k/E, the probability that a token uses an expert
    replicas: int
    repeat: float = 0.0

    part: Part = "linear"
    bottleneck: Bottleneck = "weight_bandwidth"

    def cost(self, load: Load) -> Cost:
        """FLOP and bytes of all layers; rows are the mean over ranks."""
        tokens = load.tokens * self.replicas
        if self.repeat:
            runs = tokens / load.verify
            touched = distinct_experts_correlated(
                runs, load.verify, self.experts, self.experts * self.share, self.repeat
            )
        else:
            touched = distinct_experts(tokens, self.experts, self.experts * self.share)
        rows = self.experts * self.share * tokens
        return self.flop_per_row * rows, self.weight_bytes_per_expert * touched, 0, self.activation_bytes_per_row * rows


@dataclass(frozen=True, slots=True)
class Scores:
    """Attention over kept entries: ``width`` multiply-adds per query head and entry for scores and values together.

    ``cap`` is the most tokens that are attended (a window, or what sparse attention picks), ``kept`` the most that are read when a chunk
    attends to its past, ``every`` the tokens per entry, ``fixed`` a number of entries that does not depend on the length.
    """

    name: str
    arithmetic: str
    phase: Literal["decode", "prefill"]
    flop_per_pair: float  # 2 heads width, all layers
    entry_bytes: float  # of all layers
    query_bytes: float  # query in and output out, per token, all layers
    cap: float = math.inf
    kept: float = math.inf
    every: int = 1
    fixed: int | None = None

    bottleneck: Bottleneck = "kv_bandwidth"

    @property
    def part(self) -> Part:
        """Where it belongs in the three-part grouping."""
        return "decode attention" if self.phase == "decode" else "prefill attention"

    def cost(self, load: Load) -> Cost:
        """FLOP and bytes of all layers (formulas F2.6, F2.7, F6.3)."""
        if self.phase == "prefill":
            return self._prefill(load)
        entries = load.lesser(load.context, self.cap) / self.every if self.fixed is None else self.fixed
        queries = load.decoders * load.verify
        flop = self.flop_per_pair * queries * entries
        return flop, 0, self.entry_bytes * load.decoders * entries, self.query_bytes * queries

    def _prefill(self, load: Load) -> Cost:
        chunk, past = load.chunk, load.past
        if self.fixed is None:
            pairs = (
                pairs_up_to(past + chunk, self.cap, load.lesser) - pairs_up_to(past, self.cap, load.lesser)
            ) / self.every
            entries = (load.lesser(past, self.kept) + chunk) / self.every * (chunk > 0)
        else:
            pairs, entries = self.fixed * chunk, self.fixed * (chunk > 0)
        return self.flop_per_pair * pairs, 0, self.entry_bytes * entries, self.query_bytes * chunk


@dataclass(frozen=True, slots=True)
class LatentScores:
    """Attention over MLA latents, in the cheaper of two forms (formula F2.8).

    Absorbed: scores and values are taken in the latent space, 2 heads (2 kv_r + d_r) a pair. Expanded: the cached latents are multiplied
    out to keys and values first (2 kv_r heads (d_n + d_v) each, written and read once), then 2 heads (d_n + d_r + d_v) a pair.
    """

    name: str
    arithmetic: str
    phase: Literal["decode", "prefill"]
    absorbed_flop_per_pair: float
    expanded_flop_per_pair: float
    expansion_flop: float  # per cached token
    expansion_bytes: float  # per cached token, written and read
    entry_bytes: float
    query_bytes: float
    cap: float
    s_per_flop: float  # nominal rates: they decide which form is faster
    s_per_byte: float

    bottleneck: Bottleneck = "kv_bandwidth"

    @property
    def part(self) -> Part:
        """Where it belongs in the three-part grouping."""
        return "decode attention" if self.phase == "decode" else "prefill attention"

    def cost(self, load: Load) -> Cost:
        """FLOP and bytes of all layers, in the form that is faster at nominal rates."""
        if self.phase == "decode":
            attended = load.lesser(load.context, self.cap)
            queries = load.decoders * load.verify
            pairs, expanded_again = queries * attended, load.decoders * attended
            cached = load.decoders * attended * self.entry_bytes
        else:
            queries = load.chunk
            pairs = pairs_up_to(load.past + queries, self.cap, load.lesser) - pairs_up_to(
                load.past, self.cap, load.lesser
            )
            expanded_again = load.past * (queries > 0)  # the chunk's own latents are expanded by the kv_b product
            cached = (load.past + queries) * (queries > 0) * self.entry_bytes
        absorbed = self.absorbed_flop_per_pair * pairs
        expanded = self.expanded_flop_per_pair * pairs + self.expansion_flop * expanded_again
        extra = self.expansion_bytes * expanded_again
        is_absorbed = self._time(load, absorbed, cached) <= self._time(load, expanded, cached + extra)
        flop, more = load.choose(is_absorbed, absorbed, expanded), load.choose(is_absorbed, 0, extra)
        return flop, 0, cached, self.query_bytes * queries + more

    def _time(self, load: Load, flop: Amount, moved: Amount) -> Amount:
        return load.greater(flop * self.s_per_flop, moved * self.s_per_byte)


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """A recurrent state: read and written once per sequence, about 5 FLOP per element and token (formula F2.11)."""

    name: str
    arithmetic: str
    flop_per_token: float
    state_bytes: float

    part: Part = "decode attention"
    bottleneck: Bottleneck = "kv_bandwidth"

    def cost(self, load: Load) -> Cost:
        """FLOP and bytes of all layers; a chunk is one sequence."""
        sequences = load.decoders + (load.chunk > 0)
        return self.flop_per_token * load.tokens, 0, 2 * self.state_bytes * sequences, 0


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Traffic of activations between products: norms, table look-ups, cache writes."""

    name: str
    arithmetic: str
    flop_per_token: float
    bytes_per_token: float
    fixed_bytes: float = 0

    part: Part = "elementwise"
    bottleneck: Bottleneck = "overhead"

    def cost(self, load: Load) -> Cost:
        """FLOP and bytes of all layers."""
        return self.flop_per_token * load.tokens, 0, 0, self.fixed_bytes + self.bytes_per_token * load.tokens


@dataclass(frozen=True, slots=True)
class Collective:
    """``count`` exchanges between ``ranks``, each a latency and the bytes that one rank sends (formulas F12.1, F12.4)."""

    name: str
    ranks: int
    count: int
    bytes_per_token: float  # of all exchanges together
    arithmetic: str = ""

    part: Part = "link"
    bottleneck: Bottleneck = "interconnect"

    def cost(self, load: Load) -> Cost:
        """Bytes on the link."""
        return 0, 0, 0, self.bytes_per_token * load.tokens


Operator = Gemm | Experts | Scores | LatentScores | StateUpdate | Elementwise | Collective
