"""The forms of latent attention (MLA): latents that queries are taken to, cached keys and values, or latents multiplied out in every step.

:class:`~roofplan.planner.costs.LatentScores` takes the faster one in every step; here stands what each costs, and where each wins.

Symbols: L context, s query tokens of one sequence in a step, A the FLOP of one expansion.
Sources: formula F2.8; deepseek-ai/DeepSeek-V3, inference/model.py; deepseek-ai/FlashMLA, docs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ..engines.profile import Entries
from . import domain
from .flop import latent_decode_flop
from .kv_cache import mixer_terms
from .parallel import divided

if TYPE_CHECKING:
    from ..models.spec import LatentAttention


OtherForm = Literal["expanded", "expanded_again"]


@dataclass(frozen=True, slots=True)
class LatentWork:
    """What latent attention of one layer does in one step, in one of its forms.

    Parameters
    ----------
    scores_flop : FLOP of scores and weighted values
    projection_flop : FLOP between latents and heads
    cache_bytes : bytes of the cache that are read
    expansion_bytes : bytes of keys and values that are written and read again on the way
    """

    scores_flop: int
    projection_flop: int
    cache_bytes: float
    expansion_bytes: float = 0.0

    @property
    def flop(self) -> int:
        """All FLOP."""
        return self.scores_flop + self.projection_flop

    @property
    def moved_bytes(self) -> float:
        """All bytes."""
        return domain.finite("moved_bytes", self.cache_bytes + self.expansion_bytes)

    @property
    def intensity(self) -> float:
        """FLOP of scores and values per byte of the cache."""
        return domain.finite("intensity", self.scores_flop / domain.positive("cache_bytes", self.cache_bytes))


@dataclass(frozen=True, slots=True)
class LatentForms:
    """The forms of latent attention.

    Parameters
    ----------
    absorbed : latents are cached, and queries and outputs are taken into their space
    expanded : keys and values of every head are cached
    expanded_again : latents are cached, and multiplied out to keys and values in every step
    """

    absorbed: LatentWork
    expanded: LatentWork
    expanded_again: LatentWork


def latent_forms(
    mixer: LatentAttention,
    context: int,
    *,
    batch: int = 1,
    queries: int = 1,
    kv_bytes: float = 2.0,
    activation_bytes: float = 2.0,
) -> LatentForms:
    """FLOP and bytes of one decode step of one layer of latent attention, in each form (formula F2.8).

        absorbed:        2 n_h s L (2 kv_r + d_r) + s A,    L (kv_r + d_r) b_kv
        expanded:        2 n_h s L (d_n + d_r + d_v) + s A, L n_h (d_n + d_r + d_v) b_kv
        expanded again:  2 n_h s L (d_n + d_r + d_v) + L A, L (kv_r + d_r) b_kv + 2 L n_h (d_n + d_r + d_v) b_a

    with A = 2 kv_r n_h (d_n + d_v), which takes a query into the latent space and its output out of it, or else expands one latent.
    Left out: the weights of these projections, which every form reads once; the mask among the s queries; an indexer.
    Source: deepseek-ai/DeepSeek-V3, inference/model.py; deepseek-ai/FlashMLA, docs.

    Parameters
    ----------
    mixer : shape of the layer; for one tensor-parallel rank, with the heads of that rank
    context : tokens of a sequence, the new ones included
    queries : new tokens of a sequence in the step, more than one where drafts are verified
    kv_bytes, activation_bytes : bytes of an element of the cache, and of expanded keys and values

    Raises
    ------
    DomainError : when a count is not a whole number of at least 1, the context is below the queries, or an element has no bytes
    """
    domain.count("batch", batch)
    domain.count("context", context, domain.count("queries", queries))
    kv, activation = domain.positive("kv_bytes", kv_bytes), domain.positive("activation_bytes", activation_bytes)
    flop = latent_decode_flop(
        mixer.num_heads,
        mixer.kv_lora_rank,
        mixer.qk_nope_head_dim,
        mixer.qk_rope_head_dim,
        mixer.v_head_dim,
        batch * context,
    )
    latents = batch * context * mixer_terms(mixer, 1)[0].elements * kv
    expanded = batch * context * mixer_terms(mixer, 1, entries=Entries(expanded_latents=True))[0].elements
    absorb = batch * queries * flop["absorb"]
    domain.finite("bytes", latents + expanded * kv + 2 * expanded * activation)
    return LatentForms(
        LatentWork(queries * flop["absorbed"], absorb, latents),
        LatentWork(queries * flop["expanded"], absorb, expanded * kv),
        LatentWork(queries * flop["expanded"], flop["expand"], latents, 2 * expanded * activation),
    )


def absorbed_context(mixer: LatentAttention, queries: int = 1) -> int | None:
    """Context from which absorbing takes no more FLOP than expanding all latents again: s A / (A - s D) (formula F2.8).

    D = 2 n_h (2 kv_r - d_n - d_v), what absorbing costs more per query and cached token. None where it never is, for s >= A / D.
    A whole prompt (s = L) is cheaper expanded wherever D > 0, as in every known model. The bound A / D is also that of ml-explore/mlx-lm
    (pull request 1817). The batch does not matter: it multiplies both sides.

    Raises
    ------
    DomainError : when queries is not a whole number of at least 1
    """
    one = latent_forms(mixer, domain.count("queries", queries), queries=queries)
    # At L = s both sides of s (a L + A) <= s e L + L A carry a factor s: what expanding costs here, less what absorbing costs more.
    saved = one.expanded_again.projection_flop - (one.absorbed.scores_flop - one.expanded_again.scores_flop)
    if saved <= 0:
        return None
    return max(queries, divided(queries * one.absorbed.projection_flop, saved))


def absorbed_query_limit(
    mixer: LatentAttention,
    context: int,
    ridge: float,
    other: OtherForm = "expanded_again",
    *,
    kv_bytes: float = 2.0,
    activation_bytes: float = 2.0,
) -> float | None:
    """Query tokens of a sequence up to which the absorbed form is not slower under the roof than another one (formula F2.8).

        max(FLOP_0 / (a - e), r bytes / a)

    with a and e the FLOP per query of the absorbed and the other form, FLOP_0 those of the other that do not depend on the queries, and
    bytes what the other moves: absorbing moves fewer bytes, and so loses only where it is compute-bound. The batch does not matter to
    the time (it multiplies both sides), but it does to memory: expanded caches hold fewer sequences. None where there is no limit, 0 where
    the latents are the larger cache (few heads on a rank). As in :func:`latent_forms`, weights of the projections are left out.
    Source: formula F1.3 with p = infinity for both forms.

    Parameters
    ----------
    context : cached tokens of the sequence, not raised by the queries
    ridge : ridge point in FLOP per byte, of achieved rates for a calibrated answer

    Raises
    ------
    DomainError : as in :func:`latent_forms`, when the ridge is not above zero, or for another form than there are
    """
    slope = domain.positive("ridge", ridge)
    domain.one_of("other", other, get_args(OtherForm))
    forms = latent_forms(mixer, context, kv_bytes=kv_bytes, activation_bytes=activation_bytes)
    rival = forms.expanded if other == "expanded" else forms.expanded_again
    if forms.absorbed.moved_bytes > rival.moved_bytes:
        return 0.0
    fixed = 0 if other == "expanded" else rival.projection_flop
    more = forms.absorbed.flop - (rival.flop - fixed)
    if more <= 0:
        return None
    return domain.finite("queries", max(fixed / more, slope * rival.moved_bytes / forms.absorbed.flop))
