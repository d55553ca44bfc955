"""Timing one step: a ``StepModel`` is built once per deployment and then evaluates steps in microseconds, on numbers or numpy arrays.

Three groupings of the same operators are offered. ``operators`` (the default) adds up the bound of every operator with all its traffic
(formulas F1.9, F6.3). ``parts`` takes one bound each for the linear part, decode attention and prefill attention, with weight and cache
bytes only (F10.1, F11.6). ``whole`` takes one bound over everything, weight and cache bytes only (F6.1, F6.2): a lower bound that assumes
that compute and memory overlap perfectly across operators.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .costs import Amount, Bottleneck, Collective, Load, Operator
from .operators import build_operators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .costs import Cost
    from .deployment import Deployment

Grouping = Literal["operators", "parts", "whole"]


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Shares of the nominal rates that are reached, and the latency of one collective in seconds."""

    compute: float = 1.0
    bandwidth: float = 1.0
    collective_latency_s: float = 0.0


NOMINAL = Efficiency()

# One operator as the inner loop wants it: its cost function, and seconds per FLOP and per byte.
_Entry = tuple["Callable[[Load], Cost]", float, float]


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

    Build it with :meth:`of`; get one with other efficiencies by :meth:`at`.
    """

    operators: tuple[Operator, ...]
    nominal: tuple[tuple[float, float], ...]  # seconds per FLOP and per byte of each operator, at nominal rates
    efficiency: Efficiency = NOMINAL
    _with_chunk: tuple[_Entry, ...] = field(init=False, repr=False)
    _without_chunk: tuple[_Entry, ...] = field(init=False, repr=False)
    _latency_s: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Prepare what every evaluation needs, so that it only multiplies and compares."""
        entries = tuple((operator.cost, per_flop, per_byte) for operator, per_flop, per_byte in self._rates())
        phases = [getattr(operator, "phase", "both") for operator in self.operators]
        decoding = tuple(entry for entry, phase in zip(entries, phases, strict=True) if phase != "prefill")
        exchanges = sum(operator.count for operator in self.operators if isinstance(operator, Collective))
        object.__setattr__(self, "_with_chunk", entries)
        object.__setattr__(self, "_without_chunk", decoding)
        object.__setattr__(self, "_latency_s", exchanges * self.efficiency.collective_latency_s)

    @classmethod
    def of(cls, deployment: Deployment, efficiency: Efficiency = NOMINAL) -> StepModel:
        """Build the step model of a deployment.

        Raises
        ------
        SpecError : when the device has no rate for an arithmetic type that is needed
        """
        operators = build_operators(deployment)
        return cls(operators, tuple(_seconds(deployment, operator) for operator in operators), efficiency)

    def at(self, efficiency: Efficiency) -> StepModel:
        """Give the same model at other efficiencies."""
        return StepModel(self.operators, self.nominal, efficiency)

    def step_s(
        self,
        decoders: Amount,
        context: Amount,
        *,
        verify: Amount = 1,
        chunk: Amount = 0,
        past: Amount = 0,
        grouping: Grouping = "operators",
    ) -> Amount:
        """Time of one step in seconds.

        Parameters
        ----------
        decoders, context : sequences that decode, and their (mean) tokens with the new one
        verify : tokens that each of them gets in this step
        chunk, past : tokens of a prefill chunk in the same step, and the tokens before them
        grouping : which bound (see the module)
        """
        load = Load(decoders, context, verify, chunk, past)
        if grouping != "operators":
            return self._grouped(load, grouping)
        greater, total = load.greater, self._latency_s
        for cost, per_flop, per_byte in self._with_chunk if load.has_chunk else self._without_chunk:
            flop, weights, cache, other = cost(load)
            total = total + greater(flop * per_flop, (weights + cache + other) * per_byte)
        return total

    def _grouped(self, load: Load, grouping: Grouping) -> Amount:
        compute: dict[str, Amount] = {}
        memory: dict[str, Amount] = {}
        total = self._latency_s
        for operator, per_flop, per_byte in self._rates():
            flop, weights, cache, other = operator.cost(load)
            if operator.part == "link":
                total = total + other * per_byte
            elif operator.part != "elementwise":
                group = "whole" if grouping == "whole" else operator.part
                compute[group] = compute.get(group, 0) + flop * per_flop
                memory[group] = memory.get(group, 0) + (weights + cache) * per_byte
        return total + sum(load.greater(compute[group], memory[group]) for group in compute)

    def _rates(self) -> Iterator[tuple[Operator, float, float]]:
        for operator, (per_flop, per_byte) in zip(self.operators, self.nominal, strict=True):
            yield operator, per_flop / self.efficiency.compute, per_byte / self.efficiency.bandwidth

    def costs(self, load: Load) -> list[OperatorCost]:
        """List the operators that do anything in a step, with work, traffic, time and what binds each (numbers only)."""
        listed = []
        for operator, per_flop, per_byte in self._rates():
            flop, weights, cache, other = operator.cost(load)
            moved = weights + cache + other
            compute, memory = flop * per_flop, moved * per_byte
            latency = operator.count * self.efficiency.collective_latency_s if isinstance(operator, Collective) else 0
            if compute or memory:
                bound = "compute" if compute > memory else operator.bottleneck
                listed.append(OperatorCost(operator.name, flop, moved, max(compute, memory) + latency, bound))
        return listed

    def bottleneck(self, load: Load) -> Bottleneck:
        """What most of the step's time is spent on."""
        time_on: dict[Bottleneck, float] = {}
        for cost in self.costs(load):
            time_on[cost.bound] = time_on.get(cost.bound, 0) + cost.time_s
        return max(time_on, key=lambda bound: time_on[bound])

    def totals(self, load: Load) -> tuple[Amount, Amount, Amount]:
        """FLOP, weight bytes and cache bytes of the products and attention of a step (formula F4.3 for the weights)."""
        flop = weights = cache = 0
        for operator in self.operators:
            if operator.part not in {"elementwise", "link"}:
                of_one = operator.cost(load)
                flop, weights, cache = flop + of_one[0], weights + of_one[1], cache + of_one[2]
        return flop, weights, cache


def _seconds(deployment: Deployment, operator: Operator) -> tuple[float, float]:
    """Seconds per FLOP and per byte of an operator at nominal rates.

    Where a link between the devices is unknown its bytes cost nothing: the caller warns of it.
    """
    hardware = deployment.hardware
    if isinstance(operator, Collective):
        link = hardware.link(operator.ranks)
        return 0.0, 1 / link.among(operator.ranks) if link else 0.0
    rate = hardware.peak.rate(operator.arithmetic)
    return 1 / rate if rate else 0.0, 1 / hardware.memory.bandwidth
