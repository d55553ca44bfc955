"""What a service runs at a time and how its steps are timed: the figures that the rules about speed share, each from the planner."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..errors import RoofplanError
from ..planner.sizing import SizeResult, size_deployment
from .checked import Unbuilt

if TYPE_CHECKING:
    from ..planner.deployment import Deployment
    from ..planner.parallel import Layout
    from ..planner.step import StepModel
    from .checked import Checked

# A reader takes in 5 to 10 tokens a second: a gap beyond the slower of both stops the reading (DESIGN.md, ``size``).
LONGEST_GAP_S = 0.2
_MOST_PIECES = 256  # of a prompt, up to which alternatives are looked at


def running(checked: Checked) -> int:
    """Sequences of the workload that one replica runs at a time: those that were asked for, or as many as it has room for.

    Raises
    ------
    Unbuilt : where nothing fits
    """
    d = checked.deployment
    places = checked.capacity.max_concurrency // d.layout.dp if checked.memory.kv_budget_bytes >= 0 else 0
    if places < 1:
        raise Unbuilt
    return min(d.sequences_per_replica, places)


def load(checked: Checked) -> int | None:
    """Requests at a time over all replicas of which the file says something; None where it does not.

    The workload's, else as many as the file admits; no more than memory has room for.

    Raises
    ------
    Unbuilt : where nothing fits
    """
    said = checked.service.options
    if "concurrency" in said:
        return running(checked) * checked.deployment.layout.dp
    if "max_num_seqs" not in said:
        return None
    running(checked)  # where nothing fits, the rule ends
    return checked.capacity.max_concurrency


def batch(checked: Checked) -> float:
    """Sequences of one decode step: the stages of a pipeline share those that run.

    Raises
    ------
    Unbuilt : where nothing fits
    """
    return max(1.0, running(checked) / checked.deployment.layout.pp)


def timed(checked: Checked) -> StepModel:
    """The steps as reached.

    Raises
    ------
    Unbuilt : where no rate is known, and of engines that launch layer by layer: what mixes prompts and tokens in a step is not theirs
    """
    d = checked.deployment
    if d.streams is not None:
        raise Unbuilt
    try:
        return checked.steps
    except RoofplanError as error:
        raise Unbuilt from error


def longest_gap_s(steps: StepModel, decoders: float, context: float, prompt: int, piece: int) -> float:
    """Longest step that holds a piece of a prompt: the last whole one, which attends to most (formula F10.1)."""
    from ..planner.chunked import mixed_step_s

    piece = min(piece, prompt)
    return mixed_step_s(steps, decoders, context, piece, prompt - piece)


def is_plain(checked: Checked) -> bool:
    """Whether nobody said which engine serves, so that its limits of a step are nobody's setting."""
    return checked.deployment.engine.engine == "plain"


def room(d: Deployment, decoders: float) -> int:
    """Tokens of a prompt in a step that decodes for others, too."""
    taken = 0 if d.engine.scheduling.admission == "prefill_first" else math.ceil(decoders)
    return max(1, d.max_batched_tokens - taken)


def is_quick(d: Deployment) -> bool:
    """Whether a sizing takes milliseconds: prompts in very many pieces are walked through step by step, which takes seconds."""
    running = min(d.sequences_per_replica, d.max_num_seqs or d.sequences_per_replica)
    return d.workload.prompt <= _MOST_PIECES * room(d, running / d.layout.pp)


def sized(d: Deployment) -> SizeResult | None:
    """The whole answer of a changed deployment; None where it cannot be timed (or not at once), or its workload does not fit."""
    if not is_quick(d):
        return None
    try:
        found = size_deployment(d)
    except RoofplanError:
        return None
    return found if found.fits and found.times is not None else None


def laid_out(d: Deployment, layout: Layout) -> Deployment | None:
    """The deployment on devices that are divided otherwise; None where the model is not divided so, or no link joins the devices."""
    from dataclasses import replace

    from .. import hardware

    joined = layout.tp * layout.pp
    if joined > 1 and d.hardware.link(joined) is None:
        return None
    kernels = None if d.kernels is None else hardware.kernels_of(d.hardware, layout.devices)
    try:
        return replace(d, layout=layout, kernels=kernels, memory=replace(d.memory, weights_bytes=None))
    except RoofplanError:
        return None
