"""The machine at hand against its roofline: ceilings from one run, and steps of models that were not in it, predicted and measured.

Writes the runs with every sample, the measured machine, a picture and a page into a folder; ``docs/measured`` holds those of one machine.
Targets: decode of three models at batches 1 to 32 within 15 % (median 8 %), with a cache and without one within 20 %.

A shared machine drifts: on the one of ``docs/measured`` memory gives 30 to 40 GB/s to one thread from one minute to the next, and two
threads are at times two cores and at times one. So one thread is used, and all runs are taken in turn, several times over: each has samples
of the same minutes. Run on a machine that does nothing else: ``python benchmarks/measured.py [FOLDER]``, some ten minutes; exit code 1 when
a target is missed.
"""

from __future__ import annotations

import datetime as dt
import os
import statistics
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when it is loaded, below

from roofplan import hardware, models
from roofplan.measure.again import PREDICTIONS, predicted_again
from roofplan.measure.ceilings import ceilings
from roofplan.measure.environment import environment
from roofplan.measure.experiments import cache, decode
from roofplan.measure.gates import gates_of
from roofplan.measure.machine import find_machine
from roofplan.measure.overlay import overlay, to_yaml
from roofplan.measure.records import Run, pooled, save
from roofplan.measure.results import MeasureResult
from roofplan.measure.roof import beside, measured_roof
from roofplan.measure.timing import STANDARD
from roofplan.report.answer_files import write_answer
from roofplan.report.measured_page import validation_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roofplan.measure.records import Record

    Take = Callable[..., object]

FOLDER = Path(__file__).parent.parent / "docs" / "measured"
MODELS = ("qwen2.5-0.5b", "pythia-410m", "llama-3.2-1b")  # groups of 7, 1 and 4 queries; tied and own tables of outputs
TURNS = 6


def main() -> int:
    """Measure, write, and print each target."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    runs = _in_turn()
    made = overlay(runs["ceilings"])
    (folder / "machine.yaml").write_text(to_yaml(made), encoding="utf-8")
    device = hardware.load(str(folder / "machine.yaml"))
    roof = measured_roof(runs["ceilings"].records, runs["ceilings"].environment.cache_bytes)
    for name, run in runs.items():
        records = beside(run.records, roof) if name == "ceilings" else [_predicted(r, device) for r in run.records]
        runs[name] = replace(run, records=tuple(records))
        save(runs[name], folder / f"{name}.json", overwrite=True)
    result = MeasureResult(runs["ceilings"], gates_of(runs["ceilings"], None, made), made, "")
    write_answer(result, folder / "ceilings.svg", size=None, dark=False, overwrite=True)
    (folder / "README.md").write_text(validation_page(folder), encoding="utf-8")
    steps = [error for model in MODELS for error in _errors(runs[f"decode-{model}"].named("decode.step"))]
    with_cache, without = (runs["cache"].named(f"cache.token_{way}") for way in ("with", "without"))
    savings = [abs((a.ratio or 0) / (b.ratio or 1) - 1) for a, b in zip(with_cache, without, strict=True)]
    met = [
        _judge("decode", steps, 0.15, 0.08),
        _judge("with a cache", _errors(with_cache), 0.20),
        _judge("without a cache", _errors(without), 0.20),
        _judge("what the cache saves", savings, 0.20),
    ]
    return 0 if all(met) else 1


def _in_turn() -> dict[str, Run]:
    """All runs, each of the records of all turns."""
    machine = find_machine("cpu")
    there, limits = environment(machine), STANDARD.shared(TURNS)
    started = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    steps: dict[str, Take] = {"ceilings": partial(ceilings, machine, limits)}
    steps |= {f"decode-{name}": partial(decode.run, machine, models.load(name), limits) for name in MODELS}
    steps["cache"] = partial(cache.run, machine, None, limits)
    found: dict[str, list[list[Record]]] = {name: [] for name in steps}
    notes: dict[str, list[str]] = {name: [] for name in steps}
    for turn in range(TURNS):
        for name, take in steps.items():
            print(f"turn {turn + 1} of {TURNS}: {name}", file=sys.stderr)
            found[name].append([])
            take(into=found[name][-1], say=notes[name].append)
    return {
        name: Run(name.partition("-")[0], there, tuple(pooled(turns)), tuple(dict.fromkeys(notes[name])), started)
        for name, turns in found.items()
    }


def _predicted(record: Record, device: hardware.HardwareSpec) -> Record:
    """A record with what the planner says of it on the measured machine, now that all of its ceilings are known."""
    known = record.name in PREDICTIONS and bool(record.inputs)
    return replace(record, predicted_measured=predicted_again(record, device)) if known else record


def _errors(records: Iterable[Record]) -> list[float]:
    return [abs(1 / (record.ratio or float("inf")) - 1) for record in records]


def _judge(what: str, errors: list[float], most: float, median: float = 1.0) -> bool:
    found = max(errors), statistics.median(errors)
    met = found[0] <= most and found[1] <= median
    print(
        f"{what}: worst {found[0]:.1%} of {len(errors)} (target {most:.0%}), median {found[1]:.1%}"
        + ("" if met else "  MISSED")
    )
    return met


if __name__ == "__main__":
    sys.exit(main())
