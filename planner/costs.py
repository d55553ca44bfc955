"""The kinds of operators, each with its FLOP and bytes as a function of what a step holds.

A step holds ``decoders`` sequences of ``context`` tokens that get ``verify`` tokens each (more than one when drafts are verified), and a
prefill chunk of ``chunk`` tokens after ``past`` cached ones. A chunk may be ``pieces`` equal parts of as many prompts, each after ``past``
tokens of its own. Every quantity may be a number or a numpy array.

``launches`` of an operator counts the kernels that it stands for, over all layers: each has a fixed time beside its work.

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
        "pieces",
        "tokens",
        "verify",
    )

    def __init__(
        self,
        decoders: Amount,
        context: Amount,
        verify: Amount = 1,
        chunk: Amount = 0,
        past: Amount = 0,
        pieces: Amount = 1,
        ranks: int = 1,
    ) -> None:
        self.decoders = decoders
        self.context = context
        self.verify = verify
        self.chunk = chunk
        self.past = past
        self.pieces = pieces
        decoded = decoders * verify
        self.tokens = decoded + chunk if ranks == 1 else decoded + chunk / ranks
        if all(type(amount) in _SCALARS for amount in (self.tokens, context, past, pieces)):
            self.lesser: Callable[[Amount, Amount], Amount] = min
            self.greater: Callable[[Amount, Amount], Amount] = max
            self.choose: Callable[[Any, Amount, Amount], Amount] = _choose
            self.has_chunk = chunk != 0
            self.logits = decoded + pieces if chunk else decoded
        else:
            import numpy as np

            self.lesser, self.greater, self.choose = np.minimum, np.maximum, np.where
            self.has_chunk = bool(np.any(chunk))
            self.logits = decoded + pieces * (np.asarray(chunk) > 0)


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
    launches: int = 0

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
    launches: int = 0

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
    attends to its past, ``every`` the tokens per entry, ``share`` what an eviction policy leaves of the tokens, ``fixed`` a number of
    entries that does not depend on the length. The last ``recent`` entries of a sequence are ``recent_bytes`` wider than the others.
    """

    name: str
    arithmetic: str
    phase: Literal["decode", "prefill"]
    flop_per_pair: float  # 2 heads width, all layers
    entry_bytes: float  # of all layers
    query_bytes: float  # query in and output out, per token, all layers
    cap: float = math.inf
    kept: float = math.inf
    every: float = 1
    fixed: int | None = None
    launches: int = 0
    share: float = 1
    recent: float = 0
    recent_bytes: float = 0  # of all layers

    bottleneck: Bottleneck = "kv_bandwidth"

    @property
    def part(self) -> Part:
        """Where it belongs in the three-part grouping."""
        return "decode attention" if self.phase == "decode" else "prefill attention"

    def cost(self, load: Load) -> Cost:
        """FLOP and bytes of all layers (formulas F2.6, F2.7, F6.3)."""
        if self.phase == "prefill":
            return self._prefill(load)
        entries = self._entries(load)
        queries = load.decoders * load.verify
        flop = self.flop_per_pair * queries * entries
        cached = self.entry_bytes * entries
        if self.recent_bytes:
            cached = cached + self.recent_bytes * load.lesser(entries, self.recent)
        return flop, 0, load.decoders * cached, self.query_bytes * queries

    def _entries(self, load: Load) -> Amount:
        """Entries that a decoded token attends to: whole ones, as they are stored (formulas F3.3, F3.6)."""
        if self.fixed is not None:
            return self.fixed
        entries = load.lesser(load.context, self.cap)
        if self.share != 1:
            entries = load.greater(load.lesser(entries, 1), (entries * self.share + _ROUNDING) // 1)
        return entries if self.every == 1 else entries // self.every

    def _prefill(self, load: Load) -> Cost:
        chunk, past, pieces = load.chunk, load.past, load.pieces
        if self.fixed is None:
            pairs = pieces * _new_pairs(load, self.cap) / self.every
            entries = (pieces * load.lesser(past, self.kept) + chunk) / self.every * (chunk > 0)
        else:
            pairs, entries = self.fixed * chunk, self.fixed * (chunk > 0)
        cached = self.entry_bytes * entries
        if self.recent_bytes:
            cached = cached + self.recent_bytes * load.lesser(entries, pieces * self.recent)
        return self.flop_per_pair * pairs, 0, cached, self.query_bytes * chunk


_ROUNDING = 5e-7  # entries: a share of the tokens is cut after binary fractions are rounded away


def _new_pairs(load: Load, cap: float) -> Amount:
    """Pairs of query and key of one piece of the chunk: those up to its end without those up to its begin."""
    piece = load.chunk / load.pieces
    return pairs_up_to(load.past + piece, cap, load.lesser) - pairs_up_to(load.past, cap, load.lesser)


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
    launches: int = 0
    recent: float = 0  # entries of a sequence, the last ones, that are wider than the others
    recent_bytes: float = 0  # by which they are

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
            if self.recent_bytes:
                cached = cached + load.decoders * self.recent_bytes * load.lesser(attended, self.recent)
        else:
            queries = load.chunk
            pairs = load.pieces * _new_pairs(load, self.cap)
            past = load.pieces * load.past
            expanded_again = past * (queries > 0)  # the chunk's own latents are expanded by the kv_b product
            held = (past + queries) * (queries > 0)
            cached = held * self.entry_bytes
            if self.recent_bytes:
                cached = cached + self.recent_bytes * load.lesser(held, load.pieces * self.recent)
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
    """A recurrent state: read once per sequence and written once per token that may be the last, 5 FLOP per element (formula F2.11).

    A plain step reads and writes it once; when drafts are verified, the state after each of them is kept until it is known which hold
    (vllm-project/vllm, v1/kv_cache_interface.py, MambaSpec.num_speculative_blocks). Of a chunk only the last state is written.
    """

    name: str
    arithmetic: str
    flop_per_token: float
    state_bytes: float
    launches: int = 0

    part: Part = "decode attention"
    bottleneck: Bottleneck = "kv_bandwidth"

    def cost(self, load: Load) -> Cost:
        """FLOP and bytes of all layers; a piece of a chunk is one sequence, and every verified token leaves a state of its own."""
        prompts = load.pieces * (load.chunk > 0)
        moved = load.decoders * (1 + load.verify) + 2 * prompts
        return self.flop_per_token * load.tokens, 0, self.state_bytes * moved, 0


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Traffic of activations between products: norms, table look-ups, cache writes."""

    name: str
    arithmetic: str
    flop_per_token: float
    bytes_per_token: float
    fixed_bytes: float = 0
    launches: int = 0

    part: Part = "elementwise"
    bottleneck: Bottleneck = "overhead"

    def cost(self, load: Load) -> Cost:
        """FLOP and bytes of all layers."""
        return self.flop_per_token * load.tokens, 0, 0, self.fixed_bytes + self.bytes_per_token * load.tokens


@dataclass(frozen=True, slots=True)
class LayerFloor:
    """Time that a layer of some kind takes beside its kernels, however little it holds: routing, latents, recurrent updates."""

    name: str
    kind: Literal["routing", "latent", "gated_delta", "sparse_index"]
    launches: int
    arithmetic: str = ""

    part: Part = "elementwise"
    bottleneck: Bottleneck = "overhead"

    def cost(self, _load: Load) -> Cost:
        """No work that the roofline counts."""
        return 0, 0, 0, 0


@dataclass(frozen=True, slots=True)
class ActivationTraffic:
    """Token vectors that kernels between the products read and write beyond what the roofline counts: ``bytes_per_token`` of one pass.

    How many passes there are is a fact of an engine (residuals, quantisation, permuting tokens to their experts and back). No rank has
    less of it for having others, which is why prompts do not get shorter in proportion to the ranks. A ``gate`` is the activation of a
    feed-forward part, which every engine reads and writes once; that of routed experts is within their kernel.
    """

    name: str
    kind: Literal["layer", "expert", "gate"]
    bytes_per_token: float
    arithmetic: str = ""

    part: Part = "elementwise"
    bottleneck: Bottleneck = "overhead"

    def cost(self, load: Load) -> Cost:
        """Bytes of one pass over all layers."""
        return 0, 0, 0, self.bytes_per_token * load.tokens


@dataclass(frozen=True, slots=True)
class Collective:
    """``count`` exchanges between ``ranks``, each a latency and the bytes that one rank sends (formulas F12.1, F12.4).

    ``message_bytes`` is what one token adds to the message of one exchange, by which measured times are tabulated. ``of`` says which tokens
    count: all that the rank computes, those that decode, or all that prompts attend to.
    """

    name: str
    operation: Literal["all_reduce", "alltoall", "send"]
    ranks: int
    count: int
    bytes_per_token: float  # that one rank sends, of all exchanges together
    message_bytes: float
    of: Literal["tokens", "decoded", "attended"] = "tokens"
    arithmetic: str = ""

    part: Part = "link"
    bottleneck: Bottleneck = "interconnect"

    def amount(self, load: Load) -> Amount:
        """The tokens that count."""
        if self.of == "tokens":
            return load.tokens
        if self.of == "decoded":
            return load.decoders * load.verify
        return (load.pieces * load.past + load.chunk) * (load.chunk > 0)

    def cost(self, load: Load) -> Cost:
        """Bytes on the link."""
        return 0, 0, 0, self.bytes_per_token * self.amount(load)


Operator = (
    Gemm | Experts | Scores | LatentScores | StateUpdate | Elementwise | LayerFloor | ActivationTraffic | Collective
)
