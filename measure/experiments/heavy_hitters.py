"""How much attention few tokens get, and what evicting the others does to the output (formulas F3.6, F14.4).

Heavy hitters are the tokens with the most weight, added up over the queries of a text (Zhang et al. 2023, H2O, arXiv 2306.14048). Random
weights give nearly even attention, which is the worst case of eviction; trained models have far heavier hitters. The synthetic head shows
attention that is uneven. Queries see all tokens. The measured change of the output is held against the bound 2 e max||v||.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...planner.attention import evicted_output_error_bound
from ...planner.kv_cache import evicted_live_tokens
from ...planner.kv_schemes import outlier_heads
from .attention import full_heads
from .bench import Bench, bench
from .kv_formats import heads_of_model

if TYPE_CHECKING:
    from ...models.spec import ModelSpec
    from ..machine import Machine
    from ..records import Record
    from ..timing import Limits

SHARES = (0.1, 0.2, 0.5)
TOKENS, QUICK_TOKENS = 512, 256


def run(
    machine: Machine,
    model: ModelSpec | None,
    limits: Limits,
    *,
    shares: tuple[float, ...] = SHARES,
    tokens: int | None = None,
    **options: Any,
) -> list[Record]:
    """Look at the weights of attention: records ``heavy_hitters.share`` and ``heavy_hitters.output_error`` (1).

    The share is the weight of the heaviest tokens among all; ``even`` among its parameters is what even attention would give them. The
    error is the largest change of an output over the queries, ``bound`` what formula F14.4 allows for that query.

    Parameters
    ----------
    shares : of the tokens that are kept
    tokens : of the text
    options : of :func:`~roofplan.measure.experiments.bench.bench`
    """
    own = bench(machine, model, limits, **options)
    begun = len(own.records)
    found = full_heads(own.spec)
    if found is None:
        own.say(f"heavy_hitters: {own.spec.name} has no layer that attends to all tokens with heads of keys and values")
        return []
    length = tokens or (QUICK_TOKENS if own.quick else TOKENS)
    sources = {
        "model": heads_of_model(own, length),
        "synthetic": outlier_heads(max(8, found[1].head_dim), length, 64).arrays[0],
    }
    for source, arrays in sources.items():
        for share in shares:
            _evict(own, source, arrays, share)
    return own.records[begun:]


def _evict(own: Bench, source: str, arrays: tuple[Any, Any, Any], share: float) -> None:
    """Keep the heaviest tokens of a head, and compare."""
    import numpy as np

    queries, keys, values = arrays
    scores = queries @ keys.T / np.sqrt(queries.shape[1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    kept = evicted_live_tokens(len(keys), share)
    heavy = np.argsort(-weights.sum(axis=0), kind="stable")[:kept]
    held = weights[:, heavy].sum(axis=1)
    evicted = weights[:, heavy] / held[:, None] @ values[heavy]
    change = np.linalg.norm(evicted - weights @ values, axis=1)
    norm = float(np.linalg.norm(values, axis=1).max())
    worst = int(change.argmax())
    bound = evicted_output_error_bound(min(float(1 - held[worst]), 1 - 1e-12), norm)
    parts = {"source": source, "kept_share": share, "kept_tokens": kept, "tokens": len(keys)}
    own.add("heavy_hitters.share", "1", float(held.mean()), parts | {"even": kept / len(keys)})
    own.add("heavy_hitters.output_error", "1", float(change[worst]), parts | {"bound": bound})
