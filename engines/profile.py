"""How serving engines spend memory: what an engine profile says, as plain data that the planner works on.

A profile describes one engine from one version on. Memory of a device has parts (weights, activations, runtime, graphs); the profile says
from what a share is taken, which parts are paid out of the share, and how what is left becomes a cache.
"""

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..quantities import Bytes, Count, Fraction, Number, PositiveCount
from .spec import Origin, TensorClass
from .timing import Scheduling, Timing

_CONFIG: dict[str, Any] = {"extra": "forbid"}

Version = tuple[int, ...]
_VERSION = re.compile(r"[vb]?(\d{1,9}(?:\.\d{1,9}){0,3})", re.ASCII)

Part = Literal["weights", "activations", "runtime", "graphs"]
Entry = Literal["server", "offline"]


def parse_version(text: str) -> Version | None:
    """Read the numbers of a version (``0.8.5.post1``, ``v0.19``, ``b4701``); None where it starts with none.

    >>> parse_version("v0.8.5.post1")
    (0, 8, 5)
    """
    match = _VERSION.match(text.strip().lower())
    return tuple(int(part) for part in match[1].split(".")) if match else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareByRanks:
    """A share that holds from so many tensor-parallel ranks on."""

    ranks: PositiveCount
    share: Fraction
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesByRanks:
    """Bytes of one device that hold from so many tensor-parallel ranks on."""

    ranks: PositiveCount
    bytes: Bytes
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """What an engine leaves free by a formula, from which its default share follows: (total - reserve) / total, rounded to 0.001.

    ``constant`` + ``per_batched_token`` x tokens of a step + ``per_graph_row`` x largest batch of a graph + ``per_rank`` x devices, at
    least ``floor`` on devices above ``floor_above``.
    """

    constant: Bytes
    per_batched_token: Bytes
    per_graph_row: Bytes
    per_rank: Bytes
    floor: Bytes
    floor_above: Bytes
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


