"""Streaming through memory: roofplan's operations beside plain C loops on the same buffers, turn by turn in one run.

The loops are compiled here (``cc -O3 -march=native -fopenmp``, sums in any order) and run in this process with as many threads as torch:
after ``import torch`` both use one OpenMP library, thus one team of threads, and neither waits for a core on which the other's threads
still spin. Ours and the loop run one right after the other, in an order that changes by chance; the ratio is the median over these pairs,
so that what disturbs the machine for longer than a call meets both alike. Target: the streaming read of ``roofplan measure`` reaches 95 %
of the C read, or more.

Run: ``python benchmarks/streaming.py [MIB [SECONDS]]``; exit code 1 when the target is missed, 2 without a compiler.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofplan.measure.machine import find_machine, torch_module
from roofplan.measure.streaming import ROW_BYTES, read_of

if TYPE_CHECKING:
    from collections.abc import Callable

TARGET = 0.95
LEAST_ROUNDS = 11
# 64 running sums, so that no addition waits for the one before it; the triad as in STREAM.
SOURCE = """
#include <stddef.h>
#define LANES 64
float read_all(const float *restrict a, size_t count) {
    float total = 0;
    #pragma omp parallel reduction(+:total)
    {
        float sums[LANES] = {0};
        #pragma omp for schedule(static)
        for (size_t block = 0; block < count / LANES; block++) {
            const float *p = a + block * LANES;
            #pragma omp simd
            for (int lane = 0; lane < LANES; lane++) sums[lane] += p[lane];
        }
        for (int lane = 0; lane < LANES; lane++) total += sums[lane];
    }
    return total;
}
void triad(float *restrict a, const float *restrict b, const float *restrict c, float s, size_t count) {
    #pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++) a[i] = b[i] + s * c[i];
}
int threads(void) {
    int found = 0;
    #pragma omp parallel reduction(+:found)
    found += 1;
    return found;
}
"""
# Sums may be taken in any order; -ffast-math would also make the whole process flush subnormal numbers to zero.
FREE_ORDER = ("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno")
FLAGS = ("-O3", "-march=native", *FREE_ORDER, "-fopenmp", "-shared", "-fPIC")


@dataclass(frozen=True, slots=True)
class Pair:
    """One operation as roofplan runs it and as a C loop, and the bytes that each moves."""

    ours: Callable[[], Any]
    loop: Callable[[], Any]
    bytes: int


def compiled(folder: Path) -> Any:
    """Compile the loops and load them.

    Raises
    ------
    SystemExit : without a compiler, or when it fails
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("no C compiler (cc, gcc, or CC in the environment)", file=sys.stderr)
        sys.exit(2)
    source, library = folder / "loops.c", folder / "loops.so"
    source.write_text(SOURCE, encoding="utf-8")
    done = subprocess.run(
        [compiler, *FLAGS, "-o", str(library), str(source)], check=False, capture_output=True, text=True
    )
    if done.returncode:
        print(f"{compiler} failed: {done.stderr.strip()[:500]}", file=sys.stderr)
        sys.exit(2)
    loops = ctypes.CDLL(str(library))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    loops.read_all.argtypes, loops.read_all.restype = [pointer, size], ctypes.c_float
    loops.triad.argtypes, loops.triad.restype = [pointer, pointer, pointer, ctypes.c_float, size], None
    return loops


def calls(loops: Any, torch: Any, size: int) -> dict[str, Pair]:
    """Ours and the C loop of each operation: reads of one buffer, triads over thirds of it."""
    buffer = torch.ones((size // ROW_BYTES, ROW_BYTES // 4), dtype=torch.float32)
    third = buffer.shape[0] // 3
    a, b, c = (buffer[part * third : (part + 1) * third] for part in range(3))
    return {
        "read": Pair(
            read_of(torch, buffer).call,
            lambda: loops.read_all(buffer.data_ptr(), buffer.numel()),
            buffer.nbytes,
        ),
        "triad": Pair(
            lambda: torch.add(b, c, alpha=0.5, out=a),
            lambda: loops.triad(a.data_ptr(), b.data_ptr(), c.data_ptr(), 0.5, a.numel()),
            a.nbytes + b.nbytes + c.nbytes,
        ),
    }


def rate(call: Callable[[], Any], moved: int) -> float:
    """Bytes per second of one call."""
    start = time.perf_counter_ns()
    call()
    return moved / (time.perf_counter_ns() - start) * 1e9


def by_turns(pairs: dict[str, Pair], seconds: float) -> dict[str, list[tuple[float, float]]]:
    """Rates of ours and of the C loop, taken one right after the other; which of both is first changes by chance."""
    for pair in pairs.values():
        for call in (pair.ours, pair.loop):
            call()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in pairs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found["read"]) < LEAST_ROUNDS:
        for name, pair in pairs.items():
            if random.random() < 0.5:  # noqa: S311 - a coin
                first = rate(pair.ours, pair.bytes)
                found[name].append((first, rate(pair.loop, pair.bytes)))
            else:
                first = rate(pair.loop, pair.bytes)
                found[name].append((rate(pair.ours, pair.bytes), first))
    return found


def main(arguments: list[str]) -> int:
    """Print rates and ratios."""
    torch, machine = torch_module(), find_machine("cpu")
    mib = int(arguments[0]) if arguments else max(256, 8 * machine.cache_bytes // 2**20)
    seconds = float(arguments[1]) if len(arguments) > 1 else 10.0
    with tempfile.TemporaryDirectory() as folder:
        loops = compiled(Path(folder))
        if loops.threads() != torch.get_num_threads():
            said = f"C has {loops.threads()} threads, torch {torch.get_num_threads()}: set OMP_NUM_THREADS"
            print(said, file=sys.stderr)
            return 2
        found = by_turns(calls(loops, torch, mib * 2**20), seconds)
    print(
        f"{machine.name}, {machine.threads} threads, {mib} MiB, {len(found['read'])} rounds; GB/s: median, best tenth"
    )
    ratios = {}
    for name, rates in found.items():
        ours, theirs = zip(*rates, strict=True)
        ratios[name] = statistics.median(our / their for our, their in rates)
        for who, some in (("roofplan", ours), ("C", theirs)):
            upper = statistics.quantiles(some, n=10)[-1]
            print(f"{name:5s} {who:8s} {statistics.median(some) / 1e9:7.2f} {upper / 1e9:7.2f}")
    missed = ratios["read"] < TARGET
    print(
        f"roofplan / C: read {ratios['read']:.3f}, target {TARGET}{' MISSED' if missed else ''}; triad {ratios['triad']:.3f}"
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
