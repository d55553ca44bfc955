"""Predictions of roofplan, of aiconfigurator and of two simple rooflines beside the same published measurements.

Run by hand: ``python benchmarks/peers/compare.py --peer /tmp/peers/venv/bin/python``. Prints a table and writes ``results.csv`` (what every
tool predicts for every row) and ``results.md`` (the table) beside this file. Without ``--peer``, what aiconfigurator predicted is taken
from ``results.csv``. README.md says what is compared and how far that is fair.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import simple

import roofplan
from roofplan.accuracy.metrics import Comparison, metric_of
from roofplan.accuracy.served import Case, case_of, predict
from roofplan.accuracy.serving import deployment_of, read_rows, settings_of
from roofplan.errors import RoofplanError
from roofplan.models.spec import LatentAttention, Moe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from roofplan.accuracy.serving import ServingRow

FOLDER = Path(__file__).parent
RESULTS, TABLE = FOLDER / "results.csv", FOLDER / "results.md"
PEER_VERSION = "0.12.0"
PEER_SECONDS = 1800  # for all rows together
PEERS = ("aiconfigurator", "aiconfigurator, told more")
METRICS = ("tpot_ms", "ttft_ms")
_MS = 1e3


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a tool says about a row in milliseconds; None with a note where it says nothing."""

    tpot_ms: float | None
    ttft_ms: float | None
    note: str = ""


NOT_ASKED = Prediction(None, None, "not asked")
Predictions = dict[str, dict[str, Prediction]]  # by tool and row


# ------------------------------------------------------------------------------------------------ what each tool says


def _closed(case: Case) -> tuple[float, float]:
    served = predict(case)
    return served.ttft_s, served.tpot_s


def _simulated(case: Case) -> tuple[float, float]:
    served = predict(case, simulate=True)
    return served.ttft_s, served.tpot_s


def _untold(case: Case) -> tuple[float, float]:
    """The closed form without the launch's flags: of the launch only the version and the cache's format are known."""
    settings = settings_of(case.row)
    launch = replace(settings.launch, batched_tokens=None, max_num_seqs=None, memory_utilization=None)
    d = deployment_of(case.row, replace(settings, launch=launch))
    return _closed(replace(case, deployment=d, scheduling=d.engine.scheduling))


OURS: dict[str, Callable[[Case], tuple[float, float]]] = {
    "roofplan": _closed,
    "roofplan, simulated": _simulated,
    "roofplan, engine defaults": _untold,
    "roofline, all overlapping": lambda case: simple.overlapped(case.deployment),
    "blog rule": lambda case: simple.blog_rule(case.deployment),
}
TOOLS = (
    "roofplan",
    "roofplan, simulated",
    "roofplan, engine defaults",
    *PEERS,
    "roofline, all overlapping",
    "blog rule",
)


def ask_ours(tool: str, row: ServingRow) -> Prediction:
    """Predict one row without another process."""
    try:
        ttft_s, tpot_s = OURS[tool](case_of(row))
    except RoofplanError as error:
        return Prediction(None, None, str(error))
    return Prediction(tpot_s * _MS, ttft_s * _MS)


def question(row: ServingRow, tool: str) -> dict[str, Any]:
    """A row for aiconfigurator: as the table has it, or with the mean lengths and the cache's format of our settings."""
    asked = {
        name: getattr(row, name) for name in ("model", "precision", "gpu", "engine", "isl", "osl", "tp", "pp", "ep")
    }
    batch = max(1, round((row.concurrency or 1) / row.attention_dp))
    asked |= {"id": f"{tool}|{row.id}", "dp": row.attention_dp, "batch": batch}
    if tool == PEERS[1]:
        settings = settings_of(row)
        mean = settings.client.mean_length
        asked |= {"isl": mean(row.isl), "osl": mean(row.osl), "kv": settings.launch.kv}
    return asked


def ask_peer(python: str, rows: Sequence[ServingRow]) -> Predictions:
    """Send all rows through one process of aiconfigurator; rows that it did not reach are said to be unanswered."""
    lines = [json.dumps(question(row, tool)) for tool in PEERS for row in rows]
    command = [python, str(FOLDER / "aiconfigurator_worker.py"), PEER_VERSION]
    with tempfile.TemporaryFile("w+") as out:
        try:
            code = subprocess.run(
                command, input="\n".join(lines), text=True, stdout=out, timeout=PEER_SECONDS, check=False
            ).returncode
            rest = f"the process ended with code {code}"
        except subprocess.TimeoutExpired:
            code, rest = 0, f"not reached within {PEER_SECONDS} s"
        out.seek(0)
        answers = [json.loads(line) for line in out if line.endswith("\n")]
    if code and not answers:
        raise SystemExit(f"{python}: {rest}")
    found: Predictions = {tool: {row.id: Prediction(None, None, rest) for row in rows} for tool in PEERS}
    for answer in answers:
        tool, _, row = answer["id"].partition("|")
        found[tool][row] = Prediction(answer.get("tpot_ms"), answer.get("ttft_ms"), answer["note"])
    return found


# ------------------------------------------------------------------------------------------------ what was stored


def stored(path: Path = RESULTS) -> Predictions:
    """What aiconfigurator predicted in an earlier run."""
    with path.open(encoding="utf-8", newline="") as stream:
        lines = list(csv.DictReader(stream))
    return {tool: {line["row"]: _stored(line, tool) for line in lines} for tool in PEERS}


def _stored(line: Mapping[str, str], tool: str) -> Prediction:
    tpot, ttft = (float(text) if (text := line[f"{tool}: {metric}"]) else None for metric in METRICS)
    return Prediction(tpot, ttft, line[f"{tool}: note"])


