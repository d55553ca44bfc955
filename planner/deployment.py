"""What is to be planned: a model on devices, in formats, with an engine, for a workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DomainError
from .parallel import SINGLE, Layout, check_layout, divided

if TYPE_CHECKING:
    from ..engines.spec import EngineProfile
    from ..hardware.spec import HardwareSpec
    from ..models.spec import ModelSpec
    from .formats import Formats


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of ``prompt`` tokens that generate ``output`` tokens, ``concurrency`` of them at a time over all replicas."""

    prompt: int
    output: int
    concurrency: int = 1

    @property
    def length(self) -> int:
        """Tokens of one sequence at its end."""
        return self.prompt + self.output

    @property
    def mean_context(self) -> float:
        """Mean context of a decode step, S + G/2 (formula F6.6)."""
        return self.prompt + self.output / 2


@dataclass(frozen=True, slots=True)
class MemoryOverrides:
    """Figures that replace those of the engine profile; None keeps the profile's."""

    total_bytes: int | None = None
    utilization: float | None = None
    activation_bytes: int | None = None
    runtime_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """One deployment, checked to be possible.

    ``max_model_len`` is the longest sequence that the engine accepts (None: the model's own limit).

    Raises
    ------
    LayoutError : for a layout that does not exist
    DomainError : for a workload outside the formulas' domain
    """

    model: ModelSpec
    hardware: HardwareSpec
    formats: Formats
    engine: EngineProfile
    workload: Workload
    layout: Layout = SINGLE
    memory: MemoryOverrides = MemoryOverrides()
    max_model_len: int | None = None

    def __post_init__(self) -> None:
        check_layout(self.model, self.layout)
        workload = self.workload
        for name, size in (
            ("prompt", workload.prompt),
            ("output", workload.output),
            ("concurrency", workload.concurrency),
        ):
            if size < 1:
                raise DomainError(f"--{name}", got=size, wanted="at least 1")
        if self.max_model_len is not None and workload.length > self.max_model_len:
            got = f"{workload.prompt} + {workload.output} tokens"
            raise DomainError("--max-model-len", got=got, wanted=f"at most {self.max_model_len} tokens in a sequence")

    @property
    def context_limit(self) -> int | None:
        """Longest sequence that engine and model accept, or None where neither says."""
        limits = [limit for limit in (self.max_model_len, self.model.max_context) if limit is not None]
        return min(limits, default=None)

    @property
    def sequences_per_replica(self) -> int:
        """Requests that the fullest data-parallel replica serves at a time."""
        return divided(self.workload.concurrency, self.layout.dp)
