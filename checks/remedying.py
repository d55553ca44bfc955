"""What the planner would change so that a deployment fits, in the words of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..planner.memory import plan_capacity, plan_memory
from ..planner.remedies import remedies
from .spelling import with_flags

if TYPE_CHECKING:
    from ..planner.deployment import Deployment
    from .record import Service

_MOST = 2
_LIGHTER = ("at most ", "sequences of ")  # how the planner begins to say fewer or shorter ones


def remedies_for(service: Service, d: Deployment, *, same_load: bool = False) -> str:
    """The first two single changes after which a deployment fits; empty where there are none.

    ``same_load`` leaves out fewer and shorter sequences: those of a limit are wanted as they are.
    """
    plan = plan_memory(d)
    texts = [
        text for text in remedies(d, plan, plan_capacity(d, plan)) if not (same_load and text.startswith(_LIGHTER))
    ]
    return ", or ".join(with_flags(service, text) for text in texts[:_MOST])
