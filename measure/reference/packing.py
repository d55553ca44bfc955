"""Keys and values in few bits, as tensors: min-max groups along the channels of a token or along the tokens of a channel, packed in bytes.

The rounding is that of the planner's quantiser (formula F14.1) but for the scale and the least value of a group, which are kept in 16 bits
as KIVI keeps them; the bytes are those of its formats: (bits + 32 / group) / 8 an element (formula F3.7).

Source: Liu et al. 2024, KIVI (arXiv 2402.02750).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ...engines.spec import NumberFormat
from ...errors import DomainError

if TYPE_CHECKING:
    from ...planner.quantisation_error import Per

_BITS = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class Packed:
    """An array (…, tokens, channels) in few bits.

    Parameters
    ----------
    codes : packed codes of the groups
    scale, low : of each group, in 16 bits
    shape : of the array, its last axes swapped where groups lie along tokens
    """

    codes: Any
    scale: Any
    low: Any
    shape: tuple[int, ...]
    bits: int
    per: Per

    def read(self, dtype: Any) -> Any:
        """Unpack and multiply out."""
        codes = _unpack(self.codes, self.bits).to(dtype)
        lines = (codes * self.scale.to(dtype) + self.low.to(dtype)).view(self.shape)
        return lines if self.per == "token" else lines.transpose(-1, -2)

    @property
    def bytes(self) -> int:
        """Bytes of codes, scales and least values."""
        return sum(t.numel() * t.element_size() for t in (self.codes, self.scale, self.low))


def pack(array: Any, bits: int, per: Per, group: int = 32) -> Packed:
    """Quantise an array of tokens by channels (its last two axes).

    Raises
    ------
    DomainError : for bits that do not fill bytes, or groups that do not divide the tokens (per channel) or the channels (per token)
    """
    lines = (array if per == "token" else array.transpose(-1, -2)).float().contiguous()
    if bits not in _BITS:
        raise DomainError("bits", got=bits, wanted=f"one of {', '.join(map(str, _BITS))}")
    if lines.shape[-1] % group or group * bits % 8:
        raise DomainError("group", got=f"{group} of {lines.shape[-1]}", wanted="a divisor that fills bytes")
    groups = lines.view(-1, group)
    low = groups.amin(-1, keepdim=True).to(torch.float16)
    scale = ((groups.amax(-1, keepdim=True) - low.float()) / (2**bits - 1)).to(torch.float16)
    step = torch.where(scale > 0, scale.float(), torch.ones_like(scale, dtype=torch.float32))
    codes = ((groups - low.float()) / step).round().clamp(0, 2**bits - 1).to(torch.uint8)
    return Packed(_pack(codes, bits), scale, low, tuple(lines.shape), bits, per)


def format_of(bits: int, group: int) -> NumberFormat:
    """The planner's number format of a packed array: a 16-bit scale and a 16-bit least value a group, as in kivi-2 and kivi-4."""
    return NumberFormat(
        schema="roofplan/format/v1",
        name=f"min-max-{bits}-g{group}",
        bits=bits,
        group=group,
        scale_bits=16,
        zero_bits=16,
        arithmetic=("bf16", "fp16", "fp32"),
        activations="bf16",
        source="formula F3.7",
    )


def _pack(codes: Any, bits: int) -> Any:
    """Several codes a byte, the first in the lowest bits."""
    each = 8 // bits
    packed = codes[..., ::each].clone()
    for place in range(1, each):
        packed |= codes[..., place::each] << (place * bits)
    return packed


def _unpack(packed: Any, bits: int) -> Any:
    each = 8 // bits
    if each == 1:
        return packed
    mask = 2**bits - 1
    return torch.stack([packed >> (place * bits) & mask for place in range(each)], dim=-1).flatten(-2)
