"""Matrix products by arithmetic type and rows: from one token (bound by reading the weights) to thousands (bound by arithmetic)."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import MeasureError
from .allocation import first_line, left_out, out_of_memory
from .records import Record
from .roof import datasheet_roof
from .timing import STANDARD, copies_needed, rotate, time_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..hardware import HardwareSpec
    from .machine import Machine
    from .timing import Clock, Limits

MOST_ROWS = 8192
ROWS = tuple(2**power for power in range(14))  # 1 to 8192
COARSE_ROWS = (1, 4, 16, 64, 256, 1024, 4096, 8192)
# Inputs and outputs of the weight: on a GPU as large as layers are, so that a launch is short beside it; on a CPU smaller, so that 8192
# rows last less than a second. Copies rotate, so that even a small weight comes from memory.
SIDES = {"cuda": 8192, "mps": 4096, "cpu": 2048}
_CALLS = 5  # of a slow product at least: two to warm up, three samples
_PATIENCE = 10  # a product may last so many times the limit of a measurement, all its calls together


@dataclass(frozen=True, slots=True)
class Type:
    """An arithmetic type: what its operands and its result are stored in, by torch's names."""

    name: str
    operand: str
    result: str
    kinds: tuple[str, ...]


TYPES = {
    kind.name: kind
    for kind in (
        Type("fp32", "float32", "float32", ("cpu", "cuda", "mps")),
        Type("tf32", "float32", "float32", ("cuda",)),
        Type("bf16", "bfloat16", "bfloat16", ("cpu", "cuda", "mps")),
        Type("fp16", "float16", "float16", ("cpu", "cuda", "mps")),
        Type("fp8", "float8_e4m3fn", "bfloat16", ("cuda",)),
        Type("int8", "int8", "int32", ("cpu", "cuda")),
    )
}


@dataclass(frozen=True, slots=True)
class Product:
    """One product ``[rows, inputs] x [inputs, outputs]`` over several copies of its weight.

    Parameters
    ----------
    call : runs it with the next copy
    bytes : of one input, weight and output, counted from the tensors
    flop : 2 rows inputs outputs
    """

    call: Callable[[], Any]
    bytes: int
    flop: int


def product_of(torch: Any, kind: Type, rows: int, weights: Sequence[Any]) -> Product:
    """What multiplies ``rows`` rows with each of several weights in turn, into a result that is there already.

    A weight is stored as of a linear layer, ``[outputs, inputs]``. The result is not allocated anew: its pages would have to be made
    each time, which is no part of a product. On a CPU weights are packed where torch can, as weights that do not change are there (see
    :func:`~roofplan.measure.reference.linear.packed`); else each product of two rows or more would pack them again.
    """
    from .reference.linear import packed

    outputs, inputs = weights[0].shape
    device = weights[0].device
    rows_in = torch.ones((rows, inputs), device=device).to(weights[0].dtype)
    result = torch.empty((rows, outputs), dtype=getattr(torch, kind.result), device=device)
    if kind.name == "fp8":
        one = torch.ones((), dtype=torch.float32, device=device)  # of both operands' scales
        calls = [_scaled(torch, rows_in, weight.t(), one, result) for weight in weights]
    elif packed(weights[0]) is not None:
        calls = [_packed(rows_in, packed(weight)) for weight in weights]
    else:
        multiply = torch._int_mm if kind.name == "int8" else torch.mm  # noqa: SLF001 - torch has no public product of int8
        calls = [_plain(multiply, rows_in, weight.t(), result) for weight in weights]
    moved = rows_in.nbytes + weights[0].nbytes + result.nbytes
    return Product(rotate(calls), moved, 2 * rows_in.numel() * outputs)


def _plain(multiply: Any, left: Any, right: Any, result: Any) -> Callable[[], Any]:
    return lambda: multiply(left, right, out=result)


def _packed(left: Any, right: Any) -> Callable[[], Any]:
    from .reference.linear import packed_product

    return lambda: packed_product(left, right)


def _scaled(torch: Any, left: Any, right: Any, one: Any, result: Any) -> Callable[[], Any]:
    multiply = torch._scaled_mm  # noqa: SLF001 - torch has no public product of fp8 before 2.10
    return lambda: multiply(
        left, right, scale_a=one, scale_b=one, out_dtype=result.dtype, use_fast_accum=True, out=result
    )


def weights_of(torch: Any, kind: Type, inputs: int, outputs: int, machine: Machine) -> list[Any]:
    """Copies of a weight, so many that five last caches lie between two uses of one."""
    weight = torch.ones((outputs, inputs), device=machine.torch_device).to(getattr(torch, kind.operand))
    return [weight, *(weight.clone() for _ in range(copies_needed(weight.nbytes, machine.cache_bytes) - 1))]


