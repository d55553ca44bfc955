"""The memory of a device as a bar: what a sizing puts into it, side by side, as HTML with an inline drawing."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, NamedTuple

from ..quantities import show_bytes, show_count

if TYPE_CHECKING:
    from ..planner.memory import MemoryPlan

_WIDE, _HIGH = 1000.0, 36.0  # units of the drawing


class Part(NamedTuple):
    """A stretch of the bar: what it is, its bytes, and its colour among the page's."""

    name: str
    size: int
    colour: str


def parts_of(plan: MemoryPlan) -> tuple[Part, ...]:
    """What stands in memory, from the left; parts without a byte are left out.

    With what is free, or cannot be used, they add up to the memory of the device; where too much was asked for they exceed it.
    """
    cache = plan.sequences * plan.kv_bytes_per_sequence
    inside = plan.weights_bytes + plan.adapter_bytes + plan.activation_bytes + plan.non_torch_bytes + plan.graph_bytes
    free = max(0, plan.free_bytes)
    rest = max(0, plan.total_bytes - inside - cache - free)
    of = "sequence" if plan.sequences == 1 else "sequences"
    found = (
        Part("weights", plan.weights_bytes + plan.adapter_bytes, "s1"),
        Part("activations", plan.activation_bytes, "s4"),
        Part("runtime and graphs", plan.non_torch_bytes + plan.graph_bytes, "s5"),
        Part(f"cache of {show_count(plan.sequences)} {of}", cache, "s2"),
        Part("free for more cache", free, "s3"),
        Part("left alone", rest, "grid"),
    )
    return tuple(part for part in found if part.size > 0)


def memory_bar(plan: MemoryPlan) -> str:
    """The bar and its key; a line marks the end of the memory where the parts go beyond it."""
    parts = parts_of(plan)
    whole = max(plan.total_bytes, sum(part.size for part in parts))
    x, drawn = 0.0, []
    for part in parts:
        wide = _WIDE * part.size / whole
        # A gap of the paper's colour tells neighbours apart without colour.
        drawn.append(
            f'<rect x="{x:.2f}" y="0" width="{max(wide - 2, 0.5):.2f}" height="{_HIGH:g}" class="{part.colour}"/>'
        )
        x += wide
    if whole > plan.total_bytes:
        end = _WIDE * plan.total_bytes / whole
        drawn.append(f'<rect x="{end:.2f}" y="0" width="4" height="{_HIGH:g}" class="ink"/>')
    key = "".join(
        f'<li><span class="swatch {part.colour}"></span>{html.escape(part.name)}: {html.escape(show_bytes(part.size))}</li>'
        for part in parts
    )
    over = ""
    if whole > plan.total_bytes:
        over = (
            f'<li><span class="swatch ink"></span>end of the memory: {html.escape(show_bytes(plan.total_bytes))}</li>'
        )
    return (
        f'<svg class="bar" viewBox="0 0 {_WIDE:g} {_HIGH:g}" preserveAspectRatio="none" role="img"'
        f' aria-label="Memory per device">{"".join(drawn)}</svg><ul class="key">{key}{over}</ul>'
    )
