"""A finding, and what describes the rule that gave it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .checked import Checked
    from .record import Place

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")  # the worst first


def at_least(severity: Severity | Literal["never"]) -> tuple[Severity, ...]:
    """The severities that are at least so severe; of ``never`` none."""
    return () if severity == "never" else SEVERITIES[: SEVERITIES.index(severity) + 1]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule says of one place of a service.

    Parameters
    ----------
    rule : id of the rule
    severity : of this finding
    place : the value that it is about
    message : one sentence with the figures: what is, and what would hold
    service : name of the service
    fix : what to write instead, where that can be said (``--max-model-len 16384``); else empty, and the rule's own fix holds
    figures : numbers of the message, in base units, by name with the unit
    subject : name of the setting at the place, which :mod:`roofplan.checks.run` fills in; fingerprints are made of it
    """

    rule: str
    severity: Severity
    place: Place
    message: str
    service: str = ""
    fix: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: a file of :mod:`roofplan.checks.rules`.

    Parameters
    ----------
    id : ``does-not-fit``; the file has the same name with underscores
    severity : of its findings
    title : what it finds, in a few words
    why : why that matters, a sentence or two
    fix : what to do, a sentence
    check : yields its findings, made by :meth:`Rule.finding`
    explains : whether its errors say why there is no plan, so that the run need not
    """

    id: str
    severity: Severity
    title: str
    why: str
    fix: str
    check: Callable[[Checked], Iterable[Finding]]
    explains: bool = False

    def finding(
        self,
        checked: Checked,
        place: Place,
        message: str,
        *,
        fix: str = "",
        severity: Severity | None = None,
        **figures: float,
    ) -> Finding:
        """Make a finding of this rule."""
        return Finding(self.id, severity or self.severity, place, message, checked.service.name, fix, figures)
