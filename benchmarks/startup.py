"""How long the command line takes to start, as a ratio to a process that imports what every such tool imports.

Whole processes run in turn, so that the machine's state is the same for all; medians of 20. Targets: ``--help`` at most 1.5 and a sizing
query at most 2.0 times the baseline. Run: ``python benchmarks/startup.py``; exit code 1 when a target is missed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 20
BASELINE = "import typer, yaml, rich.console, rich.table, pydantic\nclass Model(pydantic.BaseModel):\n    name: str\n    size: int = 1\n"
# Byte code is kept, as after any installation: else modules that are compiled anew each time are compared with packages that are not.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
SCRIPT = Path(sys.executable).with_name("roofplan")
COMMANDS: dict[str, tuple[list[str], float]] = {
    "roofplan --help": ([str(SCRIPT), "--help"], 1.5),
    "roofplan size": (
        [str(SCRIPT), "size", "llama-3.1-8b", "h100-sxm", "--prompt", "4096", "--concurrency", "64"],
        2.0,
    ),
}


def seconds(command: list[str]) -> float:
    """Run one process and time it."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    return time.perf_counter() - start


def main() -> int:
    """Print the medians and ratios."""
    processes = {
        "baseline": [sys.executable, "-c", BASELINE],
        **{name: command for name, (command, _) in COMMANDS.items()},
    }
    for command in processes.values():
        seconds(command)  # fill the file cache and the byte code
    times: dict[str, list[float]] = {name: [] for name in processes}
    for _ in range(ROUNDS):
        for name, command in processes.items():
            times[name].append(seconds(command))
    baseline = statistics.median(times["baseline"])
    print(f"baseline: {baseline * 1e3:.0f} ms (median of {ROUNDS})")
    missed = 0
    for name, (_, target) in COMMANDS.items():
        ratio = statistics.median(times[name]) / baseline
        missed += ratio > target
        print(
            f"{name}: {ratio * baseline * 1e3:.0f} ms, ratio {ratio:.2f}, target {target:.1f}{' MISSED' if ratio > target else ''}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
