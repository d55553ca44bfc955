"""Sweeps: one or two things varied, and for each point memory, times, rates and cost; and what stands out on each curve.

Where the ``context`` is given, sequences decode at that length and nobody sends prompts (*decode*: many points at a time). Otherwise
requests of a prompt and an output are served, and the points are those of a sizing (*serving*).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..errors import DomainError
from .deployment import Workload
from .memory import plan_memory
from .notices import assumptions_of, overcommitted, warnings_of
from .prices import price_assumption
from .results import Answer, Assumption, Explanation, Notice, plain, whole
from .sizing import deployment_inputs
from .sweep_marks import CheapestPoint, CurveMarks, explain_marks, marks_of
from .sweep_points import (
    DECODE_RANGES,
    FACTS,
    PARTS,
    SERVING_RANGES,
    Columns,
    ExpectedSteps,
    Variant,
    decode_columns,
    of_length,
    serving_columns,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .deployment import Deployment

Mode = Literal["decode", "serving"]
WORKLOAD_AXES = ("batch", "context", "prompt", "output")  # vary what is served; all others make another deployment
MOST_POINTS: dict[Mode, int] = {"decode": 1_000_000, "serving": 10_000}
MOST_CURVES = 200  # beyond which marks are left out


@dataclass(frozen=True, slots=True)
class Axis:
    """What is varied, and its values in the order of the rows."""

    name: str
    values: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is served where no axis says otherwise; a ``context`` makes the sweep one of decode alone."""

    batch: int
    prompt: int
    output: int
    context: int | None = None


