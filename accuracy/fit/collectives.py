"""Collectives: measured time by bytes, thinned to the sizes between which a straight line in log-log holds.

``bytes`` are those of the whole buffer of one rank: what is reduced, gathered (afterwards), scattered (before) or exchanged. All-reduce
moves 2 (n-1)/n of it over each link, the others (n-1)/n. Source: aiconfigurator-core 0.12.0, comm tables (Apache-2.0).
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import SpecError
from . import tables
from .calls import Call
from .fitting import Errors, KernelClass, errors, fit
from .robust import Bound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
RANKS = (2, 4, 8)
SMALLEST, LARGEST = 2 * 2**10, 256 * 2**20
TOLERANCE = 0.05
GLITCH = 1.5  # a time that exceeds both neighbours by this factor is a hiccup of the benchmark
# Devices whose usual times are taken, by the topologies that these hold for: behind a switch, and through the host.
JOINED: dict[tuple[str, ...], tuple[str, ...]] = {
    (): ("h100_sxm", "h200_sxm", "b200_sxm"),
    ("host",): ("l40s", "rtx_pro_6000_server"),
}
_FREE = {"floor": Bound(5e-6, 1e-7, 1e-3), "bandwidth": Bound(0.7, 0.01, 1.0)}
FASTEST_ON = frozenset({"b200_sxm"})
FASTEST = "fastest"  # the better of SGLang's and TensorRT-LLM's kernels, size by size

# The tables' kernels under the names of engines. vLLM's own is taken as captured in a graph; B60 has no such figures, only eager ones.
KERNELS = {
    "NCCL": "nccl",
    "vLLM_custom_graph": "vllm",
    "SGLang_CustomAllReduce_graph": "sglang",
    "TRTLLM": "tensorrt-llm",
}
EAGER = "vLLM_custom_eager"
EAGER_ONLY = frozenset({"b60"})
COLUMNS = ("gpu", "engine", "op", "kernel", "gpus", "bytes", "time_us")

Series = dict[int, float]  # seconds by bytes


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What a series is of."""

    operation: str
    kernel: str
    ranks: int


@dataclass(frozen=True, slots=True)
class Thinned:
    """A series at the sizes kept, and the largest relative error of log-log interpolation at those left out."""

    key: Key
    times: Series
    error: float


def read_series(folder: Path | None = None) -> dict[str, dict[Key, Series]]:
    """All series by device of the tables, the newest library where several versions were measured, from 2 KiB to 256 MiB.

    Raises
    ------
    SpecError : for a malformed table
    """
    found: dict[str, dict[Key, dict[tuple[int, ...], Series]]] = {}
    for row in tables.table("collectives", COLUMNS, folder):
        gpu = tables.one_of(row, "gpu", tables.DEVICES)
        kernel = tables.one_of(row, "kernel", (*KERNELS, EAGER))
        key = Key(tables.one_of(row, "op", OPERATIONS), KERNELS.get(kernel, "vllm"), tables.count(row, "gpus"))
        size, time = tables.count(row, "bytes"), tables.seconds(row)
        if (kernel == EAGER) == (gpu in EAGER_ONLY) and SMALLEST <= size <= LARGEST:
            versions = found.setdefault(gpu, {}).setdefault(key, {})
            versions.setdefault(_version(row.text("engine")), {})[size] = time
    return {gpu: {key: by[max(by)] for key, by in keys.items()} for gpu, keys in found.items()}


def _version(engine: str) -> tuple[int, ...]:
    """``nccl 2.29.2`` as numbers that compare."""
    number = engine.rpartition(" ")[2]
    return tuple(int("".join(filter(str.isdecimal, part)) or 0) for part in number.split("."))


def without_glitches(series: Mapping[int, float]) -> Series:
    """A series without single times far above both neighbours."""
    sizes = sorted(series)
    return {
        size: series[size]
        for i, size in enumerate(sizes)
        if i in {0, len(sizes) - 1} or series[size] < GLITCH * max(series[sizes[i - 1]], series[sizes[i + 1]])
    }


def interpolated(series: Mapping[int, float], size: float) -> float:
    """Seconds at a size between those of a series: a straight line in log-log.

    >>> round(interpolated({1: 1.0, 4: 4.0}, 2), 12)
    2.0
    """
    sizes = sorted(series)
    above = next((s for s in sizes if s >= size), sizes[-1])
    below = max((s for s in sizes if s <= size), default=sizes[0])
    if above == below:
        return series[above]
    share = math.log(size / below) / math.log(above / below)
    return series[below] * math.exp(share * math.log(series[above] / series[below]))


