"""Levers: what one can change about a deployment, each a function that gives what it would bring here.

A lever is evaluated by changing the deployment (or its step times, where a technique is no setting of one) and asking the functions of
``size`` again; no gain stands in a table. A new lever is a function of a :class:`~roofplan.planner.levers.situation.Situation`, listed
here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .attention import flash_attention, grouped_queries, latents, windows
from .batching import chunked_prefill, continuous_batching, paged_cache
from .caching import kv_cache, prefix_cache
from .devices import layouts, other_devices
from .formats import kv_formats, weight_formats
from .speculation import draft_layer, lookup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .situation import Lever, Situation

LEVERS: tuple[Callable[[Situation], Iterator[Lever]], ...] = (
    weight_formats,
    kv_formats,
    prefix_cache,
    draft_layer,
    lookup,
    chunked_prefill,
    layouts,
    other_devices,
    kv_cache,
    continuous_batching,
    paged_cache,
    flash_attention,
    grouped_queries,
    latents,
    windows,
)