def store(rows: Sequence[ServingRow], found: Predictions, path: Path = RESULTS) -> None:
    """Write what every tool predicts for every row, to four digits."""
    columns = (*METRICS, "note")
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["row", *(f"{tool}: {column}" for tool in TOOLS for column in columns)])
        for row in rows:
            said = [getattr(found[tool][row.id], column) for tool in TOOLS for column in columns]
            writer.writerow([row.id, *(f"{value:.4g}" if isinstance(value, float) else value for value in said)])


# ------------------------------------------------------------------------------------------------ the table


def kind_of(row: ServingRow) -> str:
    """Dense, with routed experts, or with latent attention."""
    layers = case_of(row).deployment.model.layers
    parts = [part for group in layers for part in (*group.attention, *group.mlp)]
    if any(isinstance(part, LatentAttention) for part in parts):
        return "latent attention"
    return "experts" if any(isinstance(part, Moe) for part in parts) else "dense"


def groups_of(rows: Iterable[ServingRow]) -> dict[str, list[ServingRow]]:
    """Rows by kind of model and by engine, with all and those whose precision is recorded before them."""
    groups: dict[str, list[ServingRow]] = {"all": [], "precision recorded": []}
    by_kind: dict[str, list[ServingRow]] = {}
    by_engine: dict[str, list[ServingRow]] = {}
    for row in rows:
        groups["all"].append(row)
        if not row.precision_unstated:
            groups["precision recorded"].append(row)
        by_kind.setdefault(kind_of(row), []).append(row)
        by_engine.setdefault(row.engine, []).append(row)
    return groups | dict(sorted(by_kind.items())) | dict(sorted(by_engine.items()))


def table_of(rows: Sequence[ServingRow], found: Predictions, metric: str) -> list[list[str]]:
    """Lines of the table of one metric: errors on the rows that every tool answers, then on the tool's own."""
    excluded = "excluded_tpot" if metric == "tpot_ms" else "excluded_ttft"
    scored = [row for row in rows if not getattr(row, excluded)]
    common = {row.id for row in scored if all(getattr(found[tool][row.id], metric) for tool in TOOLS)}
    lines = []
    for group, members in groups_of(scored).items():
        for tool in TOOLS:
            own = metric_of([_compared(row, found[tool][row.id], metric) for row in members])
            shared = metric_of([_compared(row, found[tool][row.id], metric) for row in members if row.id in common])
            figures = (shared.median_ape, shared.mean_ape, shared.median_bias, own.median_ape, own.mean_ape)
            counts = (f"{own.answered} of {own.rows}", str(shared.rows))
            lines.append([group, tool, *counts, *(_percent(value, signed=n == 2) for n, value in enumerate(figures))])
    return lines


EXPLANATION = (
    "distinct rows of accuracy/data/e2e_serving.csv that no written rule excludes. [README.md](README.md) says what is fair in this and "
    "what is not. *common* counts the rows of a group that every tool answers; the three columns after it are over those, the last two "
    "over all rows that the tool answers."
)
HEAD = ("rows", "tool", "answered", "common", "median APE", "mean APE", "median error", "own: median", "own: mean")


def _compared(row: ServingRow, said: Prediction, metric: str) -> Comparison:
    measured = (row.tpot_s if metric == "tpot_ms" else row.ttft_s) * _MS
    return Comparison(row.id, metric, measured, getattr(said, metric))


def _percent(value: float | None, *, signed: bool) -> str:
    return "-" if value is None else f"{value:+.1%}" if signed else f"{value:.1%}"


def notes_of(rows: Sequence[ServingRow], found: Predictions) -> list[list[str]]:
    """What tools say beside their figures, or instead of them, with the number of rows."""
    counts = Counter(
        (tool, "answered" if said.tpot_ms else "not answered", said.note)
        for tool in TOOLS
        for row in rows
        if (said := found[tool][row.id]).note
    )
    return [[tool, str(count), how, note] for (tool, how, note), count in counts.items()]


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *lines))


def report(rows: Sequence[ServingRow], found: Predictions) -> str:
    """Everything that is printed."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],  # noqa: S607
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    today = dt.datetime.now(tz=dt.UTC).date()
    parts = [
        "# Predictions beside the same measurements",
        f"{today}: roofplan {roofplan.__version__} ({commit or 'no checkout'}), aiconfigurator {PEER_VERSION}.",
        f"{len(rows)} {EXPLANATION}",
    ]
    for metric, title in zip(METRICS, ("TPOT", "TTFT"), strict=True):
        parts += [f"## {title}", markdown(HEAD, table_of(rows, found, metric))]
    parts += ["## Said beside the figures", markdown(("tool", "rows", "", "note"), notes_of(rows, found))]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    """Ask, print and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--peer", metavar="PYTHON", help="the Python that has aiconfigurator; default: the stored answers"
    )
    parser.add_argument("--rows", type=int, metavar="N", help="every N-th row only; nothing is stored")
    options = parser.parse_args()
    rows = [row for row in read_rows() if not (row.excluded_tpot and row.excluded_ttft)][:: options.rows]
    peers = ask_peer(options.peer, rows) if options.peer else stored()
    found: Predictions = {tool: {row.id: ask_ours(tool, row) for row in rows} for tool in OURS}
    found |= {tool: {row.id: peers[tool].get(row.id, NOT_ASKED) for row in rows} for tool in PEERS}
    text = report(rows, found)
    print(text)
    if not options.rows:
        store(rows, found)
        TABLE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