def _check_ranks(what: str, ranks: list[int]) -> None:
    """Refuse a table by ranks that leaves out one rank, or names a number twice."""
    if 1 not in ranks or len(set(ranks)) < len(ranks):
        raise ValueError(f"got {what} for {ranks} ranks, want one entry each, and one for a single rank")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How an engine divides the memory of a device.

        cache = share x (total - margin - parts ``before``) - parts ``within``

    Parts in neither list come on top: they must find room beside the share.

    Parameters
    ----------
    total : what is divided: the size that the driver's tools report, or the smaller one that a program sees
    share : the default share, by tensor-parallel ranks
    reserve : a formula instead, where the engine has one
    before, within : parts taken off before the share is taken, and out of the share
    margin : bytes that are never planned with
    graph_vendors : makers on whose devices graphs are captured and so have memory
    """

    total: Literal["reported", "visible"]
    share: tuple[ShareByRanks, ...]
    reserve: Reserve | None = None
    before: tuple[Part, ...] = ()
    within: tuple[Part, ...]
    margin: Bytes = 0
    graph_vendors: tuple[str, ...] = ("NVIDIA",)
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        _check_ranks("share", [entry.ranks for entry in self.share])
        taken = [*self.before, *self.within]
        if len(set(taken)) < len(taken):
            raise ValueError(f"got {', '.join(sorted(taken))} in before and within, want each part once")

    @property
    def takes_all(self) -> bool:
        """Whether there is no share: buffers are allocated as they are asked for, until memory is full."""
        return all(entry.share == 1 for entry in self.share) and not self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Peak of a step of T tokens, in elements of b_a bytes (the activations' own width), over the kinds of layers.

        sampling = R V (logit_bytes + logits b_a) + T b_a sampled_hidden H + constant
        forward  = T b_a (hidden H + width I / tp)
        experts  = T b_a k (expert_width I_e / tp + expert_hidden H)
        peak     = max(sampling, forward) + experts, or max(sampling, forward + experts), or the sum of all

    Parameters
    ----------
    rows : R: the sequences that the engine admits, those that are asked for, or the tokens of a micro-batch
    most_rows : most rows that are reserved, or null
    logit_bytes : bytes of the float32 copies of one logit
    logits : how often the logits are held at the width of the activations
    sampled_hidden, hidden, width, expert_width, expert_hidden : how often such vectors are held per token
    constant : bytes of workspaces
    join : whether forward and sampling share the same memory (the largest counts) or both count
    sampled_with_chunks : whether the sampler is profiled where prompts are cut into chunks
    in_place_experts : expert formats whose kernels need no buffers beside
    experts_stay : whether the experts' buffers are kept while sampling
    expert_tokens : most tokens that the experts compute at once, or null
    """

    rows: Literal["admitted", "asked", "micro_batch"]
    most_rows: PositiveCount | None = None
    logit_bytes: Number
    logits: Number = 0
    sampled_hidden: Number = 0
    constant: Bytes = 0
    hidden: Number
    width: Number
    expert_width: Number
    expert_hidden: Number = 0
    join: Literal["largest", "sum"]
    sampled_with_chunks: bool = True
    in_place_experts: tuple[str, ...] = ()
    experts_stay: bool = True
    expert_tokens: PositiveCount | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """Memory of captured graphs: constant + per_layer x layers + per_hidden x hidden size; none where graphs are off."""

    constant: Bytes
    per_layer: Bytes
    per_hidden: Bytes
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Default limits of a step on some devices, for one way to start the engine.

    Parameters
    ----------
    entry : a server, a program that calls the library, or null for both
    memory_at_least, ranks_at_least : total memory, and tensor-parallel ranks, from which it holds
    not_architectures : texts in the architecture of devices that it leaves out
    max_batched_tokens : tokens of one step; longer prompts are cut into chunks
    whole_prompts_up_to : longest max-model-len at which prompts are not cut: a step then takes a whole one
    whole_latent_prompts : prompts of models with latent attention are never cut
    max_num_seqs : sequences that run at a time, or null where only memory limits them
    micro_batch : tokens that are computed at once, where an engine cuts a step again
    graph_rows : largest batch for which a graph is captured
    """

    entry: Entry | None = None
    memory_at_least: Bytes = 0
    ranks_at_least: PositiveCount = 1
    not_architectures: tuple[str, ...] = ()
    max_batched_tokens: PositiveCount
    whole_prompts_up_to: Count = 0
    whole_latent_prompts: bool = False
    max_num_seqs: PositiveCount | None = None
    micro_batch: PositiveCount | None = None
    graph_rows: PositiveCount | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """How a cache is cut into blocks.

    Parameters
    ----------
    block : tokens of a block
    multiple_of : a block size is a multiple of so many tokens, or a power of two below it
    layers : how layers that keep different things live together: in equal groups that share one pool of equal blocks, each kind in a
        pool of its own, or all charged as if they kept every token
    uneven : with groups, the largest count of layers may exceed the smallest by this factor and still set the size of a group
    window_steps : steps of max-batched-tokens that a windowed layer keeps room for beside its window
    window_blocks : blocks beyond those
    state_blocks : blocks of a recurrent state of one sequence
    state_slots : states kept for one sequence where they have a pool of their own
    window_share : with pools, tokens of the pools of windowed layers per token of that of the others, or null where they share memory
    holds_longest : whether the engine refuses to start when one sequence of the longest length does not fit
    printed : how the number of tokens that a log prints comes about: blocks of a group x block, or concurrency x max-model-len
    """

    block: PositiveCount
    multiple_of: PositiveCount = 1
    layers: Literal["groups", "pools", "full"]
    uneven: Number = 1
    window_steps: Count = 1
    window_blocks: Count = 0
    state_blocks: PositiveCount = 1
    state_slots: PositiveCount = 1
    window_share: Number | None = None
    holds_longest: bool = False
    printed: Literal["blocks", "concurrency"] = "blocks"
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLatent:
    """Bytes that a latent and its rotary key take per token and layer in one cache format, where sparse attention reads them."""

    format: str
    bytes: PositiveCount
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """How an engine stores what a layer keeps, where that is not simply elements of the cache format.

    Parameters
    ----------
    expanded_latents : latents of MLA are expanded into keys and values of all heads
    latent_multiple_of : elements to which a latent with its rotary key is padded
    latent_values_beside : the latent is stored a second time, as value
    packed_latents, index_key_bytes : layouts of sparse attention, in bytes per token and layer
    state_bits : bits of an element of a recurrent state where the model's configuration states none
    """

    expanded_latents: bool = False
    latent_multiple_of: PositiveCount = 1
    latent_values_beside: bool = False
    packed_latents: tuple[PackedLatent, ...] = ()
    index_key_bytes: PositiveCount | None = None
    state_bits: PositiveCount = 32
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertPadding:
    """Multiples to which the matrices of experts in one format are padded when they are loaded."""

    format: str
    width: PositiveCount = 1
    hidden: PositiveCount = 1
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """How one engine divides device memory from one version on, and what a step costs beside the kernels.

    Parameters
    ----------
    name : ``engine`` or ``engine@version``: the first version that it holds for
    extends : the profile that this one changes, or empty
    checked_to : the last version that it was compared with; a newer one is answered with a warning
    version : the version that was asked for; filled in when a profile is loaded
    runtime : bytes per device that are not the framework's tensors (communication buffers, workspaces), by tensor-parallel ranks
    pipeline_runtime : the same for a stage of a pipeline without tensor parallelism, or null where it is no other
    context : bytes per device of the driver's context, which no budget of the engine counts, by tensor-parallel ranks
    batching : default limits of a step; the first that fits the device and the way to start holds
    paging : how the cache is cut, or null where every byte of the budget is used
    sixteen_bit : tensor classes that stay in 16 bits when a whole model is said to be in a narrower format
    launches_layers : a model is launched layer by layer, so that the constants of ``engines/streams`` hold where a device has them
    timing : what a step costs beside its kernels
    scheduling : in which order requests are served
    sources : the origin of each figure above, by its key or that of a group it stands in
    """

    schema: Literal["roofplan/engine/v1"]
    name: str
    title: str = ""
    extends: str = ""
    checked_to: str = ""
    version: str = ""
    budget: Budget
    runtime: tuple[BytesByRanks, ...]
    pipeline_runtime: Bytes | None = None
    context: tuple[BytesByRanks, ...] = ()
    activations: Activations
    graphs: Graphs | None = None
    batching: tuple[Batching, ...]
    paging: Paging | None = None
    entries: Entries = Entries()
    expert_padding: tuple[ExpertPadding, ...] = ()
    sixteen_bit: tuple[TensorClass, ...]
    launches_layers: bool = False
    timing: Timing
    scheduling: Scheduling
    sources: dict[str, Origin]
    notes: str = ""
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        for name in ("runtime", "context"):
            table = getattr(self, name)
            if table or name == "runtime":
                _check_ranks(name, [entry.ranks for entry in table])
        if not self.batching:
            raise ValueError("got no batching, want at least one entry")

    def origin(self, figure: str) -> Origin | None:
        """Find the origin of a figure, by its own key or by that of the group it stands in."""
        key = figure
        while key not in self.sources and "." in key:
            key = key.rpartition(".")[0]
        return self.sources.get(key)

    @property
    def engine(self) -> str:
        """The engine's name, without a version."""
        return self.name.partition("@")[0]

    @property
    def is_newer_than_known(self) -> bool:
        """Whether it was asked for by a version later than the last one that it was compared with."""
        return _is_later(self.version, self.checked_to)

    @property
    def is_newer_than_compared(self) -> bool:
        """Whether its version, asked for or its own, is later than the last one whose speed was compared."""
        return _is_later(self.version or self.name.partition("@")[2], self.newest_compared)

    @property
    def newest_compared(self) -> str:
        """The last version whose speed was compared; where that is not said, the last that was compared at all."""
        return self.timing.compared_to or self.checked_to


def _is_later(version: str, known: str) -> bool:
    asked, checked = parse_version(version), parse_version(known)
    return asked is not None and checked is not None and asked[: len(checked)] > checked
