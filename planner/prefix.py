"""Prefix caching: which tokens of a prompt need not be computed again, what that saves, and how often it happens.

Three things are kept apart, since each has been taken for another (bug case 69): the tokens that a cache *holds* (:func:`reusable_tokens`),
how often requests *hit* them (:func:`lru_hit_rates`), and the work that the engine then really *skips* (:func:`suffix_prefill`).

Symbols: S prompt, H tokens of it that are cached, b tokens of a block, p_i popularity of a prefix, s_i its size, C size of the cache.
Sources: formulas F9.1 to F9.4; vllm-project/vllm, docs/design/prefix_caching.md at 01ff8bf; Zheng et al. 2023 (SGLang, radix trees).
Left out: recurrent layers, whose state can be taken up only where it was saved.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DomainError
from . import domain
from .costs import Load

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .kv_cache import CacheLayout
    from .paging import PagedCache
    from .step import Grouping, StepModel

_ROUNDING = 1e-12  # how far below a whole number of tokens a share of them may come to lie
_MOST_TOKEN = 2**512 - 1  # a token, or the hash of an image that stands for one
_MOST_ITEMS = 10**6

# ------------------------------------------------------------------------------------------------ what may be shared


@dataclass(frozen=True, slots=True)
class CacheKey:
    """All that must be equal before the cache of one request is right for another; get one with :meth:`of`.

    Keys and values depend on the weights (``model``, ``adapter``), are stored in a format (``kv_format``), carry their positions, and
    depend on every token before them. ``blocks`` covers the last two: the hash of a block covers its tokens and the hash before it.
    """

    model: str
    kv_format: str
    adapter: str | None
    block: int
    blocks: tuple[bytes, ...]

    @classmethod
    def of(
        cls, tokens: Iterable[int], block: int, *, model: str, kv_format: str, adapter: str | None = None
    ) -> CacheKey:
        """Make the key of a prompt: a chain of hashes, h_i = hash(h_(i-1), tokens of block i), of full blocks only (formula F9.1).

        ``model`` names the weights with their revision; ``tokens`` begin at position 0, images in them as hashes of their content;
        ``block`` 1 is a radix tree with pages of one token. Left out: salts, by which engines keep tenants apart.

        Raises
        ------
        DomainError : for a block of no tokens, a name that is no text, or a token that is no whole number: rounded ones would share what
            differs
        """
        domain.count("block", block)
        for what, name in (("model", model), ("kv_format", kv_format), ("adapter", adapter or "")):
            if not isinstance(name, str):
                raise DomainError(what, got=name, wanted="a name")
        chain, parent, inside = [], b"", hashlib.sha256()
        for position, token in enumerate(domain.several("tokens", tokens), 1):
            inside.update(b"%d," % domain.count("token", token, 0, _MOST_TOKEN))
            if position % block == 0:
                parent = hashlib.sha256(parent + inside.digest()).digest()
                chain.append(parent)
                inside = hashlib.sha256()
        return cls(model, kv_format, adapter, block, tuple(chain))


def why_not_shared(one: CacheKey, other: CacheKey) -> tuple[str, ...]:
    """Say why two requests share nothing; empty when they share a block at least.

    >>> base = CacheKey.of(range(64), 16, model="m", kv_format="bf16")
    >>> why_not_shared(base, CacheKey.of(range(64), 16, model="m", kv_format="fp8", adapter="lora"))
    ('adapter: None and lora', 'kv_format: bf16 and fp8')
    >>> why_not_shared(base, CacheKey.of(range(64), 16, model="m", kv_format="bf16"))
    ()
    """
    fields = ("model", "adapter", "kv_format", "block")
    differing = [
        f"{name}: {getattr(one, name)} and {getattr(other, name)}"
        for name in fields
        if getattr(one, name) != getattr(other, name)
    ]
    if not one.blocks or not other.blocks:
        differing.append("no full block: a prompt is shorter than a block")
    elif one.block == other.block and one.blocks[0] != other.blocks[0]:
        differing.append("positions: the first block holds other tokens, and what follows depends on it")
    return tuple(differing)


def shared_tokens(one: CacheKey, other: CacheKey) -> int:
    """Tokens from the start that two requests can share, in full blocks: b x equal hashes at the head of both chains (formula F9.1).

    >>> key = CacheKey.of([1, 2, 3, 4, 5, 6], 2, model="m", kv_format="bf16")
    >>> shared_tokens(key, CacheKey.of([1, 2, 3, 4, 9, 6], 2, model="m", kv_format="bf16"))
    4
    """
    if why_not_shared(one, other):
        return 0
    equal = 0
    for mine, theirs in zip(one.blocks, other.blocks, strict=False):
        if mine != theirs:
            break
        equal += 1
    return equal * one.block


def reusable_tokens(common: int, prompt: int, block: int = 1) -> int:
    """Tokens of a prompt that need not be computed, floor(min(common, S - 1) / b) b (formula F9.1).

    At least one token is always computed: its logits are what the request asks for. A prompt that is cached as a whole, in whole blocks, so
    computes its last block again. A radix tree with pages of one token is block 1.

    Parameters
    ----------
    common : tokens from the start that the cache holds as well
    prompt, block : tokens of the prompt, and of a block or page

    Raises
    ------
    DomainError : for a prompt or a block without a token, or more common tokens than the prompt has

    Source: vllm-project/vllm, vllm/v1/core/kv_cache_manager.py, get_computed_blocks; sgl-project/sglang, radix cache.

    >>> reusable_tokens(2005, 2200, 16), reusable_tokens(2005, 2200)
    (2000, 2005)
    >>> reusable_tokens(32, 32, 16)
    16
    """
    domain.count("prompt", prompt)
    domain.count("block", block)
    if domain.count("common", common, 0) > prompt:
        raise DomainError("common", got=common, wanted=f"at most the {prompt} tokens of the prompt")
    return min(common, prompt - 1) // block * block


def suffix_tokens(prompt: int, reused: int) -> int:
    """Tokens of a prompt that are left to compute, S - H, at least one (formula F9.1).

    Raises
    ------
    DomainError : for a prompt without a token, or a prefix that leaves none to compute

    >>> suffix_tokens(2200, 2000)
    200
    """
    domain.count("prompt", prompt)
    if domain.count("reused", reused, 0) >= prompt:
        raise DomainError("reused", got=reused, wanted=f"less than the {prompt} tokens of the prompt: one is computed")
    return prompt - reused


def held_bytes(cache: CacheLayout | PagedCache, prefixes: Iterable[int]) -> int:
    """Memory that cached prefixes hold while no request runs, sum of H c (formula F9.3).

    ``prefixes`` are tokens that are held apart: of prefixes with a common head, give the head once and the tails alone (exact for layers
    without a window). Left out: copies that an engine keeps of equal blocks computed at the same time (vLLM V1).

    Raises
    ------
    DomainError : for a prefix of a negative or broken number of tokens
    """
    held = (domain.count("prefixes", tokens, 0) for tokens in domain.several("prefixes", prefixes))
    return sum(cache.bytes_per_sequence(tokens) for tokens in held)


# ------------------------------------------------------------------------------------------------ what a hit saves


@dataclass(frozen=True, slots=True)
class SuffixPrefill:
    """A prefill without and with its cached prefix: seconds and FLOP of all tokens, and of those that are still computed."""

    computed_tokens: int
    whole_s: float
    suffix_s: float
    whole_flop: float
    suffix_flop: float

    @property
    def saved_s(self) -> float:
        """Seconds that one hit saves."""
        return self.whole_s - self.suffix_s

    @property
    def saved_flop_share(self) -> float:
        """Share of the prefill's FLOP that one hit saves."""
        return 1 - self.suffix_flop / self.whole_flop

    def mean_s(self, request_hit_rate: float) -> float:
        """Mean prefill time where a share h of the requests hits: h t_suffix + (1 - h) t_whole (formula F9.2).

        Raises
        ------
        DomainError : for a rate outside [0, 1]
        """
        domain.probability("request_hit_rate", request_hit_rate)
        return self.whole_s - request_hit_rate * self.saved_s


