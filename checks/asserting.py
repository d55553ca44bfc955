"""What the pytest plugin gives tests: ``assert_fits``, and deployments read from files. Works under any test runner."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import api
from ..errors import RoofplanError, show
from ..quantities import show_bytes, show_count
from .checked import Checked, Unbuilt
from .finding import Finding, Severity, at_least
from .initial import written
from .run import check_paths, check_text
from .settings import Settings, load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Unpack

    from ..api.options import Options
    from ..planner.deployment import Deployment
    from ..planner.sizing import SizeResult
    from .record import Service
    from .result import CheckResult, Problem

_PATTERN = set("*?[")
_LONGEST_LINE = 2000  # of a message: names in it are those of strangers


def assert_fits(
    model: str | os.PathLike[str],
    hardware: str | os.PathLike[str],
    *,
    limits: Mapping[str, Any] | None = None,
    **options: Unpack[Options],
) -> SizeResult:
    """Fail where a model does not fit on devices with all sequences of the workload, or where a limit is missed.

    Parameters
    ----------
    model, hardware : names or paths
    limits : as in a deployment file: ``{"tpot": "30 ms", "concurrency": 64}``
    options : as of :func:`roofplan.size`

    Returns the plan.

    Raises
    ------
    AssertionError : with what is missing, and what would help
    RoofplanError : for names, options and limits that do not exist

    >>> assert_fits("llama-3.1-8b", "h100-sxm", concurrency=64, limits={"tpot": "30 ms"}).capacity.max_concurrency > 64
    True
    """
    __tracebackhide__ = True
    model, hardware = os.fspath(model), os.fspath(hardware)
    plan = api.size(model, hardware, **options)
    if not plan.fits:
        raise AssertionError(_lacking(f"{model} does not fit on {hardware}", plan))
    if limits:
        missed = _missed(written({"model": model, "hardware": hardware, **options}, limits))
        if missed:
            raise AssertionError("\n".join([f"{show(model)} on {show(hardware)}:", *map(_line, missed)]))
    return plan


def _lacking(what: str, plan: SizeResult) -> str:
    """Why something does not fit, and what would help, a line each."""
    memory, workload = plan.memory, plan.deployment.workload
    device = f"weights take {show_bytes(memory.weights_bytes)} of the {show_bytes(memory.budget_bytes)} of a device"
    room, asked = show_count(plan.capacity.max_concurrency), show_count(workload.concurrency)
    cache = f"the cache holds {room} of {asked} sequences of {show_count(workload.length)} tokens"
    remedies = [f"  to make it fit: {remedy}" for remedy in plan.remedies]
    return "\n".join([f"{show(what, _LONGEST_LINE)}: {', '.join(plan.reasons)}", f"  {device}; {cache}", *remedies])


def _missed(text: str) -> list[Finding]:
    """The limits of a deployment file that its plan does not hold, whatever the project's configuration ignores."""
    result = check_text(text, "limits", Settings())
    if result.problems:
        raise RoofplanError("assert_fits", got=result.problems[0].message)
    places = {said.place for service in result.services for said in service.limits.values()}
    return [finding for finding in result.findings if finding.place in places]


def _line(finding: Finding) -> str:
    fix = f" ({finding.fix})" if finding.fix else ""
    return show(f"  {finding.place}: {finding.severity}: {finding.message}{fix} [{finding.rule}]", _LONGEST_LINE)


@dataclass(frozen=True)
class Deployed:
    """One deployment of a file, as a test gets it.

    Parameters
    ----------
    name : the file, and the service's name in it
    service : what was read
    findings : what the selected rules say of it, less what the project accepts (configuration, comments, baseline)
    """

    name: str
    service: Service
    findings: tuple[Finding, ...]

    def opened(self) -> Deployed:
        """Itself: it could be read."""
        return self

    @functools.cached_property
    def _checked(self) -> Checked:
        return Checked(self.service)

    @property
    def deployment(self) -> Deployment:
        """What the planner works on.

        Raises
        ------
        RoofplanError : where a name is unknown, or the settings do not exist
        """
        if isinstance(self._checked.built, RoofplanError):
            raise self._checked.built.at(str(self.service.place))
        return self._checked.built

    @property
    def plan(self) -> SizeResult:
        """The answer of ``roofplan size``: memory, capacity, times.

        Raises
        ------
        RoofplanError : where a name is unknown, or the settings do not exist
        """
        _ = self.deployment
        try:
            return self._checked.plan
        except Unbuilt as unbuilt:
            raise unbuilt.__cause__ or unbuilt from None

    @property
    def fits(self) -> bool:
        """Whether all sequences of its workload fit at their full length."""
        return self.plan.fits

    def assert_fits(self) -> None:
        """Fail where it does not fit.

        Raises
        ------
        AssertionError : with what is missing, and what would help
        """
        __tracebackhide__ = True
        if not self.fits:
            raise AssertionError(_lacking(f"{self.name} does not fit", self.plan))

    def check(self, fail_on: Severity = "error") -> None:
        """Fail where a rule finds something at least so severe.

        Raises
        ------
        AssertionError : with the findings
        """
        __tracebackhide__ = True
        failing = [finding for finding in self.findings if finding.severity in at_least(fail_on)]
        if failing:
            raise AssertionError("\n".join([f"{show(self.name)}:", *map(_line, failing)]))


@dataclass(frozen=True, slots=True)
class Unread:
    """What could not be read, or was not there: the test that would have taken it fails with the reason."""

    name: str
    reason: str

    def opened(self) -> Deployed:
        """Fail.

        Raises
        ------
        AssertionError : always
        """
        __tracebackhide__ = True
        raise AssertionError(self.reason)


def cases(root: Path, asked: tuple[str, ...]) -> tuple[Deployed | Unread, ...]:
    """Every deployment in files, folders and patterns, in the order of their names; what cannot be read is one too.

    Parameters
    ----------
    root : folder from which relative paths are seen
    asked : paths and patterns (``deploy/**/*.yaml``)
    """
    if not asked:
        wanted = "set the ini key roofplan_deployments (deploy/*.yaml), or mark the test"
        return (Unread("none", f"no deployments: {wanted}"),)
    missing = [Unread(name, f"{name}: no such file or folder in {root}") for name in asked if not _found(root, name)]
    paths = sorted({path for name in asked for path in _found(root, name)})
    if not paths:
        return tuple(missing)
    try:
        found = tuple(_of(check_paths(map(_shown, paths), load(root))))
    except RoofplanError as error:  # of the settings or of a baseline
        return (*missing, Unread("settings", str(error)))
    nothing = () if found else (Unread("none", f"no deployment in {', '.join(asked)}"),)
    return (*missing, *found, *nothing)


def _found(root: Path, name: str) -> list[Path]:
    if _PATTERN & set(name) and not Path(name).is_absolute():
        return sorted(root.glob(name))
    path = root / name
    return [path] if path.exists() else []


def _shown(path: Path) -> str:
    """A path as seen from where the tests run."""
    return os.path.relpath(path)


def _of(result: CheckResult) -> Iterator[Deployed | Unread]:
    for service in result.services:
        yield Deployed(f"{service.place.file}:{service.name}", service, result.findings_of(service))
    yield from _unread(result.problems)


def _unread(problems: Iterable[Problem]) -> Iterator[Unread]:
    for problem in problems:
        yield Unread(str(problem.place), show(f"{problem.place}: {problem.message}", _LONGEST_LINE))
