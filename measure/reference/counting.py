"""Counting what a pass launches: torch's operations as they are dispatched, products and attention apart from all the small ones.

The planner takes for each layer as many small kernels and passes over its activations as an engine's profile says. Torch's eager
operations are not those of an engine; these counts say how many there are, so that predictions for the reference transformer need no
fitted constant.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..machine import Machine

PRODUCTS = frozenset({"_linear_pointwise", "linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "convolution"})
_ATTENTION = "scaled_dot_product"


@dataclass(frozen=True, slots=True)
class Launches:
    """What was dispatched.

    Parameters
    ----------
    products : matrix products and fused attention
    small : all else that computes or copies
    views : what only looks at memory in another way; the host's time for it is that of a small operation
    small_bytes : of the tensors that small operations read and write
    """

    products: int
    small: int
    views: int
    small_bytes: int


class _Count(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to mypy
    """Looks at each operation as it passes."""

    def __init__(self) -> None:
        super().__init__()
        self.products = self.small = self.views = self.small_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in PRODUCTS or _ATTENTION in name:
            self.products += 1
        elif _is_view(func):
            self.views += 1
        else:
            self.small += 1
            given = {id(each): each for each in (*_tensors(args), *_tensors((out,)))}
            self.small_bytes += sum(each.numel() * each.element_size() for each in given.values())
        return out


def count_launches(call: Callable[[], Any]) -> Launches:
    """Count what one call dispatches."""
    with _Count() as counted:
        call()
    return Launches(counted.products, counted.small, counted.views, counted.small_bytes)


def peak_bytes(call: Callable[[], Any], machine: Machine) -> int:
    """Most bytes that a call holds at a time beyond what was there before.

    On CUDA the allocator's own peak. Elsewhere the results of operations that live at once; what a fused kernel holds within itself is not
    seen.
    """
    if machine.kind == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated() - before)
    with _Live() as live:
        call()
    return int(live.most)


class _Live(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to mypy
    """Adds up results that are alive; a result's bytes are given back when nothing refers to it any more."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        # Packed matrices have no storage that could be looked at, and are no results.
        known = {each.untyped_storage().data_ptr() for each in _tensors(args) if not each.is_mkldnn}
        for each in _tensors((out,)):
            storage = each.untyped_storage()
            if storage.data_ptr() not in known:
                self.now += storage.nbytes()
                weakref.finalize(each, self._gone, storage.nbytes())
        self.most = max(self.most, self.now)
        return out

    def _gone(self, size: int) -> None:
        self.now -= size


def _is_view(func: Any) -> bool:
    """Whether the result shares the memory of an argument that it does not write."""
    returns = func._schema.returns  # noqa: SLF001 -- the only place where torch says it
    return any(each.alias_info is not None and not each.alias_info.is_write for each in returns)


def _tensors(values: Any) -> list[Any]:
    """Tensors among the arguments of an operation, those in lists too."""
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(value)
    return found