def suffix_prefill(
    model: StepModel, prompt: int, reused: int, *, skipped_share: float = 1.0, grouping: Grouping = "operators"
) -> SuffixPrefill:
    """What a cached prefix saves of a prefill in one pass: t(S, 0) - t(S - H, P = H) (formula F9.2).

    The suffix still attends to all that is before it, so that the share saved is not the share cached.

    Parameters
    ----------
    prompt, reused : S and H, in tokens
    skipped_share : share of the reused tokens that the kernel really skips, rounded down to whole ones. 0 is a cache with hits but without
        gain: the kernel pads to the full prompt (tenstorrent/tt-metal 44194: 95.1 % hits, and no request faster)
    grouping : as in :meth:`StepModel.step_s`; ``whole`` is the closed form

    Raises
    ------
    DomainError : for a prompt without a token, a prefix that leaves no token to compute, a share outside [0, 1], or a grouping that there
        is not

    Left out: looking the prefix up, fetching it from another memory, and prompts that are cut into chunks (see
    :func:`~roofplan.planner.chunked.chunked_prefill`).
    """
    domain.grouping(grouping)
    suffix_tokens(prompt, reused)
    # 0.7 x 10 tokens are 7, whatever a product of floats makes of it.
    share = domain.probability("skipped_share", skipped_share)
    skipped = min(reused, math.floor(share * reused * (1 + _ROUNDING)))
    computed = prompt - skipped
    return SuffixPrefill(
        computed,
        float(model.step_s(0, 0, chunk=prompt, grouping=grouping)),
        float(model.step_s(0, 0, chunk=computed, past=skipped, grouping=grouping)),
        float(model.totals(Load(0, 0, chunk=prompt))[0]),
        float(model.totals(Load(0, 0, chunk=computed, past=skipped))[0]),
    )


