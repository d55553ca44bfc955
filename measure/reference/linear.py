"""Matrices of the reference transformer: as they are, or quantised weight-only, with the bytes that they really store.

Weight-only: the matrix is multiplied out to the activations' type before each product. Nothing is fused, so that fewer bytes need not
mean less time on a machine without kernels of its own for the format; that is what the experiment is to show.

Sources: Dettmers et al. 2022, LLM.int8() (arXiv 2208.07339) for outlier columns; Dettmers et al. 2023, QLoRA (arXiv 2305.14314) for NF4;
GPTQ and AWQ checkpoints for groups with a packed zero point. Bytes follow the number formats of engines/formats.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import torch
from torch.nn import functional

from ...errors import DomainError

if TYPE_CHECKING:
    from ...engines.spec import NumberFormat

WeightFormat = Literal["int8-channel", "llm-int8", "int4-g32", "int4-g64", "int4-g128", "nf4"]
WEIGHT_FORMATS: tuple[WeightFormat, ...] = get_args(WeightFormat)

_NF4_BLOCK = 64
_NF4_OFFSET = 0.9677083  # probability of the outermost level: the mean of 1 - 1/32 and 1 - 1/30 (QLoRA, appendix E)
_OUTLIER_SHARE = 0.001  # of the columns (LLM.int8(): about 0.1 % of the features)


class Stored(Protocol):
    """How a matrix is stored: what it is read as, and the tensors that hold it."""

    def read(self, dtype: Any) -> Any:
        """The matrix, outputs by inputs, in a type."""
        ...

    @property
    def tensors(self) -> tuple[Any, ...]:
        """All tensors that are kept."""
        ...


class Dense:
    """A matrix as it is; on a CPU also in the order of oneDNN's products, once :meth:`pack` was called."""

    def __init__(self, weight: Any) -> None:
        self.weight = weight
        self._packed: Any = None

    def pack(self) -> bool:
        """Keep a copy in the order in which products read it, where there is such an order; says whether there is.

        Without it a product of a few rows reorders the matrix anew each time, which takes longer than the product.
        """
        self._packed = packed(self.weight)
        return self._packed is not None

    def product(self, x: Any, bias: Any = None) -> Any:
        """The product x W^T + b."""
        if self._packed is not None and x.dtype == self.weight.dtype:
            return packed_product(x, self._packed, bias)
        return functional.linear(x, self.read(x.dtype), bias)

    def read(self, dtype: Any) -> Any:
        """The matrix itself, cast where another type is asked for."""
        return self.weight.to(dtype)

    @property
    def tensors(self) -> tuple[Any, ...]:
        """The one tensor."""
        return (self.weight,)


class Int8Channel:
    """8 bits around zero with a 16-bit scale per output channel: w = code x scale, scale = max|w| / 127."""

    def __init__(self, weight: Any) -> None:
        self.codes, self.scale = _by_row(weight.float(), torch.float16)

    def read(self, dtype: Any) -> Any:
        """Multiply out."""
        return self.codes.to(dtype) * self.scale.to(dtype)

    @property
    def tensors(self) -> tuple[Any, ...]:
        """Codes and scales."""
        return self.codes, self.scale


class Int8Outliers:
    """8 bits with a 32-bit scale per output channel, and the columns of the largest entries in 16 bits.

    LLM.int8() finds the columns by the activations that meet them; here they are those of the largest weights, since random weights make no
    outlier features. The list of columns (4 bytes each) is kept beside.
    """

    def __init__(self, weight: Any, share: float = _OUTLIER_SHARE) -> None:
        count = outlier_columns(weight.shape[1], share)
        order = weight.float().abs().amax(dim=0).argsort(descending=True)
        self.columns = order[:count].sort().values.to(torch.int32)
        self._others = order[count:].sort().values
        self.outliers = weight[:, self.columns].to(torch.float16)
        self.codes, self.scale = _by_row(weight[:, self._others].float(), torch.float32)

    def read(self, dtype: Any) -> Any:
        """Multiply out, and put the columns back to their places."""
        whole = torch.empty(self.codes.shape[0], self.codes.shape[1] + len(self.columns), dtype=dtype)
        whole = whole.to(self.codes.device)
        whole[:, self._others] = self.codes.to(dtype) * self.scale.to(dtype)
        whole[:, self.columns.long()] = self.outliers.to(dtype)
        return whole

    @property
    def tensors(self) -> tuple[Any, ...]:
        """Codes, scales, the columns in 16 bits and which they are; the others follow from these."""
        return self.codes, self.scale, self.outliers, self.columns


