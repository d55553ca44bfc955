"""Two runs beside each other: a figure is called different only where a rank test says so, never because two medians differ.

Source: airspeed-velocity/asv (``asv/_stats.py``) decides so for benchmarks; the test is that of Mann and Whitney (1947), corrected for many
comparisons by Holm (1979). Known to be inexact: samples of one run share its machine's state, which the test does not know; so the level
is strict, and the size of a difference stands beside it.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..errors import MeasureError
from ..planner.results import Answer, Notice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .records import Record, Run

LEVEL = 0.001  # of the whole comparison: the chance that it calls anything different when nothing is
_EXACT_UP_TO = 400  # pairs of samples for which the distribution is counted out
_PLENTY = 40  # samples of each run that can be told apart among however many figures
# Parameters that came out of a run, or were predicted for it, so that they differ from run to run: no part of what was asked.
_OUTCOMES = frozenset(
    {"requests", "failed", "cut", "mean", "roof", "predicted_low", "predicted_high", "fused_s", "bound"}
)
Verdict = Literal["slower", "faster", "higher", "lower", "same"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of both runs.

    Parameters
    ----------
    name, unit, parameters : of the record, without what came out of the run
    samples : how many there are of the two
    before, after : medians of the first and of the second run
    p_value : of the rank test, two-sided, corrected for the number of comparisons
    verdict : ``same`` where the test does not tell them apart
    """

    name: str
    unit: str
    parameters: dict[str, Any]
    before: float
    after: float
    p_value: float
    verdict: Verdict
    samples: tuple[int, int]

    @property
    def ratio(self) -> float | None:
        """After over before; None where that is no number."""
        ratio = self.after / self.before if self.before else math.inf
        return ratio if math.isfinite(ratio) else None

    def may_differ(self, figures: int) -> bool:
        """Whether so many samples could be told apart at all: were each of one run beyond all of the other, p is 2 / C(n + m, n)."""
        n, m = self.samples
        return min(n, m) > _PLENTY or math.comb(n + m, n) > 2 * figures / LEVEL


@dataclass(frozen=True, slots=True)
class CompareRuns(Answer):
    """All figures that both runs have."""

    first: Run
    second: Run
    rows: tuple[Comparison, ...]
    only_first: int
    only_second: int

    @property
    def command(self) -> str:
        """The verb that this answers."""
        return "measure compare"

    @property
    def good(self) -> bool:
        """Whether nothing became slower."""
        return not any(row.verdict == "slower" for row in self.rows)

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What makes the comparison doubtful."""
        found = []
        a, b = self.first.environment, self.second.environment
        if a.device != b.device:
            found.append(Notice("other_device", f"the runs are of different devices: {a.device} and {b.device}"))
        changed = [n for n in sorted({*a.versions, *b.versions}) if a.versions.get(n) != b.versions.get(n)]
        if changed:
            found.append(Notice("other_versions", f"versions differ: {', '.join(changed)}"))
        if (a.threads, a.kind) != (b.threads, b.kind):
            found.append(Notice("other_threads", f"{a.threads} threads on {a.kind}, then {b.threads} on {b.kind}"))
        if self.only_first or self.only_second:
            text = f"{self.only_first} figures stand in the first run alone, {self.only_second} in the second"
            found.append(Notice("not_in_both", text))
        few = [row for row in self.rows if not row.may_differ(len(self.rows))]
        if few:
            apart = sum(row.before != row.after for row in few)
            text = f"{len(few)} of {len(self.rows)} figures have too few samples for a rank test, as {few[0].name}"
            found.append(Notice("few_samples", f"{text}; the medians of {apart} of them differ, which says little"))
        return tuple(found)

    def inputs(self) -> dict[str, Any]:
        """Which runs."""
        return {
            "first": {"command": self.first.command, "started": self.first.started},
            "second": {"command": self.second.command, "started": self.second.started},
            "level": LEVEL,
        }

    def figures(self) -> dict[str, Any]:
        """What was found."""
        rows = [
            {
                "name": row.name,
                "unit": row.unit,
                "parameters": row.parameters,
                "before": row.before,
                "after": row.after,
                "ratio": row.ratio,
                "p_value": row.p_value,
                "verdict": row.verdict,
            }
            for row in self.rows
        ]
        return {"rows": rows, "different": sum(row.verdict != "same" for row in self.rows), "slower": not self.good}

    def table(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Columns and rows."""
        columns = ["name", "unit", "parameters", "before", "after", "ratio", "p_value", "verdict"]
        rows = self.figures()["rows"]
        return columns, [row | {"parameters": json.dumps(row["parameters"], sort_keys=True)} for row in rows]


