"""What a cache format makes of keys and values: the rounding of each format that engines keep caches in, on given arrays.

Bytes are those of the number formats; here stands what is read back. Left out: the rounding of scales that an engine keeps in 32 bits, and
of KIVI's 16-bit scales; rotations that some engines apply before they quantise.

Sources: OCP 8-bit floating point (OFP8) and microscaling formats (MX) v1.0 for the element types; ggml-org/llama.cpp,
ggml/src/ggml-quants.c for the blocks of its types; NVIDIA's description of NVFP4 for its two scales; vllm-project/vllm,
docs/features/quantization/quantized_kvcache.md for fp8 with a scale of one; Liu et al. 2024, KIVI (arXiv 2402.02750).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from ..errors import DomainError
from . import domain
from .quantisation_error import quantise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..engines.spec import NumberFormat
    from .quantisation_error import Matrix

    Rounding = Callable[[Matrix], Matrix]
    _Builder = Callable[[NumberFormat], "Scheme"]

# ------------------------------------------------------------------------------------------------ element types


@dataclass(frozen=True, slots=True)
class FloatType:
    """A floating-point type: fraction bits, the exponent of its least normal number, and its largest number, at which it saturates."""

    fraction_bits: int
    least_exponent: int
    largest: float


BF16 = FloatType(7, -126, 3.3895313892515355e38)
E4M3 = FloatType(3, -6, 448.0)
E2M1 = FloatType(1, 0, 6.0)


def round_float(values: Matrix, kind: FloatType) -> Matrix:
    """Round to a floating-point type, half to even, subnormal numbers included, saturating at the largest number.

    >>> import numpy as np
    >>> round_float(np.array([[0.3, 2.4, 5.0, -9.0]]), E2M1).tolist()
    [[0.5, 2.0, 4.0, -6.0]]
    """
    import numpy as np

    magnitude = np.abs(values)
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, kind.least_exponent)
    step = np.ldexp(1.0, exponent - kind.fraction_bits)
    rounded: Matrix = np.copysign(np.minimum(np.rint(magnitude / step) * step, kind.largest), values)
    return rounded


# ------------------------------------------------------------------------------------------------ groups along the channels of a token


def _in_groups(values: Matrix, group: int, read: Callable[[Matrix], Matrix]) -> Matrix:
    """Apply what is done to groups of a token's channels, one group a row."""
    return read(values.reshape(-1, group)).reshape(values.shape)


def _over(values: Matrix, scale: Matrix) -> Matrix:
    """Divide by scales of which some may be zero: those groups hold nothing but zeros."""
    import numpy as np

    return values / np.where(scale == 0, 1.0, scale)


def _half_away(values: Matrix) -> Matrix:
    """Round half away from zero, as C's roundf."""
    import numpy as np

    rounded: Matrix = np.trunc(values + np.copysign(0.5, values))
    return rounded


def _sixteen(scale: Matrix) -> Matrix:
    """A scale as it is kept in a 16-bit float; beyond its range it is no number."""
    import numpy as np

    with np.errstate(over="ignore", under="ignore"):
        kept = scale.astype(np.float16).astype(np.float64)
    return np.where(np.isinf(kept), np.nan, kept)


def _symmetric(groups: Matrix, bits: int, *, half_scale: bool) -> Matrix:
    """Codes from -(2^(b-1) - 1) to 2^(b-1) - 1, the largest magnitude at the end (q8_0, and 8 bits with a scale of a head)."""
    import numpy as np

    scale = np.abs(groups).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
    codes = _half_away(_over(groups, scale))
    read: Matrix = codes * (_sixteen(scale) if half_scale else scale)
    return read


def _signed_end(groups: Matrix, bits: int) -> Matrix:
    """Codes from -2^(b-1), at which the value of the largest magnitude lies whatever its sign, to 2^(b-1) - 1 (q4_0, q5_0)."""
    import numpy as np

    half = 2 ** (bits - 1)
    at = np.abs(groups).argmax(axis=1)[:, None]
    scale = np.take_along_axis(groups, at, axis=1) / -half
    codes = np.minimum(np.floor(_over(groups, scale) + half + 0.5), 2 * half - 1)
    read: Matrix = (codes - half) * _sixteen(scale)
    return read


