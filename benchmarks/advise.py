"""How long advice takes beside start-up.

Whole processes run in turn; the time of a processor is counted and not that of a clock, so that other work of the machine does not count
(one process, one thread: on an idle machine both are the same), and the best of 15 is taken. Targets: ``roofplan advise`` takes at most
0.5 s more than ``roofplan --version``, which is start-up alone; the levers of a deployment that is built already, of 70B on eight devices,
at most 0.15 s. Run: ``python benchmarks/advise.py``; exit code 1 when a target is missed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import timeit
from pathlib import Path

import roofplan
from roofplan.planner.advice import advise

ROUNDS = 15
MOST_BESIDE_S, MOST_LEVERS_S = 0.5, 0.15
SCRIPT = str(Path(sys.executable).with_name("roofplan"))
START = [SCRIPT, "--version"]
WORKLOAD = ["--prompt", "4096", "--output", "512", "--concurrency", "64"]
COMMANDS = {
    "8B on one device": [SCRIPT, "advise", "llama-3.1-8b", "h100-sxm", *WORKLOAD],
    "70B on eight devices": [SCRIPT, "advise", "llama-3-70b", "h100-sxm", "--tp", "8", "--engine", "vllm", *WORKLOAD],
    "671B on eight devices": [SCRIPT, "advise", "deepseek-v3", "h200", "--tp", "8", *WORKLOAD],
}


def seconds(command: list[str]) -> float:
    """Run one process and take its time on a processor."""
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> int:
    """Print the times against their targets."""
    processes = {"start": START, **COMMANDS}
    times: dict[str, list[float]] = {name: [] for name in processes}
    for _ in range(ROUNDS + 1):  # the first round fills the file cache and the byte code
        for name, command in processes.items():
            times[name].append(seconds(command))
    best = {name: min(taken[1:]) for name, taken in times.items()}
    figures = {f"advise, {name}, beside start-up (s)": (best[name] - best["start"], MOST_BESIDE_S) for name in COMMANDS}
    found = roofplan.advise("llama-3-70b", "h100-sxm", tp=8, prompt=4096, output=512, concurrency=64).situation
    levers = (
        min(timeit.repeat(lambda: advise(found.deployment, found.choices), timer=time.process_time, number=3, repeat=5))
        / 3
    )
    figures["levers of 70B on eight devices (s)"] = (levers, MOST_LEVERS_S)
    print(f"start-up: {best['start']:.3f} s (best of {ROUNDS})")
    missed = 0
    for name, (value, target) in figures.items():
        missed += value > target
        print(f"{name}: {value:.3g}, target {target:g}{' MISSED' if value > target else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
