"""More tensor-parallel ranks than KV heads: the cache is stored several times."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import LayoutError
from ...models.spec import Attention, LatentAttention
from ...planner.fitting import fits
from ...planner.parallel import kv_heads_per_rank
from ...quantities import show_bytes, show_count
from ..finding import Rule
from ..spelling import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Count the copies of each KV head over the ranks."""
    d, service = checked.deployment, checked.service
    tp = d.layout.tp
    mixers = [mixer for group in d.model.layers for mixer in group.attention]
    heads = [mixer.num_kv_heads for mixer in mixers if isinstance(mixer, Attention)]
    place = service.place_of("tp", "devices", "model")
    if heads and tp > min(heads):
        fewest = min(heads)
        copies = kv_heads_per_rank(fewest, tp) * tp / fewest
        stored = checked.memory.kv_bytes_per_sequence * tp
        message = (
            f"{tp} ranks share {fewest} KV head{'s' if fewest > 1 else ''}, and each is stored {copies:g} times: a sequence of "
            f"{show_count(d.workload.length)} tokens takes {show_bytes(stored)}, where {show_bytes(stored / copies)} would do"
        )
        narrower = _narrower(checked, fewest)
        fix = (
            f"{setting(service, 'tp', fewest)}, {setting(service, 'dp', tp // fewest * d.layout.dp)}"
            if narrower
            else ""
        )
        yield RULE.finding(
            checked,
            place,
            message,
            fix=fix,
            severity="warning" if narrower else "note",
            copies=copies,
            kv_heads=fewest,
            tp=tp,
        )
    elif tp > 1 and any(isinstance(mixer, LatentAttention) for mixer in mixers):
        message = f"{d.model.name} keeps one latent per token, which no head divides: each of the {tp} ranks stores the whole cache"
        yield RULE.finding(checked, place, message, copies=tp, kv_heads=1, tp=tp)


def _narrower(checked: Checked, heads: int) -> bool:
    """Whether as many copies of the model, each over as many ranks as there are heads, fit the same devices."""
    d = checked.deployment
    if d.layout.tp % heads or d.layout.ep > 1:
        return False
    changed = replace(d.layout, tp=heads, dp=d.layout.tp // heads * d.layout.dp)
    try:
        return fits(replace(d, layout=changed))
    except LayoutError:
        return False


RULE = Rule(
    id="kv-heads-replicated",
    severity="note",
    title="The cache is stored several times",
    why=(
        "A rank stores whole KV heads: with more ranks than heads the same keys and values lie on several devices, and more ranks hold no "
        "longer or further sequences. It is a warning where the model fits as many ranks as there are heads, and a note where it needs "
        "more for its weights. A latent cache (MLA) has nothing to divide at all, which is only noted: data-parallel attention "
        "avoids it where the engine offers that."
    ),
    fix="Use as many ranks as there are KV heads, and the other devices as copies of the model, where it fits them.",
    check=check,
)
