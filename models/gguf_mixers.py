"""What the attention and state-space tensors of one GGUF block describe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..errors import SpecError
from ..quantities import LARGEST_COUNT
from .families._parts import delta_attention, gated_delta_net, mamba1, mamba2
from .gguf import Array
from .spec import Attention, Indexer, LatentAttention, Recurrent

if TYPE_CHECKING:
    from .gguf import Header, Tensor, Value
    from .spec import Mixer


@dataclass(frozen=True, slots=True)
class Window:
    """A window, and whether it slides or is cut into chunks."""

    kind: Literal["sliding", "chunked"]
    size: int


@dataclass(frozen=True, slots=True)
class Keys:
    """The metadata of a file; keys are given without the architecture in front."""

    header: Header
    architecture: str

    def value(self, key: str) -> Value:
        """The value of a key, or None."""
        return self.header.metadata.get(f"{self.architecture}.{key}")

    def error(self, key: str, *, got: object, wanted: str) -> SpecError:
        """Make an error about a key."""
        return SpecError(f"{self.architecture}.{key}", got=got, wanted=wanted, where=self.header.name)

    def optional(self, key: str) -> int | None:
        """Read a whole number, zero or more, or None where it is absent; of an array, the one value that it repeats."""
        value = self.value(key)
        if isinstance(value, Array):
            distinct = set(value.values or ())
            if len(distinct) != 1:
                raise self.error(key, got=f"{len(distinct)} different values", wanted="one")
            value = distinct.pop()
        return None if value is None else self._whole(key, value)

    def count(self, key: str, *, largest: int = LARGEST_COUNT) -> int:
        """Read a whole number greater than zero.

        Raises
        ------
        SpecError : when it is missing, zero, or more than ``largest``
        """
        number = self.optional(key)
        if number is None or not 0 < number <= largest:
            got = "nothing" if number is None else number
            raise self.error(key, got=got, wanted=f"a whole number from 1 to {largest:,}")
        return number

    def at(self, key: str, layer: int, *, default: int) -> int:
        """Read the value for one layer of a key that may be given once or once a layer."""
        value = self.value(key)
        if not isinstance(value, Array):
            return default if value is None else self._whole(key, value)
        if value.values is None or layer >= len(value.values):
            raise self.error(key, got=f"{value.count} entries", wanted=f"numbers, one for layer {layer} too")
        return self._whole(key, value.values[layer])

    def _whole(self, key: str, value: Value) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_COUNT:
            shown = value if isinstance(value, (int, float)) else "a text"
            raise self.error(key, got=shown, wanted=f"a whole number from 0 to {LARGEST_COUNT:,}")
        return value


@dataclass(frozen=True, slots=True)
class Block:
    """The tensors of one layer, by their names without ``blk.N.``; methods take names without ``.weight``."""

    keys: Keys
    number: int
    tensors: dict[str, Tensor]

    def has(self, name: str) -> bool:
        """Whether there is a weight of this name."""
        return f"{name}.weight" in self.tensors

    def error(self, name: str, *, got: object, wanted: str) -> SpecError:
        """Make an error about a tensor."""
        return SpecError(f"blk.{self.number}.{name}.weight", got=got, wanted=wanted, where=self.keys.header.name)

    def sides(self, name: str) -> tuple[int, ...]:
        """The sides of a matrix: inputs, outputs, and (experts) copies.

        Raises
        ------
        SpecError : when there is no such tensor, or it has one side only
        """
        tensor = self.tensors.get(f"{name}.weight")
        if tensor is None or len(tensor.sides) < 2:
            got = "nothing" if tensor is None else "a vector"
            raise self.error(name, got=got, wanted="a matrix: the other tensors of the layer ask for one")
        return tensor.sides

    def inputs(self, name: str) -> int:
        """The contiguous side of a matrix."""
        return self.sides(name)[0]

    def outputs(self, name: str) -> int:
        """The second side of a matrix."""
        return self.sides(name)[1]

    def must_have(self, name: str, outputs: int) -> None:
        """Refuse a matrix that has not so many outputs."""
        if self.outputs(name) != outputs:
            raise self.error(name, got=f"{self.outputs(name)} rows", wanted=f"{outputs}, by the metadata")

    def share(self, name: str, amount: int, parts: int) -> int:
        """Divide an amount into equal parts, or say of which tensor that is not true."""
        if not parts or amount % parts:
            raise self.error(name, got=f"{amount} features", wanted=f"a multiple of {parts}")
        return amount // parts


def mixers_of(block: Block, hidden: int, window: Window | None, *, shares: bool) -> tuple[Mixer, ...]:
    """What mixes tokens in a layer: attention of one kind, a recurrent state, or both side by side.

    Raises
    ------
    SpecError : for kinds that roofplan does not read from GGUF, and tensors that contradict the metadata
    """
    for prefix, what in _UNREAD.items():
        if any(name.startswith(prefix) for name in block.tensors):
            raise block.error(prefix, got=f"a layer with {what}", wanted=_DESCRIBE)
    if block.keys.value("attention.compress_ratios") is not None:
        raise block.keys.error("attention.compress_ratios", got="compressed attention", wanted=_DESCRIBE)
    recurrent = _recurrent(block, hidden)
    if block.has("attn_kv_a_mqa"):
        return (_latent(block),)
    # Delta nets (KDA, gated) keep their projections under names of attention.
    is_delta_net = any(block.has(name) for name in ("ssm_f_a", "ssm_ba", "ssm_beta"))
    if not is_delta_net and (block.has("attn_q") or block.has("attn_qkv")):
        return (_attention(block, hidden, window, shares=shares), *recurrent)
    return recurrent


_DESCRIBE = "attention or a state-space layer (or describe the model in a spec, schema: roofplan/model/v1)"
_UNREAD = {
    "time_mix_": "a time mix (RWKV)",
    "shortconv.": "a short convolution (LFM2)",
    "cross_attn_": "cross attention",
}


# ------------------------------------------------------------------------------------------------ attention


def _attention(block: Block, hidden: int, window: Window | None, *, shares: bool) -> Attention:
    heads = block.keys.at("attention.head_count", block.number, default=0)
    kv_heads = block.keys.at("attention.head_count_kv", block.number, default=heads)
    if not heads or not kv_heads:
        got = f"attention tensors in block {block.number}, but {heads} heads and {kv_heads} KV heads"
        raise block.keys.error("attention.head_count", got=got, wanted="heads")
    width = _head_size(block, "key_length", "attn_k", kv_heads, window) or block.share("attn_q", hidden, heads)
    value_width = _head_size(block, "value_length", "attn_v", kv_heads, window) or width
    queries, keys, values = heads * width, kv_heads * width, kv_heads * value_width
    gate = block.has("attn_gate") and block.outputs("attn_gate") == queries
    if block.has("attn_qkv"):
        block.must_have("attn_qkv", queries + keys + values)
        projections: Literal["kv", "k", "none"] = "kv"
    else:
        # An output gate as wide as the queries may be part of their projection (Qwen3-Next).
        joined = block.outputs("attn_q") == 2 * queries
        gate = gate or joined
        block.must_have("attn_q", 2 * queries if joined else queries)
        projections = "kv" if block.has("attn_v") else "k" if block.has("attn_k") else "none"
        if "k" in projections:
            block.must_have("attn_k", keys)
        if "v" in projections:
            block.must_have("attn_v", values)
    if block.has("attn_output") and block.inputs("attn_output") != heads * value_width:
        wanted = f"{heads * value_width}, by the metadata"
        raise block.error("attn_output", got=f"rows of {block.inputs('attn_output')}", wanted=wanted)
    return Attention(
        kind=window.kind if window else "full",
        window=window.size if window else None,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=width,
        v_head_dim=value_width if value_width != width else None,
        qkv_bias=any(f"{name}.bias" in block.tensors for name in ("attn_q", "attn_qkv")),
        out_bias="attn_output.bias" in block.tensors,
        qk_norm=_qk_norm(block, width, queries),
        output_gate=gate,
        sinks=block.has("attn_sinks"),
        cache="shared" if shares else "own",
        projections=projections,
    )


def _head_size(block: Block, key: str, name: str, heads: int, window: Window | None) -> int | None:
    """The width of a head: said for windowed layers, said for all, or what the projection has."""
    said = block.keys.optional(f"attention.{key}_swa") if window else None
    said = said or block.keys.optional(f"attention.{key}")
    if said or not block.has(name):
        return said
    return block.share(name, block.outputs(name), heads)


def _qk_norm(block: Block, width: int, queries: int) -> bool | Literal["full"]:
    gain = block.tensors.get("attn_q_norm.weight")
    if gain is None:
        return False
    return "full" if gain.parameters == queries != width else True


def _latent(block: Block) -> LatentAttention:
    """Latent attention: all widths follow from the tensors and the number of heads."""
    heads = block.keys.at("attention.head_count", block.number, default=0)
    rank = block.keys.count("attention.kv_lora_rank")
    rope = block.outputs("attn_kv_a_mqa") - rank
    low_rank = block.has("attn_q_b")
    query = "attn_q_b" if low_rank else "attn_q"
    nope = block.share(query, block.outputs(query), heads) - rope
    split = block.has("attn_v_b")  # newer files have the two halves of kv_b apart, stacked by head
    value = block.outputs("attn_v_b") if split else block.share("attn_kv_b", block.outputs("attn_kv_b"), heads) - nope
    if rope < 0 or nope < 1 or value < 1:
        wanted = f"heads wider than a rotary key of {block.outputs('attn_kv_a_mqa')} - {rank}"
        raise block.error(query, got=f"{block.outputs(query)} rows for {heads} heads", wanted=wanted)
    return LatentAttention(
        kind="mla",
        num_heads=heads,
        kv_lora_rank=rank,
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        v_head_dim=value,
        q_lora_rank=block.inputs("attn_q_b") if low_rank else None,
        output_gate=block.has("attn_gate"),
        indexer=_indexer(block),
    )


def _indexer(block: Block) -> Indexer | None:
    """The scorer of sparse attention; a layer that has none of its own, in a model that has them, uses that of an earlier layer."""
    keys = block.keys
    if block.has("indexer.attn_k"):
        width = block.outputs("indexer.attn_k")
        heads = block.share("indexer.attn_q_b", block.outputs("indexer.attn_q_b"), width)
        return Indexer(num_heads=heads, head_dim=width, top_k=keys.count("attention.indexer.top_k"))
    if not all(keys.optional(f"attention.indexer.{key}") for key in ("head_count", "key_length", "top_k")):
        return None
    return Indexer(
        num_heads=keys.count("attention.indexer.head_count"),
        head_dim=keys.count("attention.indexer.key_length"),
        top_k=keys.count("attention.indexer.top_k"),
        shared=True,
    )


# ------------------------------------------------------------------------------------------------ states


def _recurrent(block: Block, hidden: int) -> tuple[Recurrent, ...]:
    """The state-space part of a layer, told apart by the tensors that only its kind has."""
    if block.has("ssm_f_a"):
        kernel = block.keys.count("ssm.conv_kernel")
        heads, width = block.keys.at("attention.head_count", block.number, default=0), block.keys.count("kda.head_dim")
        return (delta_attention(hidden, heads, width, kernel, full_rank_gate=not block.has("ssm_g_b")),)
    if block.has("ssm_ba") or block.has("ssm_beta"):
        return (_delta_net(block, hidden),)
    if block.has("ssm_x"):
        inner, rank = block.outputs("ssm_dt"), block.inputs("ssm_dt")
        state = block.share("ssm_x", block.outputs("ssm_x") - rank, 2)
        return (mamba1(hidden, inner, state, block.inputs("ssm_conv1d"), rank, norms=block.has("ssm_dt_norm")),)
    return (_mamba2(block, hidden),) if block.has("ssm_in") else ()


def _delta_net(block: Block, hidden: int) -> Recurrent:
    """Gated delta net (Qwen3-Next, 3.5): ``time_step_rank`` counts the value heads, ``group_count`` the key heads."""
    value_heads, key_heads = block.keys.count("ssm.time_step_rank"), block.keys.count("ssm.group_count")
    key_dim, values = block.keys.count("ssm.state_size"), block.keys.count("ssm.inner_size")
    keys, value_dim = key_heads * key_dim, block.share("ssm_out", values, value_heads)
    block.must_have("ssm_conv1d", 2 * keys + values)
    return gated_delta_net(hidden, key_heads, key_dim, value_heads, value_dim, block.inputs("ssm_conv1d"))


def _mamba2(block: Block, hidden: int) -> Recurrent:
    heads, groups = block.keys.count("ssm.time_step_rank"), block.keys.count("ssm.group_count")
    state, inner = block.keys.count("ssm.state_size"), block.inputs("ssm_out")
    block.must_have("ssm_in", 2 * inner + 2 * groups * state + heads)
    width, bias = block.share("ssm_out", inner, heads), "ssm_conv1d.bias" in block.tensors
    return mamba2(hidden, heads, width, groups, state, block.inputs("ssm_conv1d"), bias=bias)
