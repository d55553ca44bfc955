"""Finding where a command starts an engine: behind wrappers, in the text of ``sh -c``, in ``docker run``, or as an image's own program."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..errors import RoofplanError
from .launcher_spec import Head, Image, Launcher, heads, launcher_of
from .record import Place, Pod, Said
from .words import Command, Locator, lex

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SHELLS = {"sh", "bash", "dash", "ash", "zsh", "ksh"}
_CONTAINERS = {"docker", "podman", "nerdctl"}
# Programs that only speak of their arguments, or are no server whatever follows.
_OTHERS = frozenset({
    "alias", "cat", "declare", "echo", "export", "find", "grep", "local", "ls", "man", "pgrep", "printf", "ps", "read",
    "false", "kill", "killall", "pkill", "readonly", "sed", "sleep", "tail", "tee", "test", "trap", "true", "type", "unset", "wget",
    "which", "apt", "apt-get", "cp", "curl", "docker-compose", "git", "helm", "kubectl", "mkdir", "mv", "pip", "pip3", "rm", "touch",
})  # fmt: skip
_PYTHON = re.compile(r"python[0-9.]*|pypy[0-9.]*")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_DEEPEST = 4


@dataclass(frozen=True, slots=True)
class Start:
    """An engine that a command starts.

    Parameters
    ----------
    launcher : of the engine; None where only problems were found
    version : as the image's tag says it, or empty
    words : its arguments, behind the program's own words
    environment, image : what holds for it
    unknown : what cannot be told of some words, by their index
    place : of its first word
    problems : what was malformed on the way
    given : what ``docker run`` says of devices and memory
    is_settings : whether the words are settings of a file, where a switch may have a value
    """

    launcher: Launcher | None
    version: str = ""
    words: tuple[Said[str], ...] = ()
    environment: Mapping[str, Said[str]] = field(default_factory=dict)
    image: Said[str] | None = None
    unknown: Mapping[int, RoofplanError] = field(default_factory=dict)
    place: Place | None = None
    problems: tuple[RoofplanError, ...] = ()
    given: Pod | None = None
    is_settings: bool = False

    def pod(self, pod: Pod) -> Pod:
        """The pod with what the command itself says of it."""
        if self.given is not None:
            pod = replace(
                pod,
                gpus=self.given.gpus or pod.gpus,
                shm_bytes=self.given.shm_bytes or pod.shm_bytes,
                host_ipc=self.given.host_ipc or pod.host_ipc,
                contained=True,
            )
        visible = self.environment.get("CUDA_VISIBLE_DEVICES")
        if pod.gpus is None and visible is not None and re.fullmatch(r"\s*[0-9]+(\s*,\s*[0-9]+)*\s*", visible.value):
            return replace(pod, gpus=Said(len(visible.value.split(",")), visible.place, visible.text))
        return pod


def find_starts(
    words: Sequence[Said[str]],
    environment: Mapping[str, Said[str]],
    image: Said[str] | None,
    place: Place,
    *,
    text: str = "",
    own_program: bool = False,
    unknown: Mapping[int, RoofplanError] | None = None,
) -> list[Start]:
    """The engines that the command of a container starts; ``unknown``: what cannot be told of some of its words, by their index."""
    command = Command(tuple(words), environment, unknown or {})
    return list(_starts(command, image, text, own_program=own_program, place=place))


def starts_of(command: Command, text: str, place: Place) -> list[Start]:
    """The engines that one command of a script starts."""
    return list(_starts(command, None, text, own_program=True, place=place))


def _starts(
    command: Command, image: Said[str] | None, text: str, *, own_program: bool, place: Place, depth: int = 0
) -> Iterator[Start]:
    words = command.words
    inner = _shell_text(words) if depth < _DEEPEST else None
    if inner is not None:
        yield from _in_shell(command, inner, image, text, place, depth)
        return
    if words and _base(words[0].value) in _OTHERS:
        return
    ran, begun = _container_run(words), _program(words)
    if ran is not None:
        yield from _in_container(command, *ran, text=text, depth=depth)
    elif begun is not None:
        head, first, after = begun
        environment = {**command.environment, **_variables(words[:first])}
        start = _begun(command, after, environment, image)
        version = version_of_image(head, image)
        yield replace(start, launcher=launcher_of(head.engine), version=version, place=words[first].place)
    elif image is not None and not own_program and not _is_program(words):
        yield from _own_start(command, image, place)


def _in_shell(
    command: Command, inner: int, image: Said[str] | None, text: str, place: Place, depth: int
) -> Iterator[Start]:
    """What the text of ``sh -c`` starts."""
    if inner in command.unknown:
        yield Start(None, problems=(command.unknown[inner],))
        return
    said = command.words[inner]
    script = lex(said.value, said.place, command.environment, locate=Locator(text, said.place) if text else None)
    if script.problems:
        yield Start(None, problems=script.problems)
    for one in script.commands:
        yield from _starts(one, image, text, own_program=True, place=place, depth=depth + 1)


def _in_container(
    command: Command, image: int, entry: Said[str] | None, options: Pod, *, text: str, depth: int
) -> Iterator[Start]:
    """What ``docker run`` starts: variables outside a container are not those inside."""
    words = command.words
    own = () if entry is None else (entry,)
    moved = image + 1 - len(own)
    unknown = {index - moved: error for index, error in command.unknown.items() if index > image}
    inside = Command((*own, *words[image + 1 :]), _variables(words[:image]), unknown)
    found = _starts(inside, words[image], text, own_program=entry is not None, place=words[0].place, depth=depth + 1)
    for start in found:
        yield replace(start, given=options)


def _own_start(command: Command, image: Said[str], place: Place) -> Iterator[Start]:
    """What an image starts by itself, with the words as its arguments."""
    for head in heads():
        known = _image(head, image.value)
        if known is not None and known.entrypoint:
            start = _begun(command, 0, command.environment, image)
            where = command.words[0].place if command.words else place
            version = version_of_image(head, image)
            yield replace(start, launcher=launcher_of(head.engine), version=version, place=where)
            return


def _begun(command: Command, after: int, environment: Mapping[str, Said[str]], image: Said[str] | None) -> Start:
    unknown = {index - after: error for index, error in command.unknown.items() if index >= after}
    return Start(
        None,
        words=command.words[after:],
        environment=environment,
        image=image,
        unknown=unknown,
        place=command.words[0].place if command.words else None,
    )


def _shell_text(words: Sequence[Said[str]]) -> int | None:
    """The index of what ``sh -c`` is given."""
    for index, word in enumerate(words[:4]):
        if _base(word.value) in _SHELLS:
            for after in range(index + 1, len(words) - 1):
                option = words[after].value
                if not option.startswith("-"):
                    return None
                if re.fullmatch(r"-[a-z]*c[a-z]*", option):
                    return after + 1
            return None
    return None


def _program(words: Sequence[Said[str]]) -> tuple[Head, int, int] | None:
    """The engine that words start, where its program stands, and where its arguments begin."""
    values = [word.value for word in words]
    best: tuple[Head, int, int] | None = None
    for head in heads():
        for program in head.programs:
            span = _matched(values, program)
            if span is not None and (best is None or span[0] < best[1]):
                best = (head, *span)
    return best


def _matched(values: Sequence[str], program: Sequence[str]) -> tuple[int, int] | None:
    if program[0] == "python":  # options of its own may stand between it and what it runs
        rest = tuple(program[1:])
        for index in range(1, len(values) - len(rest) + 1):
            if tuple(values[index : index + len(rest)]) == rest:
                before = [at for at in range(index) if _PYTHON.fullmatch(_base(values[at]))]
                return (before[-1] if before else index), index + len(rest)
        return None
    for index in range(len(values) - len(program) + 1):
        if _base(values[index]) == program[0] and tuple(values[index + 1 : index + len(program)]) == tuple(program[1:]):
            return index, index + len(program)
    return None


def _base(text: str) -> str:
    return text.rsplit("/", 1)[-1]


def _is_program(words: Sequence[Said[str]]) -> bool:
    """Whether words begin with a program that is none of ours, so that an image's own is not started."""
    if not words or words[0].value.startswith("-"):
        return False
    base = _base(words[0].value)
    return (
        base in _OTHERS
        or base in _SHELLS
        or _PYTHON.fullmatch(base) is not None
        or base in {"ray", "vllm", "sleep", "exec", "nsys", "torchrun", "mpirun"}
        or base.endswith((".sh", ".py"))
        or words[0].value.startswith(("/bin/", "/usr/", "/opt/", "./"))
    )


