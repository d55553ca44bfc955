"""What kernels of a family of devices really reach: a fixed time, and shares of bandwidth and peak, by kind of kernel.

A kernel takes ``floor + (bytes / (bandwidth W)) (+)_p (FLOP / (compute F))`` with ``x (+)_p y = (x^p + y^p)^(1/p)``: p infinite is full
overlap of reading and computing, p one is none (formula F1.3).
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from ..engines.spec import Origin
from ..quantities import Bandwidth, Bytes, Fraction, Number, PositiveCount, Seconds

_CONFIG: dict[str, Any] = {"extra": "forbid"}

# How devices are joined; "host": through the host's own buses and memory.
Topology = Literal["switch", "mesh", "ring", "torus", "pair-bridge", "host", "network"]
Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "alltoall", "send"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kind of kernel: its fixed time, and the shares of the nominal rates that it reaches.

    Parameters
    ----------
    arithmetic : the arithmetic types that it holds for; empty for all
    bits : most bits of a stored element (of a weight, or of a cache entry) that it holds for; the narrowest that fits is taken
    floor : seconds of a launch that does nothing
    bandwidth, compute : shares of nominal bandwidth and dense peak
    overlap : p of the join; null for full overlap
    ramp_tokens : of attention of prompts: tokens at which half of ``compute`` is reached, t x (1 + ramp / end)
    """

    arithmetic: tuple[str, ...] = ()
    bits: PositiveCount | None = None
    floor: Seconds
    bandwidth: Fraction = 1.0
    compute: Fraction = 1.0
    overlap: Number | None = None
    ramp_tokens: Number = 0.0
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        if self.overlap is not None and self.overlap < 1:
            raise ValueError(f"got overlap {self.overlap}, want at least 1, or null")

    def scaled(self, bandwidth: float, compute: float) -> "Kernel":
        """The same kernel with other shares, at most one each."""
        return replace(self, bandwidth=min(1.0, self.bandwidth * bandwidth), compute=min(1.0, self.compute * compute))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFloors:
    """Seconds that a layer of some kinds takes beside its kernels: routing and gathering, latents, recurrent updates, choosing entries."""

    routing: Seconds
    latent: Seconds
    gated_delta: Seconds
    sparse_index: Seconds
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Measured times of one collective operation by one kernel among so many ranks: seconds by bytes of the message.

    Between two sizes the time is interpolated in both logarithms; below the first it is that of the first, above the last it grows with
    the bytes.
    """

    operation: Operation
    kernel: str
    ranks: PositiveCount
    bytes: tuple[Bytes, ...]
    us: tuple[Number, ...]
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        sizes = list(self.bytes)
        if len(sizes) != len(self.us) or len(sizes) < 2 or sizes != sorted(set(sizes)) or min(*sizes, *self.us) <= 0:
            raise ValueError(
                f"got {len(sizes)} sizes and {len(self.us)} times, want as many of both, above zero, sizes rising"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualExchange:
    """What a collective takes where nobody measured it: a fixed time, and a share of what the link carries in one direction.

    ``topologies`` : how the devices are joined that it holds for; empty: every way that no other entry names
    """

    operation: Operation
    kernel: str
    ranks: PositiveCount
    topologies: tuple[Topology, ...] = ()
    floor: Seconds
    bandwidth: Fraction
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far measured times lie from predicted ones: 80 % within x/÷ these, by what is unknown (see ``planner/evidence``).

    What scatters where all is known is a fact of the engine (``timing.spread``).

    Parameters
    ----------
    measured : the kernels were measured on the machine itself
    new_model, new_experts : added by a model that is not among them: dense, or with routed experts or latent attention
    new_device, unmeasured_family : added by a device that was not measured, or a family of which none was
    usual_exchange : added by exchanges between devices that were not measured, so that the usual ones stand for them
    new_engine : added by an engine or version that was not compared
    """

    measured: Number
    new_model: Number
    new_experts: Number
    new_device: Number
    unmeasured_family: Number
    usual_exchange: Number
    new_engine: Number
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """The kernels of one family of devices; a file states only what differs from the one it extends.

    Parameters
    ----------
    families : families of units (``units.family`` of a device) that it holds for
    measured_on : devices on which its figures were measured
    collective : usual times of collectives
    collectives : measured times of collectives
    link : bytes per second in one direction of the link that they were measured over; devices with another link do not have them
    sources : the origin of each figure, by its key or that of a group it stands in
    """

    schema: Literal["roofplan/kernels/v1"]
    name: str
    extends: str = ""
    families: tuple[str, ...] = ()
    measured_on: tuple[str, ...] = ()
    gemm: tuple[Kernel, ...]
    decode_attention: tuple[Kernel, ...]
    prefill_attention: Kernel
    experts: tuple[Kernel, ...]
    elementwise: Kernel
    state: Kernel
    floors: LayerFloors
    collective: tuple[UsualExchange, ...]
    collectives: tuple[Exchange, ...] = ()
    link: Bandwidth | None = None
    spread: Spread
    sources: dict[str, Origin]
    notes: str = ""
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        for name in ("gemm", "decode_attention", "experts"):
            if not getattr(self, name):
                raise ValueError(f"got no {name}, want at least one kernel")

    def scaled(self, bandwidth: float | None, compute: float | None) -> "Kernels":
        """The same kernels on a device where large 16-bit products reach other shares than here; all are scaled alike, to at most one."""
        usual = choose(self.gemm, "bf16")
        by = (
            1.0 if bandwidth is None else bandwidth / usual.bandwidth,
            1.0 if compute is None else compute / usual.compute,
        )
        return replace(
            self,
            gemm=tuple(kernel.scaled(*by) for kernel in self.gemm),
            decode_attention=tuple(kernel.scaled(*by) for kernel in self.decode_attention),
            prefill_attention=self.prefill_attention.scaled(*by),
            experts=tuple(kernel.scaled(*by) for kernel in self.experts),
            elementwise=self.elementwise.scaled(*by),
            state=self.state.scaled(*by),
        )


def choose(kernels: tuple[Kernel, ...], arithmetic: str, bits: float = math.inf) -> Kernel:
    """The kernel for an arithmetic type and the bits of what it reads: the narrowest that fits, else the widest that is listed."""
    fitting = [k for k in kernels if (not k.arithmetic or arithmetic in k.arithmetic) and bits <= (k.bits or math.inf)]
    return min(
        fitting,
        key=lambda kernel: kernel.bits or math.inf,
        default=max(kernels, key=lambda kernel: kernel.bits or math.inf),
    )