@dataclass(frozen=True, slots=True)
class SweepResult(Answer):
    """The answer of ``roofplan sweep``.

    Parameters
    ----------
    columns : of each row its values, by the names of the JSON; a range has four columns (``step_s.low``)
    curves : marks by curve; None where there are more than 200 curves
    cheapest : number of the row with the cheapest token among those that fit within the limits; None without one or without a price
    """

    mode: Mode
    axes: tuple[Axis, ...]
    traffic: Traffic
    variants: tuple[Variant, ...]
    columns: Columns
    curves: tuple[CurveMarks, ...] | None
    cheapest: int | None
    limit_s: float | None
    longest: int  # tokens of the longest sequence

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "sweep"

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.columns["fits"])

    @property
    def any_fits(self) -> bool:
        """Whether any point fits."""
        return any(self.columns["fits"])

    @property
    def ranges(self) -> tuple[str, ...]:
        """The names of the columns that are ranges."""
        return DECODE_RANGES if self.mode == "decode" else SERVING_RANGES

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What the user should know about any of the deployments."""
        told: dict[Notice, None] = {}
        for variant in self.variants:
            d = of_length(variant.deployment, self.longest)
            told |= dict.fromkeys((*warnings_of(d), *overcommitted(plan_memory(d))))
        return tuple(told)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Inputs that were not given, of every deployment, each once; the prices among them."""
        told: dict[str, Assumption] = {}
        for variant in self.variants:
            d = variant.deployment
            listed = [*assumptions_of(d, plan_memory(d)), *price_assumption(d.hardware, variant.usd_per_hour)]
            told |= {f"{one.name} {one.value} {one.source}": one for one in listed}
        return tuple(told.values())

    def inputs(self) -> dict[str, Any]:
        """What was asked: the axes with their values, and everything that they leave as it is."""
        asked = deployment_inputs(self.variants[0].deployment)
        names = {"batch": "concurrency", "hardware": "hardware"}
        for axis in self.axes:
            asked.pop(names.get(axis.name, axis.name), None)
            if axis.name in {"tp", "pp", "dp", "devices"}:  # the others of a layout follow
                asked = {name: value for name, value in asked.items() if name not in {"tp", "pp", "dp", "devices"}}
        if self.mode == "decode":
            asked = {name: value for name, value in asked.items() if name not in {"prompt", "output"}}
            asked |= {} if self.traffic.context is None else {"context": self.traffic.context}
        prices = {variant.usd_per_hour for variant in self.variants}
        return {
            **asked,
            "over": {axis.name: axis.values for axis in self.axes},
            "mode": self.mode,
            "tpot_s": self.limit_s,
            "usd_per_hour": prices.pop() if len(prices) == 1 else None,
        }

    def rows(self, numbers: Iterable[int] | None = None) -> list[dict[str, Any]]:
        """Rows as the JSON has them, all or those of some numbers; a range that nobody knows is None."""
        columns: Mapping[str, Sequence[Any]] = self.columns
        if numbers is not None:
            chosen = list(numbers)
            columns = {name: [values[number] for number in chosen] for name, values in self.columns.items()}
        single = [name for name in self.columns if "." not in name]
        listed = [columns[name] for name in single]
        for name in self.ranges:
            parts = zip(*(columns[f"{name}.{part}"] for part in PARTS), strict=True)
            listed.append([None if values[0] is None else dict(zip(PARTS, values, strict=True)) for values in parts])
        names = (*single, *self.ranges)
        return [dict(zip(names, values, strict=True)) for values in zip(*listed, strict=True)]

    def figures(self) -> dict[str, Any]:
        """The rows, and the marks of each curve."""
        return {"rows": self.rows(), "marks": self._marks()}

    def _marks(self) -> dict[str, Any]:
        curves = None if self.curves is None else [curve.figures() for curve in self.curves]
        row = None if self.cheapest is None else {"row": self.cheapest, **self.rows([self.cheapest])[0]}
        found: dict[str, Any] = {"curves": curves, "cheapest": row}
        if curves is None:
            found["reason"] = "too_many_curves"
        if row is None:
            unpriced = all(variant.usd_per_hour is None for variant in self.variants)
            found["cheapest_reason"] = "no_price" if unpriced else "nothing_within_the_limits"
        return found

    def to_dict(self) -> dict[str, Any]:
        """The whole answer as plain data.

        Raises
        ------
        ArithmeticError : for NaN or infinity
        """
        whole_answer = self.without_rows()
        whole_answer["result"]["rows"] = self.rows()
        return whole_answer

    def without_rows(self) -> dict[str, Any]:
        """The same without the rows, which are plain already, so that only their numbers are looked at.

        Raises
        ------
        ArithmeticError : for NaN or infinity
        """
        for name, values in self.columns.items():
            if not _all_finite(values):
                raise ArithmeticError(f"{name}: a number in a result that is not finite")
        answer = Answer.to_dict(replace(self, columns=_first(self.columns), cheapest=None))
        answer["result"] = {"rows": [], "marks": plain(self._marks())}
        return answer

    def table(self) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
        """Columns and rows of a CSV file."""
        names = tuple(self.columns)
        rows = [dict(zip(names, values, strict=True)) for values in zip(*self.columns.values(), strict=True)]
        return names, rows

    def explain(self) -> tuple[Explanation, ...]:
        """How the figures of a row and the marks of the first curve came about."""
        return tuple(_explain(self))


def _all_finite(values: Sequence[Any]) -> bool:
    """Whether all numbers are finite: the sum tells it at once, unless it is too large or there are other things among them."""
    try:
        if math.isfinite(sum(values)):
            return True
    except TypeError:
        pass
    return all(math.isfinite(value) for value in values if isinstance(value, (int, float)))


def _first(columns: Columns) -> Columns:
    return {name: values[:1] for name, values in columns.items()}


# ------------------------------------------------------------------------------------------------ the sweep


def mode_of(axes: Sequence[Axis], traffic: Traffic) -> Mode:
    """Whether a sweep is one of decode alone."""
    return "decode" if traffic.context is not None or any(axis.name == "context" for axis in axes) else "serving"


