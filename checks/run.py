"""Checking: files are read, rules look at what was read, and what is accepted or known is taken off."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .. import specfiles
from ..errors import DomainError, RoofplanError, SpecError
from . import baseline as known_findings
from . import files, ignores
from .checked import Checked, Unbuilt
from .fingerprints import subject_of
from .readers import all_readers
from .record import Place, Reading, Said, Service
from .result import CheckResult, Problem, in_order
from .rules import all_rules
from .settings import COMMAND_LINE, SHARED_PREFIX
from .sources import Source

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from ..documents import Document
    from .finding import Finding, Rule
    from .fingerprints import Identity
    from .settings import Settings

_LONGEST_LINE = 2000


def check_paths(
    paths: Iterable[str | os.PathLike[str]],
    settings: Settings,
    progress: Callable[[int, int], None] | None = None,
    *,
    use_baseline: bool = True,
) -> CheckResult:
    """Check files, folders and standard input (``-``); what is wrong with one is a problem of the result, and the rest is checked.

    Parameters
    ----------
    paths : of files and folders
    settings : see :func:`roofplan.checks.settings.load`
    progress : called with the number of files that are done and that there are
    use_baseline : whether the findings that the settings' baseline knows are taken off

    Raises
    ------
    SpecError : for a baseline that cannot be read
    """
    known = known_findings.read_baseline(settings.baseline) if settings.baseline and use_baseline else Counter()
    run = _Run(settings)
    found = list(files.find(paths, settings.exclude))
    for done, one in enumerate(found):
        if progress is not None:
            progress(done, len(found))
        run.file(one)
    return run.result(known)


def made_known(result: CheckResult, *, force: bool = False) -> CheckResult:
    """Write the findings of a result to its settings' baseline, and give what is left: none.

    Raises
    ------
    SpecError : where the file is there and no baseline (``force`` replaces it), or cannot be written
    """
    count = known_findings.write_baseline(result.settings.baseline, result.findings, force=force)
    return replace(result, findings=(), suppressed={**result.suppressed, "baseline": count})


def with_problems_of(result: CheckResult, old: CheckResult) -> CheckResult:
    """A result, and what could not be checked of an older state."""
    return replace(result, problems=(*result.problems, *old.problems), lines={**old.lines, **result.lines})


def only_service(paths: Iterable[str | os.PathLike[str]], settings: Settings) -> Service:
    """The one service of some files, completed by the settings; without files, what the settings say.

    Raises
    ------
    RoofplanError : where there is none or there are several, or a file cannot be read
    """
    found = list(files.find(paths, settings.exclude))
    services: list[Service] = []
    for one in found:
        if one.error is not None:
            raise one.error
        reading = read_text(specfiles.read_text(one.path), one.shown, walked=one.walked)
        for error in reading.problems:
            raise error
        services += reading.services
    if not found:
        place = Place(COMMAND_LINE)
        name = settings.defaults.get("model")
        services = [
            Service(
                kind="deployment", name=name.value if name else "", place=place, engine=Said("plain", place), options={}
            )
        ]
    if len(services) != 1:
        names = ", ".join(f"{service.name} ({service.place})" for service in services)
        hint = f"there are {names}" if names else "name a file that describes one, or --model and --hardware"
        raise DomainError("FILE", got=f"{len(services) or 'no'} services", wanted="one to begin with", hint=hint)
    return completed(services[0], settings)


def check_text(text: str, name: str, settings: Settings) -> CheckResult:
    """Check a text as if it were a file of this name."""
    run = _Run(settings)
    run.text(text, name)
    return run.result(Counter())


def check_service(service: Service, settings: Settings) -> list[Finding]:
    """What the selected rules say of one service, before anything is taken off."""
    return list(in_order(_applied(completed(service, settings), settings)[0]))


def read_text(text: str, name: str, *, walked: bool = False) -> Reading:
    """What the readers find in a text that stands in a file of this name.

    Parameters
    ----------
    walked : whether the file was found in a folder, and not named: then what speaks of nothing that is checked is passed over
    """
    if "\0" in text:
        error = SpecError("text", got="a binary file", wanted="YAML, JSON or a script", where=name)
        return Reading(problems=(error,))
    if walked and not files.has_cue(text) and (name.endswith(".json") or not files.is_yaml(name, text)):
        return Reading(skipped={"other file": 1})
    source = Source(name, text, files.is_yaml(name, text))
    if not source.is_yaml:
        return _read(source, None) or Reading(skipped={"other text": 1})
    parsed = source.parsed
    if isinstance(parsed, RoofplanError):
        return _unparsed(source, parsed, walked=walked)
    if not parsed:
        return Reading(skipped={"empty file": 1})
    return Reading.joined(_read(source, document) or Reading(skipped={_kind(document): 1}) for document in parsed)


def _unparsed(source: Source, error: RoofplanError, *, walked: bool) -> Reading:
    """What is known of YAML that cannot be read: some reader may know why (a template), or that it is none."""
    reading = _read(source, None)
    if reading is None and not source.file.endswith((".yaml", ".yml", ".json")):
        reading = _read(Source(source.file, source.text, is_yaml=False), None)
    if reading is not None:
        return reading
    is_foreign = walked and str(error.got).startswith("a tag") and not files.has_cue(source.text)
    return Reading(skipped={"YAML with tags": 1}) if is_foreign else Reading(problems=(error,))


def _read(source: Source, document: Document | None) -> Reading | None:
    """What the first reader gives that recognises a document; None where nobody does."""
    try:
        reader = next((one for one in all_readers() if one.recognises(source, document)), None)
        return None if reader is None else reader.read(source, document)
    except RoofplanError as error:
        return Reading(problems=(error,))
    except Exception as error:  # noqa: BLE001  # a fault of ours in one file must not keep the others from being checked
        return Reading(problems=(error,))


def _generating(reading: Reading) -> Reading:
    """A reading without the servers of embeddings and scores: they generate nothing that could be planned."""
    kept = tuple(one for one in reading.services if "pooling" not in one.features)
    others = len(reading.services) - len(kept)
    return Reading.joined(
        (replace(reading, services=kept), Reading(skipped={"embedding server": others} if others else {}))
    )


def _kind(document: Document) -> str:
    """What a document is that nobody reads."""
    data = document.data
    if not isinstance(data, dict):
        return "other data"
    for key in ("kind", "schema"):
        if isinstance(data.get(key), str) and (key == "schema" or "apiVersion" in data):
            return str(data[key])
    return "other data"


def completed(service: Service, settings: Settings) -> Service:
    """A service with what its file leaves open: the device of its pod, then what the settings say."""
    said = {**settings.defaults, **({"hardware": service.pod.hardware} if service.pod.hardware is not None else {})}
    engine, shared = said.pop("engine", None), said.pop(SHARED_PREFIX, None)
    options = {**said, **service.options}
    prefix = service.shared_prefix_tokens or shared
    lost = {name: error for name, error in service.lost.items() if name not in options}
    return replace(service, options=options, engine=_engine(service, engine), shared_prefix_tokens=prefix, lost=lost)


def _engine(service: Service, default: Said[str] | None) -> Said[str]:
    """The engine of a service: the default where it says nothing, or where it leaves the default's version open."""
    said = service.engine
    if default is None:
        return said
    says_nothing = said.value == "plain" and said.place == service.place
    return default if says_nothing or default.value.startswith(f"{said.value}@") else said


