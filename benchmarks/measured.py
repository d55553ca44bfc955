"""The machine at hand against its roofline: ceilings from one run, then steps of models that were not in it, predicted and measured.

Writes the runs with every sample, the measured machine, a picture and a page into a folder; ``docs/measured`` holds those of one machine.
Targets: decode of three models at batches 1 to 32 within 15 % (median 8 %), with a cache and without one within 20 %. Run on a machine that
does nothing else: ``python benchmarks/measured.py [FOLDER]``, some fifteen minutes; exit code 1 when a target is missed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from roofplan.measure.records import load
from roofplan.report.measured_page import validation_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofplan.measure.records import Record

SCRIPT = Path(sys.executable).with_name("roofplan")
ROOT = Path(__file__).parent.parent
MODELS = ("qwen2.5-0.5b", "pythia-410m", "llama-3.2-1b")  # groups of 7, 1 and 4 queries; tied and own tables of outputs


def main() -> int:
    """Measure, write, and print each target."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "measured"
    folder.mkdir(parents=True, exist_ok=True)
    machine = str(folder / "machine.yaml")
    _measure(folder, "ceilings", "ceilings", "--save", machine, "--out", str(folder / "ceilings.svg"))
    for model in MODELS:
        _measure(folder, "decode", f"decode-{model}", "--model", model, "--hardware", machine)
    _measure(folder, "cache", "cache", "--hardware", machine)
    (folder / "README.md").write_text(validation_page(folder), encoding="utf-8")
    met = [
        _judge("decode", _errors(folder.glob("decode-*.json"), "decode.step"), 0.15, 0.08),
        _judge("with a cache", _errors([folder / "cache.json"], "cache.token_with"), 0.20),
        _judge("without a cache", _errors([folder / "cache.json"], "cache.token_without"), 0.20),
        _judge("what the cache saves", _savings(folder / "cache.json"), 0.20),
    ]
    return 0 if all(met) else 1


def _measure(folder: Path, command: str, name: str, *more: str) -> None:
    arguments = [str(SCRIPT), "measure", command, "--force", "--json", str(folder / f"{name}.json"), *more]
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)


def _errors(paths: Sequence[Path], name: str) -> list[float]:
    return [_error(record) for path in paths for record in load(path).named(name)]


def _error(record: Record) -> float:
    assert record.ratio is not None
    return abs(1 / record.ratio - 1)


def _savings(path: Path) -> list[float]:
    """Errors of how many times as long a token takes without a cache, by position."""
    run = load(path)
    pairs = zip(run.named("cache.token_with"), run.named("cache.token_without"), strict=True)
    return [abs((one.ratio or 0) / (other.ratio or 1) - 1) for one, other in pairs]


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
