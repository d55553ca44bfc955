"""Rooflines to draw: real ones, and made ones with as many operators as a test wants."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import roofplan
from roofplan.planner.roofline_answer import RooflineResult

WORKLOAD = {"prompt": 4096, "output": 512, "concurrency": 64}
SIZES = [(640, 480), (1200, 800), (2000, 1300)]


@cache
def one() -> RooflineResult:
    """One device, with a path of batches."""
    return roofplan.roofline("llama-3.1-8b", "h100-sxm", batches="1,8,64,256", **WORKLOAD)  # type: ignore[arg-type]


@cache
def two() -> RooflineResult:
    """Two devices."""
    return roofplan.roofline("llama-3.1-8b", "h100-sxm", "a100-80gb", batches="1,16,256", **WORKLOAD)  # type: ignore[arg-type]


@cache
def formats() -> RooflineResult:
    """Three weight formats on one device."""
    return roofplan.roofline(
        "llama-3.1-8b", "h100-sxm", formats=("bf16", "fp8", "int4"), phases="decode", batches="1,16", **WORKLOAD
    )  # type: ignore[arg-type]


@cache
def ceilings() -> RooflineResult:
    """All ceilings of a device among eight."""
    return roofplan.roofline("llama-3-70b", "h100-sxm", devices=8, ceilings="nvlink,pcie", arithmetic="all", **WORKLOAD)  # type: ignore[arg-type]


@cache
def with_operators(count: int) -> RooflineResult:
    """A model of many kinds of layers with so many operators: its largest ones, or copies that stand somewhat lower."""
    made = roofplan.roofline("deepseek-v4-flash", "h200-sxm", devices=8, batches="1,8,64,256", **WORKLOAD)  # type: ignore[arg-type]
    series = made.series[0]
    placed = sorted((point for point in series.operators if point.has_place), key=lambda point: -point.share)
    points = [
        replace(
            placed[number % len(placed)],
            name=placed[number % len(placed)].name + " again" * (number // len(placed)),
            bytes=placed[number % len(placed)].bytes * (1 + 0.35 * (number // len(placed))),
            time_s=placed[number % len(placed)].time_s * (1 + 0.5 * (number // len(placed))),
        )
        for number in range(count)
    ]
    return replace(made, series=(replace(series, operators=tuple(points)),))


CASES = {
    "one": one,
    "two": two,
    "formats": formats,
    "ceilings": ceilings,
    "3 operators": lambda: with_operators(3),
    "8 operators": lambda: with_operators(8),
    "70 operators": lambda: with_operators(70),
}