def suffix_floor_s(read_weight_bytes: float, prefix_bytes: float, bandwidth_bytes_per_s: float) -> float:
    """Time that no hit can go below: the pass still reads the weights and the prefix, (W_read + H c) / W_bw (formula F9.2).

    Raises
    ------
    DomainError : for no bandwidth, or negative bytes
    """
    read = domain.not_negative("read_weight_bytes", read_weight_bytes) + domain.not_negative(
        "prefix_bytes", prefix_bytes
    )
    return domain.finite("floor_s", read / domain.positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s))


def realised_saving(without_s: float, measured_s: float, expected_s: float) -> float:
    """Share of an expected saving that a measurement shows, (t_off - t_on) / (t_off - t_expected); below zero where hits cost time.

    Raises
    ------
    DomainError : for a time that is not above zero, or an expectation that saves nothing

    >>> round(realised_saving(184, 259, 37.3), 2)  # tenstorrent/tt-metal 44194, before the kernel was mended
    -0.51
    """
    domain.positive("without_s", without_s)
    domain.positive("measured_s", measured_s)
    if domain.positive("expected_s", expected_s) >= without_s:
        raise DomainError("expected_s", got=expected_s, wanted=f"less than the {without_s:g} s without a cache")
    return domain.finite("realised saving", (without_s - measured_s) / (without_s - expected_s))


# ------------------------------------------------------------------------------------------------ how often it happens


@dataclass(frozen=True, slots=True)
class HitRates:
    """Share of the requests that hit, and share of the prefix tokens that they find; time to first token follows the tokens."""

    requests: float
    tokens: float


def zipf_popularity(items: int, exponent: float) -> tuple[float, ...]:
    """Probabilities of a Zipf law, p_i = i^-a / sum of j^-a (formula F9.4); exponent 0 is uniform.

    Raises
    ------
    DomainError : unless there are one to a million items, or for a negative exponent

    >>> zipf_popularity(2, 1)
    (0.6666666666666666, 0.3333333333333333)
    """
    domain.count("items", items, 1, _MOST_ITEMS)
    domain.not_negative("exponent", exponent)
    weights = [rank**-exponent for rank in range(1, items + 1)]
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)


