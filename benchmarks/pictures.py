"""How long a picture takes, as a ratio to a process that imports matplotlib's ``pyplot`` and draws nothing.

Whole processes run in turn, so that the machine's state is the same for all; medians of 20. Target: a roofline as PNG at most 2.0 times the
baseline. Run: ``python benchmarks/pictures.py``; exit code 1 when a target is missed.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from startup import ROUNDS, SCRIPT, seconds

BASELINE = [sys.executable, "-c", "import matplotlib.pyplot"]


def main() -> int:
    """Print the medians and ratios."""
    with tempfile.TemporaryDirectory() as folder:
        roofline = [str(SCRIPT), "roofline", "llama-3.1-8b", "h100-sxm", "--prompt", "4096", "--concurrency", "64"]
        commands: dict[str, tuple[list[str], float]] = {
            "roofplan roofline -o roof.png": ([*roofline, "-o", str(Path(folder) / "roof.png"), "--force"], 2.0),
        }
        processes = {"baseline": BASELINE, **{name: command for name, (command, _) in commands.items()}}
        for command in processes.values():
            seconds(command)  # fill the file cache and the byte code
        times: dict[str, list[float]] = {name: [] for name in processes}
        for _ in range(ROUNDS):
            for name, command in processes.items():
                times[name].append(seconds(command))
    baseline = statistics.median(times["baseline"])
    print(f"baseline: {baseline * 1e3:.0f} ms (median of {ROUNDS})")
    missed = 0
    for name, (_, target) in commands.items():
        ratio = statistics.median(times[name]) / baseline
        missed += ratio > target
        print(
            f"{name}: {ratio * baseline * 1e3:.0f} ms, ratio {ratio:.2f}, target {target:.1f}{' MISSED' if ratio > target else ''}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
