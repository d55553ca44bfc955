"""Findings that are known and left for later: a file of them, so that only new ones count.

A finding is known by rule, file, service and setting, and not by its line or figures: a file may change around it. Files are named as seen
from the folder that the check runs in, with slashes.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from .. import specfiles
from ..documents import parse_json
from ..errors import SpecError
from .fingerprints import Identity, identity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..documents import Document
    from .finding import Finding

SCHEMA = "roofplan/baseline/v1"
_LARGEST_BYTES = 2**23  # of ten thousand findings
_PARTS = ("rule", "file", "service", "subject")


def read_baseline(path: str) -> Counter[Identity]:
    """How often each finding is known.

    Raises
    ------
    SpecError : for a file that is missing, malformed or no baseline
    """
    document = parse_json(specfiles.read_text(path, largest=_LARGEST_BYTES), path)
    data = document.data
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("findings"), list):
        raise SpecError("baseline", got="another file", wanted=f"schema: {SCHEMA}", where=document.where())
    known: Counter[Identity] = Counter()
    for at, entry in enumerate(data["findings"]):
        known[_identity(document, at, entry)] += entry.get("count", 1)
    return known


def _identity(document: Document, at: int, entry: Any) -> Identity:
    where = document.where(("findings", at))
    if (
        not isinstance(entry, dict)
        or not all(isinstance(entry.get(part, ""), str) for part in _PARTS)
        or "rule" not in entry
    ):
        wanted = f"an object of {', '.join(_PARTS)} and count"
        raise SpecError(f"findings.{at}", got="something else", wanted=wanted, where=where)
    count = entry.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise SpecError(f"findings.{at}.count", got=repr(count), wanted="a whole number above zero", where=where)
    rule, file, service, subject = (entry.get(part, "") for part in _PARTS)
    return rule, file, service, subject


def take_off(findings: Iterable[Finding], known: Counter[Identity]) -> tuple[list[Finding], int, int]:
    """Take off the findings that are known, each as often as it is.

    Returns those that are new, how many were taken off, and how many known ones are no more.
    """
    left = known.copy()
    new: list[Finding] = []
    taken = 0
    for finding in findings:
        same = identity(finding)
        if left[same] > 0:
            left[same] -= 1
            taken += 1
        else:
            new.append(finding)
    return new, taken, left.total()


def write_baseline(path: str, findings: Iterable[Finding], *, force: bool = False) -> int:
    """Write a baseline that knows some findings, in place of an older one; how many they are.

    Raises
    ------
    SpecError : when there is a file of this name that is no baseline and may not be replaced, or it cannot be written
    """
    if os.path.lexists(path) and not force:
        try:
            read_baseline(path)
        except SpecError as error:
            error.hint = error.hint or "--force replaces it"
            raise
    counts = Counter(map(identity, findings))
    entries = [
        {**dict(zip(_PARTS, same, strict=True)), **({"count": count} if count > 1 else {})}
        for same, count in sorted(counts.items())
    ]
    text = json.dumps({"schema": SCHEMA, "findings": entries}, indent=2) + "\n"
    specfiles.write_text(path, text, overwrite=True)
    return counts.total()