def _offset(groups: Matrix, bits: int) -> Matrix:
    """Codes from 0 at the least to 2^b - 1 at the greatest value, with scale and offset in 16 bits (q4_1, q5_1)."""
    import numpy as np

    low = groups.min(axis=1, keepdims=True)
    scale = (groups.max(axis=1, keepdims=True) - low) / (2**bits - 1)
    codes = np.minimum(np.floor(_over(groups - low, scale) + 0.5), 2**bits - 1)
    read: Matrix = codes * _sixteen(scale) + _sixteen(low)
    return read


def _two_scales(values: Matrix, group: int) -> Matrix:
    """NVFP4: E2M1 elements, an E4M3 scale a block, and a scale of the array that uses the range of both."""
    import numpy as np

    whole = float(np.abs(values).max()) / (E2M1.largest * E4M3.largest)
    if not whole:
        return values

    def read(blocks: Matrix) -> Matrix:
        scale = round_float(np.abs(blocks).max(axis=1, keepdims=True) / E2M1.largest / whole, E4M3) * whole
        return round_float(_over(blocks, scale), E2M1) * scale

    return _in_groups(values, group, read)


# ------------------------------------------------------------------------------------------------ schemes

KeysPer = Literal["channel", "token", "none"]


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way to keep a cache: the format that its bytes are those of, and what it makes of keys and of values.

    Parameters
    ----------
    keys_per : what keys share a scale by: tokens of a channel, channels of a token (as values do), or nothing
    group : how many of them; one where a format has no groups
    words : the rounding, for people
    """

    format: NumberFormat
    keys: Rounding
    values: Rounding
    keys_per: KeysPer
    group: int
    words: str

    def packed_tokens(self, tokens: int) -> int:
        """Tokens that are quantised: all but the recent ones and, of groups along tokens, those that fill no group yet."""
        older = max(0, tokens - self.format.recent)
        return older - older % self.group if self.keys_per == "channel" else older

    def mean_bits(self, tokens: int) -> float:
        """Mean bits of an element of a cache of so many tokens, recent ones in 16 bits (formula F3.7)."""
        packed = max(0, tokens - self.format.recent)
        return (packed * self.format.bits_per_element + 16 * (tokens - packed)) / tokens

    def stored(self, keys: Matrix, values: Matrix) -> tuple[Matrix, Matrix]:
        """Keys and values as they are read back.

        Raises
        ------
        DomainError : for heads that the groups do not divide (see :meth:`divides`)
        """
        import numpy as np

        if not self.divides(keys.shape[1], values.shape[1]):
            raise DomainError("head_dim", got=keys.shape[1], wanted=f"a multiple of {self.group}")
        packed = self.packed_tokens(len(keys))

        def read(array: Matrix, rounding: Rounding) -> Matrix:
            recent = round_float(array[packed:], BF16)
            return np.concatenate([rounding(array[:packed]), recent]) if packed else recent

        return read(keys, self.keys), read(values, self.values)

    def divides(self, key_width: int, value_width: int) -> bool:
        """Whether the groups divide heads of these widths; groups along tokens divide any."""
        return value_width % self.group == 0 and (self.keys_per == "channel" or key_width % self.group == 0)


def _floats(kind: FloatType, words: str) -> _Builder:
    rounding = partial(round_float, kind=kind)
    return lambda kv: Scheme(kv, rounding, rounding, "none", 1, words)


def _blocks(read: Callable[[Matrix], Matrix], group: int, words: str) -> _Builder:
    """The same blocks of a token's channels for keys and for values."""
    rounding = partial(_in_groups, group=group, read=read)
    return lambda kv: Scheme(kv, rounding, rounding, "token", group, f"{words}, {group} channels of a token to a scale")


def _two_level(kv: NumberFormat) -> Scheme:
    words = "E2M1 in blocks of 16 with an E4M3 scale, and a scale of the array"
    rounding = partial(_two_scales, group=16)
    return Scheme(kv, rounding, rounding, "token", 16, words)


def _min_max(kv: NumberFormat) -> Scheme:
    group = kv.group or 1
    rounding: Rounding = partial(quantise, bits=kv.bits, per="token", group=group)
    words = f"{kv.bits} bits from the least value, {group} channels of a token to a scale"
    return Scheme(kv, rounding, rounding, "token", group, words)


