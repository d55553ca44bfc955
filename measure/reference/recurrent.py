"""Recurrent layers of the reference transformer: a gated linear state of the spec's shape, with its projections and convolution.

The variants (Mamba, gated delta net, KDA, RWKV) wire their projections differently; a spec gives the shapes alone. Here all of them are
one layer that multiplies by the same matrices and keeps the same state: projections of the hidden size give features, the convolution
runs over some of them, and query, key, value and decay of the state are taken from these in order (from the start again where there are
too few). Products, bytes and state are those of the spec, the function is not any published one.

Sources: formula F2.11; Katharopoulos et al. 2020 (arXiv 2006.16236) for a state of keys by values; Yang et al. 2024 (arXiv 2312.06635).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from .tensors import vector

if TYPE_CHECKING:
    from ...models.spec import Recurrent
    from .caches import StateCache
    from .tensors import Maker


class RecurrentLayer:
    """The layer of :class:`~roofplan.models.spec.Recurrent`; tokens pass one after another, as in decoding."""

    def __init__(self, spec: Recurrent, hidden: int, make: Maker) -> None:
        self.spec, self.hidden = spec, hidden
        self.matrices = [(shape, make.linear(shape.inputs, shape.outputs)) for shape in spec.projections]
        self.small = vector(make, spec.vectors) if spec.vectors else None
        convolution = spec.convolution
        taps = (convolution.channels, convolution.kernel) if convolution else ()
        self.taps: Any = make.uniform(*taps, scale=convolution.kernel**-0.5) if convolution else None
        self.taps_bias = vector(make, convolution.channels) if convolution and convolution.bias else None

    @property
    def linears(self) -> tuple[Any, ...]:
        """The matrices."""
        return tuple(matrix for _, matrix in self.matrices)

    @property
    def vectors(self) -> tuple[Any, ...]:
        """The small tensors and the convolution's taps."""
        return tuple(tensor for tensor in (self.small, self.taps, self.taps_bias) if tensor is not None)

    def __call__(self, x: Any, cache: StateCache | None) -> Any:
        """One pass over new tokens; without a cache the state starts empty."""
        features = self._features(x)
        mixed = self._state(self._convolve(features, cache), cache)
        if self.small is not None:
            mixed = mixed * (1 + _taken(self.small, mixed.shape[-1]))
        out = torch.zeros_like(x)
        for shape, matrix in self.matrices:
            if shape.inputs != self.hidden or shape.outputs == self.hidden:
                found = matrix(_taken(mixed, shape.inputs))
                mixed = found if shape.outputs != self.hidden else mixed
                out = out + found if shape.outputs == self.hidden else out
        return out

    def _features(self, x: Any) -> Any:
        """Outputs of the projections of the hidden size, side by side; the input itself where there are none."""
        made = [m(x) for shape, m in self.matrices if shape.inputs == self.hidden and shape.outputs != self.hidden]
        return torch.cat(made, dim=-1) if made else x

    def _convolve(self, features: Any, cache: StateCache | None) -> Any:
        """A causal convolution over the first channels; its last inputs are kept."""
        convolution = self.spec.convolution
        if convolution is None:
            return features
        own = _taken(features, convolution.channels).transpose(1, 2)
        past = cache.inputs if cache is not None else None
        if past is None:
            past = own.new_zeros(*own.shape[:2], convolution.kernel - 1)
        line = torch.cat([past, own], dim=-1)
        if cache is not None:
            cache.inputs = line[..., own.shape[-1] :].clone()
        made = functional.conv1d(line, self.taps[:, None], self.taps_bias, groups=convolution.channels)
        return functional.silu(made).transpose(1, 2)

    def _state(self, features: Any, cache: StateCache | None) -> Any:
        """Decay the state, add key x value, read it with the query, token by token: S' = a S + k v^T, o = q S'."""
        state = self.spec.state
        if state is None:
            return features
        heads, wide, deep = state.heads, state.key_dim, state.value_dim
        parts = _taken(features, heads * (2 * wide + deep + 1)).split([heads * wide] * 2 + [heads * deep, heads], -1)
        query, key, value = (part.unflatten(-1, (heads, -1)) for part in parts[:3])
        decay = torch.sigmoid(parts[3])[..., None, None]
        key = functional.normalize(key, dim=-1)
        held = cache.state if cache is not None else None
        if held is None:
            held = torch.zeros(len(features), heads, wide, deep, device=features.device, dtype=torch.float32)
        read = []
        for token in range(features.shape[1]):
            added = key[:, token, :, :, None] * value[:, token, :, None, :]
            held = held * decay[:, token].float() + added.float()
            read.append((query[:, token, :, None, :] @ held.to(query.dtype))[:, :, 0])
        if cache is not None:
            cache.state = held
        return torch.stack(read, dim=1).flatten(2)


def _taken(features: Any, width: int) -> Any:
    """So many features in order, from the start again where there are too few."""
    have = features.shape[-1]
    if have < width:
        features = torch.cat([features] * -(-width // have), dim=-1)
    return features[..., :width]