def sweep(
    axes: Sequence[Axis],
    variants: Sequence[Variant],
    traffic: Traffic,
    *,
    limit_s: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SweepResult:
    """Evaluate every point of one or two axes; rows in the order of the axes, the last one fastest.

    Parameters
    ----------
    variants : one for each combination of the axes that are none of the workload, in the same order
    traffic : what is served where no axis says otherwise
    limit_s : most time per output token, for the marks
    progress : told how many of how many points are done

    Raises
    ------
    DomainError : for a sweep of too many points, or lengths that the engine does not accept
    SpecError : when a device has no rate for an arithmetic type that is needed
    """
    mode = mode_of(axes, traffic)
    total = math.prod(len(axis.values) for axis in axes)
    if not 1 <= total <= MOST_POINTS[mode]:
        hint = "--context TOKENS sweeps decode alone, up to 1,000,000 points" if mode == "serving" else ""
        raise DomainError("sweep", got=f"{total:,} points", wanted=f"1 to {MOST_POINTS[mode]:,}", hint=hint)
    names = tuple(axis.name for axis in axes)
    points = list(itertools.product(*(axis.values for axis in axes)))
    by_variant = _grouped(names, points, variants)
    columns: Columns = {}
    steps, done = [], 0
    for variant, numbers in zip(variants, by_variant, strict=True):
        before = done

        def tick(count: int, before: int = before) -> None:
            if progress is not None:
                progress(before + count, total)

        steps.append(ExpectedSteps.of(variant.deployment))
        asked = {name: _column(name, names, points, numbers, traffic) for name in _ASKED[mode]}
        _placed(columns, numbers, total, _evaluate(variant, steps[-1], asked, mode, tick))
        done += len(numbers)
    curves = _curves(axes, variants, steps, traffic, mode, limit_s)
    result = SweepResult(
        mode=mode,
        axes=tuple(axes),
        traffic=traffic,
        variants=tuple(variants),
        columns=columns,
        curves=curves,
        cheapest=_cheapest_row(columns, range(total), limit_s),
        limit_s=limit_s,
        longest=_longest(columns, mode),
    )
    return result if mode == "decode" or curves is None else replace(result, curves=_with_cheapest(result, points))


def _grouped(names: tuple[str, ...], points: Sequence[tuple[Any, ...]], variants: Sequence[Variant]) -> list[list[int]]:
    """Numbers of the points of each variant."""
    places = [place for place, name in enumerate(names) if name not in WORKLOAD_AXES]
    if not places:
        return [list(range(len(points)))]
    number_of = {tuple(value for _, value in variant.settings): place for place, variant in enumerate(variants)}
    grouped: list[list[int]] = [[] for _ in variants]
    for number, point in enumerate(points):
        grouped[number_of[tuple(point[place] for place in places)]].append(number)
    return grouped


def _load(values: Mapping[str, Any], traffic: Traffic) -> Traffic:
    """What is served at one point."""
    return Traffic(
        values.get("batch", traffic.batch),
        values.get("prompt", traffic.prompt),
        values.get("output", traffic.output),
        values.get("context", traffic.context),
    )


_ASKED: dict[Mode, tuple[str, ...]] = {"decode": ("batch", "context"), "serving": ("batch", "prompt", "output")}


def _column(
    name: str, names: tuple[str, ...], points: Sequence[tuple[Any, ...]], numbers: Sequence[int], traffic: Traffic
) -> list[int]:
    """What some points ask for: the values of an axis, or what all have."""
    if name not in names:
        return [getattr(traffic, name)] * len(numbers)
    place = names.index(name)
    return [points[number][place] for number in numbers]


def _longest(columns: Columns, mode: Mode) -> int:
    """Tokens of the longest sequence."""
    parts = [columns["context"]] if mode == "decode" else [columns["prompt"], columns["output"]]
    longest: int = max(map(sum, zip(*parts, strict=True)))
    return longest


def _evaluate(
    variant: Variant, steps: ExpectedSteps, asked: Columns, mode: Mode, tick: Callable[[int], None]
) -> Columns:
    """Columns of the points of one variant, with what was asked first."""
    count = len(asked["batch"])
    columns: Columns = {name: [value] * count for name, value in variant.settings if name != "devices"}
    columns |= asked
    if mode == "decode":
        found = decode_columns(variant, steps, asked["batch"], asked["context"], tick)
    else:
        workloads = [
            Workload(prompt, output, batch)
            for batch, prompt, output in zip(asked["batch"], asked["prompt"], asked["output"], strict=True)
        ]
        columns["context"] = [whole(workload.mean_context) for workload in workloads]
        found = serving_columns(variant, steps, workloads, tick)
    return {**columns, **{name: found[name] for name in FACTS}, **found}


def _placed(columns: Columns, numbers: list[int], total: int, found: Columns) -> None:
    """Put the values of some rows where they belong."""
    if len(numbers) == total:
        columns.update(found)
        return
    for name, values in found.items():
        column = columns.setdefault(name, [None] * total)
        for number, value in zip(numbers, values, strict=True):
            column[number] = value


# ------------------------------------------------------------------------------------------------ marks


def _curves(
    axes: Sequence[Axis],
    variants: Sequence[Variant],
    steps: Sequence[ExpectedSteps],
    traffic: Traffic,
    mode: Mode,
    limit_s: float | None,
) -> tuple[CurveMarks, ...] | None:
    """Marks of each curve over the batch; None where there are too many."""
    lengths = [axis for axis in axes if axis.name in {"context", "prompt", "output"}]
    if len(variants) * math.prod(len(axis.values) for axis in lengths) > MOST_CURVES:
        return None
    found = []
    for (variant, own), values in itertools.product(
        zip(variants, steps, strict=True), itertools.product(*(axis.values for axis in lengths))
    ):
        named = dict(zip((axis.name for axis in lengths), values, strict=True))
        load = _load(named, traffic)
        d = _deployed(variant.deployment, load)
        context: float = d.workload.mean_context if mode == "serving" else load.context or 0
        settings = {**dict(variant.settings), **named}
        at = tuple((axis.name, settings[axis.name]) for axis in axes if axis.name != "batch")
        serves = mode == "serving"
        found.append(marks_of(variant, d, own, context=context, serves=serves, limit_s=limit_s, at=at))
    return tuple(found)


def _deployed(d: Deployment, load: Traffic) -> Deployment:
    if load.context is not None:
        return of_length(d, load.context, load.batch)
    return replace(d, workload=Workload(load.prompt, load.output, load.batch))


def _cheapest_row(columns: Columns, numbers: Iterable[int], limit_s: float | None) -> int | None:
    """The row with the least expected cost of a token among those that fit and keep the limit; the first of equals."""
    cost, fits, tpot = (columns[n] for n in ("usd_per_million_output_tokens.expected", "fits", "tpot_s.expected"))
    allowed = math.inf if limit_s is None else limit_s
    possible = [n for n in numbers if fits[n] and cost[n] is not None and (tpot[n] or 0.0) <= allowed]
    return min(possible, key=lambda n: cost[n], default=None)


def _with_cheapest(r: SweepResult, points: Sequence[tuple[Any, ...]]) -> tuple[CurveMarks, ...]:
    """Curves under load with the cheapest of their own rows."""
    places = [place for place, axis in enumerate(r.axes) if axis.name != "batch"]
    numbers_of: dict[tuple[Any, ...], list[int]] = {}
    for number, point in enumerate(points):
        numbers_of.setdefault(tuple(point[place] for place in places), []).append(number)
    marked = []
    for curve in r.curves or ():
        row = _cheapest_row(r.columns, numbers_of[tuple(value for _, value in curve.at)], r.limit_s)
        if row is None or r.columns["tpot_s.expected"][row] is None:
            marked.append(curve)
            continue
        tpot, cost = (r.columns[f"{name}.expected"][row] for name in ("tpot_s", "usd_per_million_output_tokens"))
        marked.append(replace(curve, cheapest=CheapestPoint(r.columns["batch"][row], tpot, cost, "points")))
    return tuple(marked)


def _explain(r: SweepResult) -> Iterator[Explanation]:
    first = r.rows([0])[0]
    if first["step_s"] is not None:
        yield Explanation(
            "rows.0.step_s",
            f"{first['step_s']['expected']:.6g} s",
            "t = sum over operators of max(FLOP / F, bytes / W_bw), as kernels reach them, + host (F1.9, F6.3)",
            f"{first['batch']} sequences at {first['context']:g} tokens; roof {first['step_s']['bound']:.6g} s",
        )
        said = (
            "t, since nobody sends prompts" if r.mode == "decode" else "as in a sizing: prompts of others come between"
        )
        yield Explanation("rows.0.tpot_s", f"{(first['tpot_s'] or first['step_s'])['expected']:.6g} s", said, said)
    for curve in (r.curves or ())[:1]:
        yield from explain_marks(curve, r.limit_s)