def _by_channel(kv: NumberFormat) -> Scheme:
    group = kv.group or 1
    keys: Rounding = partial(quantise, bits=kv.bits, per="channel", group=group)
    values: Rounding = partial(quantise, bits=kv.bits, per="token", group=group)
    words = (
        f"{kv.bits} bits; keys by {group} tokens of a channel, values by {group} channels of a token;"
        f" the last {kv.recent} tokens as they are"
    )
    return Scheme(kv, keys, values, "channel", group, words)


# What vLLM (bf16, fp8, 8 bits with a scale of a head), TensorRT-LLM (nvfp4), llama.cpp (q types) and KIVI's own kernels keep caches in.
_BUILDERS: dict[str, _Builder] = {
    "bf16": _floats(BF16, "8 exponent and 7 fraction bits"),
    "fp8": _floats(E4M3, "E4M3 with a scale of one, saturating at 448"),
    "int8-head128": _blocks(partial(_symmetric, bits=8, half_scale=False), 128, "8 bits around zero"),
    "q8_0": _blocks(partial(_symmetric, bits=8, half_scale=True), 32, "8 bits around zero"),
    "q5_1": _blocks(partial(_offset, bits=5), 32, "5 bits from the least value"),
    "q5_0": _blocks(partial(_signed_end, bits=5), 32, "5 bits around zero"),
    "q4_1": _blocks(partial(_offset, bits=4), 32, "4 bits from the least value"),
    "q4_0": _blocks(partial(_signed_end, bits=4), 32, "4 bits around zero"),
    "int4-g32": _min_max,
    "nvfp4": _two_level,
    "kivi-4": _by_channel,
    "kivi-2": _by_channel,
}
SCHEME_NAMES = tuple(_BUILDERS)


def scheme_of(kv: NumberFormat) -> Scheme:
    """The scheme of a cache format.

    Raises
    ------
    DomainError : for a format whose rounding is not known here
    """
    build = _BUILDERS.get(kv.name)
    if build is None:
        raise DomainError("cache format", got=kv.name, wanted=f"one of {', '.join(SCHEME_NAMES)}")
    return build(kv)


def schemes(load: Callable[[str], NumberFormat]) -> Iterator[Scheme]:
    """All schemes, with formats as ``load`` finds them by name."""
    return (scheme_of(load(name)) for name in SCHEME_NAMES)


# ------------------------------------------------------------------------------------------------ arrays to try them on

OUTLIER_CHANNELS = (3 / 128, 40 / 128, 77 / 128, 101 / 128)  # where they lie among the channels of a head
OUTLIER_SHIFT = 20.0


@dataclass(frozen=True, slots=True)
class Heads:
    """Queries, keys and values of attention heads, one triple each, and where they come from."""

    arrays: tuple[tuple[Matrix, Matrix, Matrix], ...]
    source: str
    synthetic: bool = False

    @property
    def tokens(self) -> int:
        """Keys of a head."""
        return len(self.arrays[0][1])


def outlier_heads(head_dim: int = 128, tokens: int = 1024, queries: int = 64, seed: int = 0) -> Heads:
    """A head whose keys have four outlier channels, as keys of real models do (formula F14.5).

    Keys, values and queries are drawn as standard normals, in that order, with numpy's default_rng; then 20 is added to or taken from keys
    in channels 3, 40, 77 and 101 of 128 (of other widths: at the same share of the width).

    Raises
    ------
    DomainError : for a size that is no whole number of at least 1, a seed below 0, or fewer than 8 channels
    """
    import numpy as np

    domain.count("head_dim", head_dim, 8)
    draw = np.random.default_rng(domain.count("seed", seed, 0))
    sizes = domain.count("tokens", tokens), tokens, domain.count("queries", queries)
    keys, values, asked = (draw.standard_normal((rows, head_dim)) for rows in sizes)
    channels = [int(share * head_dim) for share in OUTLIER_CHANNELS]
    keys[:, channels] += OUTLIER_SHIFT * np.array([1, -1, 1, -1])
    source = (
        f"synthetic (F14.5): {tokens:,} keys and values and {queries} queries of {head_dim} channels, standard normals of seed {seed};"
        f" keys in channels {', '.join(map(str, channels))} shifted by +20, -20, +20, -20"
    )
    return Heads(((asked, keys, values),), source, synthetic=True)
