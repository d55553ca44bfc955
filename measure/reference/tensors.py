"""Making the tensors of the reference transformer: random weights of a type on a device, and norms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from .linear import Linear

_EPSILON = 1e-6


@dataclass(slots=True)
class Maker:
    """Makes tensors: uniform weights whose products keep the size of what they multiply (variance 1 / inputs).

    On the device ``meta`` nothing is stored and only shapes exist, which is enough to count.
    """

    dtype: Any = None
    device: str = "cpu"
    seed: int = 0
    norm_bias: bool = False
    _random: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.dtype = self.dtype or torch.float32
        self._random = None
        if self.device != "meta":
            self._random = torch.Generator(device=self.device)
            self._random.manual_seed(self.seed)

    def uniform(self, *shape: int, scale: float) -> Any:
        """Uniform numbers of a standard deviation; drawn in 32 bits at least, so that every type has the same ones, rounded."""
        drawn = self.dtype if self.dtype.itemsize >= 4 else torch.float32
        if self._random is None:
            return torch.empty(shape, dtype=self.dtype, device=self.device)
        bound = scale * 3**0.5
        made = torch.empty(shape, dtype=drawn, device=self.device).uniform_(-bound, bound, generator=self._random)
        return made.to(self.dtype)

    def linear(self, inputs: int, outputs: int, *, bias: bool = False) -> Linear:
        """A matrix, and a bias where there is one."""
        weight = self.uniform(outputs, inputs, scale=inputs**-0.5)
        return Linear(weight, vector(self, outputs) if bias else None)

    def norm(self, width: int, *, bias: bool = False) -> Norm:
        """A norm of a width."""
        return Norm(torch.ones(width, dtype=self.dtype, device=self.device), vector(self, width) if bias else None)


class Norm:
    """Root-mean-square norm with a gain; with a bias, the norm of Ba et al. 2016 that also takes the mean away."""

    def __init__(self, gain: Any, bias: Any = None) -> None:
        self.gain, self.bias = gain, bias

    def __call__(self, x: Any) -> Any:
        """Norm over the last axis."""
        if self.bias is None:
            return functional.rms_norm(x, self.gain.shape, self.gain, _EPSILON)
        return functional.layer_norm(x, self.gain.shape, self.gain, self.bias, _EPSILON)

    @property
    def vectors(self) -> tuple[Any, ...]:
        """Gain, and bias where there is one."""
        return (self.gain,) if self.bias is None else (self.gain, self.bias)


def vector(make: Maker, width: int) -> Any:
    """A small vector of small numbers."""
    return make.uniform(width, scale=0.02)
