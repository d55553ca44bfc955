"""How a model is divided over devices: tensor, pipeline, data, context and expert parallelism, and what one rank holds.

``devices = tp x pp x dp x cp``. The ``cp`` ranks of a context group hold the same weights and divide the tokens of each sequence: those
of a prompt while it is computed, and those of its cache (:mod:`.context_parallel`). Experts are divided over a group of ``ep`` ranks
inside the ``tp x dp`` ranks of a stage: with ``ep <= tp`` the experts are spread inside one replica (and each is cut ``tp / ep`` ways),
with ``ep > tp`` over ``ep / tp`` replicas that then work in step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import LayoutError
from ..models.spec import Attention, CompressedAttention, CrossAttention, LatentAttention, Moe, Recurrent

if TYPE_CHECKING:
    from ..models.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Layout:
    """A division over devices; all ones is a single device."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    cp: int = 1

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def expert_cut(self) -> int:
        """Into how many pieces one expert is cut."""
        return max(1, self.tp // self.ep) if self.ep > 1 else self.tp

    @property
    def replicas_per_expert_group(self) -> int:
        """How many data-parallel replicas share one set of experts."""
        return max(1, self.ep // self.tp)

    def __str__(self) -> str:
        """Name the sizes that are not one: ``tp 4, pp 2``."""
        named = [f"{name} {size}" for name in ("tp", "pp", "dp", "cp", "ep") if (size := getattr(self, name)) > 1]
        return ", ".join(named) or "one device"


SINGLE = Layout()


def divided(size: int, ways: int) -> int:
    """Size of the largest of ``ways`` nearly equal pieces: ceil(size / ways), in integers."""
    return -(-size // ways)


def kv_heads_per_rank(num_kv_heads: int, tp: int) -> int:
    """KV heads that one rank stores: max(1, ceil(g / t)); ranks beyond the number of heads hold copies.

    Source: formulas F3.8; vllm-project/vllm, vllm/config/model.py, get_num_kv_heads.
    """
    return max(1, divided(num_kv_heads, tp))


def check_layout(model: ModelSpec, layout: Layout, devices: int | None = None) -> None:
    """Refuse layouts that do not exist.

    Raises
    ------
    LayoutError : when tp x pp x dp x cp is not the number of devices, a stage would be empty, heads do not divide, tokens of a recurrent
        layer would be divided, or the expert group does not fit the ranks or the experts
    """
    if devices is not None and layout.devices != devices:
        context = f" x cp {layout.cp}" if layout.cp > 1 else ""
        got = f"tp {layout.tp} x pp {layout.pp} x dp {layout.dp}{context} = {layout.devices}"
        raise LayoutError("layout", got=got, wanted=f"a product of {devices}, the number of devices")
    if layout.pp > model.num_layers:
        raise LayoutError("--pp", got=layout.pp, wanted=f"at most {model.num_layers}, the number of layers")
    for heads in sorted(_head_counts(model)):
        if heads % layout.tp:
            hint = f"{_divisors(heads)} divide them"
            raise LayoutError(
                "--tp", got=layout.tp, wanted=f"a divisor of the {heads} heads of {model.name}", hint=hint
            )
    recurrent = any(isinstance(mixer, Recurrent) for group in model.layers for mixer in group.attention)
    if layout.cp > 1 and recurrent:
        wanted = f"1: tokens of the recurrent layers of {model.name} follow one another"
        raise LayoutError("--cp", got=layout.cp, wanted=wanted)
    _check_experts(model, layout)


def _check_experts(model: ModelSpec, layout: Layout) -> None:
    experts = [part.num_experts for group in model.layers for part in group.mlp if isinstance(part, Moe)]
    if layout.ep == 1:
        return
    if not experts:
        raise LayoutError("--ep", got=layout.ep, wanted=f"1: {model.name} has no experts")
    if layout.ep > min(experts):
        raise LayoutError("--ep", got=layout.ep, wanted=f"at most {min(experts)}, the number of experts")
    ranks = layout.tp * layout.dp
    if ranks % layout.ep or (layout.tp % layout.ep and layout.ep % layout.tp):
        wanted = f"a divisor or multiple of tp {layout.tp} that divides tp x dp = {ranks}"
        raise LayoutError("--ep", got=layout.ep, wanted=wanted)


def _head_counts(model: ModelSpec) -> set[int]:
    heads: set[int] = set()
    for group in model.layers:
        for mixer in group.attention:
            if isinstance(mixer, (Attention, LatentAttention, CompressedAttention, CrossAttention)):
                heads.add(mixer.num_heads)
            elif isinstance(mixer, Recurrent) and mixer.state is not None:
                heads.add(mixer.state.heads)
    return heads


def _divisors(number: int) -> str:
    return ", ".join(str(size) for size in range(1, min(number, 64) + 1) if number % size == 0)


def all_reduce_bytes(message_bytes: float, ranks: int) -> float:
    """Bytes that one rank sends in an all-reduce of a message: 2 (n-1)/n M.

    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md (bus bandwidth of AllReduce).
    """
    return 2 * (ranks - 1) / ranks * message_bytes


def all_to_all_bytes(message_bytes: float, ranks: int) -> float:
    """Bytes that one rank sends in an all-to-all of a message: (n-1)/n M.

    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md (bus bandwidth of AlltoAll).
    """
    return (ranks - 1) / ranks * message_bytes
