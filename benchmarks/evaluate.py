"""How long the step model takes to build and to evaluate.

Targets for a 70B model on eight devices: building at most 1.5 ms, one step at most 10 us, a numpy grid of 1,000,000 (batch, context) points
at most 1 s on one core, a table of 12 drafts x 10 batches at most 20 ms; sweeps of 100,000 points at most 1 s, marks included. Run:
``python benchmarks/evaluate.py``; exit code 1 when a target is missed.
"""

from __future__ import annotations

import sys
import timeit
from typing import TYPE_CHECKING

import numpy as np

import roofplan
from roofplan.planner.acceptance import independent_rates
from roofplan.planner.speculative_steps import Drafter, speculation_table
from roofplan.planner.step import StepModel

if TYPE_CHECKING:
    from collections.abc import Callable


def best(call: Callable[[], object], number: int, repeat: int = 5) -> float:
    """Seconds of one call: the best of several series, since noise only adds."""
    return min(timeit.repeat(call, number=number, repeat=repeat)) / number


def swept(*over: str) -> object:
    """A sweep of a 70B model on eight devices."""
    return roofplan.sweep("llama-3-70b", "h100-sxm", over=over, devices=8)


def main() -> int:
    """Print the times against their targets."""
    deployment = roofplan.deployment("llama-3-70b", "h100-sxm", devices=8, prompt=4096, output=512)
    model = StepModel.of(deployment)
    batches, contexts = np.meshgrid(np.arange(1.0, 1001.0), np.linspace(1, 131072, 1000))
    drafter, rates, sizes = Drafter(relative_cost=0.05), independent_rates(0.8, 12), [2**power for power in range(10)]
    figures = {
        "build (ms)": (best(lambda: StepModel.of(deployment), 200) * 1e3, 1.5),
        "decode step (us)": (best(lambda: model.step_s(32, 4096.0), 5000) * 1e6, 10.0),
        "mixed step (us)": (best(lambda: model.step_s(32, 4096.0, chunk=512, past=1024), 5000) * 1e6, 10.0),
        "1,000,000 points (s)": (best(lambda: model.step_s(batches, contexts), 1, 3), 1.0),
        "12 drafts x 10 batches (ms)": (
            best(lambda: speculation_table(model, drafter, rates, sizes, 4096.0), 20) * 1e3,
            20.0,
        ),
        "sweep of 1,000 batches x 100 contexts (s)": (
            best(lambda: swept("batch=1..1000", "context=1024..102400:1024"), 1),
            1.0,
        ),
        "sweep of 100,000 contexts (s)": (best(lambda: swept("context=1024..101023"), 1), 1.0),
        "sweep of 100,000 batches (s)": (best(lambda: swept("batch=1..100000", "context=4096"), 1), 1.0),
    }
    missed = 0
    for name, (value, target) in figures.items():
        missed += value > target
        print(f"{name}: {value:.3g}, target {target:g}{' MISSED' if value > target else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