def _applied(service: Service, settings: Settings) -> tuple[list[Finding], list[Problem]]:
    """What the selected rules find, and why there is no plan where no rule says it."""
    lacking = list(_lacking(service))
    if any(service.options[name].value == "-" for name in ("model", "hardware") if name in service.options):
        return [], lacking
    checked = Checked(service)
    problems = lacking
    found: list[Finding] = []
    built = None if checked.hindrance is not None else checked.built
    unplanned = isinstance(built, RoofplanError)
    for rule in all_rules():
        if not unplanned and not settings.selects(rule.id):
            continue  # else it may know why there is no plan
        try:
            found += _named(rule, checked)
        except Exception as error:  # noqa: BLE001  # a fault of ours in one rule must not keep the others from being applied
            problems.append(replace(Problem.of(error, service.place.file), place=service.place))
    if isinstance(built, RoofplanError) and not lacking:
        # What was left out on purpose is known; what was not asked for is not said, and the service is not checked.
        told = [finding for finding in found if settings.selects(finding.rule) or finding.rule in settings.ignore]
        problems += _unexplained(built, checked, told)
    return [finding for finding in found if settings.selects(finding.rule)], problems


def _named(rule: Rule, checked: Checked) -> Iterator[Finding]:
    """The findings of a rule, with the setting that each is about."""
    try:
        for finding in rule.check(checked):
            yield replace(finding, subject=finding.subject or subject_of(checked.service, finding.place))
    except Unbuilt:
        return


def _lacking(service: Service) -> Iterator[Problem]:
    """What a plan needs and nobody said."""
    for name in ("model", "hardware"):
        said = service.options.get(name)
        if said is not None and said.value == "-":
            wanted = "a name or a path: nothing is read from standard input here"
            yield Problem(said.place, str(DomainError(name, got="-", wanted=wanted)))
        elif (
            said is None
            and name not in service.lost
            and not (name == "hardware" and service.pod.unknown_hardware is not None)
        ):
            what = f"{name} of {service.name}" if service.name else name
            hint = f"--{name}, or {name} in the settings, says it for files that do not"
            yield Problem(service.place, str(DomainError(what, got="nothing", wanted="a name", hint=hint)))