def _variables(words: Sequence[Said[str]]) -> dict[str, Said[str]]:
    """Variables that stand before a program: ``env NAME=value``, ``docker run -e NAME=value``, ``--env=NAME=value``."""
    found: dict[str, Said[str]] = {}
    for word in words:
        match = _ASSIGNED.fullmatch(word.value.removeprefix("--env=").removeprefix("-e").removeprefix("="))
        if match is not None:
            found[match[1]] = Said(match[2], word.place, word.text)
    return found


# ------------------------------------------------------------------------------------------------ images


def version_of_image(launcher: Head | Launcher, image: Said[str] | None) -> str:
    """The version of an engine that an image's tag holds; empty where it holds none.

    ``vllm/vllm-openai:v0.19.0`` holds 0.19.0, ``latest`` and a digest alone hold none.
    """
    known = None if image is None else _image(launcher, image.value)
    if known is None or image is None:
        return ""
    tag = image.value.partition("@")[0].rsplit("/", 1)[-1].partition(":")[2]
    match = re.match(known.tag, tag)
    return match[1] if match else ""


def _image(launcher: Head | Launcher, name: str) -> Image | None:
    repository = name.partition("@")[0]
    head, slash, last = repository.rpartition("/")
    path = f"/{head}{slash}{last.partition(':')[0]}"
    return next((image for image in launcher.images if path.endswith(f"/{image.name}")), None)


