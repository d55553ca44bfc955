"""Streaming through memory: read, copy and triad over working sets from those of a core's caches to many times the last cache.

Every operation moves exactly the bytes of its working set, once: a read has one buffer, a copy two of half the size, a triad
(``a = b + s c``) three of a third. So one axis, the working set, shows for all of them where each cache ends. What a CPU reads before it
overwrites a line (write-allocate) is not counted, as in STREAM (McCalpin 1995).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import MeasureError
from .allocation import left_out, out_of_memory
from .records import Record
from .roof import datasheet_roof, of_memory
from .timing import STANDARD, time_call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..hardware import HardwareSpec
    from .machine import Machine
    from .timing import Clock, Limits

ROW = 4096  # float32 of one row: 16 KiB
ROW_BYTES = 4 * ROW
LEAST_BYTES = 4 * ROW_BYTES
LARGEST_BYTES = {"cpu": 2**28, "mps": 2**30, "cuda": 2**31}  # at least, by kind; more where eight caches are more
OPERATIONS = ("read", "copy", "triad")


@dataclass(frozen=True, slots=True)
class Stream:
    """One operation on buffers of its own.

    Parameters
    ----------
    call : runs it once
    bytes : that it moves, counted from the tensors that it reads and writes
    """

    call: Callable[[], Any]
    bytes: int


def stream_of(torch: Any, operation: str, size: int, device: str) -> Stream:
    """Buffers for a working set of about ``size`` bytes (whole rows), written once so that each page is there, and what streams them."""
    rows = max(1, size // (ROW_BYTES * {"read": 1, "copy": 2, "triad": 3}[operation]))
    first = torch.ones((rows, ROW), dtype=torch.float32, device=device)
    if operation == "read":
        return read_of(torch, first)
    second = torch.ones_like(first)
    if operation == "copy":
        return Stream(lambda: second.copy_(first), first.nbytes + second.nbytes)
    third = torch.ones_like(first)
    return Stream(lambda: torch.add(first, second, alpha=3.0, out=third), first.nbytes + second.nbytes + third.nbytes)


def read_of(torch: Any, buffer: Any) -> Stream:
    """Read a matrix of rows of 4096 float32 once, with all threads: the sum of each row.

    Why this one. Beside a C loop with 64 running sums, on two cores of a Zen 5 EPYC that others shared, torch 2.13, in GB/s. At 256 MiB all
    sums are bound by memory alone: C 33.6; sums of rows 33.6; sum of all, of float32, float64 and int64 33.5 to 33.6; and where the
    neighbours left more (best tenth) C 69, the sums 65 to 66. At 1 MiB, which shows what the instructions could do: C 234; sums of rows
    139; sum of all, of int64 118, of float32 110. Slower at 256 MiB, where C had 17: ``dot`` of float32 8, ``sum`` of bfloat16 11,
    ``vector_norm`` 12, ``amax`` 8, ``mv`` 14; they are bound by their arithmetic, or have one thread. Rows of 1024 were slower than
    rows of 4096 whenever the machine was disturbed. Sums of rows need no second pass over what threads found, and are divided by rows,
    as a product of a matrix and a vector is, that is, as decoding reads its weights. What is written is 1/4096 of what is read, and is
    counted.
    """
    sums = torch.empty(buffer.shape[0], dtype=buffer.dtype, device=buffer.device)
    return Stream(lambda: torch.sum(buffer, 1, out=sums), buffer.nbytes + sums.nbytes)


def working_sets(machine: Machine, *, coarse: bool = False) -> list[int]:
    """Powers of two (of four when coarse) of bytes, from 64 KiB to at least eight last caches, within a quarter of the free memory."""
    largest = max(LARGEST_BYTES[machine.kind], 8 * machine.cache_bytes)
    free = machine.free_bytes()
    if free:
        largest = min(largest, free // 4)
    sizes = [LEAST_BYTES]
    while 2 * sizes[-1] <= largest or len(sizes) < 2:
        sizes.append(2 * sizes[-1])
    return sizes[::-2][::-1] if coarse else sizes


def streaming(
    machine: Machine,
    limits: Limits = STANDARD,
    *,
    hardware: HardwareSpec | None = None,
    sizes: Sequence[int] | None = None,
    operations: Sequence[str] = OPERATIONS,
    cold: bool = False,
    coarse: bool = False,
    clock: Clock | None = None,
    say: Callable[[str], None] = left_out,
    into: list[Record] | None = None,
) -> list[Record]:
    """Time read, copy and triad by working set: records ``stream.read``, ``stream.copy``, ``stream.triad`` in seconds.

    Hot: the same buffers again and again, so that a working set below a cache's size is read from that cache. Cold: the last cache is
    overwritten before each sample. Predicted are bytes / bandwidth, for working sets of at least four last caches, and for cold ones.

    Parameters
    ----------
    hardware : the catalogue's device, for the prediction
    sizes : bytes of working sets; by default :func:`working_sets`
    coarse : every other size
    say : gets what was left out and why
    into : a list that gets each record as it is made, so that an interrupted run keeps what it has

    Raises
    ------
    MeasureError : without torch
    """
    from .machine import torch_module

    torch, records = torch_module(), [] if into is None else into
    roof = datasheet_roof(hardware, machine.cache_bytes)
    began = len(records)
    for operation in operations:
        for size in sizes or working_sets(machine, coarse=coarse):
            try:
                stream = stream_of(torch, operation, size, machine.torch_device)
                measured = time_call(stream.call, machine=machine, limits=limits, cold=cold, clock=clock)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                say(f"stream.{operation}: no memory for {size:,} bytes; the sizes below were taken")
                break
            except MeasureError as error:  # every sample was throttled
                say(f"stream.{operation}: {size:,} bytes: {error}; left out")
                continue
            parameters = {
                "bytes": stream.bytes,
                "size": size,
                "dtype": "float32",
                "threads": machine.threads,
                "cold": cold,
            }
            predicted = of_memory(roof, stream.bytes, cold=cold)
            records.append(Record(f"stream.{operation}", "s", measured, parameters, predicted))
            del stream
        machine.empty_cache()
    return records[began:]
