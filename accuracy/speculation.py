"""The answer of ``roofplan accuracy speculation``: predicted speed-ups of speculation beside published ones, misses included.

``data/speculation.csv`` says of each published figure what is known of it, and ``how`` it is predicted:

- ``formula``: tokens per round over k c + 1 (formulas F11.2, F11.5), with the draft's cost as published, or one cost for all rows of a
  draft model, fitted to those that any cost can explain;
- ``steps``: step models of target and drafter, as ``roofplan speculate`` uses them, at the published tokens per round;
- ``acceptance``: tokens per round at one number of drafts from those at a smaller one (formula F11.4);
- ``implied``: not predicted: the cost of a draft that each row implies is listed.

``complete`` says whether all that a prediction needs was published. Of most rows the lengths of prompts and outputs were not, or the nodes
of a tree, or the device, and were taken as its notes say: their errors are those of the predictions and of what was taken.

The rows of ``data/speed.csv`` that are about speculation are all accounted for: they are one of these, an input, or have a reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..api.building import deployment, sixteen_bits
from ..errors import RoofplanError, SpecError, UnknownNameError
from ..planner.acceptance import alpha_from_tokens, expected_tokens
from ..planner.draft_trees import DraftRound
from ..planner.drafters import METHODS, of_method, round_overhead
from ..planner.evidence import evidence_of
from ..planner.reached import reached_model
from ..planner.results import Answer
from ..planner.speculative import implied_round_cost, speedup
from ..planner.speculative_steps import rounds_table
from .metrics import Comparison, grouped, metrics_of
from .results import DATA
from .truth import read_truth
from .unpredicted_speculation import Implied, implied_of, unpredicted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from ..planner.drafters import Method
    from ..planner.speculative_steps import Speculation
    from .truth import TruthRow

COLUMNS = (
    *(
        "id",
        "source",
        "how",
        "role",
        "series",
        "target",
        "drafter",
        "engine",
        "hardware",
        "tp",
        "weights",
        "prompt",
        "output",
    ),
    *(
        "concurrency",
        "k",
        "passes",
        "alpha",
        "tokens_per_round",
        "measured_at",
        "draft_cost",
        "metric",
        "value",
        "baseline",
    ),
    *("complete", "truth", "notes"),
)
HOW = ("formula", "steps", "acceptance", "implied")
METRICS = ("speedup", "tpot_ms", "decode_tok_s_per_user", "output_tok_s_total", "tokens_per_round")
GROUPS = ("how", "role", "complete", "drafter", "engine", "series")
TARGET = 0.15  # the median error that speed-ups of EAGLE heads and look-ups are to keep, where the inputs are complete
SMALL_VOCABULARY = 32_000  # of EAGLE-3's heads
_MOST_COST = 1.0  # of a draft, in steps: what is looked through
_STEPS = 200
_WORST = 15
_MS = 1e3


@dataclass(frozen=True, slots=True)
class FittedCost:
    """The one cost of a draft that fits the rows of a draft model best, in steps of the target, and the largest error that it leaves."""

    drafter: str
    draft_cost: float
    rows: int
    used: int
    worst_ape: float


@dataclass(frozen=True, slots=True)
class SpeculationAccuracy(Answer):
    """Predictions beside published figures of speculation.

    ``metrics`` are those of rows to which nothing was fitted; the groups hold the fitted ones too. ``above_expected`` names rows whose
    speed-up exceeds the tokens of a round: no cost explains them.
    """

    data: str
    by: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    fitted: tuple[FittedCost, ...]
    implied: tuple[Implied, ...]
    above_expected: tuple[str, ...]
    rows: int

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "accuracy speculation"

    def inputs(self) -> dict[str, Any]:
        """What was asked."""
        return {"data": self.data, "by": list(self.by)}

    @property
    def scored(self) -> tuple[Comparison, ...]:
        """Comparisons of rows to which nothing was fitted."""
        return tuple(c for c in self.comparisons if _label(c, "role") != "fitted")

    @property
    def drafted(self) -> tuple[Comparison, ...]:
        """Speed-ups of EAGLE heads and look-ups, fitted rows left out; of most of them some input was not published and is taken."""
        kinds = {"eagle", "eagle3", "ngram"}
        return tuple(c for c in self.scored if c.metric == "speedup" and _label(c, "drafter") in kinds)

    @property
    def drafted_complete(self) -> tuple[Comparison, ...]:
        """Those of which every input was published: for them the target holds."""
        return tuple(c for c in self.drafted if _label(c, "complete") == "yes")

    @property
    def unanswered(self) -> tuple[Comparison, ...]:
        """Comparisons without a prediction."""
        return tuple(c for c in self.comparisons if c.predicted is None)

    def worst(self, count: int = _WORST) -> list[Comparison]:
        """The largest errors."""
        answered = [c for c in self.comparisons if c.error is not None]
        return sorted(answered, key=lambda c: (-abs(c.error or 0.0), c.row, c.metric))[:count]

    def figures(self) -> dict[str, Any]:
        """What was found."""
        return {
            "rows": self.rows,
            "metrics": metrics_of(self.scored),
            "eagle_and_lookup": metrics_of(self.drafted).get("speedup"),
            "eagle_and_lookup_complete": metrics_of(self.drafted_complete).get("speedup"),
            "target_median_ape": TARGET,
            "groups": grouped(self.comparisons, dict.fromkeys((*GROUPS, *self.by))),
            "fitted": list(self.fitted),
            "implied": list(self.implied),
            "above_expected": list(self.above_expected),
            "unanswered": [{"row": c.row, "metric": c.metric, "reason": c.reason} for c in self.unanswered],
            "worst": [shown(c) for c in self.worst()],
        }

    def to_rows(self) -> str:
        """Every comparison as a line of CSV."""
        import csv
        import io

        stream = io.StringIO()
        writer = csv.DictWriter(stream, _SHOWN, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**shown(c), "low": c.low, "high": c.high, "reason": c.reason} for c in self.comparisons)
        return stream.getvalue()


_LABELS = ("how", "role", "complete", "drafter", "target", "engine", "hardware", "concurrency", "k")
_SHOWN = ("row", "metric", "measured", "predicted", "error", "low", "high", *_LABELS, "reason")


def _label(c: Comparison, name: str) -> str:
    return (c.labels or {}).get(name, "")


def shown(c: Comparison) -> dict[str, Any]:
    """One comparison as plain columns."""
    figures = {"row": c.row, "metric": c.metric, "measured": c.measured, "predicted": c.predicted, "error": c.error}
    return figures | {name: _label(c, name) for name in _LABELS}


def speculation_accuracy(data: str | Path | None = None, by: Sequence[str] = ()) -> SpeculationAccuracy:
    """Compare predictions with published figures of speculation.

    Parameters
    ----------
    data : CSV with the columns of accuracy/data/speculation.csv, ``-`` for standard input; default that file, and with it the rows of
        accuracy/data/speed.csv that are about speculation
    by : columns by whose values the metrics are also given

    Raises
    ------
    SpecError : for a file that is not such a CSV
    UnknownNameError : for a column that it does not have
    """
    rows = read_truth(DATA / "speculation.csv" if data is None else data, COLUMNS)
    for column in by:
        if column not in COLUMNS:
            raise UnknownNameError("--by", got=column, wanted=f"columns of the file: {', '.join(COLUMNS)}")
    for row in rows:
        for column, words in (("how", HOW), ("metric", METRICS), ("complete", ("yes", "no"))):
            if row.text(column) not in words:
                raise SpecError(column, got=row.text(column), wanted=f"one of {', '.join(words)}", where=row.where)
    fitted = tuple(_fitted(rows))
    costs = {each.drafter: each.draft_cost for each in fitted}
    comparisons = [c for row in rows for c in _compared(row, costs)]
    comparisons += _carried(rows)
    implied = list(_implied(rows))
    count = len(rows)
    if data is None:
        others = [
            row for row in read_truth(DATA / "speed.csv", ("id", "metric", "value")) if row.name.startswith("SPEC-")
        ]
        told = {row.text("truth") for row in rows}
        count += len(others)
        others = [row for row in others if row.name not in told]
        comparisons += map(unpredicted, others)
        implied += implied_of(others)
    return SpeculationAccuracy(
        data="accuracy/data" if data is None else str(data),
        by=tuple(by),
        comparisons=tuple(comparisons),
        fitted=fitted,
        implied=tuple(implied),
        above_expected=tuple(row.name for row in rows if row.text("metric") == "speedup" and _is_above(row)),
        rows=count,
    )


# ------------------------------------------------------------------------------------------------ the formula


def _tokens(row: TruthRow) -> float:
    """Tokens per round of a row: as published, or by alpha; carried from another number of drafts where they were measured at one."""
    drafts, alpha, tokens, at = (
        _count(row, "k"),
        row.number("alpha"),
        row.number("tokens_per_round"),
        row.count("measured_at"),
    )
    if alpha is not None:
        return expected_tokens(alpha, drafts)
    if tokens is None:
        raise SpecError("tokens_per_round", got="nothing", wanted="it, or alpha", where=row.where)
    return tokens if at is None else expected_tokens(alpha_from_tokens(tokens, at), drafts)


def _count(row: TruthRow, column: str) -> int:
    value = row.count(column)
    if value is None:
        raise SpecError(column, got="nothing", wanted="a whole number", where=row.where)
    return value


def _value(row: TruthRow) -> float:
    value = row.number("value")
    if value is None or value <= 0:
        raise SpecError("value", got=row.text("value"), wanted="a number above zero", where=row.where)
    return value


def _is_above(row: TruthRow) -> bool:
    return row.text("how") in {"formula", "implied"} and _value(row) > _tokens(row)


def _fitted(rows: Iterable[TruthRow]) -> Iterator[FittedCost]:
    """One cost for the rows of each draft model whose cost is not published: least squares of the logarithms."""
    series: dict[str, list[TruthRow]] = {}
    for row in rows:
        if row.text("how") == "formula" and row.number("draft_cost") is None:
            series.setdefault(row.text("drafter"), []).append(row)
    for drafter, own in series.items():
        used = [row for row in own if not _is_above(row)] or own
        low, high = 0.0, _MOST_COST
        for _ in range(_STEPS):  # the sum has one least: a third of the interval is left out each time
            one, other = low + (high - low) / 3, high - (high - low) / 3
            low, high = (low, other) if _squares(used, one) <= _squares(used, other) else (one, high)
        worst = max(abs(_by_formula(row, low) / _value(row) - 1) for row in own)
        yield FittedCost(drafter, low, len(own), len(used), worst)


def _squares(rows: Iterable[TruthRow], cost: float) -> float:
    return sum(math.log(_by_formula(row, cost) / _value(row)) ** 2 for row in rows)


def _by_formula(row: TruthRow, cost: float) -> float:
    return speedup(_tokens(row), _count(row, "k"), cost)


# ------------------------------------------------------------------------------------------------ comparisons


def _compared(row: TruthRow, costs: dict[str, float]) -> Iterator[Comparison]:
    how, labels = row.text("how"), row.texts
    if how == "implied":
        yield Comparison(row.name, "speedup", _value(row), None, f"not predicted: {row.text('notes')}", labels)
    elif how == "formula":
        cost = row.number("draft_cost")
        predicted = _by_formula(row, costs[row.text("drafter")] if cost is None else cost)
        yield Comparison(row.name, "speedup", _value(row), predicted, "", labels)
    elif how == "steps":
        yield from _by_steps(row)


def _by_steps(row: TruthRow) -> Iterator[Comparison]:
    """Speed-up and cost of a round, and times per token. Rates of whole runs hold prompts and idle places: only their ratio counts."""
    metric, value, baseline = row.text("metric"), _value(row), row.number("baseline")
    gain = value if metric == "speedup" else None
    if baseline is not None:
        gain = baseline / value if metric == "tpot_ms" else value / baseline
    drafts, batch = DraftRound(_count(row, "k"), _count(row, "passes"), _tokens(row)), _count(row, "concurrency")
    method = _method(row)
    try:
        found, width = _timed(row, method, drafts, batch)
    except RoofplanError as error:
        yield Comparison(row.name, metric, value, None, str(error), row.texts)
        return
    if gain is not None:
        yield Comparison(row.name, "speedup", gain, found.speedup, "", row.texts)
        cost = implied_round_cost(found.expected_tokens, gain)
        yield Comparison(row.name, "round_cost", cost, found.expected_tokens / found.speedup, "", row.texts)
    if metric in {"tpot_ms", "decode_tok_s_per_user"}:
        own = found.tpot_s * _MS if metric == "tpot_ms" else 1 / found.tpot_s
        yield Comparison(row.name, metric, value, own, "", row.texts, own / width, own * width)


def _method(row: TruthRow) -> Method:
    drafter = row.text("drafter")
    method = next((method for method in METHODS if method == drafter.removesuffix("3")), None)
    if method is None:
        raise SpecError("drafter", got=drafter, wanted=f"one of {', '.join(METHODS)}, eagle3", where=row.where)
    return method


def _timed(row: TruthRow, method: Method, drafts: DraftRound, batch: int) -> tuple[Speculation, float]:
    """A round by step models, as ``roofplan speculate`` times it, and the width of its range."""
    d = deployment(
        row.text("target"),
        row.text("hardware"),
        engine=row.text("engine") or None,
        weights=row.text("weights") or None,
        tp=row.count("tp"),
        prompt=row.count("prompt"),
        output=row.count("output"),
        concurrency=batch,
    )
    overhead, _ = round_overhead(d, None)
    vocabulary = SMALL_VOCABULARY if row.text("drafter") == "eagle3" else None
    plan = of_method(d, method, sixteen_bits(d.formats), overhead_s=overhead, vocabulary=vocabulary)
    target: Any = reached_model(d)
    (found,) = rounds_table(target, plan.reached, [drafts], [batch], d.workload.mean_context)
    return found, evidence_of(d).width


def _carried(rows: Iterable[TruthRow]) -> Iterator[Comparison]:
    """Tokens per round at the larger numbers of drafts of a series, from the smallest by one alpha."""
    series: dict[str, list[TruthRow]] = {}
    for row in rows:
        if row.text("series") and row.number("tokens_per_round") is not None:
            series.setdefault(row.text("series"), []).append(row)
    for own in series.values():
        first, *others = sorted(own, key=lambda row: _count(row, "k"))
        alpha = alpha_from_tokens(_tokens(first), _count(first, "k"))
        for row in others:
            labels = row.texts | {"how": "acceptance"}
            predicted = expected_tokens(alpha, _count(row, "k"))
            yield Comparison(row.name, "tokens_per_round", _tokens(row), predicted, "", labels)


def _implied(rows: Iterable[TruthRow]) -> Iterator[Implied]:
    for row in rows:
        if row.text("metric") == "speedup":
            tokens, gain, drafts = _tokens(row), _value(row), _count(row, "k")
            cost = implied_round_cost(tokens, gain)
            yield Implied(row.name, row.text("drafter"), tokens, gain, cost, (cost - 1) / drafts)
