"""What roofplan knows of one model: the shapes of its layers, as plain data.

A model is a list of layer groups. A layer has mixers (attention of some kind, or a recurrent state) and feed-forward parts; each is one
of the classes below, so that every architecture is a description and none is a special case in the engine. What a family has beyond
that stands in ``other_parameters``.

Names of fields follow Hugging Face's configuration files. The classes are plain frozen dataclasses; the annotations let the file edge
validate YAML against them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from ..engines.spec import TensorClass
from ..quantities import Count, Fraction, PositiveCount

UNKNOWN_WEIGHTS = "unknown"  # the format of a configuration whose quantisation roofplan does not know
SCHEMA = "roofplan/model/v1"
_CONFIG: dict[str, Any] = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Tagged:
    """Mark a union whose members are told apart by one key (pydantic's discriminator, imported only when a schema is built)."""

    key: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Delegate to pydantic's Discriminator."""
        from pydantic import Discriminator

        build: Any = Discriminator(self.key).__get_pydantic_core_schema__
        return build(source, handler)


# ------------------------------------------------------------------------------------------------ mixers


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """The small scorer of sparse attention: it reads one key of all tokens and picks ``top_k`` of them.

    ``shared`` layers use the choice of an earlier layer: no weights, no keys.
    Sources: DeepSeek-V3.2-Exp, inference/model.py and config_671B_v3.2.json; MiniMax-M3 (blocks of tokens, index heads beside KV heads).
    """

    num_heads: PositiveCount
    head_dim: PositiveCount
    top_k: PositiveCount
    shared: bool = False
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention over keys and values: MHA, GQA (``num_kv_heads < num_heads``) or MQA (one KV head).

    ``full`` sees all tokens, ``sliding`` the last ``window`` ones, ``chunked`` those of the current chunk of ``window`` tokens.

    Parameters
    ----------
    head_dim : width of a query and key head; never derived from hidden_size / num_heads
    v_head_dim : width of a value head where it differs
    qk_norm : gain vectors on queries and keys: one per head dimension (true), or over the full width ("full")
    output_gate : a gate on the output, as wide as the queries, produced by the query projection
    sinks : one learned scalar per head
    cache : "own", or "shared" where the layer reads the keys and values of an earlier layer and stores none
    projections : which of the key and value projections have weights ("k" alone where values reuse the key projection)
    indexer : the scorer that picks the tokens which are attended, where attention is sparse
    first_tokens : tokens at the start of a sequence that a sliding layer goes on seeing beside its window (StreamingLLM, arXiv 2309.17453)
    kept_share : share of a sequence that an eviction policy keeps in the cache of a full layer (H2O, arXiv 2306.14048); null keeps all
    """

    kind: Literal["full", "sliding", "chunked"]
    num_heads: PositiveCount
    num_kv_heads: PositiveCount
    head_dim: PositiveCount
    v_head_dim: PositiveCount | None = None
    window: PositiveCount | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool | Literal["full"] = False
    output_gate: bool = False
    sinks: bool = False
    cache: Literal["own", "shared"] = "own"
    projections: Literal["kv", "k", "none"] = "kv"
    indexer: Indexer | None = None
    first_tokens: Count = 0
    kept_share: Fraction | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        if self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads:
            raise ValueError(f"got {self.num_heads} heads over {self.num_kv_heads} KV heads, want a multiple")
        if (self.window is None) != (self.kind == "full"):
            raise ValueError(
                f"got window {self.window}, want {'none for full' if self.window else 'one for ' + self.kind} attention"
            )
        if self.first_tokens and self.kind != "sliding":
            raise ValueError(f"got first_tokens in {self.kind} attention, want them beside a sliding window")
        if self.kept_share is not None and self.kind != "full":
            raise ValueError(f"got kept_share in {self.kind} attention, want it in full attention")

    @property
    def value_dim(self) -> int:
        """Width of one value head."""
        return self.v_head_dim or self.head_dim

    @property
    def most_tokens(self) -> int | None:
        """Most tokens that are seen and kept: the window and the first ones beside it; None where nothing limits them."""
        return None if self.window is None else self.window + self.first_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (MLA): one latent and one rotary key per token, shared by all heads.

    ``q_lora_rank`` is null where queries come from a plain projection; ``output_gate`` is a projection as wide as the output.
    Source: DeepSeek-V3, inference/model.py and config_671B.json.
    """

    kind: Literal["mla"]
    num_heads: PositiveCount
    kv_lora_rank: PositiveCount
    qk_nope_head_dim: PositiveCount
    qk_rope_head_dim: Count
    v_head_dim: PositiveCount
    q_lora_rank: PositiveCount | None = None
    output_gate: bool = False
    indexer: Indexer | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        if self.indexer is not None and not self.indexer.shared and self.q_lora_rank is None:
            raise ValueError("got an indexer without q_lora_rank, want the query latent that feeds it")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """Attention over compressed entries: one vector serves as key and value of all heads, one entry is kept for ``ratio`` tokens.

    Each layer also keeps a window of uncompressed tokens. Queries and outputs are low-rank, the output in groups. ``ratio`` 0 means that
    only the window is kept. ``overlap`` doubles the width of the compressor.
    Source: the tensor names and shapes of DeepSeek-V4 checkpoints; the totals of both published sizes are reproduced to the unit.
    """

    kind: Literal["compressed"]
    num_heads: PositiveCount
    head_dim: PositiveCount
    window: PositiveCount
    q_lora_rank: PositiveCount
    output_groups: PositiveCount
    output_rank: PositiveCount
    ratio: Count = 0
    overlap: bool = False
    indexer: Indexer | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        if self.indexer is not None and not self.ratio:
            raise ValueError("got an indexer without compressed entries, want a ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttention:
    """Attention over a fixed memory (an encoder's output, or image tokens): its keys and values do not grow with the text.

    ``source_size`` is the width of the memory where it differs from hidden_size; ``memory_tokens`` how many entries one sequence keeps.
    """

    kind: Literal["cross"]
    num_heads: PositiveCount
    num_kv_heads: PositiveCount
    head_dim: PositiveCount
    memory_tokens: PositiveCount
    source_size: PositiveCount | None = None
    qk_norm: bool = False
    bias: bool = False
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """A matrix from ``inputs`` to ``outputs`` features, applied to every token."""

    name: str
    inputs: PositiveCount
    outputs: PositiveCount
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A recurrent state of ``heads`` matrices of key_dim x value_dim.

    ``bits`` are those of an element as the model's configuration states them; where it states none, the engine decides.
    """

    heads: PositiveCount
    key_dim: PositiveCount
    value_dim: PositiveCount
    bits: PositiveCount | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    @property
    def elements(self) -> int:
        """Number of elements of one sequence in one layer."""
        return self.heads * self.key_dim * self.value_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A short causal convolution over ``channels``: it keeps the last ``kernel - 1`` inputs, in 16 bits."""

    channels: PositiveCount
    kernel: PositiveCount
    bias: bool = False
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent:
    """Linear attention, a state-space layer (Mamba, gated delta net, KDA, lightning) or a short convolution: a state of constant size.

    ``state`` is none where only the convolution's last inputs are kept. ``vectors`` counts the small parameters (decays, time-step biases,
    skip weights, norms).
    """

    kind: Literal["recurrent"]
    variant: str
    projections: tuple[Projection, ...]
    state: State | None = None
    convolution: Convolution | None = None
    vectors: Count = 0
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        if self.state is None and self.convolution is None:
            raise ValueError("got neither a state nor a convolution, want what the layer keeps of a sequence")


Mixer = Annotated[Attention | LatentAttention | CompressedAttention | CrossAttention | Recurrent, Tagged("kind")]

# ------------------------------------------------------------------------------------------------ feed-forward


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """A feed-forward part: ``gated`` has three matrices (gate, up, down), ``plain`` two."""

    kind: Literal["gated", "plain"]
    intermediate_size: PositiveCount
    bias: bool = False
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    @property
    def gated(self) -> bool:
        """Whether there is a gate matrix."""
        return self.kind == "gated"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedExpert:
    """An expert that every token uses; ``gate`` weighs its output by one learned unit."""

    intermediate_size: PositiveCount
    gate: bool = False
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """A mixture of ``num_experts`` experts of which a token uses ``experts_per_token``, and an optional shared one.

    Parameters
    ----------
    gated : whether experts (the shared one too) have a gate matrix
    latent_size, latent_norm : width in which routed experts work, where projections lead into and out of a smaller one; its norm
    router_bias, correction_bias : number-of-experts vectors beside the router matrix (a bias; a correction or scale of each expert)
    expert_bias : biases on the experts' matrices
    """

    kind: Literal["moe"]
    num_experts: PositiveCount
    experts_per_token: PositiveCount
    intermediate_size: PositiveCount
    gated: bool = True
    shared: SharedExpert | None = None
    latent_size: PositiveCount | None = None
    latent_norm: bool = False
    router_bias: bool = False
    correction_bias: bool = False
    expert_bias: bool = False
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    def __post_init__(self) -> None:
        if self.experts_per_token > self.num_experts:
            raise ValueError(f"got {self.experts_per_token} experts per token of {self.num_experts}, want at most all")


FeedForward = Annotated[Mlp | Moe, Tagged("kind")]

# ------------------------------------------------------------------------------------------------ the model


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """``count`` equal layers.

    ``attention`` lists the mixers of one layer (files may write a single one without a list; none means a layer without attention), ``mlp``
    its feed-forward parts, ``norms`` the gain vectors of hidden_size.
    """

    count: PositiveCount
    attention: tuple[Mixer, ...] = ()
    mlp: tuple[FeedForward, ...] = ()
    norms: Count = 2
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherParameters:
    """Parameters that no class above describes: how many, and whether a decode step reads them all."""

    name: str
    count: PositiveCount
    read_per_step: bool
    source: str
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part beside the language model (vision or audio tower, draft layers), not counted in the total.

    ``loaded`` says whether a server loads it without being asked, ``read_per_step`` whether a decode step then reads it.
    """

    name: str
    kind: Literal["vision", "audio", "mtp"]
    parameters: PositiveCount
    loaded: bool
    read_per_step: bool
    source: str
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a checkpoint stores of one tensor class, or of a part beside the language model: exact bytes, read from its header.

    ``types`` names the storage types, most used first. ``buffer`` are masks and rotary tables, ``duplicate`` second copies of a table.
    """

    kind: TensorClass | Literal["mtp", "vision", "buffer", "duplicate"]
    parameters: Count
    bytes: Count
    types: str
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelId:
    """A repository that has this architecture, and what it has of its own: a weight format, a longest context (null: that of the model)."""

    id: str
    weights: str | None = None
    max_context: PositiveCount | None = None
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the shape comes from: ``verbatim`` and ``preset`` configurations, or weaker kinds of evidence."""

    kind: Literal["verbatim", "preset", "transcribed", "class-default", "reconstructed", "gguf-log", "user"]
    source: str
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One model, as the planner sees it.

    Parameters
    ----------
    weights : the format of the published weights (``bf16``, ``experts=mxfp4``)
    tied_embeddings : the output head is the input table: stored once, but read (as a head) in every step
    embedding_size : width of the input table (and of a tied head) where it is not hidden_size
    learned_positions : rows of a learned position table, looked up, not multiplied
    final_norms : gain vectors after the last layer
    norm_bias : every norm has a bias beside its gain
    checkpoint : what the weight files really store, where their header was read; it outranks ``weights``
    assumed : what a reader had to take as given because the file does not say it; every answer repeats it as a warning
    """

    schema: Literal["roofplan/model/v1"]
    name: str
    title: str = ""
    ids: tuple[ModelId, ...] = ()
    aliases: tuple[str, ...] = ()
    sources: tuple[Source, ...]
    weights: str = "bf16"
    hidden_size: PositiveCount
    vocab_size: PositiveCount
    tied_embeddings: bool = False
    max_context: PositiveCount | None = None
    layers: tuple[LayerGroup, ...]
    embedding_size: PositiveCount | None = None
    learned_positions: Count = 0
    final_norms: Count = 1
    norm_bias: bool = False
    head_bias: bool = False
    other_parameters: tuple[OtherParameters, ...] = ()
    parts: tuple[Part, ...] = ()
    checkpoint: tuple[Stored, ...] = ()
    assumed: tuple[str, ...] = ()
    notes: str = ""
    __pydantic_config__: ClassVar[dict[str, Any]] = _CONFIG

    @property
    def table_width(self) -> int:
        """Width of a row of the input table and of the output head."""
        return self.embedding_size or self.hidden_size

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("got no layers, want at least one group")

    @property
    def num_layers(self) -> int:
        """Number of layers, those without attention included."""
        return sum(group.count for group in self.layers)

    def as_published(self, model_id: str) -> "ModelSpec":
        """The model with the weight format and the longest context of an id (those of the model where it says nothing)."""
        wanted = model_id.lower()
        known = next((known for known in self.ids if known.id.lower() == wanted), None)
        if known is None:
            return self
        return replace(self, weights=known.weights or self.weights, max_context=known.max_context or self.max_context)
