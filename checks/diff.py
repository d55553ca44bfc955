"""What a change of deployment files does: services of two checks beside each other, their settings, figures and findings.

Services are matched by name; of equal names those whose paths end alike; one that is left on each side is the same one, renamed. Figures
are those of ``roofplan size``: only services of which a setting differs are planned again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

from ..errors import RoofplanError
from ..planner.comparing import TOLERANCE, Alternative
from .checked import Checked, Unbuilt
from .limits import price_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .record import Service
    from .result import CheckResult

Better = Literal["lower", "higher", ""]

# What is compared: the figure's name as in the JSON of ``compare``, and which way is better.
FIGURES: dict[str, Better] = {
    "fits": "higher",
    "memory.weights_bytes": "lower",
    "memory.kv_budget_bytes": "higher",
    "memory.free_bytes": "higher",
    "capacity.kv_tokens": "higher",
    "capacity.max_concurrency": "higher",
    "capacity.max_context": "higher",
    "latency.ttft_s": "lower",
    "latency.tpot_s": "lower",
    "latency.e2e_s": "lower",
    "throughput.output_tokens_per_s": "higher",
    "cost.usd_per_hour": "lower",
    "cost.usd_per_million_output_tokens": "lower",
    "bottleneck.decode": "",
}


@dataclass(frozen=True, slots=True)
class Change:
    """A setting or figure on both sides; None where there is none (an option that is not said, a time of what does not fit)."""

    name: str
    before: Any
    after: Any

    @property
    def verdict(self) -> Literal["better", "worse", "same", "other"]:
        """Whether the change is for the better; figures within one per cent of each other are the same."""
        better, before, after = FIGURES.get(self.name, ""), self.before, self.after
        if before == after:
            return "same"
        if not better or before is None or after is None or isinstance(before, str):
            return "other"
        if not isinstance(before, bool) and abs(after - before) <= TOLERANCE * max(abs(before), abs(after)):
            return "same"
        return "better" if (after > before) is (better == "higher") else "worse"


@dataclass(frozen=True, slots=True)
class ServiceDiff:
    """One service before and after.

    Parameters
    ----------
    name, file : as they are after the change; of one that is gone as they were
    state : whether it was there before and is there after
    settings : engine, options, features and devices that differ
    figures : those of :data:`FIGURES`, as far as either side has them; empty where no setting differs, and of one that is gone
    appeared, gone : rules of findings that are new, and of those that are no more, one for each finding
    unplanned : why one side has no figures, or empty
    """

    name: str
    file: str
    state: Literal["changed", "same", "added", "removed"]
    settings: tuple[Change, ...] = ()
    figures: tuple[Change, ...] = ()
    appeared: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    unplanned: str = ""


@dataclass(frozen=True, slots=True)
class CheckDiff:
    """What a change does, service by service in the order of the files after it."""

    services: tuple[ServiceDiff, ...]

    def figures(self) -> dict[str, Any]:
        """The same as plain data, in base units."""
        return {"services": [_plain(one) for one in self.services]}


def _plain(one: ServiceDiff) -> dict[str, Any]:
    return {
        "name": one.name,
        "file": one.file,
        "state": one.state,
        "settings": [{"name": it.name, "before": it.before, "after": it.after} for it in one.settings],
        "figures": {it.name: {"before": it.before, "after": it.after, "verdict": it.verdict} for it in one.figures},
        "appeared": list(one.appeared),
        "gone": list(one.gone),
        "unplanned": one.unplanned,
    }


def diff(before: CheckResult, after: CheckResult) -> CheckDiff:
    """Compare two checks: of the older files and of the newer ones, with the same settings."""
    pairs = matched(before.services, after.services)
    return CheckDiff(tuple(_compared(old, new, _rules(before, old), _rules(after, new)) for old, new in pairs))


def matched(before: Iterable[Service], after: Sequence[Service]) -> list[tuple[Service | None, Service | None]]:
    """Pairs of services that are the same one: by name, then by how their paths end, then the only ones that are left."""
    left = list(before)
    found: list[Service | None] = [None] * len(after)
    candidates = [
        (-_alike(old, new), position, number)
        for position, new in enumerate(after)
        for number, old in enumerate(left)
        if old.name == new.name
    ]
    taken: set[int] = set()
    for _, position, number in sorted(candidates):
        if found[position] is None and number not in taken:
            found[position] = left[number]
            taken.add(number)
    gone = [old for number, old in enumerate(left) if number not in taken]
    alone = [position for position, old in enumerate(found) if old is None]
    if len(gone) == len(alone) == 1:
        found[alone[0]] = gone.pop()
    return [*zip(found, after, strict=True), *((old, None) for old in gone)]


def _alike(old: Service, new: Service) -> int:
    """Parts at the end of two paths that are equal."""
    pairs = zip_longest(*(reversed(PurePath(one.place.file).parts) for one in (old, new)))
    equal = 0
    for one, other in pairs:
        if one != other:
            break
        equal += 1
    return equal


def _compared(
    old: Service | None, new: Service | None, rules_before: Counter[str], rules_after: Counter[str]
) -> ServiceDiff:
    one = new or old
    assert one is not None
    appeared = tuple(sorted((rules_after - rules_before).elements()))
    gone = tuple(sorted((rules_before - rules_after).elements()))
    settings = tuple(_settings(old, new)) if old and new else ()
    if old and new and not settings:
        return ServiceDiff(one.name, one.place.file, "same", appeared=appeared, gone=gone)
    if new is None:
        return ServiceDiff(one.name, one.place.file, "removed", gone=gone)
    (was, why_not_before), (now, why_not_after) = _figures(old), _figures(new)
    figures = tuple(
        Change(name, was.get(name), now.get(name))
        for name in FIGURES
        if was.get(name) is not None or now.get(name) is not None
    )
    state: Literal["changed", "added"] = "changed" if old else "added"
    unplanned = why_not_after or why_not_before
    return ServiceDiff(one.name, one.place.file, state, settings, figures, appeared, gone, unplanned)


def _rules(result: CheckResult, service: Service | None) -> Counter[str]:
    """How often each rule finds something in a service."""
    return Counter(() if service is None else (found.rule for found in result.findings_of(service)))


def _settings(old: Service, new: Service) -> Iterator[Change]:
    """What is said of the two, as far as it differs."""
    before, after = _said(old), _said(new)
    for name in (*after, *(name for name in before if name not in after)):
        if before.get(name) != after.get(name):
            yield Change(name, before.get(name), after.get(name))


def _said(service: Service) -> dict[str, Any]:
    groups = (service.options, service.features, service.limits)
    pod = {"gpus": service.pod.gpus, "replicas": service.pod.replicas, "pods": service.pod.pods}
    said = {name: one.value for group in groups for name, one in group.items()}
    said |= {name: one.value for name, one in pod.items() if one is not None}
    if service.usd_per_hour is not None:
        said["usd_per_hour"] = service.usd_per_hour.value
    return {"engine": service.engine.value, **said}


def _figures(service: Service | None) -> tuple[dict[str, Any], str]:
    """Figures of a service by name, expected values of ranges; and why there are none."""
    if service is None:
        return {}, ""
    checked = Checked(service)
    if isinstance(checked.built, RoofplanError):
        return {}, str(checked.built)
    try:
        plan = checked.plan
    except Unbuilt as stop:
        return {}, str(stop.__cause__ or "it cannot be planned")
    flat = Alternative(service.name, plan, price_of(service, plan.deployment.hardware)).figures()
    found = {name: _expected(flat.get(name)) for name in FIGURES}
    if found["cost.usd_per_hour"] is not None and service.pod.replicas is not None:
        found["cost.usd_per_hour"] *= service.pod.replicas.value  # the plan is that of one copy, the bill that of all
    return found, ""


def _expected(value: Any) -> Any:
    return value["expected"] if isinstance(value, dict) else value
