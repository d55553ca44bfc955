"""Comparing deployments: which figures differ, by how much, and which deployment is best in each.

Figures are those of a sizing, with cost and rate per device beside them. Two of them differ when the smaller is more than one per cent
below the larger; text and lists differ when they are not the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .prices import cost_range, price_assumption
from .results import Answer, Assumption, Explanation, Notice, plain
from .sizing import deployment_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .ranges import Range
    from .sizing import SizeResult

TOLERANCE = 0.01
_PARTS = {"bound", "low", "expected", "high"}
# Figures in the order in which they answer something; those of a group in the order of the sizing.
_GROUPS = (
    "fits",
    "reasons",
    "throughput",
    "latency",
    "cost",
    "capacity",
    "memory",
    "bottleneck",
    "faster_than_reading",
    "model",
    "kv",
    "intensity",
    "work",
)
_LOWER_IS_BETTER = ("latency.", "cost.", "model.weights_bytes", "kv.bytes_per", "memory.weights_bytes")
_HIGHER_IS_BETTER = (
    "throughput.",
    "capacity.kv_tokens",
    "capacity.max_con",
    "capacity.concurrency",
    "memory.kv_budget_bytes",
    "memory.free_bytes",
)
_AT_LIMIT = frozenset(
    {"capacity.concurrency_at_max_model_len"}
)  # of sequences as long as the engine or the model allows
KEY_FIGURES = (
    "latency.ttft_s",
    "latency.tpot_s",
    "throughput.output_tokens_per_s",
    "throughput.output_tokens_per_s_per_device",
    "capacity.max_concurrency",
    "cost.usd_per_million_output_tokens",
)


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the deployments: what tells it from the others, its sizing, and the price of one of its devices (None: unknown)."""

    label: str
    result: SizeResult
    usd_per_hour: float | None

    @property
    def devices(self) -> int:
        """Devices of all replicas."""
        return self.result.deployment.layout.devices

    def cost(self) -> dict[str, Any]:
        """Dollars per hour of all devices, and per million output tokens; None where a price or a rate is missing."""
        rate = self.result.times.throughput.output_tokens_per_s if self.result.times else None
        price = None if self.usd_per_hour is None else self.usd_per_hour * self.devices
        per_token = None if price is None or rate is None else cost_range(price, rate)
        return {"usd_per_hour": price, "usd_per_million_output_tokens": per_token}

    def figures(self) -> dict[str, Any]:
        """Every figure by its dotted name, in the order of the groups; ranges are kept whole."""
        found = {name: value for name, value in self.result.figures().items() if name in _GROUPS}
        rate = self.result.times.throughput.output_tokens_per_s if self.result.times else None
        per_device: Range | None = None if rate is None else rate.scaled(1 / self.devices)
        found["throughput"] = {**found["throughput"], "output_tokens_per_s_per_device": per_device}
        found["cost"] = self.cost()
        return {
            name: value
            for group in _GROUPS
            for name, value in _flat(plain(found[group]), group)
            if not name.endswith("reason")
        }


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and set(value) != _PARTS:
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}")
    else:
        yield name, value


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of all alternatives, in their order.

    Parameters
    ----------
    asked : whether it is what was asked, and not what was found
    ratios : to the first alternative's, of numbers above zero
    best : number of the alternative that is best in it among those that fit; None where no one is better than all others, or the figures
        are not of the same thing
    """

    figure: str
    asked: bool
    values: tuple[Any, ...]
    ratios: tuple[float | None, ...]
    best: int | None


@dataclass(frozen=True, slots=True)
class CompareResult(Answer):
    """The answer of ``roofplan compare``: the rows that differ, and those that do not."""

    alternatives: tuple[Alternative, ...]
    rows: tuple[Row, ...]
    same: tuple[Row, ...]

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "compare"

    @property
    def labels(self) -> tuple[str, ...]:
        """What tells the alternatives apart."""
        return tuple(one.label for one in self.alternatives)

    @property
    def any_fits(self) -> bool:
        """Whether any alternative fits."""
        return any(one.result.fits for one in self.alternatives)

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What the user should know: of all alternatives once, of some with their labels."""
        who: dict[Notice, list[str]] = {}
        for one in self.alternatives:
            for notice in dict.fromkeys(one.result.warnings):
                who.setdefault(notice, []).append(one.label)
        return tuple(
            notice
            if len(labels) == len(self.alternatives)
            else replace(notice, message=f"{', '.join(labels)}: {notice.message}")
            for notice, labels in who.items()
        )

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Inputs that were not given, of every alternative, each once; prices among them."""
        told: dict[str, Assumption] = {}
        for one in self.alternatives:
            listed = [*one.result.assumptions, *price_assumption(one.result.deployment.hardware, one.usd_per_hour)]
            told |= {f"{entry.name} {entry.value} {entry.source}": entry for entry in listed}
        return tuple(told.values())

    def inputs(self) -> dict[str, Any]:
        """What was asked of each."""
        return {
            "alternatives": {
                one.label: {**deployment_inputs(one.result.deployment), "usd_per_device_hour": one.usd_per_hour}
                for one in self.alternatives
            },
            "tolerance": TOLERANCE,
        }

    def figures(self) -> dict[str, Any]:
        """The rows that differ, the names and values of the others, and the best alternative in the main figures."""
        alternatives = [
            {"label": one.label, "fits": one.result.fits, "reasons": one.result.reasons} for one in self.alternatives
        ]
        return {
            "alternatives": alternatives,
            "rows": [self._named(row) for row in self.rows],
            "same": [{"figure": row.figure, "value": row.values[0]} for row in self.same],
            "marks": {row.figure: self._mark(row) for row in self.rows if row.figure in KEY_FIGURES},
        }

    def _named(self, row: Row) -> dict[str, Any]:
        return {
            "figure": row.figure,
            "asked": row.asked,
            "values": dict(zip(self.labels, row.values, strict=True)),
            "ratios": dict(zip(self.labels, row.ratios, strict=True)),
            "best": None if row.best is None else self.labels[row.best],
        }

    def _mark(self, row: Row) -> dict[str, Any]:
        best = None if row.best is None else self.labels[row.best]
        return {"best": best, "value": None if row.best is None else row.values[row.best]}

    def table(self) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
        """Columns and rows of a CSV file: a line a figure, four of a range."""
        rows: list[dict[str, Any]] = []
        for row in self.rows:
            best = "" if row.best is None else self.labels[row.best]
            parts = next((list(value) for value in row.values if isinstance(value, dict)), [""])
            for part in parts:
                values = [value[part] if isinstance(value, dict) else value for value in row.values]
                name = f"{row.figure}.{part}" if part else row.figure
                rows.append({"figure": name, **dict(zip(self.labels, values, strict=True)), "best": best})
        return ("figure", *self.labels, "best"), rows

    def explain(self) -> tuple[Explanation, ...]:
        """How the figures that differ came about, of each alternative."""
        differing = tuple(row.figure for row in self.rows)
        return tuple(
            replace(line, figure=f"{one.label}: {line.figure}")
            for one in self.alternatives
            for line in one.result.explain()
            if line.figure.startswith(differing)
        )


def compare(alternatives: Sequence[Alternative]) -> CompareResult:
    """Compare deployments that are sized.

    Parameters
    ----------
    alternatives : two or more, each with a label of its own
    """
    rows: list[Row] = []
    same: list[Row] = []
    for row in _rows(alternatives):
        (rows if _differs(row.values) else same).append(row)
    return CompareResult(tuple(alternatives), tuple(rows), tuple(row for row in same if row.values[0] is not None))


def _rows(alternatives: Sequence[Alternative]) -> Iterator[Row]:
    """What was asked, then what was found."""
    asked = [plain(deployment_inputs(one.result.deployment)) for one in alternatives]
    for name in asked[0]:
        values = tuple(inputs[name] for inputs in asked)
        yield Row(f"inputs.{name}", True, values, (None,) * len(values), None)
    found = [one.figures() for one in alternatives]
    fits = [one.result.fits for one in alternatives]
    deployments = [one.result.deployment for one in alternatives]
    one_limit = len({d.context_limit or d.workload.length for d in deployments}) == 1
    for name in found[0]:
        values = tuple(figures.get(name) for figures in found)
        numbers = [_number(value) for value in values]
        # More sequences of a shorter limit are no advantage.
        best = _best(name, numbers, fits) if one_limit or name not in _AT_LIMIT else None
        yield Row(name, False, values, _ratios(numbers), best)


def _number(value: Any) -> float | None:
    """A number as it is, a range by what is expected, None for what is neither."""
    if isinstance(value, dict):
        value = value.get("expected")
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _ratios(numbers: list[float | None]) -> tuple[float | None, ...]:
    first = numbers[0]
    if first is None or first <= 0:
        return (None,) * len(numbers)
    return tuple(None if number is None or number <= 0 else number / first for number in numbers)


def _best(name: str, numbers: list[float | None], fits: list[bool]) -> int | None:
    """The alternative that is best in a figure; None where none fits, or the next one differs by no more than the tolerance."""
    sign = -1 if name.startswith(_LOWER_IS_BETTER) else 1 if name.startswith(_HIGHER_IS_BETTER) else 0
    known = sorted((sign * number, i) for i, number in enumerate(numbers) if number is not None and fits[i])
    if not sign or not known:
        return None
    (best, place), others = known[-1], known[:-1]
    return place if not others or best - others[-1][0] > TOLERANCE * max(abs(best), abs(others[-1][0])) else None


def _differs(values: tuple[Any, ...]) -> bool:
    numbers = [_number(value) for value in values]
    known = [number for number in numbers if number is not None]
    if len(known) == len(values):
        return max(known) - min(known) > TOLERANCE * max(abs(number) for number in known)
    return any(value != values[0] for value in values)
