"""Rooflines to draw: real ones, and made ones with as many operators as a test wants."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from shapes import HH, M8, deploy

import roofplan
from roofplan.planner.roofline_answer import RooflineResult
from roofplan.planner.roofline_points import Ceiling, OperatorPoint, Roof, Series, StepPoint

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


@cache
def by_hand() -> RooflineResult:
    """A roofline of numbers that are written here, so that its picture changes only when the drawing does."""
    d = deploy(M8, HH, prompt=2048, output=256, concurrency=32)
    roof = Roof(
        Ceiling("memory", "HBM", 3.35e12, 2.9e12),
        (Ceiling("compute", "fp32", 67e12, 50e12, used=False), Ceiling("compute", "bf16", 989.4e12, 790e12)),
        (Ceiling("link", "NVLink", 450e9, None),),
    )
    rows = (  # name, phase, intensity, FLOP/s, share
        ("qkv", "prefill", 1300.0, 760e12, 0.12),
        ("attention", "prefill", 800.0, 480e12, 0.20),
        ("mlp", "prefill", 1500.0, 780e12, 0.60),
        ("norm", "prefill", 1.0, 2e12, 0.03),
        ("qkv", "decode", 31.0, 70e12, 0.10),
        ("attention", "decode", 4.0, 10e12, 0.35),
        ("mlp", "decode", 31.5, 85e12, 0.45),
        ("norm", "decode", 1.0, 0.3e12, 0.02),
    )
    points = tuple(
        OperatorPoint(
            name,
            "prefill" if phase == "prefill" else "decode",
            "bf16",
            intensity * 1e9,
            1e9,
            intensity * 1e9 / rate,
            0.8 * intensity * 1e9 / rate,
            "compute",
            share,
            counted=True,
        )
        for name, phase, intensity, rate, share in rows
    )
    prefill = StepPoint("prefill", 0, 2048, 1200e9, 1e9, 1200e9 / 700e12, 1200e9 / 900e12, "compute")
    path = tuple(
        StepPoint("decode", batch, batch, intensity * 1e9, 1e9, intensity * 1e9 / rate, 1e-3, "weight_bandwidth")
        for batch, intensity, rate in ((1, 1.1, 2.4e12), (32, 18.0, 44e12), (256, 60.0, 140e12))
    )
    series = Series(d, roof, points, (prefill, path[1]), path, 100, (), by_kernels=False)
    return RooflineResult((series,), ("prefill", "decode"), (1, 32, 256))


CASES = {
    "by hand": by_hand,
    "one": one,
    "two": two,
    "formats": formats,
    "ceilings": ceilings,
    "3 operators": lambda: with_operators(3),
    "8 operators": lambda: with_operators(8),
    "70 operators": lambda: with_operators(70),
}
