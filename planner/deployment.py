"""What is to be planned: a model on devices, in formats, with an engine, for a workload."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import DomainError
from ..models.spec import LatentAttention, Moe
from .parallel import SINGLE, Layout, check_layout, divided

if TYPE_CHECKING:
    from ..engines.profile import Batching, EngineProfile
    from ..engines.streams import Streams
    from ..engines.timing import Scheduling
    from ..hardware.achieved import Kernels
    from ..hardware.spec import HardwareSpec
    from ..models.spec import ModelSpec
    from .formats import Formats


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of ``prompt`` tokens that generate ``output`` tokens, ``concurrency`` of them at a time over all replicas.

    ``rate``: requests per second that arrive at random over all replicas; ``concurrency`` is then what follows from it
    (:func:`~roofplan.planner.times.at_rate`).
    """

    prompt: int
    output: int
    concurrency: int = 1
    rate: float | None = None

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
    graph_bytes: int | None = None
    weights_bytes: int | None = None
    beside_bytes: int = 0  # weights beside the model: a projector, a draft model


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of the engine as they were given; None leaves the profile's default for the device and the way to start.

    Parameters
    ----------
    max_batched_tokens, max_num_seqs : tokens of a step, and sequences that run at a time
    block : tokens of a block of the cache
    kv_cache_bytes : bytes of the cache per device, whatever the share says
    eager : no graphs are captured
    offline : a program that calls the library instead of a server
    adapters, adapter_rank : LoRA adapters that are held at a time, and the rank that room is kept for
    """

    max_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    block: int | None = None
    kv_cache_bytes: int | None = None
    eager: bool = False
    offline: bool = False
    adapters: int = 0
    adapter_rank: int = 16


@dataclass(frozen=True, slots=True)
class Deployment:
    """One deployment, checked to be possible.

    ``max_model_len`` is the longest sequence that the engine accepts (None: the model's own limit). ``kernels`` is what kernels of the
    device reach (None: only nominal times can be given), ``streams`` what an engine reaches that launches a model layer by layer.

    Raises
    ------
    LayoutError : for a layout that does not exist
    DomainError : for a workload outside the formulas' domain, or settings that the engine does not have
    """

    model: ModelSpec
    hardware: HardwareSpec
    formats: Formats
    engine: EngineProfile
    workload: Workload
    layout: Layout = SINGLE
    memory: MemoryOverrides = MemoryOverrides()
    max_model_len: int | None = None
    settings: EngineSettings = EngineSettings()
    kernels: Kernels | None = None
    streams: Streams | None = None

    def __post_init__(self) -> None:
        check_layout(self.model, self.layout)
        self._check_settings()
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

    def _check_settings(self) -> None:
        paging, settings = self.engine.paging, self.settings
        if settings.block is not None and (paging is None or not _allowed_block(settings.block, paging.multiple_of)):
            wanted = (
                f"a power of two below or a multiple of {paging.multiple_of}" if paging else "an engine with blocks"
            )
            raise DomainError("--block-size", got=settings.block, wanted=f"{wanted} ({self.engine.name})")
        if settings.kv_cache_bytes is not None and self.memory.utilization is not None:
            got = "--kv-cache-bytes and --memory-utilization"
            raise DomainError("memory", got=got, wanted="one of them: the bytes are taken whatever the share says")

    @property
    def device_bytes(self) -> int:
        """Memory of a device: as given, or as much of it as the engine plans with."""
        given = self.memory.total_bytes
        return given if given is not None else self.hardware.memory.total(self.engine.budget.total)

    @property
    def batching(self) -> Batching:
        """The engine's default limits of a step on this device."""
        entry = "offline" if self.settings.offline else "server"
        for known in self.engine.batching:
            large = self.device_bytes >= known.memory_at_least and self.layout.tp >= known.ranks_at_least
            left_out = any(text in self.hardware.architecture for text in known.not_architectures)
            if known.entry in {None, entry} and large and not left_out:
                return known
        return self.engine.batching[-1]

    @property
    def longest_sequence(self) -> int:
        """Longest sequence that the engine plans for: its own limit or the model's, else that of the workload."""
        return self.max_model_len or self.model.max_context or self.workload.length

    @property
    def max_batched_tokens(self) -> int:
        """Tokens of one step: as given, a whole prompt where the engine does not cut those of this length, else the engine's default."""
        known = self.batching
        default = known.max_batched_tokens
        latent = known.whole_latent_prompts and any(
            isinstance(mixer, LatentAttention) for group in self.model.layers for mixer in group.attention
        )
        if latent or self.longest_sequence <= known.whole_prompts_up_to:
            default = max(default, self.longest_sequence)
        return self.settings.max_batched_tokens or default

    @property
    def cuts_prompts(self) -> bool:
        """Whether the longest prompts are cut into chunks."""
        return self.longest_sequence > self.max_batched_tokens

    @property
    def max_num_seqs(self) -> int | None:
        """Sequences that a replica runs at a time, or None where only memory limits them."""
        return self.settings.max_num_seqs or self.batching.max_num_seqs

    @property
    def step_tokens(self) -> int:
        """Tokens that are computed at once: a micro-batch where the engine cuts a step again, else all of a step."""
        return min(self.batching.micro_batch or self.max_batched_tokens, self.max_batched_tokens)

    @property
    def build(self) -> str:
        """The version of the engine: the one that was asked for, else that of its profile."""
        return self.engine.version or self.engine.name.partition("@")[2]

    @property
    def prompt_floor_s(self) -> float:
        """Least time of a step that holds prompt tokens: such steps are launched kernel by kernel."""
        timing = self.engine.timing
        return self.model.num_layers * (timing.expert_prompt_floor if self.has_experts else timing.prompt_floor)

    @property
    def has_experts(self) -> bool:
        """Whether tokens are routed to experts in any layer."""
        return any(isinstance(part, Moe) for group in self.model.layers for part in group.mlp)

    @property
    def scheduling(self) -> Scheduling:
        """The order in which the engine serves this model: what it adds for experts is in its overhead."""
        own = self.engine.scheduling
        if not (own.expert_request_overhead and self.has_experts):
            return own
        overhead = own.request_overhead + own.expert_request_overhead
        return replace(own, request_overhead=overhead, expert_request_overhead=0.0)

    @property
    def sequences_per_replica(self) -> int:
        """Requests that the fullest data-parallel replica serves at a time."""
        return divided(self.workload.concurrency, self.layout.dp)


def _allowed_block(block: int, multiple_of: int) -> bool:
    return block % multiple_of == 0 or (block < multiple_of and block.bit_count() == 1)
