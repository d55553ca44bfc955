"""The reference transformer as a whole: layers in order, caches made for it, passes, and what it is made of.

Built from a model spec with random weights, so that its figures are those of the shape: outputs mean nothing. Left out: parameters that
the spec counts without saying what they do (``other_parameters``), scaling of embeddings and logits, attention temperatures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.nn import functional

from ...errors import DomainError
from ...models.spec import Attention, CompressedAttention, CrossAttention, LatentAttention, Mlp, Recurrent
from .attention import CrossHeads, HeadAttention
from .caches import Cache, FixedCache, FullCache, LatentCache, PagedCache, RingCache, StateCache, place, places
from .feedforward import MlpPart, MoePart
from .latent import LatentHeads
from .linear import Linear
from .masks import Rotations
from .recurrent import RecurrentLayer
from .sparse import ALL, IndexedCache
from .tensors import Maker, vector

if TYPE_CHECKING:
    from ...models.spec import FeedForward, LayerGroup, Mixer, ModelSpec
    from .caches import Place, Seen
    from .linear import WeightFormat

Kind = Literal["contiguous", "paged"]


class Layer:
    """One layer: mixers and feed-forward parts, each behind a norm where the layer has as many, with residuals.

    Of one norm beside two kinds of parts both use it (parallel blocks); two lie before the parts, four around them; more follow the layer.
    """

    def __init__(self, group: LayerGroup, spec: ModelSpec, make: Maker) -> None:
        hidden, rotary = spec.hidden_size, not spec.learned_positions
        self.mixers = [_mixer(mixer, hidden, make, rotary=rotary) for mixer in group.attention]
        self.parts = [_part(part, hidden, make) for part in group.mlp]
        self.norms = [make.norm(hidden, bias=make.norm_bias) for _ in range(group.norms)]

    @property
    def linears(self) -> list[Linear]:
        """The matrices that every token meets."""
        return [matrix for part in (*self.mixers, *self.parts) for matrix in part.linears]

    @property
    def experts(self) -> list[Linear]:
        """The matrices of routed experts."""
        return [matrix for part in self.parts for matrix in part.experts]

    @property
    def vectors(self) -> list[Any]:
        """The small tensors, biases of matrices not among them."""
        own = [tensor for part in (*self.mixers, *self.parts) for tensor in part.vectors]
        return own + [tensor for norm in self.norms for tensor in norm.vectors]

    def __call__(self, x: Any, run: _Pass, caches: list[Any]) -> Any:
        """One pass."""
        before, between, after_one, after_two, last = self._places()
        if self.mixers:
            inner = before(x)
            mixed = _added([run.mix(mixer, inner, cache) for mixer, cache in zip(self.mixers, caches, strict=True)])
            if self.parts and len(self.norms) == 1:
                return x + _added([mixed, *(part(inner) for part in self.parts)])
            x = x + after_one(mixed)
        if self.parts:
            inner = between(x)
            x = x + after_two(_added([part(inner) for part in self.parts]))
        for norm in last:
            x = norm(x)
        return x

    def _places(self) -> tuple[Any, Any, Any, Any, list[Any]]:
        """Norms before and after the mixers and the parts, and the rest."""
        norms, both = self.norms, bool(self.mixers) and bool(self.parts)
        if len(norms) < 2 or not both:
            first = norms[0] if norms else _same
            return first, first, _same, _same, norms[1:]
        if len(norms) < 4:
            return norms[0], norms[1], _same, _same, norms[2:]
        return norms[0], norms[2], norms[1], norms[3], norms[4:]


class Reference:
    """A decoder of the shape of a spec.

    Parameters
    ----------
    spec : the shape; see :mod:`~roofplan.measure.reference.depth` for fewer layers of it
    dtype : of weights and activations (torch's float32 where none is given)
    device : torch's name of it; ``meta`` makes shapes without numbers
    seed : of the random weights
    fused : whether attention uses torch's kernel or plain products
    absorbed : whether latent attention is absorbed or expanded
    packed : whether matrices are kept in the order of the CPU's products beside, where there is one

    Raises
    ------
    DomainError : for a spec with layers that are not built here (compressed entries)
    """

    def __init__(
        self,
        spec: ModelSpec,
        dtype: Any = None,
        device: str = "cpu",
        *,
        seed: int = 0,
        fused: bool = True,
        absorbed: bool = True,
        packed: bool = False,
    ) -> None:
        check_built(spec)
        make = Maker(dtype, device, seed, spec.norm_bias)
        self.spec, self.dtype, self.device = spec, make.dtype, device
        self.fused, self.absorbed = fused, absorbed
        width, hidden = spec.table_width, spec.hidden_size
        self.table = make.uniform(spec.vocab_size, width, scale=width**-0.5 if spec.tied_embeddings else 1.0)
        self.positions = make.uniform(spec.learned_positions, hidden, scale=0.02) if spec.learned_positions else None
        # Before the layers, so that a model of fewer layers has the same table and head, as a draft of the same family.
        self.head = Linear(self.table) if spec.tied_embeddings else make.linear(width, spec.vocab_size)
        self.layers = [Layer(group, spec, make) for group in spec.layers for _ in range(group.count)]
        self.final = [make.norm(hidden, bias=spec.norm_bias) for _ in range(spec.final_norms)]
        self.head_bias = vector(make, spec.vocab_size) if spec.head_bias else None
        self.widen = make.linear(width, hidden) if width != hidden else None
        self.narrow = make.linear(hidden, width) if width != hidden else None
        self.packed = packed and all(matrix.pack() for matrix in (*self.linears, *self.experts))

    # -------------------------------------------------------------------------------------------- passes

    def __call__(self, tokens: Any, cache: Cache | None = None, *, every: bool = False) -> Any:
        """One pass over new tokens, (sequences, tokens): logits of the last token, or of all: (sequences, tokens, vocabulary).

        With a cache the tokens stand behind those that it holds, and are held from then on; without one they are all that there is.

        Raises
        ------
        DomainError : for more tokens than the cache, or the table of positions, has room for
        """
        with torch.inference_mode():
            return self._pass(tokens, cache, every)

    def _pass(self, tokens: Any, cache: Cache | None, every: bool) -> Any:
        count = tokens.shape[1]
        if cache is not None and cache.each is not None:
            at = places(cache.each, tokens.device)
        else:
            at = place(cache.length if cache is not None else 0, count, tokens.device)
        x = self._embed(tokens, at)
        run = _Pass(self, at)
        for index, layer in enumerate(self.layers):
            caches = cache.layers[index] if cache is not None else [None] * len(layer.mixers)
            x = layer(x, run, caches)
        if cache is not None:
            cache.length = at.end
            cache.each = None if cache.each is None else [length + 1 for length in cache.each]
        if not every:
            x = x[:, -1:]
        for norm in self.final:
            x = norm(x)
        logits = self.head(x if self.narrow is None else self.narrow(x))
        return logits if self.head_bias is None else logits + self.head_bias

    def _embed(self, tokens: Any, at: Place) -> Any:
        x = functional.embedding(tokens, self.table)
        x = x if self.widen is None else self.widen(x)
        if self.positions is None:
            return x
        if at.end > len(self.positions):
            raise DomainError("tokens", got=at.end, wanted=f"at most {len(self.positions)} learned positions")
        return x + self.positions[at.positions]

    def generate(self, tokens: Any, output: int, *, cached: bool = True) -> Any:
        """The likeliest ``output`` tokens after a prompt, with a cache or by a whole pass for each."""
        cache = self.cache(len(tokens), tokens.shape[1] + output) if cached else None
        seen, new = tokens, tokens
        for _ in range(output):
            new = self(new if cached else seen, cache)[:, -1].argmax(-1, keepdim=True)
            seen = torch.cat([seen, new], dim=1)
        return seen[:, tokens.shape[1] :]

    def tokens(self, sequences: int, count: int, seed: int = 0) -> Any:
        """Random tokens of the vocabulary."""
        random = torch.Generator().manual_seed(seed)
        return torch.randint(self.spec.vocab_size, (sequences, count), generator=random).to(self.device)

    # -------------------------------------------------------------------------------------------- caches

    def cache(
        self, sequences: int, tokens: int, *, kind: Kind = "contiguous", block: int = 16, rings: bool = True
    ) -> Cache:
        """A cache for so many sequences of so many tokens at most, allocated at once.

        Parameters
        ----------
        kind : ``paged`` lays keys and values out in blocks that are shuffled over a pool (of layers that keep all tokens)
        block : tokens of a block
        rings : whether windowed layers keep their window alone; rings hold sequences of one length only
        """
        return Cache(
            [
                [self._cache_of(mixer.spec, sequences, tokens, kind, block, rings) for mixer in layer.mixers]
                for layer in self.layers
            ]
        )

    def _cache_of(self, mixer: Mixer, sequences: int, tokens: int, kind: Kind, block: int, rings: bool) -> Any:
        main = self._main_cache(mixer, sequences, tokens, kind, block, rings)
        indexer = getattr(mixer, "indexer", None)
        if indexer is None or indexer.shared:
            return main
        return IndexedCache(main, LatentCache(self._empty(sequences, tokens, indexer.head_dim)))

    def _main_cache(self, mixer: Mixer, sequences: int, tokens: int, kind: Kind, block: int, rings: bool) -> Any:
        match mixer:
            case LatentAttention():
                return LatentCache(self._empty(sequences, tokens, mixer.kv_lora_rank + mixer.qk_rope_head_dim))
            case CrossAttention():
                return FixedCache()
            case Recurrent():
                return StateCache()
            case Attention():
                return self._heads_cache(mixer, sequences, tokens, kind, block, rings)
        raise TypeError(f"{type(mixer).__name__} has no cache")

    def _heads_cache(self, mixer: Attention, sequences: int, tokens: int, kind: Kind, block: int, rings: bool) -> Any:
        """The cache of keys and values by heads: a ring of the window, one piece, or blocks."""
        if mixer.cache == "shared":
            return _NO_CACHE

        def pair(rows: int, length: int) -> tuple[Any, Any]:
            keys, values = (
                self._empty(rows, mixer.num_kv_heads, length, width) for width in (mixer.head_dim, mixer.value_dim)
            )
            return keys, values

        if rings and mixer.most_tokens is not None:
            return RingCache(*pair(sequences, mixer.most_tokens), mixer.first_tokens)
        if kind == "contiguous":
            return FullCache(*pair(sequences, tokens))
        blocks = -(-tokens // block)
        order = torch.randperm(sequences * blocks, generator=torch.Generator().manual_seed(0))
        table = order.view(sequences, blocks).to(self.device)
        return PagedCache(*pair(sequences * blocks, block), table)

    def _empty(self, *shape: int) -> Any:
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    # -------------------------------------------------------------------------------------------- what it is made of

    @property
    def linears(self) -> list[Linear]:
        """The matrices that every token meets, the head among them."""
        beside = [matrix for matrix in (self.widen, self.narrow) if matrix is not None]
        return [matrix for layer in self.layers for matrix in layer.linears] + beside + [self.head]

    @property
    def experts(self) -> list[Linear]:
        """The matrices of routed experts."""
        return [matrix for layer in self.layers for matrix in layer.experts]

    @property
    def parameters(self) -> int:
        """Number of parameters, counted from the tensors; a tied head once."""
        matrices = sum(matrix.parameters for matrix in (*self.linears, *self.experts))
        if self.spec.tied_embeddings:
            matrices -= self.head.parameters
        beside = [self.table, self.positions, self.head_bias, *(t for norm in self.final for t in norm.vectors)]
        vectors = [tensor for layer in self.layers for tensor in layer.vectors]
        return int(matrices + sum(tensor.numel() for tensor in (*beside, *vectors) if tensor is not None))

    @property
    def matrix_bytes(self) -> int:
        """Bytes of the matrices that a step of any size reads: all but routed experts, which depend on the tokens."""
        return sum(matrix.matrix_bytes for matrix in self.linears)

    @property
    def touched_expert_bytes(self) -> int:
        """Bytes of the experts that the last pass read."""
        parts = [part for layer in self.layers for part in layer.parts if isinstance(part, MoePart)]
        chosen = [part.each[expert] for part in parts for expert in part.touched]
        return sum(matrix.matrix_bytes for expert in chosen for matrix in expert.linears)

    @property
    def stored(self) -> list[Linear]:
        """The matrices that weight formats apply to: those of the layers but for routers; head and tables stay as they are."""
        return [m for layer in self.layers for m in (*layer.linears, *layer.experts) if not m.fixed]

    def store(self, name: WeightFormat | None) -> None:
        """Store these matrices in a format."""
        for matrix in self.stored:
            matrix.store(name)


class _Pass:
    """What the layers of one pass share: the place of its tokens, their rotations, and keys that later layers look at again."""

    def __init__(self, model: Reference, at: Place) -> None:
        self._model, self._at, self._turn = model, at, Rotations(at.positions)
        self._shared: dict[tuple[Any, ...], Seen] = {}
        self._choice = ALL

    def mix(self, mixer: Any, x: Any, cache: Any) -> Any:
        """Run one mixer."""
        model = self._model
        if isinstance(mixer, CrossHeads):
            return mixer(x, cache, fused=model.fused)
        if isinstance(mixer, LatentHeads):
            out, self._choice = mixer(
                x,
                self._at,
                self._turn,
                cache,
                self._choice if mixer.spec.indexer else ALL,
                absorbed=model.absorbed,
                fused=model.fused,
            )
            return out
        if isinstance(mixer, RecurrentLayer):
            return mixer(x, cache)
        spec = mixer.spec
        key = spec.window, spec.num_kv_heads, spec.head_dim
        shared = self._shared.get(key)
        if spec.cache == "shared" and shared is None:
            raise DomainError("depth", got="a layer that shares a cache", wanted="a layer before it that owns one")
        choice = self._choice if spec.indexer else ALL
        out, seen, choice = mixer(x, self._at, self._turn, cache, shared, choice, fused=model.fused)
        self._choice = choice if spec.indexer else self._choice
        if spec.cache == "own":
            self._shared[key] = seen
        return out


class _NoCache:
    """The cache of a layer that reads another one's."""

    bytes = 0


_NO_CACHE = _NoCache()


def _same(x: Any) -> Any:
    return x


def _added(outputs: list[Any]) -> Any:
    """The sum of outputs, without the zero that ``sum`` begins with: it would be one more operation."""
    total = outputs[0]
    for output in outputs[1:]:
        total = total + output
    return total


def _mixer(mixer: Mixer, hidden: int, make: Maker, *, rotary: bool) -> Any:
    match mixer:
        case Attention():
            return HeadAttention(mixer, hidden, make, rotary=rotary)
        case LatentAttention():
            return LatentHeads(mixer, hidden, make)
        case CrossAttention():
            return CrossHeads(mixer, hidden, make)
        case Recurrent():
            return RecurrentLayer(mixer, hidden, make)
    raise TypeError(f"{type(mixer).__name__} is not built")


def _part(part: FeedForward, hidden: int, make: Maker) -> MlpPart | MoePart:
    return MlpPart.of(part, hidden, make) if isinstance(part, Mlp) else MoePart(part, hidden, make)


def check_built(spec: ModelSpec) -> None:
    """Refuse a spec with layers that are not built here.

    Raises
    ------
    DomainError : for compressed entries
    """
    if any(isinstance(mixer, CompressedAttention) for group in spec.layers for mixer in group.attention):
        wanted = "layers that the reference transformer has: heads, latents, a fixed memory, recurrent states"
        raise DomainError(f"model {spec.name}", got="compressed attention", wanted=wanted)
