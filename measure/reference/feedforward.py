"""Feed-forward parts of the reference transformer: gated and plain MLPs, and mixtures of experts.

Of a mixture only the experts that some token chose are read, one after another, each with its tokens in one product.
Sources: formulas F2.1, F2.2, F2.10; Shazeer 2020 (arXiv 2002.05202) for gated units; Mixtral and DeepSeek-V3 configurations for experts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from .tensors import vector

if TYPE_CHECKING:
    from ...models.spec import Mlp, Moe
    from .linear import Linear
    from .tensors import Maker, Norm


class MlpPart:
    """Gated, down(silu(gate x) * up x), or plain, down(gelu(up x)); gate and up are one matrix."""

    def __init__(
        self, hidden: int, width: int, make: Maker, *, gated: bool, bias: bool = False, inner: int | None = None
    ) -> None:
        self.gated = gated
        self.up = make.linear(inner or hidden, width * (1 + gated), bias=bias)
        self.down = make.linear(width, inner or hidden, bias=bias)

    @classmethod
    def of(cls, spec: Mlp, hidden: int, make: Maker) -> MlpPart:
        """The part of a spec."""
        return cls(hidden, spec.intermediate_size, make, gated=spec.gated, bias=spec.bias)

    @property
    def linears(self) -> tuple[Linear, ...]:
        """The matrices."""
        return self.up, self.down

    @property
    def experts(self) -> tuple[Linear, ...]:
        """No matrices of routed experts."""
        return ()

    @property
    def vectors(self) -> tuple[Any, ...]:
        """No small tensors beside biases."""
        return ()

    def __call__(self, x: Any) -> Any:
        """Apply to every token."""
        wide = self.up(x)
        if not self.gated:
            return self.down(functional.gelu(wide))
        gate, up = wide.chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)


class MoePart:
    """A router chooses ``experts_per_token`` of the experts for each token; their outputs are weighed by its softmax over them."""

    def __init__(self, spec: Moe, hidden: int, make: Maker) -> None:
        self.spec = spec
        inner = spec.latent_size or hidden
        self.router = make.linear(hidden, spec.num_experts)
        self.router_bias = vector(make, spec.num_experts) if spec.router_bias else None
        self.correction = vector(make, spec.num_experts) if spec.correction_bias else None
        self.each = [
            MlpPart(hidden, spec.intermediate_size, make, gated=spec.gated, bias=spec.expert_bias, inner=inner)
            for _ in range(spec.num_experts)
        ]
        self.into = make.linear(hidden, inner) if spec.latent_size else None
        self.out_of = make.linear(inner, hidden) if spec.latent_size else None
        self.latent_norm: Norm | None = make.norm(inner) if spec.latent_size and spec.latent_norm else None
        self.shared: MlpPart | None = None
        self.shared_gate: Linear | None = None
        if spec.shared is not None:
            self.shared = MlpPart(hidden, spec.shared.intermediate_size, make, gated=spec.gated)
            self.shared_gate = make.linear(hidden, 1) if spec.shared.gate else None
        for small in (self.router, self.shared_gate):  # engines leave them in their type
            if small is not None:
                small.fixed = True
        self.touched: tuple[int, ...] = ()

    @property
    def linears(self) -> tuple[Linear, ...]:
        """The matrices that every token meets."""
        shared = self.shared.linears if self.shared else ()
        beside = (self.router, self.into, self.out_of, self.shared_gate)
        return (*(matrix for matrix in beside if matrix is not None), *shared)

    @property
    def experts(self) -> tuple[Linear, ...]:
        """The matrices of the routed experts."""
        return tuple(matrix for expert in self.each for matrix in expert.linears)

    @property
    def vectors(self) -> tuple[Any, ...]:
        """The small tensors beside biases."""
        norm = self.latent_norm.gain if self.latent_norm else None
        return tuple(v for v in (self.router_bias, self.correction, norm) if v is not None)

    def __call__(self, x: Any) -> Any:
        """Apply to every token; ``touched`` says afterwards which experts were read."""
        tokens = x.flatten(0, 1)
        chosen, weights = self._route(tokens)
        inner = tokens if self.into is None else self.into(tokens)
        out = torch.zeros_like(inner)
        self.touched = tuple(chosen.unique().tolist())
        for expert in self.touched:
            rows, place = (chosen == expert).nonzero(as_tuple=True)
            out.index_add_(0, rows, self.each[expert](inner[rows]) * weights[rows, place, None])
        if self.latent_norm is not None:
            out = self.latent_norm(out)
        if self.out_of is not None:
            out = self.out_of(out)
        if self.shared is not None:
            always = self.shared(tokens)
            out = out + (always if self.shared_gate is None else always * torch.sigmoid(self.shared_gate(tokens)))
        return out.view_as(x)

    def _route(self, tokens: Any) -> tuple[Any, Any]:
        """The experts of each token, and their weights."""
        scores = self.router(tokens)
        if self.router_bias is not None:
            scores = scores + self.router_bias
        ranked = scores if self.correction is None else scores + self.correction
        chosen = ranked.topk(self.spec.experts_per_token, dim=-1).indices
        return chosen, scores.gather(1, chosen).softmax(-1)