def thinned(key: Key, series: Mapping[int, float], tolerance: float = TOLERANCE) -> Thinned:
    """The fewest sizes of a series, its ends among them, whose interpolation is within the tolerance of it everywhere (a shortest path)."""
    sizes = sorted(series)
    best: list[tuple[int, float, tuple[int, ...]]] = [(1, 0.0, (0,))]
    for end in range(1, len(sizes)):
        choices = []
        for start in range(end):
            ends = {sizes[start]: series[sizes[start]], sizes[end]: series[sizes[end]]}
            error = max((abs(interpolated(ends, s) / series[s] - 1) for s in sizes[start + 1 : end]), default=0.0)
            if error <= tolerance:
                knots, worst, path = best[start]
                choices.append((knots + 1, max(worst, error), (*path, end)))
        best.append(min(choices))
    _, error, path = best[-1]
    return Thinned(key, {sizes[i]: series[sizes[i]] for i in path}, error)


def mean_series(all_series: Sequence[Mapping[int, float]]) -> Series:
    """The geometric mean of several series at the sizes that all of them have."""
    common = sorted(set.intersection(*(set(series) for series in all_series)))
    return {size: statistics.geometric_mean([series[size] for series in all_series]) for size in common}


def fastest(keys: Mapping[Key, Series]) -> dict[Key, Series]:
    """For each number of ranks the better of SGLang's and TensorRT-LLM's all-reduce, size by size, where both were measured."""
    found: dict[Key, Series] = {}
    for ranks in RANKS:
        both = [keys.get(Key("all_reduce", kernel, ranks)) for kernel in ("sglang", "tensorrt-llm")]
        one, other = both
        if one is not None and other is not None:
            found[Key("all_reduce", FASTEST, ranks)] = {s: min(one[s], other[s]) for s in sorted(set(one) & set(other))}
    return found


def of_family(devices: Sequence[str], every: Mapping[str, Mapping[Key, Series]]) -> list[Thinned]:
    """The thinned series of a family: the mean over its devices, glitches left out."""
    keys: dict[Key, list[Series]] = {}
    for gpu in devices:
        for key, series in every.get(gpu, {}).items():
            keys.setdefault(key, []).append(without_glitches(series))
    means = {key: mean_series(found) for key, found in keys.items()}
    means |= fastest(means) if FASTEST_ON.intersection(devices) else {}
    order = {name: i for i, name in enumerate((*OPERATIONS, *KERNELS.values()))}
    ordered = sorted(means, key=lambda key: (order[key.operation], order.get(key.kernel, 99), key.ranks))
    return [thinned(key, means[key]) for key in ordered]


@dataclass(frozen=True, slots=True)
class Usual:
    """What a collective takes where nobody measured it: floor + moved bytes / (bandwidth x link), the link's rate in one direction."""

    key: Key
    topologies: tuple[str, ...]
    floor: float
    bandwidth: float
    errors: Errors


def traffic(operation: str, ranks: int) -> float:
    """Bytes over each link in one direction, per byte of the buffer: 2 (n-1)/n for all-reduce, (n-1)/n for the others (formula F12.4)."""
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks


def usual(every: Mapping[str, Mapping[Key, Series]]) -> list[Usual]:
    """Floor and share of the link by topology, operation, kernel and ranks, fitted over the devices that are joined so."""
    found = []
    for topologies, devices in JOINED.items():
        for operation in OPERATIONS:
            for kernel in KERNELS.values():
                for ranks in RANKS:
                    key = Key(operation, kernel, ranks)
                    measured = {gpu: without_glitches(every[gpu][key]) for gpu in devices if key in every.get(gpu, {})}
                    if measured:
                        found.append(_usual(key, topologies, measured))
    return found


def _usual(key: Key, topologies: tuple[str, ...], measured: Mapping[str, Series]) -> Usual:
    calls = []
    for gpu, series in measured.items():
        link = tables.device(gpu).link(key.ranks)
        if link is None:
            raise SpecError(f"{gpu}.links", got="none", wanted=f"a link among {key.ranks} devices")
        share = traffic(key.operation, key.ranks) / link.among(key.ranks)
        calls += [Call(gpu, key.operation, share * size, 0.0, time) for size, time in series.items()]
    label = f"{key.operation} {key.kernel} {key.ranks}"
    kernel = KernelClass("collective", label, frozenset({key.operation}), {}, _FREE, {}, None)
    constants = fit(kernel, calls)
    return Usual(key, topologies, constants.floor, constants.bandwidth, errors(constants, None, calls))
