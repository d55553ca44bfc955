"""Peak of the activations of a step, by the form that an engine profile states.

Sources: formulas F5.2 and F5.3; the two-term form and its constants were fitted on start-up logs (engines/catalogue and
accuracy/activations.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..models.spec import Mlp
from .parallel import divided

if TYPE_CHECKING:
    from ..models.spec import LayerGroup
    from .deployment import Deployment


@dataclass(frozen=True, slots=True)
class ActivationPeak:
    """Bytes of the terms at the layer where their total is largest."""

    sampling_bytes: int
    forward_bytes: int
    expert_bytes: int
    total_bytes: int


def activation_peak(d: Deployment, rows: int) -> ActivationPeak:
    """Peak of a step that yields so many rows of logits (0 on a pipeline stage that does not sample).

    See :class:`roofplan.engines.profile.Activations` for the form: T are the tokens computed at once, b_a the bytes of an activation.
    """
    how, hidden = d.engine.activations, d.model.hidden_size
    width, tokens = d.formats.activation_bytes, divided(d.step_tokens, d.layout.cp)
    sampling = rows * d.model.vocab_size * (how.logit_bytes + how.logits * width)
    if rows:
        sampling += tokens * width * how.sampled_hidden * hidden + how.constant
    in_place = d.formats.weights["experts"].name in how.in_place_experts

    def peak_of(group: LayerGroup) -> ActivationPeak:
        dense, routed, chosen = _widths(group)
        forward = tokens * width * (how.hidden * hidden + how.width * divided(dense, d.layout.tp))
        per_token = how.expert_width * divided(routed, d.layout.tp) + how.expert_hidden * hidden * chosen
        experts = 0.0 if in_place else min(tokens, how.expert_tokens or tokens) * width * per_token
        if how.join == "sum":
            total = sampling + forward + experts
        elif how.experts_stay:
            total = max(sampling, forward) + experts
        else:
            total = max(sampling, forward + experts)
        return ActivationPeak(round(sampling), round(forward), round(experts), round(total))

    return max((peak_of(group) for group in d.model.layers), key=lambda peak: peak.total_bytes)


def _widths(group: LayerGroup) -> tuple[int, int, int]:
    """Of one layer: the width that every token uses (MLP, shared expert), that of its chosen experts, and how many are chosen."""
    dense = routed = chosen = 0
    for part in group.mlp:
        if isinstance(part, Mlp):
            dense += part.intermediate_size
        else:
            dense += part.shared.intermediate_size if part.shared else 0
            routed += part.experts_per_token * part.intermediate_size
            chosen += part.experts_per_token
    return dense, routed, chosen


def logit_rows(d: Deployment) -> int:
    """Rows of logits that the engine reserves memory for; a step yields no more of them than it has tokens."""
    how = d.engine.activations
    if d.cuts_prompts and not how.sampled_with_chunks:
        return 0
    rows = d.sequences_per_replica
    if how.rows == "micro_batch":
        rows = d.step_tokens
    elif how.rows == "admitted":
        rows = min(d.max_num_seqs or rows, d.max_batched_tokens)
    return rows if how.most_rows is None else min(rows, how.most_rows)


def logits_bytes(rows: int, vocab_size: int) -> int:
    """Float32 logits of the rows that are sampled (formula F5.3).

    >>> logits_bytes(256, 128256)
    131334144
    """
    return rows * vocab_size * 4
