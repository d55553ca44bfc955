"""What a Kubernetes pod gives its containers: devices, shared memory, variables, commands; whoever makes the pod.

Tolerations are not read: they allow a node and choose none. Sources: kubernetes/api, core/v1/types.go; kubernetes/kubernetes,
third_party/forked/golang/expansion/expand.go (``$(NAME)`` in commands).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import RoofplanError, SpecError
from . import gpus
from .launching import read_command
from .nodes import LARGEST, Node, template
from .record import Pod, Reading, Said

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .record import Service

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
SHM = "/dev/shm"  # noqa: S108  # a path in a manifest, nothing is written there
_CHAT_TEMPLATE = "--chat-template"  # whose value is a template for the model, not for the manifest
UNBOUNDED = LARGEST  # bytes of a /dev/shm that only the memory of the node bounds


@dataclass(frozen=True, slots=True)
class Owner:
    """What has the pods.

    Parameters
    ----------
    kind : of the file, as of a service
    name : of the object
    pods, replicas : as of :class:`~roofplan.checks.record.Pod`
    variables : that its controller sets in every container
    """

    kind: str
    name: str
    pods: Said[int] | None = None
    replicas: Said[int] | None = None
    variables: Mapping[str, Said[str]] = field(default_factory=dict)


def read_containers(spec: Node, owner: Owner, text: str) -> Reading:
    """Read every container of a pod that starts a known engine.

    Parameters
    ----------
    spec : of the pod
    owner : of the pod
    text : the whole file
    """
    found: list[tuple[str, Service]] = []
    problems: list[Exception] = []
    for container in spec.get("containers").items():
        reading = read_container(spec, container, owner, text)
        problems += reading.problems
        found += [(container.get("name").name(), service) for service in reading.services]
    return Reading(_with_names(found, owner), tuple(problems))


def _with_names(found: Sequence[tuple[str, Service]], owner: Owner) -> tuple[Service, ...]:
    from dataclasses import replace

    if len(found) < 2:
        return tuple(service for _, service in found)
    return tuple(replace(service, name=f"{owner.name}/{container}") for container, service in found)


def read_container(spec: Node, container: Node, owner: Owner, text: str) -> Reading:
    """Read one container; what is wrong with it is a problem, where it starts an engine at all."""
    environment, image = environment_of(container, owner.variables), container.get("image").text()
    words = words_of(container, environment)
    command = [*container.get("command").items(), *container.get("args").items(), container.get("image")]
    faults = [fault for fault in templates(command) if fault is not None]
    try:
        pod = pod_of(spec, container, owner)
    except RoofplanError as error:
        pod = Pod(contained=True)
        faults.append(error)
    reading = read_command(
        words,
        environment=environment,
        image=image,
        kind=owner.kind,
        name=owner.name,
        place=container.place,
        pod=pod,
        text=as_expanded(text, words, environment),
        replaces_entrypoint=bool(container.get("command")),
        unknown=unknown_words(words, environment),
    )
    if faults and (reading.services or reading.problems or _wants_devices(container)):
        return Reading(problems=tuple(faults))
    return reading


def templates(words: Sequence[Node]) -> Iterator[RoofplanError]:
    """The words of a command that a template engine has not filled in yet."""
    before = ""
    for word in words:
        written = word.value if isinstance(word.value, str) else ""
        fault = template(word)
        if fault is not None and not before.startswith(_CHAT_TEMPLATE) and not written.startswith(_CHAT_TEMPLATE):
            yield fault
        before = written


def _wants_devices(container: Node) -> bool:
    return any(
        gpus.is_device(key) or gpus.is_slice(key)
        for part in ("limits", "requests")
        for key, _ in container.get("resources", part).entries()
    )


# ------------------------------------------------------------------------------------------------ commands


def environment_of(container: Node, more: Mapping[str, Said[str]] | None = None) -> dict[str, Said[str]]:
    """The variables of a container whose values the manifest holds; a later one may use those before it."""
    found: dict[str, Said[str]] = dict(more or {})
    for one in container.get("env").items():
        name, value = one.get("name").name(), one.get("value").text()
        if name and value is not None:
            found[name] = expanded(value, found)
    return found


def words_of(container: Node, environment: Mapping[str, Said[str]]) -> list[Said[str]]:
    """The command and arguments of a container."""
    said = [one.text() for part in ("command", "args") for one in container.get(part).items()]
    return [expanded(word, environment) for word in said if word is not None]


def expanded(said: Said[str], environment: Mapping[str, Said[str]]) -> Said[str]:
    """A text in which ``$(NAME)`` is replaced where the variable is known, and ``$$`` is a dollar sign."""
    value = _expanded(said.value, environment)
    return said if value == said.value else Said(value, said.place, said.value)


def unknown_words(words: Sequence[Said[str]], environment: Mapping[str, Said[str]]) -> dict[int, RoofplanError]:
    """The words with a variable that the manifest holds no value of (of a secret, or set by a controller), and what is wrong with each.

    The text of ``sh -c`` is not one of them: the shell's words are looked at one by one.
    """
    found: dict[int, RoofplanError] = {}
    for index, word in enumerate(words):
        written = word.text or word.value
        if "$(" not in written or re.search(r"\s", written):
            continue
        lost = next((one for one in _REFERENCE.finditer(written) if one[1] and one[1] not in environment), None)
        if lost is not None:
            wanted = "a variable whose value the manifest holds"
            hint = f"give {lost[1]} a value among the container's variables, or write the value"
            found[index] = SpecError("command", got=lost[0], wanted=wanted, hint=hint, where=str(word.place))
    return found


def as_expanded(text: str, words: Sequence[Said[str]], environment: Mapping[str, Said[str]]) -> str:
    """The text of a file in which the words of a command can be found again: expanded where they are."""
    return _expanded(text, environment) if any(word.text for word in words) else text


def _expanded(text: str, environment: Mapping[str, Said[str]]) -> str:
    if "$" not in text:
        return text

    def replaced(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        value = environment[match[1]].value if match[1] in environment else match[0]
        return match[0] if "\n" in value else value

    return _REFERENCE.sub(replaced, text)


# ------------------------------------------------------------------------------------------------ devices


def pod_of(spec: Node, container: Node, owner: Owner) -> Pod:
    """What a pod gives one of its containers.

    Raises
    ------
    RoofplanError : for a number or a size that is none
    """
    count, part = devices_of(container)
    node = node_of(spec)
    return Pod(
        gpus=count,
        hardware=None if part is not None else node.hardware,
        unknown_hardware=part or node.unknown,
        node_gpus=node.gpus,
        pods=owner.pods,
        replicas=owner.replicas,
        shm_bytes=shm_of(spec, container),
        host_ipc=spec.get("hostIPC").value is True or _is_host_shm(spec, container),
        contained=True,
    )


def devices_of(container: Node) -> tuple[Said[int] | None, Said[str] | None]:
    """How many devices a container gets, and the resource where it is only a part of one."""
    for part in ("limits", "requests"):
        for key, value in container.get("resources", part).entries():
            is_slice = gpus.is_slice(key)
            if not is_slice and not gpus.is_device(key):
                continue
            fault = template(value)
            if fault is not None:
                raise fault
            said = value.whole(key)
            if said is not None:
                count = Said(said.value, said.place, f"{key}: {said.text}")
                return count, Said(key, said.place, count.text) if is_slice else None
    return None, None


def node_of(spec: Node) -> gpus.Node:
    """The device of the nodes that a pod may run on."""
    return gpus.node({**affinity_of(spec.get("affinity")), **selector_of(spec.get("nodeSelector"))})


def affinity_of(affinity: Node) -> dict[str, list[Said[str]]]:
    """The values that an affinity to nodes allows."""
    return terms_of(affinity.get("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"))


def selector_of(selector: Node) -> dict[str, list[Said[str]]]:
    """The labels of a node selector."""
    said = {key: value.text() for key, value in selector.entries()}
    return {key: [value] for key, value in said.items() if value is not None}


def terms_of(terms: Node) -> dict[str, list[Said[str]]]:
    """The values that node selector terms allow, of labels that each of the terms asks for: one of the terms must hold."""
    found: list[dict[str, list[Said[str]]]] = []
    for term in terms.items():
        allowed: dict[str, list[Said[str]]] = {}
        for expression in term.get("matchExpressions").items():
            values = [value for one in expression.get("values").items() if (value := one.text()) is not None]
            if expression.get("operator").value == "In" and values:
                allowed[expression.get("key").name()] = values
        found.append(allowed)
    if not found:
        return {}
    common = set(found[0]).intersection(*found[1:])
    return {key: [value for one in found for value in one[key]] for key in found[0] if key in common}


# ------------------------------------------------------------------------------------------------ shared memory


def shm_of(spec: Node, container: Node) -> Said[int] | None:
    """The size of ``/dev/shm`` where a volume is mounted there; None where it has the default."""
    volume = _shm_volume(spec, container)
    if volume is None:
        return None
    limit = volume.get("emptyDir", "sizeLimit")
    if limit:
        return limit.quantity("sizeLimit")
    memory = container.get("resources", "limits", "memory")
    if volume.get("emptyDir", "medium").value == "Memory" and memory:
        bound = memory.quantity("memory")
        return None if bound is None else Said(bound.value, volume.place, f"memory: {bound.text}")
    return Said(UNBOUNDED, volume.place)


def _is_host_shm(spec: Node, container: Node) -> bool:
    volume = _shm_volume(spec, container)
    return volume is not None and volume.get("hostPath", "path").name().rstrip("/") == SHM


def _shm_volume(spec: Node, container: Node) -> Node | None:
    for mount in container.get("volumeMounts").items():
        if mount.get("mountPath").name().rstrip("/") == SHM:
            for volume in spec.get("volumes").items():
                if volume.get("name").value == mount.get("name").value:
                    return volume
    return None
