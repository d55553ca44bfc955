"""Attention as torch's fused kernel runs it: decoding over caches of several lengths, and causal prompts.

What a step needs beside products: kernels of attention have rates of their own, which products do not show. Shapes are those of a small
layer (eight KV heads of 128, four queries each), so that none of them is a shape of models that are predicted later. Some are taken with
one query to a KV head and with eight too: operations to a byte of cache differ by models, and where they take time is seen by nothing else.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..errors import MeasureError
from ..planner.flop import attention_flop
from .allocation import first_line, left_out, out_of_memory
from .products import TYPES
from .records import Record
from .roof import datasheet_roof
from .timing import STANDARD, copies_needed, rotate, time_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..hardware import HardwareSpec
    from .machine import Machine
    from .timing import Clock, Limits

KV_HEADS = 8
GROUP = 4  # queries that share a KV head
OTHER_GROUPS = (1, 8)
WIDTH = 128
DECODE = tuple(
    (batch, context) for batch in (1, 4, 16) for context in (128, 512, 2048, 8192)
)  # sequences, entries of each
MOST_ENTRIES = {
    "cpu": 2**15,
    "mps": 2**16,
    "cuda": 2**20,
}  # of all sequences: on a CPU 256 MiB of float32, which take long to fill
COARSE_DECODE = ((1, 512), (1, 8192), (8, 512), (8, 2048))
GROUPED = ((1, 8192), (8, 512), (8, 2048))  # that are taken with other groups too
PREFILL = (64, 256, 1024, 2048)  # tokens of one prompt
COARSE_PREFILL = (128, 1024)


def attention(
    machine: Machine,
    limits: Limits = STANDARD,
    *,
    hardware: HardwareSpec | None = None,
    types: Sequence[str] | None = None,
    decode: Sequence[tuple[int, int]] | None = None,
    prefill: Sequence[int] | None = None,
    coarse: bool = False,
    clock: Clock | None = None,
    say: Callable[[str], None] = left_out,
    into: list[Record] | None = None,
) -> list[Record]:
    """Time attention: records ``attention.decode`` and ``attention.prefill`` in seconds, with bytes and FLOP of one call.

    Decode: one query per sequence over its entries; bytes are those of keys, values, queries and output; caches come from memory (copies
    rotate). Prefill: causal attention of one whole prompt, 4 x heads x width x S (S + 1) / 2 FLOP (formula F2.6).

    Parameters
    ----------
    hardware : the catalogue's device, for the prediction
    types : arithmetic types; by default fp32 on a CPU, else bf16
    decode : pairs of sequences and entries of each, with four queries to a KV head; by default some with other groups beside them
    prefill : tokens of one prompt
    coarse : fewer shapes
    into : a list that gets each record as it is made

    Raises
    ------
    MeasureError : without torch
    """
    from .machine import torch_module

    torch, records = torch_module(), [] if into is None else into
    began = len(records)
    usual = "fp32" if machine.kind == "cpu" else "bf16"
    for name in types or (usual,):
        grouped = [(*pair, GROUP) for pair in decode or (COARSE_DECODE if coarse else DECODE)]
        if not decode:
            grouped += [(*pair, group) for group in OTHER_GROUPS for pair in (GROUPED[-1:] if coarse else GROUPED)]
        shapes = [("decode", *shape) for shape in grouped if math.prod(shape[:2]) <= MOST_ENTRIES[machine.kind]]
        shapes += [("prefill", 1, tokens, GROUP) for tokens in prefill or (COARSE_PREFILL if coarse else PREFILL)]
        records.extend(_by_shape(torch, name, shapes, machine, limits, hardware, clock, say))
        machine.empty_cache()
    return records[began:]


def decode_of(
    torch: Any, dtype: Any, batch: int, context: int, machine: Machine, group: int = GROUP
) -> tuple[Callable[[], Any], int, int]:
    """What attends with one query per head and sequence, its bytes and its FLOP.

    Queries that share a KV head are rows of one product, so that a cache is read once for all of them.
    """
    from torch.nn import functional

    shape = (batch, KV_HEADS, context, WIDTH)
    one_cache = 2 * dtype.itemsize * batch * KV_HEADS * context * WIDTH
    copies = copies_needed(one_cache, machine.cache_bytes)
    caches = [torch.ones((2, *shape), device=machine.torch_device).to(dtype) for _ in range(copies)]
    queries = torch.ones((batch, KV_HEADS, group, WIDTH), device=machine.torch_device).to(dtype)
    out = functional.scaled_dot_product_attention(queries, caches[0][0], caches[0][1])

    def attend(cache: Any) -> Callable[[], Any]:
        keys, values = cache
        return lambda: functional.scaled_dot_product_attention(queries, keys, values)

    moved = caches[0].nbytes + queries.nbytes + out.nbytes
    flop = attention_flop(KV_HEADS * group, WIDTH, 1, batch * context)
    return rotate([attend(cache) for cache in caches]), moved, flop


def prefill_of(torch: Any, dtype: Any, tokens: int, machine: Machine) -> tuple[Callable[[], Any], int, int]:
    """What attends causally over one prompt, its bytes and its FLOP; what lies above the diagonal is not counted."""
    from torch.nn import functional

    heads = KV_HEADS * GROUP
    queries = torch.ones((1, heads, tokens, WIDTH), device=machine.torch_device).to(dtype)
    keys, values = torch.ones((2, 1, KV_HEADS, tokens, WIDTH), device=machine.torch_device).to(dtype)

    def attend() -> Any:
        return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)

    moved = queries.nbytes + keys.nbytes + values.nbytes + attend().nbytes
    return attend, moved, attention_flop(heads, WIDTH, 1, tokens * (tokens + 1) // 2)


def _by_shape(
    torch: Any,
    name: str,
    shapes: Sequence[tuple[str, int, int, int]],
    machine: Machine,
    limits: Limits,
    hardware: HardwareSpec | None,
    clock: Clock | None,
    say: Callable[[str], None],
) -> Iterator[Record]:
    dtype, roof = getattr(torch, TYPES[name].operand), datasheet_roof(hardware, machine.cache_bytes)
    for phase, batch, tokens, group in shapes:
        cache_bytes = 2 * dtype.itemsize * batch * KV_HEADS * tokens * WIDTH
        free = machine.free_bytes()
        if free and max(cache_bytes, 6 * machine.cache_bytes) > free // 2:
            say(f"attention.{phase}: no memory for {batch} x {tokens:,} tokens; left out")
            continue
        try:
            if phase == "decode":
                call, moved, flop = decode_of(torch, dtype, batch, tokens, machine, group)
            else:
                call, moved, flop = prefill_of(torch, dtype, tokens, machine)
            measured = time_call(call, machine=machine, limits=limits, clock=clock)
        except (RuntimeError, MemoryError, MeasureError) as error:
            why = "no memory" if out_of_memory(error) else first_line(error)
            say(f"attention.{phase}: {batch} x {tokens:,} tokens: {why}; left out")
            continue
        parameters = {
            "bytes": moved,
            "flop": flop,
            "batch": batch,
            "tokens": tokens,
            "heads": KV_HEADS * group,
            "kv_heads": KV_HEADS,
            "width": WIDTH,
            "arithmetic": name,
            "dtype": TYPES[name].operand,
            "threads": machine.threads,
            "cold": phase == "decode",
        }
        yield Record(f"attention.{phase}", "s", measured, parameters, roof.seconds(moved, flop, name))
