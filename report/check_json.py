"""A check as JSON: the envelope of every answer, with what a change does under ``result.diff``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..planner.results import plain

if TYPE_CHECKING:
    from ..checks.diff import CheckDiff
    from ..checks.result import CheckResult


def to_json(result: CheckResult, diff: CheckDiff | None = None) -> str:
    """The envelope that scripts rely on: keys sorted, base units, no rounding, no NaN; all that is not ASCII is escaped."""
    envelope = result.to_dict()
    if diff is not None:
        envelope["result"]["diff"] = plain(diff.figures())
    return json.dumps(envelope, sort_keys=True, allow_nan=False, indent=2) + "\n"
