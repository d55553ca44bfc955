"""Which kernels share constants, and which devices share a file of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import calls
from .fitting import Fitted, KernelClass, fit_class
from .robust import Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_FLOOR = Bound(10e-6, 1e-7, 1e-3)
_SHARE = Bound(0.7, 0.02, 1.0)
_RAMP = Bound(1000.0, 1.0, 20_000.0)

_WIDE, _BYTE, _NIBBLE = ["bf16", "fp16", "tf32", "fp32"], ["fp8", "int8"], ["fp4", "int4"]


def _gemm(label: str, arithmetic: list[str], overlap: float) -> KernelClass:
    """Products; the exponent of the join hardly matters (free, the errors change by less than a point), so it is fixed."""
    free = {"floor": _FLOOR, "bandwidth": _SHARE, "compute": _SHARE}
    return KernelClass("gemm", label, frozenset({label}), {"arithmetic": arithmetic}, free, {}, overlap)


def _decode(bits: int) -> KernelClass:
    """Attention of one token; computing is fixed at half the peak, which only latent attention ever nears."""
    free = {"floor": _FLOOR, "bandwidth": _SHARE}
    kinds, fixed = frozenset({str(bits)}), {"compute": 0.5}
    return KernelClass("decode_attention", f"{bits}-bit", kinds, {"bits": bits}, free, fixed, None, floor_shown=True)


def _experts(label: str, kinds: set[str], entry: dict[str, object]) -> KernelClass:
    """Routed experts, p = 1; bandwidth is fixed at 0.9: free, it goes to 0.85 to 0.97 and errors do not change."""
    free = {"floor": _FLOOR, "compute": _SHARE}
    return KernelClass("experts", label, frozenset(kinds), entry, free, {"bandwidth": 0.9}, 1.0)


PREFILL = KernelClass(
    "prefill_attention",
    "16-bit",
    frozenset({"16"}),
    {},
    {"floor": _FLOOR, "compute": _SHARE, "ramp_tokens": _RAMP},
    {},
    None,
    floor_shown=True,
)
# Weights of four bits in 16-bit arithmetic are bound by unpacking, so that bandwidth is fitted. TensorRT-LLM's kernels of this kind take a
# median of 1.3 times (H100) to 2.5 times (B200) as long as vLLM's on the same calls, and no constants fit both: they are left out.
WEIGHT_ONLY = KernelClass(
    "experts",
    "4-bit weights",
    frozenset({"w4a16_mxfp4"}),
    {"arithmetic": ["bf16", "fp16"], "bits": 4},
    {"floor": _FLOOR, "bandwidth": _SHARE, "compute": _SHARE},
    {},
    1.0,
    engine="vllm",
)
CLASSES = (
    _gemm("bf16", _WIDE, 4.0),
    _gemm("fp8", _BYTE, 2.0),
    _gemm("fp4", _NIBBLE, 2.3),
    _decode(16),
    _decode(8),
    PREFILL,
    WEIGHT_ONLY,
    _experts("bf16", {"bfloat16"}, {"arithmetic": _WIDE}),
    _experts("fp8", {"fp8", "fp8_block"}, {"arithmetic": _BYTE}),
    _experts("fp4", {"nvfp4"}, {"arithmetic": _NIBBLE}),
)
# Fitted and printed for comparison, and not in the files: a file cannot tell scales per block from one scale.
FOR_COMPARISON = (
    _experts("fp8 per tensor", {"fp8"}, {"arithmetic": _BYTE}),
    _experts("fp8 per block", {"fp8_block"}, {"arithmetic": _BYTE}),
)
READERS: dict[str, Callable[[Path | None], list[calls.Call]]] = {
    "gemm": calls.gemm_calls,
    "decode_attention": calls.decode_attention_calls,
    "prefill_attention": calls.prefill_attention_calls,
    "experts": calls.expert_calls,
}
SECTIONS = tuple(READERS)


@dataclass(frozen=True, slots=True)
class Level:
    """The devices behind one file of kernels, and the families or architectures of devices that it holds for."""

    name: str
    devices: tuple[str, ...]
    families: tuple[str, ...] = ()


GENERIC = Level("generic", ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm"))
FAMILIES = (
    Level("ampere-ga100", ("a100_sxm",), ("ampere-ga100",)),
    Level("hopper", ("h100_sxm", "h200_sxm"), ("hopper",)),
    Level("blackwell", ("b200_sxm",), ("blackwell-ultra", "Blackwell GB100 sm_100", "Blackwell GB100 sm_100 + Grace")),
    Level("ada", ("l40s",), ("ada-pro", "ada-l40", "ada-geforce")),
    Level("blackwell-pro", ("rtx_pro_6000_server",), ("blackwell-pro", "blackwell-geforce")),
    Level("battlemage", ("b60",), ("Xe2-HPG Battlemage", "Xe2-HPG Battlemage G31")),
)
LEVELS = (GENERIC, *FAMILIES)


def read_calls(folder: Path | None = None) -> dict[str, list[calls.Call]]:
    """The calls of all tables, by section of a file of kernels.

    Raises
    ------
    SpecError : for a malformed table
    """
    return {section: read(folder) for section, read in READERS.items()}


def fit_level(level: Level, every: dict[str, list[calls.Call]], of: Sequence[KernelClass] = CLASSES) -> list[Fitted]:
    """The constants of a level, class by class, where its devices were measured; the generic ones also with each device left out."""
    fitted = (fit_class(c, every[c.section], level.devices, leave_out=level is GENERIC) for c in of)
    return [found for found in fitted if found is not None]
