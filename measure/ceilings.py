"""The ceilings of a machine: streaming by working set, products by type and rows, attention, launches, and the link to the host.

Every record is a time in seconds with the bytes and FLOP that the tensors hold, from which rates follow. Two predictions stand beside it:
from the nominal rates of the catalogue's device, and from the best of these measurements themselves (:mod:`~roofplan.measure.roof`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import MeasureError
from .allocation import first_line, left_out, out_of_memory
from .attention import attention
from .products import gemm
from .records import Record
from .roof import beside, datasheet_roof, measured_roof
from .streaming import streaming
from .timing import QUICK, STANDARD, HostClock, graphed, time_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..hardware import HardwareSpec
    from .machine import Machine
    from .timing import Clock, Limits

__all__ = ["attention", "ceilings", "gemm", "host_to_device", "launch", "streaming"]

IN_GRAPH = 100  # kernels of the graph whose time is divided by their count
SMALL_SIDE = 64  # inputs and outputs of a product that is nothing but its launch
TRANSFERS = tuple(2**power for power in range(12, 29, 2))  # 4 KiB to 256 MiB
COARSE_TRANSFERS = (2**12, 2**20, 2**28)


def ceilings(
    machine: Machine,
    limits: Limits = STANDARD,
    *,
    hardware: HardwareSpec | None = None,
    clock: Clock | None = None,
    say: Callable[[str], None] = left_out,
    into: list[Record] | None = None,
) -> list[Record]:
    """Measure all ceilings, and set what the measured roof predicts beside each record.

    With the limits QUICK, or shorter ones, every other size is left out, and all types but fp32 and bf16; else working sets that the last
    cache could hold are measured cold as well.

    Parameters
    ----------
    hardware : the catalogue's device, for the prediction by its data sheet
    clock : for tests; the machine's own otherwise
    say : gets what was left out and why
    into : a list that gets each record as it is made, without the prediction by the measured roof

    Raises
    ------
    MeasureError : without torch
    """
    records = [] if into is None else into
    began = len(records)
    coarse = limits.most_s <= QUICK.most_s
    launch(machine, limits, clock=clock, say=say, into=records)
    streaming(machine, limits, hardware=hardware, coarse=coarse, clock=clock, say=say, into=records)
    held = [] if coarse else [size for size in (machine.cache_bytes // 4, machine.cache_bytes // 2) if size >= 2**18]
    if held:
        streaming(
            machine,
            limits,
            hardware=hardware,
            sizes=held,
            operations=["read"],
            cold=True,
            clock=clock,
            say=say,
            into=records,
        )
    gemm(machine, limits, hardware=hardware, coarse=coarse, clock=clock, say=say, into=records)
    attention(machine, limits, hardware=hardware, coarse=coarse, clock=clock, say=say, into=records)
    host_to_device(machine, limits, hardware=hardware, coarse=coarse, clock=clock, say=say, into=records)
    records[began:] = beside(records[began:], measured_roof(records[began:], machine.cache_bytes))
    return records[began:]


# ------------------------------------------------------------------------------------------------ launches


def launch(
    machine: Machine,
    limits: Limits = STANDARD,
    *,
    clock: Clock | None = None,
    say: Callable[[str], None] = left_out,
    into: list[Record] | None = None,
) -> list[Record]:
    """Time what does nothing but start.

    - ``launch.call``: one of many additions to one number, one after another: what a call from Python costs at least;
    - ``launch.synchronised``: one such addition, waited for (not on a CPU, where nothing is waited for);
    - ``launch.graph``: one of a hundred in a CUDA graph (CUDA alone): what a kernel costs when the host does not;
    - ``launch.gemm``: a product of 64 x 64 with one row, in a graph on CUDA: the floor of products.

    Raises
    ------
    MeasureError : without torch
    """
    from .machine import torch_module

    torch, records = torch_module(), [] if into is None else into
    began = len(records)
    for starting in _starts(torch, machine, say):
        timer = clock or (HostClock(machine.synchronise) if starting.name == "synchronised" else None)
        try:
            measured = time_call(starting.call, machine=machine, limits=limits, clock=timer).scaled(1 / starting.count)
        except MeasureError as error:
            say(f"launch.{starting.name}: {error}; left out")
            continue
        parameters = {"threads": machine.threads, "in_graph": starting.in_graph}
        records.append(Record(f"launch.{starting.name}", "s", measured, parameters))
    return records[began:]


@dataclass(frozen=True, slots=True)
class _Start:
    """A call that does nothing but start kernels: so many of them, in a graph or one by one."""

    name: str
    call: Callable[[], Any]
    count: int = 1
    in_graph: bool = False


def _starts(torch: Any, machine: Machine, say: Callable[[str], None]) -> Iterator[_Start]:
    number = torch.zeros(1, device=machine.torch_device)
    row = torch.ones((1, SMALL_SIDE), device=machine.torch_device)
    weight = torch.ones((SMALL_SIDE, SMALL_SIDE), device=machine.torch_device)
    result = torch.empty((1, SMALL_SIDE), device=machine.torch_device)

    def add() -> None:
        number.add_(1.0)

    def add_and_wait() -> None:
        add()
        machine.synchronise()

    def add_many() -> None:
        for _ in range(IN_GRAPH):
            add()

    def multiply() -> None:
        torch.mm(row, weight.t(), out=result)

    yield _Start("call", add)
    if machine.kind != "cpu":
        yield _Start("synchronised", add_and_wait)
    if machine.kind == "cuda":
        try:
            many, product = graphed(add_many, machine), graphed(multiply, machine)
        except RuntimeError as error:
            say(f"launch.graph: {first_line(error)}; left out")
        else:
            yield _Start("graph", many, IN_GRAPH, in_graph=True)
            yield _Start("gemm", product, in_graph=True)
            return
    yield _Start("gemm", multiply)


# ------------------------------------------------------------------------------------------------ host and device


def host_to_device(
    machine: Machine,
    limits: Limits = STANDARD,
    *,
    hardware: HardwareSpec | None = None,
    sizes: Sequence[int] | None = None,
    coarse: bool = False,
    clock: Clock | None = None,
    say: Callable[[str], None] = left_out,
    into: list[Record] | None = None,
) -> list[Record]:
    """Time copies between host and device: ``transfer.host_to_device`` and ``transfer.device_to_host``, by bytes, in seconds.

    From pinned memory (CUDA alone) and from pageable memory, which the driver copies twice. Predicted are bytes / rate of the link to the
    host, for pinned memory. Where the processor is the device there is no copy, and no record.

    Raises
    ------
    MeasureError : without torch
    """
    from .machine import torch_module

    records = [] if into is None else into
    if machine.kind == "cpu":
        return []
    torch, began = torch_module(), len(records)
    link = datasheet_roof(hardware, machine.cache_bytes).host_bytes_per_s
    for pinned in (True, False) if machine.kind == "cuda" else (False,):
        for size in sizes or (COARSE_TRANSFERS if coarse else TRANSFERS):
            try:
                host = torch.zeros(size, dtype=torch.uint8, pin_memory=pinned)
                device = torch.zeros(size, dtype=torch.uint8, device=machine.torch_device)
                ways = {"host_to_device": (device, host), "device_to_host": (host, device)}
                for way, (target, source) in ways.items():
                    call = _copy(target, source, pinned)
                    try:
                        measured = time_call(call, machine=machine, limits=limits, clock=clock)
                    except MeasureError as error:
                        say(f"transfer.{way}: {size:,} bytes: {error}; left out")
                        continue
                    predicted = source.nbytes / link if link and pinned else None
                    parameters = {"bytes": source.nbytes, "pinned": pinned}
                    records.append(Record(f"transfer.{way}", "s", measured, parameters, predicted))
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                say(f"transfer: no {'pinned ' if pinned else ''}memory for {size:,} bytes; the sizes below were taken")
                break
    machine.empty_cache()
    return records[began:]


def _copy(target: Any, source: Any, pinned: bool) -> Callable[[], Any]:
    return lambda: target.copy_(source, non_blocking=pinned)