@contextlib.contextmanager
def precision(torch: Any, kind: Type, machine: Machine) -> Iterator[None]:
    """Let products of float32 on CUDA round to TF32 for the type of that name alone, whatever the process had chosen."""
    if machine.kind != "cuda":
        yield
        return
    settings = torch.backends.cuda.matmul
    before, settings.allow_tf32 = settings.allow_tf32, kind.name == "tf32"
    try:
        yield
    finally:
        settings.allow_tf32 = before


def gemm(
    machine: Machine,
    limits: Limits = STANDARD,
    *,
    hardware: HardwareSpec | None = None,
    types: Sequence[str] | None = None,
    rows: Sequence[int] | None = None,
    side: int | None = None,
    coarse: bool = False,
    clock: Clock | None = None,
    say: Callable[[str], None] = left_out,
    into: list[Record] | None = None,
) -> list[Record]:
    """Time products by type and rows: records ``gemm.TYPE`` in seconds, with the bytes and FLOP of one product.

    Weights are square and come from memory (copies rotate), as in a decode step. Predicted is max(bytes / W, FLOP / F). A type that torch
    does not multiply on this device is left out, and so are rows from which a product lasts too long; ``say`` gets both.

    Parameters
    ----------
    hardware : the catalogue's device, for the prediction
    types : arithmetic types; by default those of the kind of machine (fp32 and bf16 when coarse)
    rows : by default 1 to 8192 in powers of two (of four when coarse)
    side : inputs and outputs of the weight
    into : a list that gets each record as it is made

    Raises
    ------
    MeasureError : without torch, or for a type that is none
    """
    from .machine import torch_module

    torch, records = torch_module(), [] if into is None else into
    began = len(records)
    for name in types or [t.name for t in TYPES.values() if machine.kind in t.kinds]:
        if name not in TYPES:
            raise MeasureError("type", got=name, wanted=f"one of {', '.join(TYPES)}")
        if coarse and types is None and name not in {"fp32", "bf16"}:
            continue
        kind, length = TYPES[name], side or SIDES[machine.kind]
        try:
            with precision(torch, kind, machine):
                weights = weights_of(torch, kind, length, length, machine)
                asked = rows or (COARSE_ROWS if coarse else ROWS)
                records.extend(_by_rows(torch, kind, weights, asked, machine, limits, hardware, clock, say))
                del weights
        except (RuntimeError, MemoryError, NotImplementedError, AttributeError, TypeError) as error:
            say(f"gemm.{name}: {'no memory' if out_of_memory(error) else first_line(error)}; left out")
        machine.empty_cache()
    return records[began:]


def _by_rows(
    torch: Any,
    kind: Type,
    weights: list[Any],
    rows: Sequence[int],
    machine: Machine,
    limits: Limits,
    hardware: HardwareSpec | None,
    clock: Clock | None,
    say: Callable[[str], None],
) -> Iterator[Record]:
    roof = datasheet_roof(hardware, machine.cache_bytes)
    before: tuple[int, float] | None = None
    refused: list[int] = []
    why = ""
    for count in rows:
        lasts = before[1] * max(count / before[0], 1) if before else 0.0
        if lasts * _CALLS > _PATIENCE * limits.most_s:
            say(f"gemm.{kind.name}: {count:,} rows and more would last {lasts:.2g} s each; left out")
            break
        try:
            product = product_of(torch, kind, count, weights)
            product.call()
        except RuntimeError as error:
            if out_of_memory(error):
                raise
            refused.append(count)  # some kernels want 17 rows
            why = why or first_line(error)
            continue
        try:
            measured = time_call(product.call, machine=machine, limits=patient(limits, lasts), clock=clock)
        except MeasureError as error:  # every sample was throttled
            say(f"gemm.{kind.name}: {count:,} rows: {error}; left out")
            continue
        before = (count, measured.median)
        outputs, inputs = weights[0].shape
        parameters = {
            "bytes": product.bytes,
            "flop": product.flop,
            "rows": count,
            "inputs": int(inputs),
            "outputs": int(outputs),
            "arithmetic": kind.name,
            "dtype": kind.operand,
            "threads": machine.threads,
            "cold": True,
        }
        predicted = roof.seconds(product.bytes, product.flop, kind.name)
        yield Record(f"gemm.{kind.name}", "s", measured, parameters, predicted)
    if refused:
        say(f"gemm.{kind.name}: rows {', '.join(map(str, refused))}: {why}; left out")


def patient(limits: Limits, lasts: float) -> Limits:
    """The limits for a call that lasts so many seconds: fewer samples, three at least, where the usual count would exceed the time."""
    if lasts <= 0:
        return limits
    return replace(limits, least=max(min(limits.least, 3), min(limits.least, math.floor(limits.most_s / lasts))))
