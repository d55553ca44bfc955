"""The page of one machine that was measured and predicted: docs/measured/README.md, from the files beside it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from .. import hardware
from ..errors import show
from ..measure.again import error_of, errors_of, predicted_again
from ..measure.records import load
from ..quantities import show_bandwidth, show_bytes, show_compute, show_time
from .accuracy_tables import markdown_table, percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ..hardware import HardwareSpec
    from ..measure.records import Record, Run

_STEPS = ("model", "layers", "batch", "context", "measured", "quartiles", "predicted", "predicted / measured - 1")
_TOKENS = ("", "position", "measured", "quartiles", "predicted", "predicted / measured - 1")
_BELOW = (
    "Everything below is predicted from these alone: what the planner says of other shapes on `machine.yaml`, with the operations that the"
    " reference transformer launches. All was taken in turn, several times over, so that each figure has samples of the same minutes."
)
_WAYS = {"cache.token_with": "with the cache", "cache.token_without": "without it"}


def validation_page(folder: Path) -> str:
    """Write a page from ``machine.yaml``, ``ceilings.json``, ``decode-*.json`` and ``cache.json`` of a folder.

    What is predicted is computed now, by the planner on ``machine.yaml``: the page and the test of it hold committed measurements against
    today's program.

    Raises
    ------
    RoofplanError : for a file that is none of those
    """
    device = hardware.load(str(folder / "machine.yaml"))
    ceilings, cache = load(folder / "ceilings.json"), load(folder / "cache.json")
    runs = [load(path) for path in sorted(folder.glob("decode-*.json"))]
    steps = [record for run in runs for record in run.named("decode.step")]
    tokens = [record for record in cache.records if record.name in _WAYS]
    lines = [
        "# One machine, measured and predicted",
        "",
        *_machine(ceilings, device),
        "",
        "## Decode steps of models that were not in the ceilings",
        "",
        f"{_said(steps, device)} A model of which not all layers are built is named with how many are.",
        "",
        *markdown_table(_STEPS, (_step_row(record, device) for record in steps)),
        "",
        "## A token with the cache and without it",
        "",
        f"{_said(tokens, device)} The model is `{cache.records[0].parameters['model']}`.",
        "",
        *markdown_table(_TOKENS, (_token_row(record, device) for record in tokens)),
        "",
        "## What was left out or was disturbed",
        "",
        *_notes((ceilings, *runs, cache)),
    ]
    return "\n".join(lines) + "\n"


def _machine(run: Run, device: HardwareSpec) -> list[str]:
    there, peaks = run.environment, dataclasses.asdict(device.peak)
    rates = ", ".join(f"{name} {show_compute(rate)}" for name, rate in peaks.items() if rate)
    versions = ", ".join(f"{name} {version}" for name, version in sorted(there.versions.items()))
    machine = (
        f"{there.device}, {there.shown_threads}, {show_bytes(there.memory_bytes)} of memory; {there.system}; {versions}"
    )
    reached = f"memory {show_bandwidth(device.memory.bandwidth)}; products {rates}"
    lines = (
        f"{machine}; measured {run.started}.",
        f"Ceilings from one run ([samples](ceilings.json), [machine](machine.yaml)): {reached}. {_BELOW}",
        "![The measured roofline, with the measured products and attention on it](ceilings.svg)",
        "Made by `python benchmarks/measured.py`; a test computes every prediction again from the files.",
    )
    return "\n\n".join(lines).split("\n")


def _said(records: Sequence[Record], device: HardwareSpec) -> str:
    median, worst = errors_of(records, device)
    return f"{len(records)} times: median error {percent(median)}, worst {percent(worst)}."


def _timed(record: Record, device: HardwareSpec) -> tuple[str, ...]:
    found = record.measured
    return (
        show_time(found.median),
        f"{found.q1 / found.median - 1:+.1%} {found.q3 / found.median - 1:+.1%}",
        show_time(predicted_again(record, device)),
        f"{error_of(record, device):+.1%}",
    )


def _step_row(record: Record, device: HardwareSpec) -> tuple[str, ...]:
    own = record.parameters
    name = str(own["model"]).removesuffix(f"-{own['layers']}-layers")
    return name, str(own["layers"]), str(own["batch"]), f"{own['context']:,}", *_timed(record, device)


def _token_row(record: Record, device: HardwareSpec) -> tuple[str, ...]:
    return _WAYS[record.name], f"{record.parameters['position']:,}", *_timed(record, device)


def _notes(runs: Iterable[Run]) -> list[str]:
    found = [f"- {run.command}: {show(note)}" for run in runs for note in (*run.environment.notes, *run.notes)]
    shown = [record for run in runs for record in run.records if record.name in {*_WAYS, "decode.step"}]
    found += [f"- {_named(record)}: {warning}" for record in shown for warning in record.measured.warnings]
    return list(dict.fromkeys(found)) or ["Nothing."]


def _named(record: Record) -> str:
    own = record.parameters
    where = [f"{key} {own[key]}" for key in ("batch", "context", "position") if key in own]
    return f"{record.name} of {own['model']}, {', '.join(where)}"
