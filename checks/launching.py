"""Command lines of engines, and settings of files that name them as an engine does: both give the neutral record.

How each engine's command lines look is data: checks/launchers/*.yaml. What is read here is the same for all of them. (The folder
``launchers`` holds data only; the functions stand in this module: ``checks.launching.read_command`` and ``read_settings``.)
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from ..engines.profile import parse_version
from ..errors import RoofplanError, SpecError
from .arguments import ArgumentReader
from .config_files import settings_of
from .launcher_spec import heads, launcher_of
from .record import Place, Pod, Reading, Said
from .services import Filling, service_of
from .starts import Start, find_starts, version_of_image

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..engines.profile import Version


def read_command(
    words: Sequence[Said[str]],
    *,
    environment: Mapping[str, Said[str]],
    image: Said[str] | None,
    kind: str,
    name: str,
    place: Place,
    pod: Pod,
    text: str = "",
    replaces_entrypoint: bool = False,
    unknown: Mapping[int, RoofplanError] | None = None,
) -> Reading:
    """Read the command of a container or of a script.

    Parameters
    ----------
    words : command and arguments; what a shell is given (``sh -c "…"``) is lexed
    environment : variables of the container
    image : its image, whose entrypoint stands before the words where they start no program, and whose tag may hold the version
    kind, name, place, pod : of the service
    text : the whole file, so that the places of words inside one scalar are found; else they have the scalar's line
    replaces_entrypoint : whether the words begin with a program of their own (``command`` of Kubernetes, ``entrypoint`` of compose)
    unknown : what cannot be told of some words, by their index

    Returns
    -------
    Reading : one service for each engine that the command starts; none where it starts no known one
    """
    starts = find_starts(words, environment, image, place, text=text, own_program=replaces_entrypoint, unknown=unknown)
    return Reading.joined(read_start(start, kind=kind, name=name, place=place, pod=pod) for start in starts)


def read_settings(
    engine: str,
    settings: Mapping[str, Said[Any]],
    *,
    environment: Mapping[str, Said[str]] | None = None,
    image: Said[str] | None = None,
    version: str = "",
    kind: str,
    name: str,
    place: Place,
    pod: Pod,
) -> Reading:
    """Read settings that have the names of an engine's flags (``tensor_parallel_size: 4``), as files of other tools have them.

    Parameters
    ----------
    engine : ``vllm``, ``sglang``, …
    settings : by the flags' names, with underscores or dashes; values as the file has them
    environment, image, kind, name, place, pod : as of :func:`read_command`
    version : of the engine, where the file says it; else the image's tag may

    Returns
    -------
    Reading : one service; none for an engine that is not known
    """
    launcher = launcher_of(engine.lower())
    if launcher is None:
        wanted = f"one of {', '.join(head.engine for head in heads())}"
        return Reading(problems=(SpecError("engine", got=engine, wanted=wanted, where=str(place)),))
    version = version or version_of_image(launcher, image)
    words: list[Said[str]] = []
    for key, said in settings.items():
        words += setting_words(key, said)
    start = Start(launcher, version, tuple(words), environment or {}, image, is_settings=True)
    return read_start(start, kind=kind, name=name, place=place, pod=pod)


def setting_words(key: str, said: Said[Any]) -> list[Said[str]]:
    """A setting as words that :class:`ArgumentReader` reads as such: a mapping is JSON, a list several words."""
    name = f"--{key.lstrip('-').replace('_', '-')}"
    written = said.text or f"{key}: {_shown(said.value)}"
    match said.value:
        case None:
            return []
        case dict() as inner:
            return [Said(f"{name}={json.dumps(inner)}", said.place, written)]
        case list() | tuple() as items:
            return [Said(name, said.place, written), *(Said(_shown(item), said.place, _shown(item)) for item in items)]
        case value:
            return [Said(f"{name}={_shown(value)}", said.place, written)]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def read_start(start: Start, *, kind: str, name: str, place: Place, pod: Pod) -> Reading:
    """Read one engine that a command starts."""
    if start.launcher is None:
        return Reading(problems=start.problems)
    launcher = start.launcher
    version = parse_version(start.version)
    done = _reader(launcher.engine, version, settings=start.is_settings).read(start.words, start.unknown)
    problems: list[RoofplanError] = [*start.problems, *done.problems]
    flags = done.flags
    filling = Filling(launcher)
    config = launcher.parsing.config
    named = [flag for flag, _ in flags if config and flag.name == config]
    if named:
        try:
            words = [
                word for key, said in settings_of(named[-1].value, config).items() for word in setting_words(key, said)
            ]
        except RoofplanError as error:
            problems.append(error)
        else:
            inside = _reader(launcher.engine, version, settings=True).read(words)
            problems += inside.problems
            done.lost |= inside.lost
            filling.add(inside.flags)  # first: what the command line says holds over it
            # Where a file has settings that are no flags, the others of its kind are not listed.
            flags = [*flags, *(pair for pair in inside.flags if pair[1] is not None or not launcher.settings)]
    filling.add(done.flags)
    filling.add_variables(start.environment)
    model = filling.options.get("model")
    if model is not None and str(model.value) in {"-", ""}:
        del filling.options["model"]
        wanted = "a name or a path: a command line has no standard input"
        problems.append(
            SpecError("model", got=str(model.value) or "an empty name", wanted=wanted, where=str(model.place))
        )
    service = service_of(
        launcher,
        filling,
        [flag for flag, _ in flags],
        version=start.version,
        image=start.image,
        kind=kind,
        name=name,
        place=start.place or place,
        pod=start.pod(pod),
        lost=done.lost,
    )
    return Reading((service,), (*problems, *filling.problems))


@functools.cache
def _reader(engine: str, version: Version | None, *, settings: bool) -> ArgumentReader:
    launcher = launcher_of(engine)
    assert launcher is not None
    return ArgumentReader(launcher, version, settings=settings)
