"""Which number format each tensor class, the KV cache and the activations have, and which arithmetic follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from ..engines.spec import TensorClass
from ..errors import DomainError
from ..models.spec import Moe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..engines.spec import NumberFormat, StorageFormat
    from ..hardware.spec import HardwareSpec
    from ..models.spec import ModelSpec

TENSOR_CLASSES: tuple[TensorClass, ...] = get_args(TensorClass)
LINEAR_CLASSES: tuple[TensorClass, ...] = ("attention", "mlp", "experts")  # the matrices of the layers


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats of one deployment.

    ``name`` is what was asked for (``int8``, ``all=int8``, ``experts=mxfp4``).
    """

    name: str
    weights: Mapping[TensorClass, StorageFormat]
    kv: NumberFormat
    activations: NumberFormat

    def arithmetic(self, tensor_class: TensorClass, hardware: HardwareSpec) -> str:
        """Arithmetic type in which matrices of this class are multiplied: that of the wider operand.

        Weight-only formats compute in the activations' type; 8-bit rates need 8-bit weights and 8-bit activations.
        """
        return arithmetic_type(self.weights[tensor_class], self.activations, hardware)

    def attention_arithmetic(self, hardware: HardwareSpec) -> str:
        """Arithmetic type of attention: 16 bits (kernels that attend in 8 bits are rare and opt-in), or wider where activations are."""
        if self.activations.bits >= _ATTENTION_BITS:
            return hardware.arithmetic(self.activations.arithmetic)
        return hardware.arithmetic(_SIXTEEN_BITS)

    @property
    def activation_bytes(self) -> float:
        """Bytes of one activation between kernels: activations are quantised at a product's entry, so at least 16 bits."""
        return max(self.activations.bytes_per_element, _ATTENTION_BITS / 8)


_ATTENTION_BITS = 16
_SIXTEEN_BITS = ("bf16", "fp16", "fp32")


def arithmetic_type(weights: StorageFormat, activations: NumberFormat, hardware: HardwareSpec) -> str:
    """Choose the arithmetic of a product of two formats: the first of the wider one's list that the device has.

    Raises
    ------
    SpecError : when the device has none of them
    """
    wider = weights if weights.bits > activations.bits else activations
    return hardware.arithmetic(wider.arithmetic)


def main_class(model: ModelSpec) -> TensorClass:
    """Tensor class of most of the work: experts where there are any, else the MLP."""
    return "experts" if any(isinstance(part, Moe) for group in model.layers for part in group.mlp) else "mlp"


def named_classes(text: str) -> tuple[TensorClass, ...]:
    """Tensor classes that a weight format names (``experts=mxfp4``)."""
    names = {item.partition("=")[0].strip() for item in text.split(",") if "=" in item}
    return tuple(kind for kind in TENSOR_CLASSES if kind in names)


def parse_weights(
    text: str, load: Callable[[str], NumberFormat], covered_by_name: tuple[TensorClass, ...] = LINEAR_CLASSES
) -> dict[TensorClass, StorageFormat]:
    """Read a weight format: a name, or ``class=name`` pairs over it.

    ``int8`` quantises what the engine does (``covered_by_name``: usually the matrices of the layers) and leaves the rest at 16 bits;
    ``all=int8`` every tensor; ``int8,head=int8`` or ``experts=mxfp4`` name classes.

    Raises
    ------
    DomainError : for an unknown class or a malformed pair
    UnknownNameError : for an unknown format
    """
    rest = load("bf16")
    formats: dict[TensorClass, StorageFormat] = dict.fromkeys(TENSOR_CLASSES, rest)
    for item in text.split(","):
        name, separator, chosen = (part.strip() for part in item.partition("="))
        number_format = load(chosen if separator else name)
        if not separator:
            covered = TENSOR_CLASSES if number_format.covers == "all" else covered_by_name
        elif name == "all":
            covered = TENSOR_CLASSES
        else:
            covered = tuple(known for known in TENSOR_CLASSES if known == name)
        if not covered:
            wanted = f"all or one of {', '.join(TENSOR_CLASSES)}"
            raise DomainError("--weights", got=name, wanted=wanted)
        formats.update(dict.fromkeys(covered, number_format))
    return formats
