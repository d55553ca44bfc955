"""Kernel calls of the measured tables: what each reads and computes, as seconds at nominal rates, and how long it took.

Bytes and FLOP are those of ``planner/costs.py``: a product reads its weights and activations; attention of one token reads the cache;
attention of a prompt computes half a square; routed experts read E_rank (1 - (1 - k/E)^T) of them (:func:`distinct_experts`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...errors import SpecError
from ...planner.experts import distinct_experts
from . import tables

if TYPE_CHECKING:
    from pathlib import Path

    from ...hardware.spec import HardwareSpec
    from ..truth import TruthRow

# Table types of products: arithmetic, bytes of a weight with its scales.
GEMM_TYPES = {"bfloat16": ("bf16", 2.0), "fp8": ("fp8", 1.0), "nvfp4": ("fp4", 9 / 16)}
EXPERT_TYPES = {
    "bfloat16": ("bf16", 2.0),
    "fp8": ("fp8", 1.0),
    "fp8_block": ("fp8", 1.0 + 4 / 128**2),
    "nvfp4": ("fp4", 9 / 16),
    "w4a16_mxfp4": ("bf16", 17 / 32),
    "w4a8_mxfp4_mxfp8": ("fp8", 17 / 32),
}
CACHE_BITS = {"bfloat16": 16, "fp8": 8}
ACTIVATION_BYTES = 2
# Devices whose tables show reads from the cache instead of memory: the benchmark repeats one call (README of the data).
CACHED = frozenset({"l40s", "rtx_pro_6000_server"})
_CACHE_MARGIN = 1.1  # catalogues print MiB as MB, and slightly larger data stays in part
_FLOOR_SHARE = 0.1  # a call whose reading and computing are below this share of its time shows the fixed time alone


@dataclass(frozen=True, slots=True)
class Call:
    """One measured call of a kernel.

    Parameters
    ----------
    kind : arithmetic type, bits of the cache, or type of the experts
    read_s, compute_s : its bytes at nominal bandwidth, its FLOP at the dense peak
    tokens : of a prompt: where it ends; 1 elsewhere
    measured_s : the time it took
    engine : whose kernel it is, with its version
    usable : whether it reads memory, not the cache of the device, and runs a usual kernel
    """

    gpu: str
    kind: str
    read_s: float
    compute_s: float
    measured_s: float
    tokens: int = 1
    engine: str = ""
    usable: bool = True

    @property
    def shows_floor(self) -> bool:
        """Whether its time is almost all fixed time, wherever it reads from."""
        return max(self.read_s, self.compute_s) < _FLOOR_SHARE * self.measured_s


def peak(device: HardwareSpec, arithmetic: str) -> float:
    """The dense peak in FLOP/s: a device without fp8 units that was measured with fp8 multiplies in int8 (Arc Pro B60) or 16 bits.

    Raises
    ------
    SpecError : without any of these rates
    """
    fallbacks = {"bf16": ("fp16",), "fp8": ("int8", "bf16"), "fp4": ("fp8", "bf16")}
    rates = [device.peak.rate(name) for name in (arithmetic, *fallbacks[arithmetic])]
    found = next((rate for rate in rates if rate is not None), None)
    if found is None:
        raise SpecError(f"{device.name}.peak", got="no dense rate", wanted=arithmetic)
    return found


def gemm_calls(folder: Path | None = None) -> list[Call]:
    """Products m x k by k x n: weights n k, activations in and out in 16 bits, 2 m n k FLOP; narrow types include quantising the input."""
    calls = []
    for row in tables.table("gemm", ("gpu", "dtype", "m", "n", "k", "time_us"), folder):
        gpu = tables.one_of(row, "gpu", tables.DEVICES)
        arithmetic, weight_bytes = GEMM_TYPES[tables.one_of(row, "dtype", GEMM_TYPES)]
        m, n, k = (tables.count(row, column) for column in "mnk")
        weights = weight_bytes * n * k
        moved = weights + ACTIVATION_BYTES * m * (n + k)
        calls.append(_call(row, gpu, arithmetic, arithmetic, moved, 2.0 * m * n * k, resident=weights))
    return calls


def decode_attention_calls(folder: Path | None = None) -> list[Call]:
    """One new token per sequence: keys and values of the context are read, 4 heads head_dim FLOP for each entry.

    The shortest contexts show the fixed time of any device, wherever they are read from.
    """
    calls = []
    columns = ("gpu", "kv_dtype", "batch", "context_len", "heads", "kv_heads", "head_dim", "time_us")
    for row in tables.table("attention_decode", columns, folder):
        gpu = tables.one_of(row, "gpu", tables.DEVICES)
        bits = CACHE_BITS[tables.one_of(row, "kv_dtype", CACHE_BITS)]
        batch, context, heads, kv_heads, width = (tables.count(row, column) for column in columns[2:7])
        moved = batch * context * 2 * kv_heads * width * bits / 8
        flop = 4.0 * heads * width * context * batch
        call = _call(row, gpu, str(bits), "bf16", moved, flop, resident=moved)
        calls.append(replace(call, usable=True) if call.shows_floor else call)
    return calls


def prefill_attention_calls(folder: Path | None = None) -> list[Call]:
    """Causal attention of whole prompts, 16-bit cache: 4 heads head_dim e^2/2 FLOP for a prompt of e tokens; reading is hidden."""
    calls = []
    columns = ("gpu", "kv_dtype", "batch", "isl", "heads", "kv_heads", "head_dim", "time_us")
    for row in tables.table("attention_prefill", columns, folder):
        gpu = tables.one_of(row, "gpu", tables.DEVICES)
        bits = CACHE_BITS[tables.one_of(row, "kv_dtype", CACHE_BITS)]
        batch, length, heads, width = (tables.count(row, column) for column in ("batch", "isl", "heads", "head_dim"))
        flop = 4.0 * heads * width * length**2 / 2 * batch
        calls.append(_call(row, gpu, str(bits), "bf16", 0.0, flop, tokens=length))
    return calls


def expert_calls(folder: Path | None = None) -> list[Call]:
    """Routed experts of one layer on one rank: three products h x i of each distinct expert, rows T k / ranks, 6 h bytes of each row.

    Not usable for constants: the shape of DeepSeek-V3, whose grouped routing touches fewer experts than the formula says, and fp8 of vLLM
    on Hopper, a slow path of that engine (README of the data).
    """
    calls = []
    shape = ("hidden_size", "intermediate", "topk", "num_experts", "moe_tp", "moe_ep", "num_tokens")
    for row in tables.table("moe", ("gpu", "engine", "dtype", "shape", *shape, "time_us"), folder):
        gpu = tables.one_of(row, "gpu", tables.DEVICES)
        kind = tables.one_of(row, "dtype", EXPERT_TYPES)
        arithmetic, weight_bytes = EXPERT_TYPES[kind]
        hidden, inner, used, experts, split, ranks, tokens = (tables.count(row, c) for c in shape)
        if used > experts:
            raise SpecError("topk", got=used, wanted=f"at most the {experts} experts", where=row.where)
        weights = 3.0 * hidden * inner / split * weight_bytes * distinct_experts(tokens, experts, used) / ranks
        rows = tokens * used / ranks
        flop, moved = 6.0 * hidden * inner / split * rows, weights + 6.0 * hidden * rows
        slow = kind == "fp8" and row.text("engine").startswith("vllm") and gpu in {"h100_sxm", "h200_sxm"}
        usual = row.text("shape") != "DeepSeek-V3" and not slow
        calls.append(_call(row, gpu, kind, arithmetic, moved, flop, resident=weights, usual=usual))
    return calls


def _call(
    row: TruthRow,
    gpu: str,
    kind: str,
    arithmetic: str,
    moved: float,
    flop: float,
    *,
    resident: float = 0.0,
    tokens: int = 1,
    usual: bool = True,
) -> Call:
    """Make a call; ``resident`` are the bytes that a repeated call finds in the device's cache where they fit."""
    device = tables.device(gpu)
    read_s, compute_s = moved / device.memory.bandwidth, flop / peak(device, arithmetic)
    call = Call(gpu, kind, read_s, compute_s, tables.seconds(row), tokens, row.text("engine"), usual)
    cache = _CACHE_MARGIN * (device.units.cache or 0) if gpu in CACHED else 0.0
    return replace(call, usable=False) if 0 < resident <= cache else call