def _unexplained(error: RoofplanError, checked: Checked, found: Iterable[Finding]) -> Iterator[Problem]:
    """The reason why there is no plan, unless a rule says it."""
    place = checked.service.place_of(checked.option_of(error))
    causes = {rule.id for rule in all_rules() if rule.explains}
    explained = any(f.severity == "error" and (f.rule in causes or f.place == place) for f in found)
    if not explained:
        yield Problem(place, Problem.of(error, place.file).message)


@dataclass(frozen=True, slots=True)
class _One:
    """One service, and what was found of it."""

    service: Service
    findings: list[Finding]
    problems: list[Problem]


@dataclass
class _Run:
    """One run: what was found so far."""

    settings: Settings
    ones: list[_One] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)  # of files that were not read
    skipped: Counter[str] = field(default_factory=Counter)
    ignores: dict[str, list[ignores.Ignore]] = field(default_factory=dict)
    lines: dict[tuple[str, int], str] = field(default_factory=dict)
    read: int = 0

    def file(self, found: files.Found) -> None:
        """Check one file."""
        try:
            if found.error is not None:
                raise found.error
            text = specfiles.read_text(found.path)
        except RoofplanError as error:
            self.problems.append(Problem.of(error, found.shown))
            return
        self.text(text, found.shown, walked=found.walked)

    def text(self, text: str, name: str, *, walked: bool = False) -> None:
        """Check one text."""
        self.read += 1
        reading = _generating(read_text(text, name, walked=walked))
        self.skipped.update(reading.skipped)
        services = [completed(service, self.settings) for service in reading.services]
        told = _told_by_settings(reading.services, services)
        unread = [Problem.of(error, name) for error in reading.problems if not any(error is one for one in told)]
        ones = [_One(service, *_applied(service, self.settings)) for service in services]
        self.problems += unread
        self.ones += ones
        if ones or unread:
            self.ignores[name] = ignores.read_ignores(text, name)
        self._keep_lines(text, name, [*_places(ones), *(problem.place for problem in unread)])

    def _keep_lines(self, text: str, name: str, places: Iterable[Place]) -> None:
        wanted = {place.line for place in places if place.file == name and place.line}
        if wanted:
            lines = text.split("\n")
            self.lines |= {(name, at): lines[at - 1].rstrip("\r")[:_LONGEST_LINE] for at in wanted if at <= len(lines)}

    def _read_others(self, ones: list[_One]) -> None:
        """Read the files that findings stand in beside those of their services: command lines name files of flags."""
        places = [place for place in _places(ones) if (place.file, place.line) not in self.lines]
        for name in sorted({place.file for place in places}):
            try:
                text = specfiles.read_text(name)
            except RoofplanError:
                continue  # standard input, options: no file
            self.ignores.setdefault(name, ignores.read_ignores(text, name))
            self._keep_lines(text, name, places)

    def result(self, known: Counter[Identity]) -> CheckResult:
        """What is left when all is read."""
        used = {place.file for one in self.ones for place in _places_beside(one.service)}
        ones = [
            one for one in self.ones if one.service.place.file not in used
        ]  # a file of flags is no service of its own beside those
        self._read_others(ones)
        problems = [*self.problems, *(problem for one in ones for problem in one.problems)]
        rules = {rule.id for rule in all_rules()}
        broken = {problem.place.file for problem in problems}
        left, inline = ignores.take_off(
            [finding for one in ones for finding in one.findings],
            [ignore for of_file in self.ignores.values() for ignore in of_file],
            known=rules.__contains__,
            ran=lambda rule, file: self.settings.selects(rule) and file not in broken,
        )
        left, from_baseline, gone = known_findings.take_off(in_order(left), known)
        return CheckResult(
            self.settings,
            in_order(left),
            tuple(sorted(problems, key=lambda problem: problem.place)),
            tuple(one.service for one in ones),
            dict(sorted(self.skipped.items())),
            self.read,
            {"inline": inline, "baseline": from_baseline},
            gone,
            self.lines,
        )


def _told_by_settings(read: Iterable[Service], completed: Iterable[Service]) -> list[Exception]:
    """The problems of values that a file does not tell and the settings do."""
    pairs = zip(read, completed, strict=True)
    return [error for one, other in pairs for name, error in one.lost.items() if name not in other.lost]


def _places(ones: Iterable[_One]) -> Iterator[Place]:
    """Where the findings and problems of some services stand."""
    for one in ones:
        yield from (finding.place for finding in one.findings)
        yield from (problem.place for problem in one.problems)


def _places_beside(service: Service) -> Iterator[Place]:
    """Where a service says something in another file than its own."""
    said = (*service.options.values(), *service.features.values(), *(flag.value for flag in service.flags))
    return (one.place for one in said if one.place.file != service.place.file)
