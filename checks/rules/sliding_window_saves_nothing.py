"""Layers of the model attend to a window only, but the engine keeps every token for them as if they did not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...models.spec import Attention
from ...planner.memory import engine_cache, plan_capacity, plan_memory, rank_cache
from ...quantities import show_bytes, show_count
from ..finding import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...planner.deployment import Deployment
    from ..checked import Checked
    from ..finding import Finding

_SAVES = 0.9  # of the cache: what windows leave must be less than this to speak of savings


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the cache of a sequence as the engine keeps it with that of windows kept as such, and of no windows at all."""
    d = checked.deployment
    if not any(isinstance(mixer, Attention) and mixer.window for group in d.model.layers for mixer in group.attention):
        return
    from ...planner.levers.attention import without_windows

    length = d.workload.length
    windowed = rank_cache(d).bytes_per_sequence(length)
    whole = rank_cache(replace(d, model=without_windows(d.model))).bytes_per_sequence(length)
    if windowed > _SAVES * whole:
        return  # sequences of this length are hardly longer than the windows
    switch = checked.service.features.get("sliding_window")
    is_off = switch is not None and switch.value is False
    if not is_off and (d.engine.paging is None or d.engine.paging.layers != "full"):
        return  # the engine frees what has left a window: a whole prompt in one step fills it all the same, for that step
    kept = replace(d, model=without_windows(d.model)) if is_off else d
    if engine_cache(kept).bytes_per_sequence(length) < _SAVES * whole:
        return
    place, fix = checked.service.engine.place, f"a later version of {d.engine.engine}, which keeps windows as such"
    if switch is not None and is_off:
        place, fix = switch.place, f"leave out {switch.text or 'sliding_window: false'}"
    now, then = _sequences(kept), _sequences(_keeping_windows(d))
    message = (
        f"a sequence of {show_count(length)} tokens takes {show_bytes(engine_cache(kept).bytes_per_sequence(length))} on each device, as if"
        f" no layer of {d.model.name} had a window; kept to their windows it takes {show_bytes(windowed)}"
    )
    if then > now:
        message += f": {show_count(then)} sequences instead of {show_count(now)} run at a time"
    yield RULE.finding(
        checked,
        place,
        message,
        fix=fix,
        kept_bytes=engine_cache(kept).bytes_per_sequence(length),
        windowed_bytes=windowed,
    )


def _keeping_windows(d: Deployment) -> Deployment:
    """The same with windows kept as such, each kind of layers in blocks of its own."""
    paging = d.engine.paging
    if paging is None or paging.layers != "full":
        return d
    return replace(d, engine=replace(d.engine, paging=replace(paging, layers="pools")))


def _sequences(d: Deployment) -> int:
    return plan_capacity(d, plan_memory(d)).max_concurrency


RULE = Rule(
    id="sliding-window-saves-nothing",
    severity="warning",
    title="The windows of the model save no memory",
    why=(
        "Models with windows in most layers hold far more sequences, but only in an engine that frees what has left a window. "
        "Old versions, and some switches, keep every token in every layer."
    ),
    fix="Use a version of the engine that keeps windows as such, and leave out the flag that switches it off.",
    check=check,
)
