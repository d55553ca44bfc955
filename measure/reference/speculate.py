"""Speculative decoding with two reference transformers: a draft proposes, the target verifies in one pass.

What comes out is distributed as the target's own output.

The rule keeps a draft x with probability min(1, p(x) / q(x)) and replaces the first one that it does not keep by a sample of
max(p - q, 0), normalised; after k kept ones it adds a sample of p. Rejected tokens are dropped from the caches by their length alone.

Sources: formulas F11.1 to F11.3; Leviathan et al. 2023 (arXiv 2211.17192); Chen et al. 2023 (arXiv 2302.01318). The same rule on given
distributions is tried in :mod:`roofplan.planner.draft_trials`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ...errors import DomainError
from ...models.spec import Attention, LatentAttention

if TYPE_CHECKING:
    from .caches import Cache
    from .model import Reference


@dataclass(frozen=True, slots=True)
class Round:
    """What a round of some sequences gave.

    Parameters
    ----------
    tokens : (sequences, k + 1): kept drafts, then the token that the target adds; what follows it is not to be read
    kept : drafts that were kept, of each sequence
    draft, target : q of each draft, and p of each draft and of the token after the last: (sequences, k, vocabulary) and (…, k + 1, …)
    """

    tokens: Any
    kept: Any
    draft: Any
    target: Any


def verify(draft: Any, target: Any, drafts: Any, random: Any) -> tuple[Any, Any]:
    """Apply the rule: how many drafts of each sequence are kept, and the token that follows them.

    Parameters
    ----------
    draft, target : q, (sequences, k, vocabulary), and p, (sequences, k + 1, vocabulary)
    drafts : the drafted tokens, (sequences, k)
    random : torch's generator
    """
    p, q = (each[:, : drafts.shape[1]].gather(2, drafts[..., None])[..., 0] for each in (target, draft))
    drawn = torch.rand(p.shape, generator=random, device=p.device, dtype=p.dtype)
    kept = (drawn * q < p).int().cumprod(dim=1).sum(dim=1)
    rows = torch.arange(len(kept), device=kept.device)
    at = target[rows, kept]
    beyond = torch.cat([draft, torch.zeros_like(draft[:, :1])], dim=1)[
        rows, kept
    ]  # after the last draft nothing is taken away
    rest = (at - beyond).clamp(min=0)
    empty = rest.sum(-1, keepdim=True) <= 0  # p equals q but for rounding, where nothing is rejected
    return kept, sample(torch.where(empty, at, rest), random)


def sample(weights: Any, random: Any) -> Any:
    """One token of each row, in proportion to weights."""
    return torch.multinomial(weights, 1, generator=random)[:, 0]


@dataclass(slots=True)
class Speculation:
    """Sequences that draft and verify together; they stay in step only for one round, unless there is one sequence.

    Parameters
    ----------
    target, draft : over the same vocabulary
    drafts : k, tokens that are drafted in a round
    temperature : of both distributions
    """

    target: Reference
    draft: Reference
    drafts: int
    temperature: float = 1.0
    seed: int = 0
    _caches: tuple[Cache, Cache] | None = field(default=None, init=False, repr=False)
    _seen: Any = field(default=None, init=False, repr=False)
    _random: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse models that cannot be rolled back.

        Raises
        ------
        DomainError : for vocabularies that differ, recurrent layers, or no draft
        """
        if self.target.spec.vocab_size != self.draft.spec.vocab_size:
            got = f"{self.draft.spec.vocab_size} and {self.target.spec.vocab_size} tokens"
            raise DomainError("draft", got=got, wanted="the vocabulary of the target")
        for model in (self.target, self.draft):
            kinds = {type(mixer) for group in model.spec.layers for mixer in group.attention}
            if kinds - {Attention, LatentAttention}:
                raise DomainError(
                    "draft", got="layers with a state", wanted="layers whose cache can be cut by its length"
                )
        if self.drafts < 1:
            raise DomainError("drafts", got=self.drafts, wanted="at least 1")
        self._random = torch.Generator(device=self.target.device)
        self._random.manual_seed(self.seed)

    def start(self, prompt: Any, room: int) -> None:
        """Take in prompts, (sequences, tokens), and make caches with room for so many more tokens.

        The last token of the prompt stays to be computed: it is the first that the next round feeds.
        """
        length = prompt.shape[1] + room + self.drafts + 1
        self._caches = (
            self.target.cache(len(prompt), length, rings=False),
            self.draft.cache(len(prompt), length, rings=False),
        )
        if prompt.shape[1] > 1:
            self.target(prompt[:, :-1], self._caches[0])
            self.draft(prompt[:, :-1], self._caches[1])
        self._seen = prompt

    def round(self) -> Round:
        """Draft k tokens, verify them, and keep what the rule keeps (of one sequence; of several, call it once).

        Raises
        ------
        DomainError : before :meth:`start`
        """
        if self._caches is None:
            raise DomainError("speculation", got="no prompt", wanted="start before a round")
        target_cache, draft_cache = self._caches
        drafted, q = self._drafted(draft_cache)
        new = torch.cat([self._seen[:, target_cache.length :], *drafted], dim=1)
        p = self._distribution(self.target(new, target_cache, every=True))
        drafts = torch.cat(drafted, dim=1)
        kept, following = verify(q, p, drafts, self._random)
        tokens = torch.cat([drafts, drafts[:, :1]], dim=1)
        tokens[torch.arange(len(kept), device=kept.device), kept] = following
        if len(kept) == 1:
            self._keep(tokens[:, : int(kept[0]) + 1])
        return Round(tokens, kept, q, p)

    def _drafted(self, cache: Cache) -> tuple[list[Any], Any]:
        new, drafted, q = self._seen[:, cache.length :], [], []
        for _ in range(self.drafts):
            q.append(self._distribution(self.draft(new, cache)))
            new = sample(q[-1][:, -1], self._random)[:, None]
            drafted.append(new)
        return drafted, torch.cat(q, dim=1)

    def _keep(self, tokens: Any) -> None:
        """Take tokens over; the caches hold all but the last, which the next round feeds."""
        assert self._caches is not None
        self._seen = torch.cat([self._seen, tokens], dim=1)
        known = self._seen.shape[1] - 1
        for cache in self._caches:
            cache.length = min(cache.length, known)

    def generate(self, prompt: Any, output: int) -> tuple[Any, int]:
        """At least ``output`` tokens after one prompt, and the rounds that they took."""
        self.start(prompt, output)
        rounds = 0
        while self._seen.shape[1] < prompt.shape[1] + output:
            self.round()
            rounds += 1
        return self._seen[:, prompt.shape[1] :], rounds

    def _distribution(self, logits: Any) -> Any:
        return (logits.float() / self.temperature).softmax(-1)