def compare(first: Run, second: Run) -> CompareRuns:
    """Compare the figures that two runs share, by name and parameters.

    Raises
    ------
    MeasureError : when they share none that has samples
    """
    mine, theirs = _keyed(first), _keyed(second)
    shared = [key for key in mine if key in theirs and mine[key].measured.samples and theirs[key].measured.samples]
    if not shared:
        wanted = "runs of the same measurements, with their samples (--json FILE keeps them)"
        raise MeasureError("measure compare", got="no figure in both", wanted=wanted)
    raw = [mann_whitney(mine[key].measured.samples, theirs[key].measured.samples) for key in shared]
    rows = [_row(mine[key], theirs[key], p) for key, p in zip(shared, holm(raw), strict=True)]
    return CompareRuns(first, second, tuple(rows), len(mine) - len(shared), len(theirs) - len(shared))


def _keyed(run: Run) -> dict[str, Record]:
    return {f"{r.name} {json.dumps(_asked(r), sort_keys=True)} {r.unit}": r for r in run.records}


def _asked(record: Record) -> dict[str, Any]:
    """The parameters that say what was measured."""
    return {name: value for name, value in record.parameters.items() if name not in _OUTCOMES}


def _row(before: Record, after: Record, p_value: float) -> Comparison:
    one, two = before.measured.median, after.measured.median
    verdict: Verdict = "same"
    if p_value < LEVEL and one != two:
        words: tuple[Verdict, Verdict] = ("faster", "slower")
        if before.unit.endswith("/s"):
            words = ("slower", "faster")
        elif before.unit != "s":
            words = ("lower", "higher")
        verdict = words[two > one]
    counts = len(before.measured.samples), len(after.measured.samples)
    return Comparison(before.name, before.unit, _asked(before), one, two, p_value, verdict, counts)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number by Holm's step-down rule: the chance that any is wrong is at most the level."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided p-value of Mann and Whitney's rank test: exact for few samples without ties, else the normal limit with ties.

    >>> mann_whitney([1, 2, 3], [4, 5, 6])
    0.1
    """
    n, m = len(first), len(second)
    pooled = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    ranks, ties, place = [0.0, 0.0], 0.0, 0
    while place < len(pooled):
        end = place
        while end < len(pooled) and pooled[end][0] == pooled[place][0]:
            end += 1
        same = end - place
        ties += same**3 - same
        for _, run in pooled[place:end]:
            ranks[run] += (place + 1 + end) / 2
        place = end
    u = ranks[0] - n * (n + 1) / 2
    if not ties and n * m <= _EXACT_UP_TO:
        least = int(min(u, n * m - u))
        return min(1.0, 2 * sum(_arrangements(n, m, k) for k in range(least + 1)) / math.comb(n + m, n))
    total = n + m
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:  # all samples are equal
        return 1.0
    z = max(0.0, abs(u - n * m / 2) - 0.5) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


@functools.cache
def _arrangements(n: int, m: int, u: int) -> int:
    """In how many orders of n and m samples the statistic is u: f(n, m, u) = f(n - 1, m, u - m) + f(n, m - 1, u)."""
    if u < 0 or u > n * m:
        return 0
    if n == 0 or m == 0:
        return int(u == 0)
    return _arrangements(n - 1, m, u - m) + _arrangements(n, m - 1, u)
