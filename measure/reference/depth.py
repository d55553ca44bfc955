"""Fewer layers of a model, so that it fits a machine: the same layers, the same step of each, less of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import DomainError
from ...planner.parameters import count_parameters

if TYPE_CHECKING:
    from ...models.spec import ModelSpec


def at_depth(spec: ModelSpec, layers: int) -> ModelSpec:
    """The model with at most so many layers: groups in their proportions, at least one layer of each.

    Parts beside the language model, what a checkpoint stores and parameters without a description are left out, since they belong to the
    whole model. A model of few layers is given as it is.

    Raises
    ------
    DomainError : for fewer layers than the model has groups
    """
    if layers >= spec.num_layers:
        return spec
    if layers < len(spec.layers):
        raise DomainError("layers", got=layers, wanted=f"at least {len(spec.layers)}, one of each group of {spec.name}")
    counts = [1] * len(spec.layers)
    for _ in range(layers - len(counts)):
        # The group that is furthest below its share of the whole.
        behind = [
            group.count / spec.num_layers - have / layers for group, have in zip(spec.layers, counts, strict=True)
        ]
        room = [have < group.count for group, have in zip(spec.layers, counts, strict=True)]
        chosen = max(range(len(counts)), key=lambda index: (room[index], behind[index]))
        counts[chosen] += 1
    groups = tuple(replace(group, count=count) for group, count in zip(spec.layers, counts, strict=True))
    return replace(
        spec, name=f"{spec.name}-{layers}-layers", layers=groups, parts=(), checkpoint=(), other_parameters=()
    )


def layers_within(spec: ModelSpec, room_bytes: float, bytes_per_parameter: float) -> int:
    """Most layers of a model whose weights fit in so many bytes, tables and head counted; all where the whole model fits.

    Raises
    ------
    DomainError : when one layer of each group does not fit
    """
    least = len(spec.layers)
    if _bytes(spec, bytes_per_parameter) <= room_bytes:
        return spec.num_layers
    most = spec.num_layers - 1
    if most < least or _bytes(at_depth(spec, least), bytes_per_parameter) > room_bytes:
        need = f"{_bytes(at_depth(spec, least), bytes_per_parameter) / 1e9:.2f} GB for {least} layers of {spec.name}"
        raise DomainError("memory", got=f"room for {room_bytes / 1e9:.2f} GB of weights", wanted=need)
    while least < most:  # the most that fit, by halving
        middle = (least + most + 1) // 2
        if _bytes(at_depth(spec, middle), bytes_per_parameter) <= room_bytes:
            least = middle
        else:
            most = middle - 1
    return least


def _bytes(spec: ModelSpec, bytes_per_parameter: float) -> float:
    return count_parameters(spec).total * bytes_per_parameter
