"""Timing one step: a ``StepModel`` is built once per deployment and then evaluates steps in microseconds, on numbers or numpy arrays.

It is built at nominal rates (:meth:`StepModel.of`, the roofline) or with the kernels as they are reached (:meth:`StepModel.reached`: fixed
times, shares of the rates, measured collectives, host time).

Three groupings of the same operators are offered. ``operators`` (the default) adds up the time of every operator with all its traffic
(formulas F1.9, F6.3). ``parts`` takes one bound each for the linear part, decode attention and prefill attention, with weight and cache
bytes only (F10.1, F11.6). ``whole`` takes one bound over everything, weight and cache bytes only (F6.1, F6.2): a lower bound that assumes
that compute and memory overlap perfectly across operators. The last two leave out fixed times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ..errors import DomainError
from .costs import Amount, Bottleneck, Collective, Load, Operator
from .kernel_times import OperatorTime, nominal_time, reached_time
from .operators import build_operators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .costs import Cost
    from .deployment import Deployment

Grouping = Literal["operators", "parts", "whole"]


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Shares of the rates that are reached, and the latency of one collective in seconds."""

    compute: float = 1.0
    bandwidth: float = 1.0
    collective_latency_s: float = 0.0


NOMINAL = Efficiency()


@dataclass(frozen=True, slots=True)
class Host:
    """Seconds of the host per step and per sequence in it, and the least of a step that holds prompt tokens."""

    per_step_s: float = 0.0
    per_sequence_s: float = 0.0
    prompt_floor_s: float = 0.0


NO_HOST = Host()

# One operator as the inner loop wants it: its cost function, seconds per FLOP and per byte, and p of their join (None: the larger).
_Entry = tuple["Callable[[Load], Cost]", float, float, float | None]


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """One operator of one step: work, traffic, time and what binds it."""

    name: str
    flop: float
    bytes_moved: float
    time_s: float
    bound: Bottleneck

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flop / self.bytes_moved if self.bytes_moved else 0.0


