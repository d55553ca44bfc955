"""The fewest means that explain a claim together, at their mildest settings."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .claim_means import HALF, named_layout
from .claim_search import Combination, least, least_acceptance
from .claim_speeds import drafted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .claim_search import Mean, Search
    from .claim_speeds import Aid, Machine

_NEVER = frozenset(
    {
        "others_only_add_waiting",
        "figure_is_of_one_user",
        "no_cache_is_read",
        "no_narrower_format",
        "no_link_or_layout_is_known",
        "drafts_come_after_the_first_token",
    }
)


def combinations_of(s: Search, means: tuple[Mean, ...]) -> tuple[Combination, ...]:
    """The fewest means that explain a claim: those that do alone, else all pairs, else all triples ... at their mildest settings."""
    alone = [Combination((m.id,), m.setting, m.speed) for m in means if m.explains and m.speed is not None]
    if alone:
        return tuple(alone)
    usable = [m.id for m in means if m.reason not in _NEVER and m.id != "shorter_context"]
    for size in range(2, len(usable) + 1):
        found = (_together(s, ids) for ids in itertools.combinations(usable, size))
        if sized := tuple(each for each in found if each is not None):
            return sized
    return ()


def _together(s: Search, ids: tuple[str, ...]) -> Combination | None:
    """The mildest settings with which these means explain the claim; settings of the later ones are strained first."""
    layouts = s.layouts() if "devices" in ids else [s.base.layout]
    kvs = range(1, len(s.kv) + 1) if "kv_quantisation" in ids else range(1)
    formats = range(1, len(s.weights) + 1) if "weight_quantisation" in ids else range(1)
    start = replace(
        s.aid,
        acceptance=s.question.most_acceptance if "speculation" in ids else 0.0,
        weights=HALF if "sparsity" in ids else 1.0,
        cached=s.base.workload.prompt - 1 if "prefix_cache" in ids else 0,
    )
    for layout, kv, weights in itertools.product(layouts, kvs, formats):
        machine = s.machine(weights, kv, layout)
        for users in _rungs(s.users, machine.most_users) if "batching" in ids else (s.users,):
            aid = replace(start, users=users)
            if s.suffices(machine, aid):
                return _settled(s, ids, machine, aid)
    return None


def _rungs(users: int, most: int) -> Iterator[int]:
    rung = users * 2
    while rung < most:
        yield rung
        rung *= 2
    yield max(users, most)


def _settled(s: Search, ids: tuple[str, ...], machine: Machine, aid: Aid) -> Combination:
    """Name the settings, those that are continuous at the least that suffices."""
    setting: dict[str, Any] = {}
    if "devices" in ids:
        setting |= named_layout(machine.deployment.layout)
    if "kv_quantisation" in ids:
        setting["kv"] = machine.deployment.formats.kv.name
    if "weight_quantisation" in ids:
        setting["weights"] = machine.deployment.formats.name
    if "sparsity" in ids:
        setting["weights_share"] = aid.weights
    if "prefix_cache" in ids:
        setting["cached_tokens"] = aid.cached
    if "batching" in ids:
        users = least(lambda users: s.suffices(machine, replace(aid, users=users)), s.users, aid.users)
        aid = replace(aid, users=users or aid.users)
        setting["users"] = aid.users
    if "speculation" in ids:
        aid = replace(aid, acceptance=least_acceptance(s, machine, aid) or aid.acceptance)
        best = drafted(machine.nominal, s.question, aid.acceptance, machine.batch(aid.users), "whole")
        setting |= {"acceptance": aid.acceptance, "drafts": best.drafts, "draft_cost": s.question.draft_cost}
    return Combination(ids, setting, s.speed(machine, aid))