def _container_run(words: Sequence[Said[str]]) -> tuple[int, Said[str] | None, Pod] | None:
    """Where the image of ``docker run`` stands, the program that replaces the image's own, and what the options say.

    An image that is not known stands before a known program, or before the ``-c`` of a shell that ``--entrypoint`` names.
    """
    values = [word.value for word in words]
    at = next((i for i, value in enumerate(values) if _base(value) in _CONTAINERS), None)
    if at is None or "run" not in values[at + 1 : at + 4]:
        return None
    first = values.index("run", at) + 1
    entry = _option(words[first:], "--entrypoint")
    images = (i for i in range(first, len(values)) if not values[i].startswith("-") and _is_image(values[i]))
    image = next(images, None)
    if image is None:
        inside = _inside(words, first, entry)
        if inside is None:
            return None
        image = inside - 1
    return image, entry, _run_options(words[first:image])


def _inside(words: Sequence[Said[str]], first: int, entry: Said[str] | None) -> int | None:
    """Where the words of a container begin whose image is not known; None where they start no engine."""
    values = [word.value for word in words]
    if entry is not None and _base(entry.value) in _SHELLS:
        return next((i for i in range(first, len(values)) if re.fullmatch(r"-[a-z]*c", values[i])), None)
    if entry is not None:
        rests = [program[1:] for head in heads() for program in head.programs if program[0] == _base(entry.value)]
        return next(
            (i for i in range(first, len(values)) if any(tuple(values[i : i + len(rest)]) == rest for rest in rests)),
            None,
        )
    begun = _program(words[first:])
    return None if begun is None else first + begun[1]


def _is_image(name: str) -> bool:
    return any(_image(head, name) is not None for head in heads())


def _option(words: Sequence[Said[str]], name: str) -> Said[str] | None:
    """The value of an option, written behind it or after an equals sign."""
    for index, word in enumerate(words):
        if word.value == name and index + 1 < len(words):
            return words[index + 1]
        if word.value.startswith(f"{name}="):
            return Said(word.value.partition("=")[2], word.place, word.text)
    return None


_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([bkmgt]?)b?", re.IGNORECASE)


def _run_options(words: Sequence[Said[str]]) -> Pod:
    """Devices and shared memory of ``docker run`` (docker/cli, docs/reference/commandline/run.md)."""
    gpus: Said[int] | None = None
    shm: Said[int] | None = None
    host_ipc = False
    for index, word in enumerate(words):
        name, equals, value = word.value.partition("=")
        said = value if equals else words[index + 1].value if index + 1 < len(words) else ""
        if name == "--gpus":
            devices = re.fullmatch(r'"?device=([^"]+)"?', said)
            if said.isdecimal():
                gpus = Said(int(said), word.place, word.text)
            elif devices is not None:
                gpus = Said(len(devices[1].split(",")), word.place, word.text)
        elif name == "--shm-size" and (size := docker_bytes(said)) is not None:
            shm = Said(size, word.place, word.text)
        elif name == "--ipc":
            host_ipc = said == "host"
    return Pod(gpus=gpus, shm_bytes=shm, host_ipc=host_ipc, contained=True)


def docker_bytes(text: str) -> int | None:
    """A size as docker and compose read it (``16g``, ``16gb``): powers of 1024; None where it is none.

    Source: docker/go-units, size.go, RAMInBytes
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or len(text) > 24:
        return None
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower().replace("b", "") or " "))