def characteristic_requests(
    popularity: Sequence[float], capacity: float, sizes: Sequence[float] | None = None
) -> float | None:
    """Che's characteristic time T of an LRU cache, in requests: sum of s_i (1 - exp(-p_i T)) = C (formula F9.4).

    A prefix that was not asked for during T requests has left the cache. None where all that is ever asked for fits.

    Parameters
    ----------
    popularity : probability that a request is for each prefix
    capacity : room of the cache, in the unit of the sizes
    sizes : tokens (or bytes) of each prefix; None: all are 1

    Raises
    ------
    DomainError : for probabilities that do not sum to 1, another number of sizes, a size that is not above zero, or a prefix larger than
        the cache

    Source: Che et al. 2002; Fricker, Robert, Roberts 2012 (arXiv 1202.3974). Assumes independent requests; prefixes that share a head are
    a tree and not independent, and engines free the tail blocks of a prefix first, so that the rate is an estimate.
    """
    return _characteristic(*_checked(popularity, capacity, sizes))


def lru_hit_rates(popularity: Sequence[float], capacity: float, sizes: Sequence[float] | None = None) -> HitRates:
    """Hit rates of an LRU cache by Che's approximation: sum of p_i (1 - exp(-p_i T)), and the same weighted by s_i (formula F9.4).

    Arguments, errors, source and assumptions are those of :func:`characteristic_requests`; first requests ever are not counted as misses.
    """
    pairs, room = _checked(popularity, capacity, sizes)
    lasting = _characteristic(pairs, room)
    cached = [1.0 if lasting is None else -math.expm1(-p * lasting) for p, _ in pairs]
    asked = domain.positive("mean size", math.fsum(p * size for p, size in pairs))
    return HitRates(
        min(1.0, math.fsum(p * held for (p, _), held in zip(pairs, cached, strict=True))),
        min(1.0, math.fsum(p * size * held for (p, size), held in zip(pairs, cached, strict=True)) / asked),
    )


def perfect_hit_rates(popularity: Sequence[float], capacity: float, sizes: Sequence[float] | None = None) -> HitRates:
    """Most that any cache of this size hits: it always holds what is asked for most per size (formula F9.4).

    Each of the two rates is a bound of its own, with the last prefix held in part; of equal sizes and a whole capacity C it is the sum of
    the C largest p_i. Arguments and errors are those of :func:`characteristic_requests`. Assumes independent requests.
    """
    pairs, room = _checked(popularity, capacity, sizes)
    asked = domain.positive("mean size", math.fsum(p * size for p, size in pairs))
    return HitRates(
        _most_held([(p, size) for p, size in pairs], room),
        _most_held([(p * size / asked, size) for p, size in pairs], room),
    )


def _characteristic(pairs: list[tuple[float, float]], capacity: float) -> float | None:
    """Solve for T by Newton's method: the left side is concave in T, so that no step from 0 on passes the root."""
    if math.fsum(size for p, size in pairs if p) <= capacity:
        return None
    found = 0.0
    while True:
        filled = math.fsum(-size * math.expm1(-p * found) for p, size in pairs)
        if filled >= capacity:
            return found
        slope = math.fsum(size * p * math.exp(-p * found) for p, size in pairs)
        later = found + (capacity - filled) / slope
        if later == math.inf:  # what is missing is asked for less than once in the largest number of requests
            return None
        if later <= found:
            return found
        found = later


def _most_held(gains: list[tuple[float, float]], capacity: float) -> float:
    """Largest sum of gains that a capacity holds, of (gain, size), the last one in part."""
    total, room = 0.0, capacity
    for gain, size in sorted(gains, key=lambda pair: pair[0] / pair[1], reverse=True):
        total += gain * min(1.0, room / size)
        room -= size
        if room <= 0:
            break
    return min(1.0, total)


def _checked(
    popularity: Sequence[float], capacity: float, sizes: Sequence[float] | None
) -> tuple[list[tuple[float, float]], float]:
    """Pairs of popularity and size, and the capacity: checked, and in units of the largest size, so that nothing overflows."""
    shares = domain.distribution("popularity", popularity)
    given = (1.0,) * len(shares) if sizes is None else domain.several("sizes", sizes)
    if len(given) != len(shares):
        raise DomainError("sizes", got=f"{len(given)} of them", wanted=f"{len(shares)}, one for each prefix")
    largest = max(domain.positive("sizes", size) for size in given)
    if domain.positive("capacity", capacity) < largest:
        raise DomainError("capacity", got=capacity, wanted=f"room for the largest prefix, {largest:g}")
    relative = [domain.positive("size over the largest", size / largest) for size in given]
    return list(zip(shares, relative, strict=True)), capacity / largest
