"""Exchanges between ranks by bytes: all-reduce and all-gather through ``torch.distributed`` (NCCL on CUDA, gloo on a CPU).

All ranks take the same samples: a sample is the time of the slowest rank, and whether there are enough is decided by what all of them
know. Under ``torchrun`` the ranks that it started exchange; else this module starts some on this machine itself.

Run apart: ``torchrun --standalone --nproc-per-node 2 -m roofplan.measure.collectives OUT.json``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MeasureError
from ..planner.parallel import all_reduce_bytes, all_to_all_bytes
from .allocation import left_out
from .records import Record
from .samples import noise, summarise
from .timing import STANDARD, Limits, clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..hardware import HardwareSpec
    from .machine import Machine
    from .samples import Summary
    from .timing import Clock

OPERATIONS = ("all_reduce", "all_gather")
SIZES = {"cpu": tuple(2**power for power in range(10, 25, 2)), "cuda": tuple(2**power for power in range(11, 29, 2))}
RANKS_ON_A_CPU = 2
_STORED = {"cpu": "float32", "cuda": "bfloat16"}  # of the messages
_START_S = 120.0  # for processes to start and to find one another


def collectives(
    machine: Machine,
    limits: Limits = STANDARD,
    *,
    hardware: HardwareSpec | None = None,
    sizes: Sequence[int] | None = None,
    operations: Sequence[str] = OPERATIONS,
    ranks: int | None = None,
    clock: Clock | None = None,
    say: Callable[[str], None] = left_out,
    into: list[Record] | None = None,
) -> list[Record]:
    """Time exchanges by bytes: records ``collective.all_reduce`` and ``collective.all_gather`` in seconds.

    ``bytes`` are those of the message: what is reduced, or all that is gathered. ``sent_bytes`` are what one rank sends of it, 2 (n-1)/n
    and (n-1)/n (NVIDIA/nccl-tests, doc/PERFORMANCE.md); predicted are these over the link's rate in one direction.

    Parameters
    ----------
    hardware : the catalogue's device, for the prediction by its link
    sizes : bytes of messages
    ranks : processes to start where ``torchrun`` started none; by default two on a CPU, and one for each GPU
    clock : for tests, where ``torchrun`` started the ranks
    say : gets what was left out and why
    into : a list that gets each record as it is made

    Raises
    ------
    MeasureError : without torch, without ``torch.distributed``, on a device without a backend, or when a rank fails
    """
    from .machine import torch_module

    torch, found = torch_module(), [] if into is None else into
    if not torch.distributed.is_available():
        raise MeasureError(
            "collectives", got="torch without torch.distributed", wanted="a torch that was built with it"
        )
    if machine.kind not in SIZES:
        raise MeasureError("collectives", got=machine.kind, wanted="a CPU (gloo) or CUDA (NCCL)")
    began = len(found)
    if torch.distributed.is_initialized() or under_torchrun():
        found.extend(_by_size(torch, machine, limits, hardware, sizes, operations, clock))
        return found[began:]
    count = ranks or (torch.cuda.device_count() if machine.kind == "cuda" else RANKS_ON_A_CPU)
    if count < 2:
        say("collectives: one device has nothing to exchange with; left out")
        return []
    for record in _started(count, machine, limits, sizes, operations):
        sent = record.parameters["sent_bytes"]
        found.append(dataclasses.replace(record, predicted_datasheet=_over_link(hardware, count, sent)))
    return found[began:]


def under_torchrun() -> bool:
    """Whether this process is a rank that somebody started: what ``torchrun`` sets is there."""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()


def _over_link(hardware: HardwareSpec | None, ranks: int, sent: float) -> float | None:
    link = hardware.link(ranks) if hardware is not None else None
    return sent / link.among(ranks) if link is not None else None


# ------------------------------------------------------------------------------------------------ within a rank


def _by_size(
    torch: Any,
    machine: Machine,
    limits: Limits,
    hardware: HardwareSpec | None,
    sizes: Sequence[int] | None,
    operations: Sequence[str],
    clock: Clock | None,
) -> Iterator[Record]:
    distributed = torch.distributed
    backend, ours = "nccl" if machine.kind == "cuda" else "gloo", not distributed.is_initialized()
    if machine.kind == "cuda":
        torch.cuda.set_device(machine.index)
    if ours:
        distributed.init_process_group(backend)
    try:
        ranks = distributed.get_world_size()
        for operation in operations:
            for size in sizes or SIZES[machine.kind]:
                call, message = exchange_of(torch, operation, size, ranks, machine)
                measured = time_together(torch, call, machine, limits, clock)
                sent = (
                    all_reduce_bytes(message, ranks) if operation == "all_reduce" else all_to_all_bytes(message, ranks)
                )
                parameters = {
                    "bytes": message,
                    "sent_bytes": sent,
                    "ranks": ranks,
                    "kernel": backend,
                    "dtype": _STORED[machine.kind],
                }
                predicted = _over_link(hardware, ranks, sent)
                yield Record(f"collective.{operation}", "s", measured, parameters, predicted)
    finally:
        if ours:
            distributed.destroy_process_group()


def exchange_of(torch: Any, operation: str, size: int, ranks: int, machine: Machine) -> tuple[Callable[[], Any], int]:
    """What runs one exchange, and the bytes of its message, counted from the tensor that holds the result.

    Raises
    ------
    MeasureError : for an operation that is none of these
    """
    if operation not in OPERATIONS:
        raise MeasureError("operation", got=operation, wanted=f"one of {', '.join(OPERATIONS)}")
    stored = getattr(torch, _STORED[machine.kind])
    each = max(1, size // (ranks * stored.itemsize))  # elements of one rank's part
    # Zeros: sums of them stay what they are, however often they are added.
    whole = torch.zeros(each * ranks, dtype=stored, device=machine.torch_device)
    if operation == "all_reduce":
        return lambda: torch.distributed.all_reduce(whole), whole.nbytes
    part = torch.zeros(each, dtype=stored, device=machine.torch_device)
    distributed = torch.distributed
    gather = (
        getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
    )  # its name before 2.13
    return lambda: gather(whole, part), whole.nbytes


def time_together(
    torch: Any, call: Callable[[], Any], machine: Machine, limits: Limits, clock: Clock | None = None
) -> Summary:
    """Time a call that all ranks make: seconds of the slowest one, sample by sample; all ranks get the same answer."""
    clock = clock or clock_of(machine)
    call()  # connections are made now

    def slowest(values: list[float]) -> list[float]:
        shared = torch.tensor(values, dtype=torch.float64, device=machine.torch_device)
        torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX)
        agreed: list[float] = shared.tolist()
        return agreed

    estimate = slowest(_samples(torch, call, clock, 3, 1))
    repeats = max(1, math.ceil(limits.sample_s / max(min(estimate), 1e-9)))
    kept: list[float] = []
    began = clock.now()
    while True:
        count = limits.least if len(kept) < limits.least else max(1, len(kept) // 8)
        *fresh, spent = slowest([*_samples(torch, call, clock, count, repeats), clock.now() - began])
        kept += fresh
        if len(kept) >= limits.least and noise(kept) <= limits.noise:
            return summarise(kept)
        if spent >= limits.most_s or len(kept) >= limits.most:
            ended = f"{limits.most_s:g} s" if spent >= limits.most_s else f"{limits.most:,} samples"
            return summarise(kept, unmet=f"noise {limits.noise:.1%} (got {noise(kept):.1%} in {ended})")


def _samples(torch: Any, call: Callable[[], Any], clock: Clock, count: int, repeats: int) -> list[float]:
    """Seconds of one call in each of several samples; ranks start each sample together."""
    for _ in range(count):
        torch.distributed.barrier()
        clock.start()
        for _ in range(repeats):
            call()
        clock.stop()
    return [interval / repeats for interval in clock.intervals()]


# ------------------------------------------------------------------------------------------------ starting ranks


def _started(
    ranks: int, machine: Machine, limits: Limits, sizes: Sequence[int] | None, operations: Sequence[str]
) -> Iterator[Record]:
    """Start ranks on this machine, wait, and give what the first of them wrote; an interrupt gives what there is, and is handed on."""
    asked = {
        "kind": machine.kind,
        "limits": dataclasses.asdict(limits),
        "sizes": list(sizes or SIZES[machine.kind]),
        "operations": list(operations),
    }
    most_s = _START_S + 4 * limits.most_s * len(asked["sizes"]) * len(operations)
    with tempfile.TemporaryDirectory(prefix="roofplan-") as folder:
        out = Path(folder) / "records.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command += ["-m", __name__, str(out), "--asked", json.dumps(asked)]
        threads = str(max(1, machine.threads // ranks))  # ranks share the cores
        process = subprocess.Popen(  # noqa: S603 - our own module, by our own Python
            command,
            env={**os.environ, "OMP_NUM_THREADS": threads},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            _, said = process.communicate(timeout=most_s)
        except subprocess.TimeoutExpired:
            _end(process)
            raise MeasureError(
                "collectives", got=f"no answer within {most_s:.0f} s", wanted="ranks that exchange"
            ) from None
        except KeyboardInterrupt:
            _end(process)
            yield from _written(out)
            raise
        if process.returncode:
            raise MeasureError(
                "collectives",
                got=f"a rank ended with code {process.returncode}",
                hint=_cause(said),
                wanted="ranks that exchange",
            )
        yield from _written(out)


def _end(process: subprocess.Popen[str]) -> None:
    """End the processes that we started: ``torchrun`` hands a termination on to its ranks."""
    process.terminate()
    try:
        process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _written(out: Path) -> list[Record]:
    try:
        return [Record.from_dict(said) for said in json.loads(out.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []


def _cause(said: str) -> str:
    """The line of a rank's error output that names its error: the last one that looks like one, before ``torchrun`` sums up."""
    lines = [line.strip() for line in said.partition("elastic/multiprocessing")[0].splitlines() if "Error" in line]
    return lines[-1].rpartition("]:")[2].strip() if lines else said.strip()[-200:]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as one rank; the first one writes the records after each, so that an interrupted run keeps them."""
    from .machine import find_machine, torch_module

    parser = argparse.ArgumentParser(description="Exchanges between ranks; run it under torchrun.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--asked", type=json.loads, default={})
    given = parser.parse_args(arguments)
    asked = given.asked
    machine = find_machine(asked.get("kind"))
    if machine.kind == "cuda":  # each rank has a GPU of its own
        machine = find_machine(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
    limits = Limits(**asked["limits"]) if "limits" in asked else STANDARD
    first = os.environ.get("RANK", "0") == "0"
    written = given.out.with_suffix(".part")
    records: list[Record] = []
    sizes, operations = asked.get("sizes"), asked.get("operations", OPERATIONS)
    for record in _by_size(torch_module(), machine, limits, None, sizes, operations, None):
        records.append(record)
        if first:
            written.write_text(json.dumps([one.to_dict() for one in records]), encoding="utf-8")
            written.replace(given.out)


if __name__ == "__main__":
    main()