@dataclass(frozen=True, slots=True)
class StepModel:
    """The cost of a step as a function of what it holds; times in seconds, on one rank of a replica.

    Build it with :meth:`of` or :meth:`reached`; get one with other efficiencies by :meth:`at`.
    """

    operators: tuple[Operator, ...]
    times: tuple[OperatorTime, ...]  # of each operator, at an efficiency of one
    efficiency: Efficiency = NOMINAL
    host: Host = NO_HOST
    context_ranks: int = 1  # that divide the tokens of prompts between them
    _shared: tuple[_Entry, ...] = field(init=False, repr=False)
    _decoding: tuple[_Entry, ...] = field(init=False, repr=False)
    _prompts: tuple[tuple[_Entry, float], ...] = field(init=False, repr=False)
    _exchanges: tuple[tuple[Collective, Callable[[Amount], Amount]], ...] = field(init=False, repr=False)
    _fixed_s: tuple[float, float, float] = field(init=False, repr=False)  # always, with decoders, with a chunk

    def __post_init__(self) -> None:
        """Prepare what every evaluation needs, so that it only multiplies and compares."""
        shared: list[_Entry] = []
        decoding: list[_Entry] = []
        prompts: list[tuple[_Entry, float]] = []
        exchanges = []
        fixed = dict.fromkeys(("both", "decode", "prefill"), 0.0)
        for operator, time in self._timed():
            phase = getattr(operator, "phase", "both")
            fixed[phase] += time.fixed_s
            entry = (operator.cost, time.s_per_flop, time.s_per_byte, time.overlap)
            if time.exchange is not None and isinstance(operator, Collective):
                exchanges.append((operator, time.exchange))
            elif phase == "prefill":
                prompts.append((entry, time.ramp_tokens))
            elif time.s_per_flop or time.s_per_byte:
                (decoding if phase == "decode" else shared).append(entry)
        object.__setattr__(self, "_shared", tuple(shared))
        object.__setattr__(self, "_decoding", tuple(decoding))
        object.__setattr__(self, "_prompts", tuple(prompts))
        object.__setattr__(self, "_exchanges", tuple(exchanges))
        object.__setattr__(self, "_fixed_s", (fixed["both"], fixed["decode"], fixed["prefill"]))

    @classmethod
    def of(cls, deployment: Deployment, efficiency: Efficiency = NOMINAL) -> StepModel:
        """Build the step model of a deployment at nominal rates: the roofline.

        Raises
        ------
        SpecError : when the device has no rate for an arithmetic type that is needed
        """
        operators = build_operators(deployment)
        times = tuple(nominal_time(deployment, operator) for operator in operators)
        return cls(operators, times, efficiency, context_ranks=deployment.layout.cp)

    @classmethod
    def reached(cls, deployment: Deployment) -> StepModel:
        """Build the step model of a deployment with what its device's kernels and its engine's host reach.

        Raises
        ------
        DomainError : for a deployment without kernels
        SpecError : when the device has no rate for an arithmetic type that is needed
        """
        kernels, timing = deployment.kernels, deployment.engine.timing
        if kernels is None:
            raise DomainError("kernels", got="none", wanted="a deployment with the kernels of its device")
        operators = build_operators(deployment)
        host = Host(timing.host_per_step, timing.host_per_sequence, deployment.prompt_floor_s)
        times = tuple(reached_time(deployment, kernels, operator) for operator in operators)
        return cls(operators, times, host=host, context_ranks=deployment.layout.cp)

    def at(self, efficiency: Efficiency) -> StepModel:
        """Give the same model at other efficiencies."""
        return replace(self, efficiency=efficiency)

    def step_s(
        self,
        decoders: Amount,
        context: Amount,
        *,
        verify: Amount = 1,
        chunk: Amount = 0,
        past: Amount = 0,
        pieces: Amount = 1,
        grouping: Grouping = "operators",
    ) -> Amount:
        """Time of one step in seconds.

        Parameters
        ----------
        decoders, context : sequences that decode, and their (mean) tokens with the new one
        verify : tokens that each of them gets in this step
        chunk, past : tokens of a prefill chunk in the same step, and the tokens before them
        pieces : prompts of which the chunk holds equal parts
        grouping : which bound (see the module)
        """
        load = Load(decoders, context, verify, chunk, past, pieces, self.context_ranks)
        if grouping != "operators":
            return self._grouped(load, grouping)
        greater, (total, decode_s, prompt_s) = load.greater, self._fixed_s
        host = self.host
        for cost, per_flop, per_byte, overlap in self._shared:
            flop, weights, cache, other = cost(load)
            compute, memory = flop * per_flop, (weights + cache + other) * per_byte
            if overlap is None:
                total = total + greater(compute, memory)
            else:
                total = total + (compute**overlap + memory**overlap) ** (1 / overlap)
        for cost, per_flop, per_byte, overlap in self._decoding:
            flop, weights, cache, other = cost(load)
            compute, memory = flop * per_flop, (weights + cache + other) * per_byte
            if overlap is None:
                total = total + greater(compute, memory)
            else:
                total = total + (compute**overlap + memory**overlap) ** (1 / overlap)
        total = total + decode_s * (decoders > 0)
        for operator, time_s in self._exchanges:
            total = total + operator.count * time_s(operator.message_bytes * operator.amount(load))
        sequences = decoders
        if load.has_chunk:
            holds_chunk = chunk > 0
            total = total + self._prompts_s(load) + prompt_s * holds_chunk
            total = greater(total, host.prompt_floor_s * holds_chunk)
            sequences = sequences + pieces * holds_chunk
        return total + host.per_step_s + host.per_sequence_s * sequences

    def _prompts_s(self, load: Load) -> Amount:
        """Time of attention within a chunk."""
        total, end = 0, load.past + load.chunk / load.pieces
        for (cost, per_flop, per_byte, overlap), ramp in self._prompts:
            flop, weights, cache, other = cost(load)
            compute, memory = flop * per_flop, (weights + cache + other) * per_byte
            joined = (
                load.greater(compute, memory)
                if overlap is None
                else (compute**overlap + memory**overlap) ** (1 / overlap)
            )
            total = total + (joined * (1 + ramp / load.greater(end, 1)) if ramp else joined)
        return total

    def _grouped(self, load: Load, grouping: Grouping) -> Amount:
        compute: dict[str, Amount] = {}
        memory: dict[str, Amount] = {}
        total: Amount = 0
        for operator, time in self._timed():
            flop, weights, cache, _ = operator.cost(load)
            if operator.part == "link":
                total = total + self._exchange_s(operator, time, load)
            elif operator.part != "elementwise":
                group = "whole" if grouping == "whole" else operator.part
                compute[group] = compute.get(group, 0) + flop * time.s_per_flop
                memory[group] = memory.get(group, 0) + (weights + cache) * time.s_per_byte
        return total + sum(load.greater(compute[group], memory[group]) for group in compute)

    def _timed(self) -> Iterator[tuple[Operator, OperatorTime]]:
        """Each operator with its time at the model's efficiency."""
        efficiency = self.efficiency
        for operator, time in zip(self.operators, self.times, strict=True):
            latency = operator.count * efficiency.collective_latency_s if isinstance(operator, Collective) else 0.0
            yield (
                operator,
                replace(
                    time,
                    fixed_s=time.fixed_s + latency,
                    s_per_flop=time.s_per_flop / efficiency.compute,
                    s_per_byte=time.s_per_byte / efficiency.bandwidth,
                ),
            )

    def _exchange_s(self, operator: Operator, time: OperatorTime, load: Load) -> Amount:
        if time.exchange is not None and isinstance(operator, Collective):
            return operator.count * time.exchange(operator.message_bytes * operator.amount(load))
        return time.fixed_s + operator.cost(load)[3] * time.s_per_byte

    def costs(self, load: Load) -> list[OperatorCost]:
        """List the operators that do anything in a step, with work, traffic, time and what binds each (numbers only)."""
        load = self._of_rank(load)
        listed = []
        idle = "prefill" if not load.has_chunk else "decode" if not load.decoders else ""
        for operator, time in self._timed():
            if getattr(operator, "phase", "both") == idle:
                continue
            flop, weights, cache, other = operator.cost(load)
            moved = weights + cache + other
            compute, memory = flop * time.s_per_flop, moved * time.s_per_byte
            spent, bound = _joined(compute, memory, time.overlap), operator.bottleneck
            if time.ramp_tokens:
                spent *= 1 + time.ramp_tokens / max(1, load.past + load.chunk / load.pieces)
            if isinstance(operator, Collective):
                spent, memory = self._exchange_s(operator, time, load), math.inf
            elif time.fixed_s > spent:
                bound = "overhead"
            elif compute > memory:
                bound = "compute"
            if not isinstance(operator, Collective):
                spent += time.fixed_s
            if spent:
                listed.append(OperatorCost(operator.name, flop, moved, spent, bound))
        return listed

    def _of_rank(self, load: Load) -> Load:
        """What one rank of a context group computes of a step."""
        if self.context_ranks == 1:
            return load
        return Load(load.decoders, load.context, load.verify, load.chunk, load.past, load.pieces, self.context_ranks)

    def bottleneck(self, load: Load) -> Bottleneck:
        """What most of the step's time is spent on."""
        time_on: dict[Bottleneck, float] = {}
        for cost in self.costs(load):
            time_on[cost.bound] = time_on.get(cost.bound, 0) + cost.time_s
        return max(time_on, key=lambda bound: time_on[bound])

    def totals(self, load: Load) -> tuple[Amount, Amount, Amount]:
        """FLOP, weight bytes and cache bytes of the products and attention of a step (formula F4.3 for the weights)."""
        load = self._of_rank(load)
        flop = weights = cache = 0
        for operator in self.operators:
            if operator.part not in {"elementwise", "link"}:
                of_one = operator.cost(load)
                flop, weights, cache = flop + of_one[0], weights + of_one[1], cache + of_one[2]
        return flop, weights, cache


def _joined(compute: float, memory: float, overlap: float | None) -> float:
    return max(compute, memory) if overlap is None else (compute**overlap + memory**overlap) ** (1 / overlap)
