"""Memory of LoRA adapters: room that an engine keeps for every adapter it may hold at a time.

Source: vllm-project/vllm 01235a4, vllm/lora/layers/base_linear.py: for each linear layer, slots of A (rank x inputs) and B (outputs x rank)
at the largest rank, one A and B for each matrix that a fused layer joins; what a layer does not divide over ranks is replicated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .parameters import layer_tensors

if TYPE_CHECKING:
    from ..models.spec import ModelSpec
    from .parallel import Layout

_FUSED = {"qkv": 3, "gate_up": 2, "shared.gate_up": 2}  # matrices that one layer joins: each has an A of its own
_ELEMENT_BYTES = 2  # adapters are in the model's 16 bits


def adapter_bytes(model: ModelSpec, layout: Layout, adapters: int, rank: int) -> int:
    """Bytes on one rank of the slots of so many adapters: slots x rank x sum over linear layers of (A inputs + B outputs) x 2 B.

    Known to be inexact: routed experts have none here, and the input sides of column layers are taken as replicated.
    """
    width = 0
    for layer in model.layers:
        for matrix in layer_tensors(layer, model, layout).matrices:
            if matrix.kind in {"attention", "mlp"}:
                width += layer.count * (_FUSED.get(matrix.name, 1) * matrix.inputs + matrix.outputs)
    return adapters * rank * width * _ELEMENT_BYTES // layout.pp