class Int4Group:
    """4 bits in groups of inputs, each with a 16-bit scale and a packed 4-bit zero point: w = (code - zero) x scale."""

    def __init__(self, weight: Any, group: int) -> None:
        rows, inputs = weight.shape
        if inputs % group:
            raise DomainError("group", got=f"{inputs} inputs", wanted=f"a multiple of {group}")
        self._shape = (rows, inputs)
        groups = weight.float().reshape(rows, inputs // group, group)
        low = groups.amin(dim=2, keepdim=True).clamp(max=0)  # zero is one of the levels
        high = groups.amax(dim=2, keepdim=True).clamp(min=0)
        self.scale = ((high - low) / 15).to(torch.float16)
        step = torch.where(self.scale > 0, self.scale.float(), torch.ones_like(low))
        zero = (-low / step).round().clamp(0, 15)
        codes = ((groups / step).round() + zero).clamp(0, 15)
        self.codes, self.zeros = _pack(codes.to(torch.uint8)), _pack(_even(zero.to(torch.uint8).flatten()))

    def read(self, dtype: Any) -> Any:
        """Unpack and multiply out."""
        zero = _unpack(self.zeros)[: self.scale.numel()].reshape(self.scale.shape).to(dtype)
        return ((_unpack(self.codes).to(dtype) - zero) * self.scale.to(dtype)).reshape(self._shape)

    @property
    def tensors(self) -> tuple[Any, ...]:
        """Packed codes, scales, packed zero points."""
        return self.codes, self.scale, self.zeros


class NormalFloat4:
    """NF4: blocks of 64 along the rows, each weight the index of one of 16 levels, times the block's largest magnitude."""

    def __init__(self, weight: Any) -> None:
        if weight.numel() % _NF4_BLOCK:
            raise DomainError("weights", got=f"{weight.numel()} of them", wanted=f"a multiple of {_NF4_BLOCK}")
        self._shape = weight.shape
        blocks = weight.float().reshape(-1, _NF4_BLOCK)
        self.largest = blocks.abs().amax(dim=1, keepdim=True)
        self._levels = nf4_levels().to(weight.device)
        unit = blocks / torch.where(self.largest > 0, self.largest, torch.ones_like(self.largest))
        between = (self._levels[1:] + self._levels[:-1]) / 2
        self.codes = _pack(torch.bucketize(unit, between).to(torch.uint8))

    def read(self, dtype: Any) -> Any:
        """Look the levels up and multiply out."""
        return (self._levels.to(dtype)[_unpack(self.codes).int()] * self.largest.to(dtype)).reshape(self._shape)

    @property
    def tensors(self) -> tuple[Any, ...]:
        """Packed codes and the blocks' magnitudes; the 16 levels are a constant."""
        return self.codes, self.largest


def nf4_levels() -> Any:
    """The 16 levels of NF4: quantiles of a standard normal, seven below zero, zero, and eight above, scaled to [-1, 1].

    Source: QLoRA (arXiv 2305.14314), equation 4 and appendix E.
    """
    probabilities = [torch.linspace(_NF4_OFFSET, 0.5, count, dtype=torch.float64)[:-1] for count in (9, 8)]
    above, below = (torch.special.ndtri(each) for each in probabilities)
    levels = torch.cat([-below, torch.zeros(1, dtype=torch.float64), above]).sort().values
    return (levels / levels.abs().max()).float()


def outlier_columns(inputs: int, share: float = _OUTLIER_SHARE) -> int:
    """Columns that are kept in 16 bits: the share of the inputs, at least one."""
    return max(1, math.ceil(inputs * share))


def stored_as(name: WeightFormat | None, weight: Any) -> Stored:
    """Store a matrix in a format; None leaves it as it is.

    Raises
    ------
    DomainError : for a matrix that the groups of a format do not divide
    """
    match name:
        case None:
            return Dense(weight)
        case "int8-channel":
            return Int8Channel(weight)
        case "llm-int8":
            return Int8Outliers(weight)
        case "nf4":
            return NormalFloat4(weight)
    return Int4Group(weight, int(name.rpartition("g")[2]))


def format_of(name: WeightFormat, inputs: int, load: Any) -> NumberFormat:
    """The planner's number format of what is stored here: that of the catalogue, with the scale of a channel counted for its inputs.

    Parameters
    ----------
    load : finds a number format by name (:func:`roofplan.engines.load_format`)
    """
    known: NumberFormat = load(name)
    if name == "int8-channel":
        return replace(known, group=inputs)
    if name == "llm-int8":
        return replace(known, group=inputs, sixteen_bit_share=outlier_columns(inputs) / inputs)
    return known


_ROWS_PACKED_FOR = 8  # that oneDNN chooses its order for; products of more rows take it as well


def packed(weight: Any) -> Any:
    """A matrix in the order in which oneDNN's products on a CPU read it; None where torch does not offer it for this type and device.

    Source: pytorch/pytorch, aten/src/ATen/native/mkldnn/Linear.cpp, which torch's own compiler uses for weights that do not change.
    """
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return None
    operations = torch.ops.mkldnn
    if not hasattr(operations, "_reorder_linear_weight") or not hasattr(operations, "_linear_pointwise"):
        return None
    sixteen = weight.dtype == torch.bfloat16 and operations._is_mkldnn_bf16_supported()  # noqa: SLF001
    if weight.dtype != torch.float32 and not sixteen:
        return None
    return operations._reorder_linear_weight(weight, _ROWS_PACKED_FOR)  # noqa: SLF001


def packed_product(x: Any, weight: Any, bias: Any = None) -> Any:
    """The product x W^T + b with a matrix that :func:`packed` gave."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # noqa: SLF001


class Linear:
    """A product with a matrix: y = x W^T + b, the matrix stored in some format; ``fixed`` ones stay as they are (routers)."""

    def __init__(self, weight: Any, bias: Any = None) -> None:
        self.outputs, self.inputs = weight.shape
        self.fixed = False
        self.stored: Stored = Dense(weight)
        self.bias = bias

    def __call__(self, x: Any) -> Any:
        """Multiply; a stored format is read out in the type of the activations first."""
        if isinstance(self.stored, Dense):
            return self.stored.product(x, self.bias)
        return functional.linear(x, self.stored.read(x.dtype), self.bias)

    def pack(self) -> bool:
        """Pack a matrix that is not quantised (see :meth:`Dense.pack`)."""
        return isinstance(self.stored, Dense) and self.stored.pack()

    @property
    def weight(self) -> Any:
        """The matrix as it is read, in 32 bits where it is quantised."""
        return self.stored.weight if isinstance(self.stored, Dense) else self.stored.read(torch.float32)

    @property
    def parameters(self) -> int:
        """Number of parameters, the bias included."""
        return int(self.outputs * self.inputs + (0 if self.bias is None else self.bias.numel()))

    @property
    def matrix_bytes(self) -> int:
        """Bytes of the tensors that hold the matrix."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.stored.tensors)

    def store(self, name: WeightFormat | None) -> None:
        """Store the matrix in another format; it loses what the format does not hold."""
        self.stored = stored_as(name, self.weight)


def _by_row(weight: Any, scale_dtype: Any) -> tuple[Any, Any]:
    """Codes of 8 bits around zero and the scale of each row, rounded before the codes are."""
    scale = (weight.abs().amax(dim=1, keepdim=True) / 127).to(scale_dtype)
    step = torch.where(scale > 0, scale.float(), torch.ones_like(scale, dtype=torch.float32))
    return (weight / step).round().clamp(-127, 127).to(torch.int8), scale


def _pack(codes: Any) -> Any:
    """Two codes of 4 bits a byte."""
    return codes[..., ::2] | (codes[..., 1::2] << 4)


def _even(codes: Any) -> Any:
    """Codes with one more where their number is odd, so that they fill bytes."""
    return functional.pad(codes, (0, codes.numel() % 2))


def _unpack(packed: Any) -> Any:
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)
